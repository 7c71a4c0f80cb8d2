/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a process has of the plugin, put together: configuration, devices, background thread,
 * heartbeats, failover, the operator's socket. The plugin keeps one, reference-counted by init and
 * finalize; tests make one per simulated host.
 */
#ifndef HA_INSTANCE_INSTANCE_H
#define HA_INSTANCE_INSTANCE_H

#include "base/config.h"
#include "base/result.h"
#include "transport/shared.h"

#include <stdbool.h>

struct ha_instance_options {
	const struct ha_config *config; /* NULL: read from the environment */
	bool no_threads;		/* tests: the caller drives ha_instance_progress */
};

ha_result_t ha_instance_open(const struct ha_instance_options *options,
			     struct ha_instance **out) HA_MUST_CHECK;
/*
 * Stops the progress thread and frees everything that no open comm needs. Queue pairs that the
 * kernel takes long to destroy, and their devices, are left to the background (command.h).
 */
void ha_instance_close(struct ha_instance *inst);
struct ha_device_set *ha_instance_devices(struct ha_instance *inst);
/* NCCL wants these devices as one (device/bundle.h); *dev is its number. Any thread. */
ha_result_t ha_instance_fuse(struct ha_instance *inst, const int *devs, int n,
			     int *dev) HA_MUST_CHECK;
/*
 * Around a fork. A child has neither the thread nor the descriptors: every call on a connection of
 * its parent's ends with HA_ERR_USAGE there, and nothing else may be called.
 */
void ha_instance_fork_begins(struct ha_instance *inst);
void ha_instance_fork_ends(struct ha_instance *inst, bool in_child);
/* One round of what the progress thread does; returns the work items found. */
int ha_instance_progress(struct ha_instance *inst);

#endif
