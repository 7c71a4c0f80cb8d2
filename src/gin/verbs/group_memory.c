/* SPDX-License-Identifier: Apache-2.0 */
#include "gin/verbs/group_memory.h"

#include "base/log.h"
#include "gin/verbs/group_own.h"
#include "transport/shared.h"
#include "transport/user_mr.h"

#include <stdlib.h>
#include <string.h>

/* For memory of that number; in steps that double, since another rank may name any. */
static ha_result_t make_room(struct ha_gin_group *group, uint32_t number)
{
	uint32_t room = group->room > 0 ? group->room : 16;
	void *memories, *regions;

	if (number < group->room)
		return HA_OK;
	while (room <= number)
		room *= 2;
	memories = realloc(group->memories, room * sizeof(*group->memories));
	if (memories)
		group->memories = memories;
	regions = realloc(group->regions, room * sizeof(*group->regions));
	if (regions)
		group->regions = regions;
	if (!memories || !regions)
		return HA_ERR_SYSTEM;
	memset(group->memories + group->room, 0, (room - group->room) * sizeof(*group->memories));
	memset(group->regions + group->room, 0, (room - group->room) * sizeof(*group->regions));
	group->room = room;
	return HA_OK;
}

/* Some rank has memory of that number. */
ha_result_t ha_gin_group_know(struct ha_gin_group *group, uint32_t number)
{
	struct ha_gin_memory *memory;

	HA_TRY(make_room(group, number));
	if (group->memories[number])
		return HA_OK;
	memory = calloc(1, sizeof(*memory) + group->ranks * sizeof(struct ha_gin_remote));
	if (!memory)
		return HA_ERR_SYSTEM;
	memory->number = number;
	group->memories[number] = memory;
	return HA_OK;
}

/* One that cannot be registered there is of no use over that path, and the next one may be. */
static ha_result_t say_memory(struct ha_gin_receiver *receiver, const struct ha_gin_memory *memory)
{
	struct ha_gin_message message = {
	    .say = HA_GIN_REGION, .epoch = receiver->epoch, .number = memory->number};
	struct ibv_mr *mr;

	if (ha_mr_on(memory->mr, receiver->qp.port->nic, &mr) != HA_OK) {
		receiver->qp.fault = "memory cannot be registered there";
		return HA_OK;
	}
	message.region.base = memory->base;
	message.region.size = memory->size;
	message.region.is_signals = memory->is_signals;
	message.region.rkey = mr->rkey;
	return ha_gin_out_say(receiver->out, &message);
}

ha_result_t ha_gin_group_say_memories(void *arg, struct ha_gin_receiver *receiver)
{
	struct ha_gin_group *group = arg;

	for (uint32_t i = 0; i < group->registered; i++)
		if (group->memories[i]->mr)
			HA_TRY(say_memory(receiver, group->memories[i]));
	return HA_OK;
}

const struct ha_gin_region *ha_gin_group_regions(void *arg, size_t *count)
{
	const struct ha_gin_group *group = arg;

	*count = group->registered;
	return group->regions;
}

/* Without a word: any memory of signals, which is where other data goes, too. */
bool ha_gin_group_find_word(void *arg, const struct ha_gin_word *word, uint64_t *addr,
			    struct ha_mr **mr)
{
	const struct ha_gin_group *group = arg;

	for (uint32_t i = 0; i < group->registered; i++) {
		const struct ha_gin_memory *memory = group->memories[i];
		const uint64_t count = memory->size / 8;

		if (!memory->words ||
		    (word && (word < memory->words || word >= memory->words + count)))
			continue;
		*addr = memory->base + (word ? (uint64_t)(word - memory->words) * 8 : 0);
		*mr = memory->mr;
		return true;
	}
	return false;
}

static ha_result_t can_signal(const struct ha_gin_group *group)
{
	const struct ha_nic *nic = ha_instance_port(group->inst, group->dev)->nic;

	if (nic->attr.atomic_cap != IBV_ATOMIC_NONE)
		return HA_OK;
	HA_WARN("GIN: %s has no atomics, by which signals are added", nic->name);
	return HA_ERR_SYSTEM;
}

/* Where a NIC takes over it has to have the memory, and then it is too late to begin. */
void ha_gin_group_register_ahead(const struct ha_gin_group *group, struct ha_mr *mr)
{
	struct ha_device_set *set = group->inst->devices;

	if (!group->inst->config.enable_backup)
		return;
	for (int n = 0; n < set->nnics; n++)
		if (!atomic_load(&set->nics[n].fatal))
			ha_user_mr_ahead(mr, &set->nics[n]);
}

static ha_result_t register_it(struct ha_gin_group *group, void *data, size_t size, int type,
			       uint64_t offset, int fd, unsigned int how,
			       struct ha_gin_memory *memory)
{
	struct ha_nic *nic = ha_instance_port(group->inst, group->dev)->nic;

	if (how & HA_GIN_STRICT)
		type |= HA_MEM_STRICT_ORDER;
	memory->is_signals = (how & HA_GIN_STRICT) && (uintptr_t)data % 8 == 0 && size >= 8;
	if (memory->is_signals) {
		HA_TRY(can_signal(group));
		type |= HA_MEM_ATOMIC;
		memory->words = calloc(size / 8, sizeof(*memory->words));
		if (!memory->words)
			return HA_ERR_SYSTEM;
		for (size_t i = 0; i < size / 8; i++)
			memory->words[i].never_reset = (how & HA_GIN_NEVER_RESET) != 0;
	}
	memory->base = (uintptr_t)data;
	memory->size = size;
	return ha_mr_register(group->inst->devices, nic, data, size, type, offset, fd, &memory->mr);
}

static ha_result_t say_to_all(struct ha_gin_group *group, const struct ha_gin_memory *memory)
{
	for (uint32_t r = 0; r < group->ranks; r++)
		if (ha_gin_receiver_has_end(&group->peers[r].receiver))
			HA_TRY(say_memory(&group->peers[r].receiver, memory));
	return HA_OK;
}

static ha_result_t do_register(struct ha_gin_group *group, void *data, size_t size, int type,
			       uint64_t offset, int fd, unsigned int how,
			       struct ha_gin_memory **out)
{
	struct ha_gin_memory *memory;
	ha_result_t result;

	if (group->registered == HA_GIN_REGIONS) {
		HA_WARN("GIN: a group registers memory %d times at most", HA_GIN_REGIONS);
		return HA_ERR_USAGE;
	}
	HA_TRY(ha_gin_group_know(group, group->registered));
	memory = group->memories[group->registered];
	result = register_it(group, data, size, type, offset, fd, how, memory);
	if (result != HA_OK) {
		free(memory->words);
		memory->words = NULL;
		return result;
	}
	ha_gin_group_register_ahead(group, memory->mr);
	group->regions[group->registered++] = (struct ha_gin_region){memory->words, size};
	*out = memory;
	return say_to_all(group, memory);
}

ha_result_t ha_gin_register(struct ha_gin_group *group, void *data, size_t size, int type,
			    uint64_t offset, int fd, unsigned int how, struct ha_gin_memory **out)
{
	ha_result_t result;

	*out = NULL;
	ha_gin_group_lock(group);
	result = group->error;
	if (result == HA_OK)
		result = do_register(group, data, size, type, offset, fd, how, out);
	ha_gin_group_unlock(group);
	return result;
}

bool ha_gin_is_known(struct ha_gin_group *group, const struct ha_gin_memory *memory)
{
	bool is_known = true;

	ha_gin_group_lock(group);
	for (uint32_t r = 0; r < group->ranks; r++)
		is_known &= memory->remotes[r].is_known;
	ha_gin_group_unlock(group);
	return is_known;
}

void ha_gin_deregister(struct ha_gin_group *group, struct ha_gin_memory *memory)
{
	ha_gin_group_lock(group);
	group->regions[memory->number] = (struct ha_gin_region){0};
	ha_mr_deregister(memory->mr);
	memory->mr = NULL;
	free(memory->words);
	memory->words = NULL;
	for (uint32_t r = 0; r < group->ranks; r++)
		memory->remotes[r].is_known = memory->remotes[r].is_signals = false;
	ha_gin_group_unlock(group);
}
