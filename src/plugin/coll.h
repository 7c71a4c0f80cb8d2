/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the collNet tables of the API versions share: the entries, each named after the first
 * version that has it in this form. The files coll_v8.c … coll_v12.c hold the tables and what only
 * they need.
 *
 * Without HA_NCCL_INC=1 there are no devices, and NCCL goes on without a collNet. With it they are
 * the net's, in their order and with their properties: NCCL mixes both up in its topology.
 */
#ifndef HA_PLUGIN_COLL_H
#define HA_PLUGIN_COLL_H

#include "nccl_ha/nccl_coll.h"
#include "plugin/plugin.h"

ncclResult_t ha_plugin_coll_init_v8(ncclDebugLogger_t logger);
ncclResult_t ha_plugin_coll_devices(int *ndev);
ncclResult_t ha_plugin_coll_listen(int dev, void *handle, void **listen_comm);
ncclResult_t ha_plugin_coll_connect(void *handles[], int nranks, int rank, void *listen_comm,
				    void **coll_comm);
ncclResult_t ha_plugin_coll_reduce_support(ncclDataType_t type, ncclRedOp_t op, int *supported);
ncclResult_t ha_plugin_coll_reg_mr(void *coll_comm, void *data, size_t size, int type,
				   void **mhandle);
ncclResult_t ha_plugin_coll_reg_mr_dmabuf(void *coll_comm, void *data, size_t size, int type,
					  uint64_t offset, int fd, void **mhandle);
ncclResult_t ha_plugin_coll_dereg_mr(void *coll_comm, void *mhandle);
ncclResult_t ha_plugin_coll_iallreduce(void *coll_comm, void *send, void *recv, size_t count,
				       ncclDataType_t type, ncclRedOp_t op, void *send_mhandle,
				       void *recv_mhandle, void **request);
ncclResult_t ha_plugin_coll_iflush(void *coll_comm, void *data, int size, void *mhandle,
				   void **request);
ncclResult_t ha_plugin_coll_test(void *request, int *done, int *size);
ncclResult_t ha_plugin_coll_close(void *coll_comm);
ncclResult_t ha_plugin_coll_close_listen(void *listen_comm);

/* v11 and later: a context per communicator. */
ncclResult_t ha_plugin_coll_init_v11(void **context, uint64_t comm_id, ncclDebugLogger_t logger);
ncclResult_t ha_plugin_coll_listen_v11(void *context, int dev, void *handle, void **listen_comm);
ncclResult_t ha_plugin_coll_finalize_v11(void *context);

#endif
