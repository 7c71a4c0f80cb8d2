/* SPDX-License-Identifier: Apache-2.0 */
/* What NCCL is told about each device: what it is, not what we would like it to be. */
#include "instance/instance.h"
#include "plugin/plugin.h"

#include "base/log.h"
#include "device/device.h"
#include "transport/transport.h"

/* NCCL's ring and tree models; its own transport leaves this at 0 for the same meaning. */
#define LATENCY_UNKNOWN 0.0f

static const struct ha_bundle *bundle_of(int dev)
{
	struct ha_instance *instance = ha_plugin_instance();
	const struct ha_bundle *bundle;

	if (!instance) {
		HA_WARN("getProperties before init");
		return NULL;
	}
	bundle = ha_bundle_of_device(ha_instance_devices(instance), dev);
	if (!bundle)
		HA_WARN("getProperties: there is no device %d", dev);
	return bundle;
}

/* Every rail may have to carry it. */
static size_t max_message(const struct ha_bundle *bundle)
{
	size_t max = SIZE_MAX;

	for (int i = 0; i < bundle->nrails; i++) {
		size_t here = ha_max_message(bundle->rails[i]);

		max = here < max ? here : max;
	}
	return max;
}

/* Of its ports among all: NCCL looks them up where it has fused them, and those are its devices. */
static ncclNetVDeviceProps_v12_t positions_of(const struct ha_bundle *bundle)
{
	ncclNetVDeviceProps_v12_t out = {.ndevs = bundle->nrails};

	for (int i = 0; i < bundle->nrails; i++)
		out.devs[i] = bundle->rails[i]->index;
	return out;
}

ncclResult_t ha_plugin_properties_v12(int dev, ncclNetProperties_v12_t *props)
{
	const struct ha_bundle *bundle = bundle_of(dev);
	const struct ha_port *port;

	if (!bundle)
		return ncclInvalidArgument;
	port = bundle->rails[0];
	*props = (ncclNetProperties_v12_t){
	    .name = (char *)(uintptr_t)bundle->name,
	    .pciPath = port->nic->pci_path[0] ? (char *)(uintptr_t)port->nic->pci_path : NULL,
	    .guid = port->nic->guid,
	    .ptrSupport = bundle->ptr_support,
	    /* A registration knows its memory, not a connection: see memory/mr.h. */
	    .regIsGlobal = 1,
	    .forceFlush = 0,
	    .speed = bundle->speed_mbps,
	    .port = port->port_num,
	    .latency = LATENCY_UNKNOWN,
	    .maxComms = bundle->max_comms,
	    .maxRecvs = port->config->max_recvs,
	    .netDeviceType = NCCL_NET_DEVICE_HOST,
	    .netDeviceVersion = NCCL_NET_DEVICE_INVALID_VERSION,
	    .vProps = positions_of(bundle),
	    .maxP2pBytes = max_message(bundle),
	    .maxCollBytes = max_message(bundle),
	    .maxMultiRequestSize = 1,
	    .railId = bundle->rail_id,
	    .planeId = bundle->plane_id,
	};
	return ncclSuccess;
}

/* ---- older versions have some of these members ---------------------------------------------- */

#define COPY_V8(to, from)                                                                          \
	do {                                                                                       \
		(to)->name = (from)->name;                                                         \
		(to)->pciPath = (from)->pciPath;                                                   \
		(to)->guid = (from)->guid;                                                         \
		(to)->ptrSupport = (from)->ptrSupport;                                             \
		(to)->regIsGlobal = (from)->regIsGlobal;                                           \
		(to)->speed = (from)->speed;                                                       \
		(to)->port = (from)->port;                                                         \
		(to)->latency = (from)->latency;                                                   \
		(to)->maxComms = (from)->maxComms;                                                 \
		(to)->maxRecvs = (from)->maxRecvs;                                                 \
		(to)->netDeviceType = (from)->netDeviceType;                                       \
		(to)->netDeviceVersion = (from)->netDeviceVersion;                                 \
	} while (0)

#define COPY_V9(to, from)                                                                          \
	do {                                                                                       \
		COPY_V8(to, from);                                                                 \
		(to)->forceFlush = (from)->forceFlush;                                             \
		(to)->vProps.ndevs = (from)->vProps.ndevs;                                         \
		for (int rail = 0; rail < (from)->vProps.ndevs; rail++)                            \
			(to)->vProps.devs[rail] = (from)->vProps.devs[rail];                       \
		(to)->maxP2pBytes = (from)->maxP2pBytes;                                           \
		(to)->maxCollBytes = (from)->maxCollBytes;                                         \
	} while (0)

ncclResult_t ha_plugin_properties_v8(int dev, ncclNetProperties_v8_t *props)
{
	ncclNetProperties_v12_t all;
	ncclResult_t result = ha_plugin_properties_v12(dev, &all);

	if (result == ncclSuccess)
		COPY_V8(props, &all);
	return result;
}

ncclResult_t ha_plugin_properties_v9(int dev, ncclNetProperties_v9_t *props)
{
	ncclNetProperties_v12_t all;
	ncclResult_t result = ha_plugin_properties_v12(dev, &all);

	if (result == ncclSuccess)
		COPY_V9(props, &all);
	return result;
}

ncclResult_t ha_plugin_properties_v11(int dev, ncclNetProperties_v11_t *props)
{
	ncclNetProperties_v12_t all;
	ncclResult_t result = ha_plugin_properties_v12(dev, &all);

	if (result != ncclSuccess)
		return result;
	COPY_V9(props, &all);
	props->maxMultiRequestSize = all.maxMultiRequestSize;
	return ncclSuccess;
}
