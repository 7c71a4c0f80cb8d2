/* SPDX-License-Identifier: Apache-2.0 */
/* API version 9: sizes are size_t, properties of virtual devices. 2.24.3 and later. */
#include "plugin/plugin.h"

static ncclResult_t init(ncclDebugLogger_t logger)
{
	return ha_plugin_init(logger, false);
}

static ncclResult_t get_properties(int dev, ncclNetProperties_v9_t *props)
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

static ncclResult_t connect_v9(int dev, void *handle, void **send_comm,
			       ncclNetDeviceHandle_v9_t **send_dev_comm)
{
	return ha_plugin_connect(dev, NCCL_NET_TRAFFIC_CLASS_UNDEF, handle, send_comm,
				 send_dev_comm);
}

/* No makeVDevice: every port is reported as it is, and what stands by is no business of NCCL's. */
HA_EXPORT const ncclNet_v9_t ncclNetPlugin_v9 = {
    .name = HA_PLUGIN_NAME,
    .init = init,
    .devices = ha_plugin_devices,
    .getProperties = get_properties,
    .listen = ha_plugin_listen,
    .connect = connect_v9,
    .accept = ha_plugin_accept,
    .regMr = ha_plugin_reg_mr,
    .regMrDmaBuf = ha_plugin_reg_mr_dmabuf,
    .deregMr = ha_plugin_dereg_mr,
    .isend = ha_plugin_isend,
    .irecv = ha_plugin_irecv,
    .iflush = ha_plugin_iflush,
    .test = ha_plugin_test,
    .closeSend = ha_plugin_close_send,
    .closeRecv = ha_plugin_close_recv,
    .closeListen = ha_plugin_close_listen,
};
