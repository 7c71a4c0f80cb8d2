/* SPDX-License-Identifier: Apache-2.0 */
/* collNet API version 12: up to eight devices per NIC, rail and plane. 2.30.3 and later. */
#include "plugin/coll.h"

HA_EXPORT const ncclCollNet_v12_t ncclCollNetPlugin_v12 = {
    .name = HA_PLUGIN_NAME,
    .init = ha_plugin_coll_init_v11,
    .devices = ha_plugin_coll_devices,
    .getProperties = ha_plugin_properties_v12,
    .listen = ha_plugin_coll_listen_v11,
    .connect = ha_plugin_coll_connect,
    .reduceSupport = ha_plugin_coll_reduce_support,
    .regMr = ha_plugin_coll_reg_mr,
    .regMrDmaBuf = ha_plugin_coll_reg_mr_dmabuf,
    .deregMr = ha_plugin_coll_dereg_mr,
    .iallreduce = ha_plugin_coll_iallreduce,
    .iflush = ha_plugin_coll_iflush,
    .test = ha_plugin_coll_test,
    .closeColl = ha_plugin_coll_close,
    .closeListen = ha_plugin_coll_close_listen,
    .finalize = ha_plugin_coll_finalize_v11,
};
