/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What NCCL's own IB transport (2.30.7) reads from the environment and this plugin does not act
 * on. A site that sets such a variable for all its jobs is told, once, that it has no effect here.
 */
#include "base/config_foreign.h"

#include "base/config.h"
#include "base/log.h"
#include "base/text.h"

#include <string.h>

#define SHOWN_MAX 68 /* bytes of a name that a log line repeats, at most */

const struct ha_config_foreign ha_config_foreign[] = {
    {"NCCL_IB_MERGE_NICS", "0",
     "each port is a device of its own, over which NCCL spreads its channels: none are fused"},
    {"NCCL_IB_MERGE_VFS", "0", "so is each virtual function"},
    {"NCCL_IB_DATA_DIRECT", "0", "the direct data path to GPUs of a ConnectX-8 is not used"},
    {"NCCL_IB_FIFO_TC", "-1", "clear-to-sends have the traffic class of the connection"},
    {"NCCL_IB_OOO_RQ", "0", "queue pairs are not asked to take messages out of order"},
    {"NCCL_IB_PREPOST_RECEIVE_WORK_REQUESTS", "1", "receives are always posted ahead"},
    {"NCCL_IB_RECEIVER_SIDE_MATCHING_SCHEME", "-2",
     "what arrives is matched by message number and epoch"},
    {"NCCL_IB_RETURN_ASYNC_EVENTS", "1",
     "a device that fails is left; it is an error only where no path is left"},
    {"NCCL_IB_RESILIENCY_*", "0", "failover and recovery are the plugin's own: HA_NCCL_*"},
    {"NCCL_IB_MQP_RETRY_*", "0",
     "a queue pair that cannot be connected is made anew, on another pair of ports if there is "
     "one"},
    {"NCCL_IB_SUBNET_AWARE_ROUTING", "0",
     "ports of other subnets are tried after those of the same, and proved"},
    {"NCCL_IB_SUBNET_PREFIX_LEN", "24", "it belongs to NCCL_IB_SUBNET_AWARE_ROUTING"},
    {"NCCL_IB_DEVICE_PCI_ORDER", "0", "devices are in the order of their names"},
    {"NCCL_IB_QUERY_PORT_SPEED", "0", "the speed is that of the port's attributes"},
    {"NCCL_IB_WARN_RAIL_LOCAL", "0", "no devices are fused that could leave their rail"},
    {"NCCL_GDR_FLUSH_DISABLE", "0", "what NCCL asks to flush is flushed"},
    {"NCCL_IBVERBS_LIB", NULL, "the libibverbs.so.1 that the loader finds is used"},
    {"NCCL_SOCKET_RETRY_*", NULL, "a refused or broken set-up is tried again for 20 s"},
    {"NCCL_SOCKET_POLL_TIMEOUT_MSEC", "0", "no call of the plugin's waits for a socket"},
    {"NCCL_SOCKET_MAGIC", NULL, "connections are told apart by a random secrets of their own"},
};

const size_t ha_config_nforeign = sizeof ha_config_foreign / sizeof ha_config_foreign[0];

/* NAME, or with * at its end all that begin so. */
static bool fits(const char *pattern, const char *name, size_t length)
{
	size_t n = strlen(pattern);

	if (n > 0 && pattern[n - 1] == '*')
		return length >= n && strncmp(pattern, name, n - 1) == 0;
	return n == length && memcmp(pattern, name, n) == 0;
}

int ha_config_note_foreign(char *const *environ_list)
{
	char safe[SHOWN_MAX];
	int noted = 0;

	for (; environ_list && *environ_list; environ_list++) {
		const char *text = *environ_list;
		size_t length = strcspn(text, "=");
		const char *value = text[length] ? text + length + 1 : "";

		for (size_t i = 0; i < ha_config_nforeign && *value; i++) {
			const struct ha_config_foreign *foreign = &ha_config_foreign[i];

			if (!fits(foreign->name, text, length) ||
			    (foreign->as_here && strcmp(value, foreign->as_here) == 0))
				continue;
			HA_INFO(HA_SUBSYS_ENV, "%s is set and changes nothing here: %s",
				ha_printable(text, length, safe, sizeof safe), foreign->why);
			noted++;
		}
	}
	return noted;
}
