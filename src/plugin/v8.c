/* SPDX-License-Identifier: Apache-2.0 */
/* API version 8: sizes are int, no hint on receives that need no completion. 2.20.3 and later. */
#include "plugin/plugin.h"

#include "base/log.h"
#include "transport/rings.h"

static ncclResult_t init(ncclDebugLogger_t logger)
{
	ncclResult_t result = ha_plugin_init_v8(logger);

	if (ha_plugin_fuses())
		HA_WARN(
		    "HA_NCCL_RAILS=nccl cannot be used: version 8 of NCCL's interface, which this "
		    "NCCL loads, has no makeVDevice; name the ports of a bundle instead");
	return result;
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
    .getProperties = ha_plugin_properties_v8,
    .listen = ha_plugin_listen,
    .connect = ha_plugin_connect_v8,
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
