/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL's ABI for a GIN plugin, version 11, declared by this project: puts and signals that a kernel
 * asks for and a thread of NCCL's hands to the plugin. As in nccl_net.h the names are NCCL's,
 * because they are the contract, and the text is ours.
 *
 * NCCL 2.28.7 to 2.29.3 look the symbol ncclGinPlugin_v11 up in the network plugin's
 * library, 2.29.7 to 2.30.4 take it as the last choice. What a plugin does with its properties'
 * netDeviceType GIN_PROXY is: no createContext and no destroyContext, and every call after connect
 * from one thread of NCCL's for each communicator.
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
#endif

#ifdef __cplusplus
}
#endif

#endif
