/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a plugin says of a device, whatever the version of its table, in version 12's form. The
 * tables of the net and of the collNet have the same types for it.
 */
#ifndef NP_NETPROPERTIES_H
#define NP_NETPROPERTIES_H

#include "nccl_ha/nccl_net.h"

/* getProperties of a table. */
union np_properties_entry {
	ncclResult_t (*v8)(int dev, ncclNetProperties_v8_t *props);
	ncclResult_t (*v9)(int dev, ncclNetProperties_v9_t *props);
	ncclResult_t (*v10)(int dev, ncclNetProperties_v10_t *props);
	ncclResult_t (*v11)(int dev, ncclNetProperties_v11_t *props);
	ncclResult_t (*v12)(int dev, ncclNetProperties_v12_t *props);
};

/*
 * What the version cannot say gets its neutral value. api: 8 … 12, which member of the entry is
 * meant.
 */
ncclResult_t np_properties_through(int api, union np_properties_entry entry, int dev,
				   ncclNetProperties_v12_t *props);

#endif
