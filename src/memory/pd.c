/* SPDX-License-Identifier: Apache-2.0 */
/* The protection domain that all connections of a NIC share, and the life of its cache. */
#include "memory/pd.h"

#include "base/log.h"
#include "device/give_back.h"
#include "memory/cache.h"
#include "memory/mr.h"

#include <errno.h>
#include <string.h>

/* With pd_lock held. */
static ha_result_t create(struct ha_incarnation *on)
{
	struct ibv_pd *pd = ibv_alloc_pd(on->ctx);

	if (!pd) {
		HA_WARN("%s: cannot allocate a protection domain: %s", on->nic->name,
			strerror(errno));
		return HA_ERR_SYSTEM;
	}
	on->mr_cache = ha_mr_cache_new(on, pd);
	if (!on->mr_cache) {
		ha_give_back(on, HA_OBJECT_PD, pd, NULL, NULL);
		return HA_ERR_SYSTEM;
	}
	on->pd = pd;
	return HA_OK;
}

/* With pd_lock held. */
static void destroy(struct ha_incarnation *on)
{
	int left = ha_mr_cache_free(on->mr_cache);

	/* What it is still used by was refused before it, and goes before it. */
	ha_give_back(on, HA_OBJECT_PD, on->pd, NULL, NULL);
	if (left)
		HA_INFO(HA_SUBSYS_NET, "%s: ended %d registrations that were not given back",
			on->nic->name, left);
	on->mr_cache = NULL;
	on->pd = NULL;
	on->pd_users = 0;
}

ha_result_t ha_nic_pd_get(struct ha_nic *nic, struct ha_incarnation **out)
{
	struct ha_incarnation *on = ha_nic_hold(nic);
	ha_result_t result = HA_OK;

	*out = NULL;
	pthread_mutex_lock(&on->pd_lock);
	if (!on->pd)
		result = create(on);
	if (result == HA_OK)
		on->pd_users++;
	pthread_mutex_unlock(&on->pd_lock);
	if (result == HA_OK)
		*out = on;
	else
		ha_incarnation_let_go(on);
	return result;
}

void ha_nic_pd_put(struct ha_incarnation *on)
{
	pthread_mutex_lock(&on->pd_lock);
	if (--on->pd_users == 0)
		destroy(on);
	pthread_mutex_unlock(&on->pd_lock);
	ha_incarnation_let_go(on);
}

void ha_memory_close(struct ha_device_set *set)
{
	for (int i = 0; i < set->nnics; i++)
		for (struct ha_incarnation *on = set->nics[i].now; on; on = on->older) {
			pthread_mutex_lock(&on->pd_lock);
			if (on->pd)
				destroy(on);
			pthread_mutex_unlock(&on->pd_lock);
		}
}

int ha_nic_mr_count(struct ha_nic *nic)
{
	struct ha_incarnation *on = ha_nic_hold(nic);
	int n;

	pthread_mutex_lock(&on->pd_lock);
	n = on->mr_cache ? ha_mr_cache_entries(on->mr_cache) : 0;
	pthread_mutex_unlock(&on->pd_lock);
	ha_incarnation_let_go(on);
	return n;
}
