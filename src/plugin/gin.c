/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/gin.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/outage.h"
#include "instance/instance.h"
#include "memory/mr.h"
#include "transport/shared.h"
#include "transport/transport.h"

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

ncclResult_t ha_plugin_gin_init(void **ctx, uint64_t comm_id, ncclDebugLogger_t logger)
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

ncclResult_t ha_plugin_gin_finalize(void *ctx)
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

ncclResult_t ha_plugin_gin_devices(int *ndev)
{
	struct ha_instance *instance = ha_plugin_instance();

	*ndev = 0;
	if (!instance || !instance->config.gin)
		return ncclSuccess;
	return ha_plugin_devices(ndev);
}

/* One receive at a time makes NCCL ask for as many operations as there is room for. */
ncclResult_t ha_plugin_gin_properties_v11(int dev, ncclNetProperties_v11_t *props)
{
	ncclResult_t result = ha_plugin_properties_v11(dev, props);

	if (result != ncclSuccess)
		return result;
	props->netDeviceType = NCCL_NET_DEVICE_GIN_PROXY;
	props->maxRecvs = 1;
	return ncclSuccess;
}

ncclResult_t ha_plugin_gin_properties_v12(int dev, ncclNetProperties_v12_t *props)
{
	ncclResult_t result = ha_plugin_properties_v12(dev, props);

	if (result != ncclSuccess)
		return result;
	props->netDeviceType = NCCL_NET_DEVICE_GIN_PROXY;
	props->maxRecvs = 1;
	return ncclSuccess;
}

ncclResult_t ha_plugin_gin_listen(void *ctx, int dev, void *handle, void **listen_comm)
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

ncclResult_t ha_plugin_gin_close_listen(void *listen_comm)
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
	const uint64_t limit_ns = ha_outage_ns(&instance->config);
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

ncclResult_t ha_plugin_gin_connect(void *ctx, void *handles[], int nranks, int rank,
				   void *listen_comm, void **coll_comm)
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

ncclResult_t ha_plugin_gin_register_dmabuf(void *coll_comm, void *data, size_t size, int type,
					   uint64_t offset, int fd, uint64_t flags, void **mhandle,
					   void **gin_handle)
{
	struct ha_instance *instance = instance_for("regMrSym");
	struct ha_gin_memory *memory = NULL;
	unsigned int how = 0;
	ha_result_t result;

	*mhandle = *gin_handle = NULL;
	if (!instance)
		return ncclInvalidUsage;
	if (flags & NCCL_NET_MR_FLAG_FORCE_SO)
		how |= HA_GIN_STRICT;
	if (flags & NCCL_NET_MR_FLAG_SIGNAL_NEVER_RESET)
		how |= HA_GIN_NEVER_RESET;
	result = ha_gin_register(coll_comm, data, size, type, offset, fd, how, &memory);
	if (result == HA_OK)
		result = wait_for_all(instance, coll_comm, ha_gin_is_known, memory, "regMrSym");
	if (result == HA_OK)
		*mhandle = *gin_handle = memory;
	return (ncclResult_t)result;
}

ncclResult_t ha_plugin_gin_register(void *coll_comm, void *data, size_t size, int type,
				    uint64_t flags, void **mhandle, void **gin_handle)
{
	return ha_plugin_gin_register_dmabuf(coll_comm, data, size, type, 0, -1, flags, mhandle,
					     gin_handle);
}

ncclResult_t ha_plugin_gin_deregister(void *coll_comm, void *mhandle)
{
	if (mhandle && !ha_plugin_is_foreign("deregMrSym"))
		ha_gin_deregister(coll_comm, mhandle);
	return ncclSuccess;
}

ncclResult_t ha_plugin_gin_close_coll(void *coll_comm)
{
	if (!ha_plugin_is_foreign("closeColl")) /* its parent does */
		ha_gin_group_close(coll_comm);
	return ncclSuccess;
}

/* ---- contexts ------------------------------------------------------------------------------- */

/* All share the group's streams: what has no order between contexts has one here. */
ncclResult_t ha_plugin_gin_widen(struct ha_gin_group *group, int contexts)
{
	if (ha_plugin_is_foreign("createContext"))
		return ncclInvalidUsage;
	if (contexts < 1 || contexts > HA_GIN_CONTEXTS) {
		HA_WARN("GIN: %d contexts of a communicator are asked for; there are from 1 to %d",
			contexts, HA_GIN_CONTEXTS);
		return ncclInvalidArgument;
	}
	return (ncclResult_t)ha_gin_group_widen(group, (unsigned int)contexts);
}

ncclResult_t ha_plugin_gin_new_context(struct ha_gin_group *group, int contexts, void **out)
{
	struct ha_plugin_gin_context *context = calloc(1, sizeof(*context));
	ncclResult_t result = context ? ha_plugin_gin_widen(group, contexts) : ncclSystemError;

	*out = NULL;
	if (result != ncclSuccess) {
		free(context);
		return result;
	}
	context->group = group;
	context->contexts = contexts;
	*out = context;
	return ncclSuccess;
}

ncclResult_t ha_plugin_gin_destroy_context(void *context)
{
	free(context);
	return ncclSuccess;
}

struct ha_gin_group *ha_plugin_gin_group_of(const void *ctx, int number)
{
	const struct ha_plugin_gin_context *context = ctx;

	if (context && number >= 0 && number < context->contexts)
		return context->group;
	HA_WARN("GIN: there is no context %d", number);
	return NULL;
}

/* ---- operations ----------------------------------------------------------------------------- */

ncclResult_t ha_plugin_gin_no_signal(uint32_t rank, const struct ha_gin_put *put, uint32_t op)
{
	HA_WARN("GIN: a signal to rank %u is refused: operation %u%s", rank, op,
		put->signals ? "" : " on memory that is not registered");
	return ncclInvalidArgument;
}

HA_NO_CANARY ncclResult_t ha_plugin_gin_context_iput(void *ctx, int context, uint64_t from_offset,
						     void *from, size_t size, uint64_t to_offset,
						     void *to, uint32_t rank, void **request)
{
	const struct ha_gin_put put = {.from = from,
				       .to = to,
				       .from_offset = from_offset,
				       .to_offset = to_offset,
				       .size = size};

	return ha_plugin_gin_iput(ha_plugin_gin_group_of(ctx, context), rank, &put, request);
}

HA_NO_CANARY ncclResult_t ha_plugin_gin_context_iput_signal(
    void *ctx, int context, uint64_t from_offset, void *from, size_t size, uint64_t to_offset,
    void *to, uint32_t rank, uint64_t signal_offset, void *signals, uint64_t value, uint32_t op,
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

	return ha_plugin_gin_iput_signal(ha_plugin_gin_group_of(ctx, context), rank, &put, op,
					 request);
}

ncclResult_t ha_plugin_gin_iget(void *ctx, int context, uint64_t from_offset, void *from,
				size_t size, uint64_t to_offset, void *to, uint32_t rank,
				void **request)
{
	struct ha_gin_group *group = ha_plugin_gin_group_of(ctx, context);
	const struct ha_gin_get get = {.from = from,
				       .to = to,
				       .from_offset = from_offset,
				       .to_offset = to_offset,
				       .size = size};

	*request = NULL;
	if (!group || ha_plugin_is_foreign("iget"))
		return ncclInvalidUsage;
	return (ncclResult_t)ha_gin_get(group, rank, &get, (struct ha_gin_request **)request);
}

/* Of all memory, not only of that handle. */
ncclResult_t ha_plugin_gin_iflush(void *ctx, int context, void *mhandle, uint32_t rank,
				  void **request)
{
	struct ha_gin_group *group = ha_plugin_gin_group_of(ctx, context);

	(void)mhandle;
	*request = NULL;
	if (!group || ha_plugin_is_foreign("iflush"))
		return ncclInvalidUsage;
	return (ncclResult_t)ha_gin_flush(group, rank, (struct ha_gin_request **)request);
}

ncclResult_t ha_plugin_gin_context_progress(void *ctx)
{
	return ha_plugin_gin_progress(((struct ha_plugin_gin_context *)ctx)->group);
}

ncclResult_t ha_plugin_gin_last_error(void *ctx, bool *has_error)
{
	*has_error = ha_gin_group_error(((struct ha_plugin_gin_context *)ctx)->group) != HA_OK;
	return ncclSuccess;
}

HA_NO_CANARY ncclResult_t ha_plugin_gin_test(void *coll_comm, void *request, int *done)
{
	if (ha_plugin_gin_is_foreign("test")) {
		*done = 0;
		return ncclInvalidUsage;
	}
	return (ncclResult_t)ha_gin_test(coll_comm, request, done);
}

ncclResult_t ha_plugin_gin_progress(void *coll_comm)
{
	if (ha_plugin_is_foreign("ginProgress"))
		return ncclInvalidUsage;
	return (ncclResult_t)ha_gin_group_progress(coll_comm);
}
