/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PORTS: what each end says once after the handshake, the ports it could carry this connection
 * with, the primary one first and then in the order it would like. The receiver chooses pairs from
 * both lists. An index into such a list is how a port is named in messages.
 */
#ifndef HA_FAILOVER_PORT_OFFER_H
#define HA_FAILOVER_PORT_OFFER_H

#include "transport/wire.h"

#include <stddef.h>
#include <stdint.h>

#define HA_MAX_OFFERS 8

struct ha_offer {
	uint8_t link_layer;
	uint8_t port_num;
	uint8_t up;
	uint16_t lid;
	uint32_t speed_mbps;
	uint32_t live_qpn; /* heartbeats (struct ha_live_endpoint); 0: none */
	uint64_t live_id;
	uint64_t guid;
	uint8_t gid[16];
	char device[32];
};

struct ha_port_offers {
	uint8_t count;
	uint8_t rails; /* of the first offers: a bundle, in rail order; 0: as 1 */
	struct ha_offer offers[HA_MAX_OFFERS];
};

#define HA_OFFER_BYTES		 80
#define HA_PORT_OFFERS_MAX_BYTES (8 + HA_MAX_OFFERS * HA_OFFER_BYTES)

size_t ha_port_offers_encode(const struct ha_port_offers *in,
			     uint8_t out[HA_PORT_OFFERS_MAX_BYTES]);
/*
 * More offers than we take are ignored: they are the peer's last choice.
 */
enum ha_wire_result ha_port_offers_decode(const uint8_t *in, size_t len,
					  struct ha_port_offers *out);

#endif
