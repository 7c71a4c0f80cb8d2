/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The invariant CRC of RoCE v2: CRC-32 over what no router changes of a packet. Eight bytes of ones
 * come first, then the IP and UDP headers with ones for what may change on the way, then the
 * datagram with ones for the byte of the BTH in which congestion is marked.
 *
 * Pure functions; any thread.
 */
#ifndef SV_ROCE_ICRC_H
#define SV_ROCE_ICRC_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SV_ICRC_BYTES 4u

/* What the CRC covers of the headers before the datagram. IPv4 addresses are mapped ones. */
struct sv_roce_flow {
	union ibv_gid src, dst;
	uint16_t sport; /* UDP; the destination's is SV_ROCE_PORT */
	uint16_t id;	/* IPv4 identification */
};

/* ::ffff:a.b.c.d? */
bool sv_roce_is_v4(const union ibv_gid *gid);

/*
 * The register of a reflected CRC-32 after `length` more bytes; neither preset nor complemented
 * here. Uses the processor's carry-less multiplication where there is one.
 */
uint32_t sv_crc32(uint32_t crc, const void *data, size_t length);
/* The same by tables alone, as where the processor has nothing better. */
uint32_t sv_crc32_by_table(uint32_t crc, const void *data, size_t length);

/*
 * The ICRC of a datagram of `length` bytes, its ICRC not included, from the BTH on (12 bytes at
 * least). To be stored with its least significant byte first.
 */
uint32_t sv_icrc(const struct sv_roce_flow *flow, const uint8_t *datagram, size_t length);

/*
 * A UDP socket does not tell the identification of what it received. Of two ICRCs of one datagram,
 * the one that came and the one for identification 0: is there an identification for which the
 * former is right? 65536 of the 2^32 differences are of that kind.
 */
bool sv_icrc_fits_some_id(uint32_t came, uint32_t for_id_0, size_t length);

#endif
