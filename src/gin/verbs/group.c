/* SPDX-License-Identifier: Apache-2.0 */
#include "gin/verbs/group_own.h"

#include "base/log.h"
#include "gin/verbs/group_memory.h"
#include "memory/pages.h"
#include "transport/shared.h"

#include <stdlib.h>
#include <string.h>

static ha_result_t init_peer(struct ha_gin_group *group, uint32_t rank, const void *handle)
{
	const struct ha_config *config = &group->inst->config;
	struct ha_gin_peer *peer = &group->peers[rank];

	memcpy(peer->handle, handle, HA_HANDLE_MAX);
	HA_TRY(ha_gin_sender_init(&peer->sender, rank, &peer->out, &group->adder, config,
				  config->completion == HA_COMPLETION_E2E));
	peer->sender.told = &peer->block->told;
	peer->sender.told_mr = peer->block_mr;
	peer->receiver = (struct ha_gin_receiver){
	    .rank = rank,
	    .out = &peer->out,
	    .adder = &group->adder,
	    .config = config,
	    .ring = peer->block->ring,
	    .ring_mr = peer->block_mr,
	    .say_regions = ha_gin_group_say_memories,
	    .regions = ha_gin_group_regions,
	    .arg = group,
	};
	return HA_OK;
}

static ha_result_t make_block(struct ha_gin_group *group, struct ha_nic *nic,
			      struct ha_gin_peer *peer)
{
	peer->block = ha_pages_new(sizeof(*peer->block));
	if (!peer->block)
		return HA_ERR_SYSTEM;
	HA_TRY(ha_mr_register(group->inst->devices, nic, peer->block, sizeof(*peer->block),
			      HA_MEM_HOST | HA_MEM_STRICT_ORDER, 0, -1, &peer->block_mr));
	ha_gin_group_register_ahead(group, peer->block_mr);
	return HA_OK;
}

static ha_result_t make(struct ha_gin_group *group, const struct ha_gin_shape *shape)
{
	struct ha_device_set *set = group->inst->devices;
	struct ha_nic *nic = ha_instance_port(group->inst, group->dev)->nic;

	HA_TRY(ha_gin_adder_open(&group->adder, set, nic,
				 group->inst->config.completion == HA_COMPLETION_E2E));
	group->adder.find = ha_gin_group_find_word;
	group->adder.arg = group;
	for (uint32_t r = 0; r < group->ranks; r++) {
		HA_TRY(make_block(group, nic, &group->peers[r]));
		HA_TRY(init_peer(group, r, shape->handles[r]));
	}
	return HA_OK;
}

ha_result_t ha_gin_group_open(const struct ha_gin_shape *shape, struct ha_gin_group **out)
{
	struct ha_gin_group *group;
	ha_result_t result;

	*out = NULL;
	if (!shape->ranks || shape->ranks > HA_GIN_RANKS || shape->rank >= shape->ranks ||
	    !ha_instance_port(shape->inst, shape->dev)) {
		HA_WARN("GIN: there is no rank %u of %u, or no device %d", shape->rank,
			shape->ranks, shape->dev);
		return HA_ERR_ARGUMENT;
	}
	group = calloc(1, sizeof(*group) + shape->ranks * sizeof(struct ha_gin_peer));
	if (!group)
		return HA_ERR_SYSTEM;
	group->inst = shape->inst;
	group->dev = shape->dev;
	group->rank = shape->rank;
	group->ranks = shape->ranks;
	group->listen = shape->listen;
	group->largest = ha_max_message(ha_instance_port(shape->inst, shape->dev));
	result = make(group, shape);
	if (result != HA_OK)
		ha_gin_group_close(group);
	else
		*out = group;
	return result;
}

ha_result_t ha_gin_group_widen(struct ha_gin_group *group, unsigned int contexts)
{
	unsigned int slots = HA_GIN_WINDOW;
	ha_result_t result;

	while (slots < contexts * HA_GIN_WINDOW)
		slots *= 2;
	ha_gin_group_lock(group);
	result = group->error;
	if (contexts < 1 || contexts > HA_GIN_CONTEXTS)
		result = HA_ERR_ARGUMENT;
	for (uint32_t r = 0; result == HA_OK && r < group->ranks; r++)
		result = ha_gin_sender_widen(&group->peers[r].sender, slots);
	ha_gin_group_unlock(group);
	return result;
}

ha_result_t ha_gin_group_error(struct ha_gin_group *group)
{
	ha_result_t error;

	ha_gin_group_lock(group);
	error = group->error;
	ha_gin_group_unlock(group);
	return error;
}

void ha_gin_group_counts(struct ha_gin_group *group, struct ha_gin_counts *out)
{
	ha_gin_group_lock(group);
	*out = (struct ha_gin_counts){.unproved = group->adder.applier.gave_up,
				      .loopbacks = group->adder.failed,
				      .written = group->adder.written};
	for (uint32_t r = 0; r < group->ranks; r++) {
		out->failovers += group->peers[r].sender.failovers;
		out->replayed += group->peers[r].sender.replayed;
	}
	ha_gin_group_unlock(group);
}

static bool close_streams(struct ha_gin_group *group)
{
	bool are_closed = true;

	for (uint32_t r = 0; r < group->ranks; r++) {
		are_closed &= ha_gin_sender_close(&group->peers[r].sender);
		are_closed &= ha_gin_receiver_close(&group->peers[r].receiver);
	}
	return ha_gin_adder_close(&group->adder) && are_closed;
}

static void close_connections(struct ha_gin_group *group)
{
	struct ha_gin_stranger *stranger;

	for (uint32_t r = 0; r < group->ranks; r++) {
		ha_gin_out_close(&group->peers[r].out);
		ha_gin_in_close(&group->peers[r].in);
	}
	while ((stranger = group->strangers) != NULL) {
		group->strangers = stranger->next;
		ha_gin_in_close(&stranger->in);
		free(stranger);
	}
}

void ha_gin_group_close(struct ha_gin_group *group)
{
	if (!group)
		return;
	close_connections(group);
	if (!close_streams(group)) {
		HA_WARN("GIN: a device refuses to destroy a queue pair of a group that ends; its "
			"memory stays until the process ends");
		return;
	}
	for (uint32_t i = 0; i < group->room; i++) {
		if (!group->memories[i])
			continue;
		ha_mr_deregister(group->memories[i]->mr);
		free(group->memories[i]->words);
		free(group->memories[i]);
	}
	free(group->memories);
	free(group->regions);
	for (uint32_t r = 0; r < group->ranks; r++) {
		ha_mr_deregister(group->peers[r].block_mr);
		ha_pages_free(group->peers[r].block, sizeof(struct ha_gin_block));
	}
	free(group);
}
