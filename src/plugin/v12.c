/* SPDX-License-Identifier: Apache-2.0 */
/* API version 12: up to eight devices per NIC, rail and plane. 2.30.3 and later. */
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

static ncclResult_t init(void **context, uint64_t comm_id, ncclNetCommConfig_v12_t *config,
			 ncclDebugLogger_t logger, ncclProfilerCallback_t profiler)
{
	(void)comm_id;
	(void)profiler;
	*context = to_context(config ? config->trafficClass : NCCL_NET_TRAFFIC_CLASS_UNDEF);
	return ha_plugin_init(logger, true);
}

static ncclResult_t finalize(void *context)
{
	(void)context;
	return ha_plugin_finalize();
}

static ncclResult_t listen_v12(void *context, int dev, void *handle, void **listen_comm)
{
	(void)context;
	return ha_plugin_listen(dev, handle, listen_comm);
}

static ncclResult_t connect_v12(void *context, int dev, void *handle, void **send_comm,
				ncclNetDeviceHandle_v12_t **send_dev_comm)
{
	return ha_plugin_connect(dev, to_traffic_class(context), handle, send_comm, send_dev_comm);
}

static ncclResult_t isend(void *send_comm, void *data, size_t size, int tag, void *mhandle,
			  void *phandle, void **request)
{
	(void)phandle;
	return ha_plugin_isend(send_comm, data, size, tag, mhandle, request);
}

static ncclResult_t irecv(void *recv_comm, int n, void **data, size_t *sizes, int *tags,
			  void **mhandles, void **phandles, void **request)
{
	(void)phandles;
	return ha_plugin_irecv(recv_comm, n, data, sizes, tags, mhandles, request);
}

/* A hint about what comes; our queues are sized for the worst case. */
static ncclResult_t set_net_attr(void *context, ncclNetAttr_v12_t *attr)
{
	(void)context;
	(void)attr;
	return ncclSuccess;
}

HA_EXPORT const ncclNet_v12_t ncclNetPlugin_v12 = {
    .name = HA_PLUGIN_NAME,
    .init = init,
    .devices = ha_plugin_devices,
    .getProperties = ha_plugin_properties,
    .listen = listen_v12,
    .connect = connect_v12,
    .accept = ha_plugin_accept,
    .regMr = ha_plugin_reg_mr,
    .regMrDmaBuf = ha_plugin_reg_mr_dmabuf,
    .deregMr = ha_plugin_dereg_mr,
    .isend = isend,
    .irecv = irecv,
    .iflush = ha_plugin_iflush,
    .test = ha_plugin_test,
    .closeSend = ha_plugin_close_send,
    .closeRecv = ha_plugin_close_recv,
    .closeListen = ha_plugin_close_listen,
    .finalize = finalize,
    .setNetAttr = set_net_attr,
};
