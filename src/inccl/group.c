/* SPDX-License-Identifier: Apache-2.0 */
#include "inccl/group.h"

#include "base/log.h"
#include "memory/pd.h"

#include <stdlib.h>
#include <string.h>

struct inccl_region {
	struct inccl_group *group;
	const char *memory;
	size_t bytes;
	struct ha_mr *mr;
	struct ha_list in_group;
};

/* ---- opening and closing -------------------------------------------------------------------- */

static int open_nic(struct inccl_group *group)
{
	if (ha_device_set_open(&group->config, &group->set) != HA_OK)
		return INCCL_ERR_SYSTEM;
	if (group->set->nports == 0) {
		HA_WARN("INCCL: no port of a NIC is up that NCCL_IB_HCA, or the option in its "
			"place, says");
		return INCCL_ERR_SYSTEM;
	}
	group->port = &group->set->ports[0];
	return INCCL_OK;
}

static void close_group(struct inccl_group *group)
{
	ha_eventlog_close(group->events);
	ha_stats_close(group->stats);
	if (group->set) {
		ha_memory_close(group->set);
		ha_device_set_close(group->set);
	}
	pthread_mutex_destroy(&group->lock);
	free(group);
}

static void begin_to_tell(struct inccl_group *group)
{
	const struct ha_config *config = &group->config;

	group->stats = ha_stats_open(config);
	group->events = ha_eventlog_open(config->event_log, (uint64_t)config->event_log_mb << 20);
	ha_stats_event_log(group->stats, ha_eventlog_path(group->events));
}

int inccl_group_open(const struct inccl_options *options, struct inccl_group **out)
{
	struct inccl_group *group = calloc(1, sizeof(*group));
	int result;

	*out = NULL;
	if (!group)
		return INCCL_ERR_SYSTEM;
	pthread_mutex_init(&group->lock, NULL);
	ha_list_init(&group->regions);
	if (!ha_inccl_options_take(options, &group->config, group->name)) {
		close_group(group);
		return INCCL_ERR_ARGUMENT;
	}
	group->rank = options->rank;
	group->ranks = options->ranks;
	result = open_nic(group);
	if (result != INCCL_OK) {
		close_group(group);
		return result;
	}
	begin_to_tell(group);
	*out = group;
	return INCCL_OK;
}

int inccl_group_close(struct inccl_group *group)
{
	bool is_used;

	if (!group)
		return INCCL_OK;
	pthread_mutex_lock(&group->lock);
	is_used = group->comms > 0;
	pthread_mutex_unlock(&group->lock);
	if (is_used)
		return INCCL_ERR_ARGUMENT;
	while (!ha_list_empty(&group->regions))
		inccl_deregister(
		    ha_container_of(group->regions.next, struct inccl_region, in_group));
	close_group(group);
	return INCCL_OK;
}

const char *inccl_group_why(const struct inccl_group *group)
{
	return group->why;
}

void ha_inccl_group_count(struct inccl_group *group, int more)
{
	pthread_mutex_lock(&group->lock);
	group->comms += (unsigned int)more;
	pthread_mutex_unlock(&group->lock);
}

/* ---- memory --------------------------------------------------------------------------------- */

int inccl_register(struct inccl_group *group, void *memory, size_t bytes, struct inccl_region **out)
{
	struct inccl_region *region;

	*out = NULL;
	if (!memory || bytes == 0)
		return INCCL_ERR_ARGUMENT;
	region = calloc(1, sizeof(*region));
	if (!region)
		return INCCL_ERR_SYSTEM;
	*region = (struct inccl_region){.group = group, .memory = memory, .bytes = bytes};
	if (ha_mr_register(group->set, group->port->nic, memory, bytes, HA_MEM_HOST, 0, -1,
			   &region->mr) != HA_OK) {
		free(region);
		return INCCL_ERR_SYSTEM;
	}
	pthread_mutex_lock(&group->lock);
	ha_list_push_back(&group->regions, &region->in_group);
	pthread_mutex_unlock(&group->lock);
	*out = region;
	return INCCL_OK;
}

void inccl_deregister(struct inccl_region *region)
{
	if (!region)
		return;
	pthread_mutex_lock(&region->group->lock);
	ha_list_remove(&region->in_group);
	pthread_mutex_unlock(&region->group->lock);
	ha_mr_deregister(region->mr);
	free(region);
}

static bool is_in(const struct inccl_region *region, const char *memory, size_t bytes)
{
	return memory >= region->memory && bytes <= region->bytes &&
	       (size_t)(memory - region->memory) <= region->bytes - bytes;
}

struct ha_mr *ha_inccl_group_find(struct inccl_group *group, const void *memory, size_t bytes)
{
	struct ha_mr *found = NULL;

	pthread_mutex_lock(&group->lock);
	for (struct ha_list *at = group->regions.next; at != &group->regions && !found;
	     at = at->next) {
		struct inccl_region *region = ha_container_of(at, struct inccl_region, in_group);

		if (is_in(region, memory, bytes))
			found = region->mr;
	}
	pthread_mutex_unlock(&group->lock);
	return found;
}
