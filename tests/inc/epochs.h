/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A group (group.h) with a leader and followers that agree over frames that get lost, doubled and
 * late, while switches die under it: one run after the other, in one process and one thread.
 */
#ifndef HA_TESTS_INC_EPOCHS_H
#define HA_TESTS_INC_EPOCHS_H

#include "group.h"

#include "inc/leader.h"
#include "inc/verbs/follower.h"

#define TICK_NS 1000000u
#define LATE_NS 1000000000ull

extern struct group g;
extern struct ha_leader leader;
extern struct ha_follower follower[GROUP_HOSTS];

/* What a run is to go through; events of the fabric are counted from 0. To be cleared before each.
 */
struct epochs_plan {
	uint64_t kill_at[2]; /* the switch that is in use dies before this event; 0: not */
	unsigned int kills;
	bool is_quiet;	    /* frames all come */
	bool has_no_losses; /* packets all come */
	bool has_levels;    /* the first tree */
	bool has_one_lane_later;
	bool has_one_switch;		  /* all ways go over it; else each over one of its own */
	bool starts_without[GROUP_HOSTS]; /* their first port is down as the group begins */
	uint64_t failback_ns;		  /* to a better port; 0: never */
	uint32_t hosts_add_from;	  /* this way on; 0: never */
	int losses;			  /* a rule */
	int kill_rule;			  /* kills switch 0; 0: none */
};
extern struct epochs_plan plan;

/* In all runs since it was cleared. */
struct epochs_seen {
	unsigned int epochs, lost_frames;
	uint64_t taken, lacked, from_copy, again, lost_packets;
};
extern struct epochs_seen seen;

/* Prints what was seen. */
void tell(void);

/* Three hosts, and operations of one unit and of several, apart and in place. */
struct group_shape small(void);
void add_small(bool in_place);

/* The first plan is a star around the first switch, or two levels. */
void open_run(const struct group_shape *shape, uint64_t seed);
/* Until all that are there have left, or the group has ended with an error. */
void run(void);
void run_until(bool (*condition)(void)); /* or the same */
void run_well(void);			 /* all have left, with every operation done */
bool all_have_left(void);
bool all_are_over(void);

/* The switch that is in use, or none: hosts add. False: none. */
bool switch_in_use(unsigned int *i);
/* As its process would: nothing of it moves any more. */
void kill_switch(void);
/* A host's process ends, and all sockets to it. */
void lose_host(unsigned int host);

/* How many events a run of small operations has in which nothing goes wrong. */
uint64_t events_of_peace(const struct group_shape *shape, bool in_place);

#endif
