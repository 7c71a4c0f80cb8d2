/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One end of a conversation over a stream, of who has the site's key with somebody else who has it
 * (inc/ctrl_wire.h): with the controller, with a switch, with a group's leader. It never waits:
 * ha_talk_next() says what has happened, and ha_talk_await() is for who has nothing else to do.
 *
 *	DIALING -> GREETING -> OPEN -> OVER, to which everything leads that fails
 *
 * Nothing that does not carry its code counts. A dead host is noticed within 5 s, by the kernel.
 * One thread.
 */
#ifndef HA_INC_NET_TALK_H
#define HA_INC_NET_TALK_H

#include "base/net.h"
#include "inc/ctrl_wire.h"

#define HA_TALK_WHY	   160
#define HA_TALK_CONNECT_NS 1000000000ull

enum ha_talk_phase { HA_TALK_DIALING, HA_TALK_GREETING, HA_TALK_OPEN, HA_TALK_OVER };

enum ha_talk_event {
	HA_TALK_NOTHING,
	HA_TALK_OPENED, /* from now on something can be said */
	HA_TALK_HEARD,	/* a frame is in `heard` until the next call */
	HA_TALK_ENDED,	/* `why` says why; said once */
};

struct ha_talk_frame {
	enum ha_ctrl_kind kind;
	uint32_t length;
	const uint8_t *text;
	uint8_t secret[HA_CTRL_SECRET_BYTES];
};

struct ha_talk {
	enum ha_talk_phase phase;
	enum ha_ctrl_side side;
	int fd; /* OVER: -1 */
	const struct ha_job_key *site;
	uint8_t nonce[HA_CTRL_NONCE_BYTES];
	struct ha_ctrl_session keys;
	uint32_t most;	 /* bytes of a text that is taken */
	bool is_known;	 /* has said something genuine */
	bool is_told;	 /* ENDED has been said */
	bool is_refused; /* OVER: the other end has said so */
	uint8_t *in;
	size_t got, in_room;
	uint8_t *out;
	size_t sent, to_send, out_room;
	struct ha_talk_frame heard;
	char why[HA_TALK_WHY];
};

/* site: outlives the talk. Either way ha_talk_end is to be called in the end. */
void ha_talk_dial(struct ha_talk *talk, const union ha_sockaddr *to, const struct ha_job_key *site,
		  uint32_t most);
/* Of somebody who has dialled us; takes the descriptor, which does not block. */
void ha_talk_take(struct ha_talk *talk, int fd, const struct ha_job_key *site, uint32_t most);
void ha_talk_end(struct ha_talk *talk);
/* Of a TCP socket: its peer counts as gone 5 s after its host said its last, also where that says
 * nothing. */
void ha_talk_watch_life(int fd);

enum ha_talk_event ha_talk_next(struct ha_talk *talk);
/* The next event; NOTHING: there was none until then. */
enum ha_talk_event ha_talk_await(struct ha_talk *talk, uint64_t until_ns);
/* What to wait for, as poll takes it. */
short ha_talk_waits_for(const struct ha_talk *talk);

/* OPEN: says it, now or as the other end reads. secret: NULL for none. False: it is over, or the
 * other end has not read for so long that nothing more is kept for it. */
bool ha_talk_say(struct ha_talk *talk, enum ha_ctrl_kind kind, const uint8_t *secret,
		 const void *text, size_t length);
/* Says why not, and ends when that is said. */
void ha_talk_refuse(struct ha_talk *talk, const char *why);

/* Nobody has taken the connection for so long that another one is the quicker way: TCP asks again
 * after 1, 3, 7 and 15 s, also where somebody is there by then. */
bool ha_talk_is_stuck(const struct ha_talk *talk, uint64_t dialled_ns, uint64_t now_ns);

/* This end's address; false: it has none. */
bool ha_talk_here(const struct ha_talk *talk, union ha_sockaddr *at);

#endif
