/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The star of a group: member 0 waits for the others, who dial it and show the group's key. When
 * all are there it may say so to each; from then on frames (inc/frame.h) go both ways, in order and
 * without a loss, as long as both processes live.
 *
 * Who dials and has not shown the key is a stranger: there is room for HA_STAR_STRANGERS, each for
 * HA_STAR_SILENCE_NS, and the oldest makes way. One thread.
 */
#ifndef HA_INC_NET_STAR_H
#define HA_INC_NET_STAR_H

#include "inc/frame.h"
#include "inc/net/talk.h"

#define HA_STAR_STRANGERS  64
#define HA_STAR_SILENCE_NS 5000000000ull

struct ha_star;

struct ha_star_shape {
	uint64_t group;
	uint16_t members, number; /* and which one this is: 0 is the leader */
	const uint8_t *key;	  /* HA_CTRL_SECRET_BYTES; copied */
	const struct ha_job_key *site;
	const union ha_sockaddr *leader; /* of others than the leader: where that is */
	int listener;			 /* of the leader: taken; does not block. Others: -1 */
};

enum ha_star_event {
	HA_STAR_NOTHING,
	HA_STAR_READY, /* all members are there; of others than the leader: it says so; said once */
	HA_STAR_FRAME, /* of `member`: to this one */
	HA_STAR_GONE,  /* the connection of `member`, and so its process; once of each */
};

/* NULL: no memory, and the listener is closed. */
struct ha_star *ha_star_open(const struct ha_star_shape *shape);
void ha_star_close(struct ha_star *star);

/* What has happened. `member`: 0 of others than the leader. */
enum ha_star_event ha_star_next(struct ha_star *star, uint64_t now_ns, uint16_t *member,
				struct ha_inc_frame *frame);

/* Of the leader, to all others: that all are there, or why they are not to go on. */
void ha_star_go(struct ha_star *star);
void ha_star_refuse(struct ha_star *star, const char *why);

/* To a member, or to the leader. To who is gone it says nothing. */
void ha_star_say(struct ha_star *star, uint16_t member, const struct ha_inc_frame *frame);

/* Of the leader: the first member that is not there; `members`: all are. */
uint16_t ha_star_missing(const struct ha_star *star);
/* Whether some other member's connection is still there. */
bool ha_star_is_anybody_there(const struct ha_star *star);
/* Of others than the leader: that has refused this one, or all. */
bool ha_star_is_refused(const struct ha_star *star);
/* Why a member's connection is gone, or could not be made. */
const char *ha_star_why(const struct ha_star *star, uint16_t member);

#endif
