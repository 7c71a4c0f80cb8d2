/* SPDX-License-Identifier: Apache-2.0 */
/* The protection domain that all connections of a NIC share, and the life of its cache. */
#include "memory/mr.h"

#include "base/log.h"
#include "memory/cache.h"

#include <errno.h>
#include <string.h>

/* With pd_lock held. */
static ha_result_t create(struct ha_nic *nic)
{
	struct ibv_pd *pd = ibv_alloc_pd(nic->ctx);

	if (!pd) {
		HA_WARN("%s: cannot allocate a protection domain: %s", nic->name, strerror(errno));
		return HA_ERR_SYSTEM;
	}
	nic->mr_cache = ha_mr_cache_new(nic, pd);
	if (!nic->mr_cache) {
		ibv_dealloc_pd(pd);
		return HA_ERR_SYSTEM;
	}
	nic->pd = pd;
	return HA_OK;
}

/* With pd_lock held. */
static void destroy(struct ha_nic *nic)
{
	int left = ha_mr_cache_free(nic->mr_cache);
	int err = ibv_dealloc_pd(nic->pd);

	if (left)
		HA_INFO(HA_SUBSYS_NET, "%s: ended %d registrations that were not given back",
			nic->name, left);
	if (err && !atomic_load(&nic->fatal))
		HA_WARN("%s: cannot free the protection domain: %s (a queue pair still uses it)",
			nic->name, strerror(err));
	nic->mr_cache = NULL;
	nic->pd = NULL;
	nic->pd_users = 0;
}

ha_result_t ha_nic_pd_get(struct ha_nic *nic, struct ibv_pd **pd)
{
	ha_result_t result = HA_OK;

	*pd = NULL;
	pthread_mutex_lock(&nic->pd_lock);
	if (!nic->pd)
		result = create(nic);
	if (result == HA_OK) {
		nic->pd_users++;
		*pd = nic->pd;
	}
	pthread_mutex_unlock(&nic->pd_lock);
	return result;
}

void ha_nic_pd_put(struct ha_nic *nic)
{
	pthread_mutex_lock(&nic->pd_lock);
	if (--nic->pd_users == 0)
		destroy(nic);
	pthread_mutex_unlock(&nic->pd_lock);
}

void ha_memory_close(struct ha_device_set *set)
{
	for (int i = 0; i < set->nnics; i++) {
		struct ha_nic *nic = &set->nics[i];

		pthread_mutex_lock(&nic->pd_lock);
		if (nic->pd)
			destroy(nic);
		pthread_mutex_unlock(&nic->pd_lock);
	}
}

int ha_nic_mr_count(struct ha_nic *nic)
{
	int n;

	pthread_mutex_lock(&nic->pd_lock);
	n = nic->mr_cache ? ha_mr_cache_entries(nic->mr_cache) : 0;
	pthread_mutex_unlock(&nic->pd_lock);
	return n;
}
