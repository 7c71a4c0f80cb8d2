/* SPDX-License-Identifier: Apache-2.0 */
/* GIN API version 11: 2.28.7 to 2.29.3, and the last choice up to 2.30.4. */
#include "plugin/gin.h"

HA_NO_CANARY static ncclResult_t iput(void *coll_comm, uint64_t from_offset, void *from,
				      size_t size, uint64_t to_offset, void *to, uint32_t rank,
				      void **request)
{
	const struct ha_gin_put put = {.from = from,
				       .to = to,
				       .from_offset = from_offset,
				       .to_offset = to_offset,
				       .size = size};

	return ha_plugin_gin_iput(coll_comm, rank, &put, request);
}

HA_NO_CANARY static ncclResult_t iput_signal(void *coll_comm, uint64_t from_offset, void *from,
					     size_t size, uint64_t to_offset, void *to,
					     uint32_t rank, uint64_t signal_offset, void *signals,
					     uint64_t value, uint32_t op, void **request)
{
	struct ha_gin_put put = {.from = from,
				 .to = to,
				 .from_offset = from_offset,
				 .to_offset = to_offset,
				 .size = size,
				 .signals = signals,
				 .signal_offset = signal_offset,
				 .addend = value};

	return ha_plugin_gin_iput_signal(coll_comm, rank, &put, op, request);
}

HA_EXPORT const ncclGin_v11_t ncclGinPlugin_v11 = {
    .name = HA_PLUGIN_NAME,
    .init = ha_plugin_gin_init,
    .devices = ha_plugin_gin_devices,
    .getProperties = ha_plugin_gin_properties_v11,
    .listen = ha_plugin_gin_listen,
    .connect = ha_plugin_gin_connect,
    .createContext = NULL,
    .regMrSym = ha_plugin_gin_register,
    .regMrSymDmaBuf = ha_plugin_gin_register_dmabuf,
    .deregMrSym = ha_plugin_gin_deregister,
    .destroyContext = NULL,
    .closeColl = ha_plugin_gin_close_coll,
    .closeListen = ha_plugin_gin_close_listen,
    .iput = iput,
    .iputSignal = iput_signal,
    .test = ha_plugin_gin_test,
    .ginProgress = ha_plugin_gin_progress,
    .queryLastError = NULL,
    .finalize = ha_plugin_gin_finalize,
};
