/* SPDX-License-Identifier: Apache-2.0 */
/* API version 10: profiler handles (not used) and a traffic class per connection. 2.26.2 and later.
 */
#include "plugin/plugin.h"

static ncclResult_t init(ncclDebugLogger_t logger, ncclProfilerCallback_t profiler);

static ncclResult_t connect_v10(int dev, ncclNetCommConfig_v10_t *config, void *handle,
				void **send_comm, ncclNetDeviceHandle_v10_t **send_dev_comm)
{
	return ha_plugin_connect(dev, config ? config->trafficClass : NCCL_NET_TRAFFIC_CLASS_UNDEF,
				 handle, send_comm, send_dev_comm);
}

/* NCCL copies what is in it after init. */
HA_EXPORT ncclNet_v10_t ncclNetPlugin_v10 = {
    .name = HA_PLUGIN_NAME,
    .init = init,
    .devices = ha_plugin_devices,
    .getProperties = ha_plugin_properties_v9,
    .listen = ha_plugin_listen,
    .connect = connect_v10,
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
};

static ncclResult_t init(ncclDebugLogger_t logger, ncclProfilerCallback_t profiler)
{
	ncclResult_t result = ha_plugin_init(logger, false);

	(void)profiler;
	ncclNetPlugin_v10.makeVDevice = ha_plugin_fuses() ? ha_plugin_make_vdevice_v9 : NULL;
	return result;
}
