/* SPDX-License-Identifier: Apache-2.0 */
#include "gin_api.h"

const char *const gin_api_symbols[GIN_APIS] = {"ncclGinPlugin_v11", "ncclGinPlugin_v12",
					       "ncclGinPlugin_v13", "ncclRmaPlugin_v13",
					       "ncclRmaPlugin_v14"};

static enum gin_api which;
static const ncclGin_v12_t *v12;
static const ncclGin_v13_t *v13;
static const ncclRma_v14_t *v14;
static ncclGin_v11_t table;
static void *context; /* of v13 and v14 */
static int turn;

static int next_context(void)
{
	return turn++ % GIN_API_CONTEXTS;
}

/* ---- version 12 ----------------------------------------------------------------------------- */

static ncclResult_t connect_12(void *ctx, void *handles[], int nranks, int rank, void *listen,
			       void **coll)
{
	return v12->connect(ctx, handles, nranks, rank, GIN_API_CONTEXTS, 0, listen, coll);
}

static ncclResult_t put_12(void *coll, uint64_t from_offset, void *from, size_t size,
			   uint64_t to_offset, void *to, uint32_t rank, void **request)
{
	return v12->iput(coll, from_offset, from, size, to_offset, to, rank, next_context(),
			 request);
}

static ncclResult_t signal_12(void *coll, uint64_t from_offset, void *from, size_t size,
			      uint64_t to_offset, void *to, uint32_t rank, uint64_t at,
			      void *signals, uint64_t value, uint32_t op, void **request)
{
	return v12->iputSignal(coll, from_offset, from, size, to_offset, to, rank, at, signals,
			       value, op, next_context(), request);
}

/* ---- version 13, and 14 of RMA -------------------------------------------------------------- */

static ncclResult_t properties_v12(int dev, ncclNetProperties_v11_t *props)
{
	ncclNetProperties_v12_t all;
	ncclResult_t result =
	    which == RMA_V14 ? v14->getProperties(dev, &all) : v13->getProperties(dev, &all);

	if (result != ncclSuccess)
		return result;
	props->netDeviceType = all.netDeviceType;
	props->maxRecvs = all.maxRecvs;
	return ncclSuccess;
}

static ncclResult_t connect_13(void *ctx, void *handles[], int nranks, int rank, void *listen,
			       void **coll)
{
	ncclGinConfig_v13_t config = {.nContexts = GIN_API_CONTEXTS};
	ncclRmaConfig_v14_t rma = {.nContexts = GIN_API_CONTEXTS, .rankStride = 1};
	ncclResult_t result = which == RMA_V14
				  ? v14->connect(ctx, handles, nranks, rank, listen, coll)
				  : v13->connect(ctx, handles, nranks, rank, listen, coll);

	if (result != ncclSuccess)
		return result;
	return which == RMA_V14 ? v14->createContext(*coll, &rma, &context)
				: v13->createContext(*coll, &config, &context, NULL);
}

static ncclResult_t register_14(void *coll, void *data, size_t size, int type, uint64_t flags,
				void **mhandle, void **gin_handle)
{
	ncclResult_t result = v14->regMrSym(coll, data, size, type, flags, mhandle);

	*gin_handle = *mhandle;
	return result;
}

static ncclResult_t put_13(void *coll, uint64_t from_offset, void *from, size_t size,
			   uint64_t to_offset, void *to, uint32_t rank, void **request)
{
	(void)coll;
	return (which == RMA_V14 ? v14->iput : v13->iput)(context, next_context(), from_offset,
							  from, size, to_offset, to, rank, request);
}

static ncclResult_t signal_13(void *coll, uint64_t from_offset, void *from, size_t size,
			      uint64_t to_offset, void *to, uint32_t rank, uint64_t at,
			      void *signals, uint64_t value, uint32_t op, void **request)
{
	(void)coll;
	if (which == RMA_V14)
		return v14->iputSignal(context, next_context(), from_offset, from, size, to_offset,
				       to, rank, at, signals, value, op, turn % 2 == 0, request);
	return v13->iputSignal(context, next_context(), from_offset, from, size, to_offset, to,
			       rank, at, signals, value, op, request);
}

static ncclResult_t progress_13(void *coll)
{
	bool has_error = true;
	ncclResult_t result;

	(void)coll;
	if (!context) /* while it connects */
		return ncclSuccess;
	result = (which == RMA_V14 ? v14->rmaProgress : v13->ginProgress)(context);
	if ((which == RMA_V14 ? v14->queryLastError : v13->queryLastError)(context, &has_error) !=
	    ncclSuccess)
		return ncclInternalError;
	return has_error && result == ncclSuccess ? ncclInternalError : result;
}

static ncclResult_t close_13(void *coll)
{
	ncclResult_t result =
	    (which == RMA_V14 ? v14->destroyContext : v13->destroyContext)(context);

	context = NULL;
	return result != ncclSuccess ? result
				     : (which == RMA_V14 ? v14->closeColl : v13->closeColl)(coll);
}

static ncclResult_t get_13(uint64_t from_offset, void *from, size_t size, uint64_t to_offset,
			   void *to, uint32_t rank, void **request)
{
	return (which == RMA_V14 ? v14->iget : v13->iget)(context, next_context(), from_offset,
							  from, size, to_offset, to, rank, request);
}

static ncclResult_t flush_13(void *mhandle, uint32_t rank, void **request)
{
	return (which == RMA_V14 ? v14->iflush : v13->iflush)(context, next_context(), mhandle,
							      rank, request);
}

/* ---- all ------------------------------------------------------------------------------------ */

#define TAKE_SAME(from)                                                                            \
	do {                                                                                       \
		table.name = (from)->name;                                                         \
		table.init = (from)->init;                                                         \
		table.devices = (from)->devices;                                                   \
		table.listen = (from)->listen;                                                     \
		table.deregMrSym = (from)->deregMrSym;                                             \
		table.closeColl = (from)->closeColl;                                               \
		table.closeListen = (from)->closeListen;                                           \
		table.test = (from)->test;                                                         \
		table.finalize = (from)->finalize;                                                 \
	} while (0)

static void take_contexts(void)
{
	table.getProperties = properties_v12;
	table.connect = connect_13;
	table.iput = put_13;
	table.iputSignal = signal_13;
	table.ginProgress = progress_13;
	table.closeColl = close_13;
}

static void take_12(void)
{
	TAKE_SAME(v12);
	table.getProperties = v12->getProperties;
	table.connect = connect_12;
	table.regMrSym = v12->regMrSym;
	table.regMrSymDmaBuf = v12->regMrSymDmaBuf;
	table.iput = put_12;
	table.iputSignal = signal_12;
	table.ginProgress = v12->ginProgress;
}

const ncclGin_v11_t *gin_api_load(enum gin_api api, const void *of)
{
	which = api;
	switch (api) {
	case GIN_V11:
		table = *(const ncclGin_v11_t *)of;
		break;
	case GIN_V12:
		v12 = of;
		take_12();
		break;
	case GIN_V13:
	case RMA_V13:
		v13 = of;
		TAKE_SAME(v13);
		table.regMrSym = v13->regMrSym;
		take_contexts();
		break;
	case RMA_V14:
		v14 = of;
		TAKE_SAME(v14);
		table.regMrSym = register_14;
		take_contexts();
		break;
	case GIN_APIS:
		return NULL;
	}
	return &table;
}

gin_api_get *gin_api_iget(void)
{
	return which >= GIN_V13 ? get_13 : NULL;
}

gin_api_flush *gin_api_iflush(void)
{
	return which >= GIN_V13 ? flush_13 : NULL;
}

int gin_api_has_error(void)
{
	bool has_error = false;

	if (which < GIN_V13)
		return -1;
	if ((which == RMA_V14 ? v14->queryLastError : v13->queryLastError)(context, &has_error) !=
	    ncclSuccess)
		return 1;
	return has_error;
}
