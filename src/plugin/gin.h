/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tables for puts and signals of kernels share (GIN versions 11 to 13, RMA version 14):
 * entries of one signature, and what the others are made of. All of type GIN_PROXY, so it is NCCL's
 * thread that calls. Without HA_NCCL_GIN=1 there are no devices, and NCCL goes on with its own.
 *
 * collComms are struct ha_gin_group, mhandles struct ha_gin_memory, requests struct ha_gin_request.
 */
#ifndef HA_PLUGIN_GIN_H
#define HA_PLUGIN_GIN_H

#include "plugin/plugin.h"

#include "base/fork_guard.h"
#include "base/hot.h"
#include "gin/verbs/group.h"
#include "gin/verbs/group_memory.h"
#include "gin/verbs/group_peers.h"
#include "gin/verbs/group_put.h"

#include "nccl_ha/nccl_gin.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What version 13 of GIN and version 14 of RMA have beside a collComm. */
struct ha_plugin_gin_context {
	struct ha_gin_group *group;
	int contexts;
};

ncclResult_t ha_plugin_gin_init(void **ctx, uint64_t comm_id, ncclDebugLogger_t logger);
ncclResult_t ha_plugin_gin_finalize(void *ctx);
ncclResult_t ha_plugin_gin_devices(int *ndev);
ncclResult_t ha_plugin_gin_properties_v11(int dev, ncclNetProperties_v11_t *props);
ncclResult_t ha_plugin_gin_properties_v12(int dev, ncclNetProperties_v12_t *props);
ncclResult_t ha_plugin_gin_listen(void *ctx, int dev, void *handle, void **listen_comm);
ncclResult_t ha_plugin_gin_close_listen(void *listen_comm);
ncclResult_t ha_plugin_gin_connect(void *ctx, void *handles[], int nranks, int rank,
				   void *listen_comm, void **coll_comm);
ncclResult_t ha_plugin_gin_close_coll(void *coll_comm);
ncclResult_t ha_plugin_gin_register(void *coll_comm, void *data, size_t size, int type,
				    uint64_t flags, void **mhandle, void **gin_handle);
ncclResult_t ha_plugin_gin_register_dmabuf(void *coll_comm, void *data, size_t size, int type,
					   uint64_t offset, int fd, uint64_t flags, void **mhandle,
					   void **gin_handle);
ncclResult_t ha_plugin_gin_deregister(void *coll_comm, void *mhandle);
ncclResult_t ha_plugin_gin_test(void *coll_comm, void *request, int *done);
ncclResult_t ha_plugin_gin_progress(void *coll_comm);

/* Room for the requests of so many contexts. */
ncclResult_t ha_plugin_gin_widen(struct ha_gin_group *group, int contexts);
ncclResult_t ha_plugin_gin_new_context(struct ha_gin_group *group, int contexts, void **out);
ncclResult_t ha_plugin_gin_destroy_context(void *context);
/* NULL, which is said: it has no context of that number. */
struct ha_gin_group *ha_plugin_gin_group_of(const void *ctx, int number);

/* ---- what each operation passes, inline ----------------------------------------------------- */

/* As ha_plugin_is_foreign, which says it. */
static inline bool ha_plugin_gin_is_foreign(const char *call)
{
	return __builtin_expect(ha_fork_is_child(), 0) && ha_plugin_is_foreign(call);
}

/* NULL for a group: it is refused. */
HA_GIN_INLINE ncclResult_t ha_plugin_gin_iput(struct ha_gin_group *group, uint32_t rank,
					      const struct ha_gin_put *put, void **request)
{
	if (!group || ha_plugin_gin_is_foreign("iput")) {
		*request = NULL;
		return ncclInvalidUsage;
	}
	return (ncclResult_t)ha_gin_put_inline(group, rank, put, (struct ha_gin_request **)request);
}

ncclResult_t ha_plugin_gin_no_signal(uint32_t rank, const struct ha_gin_put *put, uint32_t op)
    __attribute__((cold));

/* Its addend is the value, whatever op makes of it. To add 0 is no signal: nobody could tell. */
HA_GIN_INLINE ncclResult_t ha_plugin_gin_iput_signal(struct ha_gin_group *group, uint32_t rank,
						     struct ha_gin_put *put, uint32_t op,
						     void **request)
{
	if (op == NCCL_NET_SIGNAL_OP_INC)
		put->addend = 1;
	if (!put->signals || (op != NCCL_NET_SIGNAL_OP_INC && op != NCCL_NET_SIGNAL_OP_ADD)) {
		*request = NULL;
		return ha_plugin_gin_no_signal(rank, put, op);
	}
	if (__builtin_expect(put->addend == 0, 0))
		put->signals = NULL;
	return ha_plugin_gin_iput(group, rank, put, request);
}

/* With a context: */
ncclResult_t ha_plugin_gin_context_iput(void *ctx, int context, uint64_t from_offset, void *from,
					size_t size, uint64_t to_offset, void *to, uint32_t rank,
					void **request);
ncclResult_t ha_plugin_gin_context_iput_signal(void *ctx, int context, uint64_t from_offset,
					       void *from, size_t size, uint64_t to_offset,
					       void *to, uint32_t rank, uint64_t signal_offset,
					       void *signals, uint64_t value, uint32_t op,
					       void **request);
ncclResult_t ha_plugin_gin_iget(void *ctx, int context, uint64_t from_offset, void *from,
				size_t size, uint64_t to_offset, void *to, uint32_t rank,
				void **request);
ncclResult_t ha_plugin_gin_iflush(void *ctx, int context, void *mhandle, uint32_t rank,
				  void **request);
ncclResult_t ha_plugin_gin_context_progress(void *ctx);
ncclResult_t ha_plugin_gin_last_error(void *ctx, bool *has_error);

#endif
