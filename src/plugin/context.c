/* SPDX-License-Identifier: Apache-2.0 */
/* API version 11 and later: entries that carry a communicator's context, and its end. */
#include "plugin/plugin.h"

#include <stdint.h>

/*
 * The context is the communicator's traffic class. It fits in the pointer, so there is nothing to
 * free and nothing a late connect could find gone. NULL would look like no context: count from 1.
 */
static void *to_context(int traffic_class)
{
	return (void *)(intptr_t)(traffic_class < 0 ? 1 : traffic_class + 2);
}

static int to_traffic_class(const void *context)
{
	return (intptr_t)context < 2 ? NCCL_NET_TRAFFIC_CLASS_UNDEF : (int)((intptr_t)context - 2);
}

ncclResult_t ha_plugin_init_v11(void **context, uint64_t comm_id, ncclNetCommConfig_v11_t *config,
				ncclDebugLogger_t logger, ncclProfilerCallback_t profiler)
{
	(void)comm_id;
	(void)profiler;
	*context = to_context(config ? config->trafficClass : NCCL_NET_TRAFFIC_CLASS_UNDEF);
	return ha_plugin_init(logger, true);
}

ncclResult_t ha_plugin_finalize_v11(void *context)
{
	(void)context;
	return ha_plugin_finalize();
}

ncclResult_t ha_plugin_listen_v11(void *context, int dev, void *handle, void **listen_comm)
{
	(void)context;
	return ha_plugin_listen(dev, handle, listen_comm);
}

ncclResult_t ha_plugin_connect_v11(void *context, int dev, void *handle, void **send_comm,
				   ncclNetDeviceHandle_v11_t **send_dev_comm)
{
	return ha_plugin_connect(dev, to_traffic_class(context), handle, send_comm, send_dev_comm);
}

/* A hint about what comes; our queues are sized for the worst case. */
ncclResult_t ha_plugin_set_net_attr_v11(void *context, ncclNetAttr_v11_t *attr)
{
	(void)context;
	(void)attr;
	return ncclSuccess;
}
