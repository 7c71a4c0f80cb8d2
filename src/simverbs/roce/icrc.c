/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A register holds a polynomial with x^31 in bit 0 and x^0 in bit 31. Eight tables take eight bytes
 * a step. With carry-less multiplication 64 bytes are folded at once: what is in front is
 * multiplied by x to the power of the distance and added to what follows, until 16 bytes are left
 * that have the same remainder.
 */
#include "simverbs/roce/icrc.h"

#include "simverbs/roce/bytes.h"
#include "simverbs/roce/packet.h"

#include <arpa/inet.h>
#include <endian.h>
#include <pthread.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define POLYNOMIAL 0xedb88320u
#define ONE	   0x80000000u /* x^0 */
#define PRESET	   0xffffffffu

/* Of the pseudo header: what stands before the BTH. */
#define ONES_BYTES 8u
#define IPV4_BYTES 20u
#define IPV6_BYTES 40u
#define UDP_BYTES  8u
#define MARK_BYTE  4u /* of the BTH */
#define BTH_BYTES  12u

static struct {
	pthread_once_t once;
	uint32_t step[8][256]; /* a byte followed by so many zero bytes */
	uint32_t back[32];     /* x^(-8 * 2^i) */
	uint64_t fold_64[2], fold_16[2];
	bool folds;
} tables = {.once = PTHREAD_ONCE_INIT};

static uint32_t times_x(uint32_t p)
{
	return p & 1 ? p >> 1 ^ POLYNOMIAL : p >> 1;
}

/* The polynomial has an x^0, so this is exact. */
static uint32_t over_x(uint32_t p)
{
	return p & ONE ? (p ^ POLYNOMIAL) << 1 | 1 : p << 1;
}

static uint32_t multiply(uint32_t a, uint32_t b)
{
	uint32_t product = 0;

	for (; a; a <<= 1, b = times_x(b))
		if (a & ONE)
			product ^= b;
	return product;
}

/* x^n as the multiplication wants it: its product is one place short. */
static uint64_t fold_factor(unsigned n)
{
	uint32_t p = ONE;

	while (n--)
		p = times_x(p);
	return (uint64_t)p << 1;
}

static void make_tables(void)
{
	uint32_t back = ONE;

	for (uint32_t byte = 0; byte < 256; byte++) {
		uint32_t p = byte;

		for (int i = 0; i < 8; i++)
			p = times_x(p);
		tables.step[0][byte] = p;
	}
	for (int zeros = 1; zeros < 8; zeros++)
		for (uint32_t byte = 0; byte < 256; byte++) {
			uint32_t p = tables.step[zeros - 1][byte];

			tables.step[zeros][byte] = p >> 8 ^ tables.step[0][p & 0xff];
		}
	for (int i = 0; i < 8; i++)
		back = over_x(back);
	for (int i = 0; i < 32; i++, back = multiply(back, back))
		tables.back[i] = back;
	/* The first eight bytes of sixteen are 64 places further away than the last eight. */
	tables.fold_64[0] = fold_factor(512 + 32);
	tables.fold_64[1] = fold_factor(512 - 32);
	tables.fold_16[0] = fold_factor(128 + 32);
	tables.fold_16[1] = fold_factor(128 - 32);
#if defined(__x86_64__)
	tables.folds = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
#endif
}

static uint32_t by_table(uint32_t crc, const uint8_t *data, size_t length)
{
	for (; length >= 8; data += 8, length -= 8) {
		uint64_t word;

		memcpy(&word, data, sizeof(word));
		word = le64toh(word) ^ crc;
		crc = 0;
		for (int i = 0; i < 8; i++)
			crc ^= tables.step[7 - i][word >> 8 * i & 0xff];
	}
	while (length--)
		crc = crc >> 8 ^ tables.step[0][(crc ^ *data++) & 0xff];
	return crc;
}

#if defined(__x86_64__)
#define FOLDS __attribute__((target("pclmul,sse4.1")))

static inline FOLDS __m128i load(const uint8_t *data)
{
	return _mm_loadu_si128((const __m128i *)(const void *)data);
}

static inline FOLDS __m128i fold(__m128i front, __m128i factors, __m128i next)
{
	return _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(front, factors, 0x00),
					   _mm_clmulepi64_si128(front, factors, 0x11)),
			     next);
}

/* Of 64 bytes and more. */
static FOLDS uint32_t by_folding(uint32_t crc, const uint8_t *data, size_t length)
{
	const __m128i by_64 =
	    _mm_set_epi64x((long long)tables.fold_64[1], (long long)tables.fold_64[0]);
	const __m128i by_16 =
	    _mm_set_epi64x((long long)tables.fold_16[1], (long long)tables.fold_16[0]);
	__m128i part[4];
	uint8_t last[16];

	for (int i = 0; i < 4; i++)
		part[i] = load(data + 16 * i);
	part[0] = _mm_xor_si128(part[0], _mm_cvtsi32_si128((int)crc));
	for (data += 64, length -= 64; length >= 64; data += 64, length -= 64)
		for (int i = 0; i < 4; i++)
			part[i] = fold(part[i], by_64, load(data + 16 * i));
	for (int i = 1; i < 4; i++)
		part[i] = fold(part[i - 1], by_16, part[i]);
	for (; length >= 16; data += 16, length -= 16)
		part[3] = fold(part[3], by_16, load(data));
	_mm_storeu_si128((__m128i *)(void *)last, part[3]);
	return by_table(by_table(0, last, sizeof(last)), data, length);
}
#endif

uint32_t sv_crc32_by_table(uint32_t crc, const void *data, size_t length)
{
	pthread_once(&tables.once, make_tables);
	return by_table(crc, data, length);
}

uint32_t sv_crc32(uint32_t crc, const void *data, size_t length)
{
	pthread_once(&tables.once, make_tables);
#if defined(__x86_64__)
	if (tables.folds && length >= 64)
		return by_folding(crc, data, length);
#endif
	return by_table(crc, data, length);
}

/* ---------------------------------------------------------------- pseudo header */

bool sv_roce_is_v4(const union ibv_gid *gid)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

	return !memcmp(gid->raw, mapped, sizeof(mapped));
}

static uint8_t *put_ipv4(uint8_t *at, const struct sv_roce_flow *flow, size_t udp_bytes)
{
	*at++ = 0x45;
	*at++ = 0xff; /* type of service */
	at = sv_put16(at, (uint16_t)(IPV4_BYTES + udp_bytes));
	at = sv_put16(at, flow->id);
	at = sv_put16(at, 0x4000); /* do not fragment */
	*at++ = 0xff;		   /* time to live */
	*at++ = IPPROTO_UDP;
	at = sv_put16(at, 0xffff); /* checksum */
	memcpy(at, flow->src.raw + 12, 4);
	memcpy(at + 4, flow->dst.raw + 12, 4);
	return at + 8;
}

static uint8_t *put_ipv6(uint8_t *at, const struct sv_roce_flow *flow, size_t udp_bytes)
{
	memset(at, 0xff, 4); /* traffic class and flow label */
	*at = 0x6f;
	at = sv_put16(at + 4, (uint16_t)udp_bytes);
	*at++ = IPPROTO_UDP;
	*at++ = 0xff; /* hop limit */
	memcpy(at, flow->src.raw, 16);
	memcpy(at + 16, flow->dst.raw, 16);
	return at + 32;
}

uint32_t sv_icrc(const struct sv_roce_flow *flow, const uint8_t *datagram, size_t length)
{
	uint8_t front[ONES_BYTES + IPV6_BYTES + UDP_BYTES + BTH_BYTES], *at = front + ONES_BYTES;
	size_t udp_bytes = UDP_BYTES + length + SV_ICRC_BYTES;
	uint32_t crc;

	memset(front, 0xff, ONES_BYTES);
	at = sv_roce_is_v4(&flow->dst) ? put_ipv4(at, flow, udp_bytes)
				       : put_ipv6(at, flow, udp_bytes);
	at = sv_put16(at, flow->sport);
	at = sv_put16(at, SV_ROCE_PORT);
	at = sv_put16(at, (uint16_t)(udp_bytes));
	at = sv_put16(at, 0xffff); /* checksum */
	memcpy(at, datagram, BTH_BYTES);
	at[MARK_BYTE] = 0xff;
	crc = sv_crc32(PRESET, front, (size_t)(at - front) + BTH_BYTES);
	return ~sv_crc32(crc, datagram + BTH_BYTES, length - BTH_BYTES);
}

/*
 * The CRC is linear: two packets that differ in their identification alone have ICRCs whose
 * difference is that of the identifications, times x^8 for each byte from it on. Divided by that
 * again, it must lie within those 16 places.
 */
bool sv_icrc_fits_some_id(uint32_t came, uint32_t for_id_0, size_t length)
{
	size_t bytes = 2 + IPV4_BYTES - 6 + UDP_BYTES + length; /* from the identification on */
	uint32_t difference = came ^ for_id_0;

	pthread_once(&tables.once, make_tables);
	for (int i = 0; bytes; i++, bytes >>= 1)
		if (bytes & 1)
			difference = multiply(difference, tables.back[i]);
	return difference >> 16 == 0;
}
