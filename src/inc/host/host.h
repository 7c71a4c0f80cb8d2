/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A member of a group with all its sockets: it gets its part of a plan from the controller, meets
 * the others at member 0, joins its switches, and lives through the death of switches as
 * docs/inc-protocol.md has it. When no tree is left members add for each other, if they may; else
 * the group ends with an error, the same at all members.
 *
 *	RUNS -> LEAVING -> LEFT
 *	   `-------`-----> OVER, with a reason
 *
 * It moves when its user calls, and never else. Joining switches waits for them. One thread.
 */
#ifndef HA_INC_HOST_HOST_H
#define HA_INC_HOST_HOST_H

#include "inc/net/ask.h"
#include "inc/verbs/follower.h"

#define HA_HOST_WHY 512

enum ha_host_state { HA_HOST_RUNS, HA_HOST_LEAVING, HA_HOST_LEFT, HA_HOST_OVER };

struct ha_host_wish {
	struct ha_ask ask; /* names and site: in use until ha_host_close */
	struct ha_member_ports ports;
	unsigned int copies;  /* operations of one unit that are done before all have the result */
	uint64_t connect_ns;  /* until all members have to be there, and know it */
	uint64_t join_ns;     /* for the switches of a plan to answer */
	uint64_t late_ns;     /* nothing gets on for so long: a reason to suspect the tree */
	uint64_t outage_ns;   /* and for so long, whatever is tried: an error; 0: never */
	uint64_t failback_ns; /* away from the plan's lanes, or from a better port: until it is
				 tried to go back there, the first time; 0: never; of lanes member
				 0's holds for all */
	bool needs_switches;  /* members do not add for each other; member 0's says so for all */
};

struct ha_host;

/*
 * Waits for all members, and ends the same way at all of them (inc/host/meeting.h): of the limit
 * the first half is for the controller's plan, which all hear at once, the other one for them to
 * meet. Not HA_OK: as ha_ask(), or HA_ERR_REMOTE: some member is not there in time; `why` says why
 * not, and *out is NULL.
 */
ha_result_t ha_host_open(const struct ha_host_wish *wish, struct ha_host **out, char *why,
			 size_t size) HA_MUST_CHECK;

/* As ha_member_all_reduce and ha_member_is_done. */
bool ha_host_all_reduce(struct ha_host *host, const struct ha_all_reduce *ask, uint64_t *number);
bool ha_host_is_done(const struct ha_host *host, uint64_t number);

/* Moves everything that can be moved. True: something was. Waits for switches where a plan is to be
 * joined. */
bool ha_host_progress(struct ha_host *host);
/* The same, and waits for nobody: what comes next where another plan is to be joined is left to
 * ha_host_progress(), which is wanted then. */
bool ha_host_poll(struct ha_host *host);
bool ha_host_is_to_join(const struct ha_host *host);

/* Everything is done, and no more is asked for; from then on, ha_host_progress() until it has left:
 * then all have. */
void ha_host_leave(struct ha_host *host);

/* OVER: nothing touches any operation's memory any more. */
enum ha_host_state ha_host_state(const struct ha_host *host);
/* What an operation ends with that was not done when it was OVER. */
ha_result_t ha_host_result(const struct ha_host *host);
/* OVER: why, with what was the matter with the last tree. Else empty. */
void ha_host_why(const struct ha_host *host, char why[HA_HOST_WHY]);
/* Epochs so far: how often the group went on by another way. */
uint32_t ha_host_epochs(const struct ha_host *host);
/* Units that were open then: that some member had, and that this one had sent and nobody had. */
struct ha_host_fates {
	uint64_t taken, again;
};
struct ha_host_fates ha_host_fates(const struct ha_host *host);
/* The last of them: from the fence until the other way was joined. */
uint64_t ha_host_pause_ns(const struct ha_host *host);
/* It goes by another way than the lanes of its plan, or by none: a try to go back may fail. */
bool ha_host_is_away(const struct ha_host *host);
/* Members add for each other, as no tree is left. */
bool ha_host_is_without_switches(const struct ha_host *host);
/* It has said that it leaves: all members have everything that it had asked for. */
bool ha_host_has_said_so(const struct ha_host *host);
/* The last reason why a tree was given up, as far as this member knows. Empty: none. */
const char *ha_host_last_loss(const struct ha_host *host);
/* Which of its ports it goes by, by number. */
unsigned int ha_host_at(const struct ha_host *host);
/* As ha_member_forgo. */
void ha_host_forgo(struct ha_host *host, unsigned int port);
/* Its part of the plan. */
const struct ha_part *ha_host_part(const struct ha_host *host);

/* In any state; who has not left is dead to the others. HA_ERR_SYSTEM: the device does not let go;
 * to be called again. NULL is fine. */
ha_result_t ha_host_close(struct ha_host *host) HA_MUST_CHECK;

#endif
