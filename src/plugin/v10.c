/* SPDX-License-Identifier: Apache-2.0 */
/* API version 10: profiler handles (not used) and a traffic class per connection. 2.26.2 and later.
 */
#include "plugin/plugin.h"

static ncclResult_t init(ncclDebugLogger_t logger, ncclProfilerCallback_t profiler)
{
	(void)profiler;
	return ha_plugin_init(logger, false);
}

static ncclResult_t get_properties(int dev, ncclNetProperties_v10_t *props)
{
	ncclNetProperties_v12_t all;
	ncclResult_t result = ha_plugin_properties(dev, &all);

	if (result != ncclSuccess)
		return result;
	props->name = all.name;
	props->pciPath = all.pciPath;
	props->guid = all.guid;
	props->ptrSupport = all.ptrSupport;
	props->regIsGlobal = all.regIsGlobal;
	props->forceFlush = all.forceFlush;
	props->speed = all.speed;
	props->port = all.port;
	props->latency = all.latency;
	props->maxComms = all.maxComms;
	props->maxRecvs = all.maxRecvs;
	props->netDeviceType = all.netDeviceType;
	props->netDeviceVersion = all.netDeviceVersion;
	props->vProps.ndevs = all.vProps.ndevs;
	props->vProps.devs[0] = all.vProps.devs[0];
	props->maxP2pBytes = all.maxP2pBytes;
	props->maxCollBytes = all.maxCollBytes;
	return ncclSuccess;
}

static ncclResult_t connect_v10(int dev, ncclNetCommConfig_v10_t *config, void *handle,
				void **send_comm, ncclNetDeviceHandle_v10_t **send_dev_comm)
{
	return ha_plugin_connect(dev, config ? config->trafficClass : NCCL_NET_TRAFFIC_CLASS_UNDEF,
				 handle, send_comm, send_dev_comm);
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

HA_EXPORT const ncclNet_v10_t ncclNetPlugin_v10 = {
    .name = HA_PLUGIN_NAME,
    .init = init,
    .devices = ha_plugin_devices,
    .getProperties = get_properties,
    .listen = ha_plugin_listen,
    .connect = connect_v10,
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
};
