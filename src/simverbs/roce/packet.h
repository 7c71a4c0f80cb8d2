/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RoCE v2 datagrams: a descriptor of the core (of one MTU packet, engine.h) as bytes and back.
 *
 *	BTH | RETH, AETH, DETH, AtomicETH, AtomicAckETH, immediate, IETH | payload | pad | ICRC
 *
 * Pure functions; any thread. What comes from the network goes through sv_roce_decode() first,
 * which believes nothing.
 */
#ifndef SV_ROCE_PACKET_H
#define SV_ROCE_PACKET_H

#include "simverbs/engine.h"
#include "simverbs/roce/icrc.h"

#define SV_ROCE_PORT	    4791u
#define SV_ROCE_MAX_HEADERS 40u /* BTH and AtomicETH */
#define SV_ROCE_MAX_PAYLOAD 4096u
#define SV_ROCE_MAX_BYTES   (SV_ROCE_MAX_HEADERS + SV_ROCE_MAX_PAYLOAD + SV_ICRC_BYTES)

enum sv_roce_verdict {
	SV_ROCE_GOOD,
	SV_ROCE_CNP,	 /* a congestion notification */
	SV_ROCE_BAD,	 /* truncated, too long, or of a version that there is not */
	SV_ROCE_UNKNOWN, /* an opcode of a transport or operation that simverbs has not */
};

/* Bytes behind the payload that make it a multiple of four. */
static inline uint32_t sv_roce_pad(uint32_t payload_len)
{
	return -payload_len & 3;
}

/*
 * Writes BTH and what belongs to it; SV_ROCE_MAX_HEADERS bytes at most. Returns their number.
 * Payload, pad (zeros) and ICRC are the caller's to put behind them.
 */
uint32_t sv_roce_encode(const struct sv_packet *pkt, uint8_t *buf);

/*
 * Reads a datagram of `length` bytes, ICRC included (which is not looked at). On SV_ROCE_GOOD *pkt
 * has everything but addresses (src_port, dst_port, sport, the GIDs of a UD packet), and its
 * payload points into the datagram.
 */
enum sv_roce_verdict sv_roce_decode(const uint8_t *datagram, size_t length, struct sv_packet *pkt);

#endif
