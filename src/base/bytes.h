/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading and writing fixed little-endian layouts byte by byte. The caller has checked that the
 * buffer is as long as the layout.
 */
#ifndef HA_BASE_BYTES_H
#define HA_BASE_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct ha_writer {
	uint8_t *at;
};

static inline void ha_put_bytes(struct ha_writer *w, const void *data, size_t len)
{
	memcpy(w->at, data, len);
	w->at += len;
}

static inline void ha_put_zeros(struct ha_writer *w, size_t len)
{
	memset(w->at, 0, len);
	w->at += len;
}

static inline void ha_put_uint(struct ha_writer *w, uint64_t value, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		*w->at++ = (uint8_t)(value >> (8 * i));
}

struct ha_reader {
	const uint8_t *at;
};

static inline void ha_get_bytes(struct ha_reader *r, void *out, size_t len)
{
	memcpy(out, r->at, len);
	r->at += len;
}

static inline uint64_t ha_get_uint(struct ha_reader *r, size_t bytes)
{
	uint64_t value = 0;

	for (size_t i = 0; i < bytes; i++)
		value |= (uint64_t)*r->at++ << (8 * i);
	return value;
}

static inline uint8_t ha_get8(struct ha_reader *r)
{
	return (uint8_t)ha_get_uint(r, 1);
}

static inline uint16_t ha_get16(struct ha_reader *r)
{
	return (uint16_t)ha_get_uint(r, 2);
}

static inline uint32_t ha_get32(struct ha_reader *r)
{
	return (uint32_t)ha_get_uint(r, 4);
}

static inline uint64_t ha_get64(struct ha_reader *r)
{
	return ha_get_uint(r, 8);
}

/* Text for logs only: whatever is not printable becomes '?'. */
static inline void ha_get_text(struct ha_reader *r, char *out, size_t len)
{
	size_t used;

	ha_get_bytes(r, out, len);
	used = strnlen(out, len - 1);
	memset(out + used, 0, len - used);
	for (char *c = out; *c; c++)
		if (*c < 0x20 || *c > 0x7e)
			*c = '?';
}

static inline void ha_put_text(struct ha_writer *w, const char *text, size_t len)
{
	size_t used = strnlen(text, len - 1);

	ha_put_bytes(w, text, used);
	ha_put_zeros(w, len - used);
}

/* FNV-1a: tells damaged or foreign bytes from ours; nothing here needs more. */
uint32_t ha_checksum(const uint8_t *data, size_t len);

#endif
