/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL's ABI for collective networks (collNet), versions 8 to 12, declared by this project:
 * all-reduces that a network does itself. As in nccl_net.h the names are NCCL's, because they are
 * the contract, and the text is ours.
 *
 * NCCL looks the symbols ncclCollNetPlugin_v12 … ncclCollNetPlugin_v8 up in the network plugin's
 * library, newest first and apart from the net's own. It wants the devices of the net, in their
 * order, or none; and the same number on all ranks.
 *
 * Threads: init and reduceSupport are called by the application's; listen, connect, regMr, deregMr
 * and close by the proxy service thread; iallreduce, iflush and test by the proxy progress thread.
 */
#ifndef NCCL_HA_NCCL_COLL_H
#define NCCL_HA_NCCL_COLL_H

#include "nccl_ha/nccl_net.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
	ncclInt8 = 0,
	ncclUint8 = 1,
	ncclInt32 = 2,
	ncclUint32 = 3,
	ncclInt64 = 4,
	ncclUint64 = 5,
	ncclFloat16 = 6,
	ncclFloat32 = 7,
	ncclFloat64 = 8,
	ncclBfloat16 = 9,
	ncclFloat8e4m3 = 10,
	ncclFloat8e5m2 = 11,
} ncclDataType_t;

/* What NCCL asks of a network: averages arrive as sums. */
typedef enum {
	ncclSum = 0,
	ncclProd = 1,
	ncclMax = 2,
	ncclMin = 3,
	ncclAvg = 4,
} ncclRedOp_t;

/* A piece of registered memory; version 8 has a smaller size. */
typedef struct {
	void *mhandle;
	void *address;
	uint32_t size;
} ncclNetSGE_v8_t;

typedef struct {
	void *mhandle;
	void *address;
	size_t size;
} ncclNetSGE_v9_t;
typedef ncclNetSGE_v9_t ncclNetSGE_v10_t;
typedef ncclNetSGE_v9_t ncclNetSGE_v11_t;
typedef ncclNetSGE_v9_t ncclNetSGE_v12_t;

/*
 * The members that all versions share, from connect to closeListen, but for iallreduce's count and
 * the pieces of all-gather and reduce-scatter.
 *
 * connect: all ranks call it, with what their listen filled, and it waits for them. If it fails on
 * one rank it has to on all: NCCL compares within a node only. It then frees listenComm itself, as
 * NCCL forgets it.
 * reduceSupport: 1 or 0, the same on all ranks.
 * iallreduce: in the same order on all ranks; may be in place. *request NULL: not now.
 * iallgather, ireducescatter: may be NULL.
 * iflush: of memory of a GPU that an all-reduce has written. *request NULL: nothing is to be done.
 * test: size may be NULL.
 */
#define NCCL_HA_COLL_SETUP                                                                         \
	ncclResult_t (*connect)(void *handles[], int nranks, int rank, void *listenComm,           \
				void **collComm);                                                  \
	ncclResult_t (*reduceSupport)(ncclDataType_t dataType, ncclRedOp_t redOp, int *supported); \
	ncclResult_t (*regMr)(void *collComm, void *data, size_t size, int type, void **mhandle);  \
	ncclResult_t (*regMrDmaBuf)(void *collComm, void *data, size_t size, int type,             \
				    uint64_t offset, int fd, void **mhandle);                      \
	ncclResult_t (*deregMr)(void *collComm, void *mhandle);
#define NCCL_HA_COLL_OPERATIONS(count_t, sge_t)                                                    \
	ncclResult_t (*iallreduce)(void *collComm, void *sendData, void *recvData, count_t count,  \
				   ncclDataType_t dataType, ncclRedOp_t redOp, void *sendMhandle,  \
				   void *recvMhandle, void **request);                             \
	ncclResult_t (*iallgather)(void *collComm, void *sendData, int nRecvParts,                 \
				   sge_t *recvParts, size_t bytesPerRank, size_t windowOffset,     \
				   size_t windowBytes, void *sendMhandle, void **request);         \
	ncclResult_t (*ireducescatter)(void *collComm, int nSendParts, sge_t *sendParts,           \
				       void *recvData, size_t bytesPerRank, size_t windowOffset,   \
				       size_t windowBytes, ncclDataType_t dataType,                \
				       ncclRedOp_t redOp, void *recvMhandle, void **request);      \
	ncclResult_t (*iflush)(void *collComm, void *data, int size, void *mhandle,                \
			       void **request);                                                    \
	ncclResult_t (*test)(void *request, int *done, int *size);                                 \
	ncclResult_t (*closeColl)(void *collComm);                                                 \
	ncclResult_t (*closeListen)(void *listenComm);

typedef struct {
	const char *name;
	ncclResult_t (*init)(ncclDebugLogger_t logFunction);
	ncclResult_t (*devices)(int *ndev);
	ncclResult_t (*getProperties)(int dev, ncclNetProperties_v8_t *props);
	ncclResult_t (*listen)(int dev, void *handle, void **listenComm);
	NCCL_HA_COLL_SETUP
	NCCL_HA_COLL_OPERATIONS(int, ncclNetSGE_v8_t)
} ncclCollNet_v8_t;

typedef struct {
	const char *name;
	ncclResult_t (*init)(ncclDebugLogger_t logFunction);
	ncclResult_t (*devices)(int *ndev);
	ncclResult_t (*getProperties)(int dev, ncclNetProperties_v9_t *props);
	ncclResult_t (*listen)(int dev, void *handle, void **listenComm);
	NCCL_HA_COLL_SETUP
	NCCL_HA_COLL_OPERATIONS(size_t, ncclNetSGE_v9_t)
	ncclResult_t (*makeVDevice)(int *d, ncclNetVDeviceProps_v9_t *props); /* may be NULL */
} ncclCollNet_v9_t;

typedef struct {
	const char *name;
	ncclResult_t (*init)(ncclDebugLogger_t logFunction);
	ncclResult_t (*devices)(int *ndev);
	ncclResult_t (*getProperties)(int dev, ncclNetProperties_v10_t *props);
	ncclResult_t (*listen)(int dev, void *handle, void **listenComm);
	NCCL_HA_COLL_SETUP
	NCCL_HA_COLL_OPERATIONS(size_t, ncclNetSGE_v10_t)
	ncclResult_t (*makeVDevice)(int *d, ncclNetVDeviceProps_v10_t *props);
} ncclCollNet_v10_t;

/* From here on init is called once per communicator, and *ctx comes back. */
typedef struct {
	const char *name;
	ncclResult_t (*init)(void **ctx, uint64_t commId, ncclDebugLogger_t logFunction);
	ncclResult_t (*devices)(int *ndev);
	ncclResult_t (*getProperties)(int dev, ncclNetProperties_v11_t *props);
	ncclResult_t (*listen)(void *ctx, int dev, void *handle, void **listenComm);
	NCCL_HA_COLL_SETUP
	NCCL_HA_COLL_OPERATIONS(size_t, ncclNetSGE_v11_t)
	ncclResult_t (*makeVDevice)(int *d, ncclNetVDeviceProps_v11_t *props);
	ncclResult_t (*finalize)(void *ctx);
} ncclCollNet_v11_t;

typedef struct {
	const char *name;
	ncclResult_t (*init)(void **ctx, uint64_t commId, ncclDebugLogger_t logFunction);
	ncclResult_t (*devices)(int *ndev);
	ncclResult_t (*getProperties)(int dev, ncclNetProperties_v12_t *props);
	ncclResult_t (*listen)(void *ctx, int dev, void *handle, void **listenComm);
	NCCL_HA_COLL_SETUP
	NCCL_HA_COLL_OPERATIONS(size_t, ncclNetSGE_v12_t)
	ncclResult_t (*makeVDevice)(int *d, ncclNetVDeviceProps_v12_t *props);
	ncclResult_t (*finalize)(void *ctx);
} ncclCollNet_v12_t;

#undef NCCL_HA_COLL_SETUP
#undef NCCL_HA_COLL_OPERATIONS

/* ---- the layout NCCL was compiled with ------------------------------------------------------ */

#if defined(__LP64__)
NCCL_HA_ABI_ASSERT(sizeof(ncclDataType_t) == 4);
NCCL_HA_ABI_ASSERT(sizeof(ncclRedOp_t) == 4);
NCCL_HA_ABI_ASSERT(sizeof(ncclNetSGE_v8_t) == 24);
NCCL_HA_ABI_ASSERT(sizeof(ncclNetSGE_v9_t) == 24);
NCCL_HA_ABI_ASSERT(sizeof(ncclCollNet_v8_t) == 136);
NCCL_HA_ABI_ASSERT(offsetof(ncclCollNet_v8_t, connect) == 40);
NCCL_HA_ABI_ASSERT(offsetof(ncclCollNet_v8_t, iallreduce) == 80);
NCCL_HA_ABI_ASSERT(offsetof(ncclCollNet_v8_t, closeListen) == 128);
NCCL_HA_ABI_ASSERT(sizeof(ncclCollNet_v9_t) == 144);
NCCL_HA_ABI_ASSERT(offsetof(ncclCollNet_v9_t, makeVDevice) == 136);
NCCL_HA_ABI_ASSERT(sizeof(ncclCollNet_v10_t) == 144);
NCCL_HA_ABI_ASSERT(sizeof(ncclCollNet_v11_t) == 152);
NCCL_HA_ABI_ASSERT(offsetof(ncclCollNet_v11_t, reduceSupport) == 48);
NCCL_HA_ABI_ASSERT(offsetof(ncclCollNet_v11_t, finalize) == 144);
NCCL_HA_ABI_ASSERT(sizeof(ncclCollNet_v12_t) == 152);
NCCL_HA_ABI_ASSERT(offsetof(ncclCollNet_v12_t, test) == 112);
NCCL_HA_ABI_ASSERT(offsetof(ncclCollNet_v12_t, finalize) == 144);
#endif

#ifdef __cplusplus
}
#endif

#endif
