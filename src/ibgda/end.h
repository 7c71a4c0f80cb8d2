/* SPDX-License-Identifier: Apache-2.0 */
/* What nccl_ha/ibgda.h calls an end of a stream. */
#ifndef HA_IBGDA_END_H
#define HA_IBGDA_END_H

#include "base/list.h"
#include "ibgda/context.h"
#include "ibgda/receiver.h"
#include "ibgda/sender.h"
#include "ibgda/socket.h"

#include <stdint.h>

struct ha_ibgda_end {
	struct ha_ibgda_context *context;
	struct ha_list in_context;
	struct ha_ibgda_socket socket;
	/* One of them: NULL, the other one. */
	struct ha_ibgda_sender *sender;
	struct ha_ibgda_receiver *receiver;
};

#endif
