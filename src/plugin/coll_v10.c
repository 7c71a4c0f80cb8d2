/* SPDX-License-Identifier: Apache-2.0 */
/* collNet API version 10: as version 9. 2.26.2 and later. */
#include "plugin/coll.h"

HA_EXPORT const ncclCollNet_v10_t ncclCollNetPlugin_v10 = {
    .name = HA_PLUGIN_NAME,
    .init = ha_plugin_coll_init_v8,
    .devices = ha_plugin_coll_devices,
    .getProperties = ha_plugin_properties_v9,
    .listen = ha_plugin_coll_listen,
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
};
