/* SPDX-License-Identifier: Apache-2.0 */
/* GIN API version 12: 2.29.7. Connections to a rank share a stream, and so have an order. */
#include "plugin/gin.h"

static ncclResult_t connect_all(void *ctx, void *handles[], int nranks, int rank, int connections,
				int depth, void *listen_comm, void **coll_comm)
{
	ncclResult_t result;

	(void)depth;
	result = ha_plugin_gin_connect(ctx, handles, nranks, rank, listen_comm, coll_comm);
	if (result != ncclSuccess)
		return result;
	result = ha_plugin_gin_widen(*coll_comm, connections > 1 ? connections : 1);
	if (result == ncclSuccess)
		return ncclSuccess;
	(void)ha_plugin_gin_close_coll(*coll_comm);
	*coll_comm = NULL;
	return result;
}

HA_NO_CANARY static ncclResult_t iput(void *coll_comm, uint64_t from_offset, void *from,
				      size_t size, uint64_t to_offset, void *to, uint32_t rank,
				      int connection, void **request)
{
	const struct ha_gin_put put = {.from = from,
				       .to = to,
				       .from_offset = from_offset,
				       .to_offset = to_offset,
				       .size = size};

	(void)connection;
	return ha_plugin_gin_iput(coll_comm, rank, &put, request);
}

HA_NO_CANARY static ncclResult_t iput_signal(void *coll_comm, uint64_t from_offset, void *from,
					     size_t size, uint64_t to_offset, void *to,
					     uint32_t rank, uint64_t signal_offset, void *signals,
					     uint64_t value, uint32_t op, int connection,
					     void **request)
{
	struct ha_gin_put put = {.from = from,
				 .to = to,
				 .from_offset = from_offset,
				 .to_offset = to_offset,
				 .size = size,
				 .signals = signals,
				 .signal_offset = signal_offset,
				 .addend = value};

	(void)connection;
	return ha_plugin_gin_iput_signal(coll_comm, rank, &put, op, request);
}

HA_EXPORT const ncclGin_v12_t ncclGinPlugin_v12 = {
    .name = HA_PLUGIN_NAME,
    .init = ha_plugin_gin_init,
    .devices = ha_plugin_gin_devices,
    .getProperties = ha_plugin_gin_properties_v11,
    .listen = ha_plugin_gin_listen,
    .connect = connect_all,
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
