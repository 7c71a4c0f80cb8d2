/* SPDX-License-Identifier: Apache-2.0 */
/* API version 12: up to eight devices per NIC, rail and plane. 2.30.3 and later. */
#include "plugin/plugin.h"

static ncclResult_t init(void **context, uint64_t comm_id, ncclNetCommConfig_v11_t *config,
			 ncclDebugLogger_t logger, ncclProfilerCallback_t profiler);

/* NCCL looks at what is in it after init. */
HA_EXPORT ncclNet_v12_t ncclNetPlugin_v12 = {
    .name = HA_PLUGIN_NAME,
    .init = init,
    .devices = ha_plugin_devices,
    .getProperties = ha_plugin_properties_v12,
    .listen = ha_plugin_listen_v11,
    .connect = ha_plugin_connect_v11,
    .accept = ha_plugin_accept,
    .regMr = ha_plugin_reg_mr,
    .regMrDmaBuf = ha_plugin_reg_mr_dmabuf,
    .deregMr = ha_plugin_dereg_mr,
    .isend = ha_plugin_isend_v10,
    .irecv = ha_plugin_irecv_v10,
    .iflush = ha_plugin_iflush,
    .test = ha_plugin_test,
    .closeSend = ha_plugin_close_send,
    .closeRecv = ha_plugin_close_recv,
    .closeListen = ha_plugin_close_listen,
    .finalize = ha_plugin_finalize_v11,
    .setNetAttr = ha_plugin_set_net_attr_v11,
};

static ncclResult_t init(void **context, uint64_t comm_id, ncclNetCommConfig_v11_t *config,
			 ncclDebugLogger_t logger, ncclProfilerCallback_t profiler)
{
	ncclResult_t result = ha_plugin_init_v11(context, comm_id, config, logger, profiler);

	ncclNetPlugin_v12.makeVDevice = ha_plugin_fuses() ? ha_plugin_make_vdevice_v12 : NULL;
	return result;
}
