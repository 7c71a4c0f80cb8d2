/* SPDX-License-Identifier: Apache-2.0 */
/* collNet API version 8: counts are int. 2.20.3 and later. */
#include "plugin/coll.h"

static ncclResult_t iallreduce(void *coll_comm, void *send, void *recv, int count,
			       ncclDataType_t type, ncclRedOp_t op, void *send_mhandle,
			       void *recv_mhandle, void **request)
{
	*request = NULL;
	if (count < 0)
		return ncclInvalidArgument;
	return ha_plugin_coll_iallreduce(coll_comm, send, recv, (size_t)count, type, op,
					 send_mhandle, recv_mhandle, request);
}

HA_EXPORT const ncclCollNet_v8_t ncclCollNetPlugin_v8 = {
    .name = HA_PLUGIN_NAME,
    .init = ha_plugin_coll_init_v8,
    .devices = ha_plugin_coll_devices,
    .getProperties = ha_plugin_properties_v8,
    .listen = ha_plugin_coll_listen,
    .connect = ha_plugin_coll_connect,
    .reduceSupport = ha_plugin_coll_reduce_support,
    .regMr = ha_plugin_coll_reg_mr,
    .regMrDmaBuf = ha_plugin_coll_reg_mr_dmabuf,
    .deregMr = ha_plugin_coll_dereg_mr,
    .iallreduce = iallreduce,
    .iflush = ha_plugin_coll_iflush,
    .test = ha_plugin_coll_test,
    .closeColl = ha_plugin_coll_close,
    .closeListen = ha_plugin_coll_close_listen,
};
