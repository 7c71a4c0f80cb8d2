/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ethernet frames around RoCE v2 datagrams: Ethernet, IPv4 or IPv6, UDP. Pure functions; any
 * thread.
 */
#ifndef SV_ROCE_FRAME_H
#define SV_ROCE_FRAME_H

#include "simverbs/roce/packet.h"

#define SV_ROCE_FRONT_BYTES 62u /* Ethernet, IPv6, UDP */

/* Writes what stands before a datagram of `length` bytes (a multiple of four), but for the Ethernet
 * addresses (the first 12). Its length: SV_ROCE_FRONT_BYTES at most. */
size_t sv_roce_frame_front(uint8_t *front, const struct sv_roce_flow *flow, uint8_t traffic_class,
			   uint8_t hop_limit, const uint8_t *datagram, size_t length);

/*
 * Finds the datagram to SV_ROCE_PORT in a frame of `length` bytes. False: it has none. One whose
 * headers say more than there is has *datagram_length 0.
 */
bool sv_roce_frame_take(const uint8_t *frame, size_t length, struct sv_roce_flow *flow,
			const uint8_t **datagram, size_t *datagram_length);

#endif
