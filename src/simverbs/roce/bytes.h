/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers in the order of the network, at any place in memory, and IPv4 addresses as GIDs. */
#ifndef SV_ROCE_BYTES_H
#define SV_ROCE_BYTES_H

#include <endian.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <string.h>

/* Write one, and return what is behind it. */
static inline uint8_t *sv_put16(uint8_t *at, uint16_t value)
{
	value = htobe16(value);
	memcpy(at, &value, sizeof(value));
	return at + sizeof(value);
}

static inline uint8_t *sv_put32(uint8_t *at, uint32_t value)
{
	value = htobe32(value);
	memcpy(at, &value, sizeof(value));
	return at + sizeof(value);
}

static inline uint8_t *sv_put64(uint8_t *at, uint64_t value)
{
	value = htobe64(value);
	memcpy(at, &value, sizeof(value));
	return at + sizeof(value);
}

static inline uint16_t sv_get16(const uint8_t *at)
{
	uint16_t value;

	memcpy(&value, at, sizeof(value));
	return be16toh(value);
}

static inline uint32_t sv_get32(const uint8_t *at)
{
	uint32_t value;

	memcpy(&value, at, sizeof(value));
	return be32toh(value);
}

static inline uint64_t sv_get64(const uint8_t *at)
{
	uint64_t value;

	memcpy(&value, at, sizeof(value));
	return be64toh(value);
}

/* ::ffff:a.b.c.d of the four bytes at `address`. */
static inline void sv_map_v4(union ibv_gid *gid, const void *address)
{
	*gid = (union ibv_gid){.raw = {[10] = 0xff, [11] = 0xff}};
	memcpy(gid->raw + 12, address, 4);
}

#endif
