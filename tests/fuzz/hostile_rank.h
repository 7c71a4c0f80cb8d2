/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A group of two ranks, on hosts 0 and 1 of a stepped fabric, of which rank 1 is the fuzz target's:
 * it has the connections to rank 0 in its hands, and says over them what it likes.
 */
#ifndef HA_TESTS_FUZZ_HOSTILE_RANK_H
#define HA_TESTS_FUZZ_HOSTILE_RANK_H

#include "../transport/harness.h"

#include "gin/verbs/channel.h"
#include "gin/verbs/group.h"
#include "gin/verbs/group_memory.h"
#include "gin/verbs/group_peers.h"
#include "gin/verbs/group_post.h"

#include <stdbool.h>
#include <stdint.h>

#define RANKS 2
#define SIZE  4096

extern struct hostile_rank {
	struct pair pair;
	struct ha_listen *listen[RANKS];
	uint8_t handle[RANKS][HA_HANDLE_MAX];
	struct ha_gin_group *group; /* of rank 0 */
	struct ha_gin_memory *memory, *signals;
	ha_result_t error;   /* the first one of the group's */
	struct ha_gin_in in; /* of rank 1 */
	struct ha_gin_out out;
	/* What rank 0 has said, in order. */
	void (*heard)(const struct ha_gin_message *message);
} hostile;

/* Registered at rank 0 is the middle third: data as number 0, signals as number 1. */
extern uint8_t hostile_data[3 * SIZE];
extern uint64_t hostile_words[3 * 8];

/* Connected, and rank 1 has not said who it is. */
void hostile_begin(void (*heard)(const struct ha_gin_message *message), bool is_e2e);
/* A step of the fabric and of both ranks; rank 0's error stays. */
void hostile_turn(void);
/* ... and some turns. */
void hostile_say(const struct ha_gin_message *message, int turns);
/* Closes everything; rank 0's memory is as it was outside of what it has registered. */
void hostile_end(void);

#endif
