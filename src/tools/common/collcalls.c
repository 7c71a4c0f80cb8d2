/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/common/collcalls.h"

#include "tools/common/logger.h"
#include "tools/common/netproperties.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* Members with the same signature in every version. */
#define FORWARD(c, member, ...)                                                                    \
	do {                                                                                       \
		switch ((c)->api) {                                                                \
		case 8:                                                                            \
			return (c)->table.v8->member(__VA_ARGS__);                                 \
		case 9:                                                                            \
			return (c)->table.v9->member(__VA_ARGS__);                                 \
		case 10:                                                                           \
			return (c)->table.v10->member(__VA_ARGS__);                                \
		case 11:                                                                           \
			return (c)->table.v11->member(__VA_ARGS__);                                \
		default:                                                                           \
			return (c)->table.v12->member(__VA_ARGS__);                                \
		}                                                                                  \
	} while (0)

/* ---- the table ------------------------------------------------------------------------------ */

static const void *find_table(const struct np_plugin *p, int api)
{
	char symbol[32];

	snprintf(symbol, sizeof(symbol), "ncclCollNetPlugin_v%d", api);
	return dlsym(np_dlhandle(p), symbol);
}

unsigned np_coll_versions(const struct np_plugin *p)
{
	unsigned versions = 0;

	for (int api = NP_API_OLDEST; api <= NP_API_NEWEST; api++)
		if (find_table(p, api))
			versions |= 1u << api;
	return versions;
}

bool np_coll_find(const struct np_plugin *p, int api, struct np_coll *coll, char *err,
		  size_t err_len)
{
	const unsigned versions = np_coll_versions(p);
	char exported[64];

	for (int v = NP_API_NEWEST; v >= NP_API_OLDEST; v--) {
		if (!(versions & 1u << v) || (api && api != v))
			continue;
		coll->api = v;
		coll->table.any = find_table(p, v);
		return true;
	}
	np_versions_text(versions, exported, sizeof(exported));
	if (api)
		snprintf(err, err_len,
			 "plugin %s has no ncclCollNetPlugin_v%d; versions it exports: %s",
			 np_path(p), api, exported);
	else
		snprintf(
		    err, err_len,
		    "plugin %s has no collNet: it exports none of ncclCollNetPlugin_v%d … _v%d",
		    np_path(p), NP_API_OLDEST, NP_API_NEWEST);
	return false;
}

const char *np_coll_name(const struct np_coll *coll)
{
	const char *name = coll->table.v8->name; /* the first member in every version */

	return name ? name : "(null)";
}

#define SAME_PLACE(v, m)                                                                           \
	_Static_assert(offsetof(ncclCollNet_v8_t, m) == offsetof(ncclCollNet_##v##_t, m), #m)
SAME_PLACE(v9, closeListen);
SAME_PLACE(v10, closeListen);
SAME_PLACE(v11, closeListen);
SAME_PLACE(v12, closeListen);
SAME_PLACE(v12, iallreduce);

int np_coll_missing(const struct np_coll *coll, enum np_moment moment, char *buf, size_t len)
{
	/* Those of before init come first. iallgather and ireducescatter may be NULL, regMrDmaBuf
	 * where no device offers it. */
	enum { BEFORE_INIT = 2 };
#define MEMBER(m)                                                                                  \
	{                                                                                          \
#m, offsetof(ncclCollNet_v8_t, m)                                                  \
	}
	static const struct np_member required[] = {
	    MEMBER(name),      MEMBER(init),	    MEMBER(devices), MEMBER(getProperties),
	    MEMBER(listen),    MEMBER(connect),	    MEMBER(regMr),   MEMBER(reduceSupport),
	    MEMBER(deregMr),   MEMBER(iallreduce),  MEMBER(iflush),  MEMBER(test),
	    MEMBER(closeColl), MEMBER(closeListen),
	};
#undef MEMBER
	const size_t count =
	    moment == NP_BEFORE_INIT ? BEFORE_INIT : sizeof(required) / sizeof(required[0]);

	return np_null_members(coll->table.any, required, count, buf, len);
}

/* ---- life and devices ----------------------------------------------------------------------- */

ncclResult_t np_coll_init(const struct np_coll *coll, void **ctx, uint64_t comm_id)
{
	*ctx = NULL;
	switch (coll->api) {
	case 8:
		return coll->table.v8->init(np_logger);
	case 9:
		return coll->table.v9->init(np_logger);
	case 10:
		return coll->table.v10->init(np_logger);
	case 11:
		return coll->table.v11->init(ctx, comm_id, np_logger);
	default:
		return coll->table.v12->init(ctx, comm_id, np_logger);
	}
}

ncclResult_t np_coll_finalize(const struct np_coll *coll, void *ctx)
{
	if (coll->api == 11 && coll->table.v11->finalize)
		return coll->table.v11->finalize(ctx);
	if (coll->api == 12 && coll->table.v12->finalize)
		return coll->table.v12->finalize(ctx);
	return ncclSuccess;
}

ncclResult_t np_coll_devices(const struct np_coll *coll, int *ndev)
{
	FORWARD(coll, devices, ndev);
}

ncclResult_t np_coll_get_properties(const struct np_coll *coll, int dev,
				    ncclNetProperties_v12_t *props)
{
	union np_properties_entry entry = {0};

	switch (coll->api) {
	case 8:
		entry.v8 = coll->table.v8->getProperties;
		break;
	case 9:
		entry.v9 = coll->table.v9->getProperties;
		break;
	case 10:
		entry.v10 = coll->table.v10->getProperties;
		break;
	case 11:
		entry.v11 = coll->table.v11->getProperties;
		break;
	default:
		entry.v12 = coll->table.v12->getProperties;
	}
	return np_properties_through(coll->api, entry, dev, props);
}

/* ---- set-up --------------------------------------------------------------------------------- */

ncclResult_t np_coll_listen(const struct np_coll *coll, void *ctx, int dev, void *handle,
			    void **listen_comm)
{
	switch (coll->api) {
	case 8:
		return coll->table.v8->listen(dev, handle, listen_comm);
	case 9:
		return coll->table.v9->listen(dev, handle, listen_comm);
	case 10:
		return coll->table.v10->listen(dev, handle, listen_comm);
	case 11:
		return coll->table.v11->listen(ctx, dev, handle, listen_comm);
	default:
		return coll->table.v12->listen(ctx, dev, handle, listen_comm);
	}
}

ncclResult_t np_coll_connect(const struct np_coll *coll, void *handles[], int nranks, int rank,
			     void *listen_comm, void **coll_comm)
{
	FORWARD(coll, connect, handles, nranks, rank, listen_comm, coll_comm);
}

ncclResult_t np_coll_close_listen(const struct np_coll *coll, void *listen_comm)
{
	FORWARD(coll, closeListen, listen_comm);
}

ncclResult_t np_coll_close(const struct np_coll *coll, void *coll_comm)
{
	FORWARD(coll, closeColl, coll_comm);
}

ncclResult_t np_coll_reduce_support(const struct np_coll *coll, ncclDataType_t type, ncclRedOp_t op,
				    int *supported)
{
	FORWARD(coll, reduceSupport, type, op, supported);
}

ncclResult_t np_coll_reg_mr(const struct np_coll *coll, void *coll_comm, void *data, size_t size,
			    int type, void **mhandle)
{
	FORWARD(coll, regMr, coll_comm, data, size, type, mhandle);
}

ncclResult_t np_coll_dereg_mr(const struct np_coll *coll, void *coll_comm, void *mhandle)
{
	FORWARD(coll, deregMr, coll_comm, mhandle);
}

/* ---- operations ----------------------------------------------------------------------------- */

ncclResult_t np_coll_iallreduce(const struct np_coll *coll, void *coll_comm,
				const struct np_coll_reduce *r, void **request)
{
#define REDUCE(v)                                                                                  \
	coll->table.v->iallreduce(coll_comm, r->send, r->recv, r->count, r->type, r->op,           \
				  r->send_mr, r->recv_mr, request)
	switch (coll->api) {
	case 8:
		if (r->count > INT_MAX)
			return ncclInvalidArgument;
		return coll->table.v8->iallreduce(coll_comm, r->send, r->recv, (int)r->count,
						  r->type, r->op, r->send_mr, r->recv_mr, request);
	case 9:
		return REDUCE(v9);
	case 10:
		return REDUCE(v10);
	case 11:
		return REDUCE(v11);
	default:
		return REDUCE(v12);
	}
#undef REDUCE
}

ncclResult_t np_coll_iflush(const struct np_coll *coll, void *coll_comm, void *data, int size,
			    void *mhandle, void **request)
{
	FORWARD(coll, iflush, coll_comm, data, size, mhandle, request);
}

ncclResult_t np_coll_test(const struct np_coll *coll, void *request, int *done, int *size)
{
	FORWARD(coll, test, request, done, size);
}
