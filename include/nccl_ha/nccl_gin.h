/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL's ABI for a GIN plugin, versions 11 to 13, and for an RMA plugin, version 14, declared by
 * this project: puts and signals that a kernel asks for and a thread of NCCL's hands to the plugin.
 * As in nccl_net.h the names are NCCL's, because they are the contract, and the text is ours.
 *
 *   ncclGinPlugin_v11   2.28.7 to 2.29.3, and the last choice of 2.29.7 to 2.30.4
 *   ncclGinPlugin_v12   2.29.7, and the second choice of 2.30.3 and 2.30.4
 *   ncclGinPlugin_v13   2.30.3 and 2.30.4; there ncclRmaPlugin_v13, for puts of the host, is the
 * same ncclRmaPlugin_v14   2.30.7, whose own proxy goes over it; GIN plugins of a proxy's kind it
 * skips
 *
 * What a plugin does with its properties' netDeviceType GIN_PROXY is, with versions 11 and 12: no
 * createContext and no destroyContext. Every call after connect comes from one thread of NCCL's for
 * each communicator.
 */
#ifndef NCCL_HA_NCCL_GIN_H
#define NCCL_HA_NCCL_GIN_H

#include "nccl_ha/nccl_net.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* mrFlags: writes to this memory become visible in order. NCCL's signals ask for it. */
#define NCCL_NET_MR_FLAG_FORCE_SO (1 << 0)

/* mrFlags, from 2.30.7 on: nobody ever sets a word of it to zero. */
#define NCCL_NET_MR_FLAG_SIGNAL_NEVER_RESET (1 << 1)

/* signalOp */
#define NCCL_NET_SIGNAL_OP_INC 0x1 /* by one, whatever the value says */
#define NCCL_NET_SIGNAL_OP_ADD 0x2

typedef struct {
	const char *name;
	/* Once per communicator; *ctx comes back in listen, connect and finalize. */
	ncclResult_t (*init)(void **ctx, uint64_t commId, ncclDebugLogger_t logFunction);
	/* Zero devices, or an error, and NCCL calls nothing else. */
	ncclResult_t (*devices)(int *ndev);
	ncclResult_t (*getProperties)(int dev, ncclNetProperties_v11_t *props);
	ncclResult_t (*listen)(void *ctx, int dev, void *handle, void **listenComm);
	/* All ranks call it and it waits for them; handles are those that their listen filled. */
	ncclResult_t (*connect)(void *ctx, void *handles[], int nranks, int rank, void *listenComm,
				void **collComm);
	ncclResult_t (*createContext)(void *collComm, int nSignals, int nCounters, void **ginCtx,
				      ncclNetDeviceHandle_v11_t **devHandle);
	/* All ranks register in the same order, so it may wait for them. */
	ncclResult_t (*regMrSym)(void *collComm, void *data, size_t size, int type,
				 uint64_t mrFlags, void **mhandle, void **ginHandle);
	ncclResult_t (*regMrSymDmaBuf)(void *collComm, void *data, size_t size, int type,
				       uint64_t offset, int fd, uint64_t mrFlags, void **mhandle,
				       void **ginHandle);
	ncclResult_t (*deregMrSym)(void *collComm, void *mhandle);
	ncclResult_t (*destroyContext)(void *ginCtx);
	ncclResult_t (*closeColl)(void *collComm);
	ncclResult_t (*closeListen)(void *listenComm);
	/*
	 * Offsets are in bytes from where the memory was registered, dstMhandle and signalMhandle
	 * are this rank's handles of what the target registered likewise, rank may be this rank's
	 * own. Unlike isend they always give a request. Who sees a signal sees the data of its put,
	 * and a signal may come without data (size 0).
	 */
	ncclResult_t (*iput)(void *collComm, uint64_t srcOff, void *srcMhandle, size_t size,
			     uint64_t dstOff, void *dstMhandle, uint32_t rank, void **request);
	ncclResult_t (*iputSignal)(void *collComm, uint64_t srcOff, void *srcMhandle, size_t size,
				   uint64_t dstOff, void *dstMhandle, uint32_t rank,
				   uint64_t signalOff, void *signalMhandle, uint64_t signalValue,
				   uint32_t signalOp, void **request);
	/* NCCL 2.28 and 2.29 do not look at what test and ginProgress return. */
	ncclResult_t (*test)(void *collComm, void *request, int *done);
	ncclResult_t (*ginProgress)(void *collComm); /* may be NULL */
	ncclResult_t (*queryLastError)(void *ginCtx, bool *hasError);
	ncclResult_t (*finalize)(void *ctx);
} ncclGin_v11_t;

/* As version 11, but: */
typedef struct {
	const char *name;
	ncclResult_t (*init)(void **ctx, uint64_t commId, ncclDebugLogger_t logFunction);
	ncclResult_t (*devices)(int *ndev);
	ncclResult_t (*getProperties)(int dev, ncclNetProperties_v11_t *props);
	ncclResult_t (*listen)(void *ctx, int dev, void *handle, void **listenComm);
	/* nConnections to each rank, which have no order among them. */
	ncclResult_t (*connect)(void *ctx, void *handles[], int nranks, int rank, int nConnections,
				int queueDepth, void *listenComm, void **collComm);
	ncclResult_t (*createContext)(void *collComm, int nSignals, int nCounters, int nContexts,
				      void **ginCtx, ncclNetDeviceHandle_v11_t **devHandle);
	ncclResult_t (*regMrSym)(void *collComm, void *data, size_t size, int type,
				 uint64_t mrFlags, void **mhandle, void **ginHandle);
	ncclResult_t (*regMrSymDmaBuf)(void *collComm, void *data, size_t size, int type,
				       uint64_t offset, int fd, uint64_t mrFlags, void **mhandle,
				       void **ginHandle);
	ncclResult_t (*deregMrSym)(void *collComm, void *mhandle);
	ncclResult_t (*destroyContext)(void *ginCtx);
	ncclResult_t (*closeColl)(void *collComm);
	ncclResult_t (*closeListen)(void *listenComm);
	ncclResult_t (*iput)(void *collComm, uint64_t srcOff, void *srcMhandle, size_t size,
			     uint64_t dstOff, void *dstMhandle, uint32_t rank, int connectionId,
			     void **request);
	ncclResult_t (*iputSignal)(void *collComm, uint64_t srcOff, void *srcMhandle, size_t size,
				   uint64_t dstOff, void *dstMhandle, uint32_t rank,
				   uint64_t signalOff, void *signalMhandle, uint64_t signalValue,
				   uint32_t signalOp, int connectionId, void **request);
	ncclResult_t (*test)(void *collComm, void *request, int *done);
	ncclResult_t (*ginProgress)(void *collComm);
	ncclResult_t (*queryLastError)(void *ginCtx, bool *hasError);
	ncclResult_t (*finalize)(void *ctx);
} ncclGin_v12_t;

typedef struct {
	int nSignals;
	int nCounters;
	int nContexts; /* of which each has an order of its own */
	int queueDepth;
	int trafficClass;
} ncclGinConfig_v13_t;

/* As version 12, but: */
typedef struct {
	const char *name;
	ncclResult_t (*init)(void **ctx, uint64_t commId, ncclDebugLogger_t logFunction);
	ncclResult_t (*devices)(int *ndev);
	ncclResult_t (*getProperties)(int dev, ncclNetProperties_v12_t *props);
	ncclResult_t (*listen)(void *ctx, int dev, void *handle, void **listenComm);
	ncclResult_t (*connect)(void *ctx, void *handles[], int nranks, int rank, void *listenComm,
				void **collComm);
	/* Called for GIN_PROXY, too, by all ranks; devHandle is NULL then. */
	ncclResult_t (*createContext)(void *collComm, ncclGinConfig_v13_t *config, void **ginCtx,
				      ncclNetDeviceHandle_v11_t **devHandle);
	ncclResult_t (*regMrSym)(void *collComm, void *data, size_t size, int type,
				 uint64_t mrFlags, void **mhandle, void **ginHandle);
	ncclResult_t (*regMrSymDmaBuf)(void *collComm, void *data, size_t size, int type,
				       uint64_t offset, int fd, uint64_t mrFlags, void **mhandle,
				       void **ginHandle);
	ncclResult_t (*deregMrSym)(void *collComm, void *mhandle);
	ncclResult_t (*destroyContext)(void *ginCtx);
	ncclResult_t (*closeColl)(void *collComm);
	ncclResult_t (*closeListen)(void *listenComm);
	/* Operations name a context, from 0 on, of what createContext made; test does not. */
	ncclResult_t (*iput)(void *ginCtx, int context, uint64_t srcOff, void *srcMhandle,
			     size_t size, uint64_t dstOff, void *dstMhandle, uint32_t rank,
			     void **request);
	ncclResult_t (*iputSignal)(void *ginCtx, int context, uint64_t srcOff, void *srcMhandle,
				   size_t size, uint64_t dstOff, void *dstMhandle, uint32_t rank,
				   uint64_t signalOff, void *signalMhandle, uint64_t signalValue,
				   uint32_t signalOp, void **request);
	/* Out of a rank's memory into this one's. */
	ncclResult_t (*iget)(void *ginCtx, int context, uint64_t remoteOff, void *remoteMhandle,
			     size_t size, uint64_t localOff, void *localMhandle, uint32_t rank,
			     void **request);
	/* What igets of that rank have brought is where a GPU sees it. */
	ncclResult_t (*iflush)(void *ginCtx, int context, void *mhandle, uint32_t rank,
			       void **request);
	/* From 2.30 on NCCL looks at what it returns. */
	ncclResult_t (*test)(void *collComm, void *request, int *done);
	ncclResult_t (*ginProgress)(void *ginCtx);
	ncclResult_t (*queryLastError)(void *ginCtx, bool *hasError);
	ncclResult_t (*finalize)(void *ctx);
} ncclGin_v13_t;

typedef struct {
	int nContexts;
	int trafficClass;
	int rankStride; /* operations go to ranks that far apart only */
} ncclRmaConfig_v14_t;

/* As version 13 of GIN, but: */
typedef struct {
	const char *name;
	ncclResult_t (*init)(void **ctx, uint64_t commId, ncclDebugLogger_t logFunction);
	ncclResult_t (*devices)(int *ndev);
	ncclResult_t (*getProperties)(int dev, ncclNetProperties_v12_t *props);
	ncclResult_t (*listen)(void *ctx, int dev, void *handle, void **listenComm);
	ncclResult_t (*connect)(void *ctx, void *handles[], int nranks, int rank, void *listenComm,
				void **collComm);
	ncclResult_t (*createContext)(void *collComm, ncclRmaConfig_v14_t *config, void **rmaCtx);
	ncclResult_t (*regMrSym)(void *collComm, void *data, size_t size, int type,
				 uint64_t mrFlags, void **mhandle);
	ncclResult_t (*regMrSymDmaBuf)(void *collComm, void *data, size_t size, int type,
				       uint64_t offset, int fd, uint64_t mrFlags, void **mhandle);
	ncclResult_t (*deregMrSym)(void *collComm, void *mhandle);
	ncclResult_t (*destroyContext)(void *rmaCtx);
	ncclResult_t (*closeColl)(void *collComm);
	ncclResult_t (*closeListen)(void *listenComm);
	ncclResult_t (*iput)(void *rmaCtx, int context, uint64_t srcOff, void *srcMhandle,
			     size_t size, uint64_t dstOff, void *dstMhandle, uint32_t rank,
			     void **request);
	/* A strong signal is behind all earlier puts of its context, others behind their own. */
	ncclResult_t (*iputSignal)(void *rmaCtx, int context, uint64_t srcOff, void *srcMhandle,
				   size_t size, uint64_t dstOff, void *dstMhandle, uint32_t rank,
				   uint64_t signalOff, void *signalMhandle, uint64_t signalValue,
				   uint32_t signalOp, bool isStrongSignal, void **request);
	ncclResult_t (*iget)(void *rmaCtx, int context, uint64_t remoteOff, void *remoteMhandle,
			     size_t size, uint64_t localOff, void *localMhandle, uint32_t rank,
			     void **request);
	ncclResult_t (*iflush)(void *rmaCtx, int context, void *mhandle, uint32_t rank,
			       void **request);
	ncclResult_t (*test)(void *collComm, void *request, int *done);
	ncclResult_t (*rmaProgress)(void *rmaCtx);
	ncclResult_t (*queryLastError)(void *rmaCtx, bool *hasError);
	ncclResult_t (*finalize)(void *ctx);
} ncclRma_v14_t;

/* ---- the layout NCCL was compiled with ------------------------------------------------------ */

#if defined(__LP64__)
NCCL_HA_ABI_ASSERT(sizeof(bool) == 1);
NCCL_HA_ABI_ASSERT(sizeof(ncclGin_v11_t) == 152);
NCCL_HA_ABI_ASSERT(offsetof(ncclGin_v11_t, init) == 8);
NCCL_HA_ABI_ASSERT(offsetof(ncclGin_v11_t, connect) == 40);
NCCL_HA_ABI_ASSERT(offsetof(ncclGin_v11_t, createContext) == 48);
NCCL_HA_ABI_ASSERT(offsetof(ncclGin_v11_t, regMrSym) == 56);
NCCL_HA_ABI_ASSERT(offsetof(ncclGin_v11_t, closeColl) == 88);
NCCL_HA_ABI_ASSERT(offsetof(ncclGin_v11_t, iput) == 104);
NCCL_HA_ABI_ASSERT(offsetof(ncclGin_v11_t, test) == 120);
NCCL_HA_ABI_ASSERT(offsetof(ncclGin_v11_t, queryLastError) == 136);
NCCL_HA_ABI_ASSERT(offsetof(ncclGin_v11_t, finalize) == 144);

NCCL_HA_ABI_ASSERT(sizeof(ncclGin_v12_t) == 152);
NCCL_HA_ABI_ASSERT(offsetof(ncclGin_v12_t, iput) == 104);
NCCL_HA_ABI_ASSERT(offsetof(ncclGin_v12_t, finalize) == 144);

NCCL_HA_ABI_ASSERT(sizeof(ncclGinConfig_v13_t) == 20);
NCCL_HA_ABI_ASSERT(offsetof(ncclGinConfig_v13_t, nContexts) == 8);
NCCL_HA_ABI_ASSERT(offsetof(ncclGinConfig_v13_t, trafficClass) == 16);
NCCL_HA_ABI_ASSERT(sizeof(ncclGin_v13_t) == 168);
NCCL_HA_ABI_ASSERT(offsetof(ncclGin_v13_t, createContext) == 48);
NCCL_HA_ABI_ASSERT(offsetof(ncclGin_v13_t, iget) == 120);
NCCL_HA_ABI_ASSERT(offsetof(ncclGin_v13_t, test) == 136);
NCCL_HA_ABI_ASSERT(offsetof(ncclGin_v13_t, finalize) == 160);

NCCL_HA_ABI_ASSERT(sizeof(ncclRmaConfig_v14_t) == 12);
NCCL_HA_ABI_ASSERT(sizeof(ncclRma_v14_t) == 168);
NCCL_HA_ABI_ASSERT(offsetof(ncclRma_v14_t, createContext) == 48);
NCCL_HA_ABI_ASSERT(offsetof(ncclRma_v14_t, iget) == 120);
NCCL_HA_ABI_ASSERT(offsetof(ncclRma_v14_t, rmaProgress) == 144);
NCCL_HA_ABI_ASSERT(offsetof(ncclRma_v14_t, finalize) == 160);
#endif

#ifdef __cplusplus
}
#endif

#endif
