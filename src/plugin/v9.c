/* SPDX-License-Identifier: Apache-2.0 */
/* API version 9: sizes are size_t, properties of virtual devices. 2.24.3 and later. */
#include "plugin/plugin.h"

static ncclResult_t init(ncclDebugLogger_t logger);

/* NCCL copies what is in it after init. */
HA_EXPORT ncclNet_v9_t ncclNetPlugin_v9 = {
    .name = HA_PLUGIN_NAME,
    .init = init,
    .devices = ha_plugin_devices,
    .getProperties = ha_plugin_properties_v9,
    .listen = ha_plugin_listen,
    .connect = ha_plugin_connect_v8,
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

static ncclResult_t init(ncclDebugLogger_t logger)
{
	ncclResult_t result = ha_plugin_init_v8(logger);

	ncclNetPlugin_v9.makeVDevice = ha_plugin_fuses() ? ha_plugin_make_vdevice_v9 : NULL;
	return result;
}
