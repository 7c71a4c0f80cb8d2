/* SPDX-License-Identifier: Apache-2.0 */
/* An instance: configuration, devices, progress thread; which NICs are of no use for a while. */
#include "instance/instance.h"
#include "instance/ask_again.h"
#include "instance/nic_watch.h"
#include "instance/port_watch.h"
#include "instance/reopen.h"
#include "transport/async_event.h"

#include "admin/server.h"
#include "base/async_log.h"
#include "base/log.h"
#include "base/pin_code.h"
#include "base/random.h"
#include "base/stats.h"
#include "base/text.h"
#include "device/events.h"
#include "device/netdev.h"
#include "event/event_log.h"
#include "failover/engine.h"
#include "failover/shared.h"
#include "liveness/liveness.h"
#include "memory/mr.h"
#include "memory/pd.h"
#include "progress/command.h"
#include "transport/clear_path.h"
#include "transport/comm.h"
#include "transport/connect.h"
#include "transport/poll_thread.h"
#include "transport/rail_agent.h"
#include "transport/rail_island.h"
#include "transport/shared_parking.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- commands that do not come back --------------------------------------------------------- */

/* Progress thread. Its ports are of no use while its commands do not come back: what runs over them
 * leaves, and nothing new is asked of it. */
static void nic_stuck(void *arg, unsigned queue, bool stuck)
{
	struct ha_instance *inst = arg;
	struct ha_nic *nic = &inst->devices->nics[queue];

	atomic_store(&nic->sick, stuck);
	if (stuck)
		HA_WARN("%s: commands to the device do not come back within %llu ms: it is not "
			"used until they do",
			nic->name, (unsigned long long)(ha_command_sick_ns / HA_NS_PER_MS));
	else
		HA_ATTN(HA_SUBSYS_NET, "%s: commands to the device come back again", nic->name);
	pthread_mutex_lock(&inst->lock);
	ha_comms_ports_changed(inst, ha_ports_of_nic(inst->devices, nic));
	pthread_mutex_unlock(&inst->lock);
}

/* ---- life ---------------------------------------------------------------------------------- */

static void name_host(struct ha_instance *inst)
{
	char name[256] = "unknown";

	(void)gethostname(name, sizeof(name) - 1);
	ha_copy_text(inst->host, sizeof(inst->host), name);
}

/* When the providers are loaded. */
static void keep_resident(void)
{
	size_t locked = ha_keep_resident();

	HA_TRACE(1, "%zu KiB of code are kept in memory for a failover", locked / 1024);
}

/* Where peers dial. */
static ha_result_t choose_bootstrap(struct ha_instance *inst)
{
	struct ha_netif all[HA_NETIFS_MAX], netif;
	int n = ha_net_list(all, HA_NETIFS_MAX);

	ha_netdev_mark(inst->devices, HA_CLASS_NET, all, n);
	HA_TRY(ha_net_choose(&inst->config, all, n, &netif));
	inst->bootstrap_addr = netif.addr;
	inst->bootstrap_ifindex = if_nametoindex(netif.name);
	return HA_OK;
}

static void heartbeat_refused(void *arg)
{
	ha_instance_refused(arg, HA_refused_heartbeats);
}

/* The thread that polls for NCCL, where it was asked for. */
static ha_result_t start_polling(struct ha_instance *inst)
{
	const struct ha_poll_options options = {.thread = inst->threads,
						.cpu = inst->config.progress_cpu};

	if (inst->config.use_progress_thread != HA_POLLS_ALL)
		return HA_OK;
	return ha_poll_thread_start(&options, &inst->poll_thread);
}

ha_result_t ha_instance_open(const struct ha_instance_options *options, struct ha_instance **out)
{
	struct ha_instance *inst = calloc(1, sizeof(*inst));
	struct ha_progress_options progress;
	ha_result_t result;

	*out = NULL;
	if (!inst) {
		HA_WARN("out of memory for the plugin instance");
		return HA_ERR_SYSTEM;
	}
	inst->threads = !options->no_threads;
	if (inst->threads)
		ha_async_log_open();
	pthread_mutex_init(&inst->lock, NULL);
	inst->failover = &ha_failover_engine;
	ha_unreachable_init(&inst->unreachable);
	ha_net_reserve_init(&inst->reserve);
	ha_net_reserve_fill(&inst->reserve);
	ha_list_init(&inst->comms);
	ha_list_init(&inst->attempts);
	ha_kept_paths_init(&inst->kept);
	ha_shared_parkings_init(&inst->parkings);
	for (int i = 0; i < HA_MAX_NICS; i++)
		inst->nic_watches[i].watch.fd = -1;
	if (options->config)
		inst->config = *options->config;
	else
		ha_config_load(&inst->config, NULL);
	name_host(inst);

	result = ha_random_works() ? ha_job_key_load(&inst->config, &inst->job_key) : HA_ERR_SYSTEM;
	if (result == HA_OK)
		result = ha_device_set_open(&inst->config, &inst->devices);
	if (result == HA_OK && inst->devices->nports > 0) {
		result = choose_bootstrap(inst);
	}
	if (result == HA_OK) {
		progress = (struct ha_progress_options){
		    .thread = inst->threads,
		    .idle_spin_threshold = inst->config.idle_spin_threshold,
		    .stuck = nic_stuck,
		    .stuck_arg = inst,
		};
		result = ha_progress_start(&progress, &inst->progress);
	}
	if (result == HA_OK) {
		ha_memory_use_commands(inst->devices, inst->progress);
		result = start_polling(inst);
	}
	if (result == HA_OK) {
		ha_kept_paths_start(inst);
		ha_rail_islands_open(inst);
		ha_rail_agent_open(inst);
		inst->failover_shared = ha_failover_shared_new();
		if (!inst->failover_shared)
			result = HA_ERR_SYSTEM;
	}
	if (result == HA_OK) {
		inst->liveness = ha_liveness_new(inst->progress, &inst->config);
		if (inst->liveness)
			ha_liveness_trust(inst->liveness, inst->job_key, heartbeat_refused, inst);
		else
			result = HA_ERR_SYSTEM;
	}
	if (result == HA_OK && inst->threads && inst->config.enable_backup)
		keep_resident();
	if (result == HA_OK) {
		inst->stats = ha_stats_open(&inst->config);
		inst->events = ha_eventlog_open(inst->config.event_log,
						(uint64_t)inst->config.event_log_mb << 20);
		ha_stats_event_log(inst->stats, ha_eventlog_path(inst->events));
		ha_port_stats_open(inst);
		ha_admin_server_open(inst);
		result = ha_port_watches_open(inst);
		if (result == HA_OK)
			ha_liveness_on_doubt(inst->liveness, ha_port_watches_doubt, inst);
	}
	if (result == HA_OK)
		result = ha_ask_again_open(inst);
	if (result == HA_OK)
		result = ha_reopen_open(inst);
	if (result == HA_OK) {
		result = ha_nic_watches_open(inst);
	}
	if (result != HA_OK) {
		ha_instance_close(inst);
		return result;
	}
	*out = inst;
	return HA_OK;
}

/* When nothing uses the devices any more. */
static void close_devices(void *arg)
{
	struct ha_instance *inst = arg;

	ha_reopen_free(inst);
	ha_port_watches_free(inst);
	if (inst->devices)
		ha_memory_close(inst->devices);
	ha_device_set_close(inst->devices);
	ha_ask_again_free(inst);
	ha_kept_paths_free(inst, NULL);
	ha_unreachable_destroy(&inst->unreachable);
	ha_shared_parkings_destroy(&inst->parkings);
	pthread_mutex_destroy(&inst->lock);
	ha_job_key_free(inst->job_key);
	free(inst);
}

void ha_instance_close(struct ha_instance *inst)
{
	if (!inst)
		return;
	if (inst->progress)
		ha_nic_watches_close(inst);
	ha_reopen_close(inst);
	ha_ask_again_close(inst);
	ha_kept_paths_stop(inst);
	ha_port_watches_close(inst);
	ha_admin_server_close(inst);
	ha_failover_shared_free(inst, inst->failover_shared);
	inst->failover_shared = NULL;
	ha_connect_abandon_all(inst);
	ha_net_reserve_close(&inst->reserve);
	ha_liveness_free(inst->liveness);
	ha_poll_thread_stop(inst->poll_thread);
	ha_progress_halt(inst->progress);
	if (!ha_list_empty(&inst->comms))
		HA_WARN("the plugin is shut down with open connections");
	ha_rail_agent_close(inst);
	ha_rail_islands_close(inst);
	if (inst->stats)
		ha_port_stats_close(inst);
	ha_stats_close(inst->stats);
	if (inst->threads)
		ha_async_log_close();
	ha_eventlog_close(inst->events);
	if (!inst->progress)
		close_devices(inst);
	else if (!ha_progress_end(inst->progress, close_devices, inst))
		HA_INFO(HA_SUBSYS_NET, "destroying queue pairs takes long: the devices are closed "
				       "in the background when it is over");
}

struct ha_device_set *ha_instance_devices(struct ha_instance *inst)
{
	return inst->devices;
}

ha_result_t ha_instance_fuse(struct ha_instance *inst, const int *devs, int n, int *dev)
{
	ha_result_t result;

	pthread_mutex_lock(&inst->lock);
	result = ha_bundle_fuse(inst->devices, devs, n, dev);
	pthread_mutex_unlock(&inst->lock);
	return result;
}

int ha_instance_progress(struct ha_instance *inst)
{
	return ha_progress_round(inst->progress);
}

/* ---- a fork -------------------------------------------------------------------------------- */

void ha_instance_fork_begins(struct ha_instance *inst)
{
	pthread_mutex_lock(&inst->lock);
}

/* No word of it: a child says nothing before it is asked. */
static void latch(struct ha_comm *comm)
{
	int none = HA_OK;

	atomic_compare_exchange_strong(&comm->error, &none, HA_ERR_USAGE);
	ha_comm_not_clear(comm);
}

void ha_instance_fork_ends(struct ha_instance *inst, bool in_child)
{
	struct ha_list *pos;

	if (in_child)
		ha_list_for_each (pos, &inst->comms)
			latch(ha_container_of(pos, struct ha_comm, in_instance));
	pthread_mutex_unlock(&inst->lock);
}
