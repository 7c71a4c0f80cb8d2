/* SPDX-License-Identifier: Apache-2.0 */
/* GIN API version 13: 2.30.3 and 2.30.4, kernels' operations, and by another name those of the
 * host. */
#include "plugin/gin.h"

static ncclResult_t create_context(void *coll_comm, ncclGinConfig_v13_t *config, void **ctx,
				   ncclNetDeviceHandle_v11_t **device)
{
	if (device)
		*device = NULL;
	return ha_plugin_gin_new_context(coll_comm, config->nContexts, ctx);
}

HA_EXPORT const ncclGin_v13_t ncclGinPlugin_v13 = {
    .name = HA_PLUGIN_NAME,
    .init = ha_plugin_gin_init,
    .devices = ha_plugin_gin_devices,
    .getProperties = ha_plugin_gin_properties_v12,
    .listen = ha_plugin_gin_listen,
    .connect = ha_plugin_gin_connect,
    .createContext = create_context,
    .regMrSym = ha_plugin_gin_register,
    .regMrSymDmaBuf = ha_plugin_gin_register_dmabuf,
    .deregMrSym = ha_plugin_gin_deregister,
    .destroyContext = ha_plugin_gin_destroy_context,
    .closeColl = ha_plugin_gin_close_coll,
    .closeListen = ha_plugin_gin_close_listen,
    .iput = ha_plugin_gin_context_iput,
    .iputSignal = ha_plugin_gin_context_iput_signal,
    .iget = ha_plugin_gin_iget,
    .iflush = ha_plugin_gin_iflush,
    .test = ha_plugin_gin_test,
    .ginProgress = ha_plugin_gin_context_progress,
    .queryLastError = ha_plugin_gin_last_error,
    .finalize = ha_plugin_gin_finalize,
};

HA_EXPORT extern const ncclGin_v13_t ncclRmaPlugin_v13 __attribute__((alias("ncclGinPlugin_v13")));
