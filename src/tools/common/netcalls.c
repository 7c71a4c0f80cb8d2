/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One set of calls over the five vtables.
 *
 * A switch on the version in each call: the branch is always the same one, and every version's
 * argument list can be read where it is used.
 */
#include <string.h>

#include "tools/common/logger.h"
#include "tools/common/netcalls.h"
#include "tools/common/netplugin_impl.h"
#include "tools/common/netproperties.h"

/* Members with the same signature in every version. */
#define FORWARD(p, member, ...)                                                                    \
	do {                                                                                       \
		switch ((p)->api) {                                                                \
		case 8:                                                                            \
			return (p)->table.v8->member(__VA_ARGS__);                                 \
		case 9:                                                                            \
			return (p)->table.v9->member(__VA_ARGS__);                                 \
		case 10:                                                                           \
			return (p)->table.v10->member(__VA_ARGS__);                                \
		case 11:                                                                           \
			return (p)->table.v11->member(__VA_ARGS__);                                \
		default:                                                                           \
			return (p)->table.v12->member(__VA_ARGS__);                                \
		}                                                                                  \
	} while (0)

/* ---- life of the plugin ------------------------------------------------------------------ */

ncclResult_t np_init(struct np_plugin *p, struct np_ctx *ctx, uint64_t comm_id, int traffic_class)
{
	ctx->ctx = NULL;
	ctx->config.trafficClass = traffic_class;
	switch (p->api) {
	case 8:
		return p->table.v8->init(np_logger);
	case 9:
		return p->table.v9->init(np_logger);
	case 10:
		return p->table.v10->init(np_logger, NULL);
	case 11:
		return p->table.v11->init(&ctx->ctx, comm_id, &ctx->config, np_logger, NULL);
	default:
		return p->table.v12->init(&ctx->ctx, comm_id, &ctx->config, np_logger, NULL);
	}
}

ncclResult_t np_finalize(struct np_plugin *p, struct np_ctx *ctx)
{
	switch (p->api) {
	case 8:
	case 9:
	case 10:
		return ncclSuccess;
	case 11:
		return p->table.v11->finalize ? p->table.v11->finalize(ctx->ctx) : ncclSuccess;
	default:
		return p->table.v12->finalize ? p->table.v12->finalize(ctx->ctx) : ncclSuccess;
	}
}

ncclResult_t np_devices(struct np_plugin *p, int *ndev)
{
	FORWARD(p, devices, ndev);
}

ncclResult_t np_get_properties(struct np_plugin *p, int dev, ncclNetProperties_v12_t *props)
{
	union np_properties_entry entry = {0};

	switch (p->api) {
	case 8:
		entry.v8 = p->table.v8->getProperties;
		break;
	case 9:
		entry.v9 = p->table.v9->getProperties;
		break;
	case 10:
		entry.v10 = p->table.v10->getProperties;
		break;
	case 11:
		entry.v11 = p->table.v11->getProperties;
		break;
	default:
		entry.v12 = p->table.v12->getProperties;
	}
	return np_properties_through(p->api, entry, dev, props);
}

ncclResult_t np_set_net_attr(struct np_plugin *p, struct np_ctx *ctx, ncclNetAttr_v12_t *attr)
{
	if (p->api == 11 && p->table.v11->setNetAttr)
		return p->table.v11->setNetAttr(ctx->ctx, attr);
	if (p->api == 12 && p->table.v12->setNetAttr)
		return p->table.v12->setNetAttr(ctx->ctx, attr);
	return ncclSuccess;
}

/* ---- connections ------------------------------------------------------------------------- */

ncclResult_t np_listen(struct np_plugin *p, struct np_ctx *ctx, int dev, void *handle,
		       void **listen_comm)
{
	switch (p->api) {
	case 8:
		return p->table.v8->listen(dev, handle, listen_comm);
	case 9:
		return p->table.v9->listen(dev, handle, listen_comm);
	case 10:
		return p->table.v10->listen(dev, handle, listen_comm);
	case 11:
		return p->table.v11->listen(ctx->ctx, dev, handle, listen_comm);
	default:
		return p->table.v12->listen(ctx->ctx, dev, handle, listen_comm);
	}
}

ncclResult_t np_connect(struct np_plugin *p, struct np_ctx *ctx, int dev, void *handle,
			void **send_comm, ncclNetDeviceHandle_v12_t **dev_comm)
{
	ncclNetDeviceHandle_v12_t *unused = NULL;

	if (!dev_comm)
		dev_comm = &unused;
	switch (p->api) {
	case 8:
		return p->table.v8->connect(dev, handle, send_comm, dev_comm);
	case 9:
		return p->table.v9->connect(dev, handle, send_comm, dev_comm);
	case 10:
		return p->table.v10->connect(dev, &ctx->config, handle, send_comm, dev_comm);
	case 11:
		return p->table.v11->connect(ctx->ctx, dev, handle, send_comm, dev_comm);
	default:
		return p->table.v12->connect(ctx->ctx, dev, handle, send_comm, dev_comm);
	}
}

ncclResult_t np_accept(struct np_plugin *p, void *listen_comm, void **recv_comm,
		       ncclNetDeviceHandle_v12_t **dev_comm)
{
	ncclNetDeviceHandle_v12_t *unused = NULL;

	if (!dev_comm)
		dev_comm = &unused;
	FORWARD(p, accept, listen_comm, recv_comm, dev_comm);
}

ncclResult_t np_close_send(struct np_plugin *p, void *send_comm)
{
	FORWARD(p, closeSend, send_comm);
}

ncclResult_t np_close_recv(struct np_plugin *p, void *recv_comm)
{
	FORWARD(p, closeRecv, recv_comm);
}

ncclResult_t np_close_listen(struct np_plugin *p, void *listen_comm)
{
	FORWARD(p, closeListen, listen_comm);
}

/* ---- memory ------------------------------------------------------------------------------ */

ncclResult_t np_reg_mr(struct np_plugin *p, void *comm, void *data, size_t size, int type,
		       void **mhandle)
{
	FORWARD(p, regMr, comm, data, size, type, mhandle);
}

ncclResult_t np_reg_mr_dmabuf(struct np_plugin *p, void *comm, void *data, size_t size, int type,
			      uint64_t offset, int fd, void **mhandle)
{
	/* In the same place in every version: see the assertions in netplugin.c. */
	if (!p->table.v8->regMrDmaBuf)
		return ncclInvalidUsage;
	FORWARD(p, regMrDmaBuf, comm, data, size, type, offset, fd, mhandle);
}

ncclResult_t np_dereg_mr(struct np_plugin *p, void *comm, void *mhandle)
{
	FORWARD(p, deregMr, comm, mhandle);
}

/* ---- messages ---------------------------------------------------------------------------- */

ncclResult_t np_isend(struct np_plugin *p, void *send_comm, void *data, size_t size, int tag,
		      void *mhandle, void **request)
{
	switch (p->api) {
	case 8:
		if (size > INT_MAX)
			return ncclInvalidUsage;
		return p->table.v8->isend(send_comm, data, (int)size, tag, mhandle, request);
	case 9:
		return p->table.v9->isend(send_comm, data, size, tag, mhandle, request);
	case 10:
		return p->table.v10->isend(send_comm, data, size, tag, mhandle, NULL, request);
	case 11:
		return p->table.v11->isend(send_comm, data, size, tag, mhandle, NULL, request);
	default:
		return p->table.v12->isend(send_comm, data, size, tag, mhandle, NULL, request);
	}
}

static ncclResult_t irecv_v8(const ncclNet_v8_t *net, void *recv_comm, int n, void **data,
			     const size_t *sizes, int *tags, void **mhandles, void **request)
{
	int narrow[NP_MAX_RECVS];

	for (int i = 0; i < n; i++) {
		if (sizes[i] > INT_MAX)
			return ncclInvalidUsage;
		narrow[i] = (int)sizes[i];
	}
	/* v8 does not know the optional-completion hint. */
	if (*request == (void *)NCCL_NET_OPTIONAL_RECV_COMPLETION)
		*request = NULL;
	return net->irecv(recv_comm, n, data, narrow, tags, mhandles, request);
}

ncclResult_t np_irecv(struct np_plugin *p, void *recv_comm, int n, void **data, size_t *sizes,
		      int *tags, void **mhandles, void **request)
{
	void *phandles[NP_MAX_RECVS] = {NULL};

	if (n < 0 || n > NP_MAX_RECVS)
		return ncclInvalidUsage;
	switch (p->api) {
	case 8:
		return irecv_v8(p->table.v8, recv_comm, n, data, sizes, tags, mhandles, request);
	case 9:
		return p->table.v9->irecv(recv_comm, n, data, sizes, tags, mhandles, request);
	case 10:
		return p->table.v10->irecv(recv_comm, n, data, sizes, tags, mhandles, phandles,
					   request);
	case 11:
		return p->table.v11->irecv(recv_comm, n, data, sizes, tags, mhandles, phandles,
					   request);
	default:
		return p->table.v12->irecv(recv_comm, n, data, sizes, tags, mhandles, phandles,
					   request);
	}
}

ncclResult_t np_iflush(struct np_plugin *p, void *recv_comm, int n, void **data, int *sizes,
		       void **mhandles, void **request)
{
	FORWARD(p, iflush, recv_comm, n, data, sizes, mhandles, request);
}

ncclResult_t np_test(struct np_plugin *p, void *request, int *done, int *sizes)
{
	FORWARD(p, test, request, done, sizes);
}
