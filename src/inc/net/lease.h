/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How member 0 holds the lease of its group's plan: by its connection to the controller. When that
 * is gone it dials until one is there again, perhaps one that has been started anew, and says what
 * it got with its plan, by which that one knows the group.
 *
 * It never waits, and nothing depends on it that has begun. The time is the caller's. One thread.
 */
#ifndef HA_INC_NET_LEASE_H
#define HA_INC_NET_LEASE_H

#include "inc/net/ask.h"

#define HA_LEASE_REDIAL_NS                                                                         \
	100000000ull /* the first pause; each next one is twice as long, up to                     \
		      */
#define HA_LEASE_REDIAL_MOST_NS 1000000000ull
#define HA_LEASE_ANSWER_NS	5000000000ull /* for a greeting, when there is a connection */

struct ha_lease {
	const struct ha_ask *ask;
	struct ha_ask_answer *answer; /* whose connection it is */
	uint64_t due_ns;	      /* of the next dialling; 0: there is a connection */
	uint64_t dialled_ns;	      /* 0: it was answered */
	uint64_t pause_ns;
};

enum ha_lease_event {
	HA_LEASE_NOTHING,
	HA_LEASE_AGAIN, /* a controller is there again, and has been told of the plan */
	HA_LEASE_HEARD, /* answer->talk.heard */
};

/* Of a plan that was got. */
void ha_lease_begin(struct ha_lease *lease, const struct ha_ask *ask, struct ha_ask_answer *answer);
/* To be called until it says NOTHING. */
enum ha_lease_event ha_lease_next(struct ha_lease *lease, uint64_t now_ns);

#endif
