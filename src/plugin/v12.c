/* SPDX-License-Identifier: Apache-2.0 */
/* API version 12: up to eight devices per NIC, rail and plane. 2.30.3 and later. */
#include "plugin/plugin.h"

HA_EXPORT const ncclNet_v12_t ncclNetPlugin_v12 = {
    .name = HA_PLUGIN_NAME,
    .init = ha_plugin_init_v11,
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
