/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a collective group of NCCL's is called at the controller: its group after what rank 0 has
 * handed out, and a rank's port after the host and the NIC.
 *
 * A handle is 128 bytes, of which NCCL carries all to every rank: magic (4), version (4), 16 random
 * bytes, zero.
 */
#ifndef HA_INC_COLL_NAMES_H
#define HA_INC_COLL_NAMES_H

#include "base/config.h"
#include "device/device.h"

#include <stdbool.h>

#define HA_COLL_HANDLE_BYTES 128
#define HA_COLL_GROUP_NAME   64
#define HA_COLL_PORT_NAME    192

void ha_coll_handle_make(void *handle);
/* False: these bytes are no handle of this version. */
bool ha_coll_group_name(const void *handle, char out[HA_COLL_GROUP_NAME]);

/* HOST/NIC, where HOST is HA_NCCL_INC_HOST or the host's name up to its first dot. */
void ha_coll_port_name(const struct ha_config *config, const struct ha_port *port,
		       char out[HA_COLL_PORT_NAME]);

#endif
