/* SPDX-License-Identifier: Apache-2.0 */
/* The tables NCCL looks for, v8 to v12: translation only. */
#include "ref.h"

#include <sys/stat.h>

#define API __attribute__((visibility("default")))

static ncclResult_t devices(int *ndev)
{
	*ndev = ref_device_count();
	return ncclSuccess;
}

static ncclResult_t reg_dmabuf(void *comm, void *data, size_t size, int type, uint64_t offset,
			       int fd, void **mhandle)
{
	struct stat st;

	(void)type, (void)offset; /* `data` is where the memory is mapped: TCP needs no more */
	if (fstat(fd, &st) != 0)
		return ncclInvalidArgument;
	ncclResult_t result = ref_reg_mr(comm, data, size, NCCL_PTR_HOST, mhandle);
	if (result == ncclSuccess) {
		struct ref_mr *mr = *mhandle;
		mr->fd = fd;
		mr->inode = st.st_ino;
	}
	return result;
}

static ncclResult_t get_device_mr(void *comm, void *mhandle, void **dptr_mhandle)
{
	(void)comm, (void)mhandle, (void)dptr_mhandle;
	return ncclInternalError; /* NCCL_NET_DEVICE_HOST has none */
}

static ncclResult_t irecv_consumed(void *comm, int n, void *request)
{
	(void)comm, (void)n, (void)request;
	return ncclInternalError;
}

static ncclResult_t accept_any(void *listen_comm, void **recv_comm, ncclNetDeviceHandle_v8_t **dev)
{
	if (dev)
		*dev = NULL;
	return ref_accept(listen_comm, recv_comm);
}

/*
 * What NCCL looks up: TABLE(v8, init_v8, …) is ncclNetPlugin_v8, with these members and this init.
 * NCCL asks for no more than a name and init before it has called init, and a plugin may fill in
 * the rest there.
 */
#ifdef REF_FILLS_IN_INIT
#define TABLE(v, init_fn, ...)                                                                     \
	static const ncclNet_##v##_t full_##v = {.init = (init_fn), __VA_ARGS__};                  \
	API ncclNet_##v##_t ncclNetPlugin_##v = {.name = NAME, .init = (init_fn)}
static void fill_tables(void);
#else
#define TABLE(v, init_fn, ...)                                                                     \
	API const ncclNet_##v##_t ncclNetPlugin_##v = {.init = (init_fn), __VA_ARGS__}
static void fill_tables(void)
{
}
#endif

/* ---- v8 ------------------------------------------------------------------------------------ */

static ncclResult_t init_v8(ncclDebugLogger_t log)
{
	(void)log;
	fill_tables();
#ifdef REF_BREAK_INIT_AGAIN
	static int calls;
	if (calls++ > 0)
		return ncclInternalError;
#endif
	return ref_device_init();
}

static ncclResult_t connect_v8(int dev, void *handle, void **comm, ncclNetDeviceHandle_v8_t **devc)
{
	if (devc)
		*devc = NULL;
	return ref_connect(dev, handle, comm);
}

static ncclResult_t isend_v8(void *comm, void *data, int size, int tag, void *mhandle,
			     void **request)
{
	return ref_isend(comm, data, (size_t)size, tag, mhandle, request);
}

static ncclResult_t irecv_v8(void *comm, int n, void **data, int *sizes, int *tags, void **mhandles,
			     void **request)
{
	size_t wide[REF_MAX_RECVS] = {0};

	for (int i = 0; i < n && i < REF_MAX_RECVS; i++)
		wide[i] = (size_t)sizes[i];
	return ref_irecv(comm, n, data, wide, tags, mhandles, request);
}

#ifdef REF_BREAK_VTABLE
#define NAME NULL
#else
#define NAME "Ref"
#endif

#ifdef REF_LACKS_TEST
#define TEST NULL
#else
#define TEST ref_test
#endif

#define COMMON                                                                                     \
	.name = NAME, .devices = devices, .regMr = ref_reg_mr, .regMrDmaBuf = reg_dmabuf,          \
	.deregMr = ref_dereg_mr, .iflush = ref_iflush, .test = TEST, .closeSend = ref_close,       \
	.closeRecv = ref_close, .closeListen = ref_close_listen, .getDeviceMr = get_device_mr,     \
	.irecvConsumed = irecv_consumed, .accept = accept_any

TABLE(v8, init_v8, COMMON, .getProperties = ref_device_properties, .listen = ref_listen,
      .connect = connect_v8, .isend = isend_v8, .irecv = irecv_v8);

/* ---- v9 ------------------------------------------------------------------------------------ */

/* The members that v9 to v12 share; P is a pointer to any of their property structs. */
#define FILL_PROPERTIES(P, dev)                                                                    \
	do {                                                                                       \
		ncclNetProperties_v8_t base;                                                       \
		ncclResult_t result_ = ref_device_properties(dev, &base);                          \
		if (result_ != ncclSuccess)                                                        \
			return result_;                                                            \
		(P)->name = base.name;                                                             \
		(P)->pciPath = base.pciPath;                                                       \
		(P)->guid = base.guid;                                                             \
		(P)->ptrSupport = base.ptrSupport;                                                 \
		(P)->regIsGlobal = base.regIsGlobal;                                               \
		(P)->forceFlush = 0;                                                               \
		(P)->speed = base.speed;                                                           \
		(P)->port = base.port;                                                             \
		(P)->latency = base.latency;                                                       \
		(P)->maxComms = base.maxComms;                                                     \
		(P)->maxRecvs = base.maxRecvs;                                                     \
		(P)->netDeviceType = base.netDeviceType;                                           \
		(P)->netDeviceVersion = base.netDeviceVersion;                                     \
		(P)->vProps.ndevs = 1;                                                             \
		(P)->vProps.devs[0] = dev;                                                         \
		(P)->maxP2pBytes = (P)->maxCollBytes = NCCL_MAX_NET_SIZE_BYTES;                    \
	} while (0)

static ncclResult_t properties_v9(int dev, ncclNetProperties_v9_t *props)
{
	FILL_PROPERTIES(props, dev);
	return ncclSuccess;
}

static ncclResult_t irecv_v9(void *comm, int n, void **data, size_t *sizes, int *tags,
			     void **mhandles, void **request)
{
	return ref_irecv(comm, n, data, sizes, tags, mhandles, request);
}

TABLE(v9, init_v8, COMMON, .getProperties = properties_v9, .listen = ref_listen,
      .connect = connect_v8, .isend = ref_isend, .irecv = irecv_v9);

/* ---- v10 ----------------------------------------------------------------------------------- */

static ncclResult_t init_v10(ncclDebugLogger_t log, ncclProfilerCallback_t profiler)
{
	(void)log, (void)profiler;
	fill_tables();
	return ref_device_init();
}

static ncclResult_t connect_v10(int dev, ncclNetCommConfig_v10_t *config, void *handle, void **comm,
				ncclNetDeviceHandle_v10_t **devc)
{
	(void)config; /* loopback has no traffic classes */
	return connect_v8(dev, handle, comm, devc);
}

static ncclResult_t isend_v10(void *comm, void *data, size_t size, int tag, void *mhandle,
			      void *phandle, void **request)
{
	(void)phandle;
	return ref_isend(comm, data, size, tag, mhandle, request);
}

static ncclResult_t irecv_v10(void *comm, int n, void **data, size_t *sizes, int *tags,
			      void **mhandles, void **phandles, void **request)
{
	(void)phandles;
	return ref_irecv(comm, n, data, sizes, tags, mhandles, request);
}

TABLE(v10, init_v10, COMMON, .getProperties = properties_v9, .listen = ref_listen,
      .connect = connect_v10, .isend = isend_v10, .irecv = irecv_v10);

/* ---- v11 and v12 --------------------------------------------------------------------------- */

static int contexts; /* open ones; only its address and its value mean something */
#ifdef REF_BREAK_INIT_AFTER_FINALIZE
static bool finalized;
#endif

static ncclResult_t init_v11(void **ctx, uint64_t comm_id, ncclNetCommConfig_v11_t *config,
			     ncclDebugLogger_t log, ncclProfilerCallback_t profiler)
{
	(void)comm_id, (void)config, (void)log, (void)profiler;
	fill_tables();
#ifdef REF_BREAK_TRAFFIC_CLASS
	if (config->trafficClass > 63) /* takes it for a DSCP */
		return ncclInvalidArgument;
#endif
#ifdef REF_BREAK_INIT
	return ncclSystemError;
#endif
#ifdef REF_BREAK_INIT_AFTER_FINALIZE
	if (finalized)
		return ncclInternalError;
#endif
	__atomic_add_fetch(&contexts, 1, __ATOMIC_RELAXED);
	*ctx = &contexts;
	return ref_device_init();
}

static ncclResult_t finalize_v11(void *ctx)
{
	if (ctx != &contexts)
		return ncclInvalidArgument;
	int left = __atomic_sub_fetch(&contexts, 1, __ATOMIC_RELAXED);
	(void)left;
#ifdef REF_BREAK_CONTEXTS
	ref_device_forget();
#endif
#ifdef REF_BREAK_INIT_AFTER_FINALIZE
	finalized |= left == 0;
#endif
	return ncclSuccess;
}

static ncclResult_t listen_v11(void *ctx, int dev, void *handle, void **listen_comm)
{
	return ctx == &contexts ? ref_listen(dev, handle, listen_comm) : ncclInvalidArgument;
}

static ncclResult_t connect_v11(void *ctx, int dev, void *handle, void **comm,
				ncclNetDeviceHandle_v11_t **devc)
{
	return ctx == &contexts ? connect_v8(dev, handle, comm, devc) : ncclInvalidArgument;
}

static ncclResult_t set_net_attr_v11(void *ctx, ncclNetAttr_v11_t *attr)
{
	(void)attr; /* a hint */
#ifdef REF_BREAK_NET_ATTR
	if (attr->op == UINT32_MAX)
		return ncclInvalidArgument;
#endif
	return ctx == &contexts ? ncclSuccess : ncclInvalidArgument;
}

static ncclResult_t properties_v11(int dev, ncclNetProperties_v11_t *props)
{
	FILL_PROPERTIES(props, dev);
	props->maxMultiRequestSize = 1;
	return ncclSuccess;
}

static ncclResult_t properties_v12(int dev, ncclNetProperties_v12_t *props)
{
	FILL_PROPERTIES(props, dev);
	props->maxMultiRequestSize = 1;
	props->railId = props->planeId = NCCL_NET_ID_UNDEF;
	return ncclSuccess;
}

#define COMMON_V11                                                                                 \
	COMMON, .listen = listen_v11, .connect = connect_v11, .isend = isend_v10,                  \
		.irecv = irecv_v10, .finalize = finalize_v11, .setNetAttr = set_net_attr_v11

TABLE(v11, init_v11, COMMON_V11, .getProperties = properties_v11);
TABLE(v12, init_v11, COMMON_V11, .getProperties = properties_v12);

#ifdef REF_FILLS_IN_INIT
static void fill_tables(void)
{
	ncclNetPlugin_v8 = full_v8;
	ncclNetPlugin_v9 = full_v9;
	ncclNetPlugin_v10 = full_v10;
	ncclNetPlugin_v11 = full_v11;
	ncclNetPlugin_v12 = full_v12;
}
#endif
