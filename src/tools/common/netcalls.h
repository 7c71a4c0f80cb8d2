/* SPDX-License-Identifier: Apache-2.0 */
/* A plugin's functions, whatever the version of its table. */
#ifndef NP_NETCALLS_H
#define NP_NETCALLS_H

#include "tools/common/netplugin.h"

#include <stddef.h>
#include <stdint.h>

/* Uses np_logger; profiler NULL. `comm_id` and the traffic class matter from v11 on. */
ncclResult_t np_init(struct np_plugin *p, struct np_ctx *ctx, uint64_t comm_id, int traffic_class);
ncclResult_t np_finalize(struct np_plugin *p, struct np_ctx *ctx); /* success before v11 */
ncclResult_t np_devices(struct np_plugin *p, int *ndev);
ncclResult_t np_get_properties(struct np_plugin *p, int dev, ncclNetProperties_v12_t *props);
/* Success before v11 or where the plugin has none: it is advice. */
ncclResult_t np_set_net_attr(struct np_plugin *p, struct np_ctx *ctx, ncclNetAttr_v12_t *attr);

ncclResult_t np_listen(struct np_plugin *p, struct np_ctx *ctx, int dev, void *handle,
		       void **listen_comm);
/* dev_comm may be NULL: the plugin still gets a place to write to, as with NCCL. */
ncclResult_t np_connect(struct np_plugin *p, struct np_ctx *ctx, int dev, void *handle,
			void **send_comm, ncclNetDeviceHandle_v12_t **dev_comm);
ncclResult_t np_accept(struct np_plugin *p, void *listen_comm, void **recv_comm,
		       ncclNetDeviceHandle_v12_t **dev_comm);
ncclResult_t np_close_send(struct np_plugin *p, void *send_comm);
ncclResult_t np_close_recv(struct np_plugin *p, void *recv_comm);
ncclResult_t np_close_listen(struct np_plugin *p, void *listen_comm);

ncclResult_t np_reg_mr(struct np_plugin *p, void *comm, void *data, size_t size, int type,
		       void **mhandle);
/* ncclInvalidUsage where the plugin has none. */
ncclResult_t np_reg_mr_dmabuf(struct np_plugin *p, void *comm, void *data, size_t size, int type,
			      uint64_t offset, int fd, void **mhandle);
ncclResult_t np_dereg_mr(struct np_plugin *p, void *comm, void *mhandle);

ncclResult_t np_isend(struct np_plugin *p, void *send_comm, void *data, size_t size, int tag,
		      void *mhandle, void **request);
/* n ≤ NP_MAX_RECVS. Sizes and tags are passed as they are. */
ncclResult_t np_irecv(struct np_plugin *p, void *recv_comm, int n, void **data, size_t *sizes,
		      int *tags, void **mhandles, void **request);
ncclResult_t np_iflush(struct np_plugin *p, void *recv_comm, int n, void **data, int *sizes,
		       void **mhandles, void **request);
ncclResult_t np_test(struct np_plugin *p, void *request, int *done, int *sizes);

#endif
