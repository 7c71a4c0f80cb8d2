/* SPDX-License-Identifier: Apache-2.0 */
/* API version 8: sizes are int, no hint on receives that need no completion. 2.20.3 and later. */
#include "plugin/plugin.h"

#include "transport/rings.h"

static ncclResult_t init(ncclDebugLogger_t logger)
{
	return ha_plugin_init(logger, false);
}

static ncclResult_t get_properties(int dev, ncclNetProperties_v8_t *props)
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
	props->speed = all.speed;
	props->port = all.port;
	props->latency = all.latency;
	props->maxComms = all.maxComms;
	props->maxRecvs = all.maxRecvs;
	props->netDeviceType = all.netDeviceType;
	props->netDeviceVersion = all.netDeviceVersion;
	return ncclSuccess;
}

static ncclResult_t connect_v8(int dev, void *handle, void **send_comm,
			       ncclNetDeviceHandle_v8_t **send_dev_comm)
{
	return ha_plugin_connect(dev, NCCL_NET_TRAFFIC_CLASS_UNDEF, handle, send_comm,
				 send_dev_comm);
}

static ncclResult_t isend(void *send_comm, void *data, int size, int tag, void *mhandle,
			  void **request)
{
	if (size < 0) {
		*request = NULL;
		return ncclInvalidArgument;
	}
	return ha_plugin_isend(send_comm, data, (size_t)size, tag, mhandle, request);
}

static ncclResult_t irecv(void *recv_comm, int n, void **data, int *sizes, int *tags,
			  void **mhandles, void **request)
{
	size_t wide[HA_GROUP_MAX];

	*request = NULL; /* the slot may hold anything: this version has no hint in it */
	if (n < 1 || n > HA_GROUP_MAX)
		return ncclInvalidArgument;
	for (int i = 0; i < n; i++) {
		if (sizes[i] < 0)
			return ncclInvalidArgument;
		wide[i] = (size_t)sizes[i];
	}
	return ha_plugin_irecv(recv_comm, n, data, wide, tags, mhandles, request);
}

HA_EXPORT const ncclNet_v8_t ncclNetPlugin_v8 = {
    .name = HA_PLUGIN_NAME,
    .init = init,
    .devices = ha_plugin_devices,
    .getProperties = get_properties,
    .listen = ha_plugin_listen,
    .connect = connect_v8,
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
