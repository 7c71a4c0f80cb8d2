/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A group as its own files have it (group.h is what others see of it): memory, who its peers are
 * and how it goes on with them, what it is asked for, its beginning and end. All but the token is
 * for who holds it.
 */
#ifndef HA_GIN_VERBS_GROUP_OWN_H
#define HA_GIN_VERBS_GROUP_OWN_H

#include "gin/verbs/adder.h"
#include "gin/verbs/group.h"
#include "gin/verbs/receiver.h"
#include "memory/mr.h"
#include "transport/comm.h"

#include <stdatomic.h>

/* What a peer writes at this rank beside the application's memory. Its key is given to nobody else:
 * what a rank says it is that signals, no other one can change. */
struct ha_gin_block {
	struct ha_gin_record ring[HA_GIN_WINDOW];
	uint64_t told;
};

struct ha_gin_peer {
	uint8_t handle[HA_HANDLE_MAX]; /* ha_connect keeps its state there */
	struct ha_gin_block *block;    /* on pages of its own */
	struct ha_mr *block_mr;
	struct ha_gin_out out;
	struct ha_gin_in in; /* open when it has said who it is */
	bool has_run;	     /* both streams had their first epoch */
	ha_result_t why;     /* a connection to or from it has ended */
	struct ha_gin_sender sender;
	struct ha_gin_receiver receiver;
};

/* Somebody has connected, and has not said who it is. */
struct ha_gin_stranger {
	struct ha_gin_in in;
	struct ha_gin_stranger *next;
};

struct ha_gin_group {
	_Atomic uint32_t token;	  /* 1: taken, as a connection's */
	_Atomic uint32_t waiting; /* for it, and first */
	ha_result_t error;
	struct ha_instance *inst;
	struct ha_listen *listen;
	int dev;
	uint32_t rank, ranks;
	uint32_t accepted;
	struct ha_gin_stranger *strangers;
	struct ha_gin_adder adder;
	struct ha_gin_memory **memories; /* by number; NULL: no rank has said that it has it */
	struct ha_gin_region *regions;	 /* likewise; what signals may go to */
	uint32_t room, registered;
	uint64_t rounds;
	uint64_t largest; /* put, in bytes */
	struct ha_gin_peer peers[];
};

/*
 * One thread drives a group, again and again, and has the token nearly always; another one seldom
 * registers memory beside it, and would not get it by chance. So who drives makes way.
 */
static inline bool ha_gin_group_try_lock(struct ha_gin_group *group)
{
	return atomic_load_explicit(&group->waiting, memory_order_relaxed) == 0 &&
	       atomic_exchange_explicit(&group->token, 1, memory_order_acquire) == 0;
}

/* Of who finds it taken: until it is free. Any thread. */
void ha_gin_group_wait(struct ha_gin_group *group) __attribute__((cold));

static inline void ha_gin_group_lock(struct ha_gin_group *group)
{
	if (atomic_exchange_explicit(&group->token, 1, memory_order_acquire) != 0)
		ha_gin_group_wait(group);
}

static inline void ha_gin_group_unlock(struct ha_gin_group *group)
{
	atomic_store_explicit(&group->token, 0, memory_order_release);
}

static inline ha_result_t ha_gin_group_latch(struct ha_gin_group *group, ha_result_t result)
{
	if (group->error == HA_OK)
		group->error = result;
	return group->error;
}

#endif
