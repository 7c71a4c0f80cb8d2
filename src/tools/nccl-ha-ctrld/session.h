/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection of the controller: bytes in, frames that are genuine out to the server, and what it
 * says. It never waits: what cannot be sent is kept, and what is kept is bounded.
 */
#ifndef NC_SESSION_H
#define NC_SESSION_H

#include "base/net.h"
#include "base/seats.h"
#include "tools/nccl-ha-ctrld/groups.h"

#define NC_UNSENT_MAX	 4		 /* frames */
#define NC_UNSENT_SWITCH (2 * NC_GROUPS) /* the same of one that serves a switch */

enum nc_session_phase {
	NC_GREETING, /* its hello is to come */
	NC_STRANGER, /* its first frame is to come */
	NC_KNOWN,    /* has the site's key */
	NC_ENDING,   /* has been refused: what it says is not read */
};

struct nc_unsent {
	uint8_t head[HA_CTRL_HEAD_BYTES];
	struct nc_text *text;
	size_t sent; /* of both */
};

struct nc_session {
	struct ha_list link;
	struct ha_seat seat; /* until it is known */
	struct nc_member member;
	struct nc_serving serving;
	enum nc_session_phase phase;
	bool over;    /* to be closed */
	bool watched; /* the server is told when more can be sent */
	int fd;
	union ha_sockaddr from;
	uint64_t since_ns; /* of its phase, or of when it was in a group last */
	uint8_t nonce[HA_CTRL_NONCE_BYTES];
	struct ha_ctrl_session keys;
	uint8_t *in; /* NULL: nothing of a frame has come */
	size_t got;
	struct nc_unsent *unsent;
	unsigned n_unsent, unsent_room, unsent_most;
};

/* A frame that is genuine. text is not terminated; the secret is gone afterwards. */
typedef void (*nc_session_hears)(void *arg, struct nc_session *session, enum ha_ctrl_kind kind,
				 const char *text, uint32_t length, const uint8_t *secret);

/* Why a session is refused. */
enum nc_refusal { NC_NOT_REFUSED, NC_BAD_VERSION, NC_BAD_KEY, NC_BAD_REQUEST };

/* Takes the descriptor, and says hello. NULL: no memory, and it is closed. */
struct nc_session *nc_session_new(int fd, const union ha_sockaddr *from, uint64_t now_ns);
void nc_session_free(struct nc_session *session);

/* What is there to be read. It may be `over` after it. */
enum nc_refusal nc_session_read(struct nc_session *session, const struct ha_job_key *site,
				uint64_t now_ns, nc_session_hears hears, void *arg);
/* What can be sent of what is unsent. */
void nc_session_write(struct nc_session *session);

/* text gets one more user. */
void nc_session_say(struct nc_session *session, enum ha_ctrl_kind kind, struct nc_text *text,
		    const uint8_t *secret);
/* Says why, and ends. */
void nc_session_refuse(struct nc_session *session, uint64_t now_ns, const char *why);

#endif
