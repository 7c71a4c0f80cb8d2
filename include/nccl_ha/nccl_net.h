/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL's network plugin ABI, versions 8 to 12, declared by this project.
 *
 * NCCL finds a plugin by symbol (ncclNetPlugin_v12 … ncclNetPlugin_v8, newest first) and calls it
 * through the tables below. The names of types and members are NCCL's, because they are the
 * contract; the text is ours. No header of NCCL or CUDA is needed. The static assertions at the
 * end pin the binary layout on LP64, which is what a plugin and NCCL have to agree on.
 *
 * First NCCL release with each version: v8 2.20.3, v9 2.24.3, v10 2.26.2, v11 2.28.3, v12 2.30.3.
 *
 * Threads: init runs under a mutex. A proxy service thread calls listen, connect, accept, regMr,
 * deregMr and close; a proxy progress thread calls isend, irecv, iflush and test. Both may touch
 * the same comm at the same time (regMr against test, for one).
 */
#ifndef NCCL_HA_NCCL_NET_H
#define NCCL_HA_NCCL_NET_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- results, log, profiler ------------------------------------------------------------- */

typedef enum {
	ncclSuccess = 0,
	ncclUnhandledCudaError = 1,
	ncclSystemError = 2,
	ncclInternalError = 3,
	ncclInvalidArgument = 4,
	ncclInvalidUsage = 5,
	ncclRemoteError = 6,
	ncclInProgress = 7,
} ncclResult_t;

typedef enum {
	NCCL_LOG_NONE = 0,
	NCCL_LOG_VERSION = 1,
	NCCL_LOG_WARN = 2,
	NCCL_LOG_INFO = 3,
	NCCL_LOG_ABORT = 4,
	NCCL_LOG_TRACE = 5,
	NCCL_LOG_ATTN =
	    6, /* since 2.32: shown between WARN and INFO. An older NCCL shows it never */
} ncclDebugLogLevel;

/* Subsystem bits that NCCL_DEBUG_SUBSYS filters by; `flags` of the logger. */
typedef enum {
	NCCL_INIT = 0x1,
	NCCL_NET = 0x10,
	NCCL_ENV = 0x80,
	NCCL_ALL = ~0,
} ncclDebugLogSubSys;

/* NCCL's logger: it filters by level and subsystem itself, printf-style. */
typedef void (*ncclDebugLogger_t)(ncclDebugLogLevel level, unsigned long flags, const char *file,
				  int line, const char *fmt, ...);

/* v10 and later hand this to init; phandle of isend and irecv belongs to it. */
typedef ncclResult_t (*ncclProfilerCallback_t)(void **eHandle, int type, void *phandle,
					       int64_t pluginId, void *extData);

/* ---- constants -------------------------------------------------------------------------- */

#define NCCL_NET_HANDLE_MAXSIZE		  128
#define NCCL_NET_MAX_REQUESTS		  32
#define NCCL_NET_OPTIONAL_RECV_COMPLETION 0x1 /* value of *request on entry to irecv */
#define NCCL_NET_TRAFFIC_CLASS_UNDEF	  -1
#define NCCL_NET_ID_UNDEF		  -1
#define NCCL_MAX_NET_SIZE_BYTES		  (1024LL * 1024 * 1024 * 1024) /* top of maxP2pBytes */

/* Where memory lives, and what a device can reach (ptrSupport). */
#define NCCL_PTR_HOST	0x1
#define NCCL_PTR_CUDA	0x2
#define NCCL_PTR_DMABUF 0x4

/* ---- device offload: none here, the types only carry "host" ------------------------------ */

typedef enum {
	NCCL_NET_DEVICE_HOST = 0,
	NCCL_NET_DEVICE_UNPACK = 1,
	NCCL_NET_DEVICE_GIN_PROXY = 2, /* of a GIN plugin's properties: nccl_gin.h */
} ncclNetDeviceType;

#define NCCL_NET_DEVICE_INVALID_VERSION 0x0

typedef struct {
	ncclNetDeviceType netDeviceType;
	int netDeviceVersion;
	void *handle;
	size_t size;
	int needsProxyProgress;
} ncclNetDeviceHandle_v8_t;
typedef ncclNetDeviceHandle_v8_t ncclNetDeviceHandle_v9_t;
typedef ncclNetDeviceHandle_v8_t ncclNetDeviceHandle_v10_t;
typedef ncclNetDeviceHandle_v8_t ncclNetDeviceHandle_v11_t;
typedef ncclNetDeviceHandle_v8_t ncclNetDeviceHandle_v12_t;

/* ---- version 8: the base contract -------------------------------------------------------- */

typedef struct {
	char *name;    /* for logs */
	char *pciPath; /* resolved path of the PCI device in sysfs, or NULL */
	uint64_t guid; /* one per chip: several functions of a NIC share it */
	int ptrSupport;
	int regIsGlobal; /* a registration through one comm is valid on every comm */
	int speed;	 /* Mb/s */
	int port;
	float latency; /* µs, 0 when unknown */
	int maxComms;
	int maxRecvs; /* receives in one group */
	ncclNetDeviceType netDeviceType;
	int netDeviceVersion;
} ncclNetProperties_v8_t;

typedef struct {
	const char *name;
	ncclResult_t (*init)(ncclDebugLogger_t logFunction);
	ncclResult_t (*devices)(int *ndev);
	ncclResult_t (*getProperties)(int dev, ncclNetProperties_v8_t *props);
	/* Fills the handle (at most NCCL_NET_HANDLE_MAXSIZE bytes) that NCCL carries to the peer.
	 */
	ncclResult_t (*listen)(int dev, void *handle, void **listenComm);
	/* connect and accept never wait: success with a NULL comm means "call again". */
	ncclResult_t (*connect)(int dev, void *handle, void **sendComm,
				ncclNetDeviceHandle_v8_t **sendDevComm);
	ncclResult_t (*accept)(void *listenComm, void **recvComm,
			       ncclNetDeviceHandle_v8_t **recvDevComm);
	ncclResult_t (*regMr)(void *comm, void *data, size_t size, int type, void **mhandle);
	ncclResult_t (*regMrDmaBuf)(void *comm, void *data, size_t size, int type, uint64_t offset,
				    int fd, void **mhandle);
	ncclResult_t (*deregMr)(void *comm, void *mhandle);
	/* isend, irecv: success with a NULL request means "not now, call again". */
	ncclResult_t (*isend)(void *sendComm, void *data, int size, int tag, void *mhandle,
			      void **request);
	ncclResult_t (*irecv)(void *recvComm, int n, void **data, int *sizes, int *tags,
			      void **mhandles, void **request);
	ncclResult_t (*iflush)(void *recvComm, int n, void **data, int *sizes, void **mhandles,
			       void **request);
	/* sizes: n values for a receive of n buffers, one for a send; may be NULL. */
	ncclResult_t (*test)(void *request, int *done, int *sizes);
	ncclResult_t (*closeSend)(void *sendComm);
	ncclResult_t (*closeRecv)(void *recvComm);
	ncclResult_t (*closeListen)(void *listenComm);
	ncclResult_t (*getDeviceMr)(void *comm, void *mhandle, void **dptr_mhandle);
	ncclResult_t (*irecvConsumed)(void *recvComm, int n, void *request);
} ncclNet_v8_t;

/* ---- version 9: sizes as size_t, virtual devices ------------------------------------------ */

#define NCCL_NET_MAX_DEVS_PER_NIC_V9 4

typedef struct {
	int ndevs;
	int devs[NCCL_NET_MAX_DEVS_PER_NIC_V9];
} ncclNetVDeviceProps_v9_t;

typedef struct {
	char *name;
	char *pciPath;
	uint64_t guid;
	int ptrSupport;
	int regIsGlobal;
	int forceFlush; /* flush receives even where the GPU would not need it */
	int speed;
	int port;
	float latency;
	int maxComms;
	int maxRecvs;
	ncclNetDeviceType netDeviceType;
	int netDeviceVersion;
	ncclNetVDeviceProps_v9_t vProps; /* physical devices behind this one */
	size_t maxP2pBytes;
	size_t maxCollBytes;
} ncclNetProperties_v9_t;

typedef struct {
	const char *name;
	ncclResult_t (*init)(ncclDebugLogger_t logFunction);
	ncclResult_t (*devices)(int *ndev);
	ncclResult_t (*getProperties)(int dev, ncclNetProperties_v9_t *props);
	ncclResult_t (*listen)(int dev, void *handle, void **listenComm);
	ncclResult_t (*connect)(int dev, void *handle, void **sendComm,
				ncclNetDeviceHandle_v9_t **sendDevComm);
	ncclResult_t (*accept)(void *listenComm, void **recvComm,
			       ncclNetDeviceHandle_v9_t **recvDevComm);
	ncclResult_t (*regMr)(void *comm, void *data, size_t size, int type, void **mhandle);
	ncclResult_t (*regMrDmaBuf)(void *comm, void *data, size_t size, int type, uint64_t offset,
				    int fd, void **mhandle);
	ncclResult_t (*deregMr)(void *comm, void *mhandle);
	ncclResult_t (*isend)(void *sendComm, void *data, size_t size, int tag, void *mhandle,
			      void **request);
	ncclResult_t (*irecv)(void *recvComm, int n, void **data, size_t *sizes, int *tags,
			      void **mhandles, void **request);
	ncclResult_t (*iflush)(void *recvComm, int n, void **data, int *sizes, void **mhandles,
			       void **request);
	ncclResult_t (*test)(void *request, int *done, int *sizes);
	ncclResult_t (*closeSend)(void *sendComm);
	ncclResult_t (*closeRecv)(void *recvComm);
	ncclResult_t (*closeListen)(void *listenComm);
	ncclResult_t (*getDeviceMr)(void *comm, void *mhandle, void **dptr_mhandle);
	ncclResult_t (*irecvConsumed)(void *recvComm, int n, void *request);
	/* Fuses physical devices into one virtual device *d; may be NULL. */
	ncclResult_t (*makeVDevice)(int *d, ncclNetVDeviceProps_v9_t *props);
} ncclNet_v9_t;

/* ---- version 10: profiler, traffic class --------------------------------------------------- */

typedef ncclNetVDeviceProps_v9_t ncclNetVDeviceProps_v10_t;
typedef ncclNetProperties_v9_t ncclNetProperties_v10_t;

typedef struct {
	int trafficClass; /* NCCL_NET_TRAFFIC_CLASS_UNDEF: not asked for */
} ncclNetCommConfig_v10_t;

typedef struct {
	const char *name;
	ncclResult_t (*init)(ncclDebugLogger_t logFunction, ncclProfilerCallback_t profFunction);
	ncclResult_t (*devices)(int *ndev);
	ncclResult_t (*getProperties)(int dev, ncclNetProperties_v10_t *props);
	ncclResult_t (*listen)(int dev, void *handle, void **listenComm);
	ncclResult_t (*connect)(int dev, ncclNetCommConfig_v10_t *config, void *handle,
				void **sendComm, ncclNetDeviceHandle_v10_t **sendDevComm);
	ncclResult_t (*accept)(void *listenComm, void **recvComm,
			       ncclNetDeviceHandle_v10_t **recvDevComm);
	ncclResult_t (*regMr)(void *comm, void *data, size_t size, int type, void **mhandle);
	ncclResult_t (*regMrDmaBuf)(void *comm, void *data, size_t size, int type, uint64_t offset,
				    int fd, void **mhandle);
	ncclResult_t (*deregMr)(void *comm, void *mhandle);
	ncclResult_t (*isend)(void *sendComm, void *data, size_t size, int tag, void *mhandle,
			      void *phandle, void **request);
	ncclResult_t (*irecv)(void *recvComm, int n, void **data, size_t *sizes, int *tags,
			      void **mhandles, void **phandles, void **request);
	ncclResult_t (*iflush)(void *recvComm, int n, void **data, int *sizes, void **mhandles,
			       void **request);
	ncclResult_t (*test)(void *request, int *done, int *sizes);
	ncclResult_t (*closeSend)(void *sendComm);
	ncclResult_t (*closeRecv)(void *recvComm);
	ncclResult_t (*closeListen)(void *listenComm);
	ncclResult_t (*getDeviceMr)(void *comm, void *mhandle, void **dptr_mhandle);
	ncclResult_t (*irecvConsumed)(void *recvComm, int n, void *request);
	ncclResult_t (*makeVDevice)(int *d, ncclNetVDeviceProps_v10_t *props);
} ncclNet_v10_t;

/* ---- version 11: a context per communicator ------------------------------------------------ */

typedef ncclNetVDeviceProps_v9_t ncclNetVDeviceProps_v11_t;
typedef ncclNetCommConfig_v10_t ncclNetCommConfig_v11_t;

typedef struct {
	char *name;
	char *pciPath;
	uint64_t guid;
	int ptrSupport;
	int regIsGlobal;
	int forceFlush;
	int speed;
	int port;
	float latency;
	int maxComms;
	int maxRecvs;
	ncclNetDeviceType netDeviceType;
	int netDeviceVersion;
	ncclNetVDeviceProps_v11_t vProps;
	size_t maxP2pBytes;
	size_t maxCollBytes;
	int maxMultiRequestSize; /* requests that one multi-request may combine */
} ncclNetProperties_v11_t;

typedef struct {
	int32_t maxConcurrentPeers;
	int32_t minConcurrentPeers;
	int32_t maxFlowsPerPeer;
	int32_t minFlowsPerPeer;
} ncclNetCommAttr_v11_t;

/* What NCCL is about to do with the network; -1 in a field means unknown. */
typedef struct {
	ncclNetCommAttr_v11_t sendCommAttr;
	ncclNetCommAttr_v11_t recvCommAttr;
	uint32_t op;
	uint32_t algo;
	uint32_t proto;
} ncclNetAttr_v11_t;

typedef struct {
	const char *name;
	/* Once per communicator; *ctx comes back in listen, connect, setNetAttr and finalize. */
	ncclResult_t (*init)(void **ctx, uint64_t commId, ncclNetCommConfig_v11_t *config,
			     ncclDebugLogger_t logFunction, ncclProfilerCallback_t profFunction);
	ncclResult_t (*devices)(int *ndev);
	ncclResult_t (*getProperties)(int dev, ncclNetProperties_v11_t *props);
	ncclResult_t (*listen)(void *ctx, int dev, void *handle, void **listenComm);
	ncclResult_t (*connect)(void *ctx, int dev, void *handle, void **sendComm,
				ncclNetDeviceHandle_v11_t **sendDevComm);
	ncclResult_t (*accept)(void *listenComm, void **recvComm,
			       ncclNetDeviceHandle_v11_t **recvDevComm);
	ncclResult_t (*regMr)(void *comm, void *data, size_t size, int type, void **mhandle);
	ncclResult_t (*regMrDmaBuf)(void *comm, void *data, size_t size, int type, uint64_t offset,
				    int fd, void **mhandle);
	ncclResult_t (*deregMr)(void *comm, void *mhandle);
	ncclResult_t (*isend)(void *sendComm, void *data, size_t size, int tag, void *mhandle,
			      void *phandle, void **request);
	ncclResult_t (*irecv)(void *recvComm, int n, void **data, size_t *sizes, int *tags,
			      void **mhandles, void **phandles, void **request);
	ncclResult_t (*iflush)(void *recvComm, int n, void **data, int *sizes, void **mhandles,
			       void **request);
	ncclResult_t (*test)(void *request, int *done, int *sizes);
	ncclResult_t (*closeSend)(void *sendComm);
	ncclResult_t (*closeRecv)(void *recvComm);
	ncclResult_t (*closeListen)(void *listenComm);
	ncclResult_t (*getDeviceMr)(void *comm, void *mhandle, void **dptr_mhandle);
	ncclResult_t (*irecvConsumed)(void *recvComm, int n, void *request);
	ncclResult_t (*makeVDevice)(int *d, ncclNetVDeviceProps_v11_t *props);
	ncclResult_t (*finalize)(void *ctx);
	ncclResult_t (*setNetAttr)(void *ctx, ncclNetAttr_v11_t *netAttr);
} ncclNet_v11_t;

/* ---- version 12: eight devices per NIC, rail and plane ------------------------------------- */

#define NCCL_NET_MAX_DEVS_PER_NIC_V12 8

typedef struct {
	int ndevs;
	int devs[NCCL_NET_MAX_DEVS_PER_NIC_V12];
} ncclNetVDeviceProps_v12_t;

typedef ncclNetCommConfig_v10_t ncclNetCommConfig_v12_t;
typedef ncclNetCommAttr_v11_t ncclNetCommAttr_v12_t;
typedef ncclNetAttr_v11_t ncclNetAttr_v12_t;

typedef struct {
	char *name;
	char *pciPath;
	uint64_t guid;
	int ptrSupport;
	int regIsGlobal;
	int forceFlush;
	int speed;
	int port;
	float latency;
	int maxComms;
	int maxRecvs;
	ncclNetDeviceType netDeviceType;
	int netDeviceVersion;
	ncclNetVDeviceProps_v12_t vProps;
	size_t maxP2pBytes;
	size_t maxCollBytes;
	int maxMultiRequestSize;
	int16_t railId;	 /* NCCL_NET_ID_UNDEF when unknown */
	int16_t planeId; /* likewise */
} ncclNetProperties_v12_t;

typedef struct {
	const char *name;
	ncclResult_t (*init)(void **ctx, uint64_t commId, ncclNetCommConfig_v12_t *config,
			     ncclDebugLogger_t logFunction, ncclProfilerCallback_t profFunction);
	ncclResult_t (*devices)(int *ndev);
	ncclResult_t (*getProperties)(int dev, ncclNetProperties_v12_t *props);
	ncclResult_t (*listen)(void *ctx, int dev, void *handle, void **listenComm);
	ncclResult_t (*connect)(void *ctx, int dev, void *handle, void **sendComm,
				ncclNetDeviceHandle_v12_t **sendDevComm);
	ncclResult_t (*accept)(void *listenComm, void **recvComm,
			       ncclNetDeviceHandle_v12_t **recvDevComm);
	ncclResult_t (*regMr)(void *comm, void *data, size_t size, int type, void **mhandle);
	ncclResult_t (*regMrDmaBuf)(void *comm, void *data, size_t size, int type, uint64_t offset,
				    int fd, void **mhandle);
	ncclResult_t (*deregMr)(void *comm, void *mhandle);
	ncclResult_t (*isend)(void *sendComm, void *data, size_t size, int tag, void *mhandle,
			      void *phandle, void **request);
	ncclResult_t (*irecv)(void *recvComm, int n, void **data, size_t *sizes, int *tags,
			      void **mhandles, void **phandles, void **request);
	ncclResult_t (*iflush)(void *recvComm, int n, void **data, int *sizes, void **mhandles,
			       void **request);
	ncclResult_t (*test)(void *request, int *done, int *sizes);
	ncclResult_t (*closeSend)(void *sendComm);
	ncclResult_t (*closeRecv)(void *recvComm);
	ncclResult_t (*closeListen)(void *listenComm);
	ncclResult_t (*getDeviceMr)(void *comm, void *mhandle, void **dptr_mhandle);
	ncclResult_t (*irecvConsumed)(void *recvComm, int n, void *request);
	ncclResult_t (*makeVDevice)(int *d, ncclNetVDeviceProps_v12_t *props);
	ncclResult_t (*finalize)(void *ctx);
	ncclResult_t (*setNetAttr)(void *ctx, ncclNetAttr_v12_t *netAttr);
} ncclNet_v12_t;

/* ---- the layout NCCL was compiled with ------------------------------------------------------ */

#ifdef __cplusplus
#define NCCL_HA_ABI_ASSERT(cond) static_assert(cond, #cond)
#else
#define NCCL_HA_ABI_ASSERT(cond) _Static_assert(cond, #cond)
#endif

#if defined(__LP64__)
NCCL_HA_ABI_ASSERT(sizeof(ncclNetDeviceHandle_v8_t) == 32);
NCCL_HA_ABI_ASSERT(offsetof(ncclNetDeviceHandle_v8_t, needsProxyProgress) == 24);

NCCL_HA_ABI_ASSERT(sizeof(ncclNetProperties_v8_t) == 64);
NCCL_HA_ABI_ASSERT(offsetof(ncclNetProperties_v8_t, speed) == 32);
NCCL_HA_ABI_ASSERT(offsetof(ncclNetProperties_v8_t, maxRecvs) == 48);
NCCL_HA_ABI_ASSERT(offsetof(ncclNetProperties_v8_t, netDeviceVersion) == 56);

NCCL_HA_ABI_ASSERT(sizeof(ncclNetProperties_v9_t) == 104);
NCCL_HA_ABI_ASSERT(offsetof(ncclNetProperties_v9_t, forceFlush) == 32);
NCCL_HA_ABI_ASSERT(offsetof(ncclNetProperties_v9_t, maxRecvs) == 52);
NCCL_HA_ABI_ASSERT(offsetof(ncclNetProperties_v9_t, vProps) == 64);
NCCL_HA_ABI_ASSERT(offsetof(ncclNetProperties_v9_t, maxP2pBytes) == 88);
NCCL_HA_ABI_ASSERT(offsetof(ncclNetProperties_v9_t, maxCollBytes) == 96);

NCCL_HA_ABI_ASSERT(sizeof(ncclNetProperties_v11_t) == 112);
NCCL_HA_ABI_ASSERT(offsetof(ncclNetProperties_v11_t, maxMultiRequestSize) == 104);

NCCL_HA_ABI_ASSERT(sizeof(ncclNetProperties_v12_t) == 128);
NCCL_HA_ABI_ASSERT(offsetof(ncclNetProperties_v12_t, vProps) == 64);
NCCL_HA_ABI_ASSERT(offsetof(ncclNetProperties_v12_t, maxP2pBytes) == 104);
NCCL_HA_ABI_ASSERT(offsetof(ncclNetProperties_v12_t, maxMultiRequestSize) == 120);
NCCL_HA_ABI_ASSERT(offsetof(ncclNetProperties_v12_t, railId) == 124);
NCCL_HA_ABI_ASSERT(offsetof(ncclNetProperties_v12_t, planeId) == 126);

NCCL_HA_ABI_ASSERT(sizeof(ncclNetAttr_v11_t) == 44);

NCCL_HA_ABI_ASSERT(sizeof(ncclNet_v8_t) == 152);
NCCL_HA_ABI_ASSERT(offsetof(ncclNet_v8_t, isend) == 80);
NCCL_HA_ABI_ASSERT(offsetof(ncclNet_v8_t, irecvConsumed) == 144);
NCCL_HA_ABI_ASSERT(sizeof(ncclNet_v9_t) == 160);
NCCL_HA_ABI_ASSERT(offsetof(ncclNet_v9_t, makeVDevice) == 152);
NCCL_HA_ABI_ASSERT(sizeof(ncclNet_v10_t) == 160);
NCCL_HA_ABI_ASSERT(sizeof(ncclNet_v11_t) == 176);
NCCL_HA_ABI_ASSERT(offsetof(ncclNet_v11_t, finalize) == 160);
NCCL_HA_ABI_ASSERT(offsetof(ncclNet_v11_t, setNetAttr) == 168);
NCCL_HA_ABI_ASSERT(sizeof(ncclNet_v12_t) == 176);
NCCL_HA_ABI_ASSERT(offsetof(ncclNet_v12_t, setNetAttr) == 168);
#endif

#ifdef __cplusplus
}
#endif

#endif
