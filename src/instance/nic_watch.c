/* SPDX-License-Identifier: Apache-2.0 */
#include "instance/nic_watch.h"

#include "device/events.h"
#include "instance/ask_again.h"
#include "instance/port_watch.h"
#include "instance/reopen.h"
#include "liveness/liveness.h"
#include "transport/async_event.h"
#include "transport/shared.h"

#include <sys/epoll.h>

static void nic_ready(struct ha_watch *watch, uint32_t events)
{
	struct ha_nic_watch *w = ha_container_of(watch, struct ha_nic_watch, watch);
	int read = ha_nic_read_events(w->inst->devices, w->nic);

	if (read > 0) {
		ha_port_watches_look(w->inst, w->nic);
		ha_port_stats_publish(w->inst, w->nic);
	}
	if (ha_incarnation_is_dead(w->nic->now)) {
		ha_liveness_look(w->inst->liveness);
		ha_reopen_look(w->inst);
		ha_ask_again_look(w->inst);
	}

	/* A dead device's descriptor may stay readable for ever. (The NIC may be fatal with one
	 * that lives: while it is made ready.) */
	if (ha_incarnation_is_dead(w->nic->now) || (read == 0 && (events & (EPOLLHUP | EPOLLERR))))
		ha_progress_unwatch_self(w->inst->progress, watch);
}

static bool watch_nic(struct ha_nic_watch *w)
{
	w->watch.fd = w->nic->now->ctx->async_fd;
	w->watch.ready = nic_ready;
	if (ha_progress_watch(w->inst->progress, &w->watch) == HA_OK)
		return true;
	w->watch.fd = -1;
	return false;
}

bool ha_nic_watch_again(struct ha_instance *inst, const struct ha_nic *nic)
{
	struct ha_nic_watch *w = &inst->nic_watches[nic->index];

	ha_progress_unwatch_self(inst->progress, &w->watch);
	return watch_nic(w);
}

ha_result_t ha_nic_watches_open(struct ha_instance *inst)
{
	inst->devices->on_event = ha_instance_event;
	inst->devices->on_event_arg = inst;
	for (int i = 0; i < inst->devices->nnics; i++) {
		struct ha_nic_watch *w = &inst->nic_watches[i];

		w->inst = inst;
		w->nic = &inst->devices->nics[i];
		if (!watch_nic(w))
			return HA_ERR_SYSTEM;
	}
	return HA_OK;
}

void ha_nic_watches_close(struct ha_instance *inst)
{
	for (int i = 0; i < HA_MAX_NICS; i++)
		ha_progress_unwatch(inst->progress, &inst->nic_watches[i].watch);
}
