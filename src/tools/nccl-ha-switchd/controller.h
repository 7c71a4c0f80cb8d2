/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The switch's word with the controller: it says which switch it serves and where, and hears of
 * groups. When the controller is gone, trees go on, and it is dialled until it is back. A
 * controller that refuses the switch, or has another key, at the first time is the end of the
 * program: then something is wrong that waiting does not mend.
 */
#ifndef NS_CONTROLLER_H
#define NS_CONTROLLER_H

#include "tools/nccl-ha-switchd/equipment.h"
#include "tools/nccl-ha-switchd/groups.h"

#define NS_REDIAL_NS	  500000000ull
#define NS_REDIAL_MOST_NS 1000000000ull
#define NS_ANSWER_NS	  10000000000ull /* for an answer, when it has been dialled */

struct ns_controller {
	struct ns_line line; /* first: the line is the controller */
	const struct ns_settings *settings;
	const struct ns_equipment *equipment;
	struct ns_groups *groups;
	int listener;		 /* -1: until the controller is reached for the first time */
	union ha_sockaddr bound; /* where it listens */
	bool is_served;		 /* the controller has taken the switch */
	bool was_served, is_hopeless;
	bool is_leaving;		       /* it is dialled no more */
	uint64_t dialled_ns, due_ns, pause_ns; /* due: of the next dialling; 0: it is under way */
	char said[HA_TALK_WHY];		       /* the last reason that was told */
	bool has_news;			       /* groups have been installed */
};

void ns_controller_begin(struct ns_controller *c, const struct ns_settings *settings,
			 const struct ns_equipment *equipment, struct ns_groups *groups);
void ns_controller_end(struct ns_controller *c);

/* The switch is about to end: nobody gets a plan with it any more, and the children that it has
 * stay. */
void ns_controller_leave(struct ns_controller *c);

/* Dials when it is time to. */
void ns_controller_tick(struct ns_controller *c, uint64_t now_ns);

/* Says what the switch has counted, to a controller that has taken it. */
void ns_controller_count(struct ns_controller *c, const struct ha_switch_counts *counts);

#endif
