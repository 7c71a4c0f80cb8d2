/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The collNet of a loaded plugin, whatever the version of its table: all-reduces that a network
 * does itself. As with netcalls.h the types are those of version 12, and apart from what an older
 * version cannot say a call passes through untouched.
 *
 * NCCL looks the collNet's table up in the net's library, apart from the net's: their versions may
 * differ.
 */
#ifndef NP_COLLCALLS_H
#define NP_COLLCALLS_H

#include "nccl_ha/nccl_coll.h"
#include "tools/common/netplugin.h"

/* Immutable after np_coll_find; no resources of its own. Valid as long as the plugin is loaded. */
struct np_coll {
	int api; /* which member of table is meant */
	union {
		const void *any;
		const ncclCollNet_v8_t *v8;
		const ncclCollNet_v9_t *v9;
		const ncclCollNet_v10_t *v10;
		const ncclCollNet_v11_t *v11;
		const ncclCollNet_v12_t *v12;
	} table;
};

/* Bit v set: ncclCollNetPlugin_v<v> is exported. */
unsigned np_coll_versions(const struct np_plugin *p);
/* api: 8 … 12, or 0 for the newest. false: it has none, and err says which it has. */
bool np_coll_find(const struct np_plugin *p, int api, struct np_coll *coll, char *err,
		  size_t err_len);
const char *np_coll_name(const struct np_coll *coll); /* "(null)" if it has none */
/* As np_missing_members. */
int np_coll_missing(const struct np_coll *coll, enum np_moment moment, char *buf, size_t len);

/* *ctx: NULL before v11. Uses np_logger. */
ncclResult_t np_coll_init(const struct np_coll *coll, void **ctx, uint64_t comm_id);
ncclResult_t np_coll_finalize(const struct np_coll *coll, void *ctx); /* success before v11 */
ncclResult_t np_coll_devices(const struct np_coll *coll, int *ndev);
ncclResult_t np_coll_get_properties(const struct np_coll *coll, int dev,
				    ncclNetProperties_v12_t *props);

ncclResult_t np_coll_listen(const struct np_coll *coll, void *ctx, int dev, void *handle,
			    void **listen_comm);
ncclResult_t np_coll_connect(const struct np_coll *coll, void *handles[], int nranks, int rank,
			     void *listen_comm, void **coll_comm);
ncclResult_t np_coll_close_listen(const struct np_coll *coll, void *listen_comm);
ncclResult_t np_coll_close(const struct np_coll *coll, void *coll_comm);
ncclResult_t np_coll_reduce_support(const struct np_coll *coll, ncclDataType_t type, ncclRedOp_t op,
				    int *supported);

ncclResult_t np_coll_reg_mr(const struct np_coll *coll, void *coll_comm, void *data, size_t size,
			    int type, void **mhandle);
ncclResult_t np_coll_dereg_mr(const struct np_coll *coll, void *coll_comm, void *mhandle);

/* One all-reduce; memory is registered with the same comm. */
struct np_coll_reduce {
	void *send, *recv;
	void *send_mr, *recv_mr;
	size_t count; /* elements; above INT_MAX is refused on v8 */
	ncclDataType_t type;
	ncclRedOp_t op;
};
ncclResult_t np_coll_iallreduce(const struct np_coll *coll, void *coll_comm,
				const struct np_coll_reduce *reduce, void **request);
ncclResult_t np_coll_iflush(const struct np_coll *coll, void *coll_comm, void *data, int size,
			    void *mhandle, void **request);
ncclResult_t np_coll_test(const struct np_coll *coll, void *request, int *done, int *size);

#endif
