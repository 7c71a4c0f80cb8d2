/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups that ask for a plan, as states and events, without sockets and clocks.
 *
 * All members of a group ask, each with its rank, and all get one verdict: a plan when all are
 * there and the fabric has room; else, as soon as that is sure and at the latest at the time limit,
 * a reason why there is none. A verdict that there is no plan is kept for a while for members that
 * come late. A plan is a lease that member 0 holds with its connection: when that is gone and not
 * back in time, what the group had is given back.
 *
 * Behind a plan each member hears its part of it, and before that each switch that is in it. A
 * switch is in plans as long as a program serves it.
 */
#ifndef NC_GROUPS_H
#define NC_GROUPS_H

#include "base/list.h"
#include "inc/ctrl_wire.h"
#include "inc/switch_counts.h"
#include "tools/nccl-ha-ctrld/part_of.h"

#include <jansson.h>

#define NC_GROUPS     4096
#define NC_GONE_MAX   64	     /* switches that a group can name as failed */
#define NC_LATE_NS    60000000000ull /* for how long a verdict without a plan is kept */
#define NC_GROUP_NAME NC_NAME_MAX

struct nc_group;

/* Text that several connections may have yet to send. */
struct nc_text {
	unsigned users;
	uint32_t length;
	uint8_t digest[HA_SHA256_BYTES];
	char bytes[];
};

/* A copy, with one user. NULL: no memory. */
struct nc_text *nc_text_new(const char *bytes, size_t length);
/* Of a document, which it takes. NULL: no memory, longer than a frame may be, or json is NULL. */
struct nc_text *nc_text_of(json_t *json);
void nc_text_release(struct nc_text *text); /* NULL: nothing */

/* Of a connection: which group it is in. All zero: none. */
struct nc_member {
	struct nc_group *group;
	unsigned rank;
};

/* Of a switch. Once the controller has been told, or has told a program, its own word counts. */
struct nc_drain {
	bool is_on;
	bool is_settled;
};

/* What a switch's program says of itself as it comes. */
struct nc_service {
	unsigned vertex;
	union ha_sockaddr at; /* where it listens */
	bool is_drained;
};

/* Of a connection: the switch whose program it is. All zero: of none. */
struct nc_serving {
	bool is_on;
	unsigned vertex;
};

struct nc_counted {
	bool is_said; /* by the program that serves it now */
	struct ha_switch_counts counts;
};

struct nc_ask {
	char group[NC_GROUP_NAME];
	char label[NC_NAME_MAX]; /* of whose quota it is; empty: of none */
	unsigned rank, ranks;
	unsigned port; /* vertex */
	/* Of member 0's alone. */
	uint32_t unit_bytes, window;
	bool is_reproducible;		    /* every plan is to give the same bits */
	union ha_sockaddr listen;	    /* where it waits for the others; AF_UNSPEC: nowhere */
	unsigned gone[NC_GONE_MAX], n_gone; /* vertices */
};

struct nc_groups {
	const struct nc_topology *topology;
	struct nc_use use;
	struct ha_list all; /* in the order in which they were asked for */
	unsigned n;
	uint64_t verdict_ns, lease_ns; /* time limits */
	uint64_t plans, refusals;      /* verdicts so far */
	struct nc_serving **serving;   /* by switch; NULL: no program serves it */
	union ha_sockaddr *at;	       /* by switch: where that listens */
	struct nc_counted *counted;    /* by switch: what that says of itself */
	struct nc_drain *drains;       /* by switch */
	/* Says a verdict: a plan and then a part of it, with the group's key, or that there is
	 * none, any more; or that the group has begun. */
	void (*answer)(void *arg, struct nc_member *member, enum ha_ctrl_kind kind,
		       struct nc_text *text, const uint8_t *key);
	/* Says a part of a plan, with the group's key, that a group is over, or whether the switch
	 * is drained. */
	void (*instruct)(void *arg, struct nc_serving *serving, enum ha_ctrl_kind kind,
			 struct nc_text *text, const uint8_t *key);
	void *arg;
};

/* False: no memory. Either way nc_groups_end is to be called. */
bool nc_groups_begin(struct nc_groups *groups, const struct nc_topology *topology) HA_MUST_CHECK;
void nc_groups_end(struct nc_groups *groups);

/*
 * Somebody asks, who is in no group. False: `why` says why this one is refused; the group goes on
 * without it.
 */
bool nc_groups_ask(struct nc_groups *groups, struct nc_member *member, const struct nc_ask *ask,
		   uint64_t now_ns, char *why, size_t size) HA_MUST_CHECK;

/*
 * Member 0 of a group that a controller before this one knew: what it got with its plan. Admission
 * is not asked again. False: `why` says why not.
 */
bool nc_groups_know(struct nc_groups *groups, struct nc_member *member, const char *text,
		    size_t length, const uint8_t *key, uint64_t now_ns, char *why,
		    size_t size) HA_MUST_CHECK;

/* The connection of a member is gone. */
void nc_groups_lost(struct nc_groups *groups, struct nc_member *member, uint64_t now_ns);
/* Whether each switch of the group's lanes is served, where it was: of member 0, of a plan. */
bool nc_groups_are_lanes_there(const struct nc_groups *groups, const struct nc_member *member);
/* Member 0 says by which way its group goes. False: it cannot be. */
bool nc_groups_way(struct nc_groups *groups, const struct nc_member *member, const void *text,
		   size_t length) HA_MUST_CHECK;
/*
 * Member 0 says that all have come to it, or another member that it does not wait for that any
 * more: what is said first is the verdict, which whoever says either of them hears: GO, or why
 * there is none. False: it is of no group that has a plan, or not its member 0.
 */
bool nc_groups_all_here(struct nc_groups *groups, struct nc_member *member) HA_MUST_CHECK;
bool nc_groups_give_up(struct nc_groups *groups, struct nc_member *member,
		       uint64_t now_ns) HA_MUST_CHECK;
/* The member says that the group is over. */
void nc_groups_leave(struct nc_groups *groups, struct nc_member *member, uint64_t now_ns);

/*
 * A program serves a switch from now on, and listens there. It hears of all groups that have the
 * switch. False: `why` says why not.
 */
bool nc_groups_serve(struct nc_groups *groups, struct nc_serving *serving,
		     const struct nc_service *service, char *why, size_t size) HA_MUST_CHECK;
/* What it has counted. False: it is of none, or of another version. */
bool nc_groups_count(struct nc_groups *groups, const struct nc_serving *serving, const void *text,
		     size_t length) HA_MUST_CHECK;
/* Its connection is gone; of none: nothing. */
void nc_groups_unserve(struct nc_groups *groups, struct nc_serving *serving);

/*
 * A switch is to be drained: it is in no new plan as one that adds, groups that have another way
 * take that, and none goes back to it. Or that is over.
 */
void nc_groups_drain(struct nc_groups *groups, unsigned vertex, bool is_on);

/* What time limits say. Returns when to look again, 0: nothing to look for. */
uint64_t nc_groups_tick(struct nc_groups *groups, uint64_t now_ns);

/* What all members of a group have heard, a plan or why there is none. NULL: nothing yet, or no
 * group has that name. It stays the group's. */
struct nc_text *nc_groups_verdict(const struct nc_groups *groups, const char *name, size_t length);

/* For a status: of group i of n, in the order in which they were asked for. */
struct nc_group_view {
	const char *name, *label, *state;
	unsigned ranks, here;
	const unsigned *ports;	    /* by rank: vertex; NC_NO_VERTEX: has not asked */
	const struct nc_plan *plan; /* NULL: none */
	uint32_t epoch, way;	    /* that it goes by, as member 0 said last */
	uint64_t deadline_ns;	    /* of its state; 0: none */
};
void nc_groups_each(const struct nc_groups *groups,
		    void (*see)(void *arg, const struct nc_group_view *group), void *arg);

#endif
