/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GIN API version 11: puts and signals that kernels ask for, from NCCL's thread. 2.28.7 to 2.29.3,
 * and the last choice up to 2.30.4. Of type GIN_PROXY, so three entries are not called, and not
 * there. Without HA_NCCL_GIN=1 it has no devices, and NCCL goes on with its own.
 */
#include "instance/instance.h"
#include "plugin/plugin.h"

#include "base/clock.h"
#include "base/log.h"
#include "gin/verbs/group.h"
#include "memory/mr.h"
#include "transport/shared.h"
#include "transport/transport.h"

#include "nccl_ha/nccl_gin.h"

#include <stdlib.h>
#include <unistd.h>

/* How often those that all ranks call look whether the others have. */
#define NAP_US 100

_Static_assert((int)HA_MEM_HOST == NCCL_PTR_HOST && (int)HA_MEM_CUDA == NCCL_PTR_CUDA,
	       "kinds of memory");

/* Of a communicator: whether it has taken a reference to the plugin's instance. */
static char with_gin, without_gin;

/* collComms are struct ha_gin_group, mhandles struct ha_gin_memory, requests struct ha_gin_request.
 */
struct listener {
	struct ha_listen *listen;
	int dev;
};

/* ---- set-up --------------------------------------------------------------------------------- */

static ncclResult_t init(void **ctx, uint64_t comm_id, ncclDebugLogger_t logger)
{
	ncclResult_t result = ha_plugin_init(logger, true);

	(void)comm_id;
	*ctx = &without_gin;
	if (result != ncclSuccess)
		return result;
	if (!ha_plugin_instance()->config.gin)
		return ha_plugin_finalize();
	*ctx = &with_gin;
	return ncclSuccess;
}

static ncclResult_t finalize(void *ctx)
{
	return ctx == &with_gin ? ha_plugin_finalize() : ncclSuccess;
}

/* NULL: there is no GIN in this process. */
static struct ha_instance *instance_for(const char *call)
{
	struct ha_instance *instance = ha_plugin_instance();

	if (ha_plugin_is_foreign(call))
		return NULL;
	if (instance && instance->config.gin)
		return instance;
	HA_WARN("%s of GIN without init, or without HA_NCCL_GIN=1", call);
	return NULL;
}

static ncclResult_t devices(int *ndev)
{
	struct ha_instance *instance = ha_plugin_instance();

	*ndev = 0;
	if (!instance || !instance->config.gin)
		return ncclSuccess;
	return ha_plugin_devices(ndev);
}

/* One receive at a time makes NCCL ask for as many operations as there is room for. */
static ncclResult_t properties(int dev, ncclNetProperties_v11_t *props)
{
	ncclResult_t result = ha_plugin_properties_v11(dev, props);

	if (result != ncclSuccess)
		return result;
	props->netDeviceType = NCCL_NET_DEVICE_GIN_PROXY;
	props->maxRecvs = 1;
	return ncclSuccess;
}

static ncclResult_t listen_on(void *ctx, int dev, void *handle, void **listen_comm)
{
	struct ha_instance *instance = instance_for("listen");
	struct listener *listener;
	ha_result_t result;

	(void)ctx;
	*listen_comm = NULL;
	if (!instance)
		return ncclInvalidUsage;
	listener = calloc(1, sizeof(*listener));
	if (!listener)
		return ncclSystemError;
	listener->dev = dev;
	result = ha_listen(instance, dev, handle, &listener->listen);
	if (result == HA_OK)
		*listen_comm = listener;
	else
		free(listener);
	return (ncclResult_t)result;
}

static ncclResult_t close_listen(void *listen_comm)
{
	struct listener *listener = listen_comm;

	if (listener && !ha_plugin_is_foreign("closeListen"))
		ha_close_listen(listener->listen);
	free(listener);
	return ncclSuccess;
}

/* ---- what all ranks call -------------------------------------------------------------------- */

static bool is_connected(struct ha_gin_group *group, const struct ha_gin_memory *memory)
{
	(void)memory;
	return ha_gin_group_is_connected(group);
}

/* Until all ranks have done the same. `what` they do, for people. */
static ha_result_t wait_for_all(const struct ha_instance *instance, struct ha_gin_group *group,
				bool (*is_done)(struct ha_gin_group *group,
						const struct ha_gin_memory *memory),
				const struct ha_gin_memory *memory, const char *what)
{
	const uint64_t limit_ns = (unsigned int)instance->config.give_up_ms * HA_NS_PER_MS;
	const uint64_t since_ns = ha_now_ns();

	while (!is_done(group, memory)) {
		HA_TRY(ha_gin_group_progress(group));
		if (ha_now_ns() - since_ns > limit_ns) {
			HA_WARN("GIN: not all ranks have come to %s within %d ms "
				"(HA_NCCL_OUTAGE_MS)",
				what, instance->config.give_up_ms);
			return HA_ERR_REMOTE;
		}
		usleep(NAP_US);
	}
	return HA_OK;
}

static ncclResult_t connect_all(void *ctx, void *handles[], int nranks, int rank, void *listen_comm,
				void **coll_comm)
{
	struct ha_instance *instance = instance_for("connect");
	const struct listener *listener = listen_comm;
	struct ha_gin_group *group;
	ha_result_t result;

	(void)ctx;
	*coll_comm = NULL;
	if (!instance)
		return ncclInvalidUsage;
	if (!listener || nranks < 1 || rank < 0 || rank >= nranks) {
		HA_WARN("GIN: connect as rank %d of %d%s", rank, nranks,
			listener ? "" : " without a listener");
		return ncclInvalidArgument;
	}
	result = ha_gin_group_open(&(struct ha_gin_shape){.inst = instance,
							  .dev = listener->dev,
							  .rank = (uint32_t)rank,
							  .ranks = (uint32_t)nranks,
							  .listen = listener->listen,
							  .handles = (const void *const *)handles},
				   &group);
	if (result == HA_OK)
		result = wait_for_all(instance, group, is_connected, NULL, "connect");
	if (result == HA_OK)
		*coll_comm = group;
	else
		ha_gin_group_close(group);
	return (ncclResult_t)result;
}

static ncclResult_t register_dmabuf(void *coll_comm, void *data, size_t size, int type,
				    uint64_t offset, int fd, uint64_t flags, void **mhandle,
				    void **gin_handle)
{
	struct ha_instance *instance = instance_for("regMrSym");
	struct ha_gin_memory *memory = NULL;
	ha_result_t result;

	*mhandle = *gin_handle = NULL;
	if (!instance)
		return ncclInvalidUsage;
	result = ha_gin_register(coll_comm, data, size, type, offset, fd,
				 (flags & NCCL_NET_MR_FLAG_FORCE_SO) != 0, &memory);
	if (result == HA_OK)
		result = wait_for_all(instance, coll_comm, ha_gin_is_known, memory, "regMrSym");
	if (result == HA_OK)
		*mhandle = *gin_handle = memory;
	return (ncclResult_t)result;
}

static ncclResult_t register_memory(void *coll_comm, void *data, size_t size, int type,
				    uint64_t flags, void **mhandle, void **gin_handle)
{
	return register_dmabuf(coll_comm, data, size, type, 0, -1, flags, mhandle, gin_handle);
}

static ncclResult_t deregister(void *coll_comm, void *mhandle)
{
	if (mhandle && !ha_plugin_is_foreign("deregMrSym"))
		ha_gin_deregister(coll_comm, mhandle);
	return ncclSuccess;
}

static ncclResult_t close_coll(void *coll_comm)
{
	if (!ha_plugin_is_foreign("closeColl")) /* its parent does */
		ha_gin_group_close(coll_comm);
	return ncclSuccess;
}

/* ---- operations ----------------------------------------------------------------------------- */

static ncclResult_t begin(void *coll_comm, uint32_t rank, const struct ha_gin_put *put,
			  void **request)
{
	*request = NULL;
	if (ha_plugin_is_foreign("iput"))
		return ncclInvalidUsage;
	return (ncclResult_t)ha_gin_put(coll_comm, rank, put, (struct ha_gin_request **)request);
}

static ncclResult_t iput(void *coll_comm, uint64_t from_offset, void *from, size_t size,
			 uint64_t to_offset, void *to, uint32_t rank, void **request)
{
	return begin(coll_comm, rank,
		     &(struct ha_gin_put){.from = from,
					  .to = to,
					  .from_offset = from_offset,
					  .to_offset = to_offset,
					  .size = size},
		     request);
}

/* To add 0 is no signal: nobody could tell. */
static ncclResult_t iput_signal(void *coll_comm, uint64_t from_offset, void *from, size_t size,
				uint64_t to_offset, void *to, uint32_t rank, uint64_t signal_offset,
				void *signals, uint64_t value, uint32_t op, void **request)
{
	struct ha_gin_put put = {.from = from,
				 .to = to,
				 .from_offset = from_offset,
				 .to_offset = to_offset,
				 .size = size,
				 .signals = signals,
				 .signal_offset = signal_offset,
				 .addend = op == NCCL_NET_SIGNAL_OP_INC ? 1 : value};

	*request = NULL;
	if (!signals || (op != NCCL_NET_SIGNAL_OP_INC && op != NCCL_NET_SIGNAL_OP_ADD)) {
		HA_WARN("GIN: a signal to rank %u is refused: operation %u%s", rank, op,
			signals ? "" : " on memory that is not registered");
		return ncclInvalidArgument;
	}
	if (put.addend == 0)
		put.signals = NULL;
	return begin(coll_comm, rank, &put, request);
}

static ncclResult_t test(void *coll_comm, void *request, int *done)
{
	ha_result_t result;
	bool is_done = false;

	*done = 0;
	if (ha_plugin_is_foreign("test"))
		return ncclInvalidUsage;
	result = ha_gin_test(coll_comm, request, &is_done);
	*done = is_done;
	return (ncclResult_t)result;
}

static ncclResult_t progress(void *coll_comm)
{
	if (ha_plugin_is_foreign("ginProgress"))
		return ncclInvalidUsage;
	return (ncclResult_t)ha_gin_group_progress(coll_comm);
}

HA_EXPORT const ncclGin_v11_t ncclGinPlugin_v11 = {
    .name = HA_PLUGIN_NAME,
    .init = init,
    .devices = devices,
    .getProperties = properties,
    .listen = listen_on,
    .connect = connect_all,
    .createContext = NULL,
    .regMrSym = register_memory,
    .regMrSymDmaBuf = register_dmabuf,
    .deregMrSym = deregister,
    .destroyContext = NULL,
    .closeColl = close_coll,
    .closeListen = close_listen,
    .iput = iput,
    .iputSignal = iput_signal,
    .test = test,
    .ginProgress = progress,
    .queryLastError = NULL,
    .finalize = finalize,
};
