/* SPDX-License-Identifier: Apache-2.0 */
/* What hosts of a stream say to each other (message.h), as bytes: one length, little-endian. */
#ifndef HA_IBGDA_WIRE_H
#define HA_IBGDA_WIRE_H

#include "ibgda/message.h"

#include <stdbool.h>
#include <stdint.h>

#define HA_IBGDA_FRAME (60u + 4u * HA_IBGDA_REGIONS + 8u * HA_IBGDA_IDS)

void ha_ibgda_wire_encode(const struct ha_ibgda_message *message, uint8_t frame[HA_IBGDA_FRAME]);
/* False: nobody of ours has said it, or not in a version that is known here. */
bool ha_ibgda_wire_decode(const uint8_t frame[HA_IBGDA_FRAME], struct ha_ibgda_message *out);

#endif
