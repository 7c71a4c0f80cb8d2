/* SPDX-License-Identifier: Apache-2.0 */
/* The entries that several versions of the collNet table share: NCCL's types in, ours out. */
#include "plugin/coll.h"

#include "instance/instance.h"

#include "base/log.h"
#include "device/device.h"
#include "inc/coll/coll.h"
#include "inc/coll/names.h"
#include "memory/mr.h"

#include <limits.h>
#include <stdlib.h>

/* Numbers travel unchanged. */
_Static_assert((int)HA_REDUCE_INT8 == (int)ncclInt8, "types");
_Static_assert((int)HA_REDUCE_UINT64 == (int)ncclUint64, "types");
_Static_assert((int)HA_REDUCE_FP16 == (int)ncclFloat16, "types");
_Static_assert((int)HA_REDUCE_BF16 == (int)ncclBfloat16, "types");
_Static_assert((int)HA_REDUCE_SUM == (int)ncclSum, "operations");
_Static_assert((int)HA_REDUCE_MIN == (int)ncclMin, "operations");
_Static_assert((int)HA_MEM_HOST == NCCL_PTR_HOST, "kinds of memory");
_Static_assert(HA_COLL_HANDLE_BYTES == NCCL_NET_HANDLE_MAXSIZE, "handle size");

/* collComms are struct ha_coll, mhandles struct ha_mr, requests struct ha_coll_request. */
struct listener {
	int dev;
};

/* Of a communicator that has taken a reference to the plugin's instance. */
static char with_inc;

/* ---- set-up --------------------------------------------------------------------------------- */

ncclResult_t ha_plugin_coll_devices(int *ndev)
{
	struct ha_instance *instance = ha_plugin_instance();

	*ndev = 0;
	if (!instance || !instance->config.inc)
		return ncclSuccess;
	return ha_plugin_devices(ndev);
}

/* Whether there is a collNet; the reference that this takes stays if so. */
static ncclResult_t init(ncclDebugLogger_t logger, bool *has_inc)
{
	ncclResult_t result = ha_plugin_init(logger, true);
	int ndev = 0;

	*has_inc = false;
	if (result != ncclSuccess)
		return result;
	result = ha_plugin_coll_devices(&ndev);
	*has_inc = result == ncclSuccess && ndev > 0;
	if (!*has_inc)
		(void)ha_plugin_finalize();
	return result;
}

ncclResult_t ha_plugin_coll_init_v8(ncclDebugLogger_t logger)
{
	bool has_inc;

	return init(logger, &has_inc);
}

ncclResult_t ha_plugin_coll_init_v11(void **context, uint64_t comm_id, ncclDebugLogger_t logger)
{
	bool has_inc;
	ncclResult_t result = init(logger, &has_inc);

	(void)comm_id;
	/* Without devices NCCL 2.28.3 forgets the table and finalizes what has a context all the
	 * same, through NULL; later ones do not finalize. */
	*context = has_inc ? &with_inc : NULL;
	return result;
}

ncclResult_t ha_plugin_coll_finalize_v11(void *context)
{
	return context == &with_inc ? ha_plugin_finalize() : ncclSuccess;
}

/* NULL: there is no collNet in this process. */
static struct ha_instance *instance_for(const char *call)
{
	struct ha_instance *instance = ha_plugin_instance();

	if (ha_plugin_is_foreign(call))
		return NULL;
	if (instance && instance->config.inc)
		return instance;
	HA_WARN("%s of collNet without init, or without HA_NCCL_INC=1", call);
	return NULL;
}

ncclResult_t ha_plugin_coll_listen(int dev, void *handle, void **listen_comm)
{
	struct ha_instance *instance = instance_for("listen");
	struct listener *listener;

	*listen_comm = NULL;
	if (!instance)
		return ncclInvalidUsage;
	if (!ha_bundle_of_device(ha_instance_devices(instance), dev)) {
		HA_WARN("listen of collNet: there is no device %d", dev);
		return ncclInvalidArgument;
	}
	listener = malloc(sizeof(*listener));
	if (!listener)
		return ncclSystemError;
	listener->dev = dev;
	ha_coll_handle_make(handle);
	*listen_comm = listener;
	return ncclSuccess;
}

ncclResult_t ha_plugin_coll_listen_v11(void *context, int dev, void *handle, void **listen_comm)
{
	(void)context;
	return ha_plugin_coll_listen(dev, handle, listen_comm);
}

static ncclResult_t connect_all(struct ha_instance *instance, const struct listener *listener,
				void *handles[], int nranks, int rank, void **coll_comm)
{
	struct ha_device_set *set = ha_instance_devices(instance);
	char group[HA_COLL_GROUP_NAME];
	const struct ha_coll_wish wish = {
	    .config = &instance->config,
	    .stats = instance->stats,
	    .events = instance->events,
	    .set = set,
	    .port = ha_bundle_of_device(set, listener->dev)->rails[0],
	    .group = ha_coll_group_name(handles[0], group) ? group : NULL,
	    .rank = (unsigned int)rank,
	    .ranks = (unsigned int)nranks,
	    .is_nccl = true,
	};

	/* To NCCL a group that is refused is one failure, whatever this rank knows of the reason.
	 */
	return ha_coll_open(&wish, (struct ha_coll **)coll_comm) == HA_OK ? ncclSuccess
									  : ncclSystemError;
}

ncclResult_t ha_plugin_coll_connect(void *handles[], int nranks, int rank, void *listen_comm,
				    void **coll_comm)
{
	struct ha_instance *instance = instance_for("connect");
	ncclResult_t result = ncclInvalidUsage;

	*coll_comm = NULL;
	if (instance && (!listen_comm || nranks < 1 || rank < 0 || rank >= nranks)) {
		HA_WARN("connect of collNet as rank %d of %d%s", rank, nranks,
			listen_comm ? "" : " without a listener");
		result = ncclInvalidArgument;
	} else if (instance) {
		result = connect_all(instance, listen_comm, handles, nranks, rank, coll_comm);
	}
	if (result != ncclSuccess) /* NCCL forgets it */
		ha_plugin_coll_close_listen(listen_comm);
	return result;
}

ncclResult_t ha_plugin_coll_close_listen(void *listen_comm)
{
	free(listen_comm);
	return ncclSuccess;
}

ncclResult_t ha_plugin_coll_reduce_support(ncclDataType_t type, ncclRedOp_t op, int *supported)
{
	*supported = ha_reduction_of((unsigned int)type, (unsigned int)op) != NULL;
	return ncclSuccess;
}

/* ---- memory --------------------------------------------------------------------------------- */

ncclResult_t ha_plugin_coll_reg_mr(void *coll_comm, void *data, size_t size, int type,
				   void **mhandle)
{
	*mhandle = NULL;
	if (ha_plugin_is_foreign("regMr"))
		return ncclInvalidUsage;
	return (ncclResult_t)ha_coll_register(coll_comm, data, size, type,
					      (struct ha_mr **)mhandle);
}

ncclResult_t ha_plugin_coll_reg_mr_dmabuf(void *coll_comm, void *data, size_t size, int type,
					  uint64_t offset, int fd, void **mhandle)
{
	(void)offset, (void)fd;
	return ha_plugin_coll_reg_mr(coll_comm, data, size, type, mhandle);
}

ncclResult_t ha_plugin_coll_dereg_mr(void *coll_comm, void *mhandle)
{
	(void)coll_comm;
	if (mhandle && !ha_plugin_is_foreign("deregMr")) /* its parent does */
		ha_mr_deregister(mhandle);
	return ncclSuccess;
}

/* ---- operations ----------------------------------------------------------------------------- */

ncclResult_t ha_plugin_coll_iallreduce(void *coll_comm, void *send, void *recv, size_t count,
				       ncclDataType_t type, ncclRedOp_t op, void *send_mhandle,
				       void *recv_mhandle, void **request)
{
	const struct ha_coll_all_reduce ask = {
	    .type = (enum ha_reduce_type)type,
	    .op = (enum ha_reduce_op)op,
	    .count = count,
	    .send = send,
	    .recv = recv,
	    .send_mr = send_mhandle,
	    .recv_mr = recv_mhandle,
	};

	*request = NULL;
	if (ha_plugin_is_foreign("iallreduce"))
		return ncclInvalidUsage;
	return (ncclResult_t)ha_coll_all_reduce(coll_comm, &ask,
						(struct ha_coll_request **)request);
}

/* Of memory of hosts there is nothing to be flushed. */
ncclResult_t ha_plugin_coll_iflush(void *coll_comm, void *data, int size, void *mhandle,
				   void **request)
{
	(void)coll_comm, (void)data, (void)size, (void)mhandle;
	*request = NULL;
	return ncclSuccess;
}

ncclResult_t ha_plugin_coll_test(void *request, int *done, int *size)
{
	ha_result_t result;
	bool is_done;
	size_t bytes = 0;

	*done = 0;
	if (ha_plugin_is_foreign("test"))
		return ncclInvalidUsage;
	result = ha_coll_test(request, &is_done, &bytes);
	*done = is_done;
	if (is_done && size)
		*size = bytes < INT_MAX ? (int)bytes : INT_MAX;
	return (ncclResult_t)result;
}

ncclResult_t ha_plugin_coll_close(void *coll_comm)
{
	if (!ha_plugin_is_foreign("closeColl")) /* its parent does */
		ha_coll_close(coll_comm);
	return ncclSuccess;
}
