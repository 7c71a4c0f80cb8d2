/* SPDX-License-Identifier: Apache-2.0 */
/* What NCCL is told about each port: what it is, not what we would like it to be. */
#include "instance/instance.h"
#include "plugin/plugin.h"

#include "base/log.h"
#include "device/device.h"
#include "transport/transport.h"

/* NCCL's ring and tree models; its own transport leaves this at 0 for the same meaning. */
#define LATENCY_UNKNOWN 0.0f

static const struct ha_port *port_of(int dev)
{
	struct ha_instance *instance = ha_plugin_instance();
	const struct ha_device_set *set;

	if (!instance) {
		HA_WARN("getProperties before init");
		return NULL;
	}
	set = ha_instance_devices(instance);
	if (dev < 0 || dev >= set->nports) {
		HA_WARN("getProperties: there is no device %d", dev);
		return NULL;
	}
	return &set->ports[dev];
}

ncclResult_t ha_plugin_properties_v12(int dev, ncclNetProperties_v12_t *props)
{
	const struct ha_port *port = port_of(dev);

	if (!port)
		return ncclInvalidArgument;
	*props = (ncclNetProperties_v12_t){
	    .name = (char *)(uintptr_t)port->nic->name,
	    .pciPath = port->nic->pci_path[0] ? (char *)(uintptr_t)port->nic->pci_path : NULL,
	    .guid = port->nic->guid,
	    .ptrSupport = ha_nic_ptr_support(port->nic),
	    /* A registration knows its memory, not a connection: see memory/mr.h. */
	    .regIsGlobal = 1,
	    .forceFlush = 0,
	    .speed = atomic_load(&port->speed_mbps),
	    .port = port->port_num,
	    .latency = LATENCY_UNKNOWN,
	    .maxComms = port->max_comms,
	    .maxRecvs = port->config->max_recvs,
	    .netDeviceType = NCCL_NET_DEVICE_HOST,
	    .netDeviceVersion = NCCL_NET_DEVICE_INVALID_VERSION,
	    .vProps = {.ndevs = 1, .devs = {dev}},
	    .maxP2pBytes = ha_max_message(port),
	    .maxCollBytes = ha_max_message(port),
	    .maxMultiRequestSize = 1,
	    .railId = NCCL_NET_ID_UNDEF,
	    .planeId = NCCL_NET_ID_UNDEF,
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

/* One physical device is behind each of ours. */
#define COPY_V9(to, from)                                                                          \
	do {                                                                                       \
		COPY_V8(to, from);                                                                 \
		(to)->forceFlush = (from)->forceFlush;                                             \
		(to)->vProps.ndevs = (from)->vProps.ndevs;                                         \
		(to)->vProps.devs[0] = (from)->vProps.devs[0];                                     \
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
