/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a switch does for groups, without its process: children are by hand, over sockets of this
 * machine, and what is at the other end of every edge is one end of a queue pair on a stepped
 * fabric.
 */
#ifndef HA_TESTS_INC_SWITCH_BY_HAND_H
#define HA_TESTS_INC_SWITCH_BY_HAND_H

#include "base/job_key.h"
#include "simverbs/simverbs.h"
#include "tools/nccl-ha-switchd/groups.h"

struct by_hand {
	struct ha_config config;
	struct ha_device_set *set;
	struct ha_job_key *site;
	struct ns_groups groups;
	struct ha_edge edge;
	union ha_sockaddr at; /* where children dial */
	int epoll, listener;
};

/* Both ends of a child's connection. */
struct by_hand_child {
	struct ns_child here;
	struct ha_talk there;
	unsigned asked; /* to leave */
};

void by_hand_open(struct by_hand *s);
/* Of children and workers that have gone. */
void by_hand_close(struct by_hand *s);

/* The controller's word, with a key that by_hand_ask knows. */
void by_hand_install(struct by_hand *s, const struct ha_part *part);
/* The next one who has dialled. */
void by_hand_take(const struct by_hand *s, struct ha_talk *talk);
/* It has dialled, if it has not yet, and says that it wants to join. */
void by_hand_ask(const struct by_hand *s, struct by_hand_child *child, const struct ha_join *join);
/* What it has been told so far. False: its connection has ended. */
bool by_hand_hear(struct by_hand_child *child);

#endif
