/* SPDX-License-Identifier: Apache-2.0 */
/* The process's one instance, its life, and the way of our log lines into NCCL's log. */
#include "instance/instance.h"
#include "plugin/plugin.h"

#include "base/config.h"
#include "base/config_foreign.h"
#include "base/config_timeout.h"
#include "base/fork_guard.h"
#include "base/log.h"
#include "base/version.h"
#include "device/device.h"
#include "transport/transport.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

/* Result codes and constants travel unchanged. */
_Static_assert((int)HA_OK == (int)ncclSuccess, "result codes");
_Static_assert((int)HA_ERR_SYSTEM == (int)ncclSystemError, "result codes");
_Static_assert((int)HA_ERR_INTERNAL == (int)ncclInternalError, "result codes");
_Static_assert((int)HA_ERR_ARGUMENT == (int)ncclInvalidArgument, "result codes");
_Static_assert((int)HA_ERR_USAGE == (int)ncclInvalidUsage, "result codes");
_Static_assert((int)HA_ERR_REMOTE == (int)ncclRemoteError, "result codes");
_Static_assert(HA_HANDLE_MAX == NCCL_NET_HANDLE_MAXSIZE, "handle size");
_Static_assert(HA_TRAFFIC_CLASS_UNDEF == NCCL_NET_TRAFFIC_CLASS_UNDEF, "traffic class");
_Static_assert((int)HA_SUBSYS_INIT == (int)NCCL_INIT, "subsystem bits");
_Static_assert((int)HA_SUBSYS_NET == (int)NCCL_NET, "subsystem bits");
_Static_assert((int)HA_SUBSYS_ENV == (int)NCCL_ENV, "subsystem bits");

static struct {
	pthread_mutex_t lock; /* protects the rest; NCCL serialises init, other callers may not */
	_Atomic(struct ha_instance *) instance; /* written under the lock */
	int users;				/* inits that a finalize will follow */
	bool pinned;				/* an init came that no finalize will follow */
	pid_t pid; /* who made the instance: its thread does not exist in a forked child */
} plugin = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- log ----------------------------------------------------------------------------------- */

#define FIRST_WITH_ATTN 23200 /* NCCL 2.32.0 */

static _Atomic(ncclDebugLogger_t) nccl_logger;
static atomic_bool nccl_has_attn;

/* NCCL filters by level and subsystem itself. */
static void to_nccl(enum ha_log_level level, unsigned long subsys, const char *file, int line,
		    const char *text)
{
	ncclDebugLogger_t logger = atomic_load(&nccl_logger);

	if (level == HA_LOG_WARN)
		logger(NCCL_LOG_WARN, (unsigned long)NCCL_ALL, file, line, "%s", text);
	else if (level == HA_LOG_ATTN && atomic_load(&nccl_has_attn))
		logger(NCCL_LOG_ATTN, (unsigned long)NCCL_ALL, file, line, "%s", text);
	else /* trace lines were asked for by HA_NCCL_DEBUG: NCCL's own TRACE is rarely built in */
		logger(NCCL_LOG_INFO, subsys, file, line, "%s", text);
}

static void use_logger(ncclDebugLogger_t logger)
{
	if (!logger)
		return;
	atomic_store(&nccl_has_attn, ha_plugin_nccl_version(logger) >= FIRST_WITH_ATTN);
	atomic_store(&nccl_logger, logger);
	ha_log_set_sink(to_nccl);
}

/* The line to look for: the plugin is in use, and with what. */
static void announce(struct ha_instance *instance)
{
	const struct ha_device_set *set = ha_instance_devices(instance);
	char list[512] = " none";
	size_t used = 0;

	for (int i = 0; i < set->nbundles; i++) {
		const struct ha_bundle *bundle = &set->bundles[i];
		const struct ha_port *port = bundle->rails[0];
		char alone[sizeof(port->nic->name) + 16];
		int n;

		snprintf(alone, sizeof(alone), "%s:%d", port->nic->name, port->port_num);
		n = snprintf(list + used, sizeof(list) - used, " [%d]%s/%s", i,
			     bundle->nrails == 1 ? alone : bundle->name,
			     port->link_layer == IBV_LINK_LAYER_ETHERNET ? "RoCE" : "IB");

		if (n < 0 || (size_t)n >= sizeof(list) - used)
			break;
		used += (size_t)n;
	}
	HA_ATTN(HA_SUBSYS_INIT | HA_SUBSYS_NET, "nccl-ha %s: %d device(s):%s", ha_version,
		set->nbundles, list);
}

/* ---- a fork -------------------------------------------------------------------------------- */

static void fork_begins(void)
{
	struct ha_instance *instance;

	pthread_mutex_lock(&plugin.lock); /* so that it stays while this waits for its lock */
	instance = ha_plugin_instance();
	if (instance)
		ha_instance_fork_begins(instance);
}

static void fork_ends(bool in_child)
{
	struct ha_instance *instance = ha_plugin_instance();

	if (instance)
		ha_instance_fork_ends(instance, in_child);
	pthread_mutex_unlock(&plugin.lock);
}

static void fork_ends_in_parent(void)
{
	fork_ends(false);
}

static void fork_ends_in_child(void)
{
	fork_ends(true);
}

static void watch_forks(void)
{
	(void)pthread_atfork(fork_begins, fork_ends_in_parent, fork_ends_in_child);
}

bool ha_plugin_is_foreign(const char *call)
{
	static atomic_flag said = ATOMIC_FLAG_INIT;

	if (!ha_fork_is_child())
		return false;
	if (!atomic_flag_test_and_set(&said))
		HA_WARN(
		    "%s in a process that was forked from one that uses this network: it has none "
		    "of its connections and cannot make any; start workers with 'spawn' or "
		    "'forkserver'",
		    call);
	return true;
}

/* ---- life ---------------------------------------------------------------------------------- */

static ncclResult_t open_instance(void)
{
	struct ha_instance_options options = {.no_threads = false};
	struct ha_instance *instance;
	struct ha_config config;
	ha_result_t result;

	ha_config_load(&config, NULL);
	ha_log_set_debug(config.debug);
	if (config.disable) {
		HA_ATTN(HA_SUBSYS_INIT | HA_SUBSYS_NET,
			"nccl-ha %s is switched off by HA_NCCL_DISABLE", ha_version);
		return ncclSystemError;
	}
	ha_config_warn_unknown(environ);
	ha_config_log(&config);
	ha_config_warn_short_timeouts(&config);
	ha_config_note_foreign(environ);
	options.config = &config;
	result = ha_instance_open(&options, &instance);
	if (result != HA_OK)
		return (ncclResult_t)result;
	plugin.pid = getpid();
	atomic_store(&plugin.instance, instance);
	announce(instance);
	return ncclSuccess;
}

ncclResult_t ha_plugin_init(ncclDebugLogger_t logger, bool counted)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	ncclResult_t result = ncclSuccess;

	use_logger(logger);
	if (ha_plugin_is_foreign("init"))
		return ncclInvalidUsage;
	pthread_once(&once, watch_forks);
	pthread_mutex_lock(&plugin.lock);
	if (!ha_plugin_instance())
		result = open_instance();
	if (result == ncclSuccess) {
		plugin.users += counted;
		plugin.pinned |= !counted;
	}
	pthread_mutex_unlock(&plugin.lock);
	return result;
}

static void close_instance(void)
{
	struct ha_instance *instance = atomic_exchange(&plugin.instance, NULL);

	if (instance && plugin.pid == getpid())
		ha_instance_close(instance);
}

ncclResult_t ha_plugin_finalize(void)
{
	pthread_mutex_lock(&plugin.lock);
	if (plugin.users > 0 && --plugin.users == 0 && !plugin.pinned)
		close_instance();
	pthread_mutex_unlock(&plugin.lock);
	return ncclSuccess;
}

struct ha_instance *ha_plugin_instance(void)
{
	return atomic_load_explicit(&plugin.instance, memory_order_acquire);
}

bool ha_plugin_fuses(void)
{
	struct ha_instance *instance = ha_plugin_instance();

	return instance && ha_bundles_by_nccl(ha_instance_devices(instance));
}
