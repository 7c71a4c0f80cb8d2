/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/common/netproperties.h"

#include <string.h>

/* What NCCL takes for the largest message of a plugin that cannot say. */
#define V8_MAX_MESSAGE_BYTES (1024ull * 1024 * 1024)

/* The members that every version has. */
#define COPY_COMMON(to, from)                                                                      \
	do {                                                                                       \
		(to)->name = (from).name;                                                          \
		(to)->pciPath = (from).pciPath;                                                    \
		(to)->guid = (from).guid;                                                          \
		(to)->ptrSupport = (from).ptrSupport;                                              \
		(to)->regIsGlobal = (from).regIsGlobal;                                            \
		(to)->speed = (from).speed;                                                        \
		(to)->port = (from).port;                                                          \
		(to)->latency = (from).latency;                                                    \
		(to)->maxComms = (from).maxComms;                                                  \
		(to)->maxRecvs = (from).maxRecvs;                                                  \
		(to)->netDeviceType = (from).netDeviceType;                                        \
		(to)->netDeviceVersion = (from).netDeviceVersion;                                  \
	} while (0)

/* The members that came with v9. ndevs is copied as it is, right or wrong. */
#define COPY_SINCE_V9(to, from)                                                                    \
	do {                                                                                       \
		(to)->forceFlush = (from).forceFlush;                                              \
		(to)->vProps.ndevs = (from).vProps.ndevs;                                          \
		memcpy((to)->vProps.devs, (from).vProps.devs, sizeof((from).vProps.devs));         \
		(to)->maxP2pBytes = (from).maxP2pBytes;                                            \
		(to)->maxCollBytes = (from).maxCollBytes;                                          \
	} while (0)

static void neutral_properties(int dev, ncclNetProperties_v12_t *props)
{
	memset(props, 0, sizeof(*props));
	props->vProps.ndevs = 1;
	props->vProps.devs[0] = dev;
	props->maxP2pBytes = V8_MAX_MESSAGE_BYTES;
	props->maxCollBytes = V8_MAX_MESSAGE_BYTES;
	props->maxMultiRequestSize = 1;
	props->railId = NCCL_NET_ID_UNDEF;
	props->planeId = NCCL_NET_ID_UNDEF;
}

ncclResult_t np_properties_through(int api, union np_properties_entry entry, int dev,
				   ncclNetProperties_v12_t *props)
{
	union {
		ncclNetProperties_v8_t v8;
		ncclNetProperties_v9_t v9;
		ncclNetProperties_v10_t v10;
		ncclNetProperties_v11_t v11;
	} old;
	ncclResult_t result;

	memset(&old, 0, sizeof(old));
	neutral_properties(dev, props);
	switch (api) {
	case 8:
		result = entry.v8(dev, &old.v8);
		COPY_COMMON(props, old.v8);
		return result;
	case 9:
		result = entry.v9(dev, &old.v9);
		COPY_COMMON(props, old.v9);
		COPY_SINCE_V9(props, old.v9);
		return result;
	case 10:
		result = entry.v10(dev, &old.v10);
		COPY_COMMON(props, old.v10);
		COPY_SINCE_V9(props, old.v10);
		return result;
	case 11:
		result = entry.v11(dev, &old.v11);
		COPY_COMMON(props, old.v11);
		COPY_SINCE_V9(props, old.v11);
		props->maxMultiRequestSize = old.v11.maxMultiRequestSize;
		return result;
	default:
		return entry.v12(dev, props);
	}
}
