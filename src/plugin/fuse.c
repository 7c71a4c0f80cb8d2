/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices that NCCL has fused (HA_NCCL_RAILS=nccl). A table offers it only then: where a plugin has
 * makeVDevice, NCCL fuses the ports of a NIC unasked.
 */
#include "instance/instance.h"
#include "plugin/plugin.h"

#include "base/log.h"
#include "device/bundle.h"

static ncclResult_t fuse(int *dev, const int *devs, int n)
{
	struct ha_instance *instance = ha_plugin_instance();

	*dev = -1;
	if (ha_plugin_is_foreign("makeVDevice"))
		return ncclInvalidUsage;
	if (!instance) {
		HA_WARN("makeVDevice before init");
		return ncclInvalidUsage;
	}
	return (ncclResult_t)ha_instance_fuse(instance, devs, n, dev);
}

ncclResult_t ha_plugin_make_vdevice_v9(int *dev, ncclNetVDeviceProps_v9_t *props)
{
	return fuse(dev, props->devs, props->ndevs);
}

ncclResult_t ha_plugin_make_vdevice_v12(int *dev, ncclNetVDeviceProps_v12_t *props)
{
	return fuse(dev, props->devs, props->ndevs);
}
