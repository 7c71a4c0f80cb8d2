/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A group on a stepped fabric in one process and one thread: hosts with a member each, and
 * switches, which are hosts with a port for each peer. A member has a port for each of the fabric's
 * rails, of which switches use the first one. Data, words and what becomes of them when a
 * switch dies are real; when they arrive is the fabric's virtual time.
 *
 * An operation's elements are compared at each host as soon as it is done there, and then its
 * memory is written over, as it is the application's again; at the end nothing may have touched it.
 */
#ifndef HA_TESTS_INC_GROUP_H
#define HA_TESTS_INC_GROUP_H

#include "../unit/cmocka_all.h"

#include "base/config.h"
#include "inc/cut.h"
#include "inc/verbs/member.h"
#include "inc/verbs/mesh.h"
#include "inc/verbs/tree.h"
#include "simverbs/simverbs.h"

#include <stdbool.h>
#include <stdint.h>

#define GROUP_HOSTS    8
#define GROUP_SWITCHES 5
#define GROUP_LANES    2
#define GROUP_OPS      512
#define GROUP_EPOCHS   512
#define GROUP_ID       0x600d

struct group_shape {
	unsigned int hosts, switches, lanes; /* one of each at least */
	unsigned int window, copies;
	uint32_t unit_bytes;
	struct sv_stepped_opts fabric; /* hosts and aggregators are filled in */
};

struct group_op {
	unsigned int type, op;
	size_t count;
	struct ha_cut cut;
	uint8_t *pristine[GROUP_HOSTS]; /* what each contributes */
	uint8_t *send[GROUP_HOSTS], *recv[GROUP_HOSTS];
	uint8_t *result; /* every host's: the first one's */
	bool has_result;
	bool in_place;
	bool is_empty[GROUP_HOSTS]; /* contributes nothing */
};

struct group_host {
	struct ha_member *member;
	struct ha_incarnation *on[HA_MEMBER_PORTS];
	unsigned int asked, done; /* operations, in their order */
	uint64_t number[GROUP_OPS];
	struct ibv_mr *other_mr[HA_MEMBER_PORTS]; /* so that keys differ by port */
	struct ibv_mr *send_mr[GROUP_OPS][HA_MEMBER_PORTS], *recv_mr[GROUP_OPS][HA_MEMBER_PORTS];
};

struct group {
	struct group_shape shape;
	struct ha_config config;
	struct ha_device_set *set[GROUP_HOSTS + GROUP_SWITCHES];
	struct group_host host[GROUP_HOSTS];
	struct ha_tree *tree[GROUP_SWITCHES][GROUP_LANES];
	struct ha_mesh mesh[GROUP_HOSTS]; /* those that a test has made */
	bool hosts_add_in[GROUP_EPOCHS];
	bool is_dead[GROUP_SWITCHES];
	bool is_gone[GROUP_HOSTS]; /* its process has ended */
	unsigned int epochs;	   /* whose orders a result may have */
	unsigned int ops;
	struct group_op op[GROUP_OPS];
	uint64_t seed;
	bool is_direct;		 /* what is in place has no shadow */
	uint64_t late_ns;	 /* the last host asks for nothing before */
	bool has_one_lane_later; /* trees of epochs after the first one */
	uint64_t turns;		 /* by which hosts take their turn; 0: in their order */
	bool is_asking;		 /* operations go to the members as soon as they take them */
	struct {
		unsigned int host, op;
		void (*does)(struct ha_all_reduce *ask); /* NULL: there is none */
	} twist;			 /* that host asks for something else as that operation */
	unsigned int fewer[GROUP_HOSTS]; /* operations that a host asks for less than there are */
	unsigned int most;		 /* are asked for until a test has it grow; 0: all */
};

/* Fabric, devices and members; no edges. */
void group_open(struct group *group, const struct group_shape *shape);
/* Everything back; nothing touched what had been handed back, and no verbs object is left. */
void group_close(struct group *group);

struct ha_port *group_port(struct group *group, unsigned int host); /* the first one */
static inline unsigned int group_switch(const struct group *group, unsigned int i)
{
	return group->shape.hosts + i;
}

/* The host that is a switch's child in this place: another order in each epoch, and of hosts that
 * add themselves theirs. */
unsigned int group_child(const struct group *group, uint32_t epoch, unsigned int place);

/* Its process ends: what it had is destroyed, as the kernel does it. */
void group_lose_host(struct group *group, unsigned int host);

/* In how many epochs hosts have added for each other. */
unsigned int group_epochs_of_hosts(const struct group *group);

/* How many lanes plans of an epoch have. */
unsigned int group_lanes(const struct group *group, uint32_t epoch);

/* A switch has a tree for each lane, of all members. False: its device refuses. */
bool group_trees(struct group *group, unsigned int i, uint32_t epoch);
/* A member joins them. */
void group_join(struct group *group, unsigned int i, uint32_t epoch, unsigned int host);
/* All do. */
void group_star(struct group *group, unsigned int i, uint32_t epoch);
/* The same tree of epoch 0 cut in two: switches 1 and 2 have half of the hosts each, in their
 * order, and are the children of switch 0. The hosts are a power of two, and there is one lane. */
void group_two_levels(struct group *group);

/* An operation that all hosts will ask for. */
struct group_op *group_add(struct group *group, unsigned int type, unsigned int op, size_t count,
			   bool in_place);

/* The largest of bytes, to which one host contributes and all others nothing, though they have
 * something. */
struct group_op *group_add_copy(struct group *group, size_t bytes, unsigned int from);

/* Everybody does what he can, dead switches nothing. */
void group_act(struct group *group);
/* The same, and then the fabric's next event. False: nothing is left to happen. */
bool group_step(struct group *group);
/* Until every host is done with every operation. */
void group_run(struct group *group);
bool group_is_done(const struct group *group);
/* So many it asks for. */
unsigned int group_asks(const struct group *group, unsigned int host);

#endif
