/* SPDX-License-Identifier: Apache-2.0 */
/* RMA API version 14: 2.30.7, the host's operations, and kernels' by NCCL's own proxy. */
#include "plugin/gin.h"

/* All ranks are connected, whatever the stride. */
static ncclResult_t create_context(void *coll_comm, ncclRmaConfig_v14_t *config, void **ctx)
{
	return ha_plugin_gin_new_context(coll_comm, config->nContexts, ctx);
}

static ncclResult_t register_memory(void *coll_comm, void *data, size_t size, int type,
				    uint64_t flags, void **mhandle)
{
	void *same;

	return ha_plugin_gin_register(coll_comm, data, size, type, flags, mhandle, &same);
}

static ncclResult_t register_dmabuf(void *coll_comm, void *data, size_t size, int type,
				    uint64_t offset, int fd, uint64_t flags, void **mhandle)
{
	void *same;

	return ha_plugin_gin_register_dmabuf(coll_comm, data, size, type, offset, fd, flags,
					     mhandle, &same);
}

/* Each signal is behind all that was put before it: strong. */
HA_NO_CANARY static ncclResult_t iput_signal(void *ctx, int context, uint64_t from_offset,
					     void *from, size_t size, uint64_t to_offset, void *to,
					     uint32_t rank, uint64_t signal_offset, void *signals,
					     uint64_t value, uint32_t op, bool is_strong,
					     void **request)
{
	(void)is_strong;
	return ha_plugin_gin_context_iput_signal(ctx, context, from_offset, from, size, to_offset,
						 to, rank, signal_offset, signals, value, op,
						 request);
}

HA_EXPORT const ncclRma_v14_t ncclRmaPlugin_v14 = {
    .name = HA_PLUGIN_NAME,
    .init = ha_plugin_gin_init,
    .devices = ha_plugin_gin_devices,
    .getProperties = ha_plugin_gin_properties_v12,
    .listen = ha_plugin_gin_listen,
    .connect = ha_plugin_gin_connect,
    .createContext = create_context,
    .regMrSym = register_memory,
    .regMrSymDmaBuf = register_dmabuf,
    .deregMrSym = ha_plugin_gin_deregister,
    .destroyContext = ha_plugin_gin_destroy_context,
    .closeColl = ha_plugin_gin_close_coll,
    .closeListen = ha_plugin_gin_close_listen,
    .iput = ha_plugin_gin_context_iput,
    .iputSignal = iput_signal,
    .iget = ha_plugin_gin_iget,
    .iflush = ha_plugin_gin_iflush,
    .test = ha_plugin_gin_test,
    .rmaProgress = ha_plugin_gin_context_progress,
    .queryLastError = ha_plugin_gin_last_error,
    .finalize = ha_plugin_gin_finalize,
};
