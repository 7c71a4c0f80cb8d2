/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that ranks of a group may put into and signal. Any thread, but where it says otherwise. */
#ifndef HA_GIN_VERBS_GROUP_MEMORY_H
#define HA_GIN_VERBS_GROUP_MEMORY_H

#include "gin/verbs/group.h"

struct ha_gin_receiver;

/*
 * Memory under the next number, which all ranks register in the same order; sizes may differ.
 * type, offset, fd: as in ha_mr_register(). how: HA_GIN_STRICT, writes become visible in order, and
 * its words of 8 bytes, 0 at first, may be signals, if it is aligned to them; beside it
 * HA_GIN_NEVER_RESET, nobody else ever writes to them. Of use when ha_gin_is_known(): until then,
 * progress.
 */
#define HA_GIN_STRICT	   1u
#define HA_GIN_NEVER_RESET 2u
ha_result_t ha_gin_register(struct ha_gin_group *group, void *data, size_t size, int type,
			    uint64_t offset, int fd, unsigned int how,
			    struct ha_gin_memory **out) HA_MUST_CHECK;
/* Every rank has said where its memory of that number lies. */
bool ha_gin_is_known(struct ha_gin_group *group, const struct ha_gin_memory *memory);
/* Nothing from or to it may be under way at any rank. */
void ha_gin_deregister(struct ha_gin_group *group, struct ha_gin_memory *memory);

/* ---- for the files of a group, with its token ------------------------------------------------ */

/* Some rank has memory of that number: there is a place for it from now on. */
ha_result_t ha_gin_group_know(struct ha_gin_group *group, uint32_t number);

/* What a receiver and the adder ask of their group, which is arg: to say to a new epoch's peer what
 * is registered; which of it takes signals; and where a word of it is. */
ha_result_t ha_gin_group_say_memories(void *arg, struct ha_gin_receiver *receiver);
const struct ha_gin_region *ha_gin_group_regions(void *arg, size_t *count);
bool ha_gin_group_find_word(void *arg, const struct ha_gin_word *word, uint64_t *addr,
			    struct ha_mr **mr);

/* With every NIC that may take over: then it is too late to begin. */
void ha_gin_group_register_ahead(const struct ha_gin_group *group, struct ha_mr *mr);

#endif
