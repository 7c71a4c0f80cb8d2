/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a host and the controller of all-reduces in the network say to each other, over a stream; so
 * do a child and its switch, and a member and its leader: who dials speaks as the host.
 *
 * Each begins with a hello: magic, version, a nonce. The session's key is made of the site's key
 * and both nonces, so who has not the site's key can neither say nor check anything, and what was
 * recorded is worth nothing in another session. Then come frames:
 *
 *	offset	bytes
 *	0	4	length of the text
 *	4	1	kind (enum ha_ctrl_kind)
 *	5	3	zero
 *	8	32	a secret, masked with the session's key; zero without one
 *	40	16	code: over who says it, its number, the 40 bytes before, SHA-256 of the text
 *	56		the text: JSON
 *
 * Integers are little-endian. Texts are not secret.
 */
#ifndef HA_INC_CTRL_WIRE_H
#define HA_INC_CTRL_WIRE_H

#include "base/job_key.h"
#include "base/statement.h"

#define HA_CTRL_VERSION	     4
#define HA_CTRL_NONCE_BYTES  32
#define HA_CTRL_HELLO_BYTES  40
#define HA_CTRL_HEAD_BYTES   56
#define HA_CTRL_SECRET_BYTES 32
#define HA_CTRL_ASK_MAX	     16384     /* text of a host */
#define HA_CTRL_TEXT_MAX     (1 << 20) /* text of the controller */

enum ha_ctrl_kind {
	/* Of a host. */
	HA_CTRL_ASK = 1, /* for a plan of a group that the host is in */
	HA_CTRL_LEAVE,	 /* the group is over; no text */
	HA_CTRL_STATUS,	 /* what is there? no text */
	HA_CTRL_SERVE,	/* a program that adds at a switch has come: which one, and where it listens
			 */
	HA_CTRL_JOIN,	/* a child to its switch (inc/join.h); its secret is the group's key */
	HA_CTRL_MEMBER, /* a member to its leader: its number; its secret is the group's key */
	HA_CTRL_FRAME,	/* a member and its leader, both ways: inc/frame.h */
	HA_CTRL_COUNTS, /* a switch's program: what it has counted (inc/switch_counts.h) */
	HA_CTRL_IS_BACK, /* member 0: has each switch of the lanes a program? no text */
	HA_CTRL_WAY,	 /* member 0: by which way its group goes: epoch and way, 4 bytes each */
	HA_CTRL_KNOW,	 /* member 0, to a controller that may have been started again: its receipt,
			    and its group's key */
	HA_CTRL_CHANGE,	 /* an operator: a switch is to be drained, or is not; REPORT answers */
	HA_CTRL_VERDICT, /* an operator: what has a group been told? REPORT answers */
	HA_CTRL_ALL_HERE, /* member 0: all have come to it; GO answers, or NONE; no text */
	HA_CTRL_GIVES_UP, /* another one: it waits no longer for the word of member 0; the same */
	/* Of the controller. */
	HA_CTRL_PLAN = 16, /* to all members of a group; its secret is the group's key */
	HA_CTRL_NONE,	   /* to all members of a group: there is no plan */
	HA_CTRL_REPORT,	   /* answers STATUS */
	HA_CTRL_REFUSED,   /* to one host; the connection ends */
	HA_CTRL_PART,	 /* to a member or a switch: its part of a plan (inc/part.h), and the key */
	HA_CTRL_OVER,	 /* to a switch: a group is over; its number */
	HA_CTRL_JOINED,	 /* of a switch: its end of the edge (inc/join.h) */
	HA_CTRL_GO,	 /* of a leader, and of the controller to who asks: all members are
			    there; no text */
	HA_CTRL_DRAIN,	 /* of a switch to its children: it is about to end; of the controller to
			    a switch: nobody is to add there, until it hears GO; no text */
	HA_CTRL_DISPUTE, /* the same: members do not ask for the same (inc/dispute.h) */
	HA_CTRL_BACK,	 /* answers IS_BACK, if it is so; no text */
	HA_CTRL_RECEIPT, /* to member 0: of its plan, to be kept for KNOW; between PLAN and PART */
};

enum ha_ctrl_side { HA_CTRL_HOST, HA_CTRL_CONTROLLER };

/* ---- hello ----------------------------------------------------------------------------------- */

void ha_ctrl_nonce(uint8_t nonce[HA_CTRL_NONCE_BYTES]);
void ha_ctrl_hello_encode(const uint8_t nonce[HA_CTRL_NONCE_BYTES],
			  uint8_t out[HA_CTRL_HELLO_BYTES]);
/* The version that is spoken, 0: it is no hello. */
uint32_t ha_ctrl_hello_decode(const uint8_t in[HA_CTRL_HELLO_BYTES],
			      uint8_t nonce[HA_CTRL_NONCE_BYTES]);

/* ---- frames ---------------------------------------------------------------------------------- */

/* One end's. As secret as a key: ha_ctrl_session_end erases it. */
struct ha_ctrl_session {
	struct ha_hmac_key key;
	enum ha_ctrl_side side;
	uint64_t said, heard; /* frames */
};

/* False: this process is a child of the one that loaded the key. */
bool ha_ctrl_session_begin(struct ha_ctrl_session *session, const struct ha_job_key *site,
			   enum ha_ctrl_side side, const uint8_t host[HA_CTRL_NONCE_BYTES],
			   const uint8_t controller[HA_CTRL_NONCE_BYTES]) HA_MUST_CHECK;
void ha_ctrl_session_end(struct ha_ctrl_session *session);

/* What goes before a text. secret: NULL for none. */
void ha_ctrl_say(struct ha_ctrl_session *session, enum ha_ctrl_kind kind, const uint8_t *secret,
		 uint32_t length, const uint8_t digest[HA_SHA256_BYTES],
		 uint8_t out[HA_CTRL_HEAD_BYTES]);

/* False: no head begins like that, or its text is longer than `most`. It is still anybody's. */
bool ha_ctrl_head_decode(const uint8_t in[HA_CTRL_HEAD_BYTES], uint32_t most,
			 enum ha_ctrl_kind *kind, uint32_t *length) HA_MUST_CHECK;
/* Whether who has the site's key said it, as his next. secret: NULL, or where it goes. */
bool ha_ctrl_hear(struct ha_ctrl_session *session, const uint8_t head[HA_CTRL_HEAD_BYTES],
		  const void *text, uint32_t length, uint8_t *secret) HA_MUST_CHECK;

#endif
