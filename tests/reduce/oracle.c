/* SPDX-License-Identifier: Apache-2.0 */
#include "oracle.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* One element on its way through the tree: of these, what its type and operation are reckoned in.
 */
struct number {
	uint64_t integer;
	float single;
	double real;	 /* of sums of fp16: infinity or NaN, if there was one */
	int64_t units;	 /* of sums of fp16: multiples of 2^-24 */
	bool minus_zero; /* of sums of fp16: all were -0 */
};

enum how { INTEGERS, SINGLE, DOUBLE, UNITS };

static bool is_integer(unsigned int type)
{
	return type <= HA_REDUCE_UINT64;
}

static bool is_16_bit(unsigned int type)
{
	return type == HA_REDUCE_FP16 || type == HA_REDUCE_BF16;
}

static enum how how(unsigned int type, unsigned int op)
{
	if (is_integer(type))
		return INTEGERS;
	if (op == HA_REDUCE_MAX || op == HA_REDUCE_MIN || type == HA_REDUCE_FP64)
		return DOUBLE;
	return type == HA_REDUCE_FP16 && op == HA_REDUCE_SUM ? UNITS : SINGLE;
}

size_t oracle_bytes(unsigned int type, unsigned int op, enum ha_reduce_form form)
{
	static const size_t bytes[HA_REDUCE_TYPES] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};

	if (form == HA_REDUCE_WIDE && is_16_bit(type) && how(type, op) == UNITS)
		return sizeof(double);
	if (form == HA_REDUCE_WIDE && is_16_bit(type) && how(type, op) == SINGLE)
		return sizeof(float);
	return bytes[type];
}

/* ---- 16-bit floats -------------------------------------------------------------------------- */

static double value_of(unsigned int type, unsigned int bits)
{
	int fraction_bits = type == HA_REDUCE_FP16 ? 10 : 7;
	int exponent_bits = 15 - fraction_bits;
	int bias = (1 << (exponent_bits - 1)) - 1;
	int exponent = (int)(bits >> fraction_bits) & ((1 << exponent_bits) - 1);
	double fraction = (double)(bits & ((1u << fraction_bits) - 1));
	double magnitude;

	if (exponent == (1 << exponent_bits) - 1)
		magnitude = fraction > 0 ? (double)NAN : (double)INFINITY;
	else if (exponent == 0)
		magnitude = ldexp(fraction, 1 - bias - fraction_bits);
	else
		magnitude =
		    ldexp(fraction + ldexp(1, fraction_bits), exponent - bias - fraction_bits);
	return bits >> 15 ? -magnitude : magnitude;
}

double oracle_value(unsigned int type, unsigned int bits)
{
	static double values[2][0x10000]; /* each is reckoned once */
	double *known = values[type == HA_REDUCE_FP16];

	if (known[1] == 0)
		for (unsigned int i = 0; i < 0x10000; i++)
			known[i] = value_of(type, i);
	return known[bits];
}

/* What infinity would be if the exponents went on. */
static double beyond(unsigned int type)
{
	return ldexp(1, type == HA_REDUCE_FP16 ? 16 : 128);
}

static unsigned int infinity_of(unsigned int type)
{
	return type == HA_REDUCE_FP16 ? 0x7c00 : 0x7f80;
}

static double value_or_beyond(unsigned int type, unsigned int bits)
{
	return bits == infinity_of(type) ? beyond(type) : oracle_value(type, bits);
}

/* The nearest number there is; of two, the one whose last bit is 0. */
static unsigned int nearest(unsigned int type, double x)
{
	unsigned int low = 0, high = infinity_of(type), sign = signbit(x) ? 0x8000 : 0;
	double magnitude = fabs(x), below, above;

	if (isnan(x))
		return type == HA_REDUCE_FP16 ? 0x7e00 : 0x7fc0;
	if (magnitude >= beyond(type))
		return sign | infinity_of(type);
	while (high - low > 1) { /* value(low) <= magnitude < value(high) */
		unsigned int middle = (low + high) / 2;

		if (oracle_value(type, middle) <= magnitude)
			low = middle;
		else
			high = middle;
	}
	below = magnitude - oracle_value(type, low);
	above = value_or_beyond(type, high) - magnitude;
	if (below < above || (below == above && low % 2 == 0))
		return sign | low;
	return sign | high;
}

/* ---- elements ------------------------------------------------------------------------------- */

static uint64_t read_integer(unsigned int type, const char *at)
{
	switch (type) {
	case HA_REDUCE_INT8: {
		int8_t x;
		return memcpy(&x, at, sizeof(x)), (uint64_t)(int64_t)x;
	}
	case HA_REDUCE_UINT8: {
		uint8_t x;
		return memcpy(&x, at, sizeof(x)), x;
	}
	case HA_REDUCE_INT32: {
		int32_t x;
		return memcpy(&x, at, sizeof(x)), (uint64_t)(int64_t)x;
	}
	case HA_REDUCE_UINT32: {
		uint32_t x;
		return memcpy(&x, at, sizeof(x)), x;
	}
	default: {
		uint64_t x;
		return memcpy(&x, at, sizeof(x)), x;
	}
	}
}

static void write_integer(unsigned int type, char *at, uint64_t x)
{
	uint8_t x8 = (uint8_t)x;
	uint32_t x32 = (uint32_t)x;

	if (type <= HA_REDUCE_UINT8)
		memcpy(at, &x8, sizeof(x8));
	else if (type <= HA_REDUCE_UINT32)
		memcpy(at, &x32, sizeof(x32));
	else
		memcpy(at, &x, sizeof(x));
}

/* Floats of any size are doubles, too. */
static double read_float(unsigned int type, size_t bytes, const char *at)
{
	uint16_t half;
	float single;
	double real;

	if (bytes == sizeof(half))
		return memcpy(&half, at, sizeof(half)), oracle_value(type, half);
	if (bytes == sizeof(single))
		return memcpy(&single, at, sizeof(single)), (double)single;
	return memcpy(&real, at, sizeof(real)), real;
}

/* A NaN is the quiet one that has no sign and no payload. */
static void write_float(unsigned int type, size_t bytes, char *at, double x)
{
	uint16_t half;
	uint32_t single_nan = 0x7fc00000;
	uint64_t nan = 0x7ff8000000000000;
	float single = (float)x;

	if (bytes == sizeof(half))
		half = (uint16_t)nearest(type, x), memcpy(at, &half, sizeof(half));
	else if (bytes == sizeof(single))
		memcpy(at, isnan(x) ? (void *)&single_nan : (void *)&single, sizeof(single));
	else
		memcpy(at, isnan(x) ? (void *)&nan : (void *)&x, sizeof(x));
}

static struct number read_number(unsigned int type, enum how way, size_t bytes, const char *at)
{
	struct number x = {0};

	if (way == INTEGERS) {
		x.integer = read_integer(type, at);
		return x;
	}
	x.real = read_float(type, bytes, at);
	x.single = (float)x.real;
	if (way == UNITS && isfinite(x.real)) {
		x.units = (int64_t)ldexp(x.real, 24);
		x.minus_zero = x.real == 0 && signbit(x.real);
		x.real = 0;
	}
	return x;
}

static void write_number(unsigned int type, enum how way, size_t bytes, char *at,
			 const struct number *x)
{
	double real = x->real;

	if (way == INTEGERS) {
		write_integer(type, at, x->integer);
		return;
	}
	if (way == SINGLE)
		real = (double)x->single;
	if (way == UNITS && isfinite(real))
		real = x->minus_zero ? -0.0 : ldexp((double)x->units, -24);
	write_float(type, bytes, at, real);
}

/* ---- operations ----------------------------------------------------------------------------- */

static uint64_t integers(unsigned int type, unsigned int op, uint64_t a, uint64_t b)
{
	bool is_signed =
	    type == HA_REDUCE_INT8 || type == HA_REDUCE_INT32 || type == HA_REDUCE_INT64;
	bool first = is_signed ? (int64_t)a > (int64_t)b : a > b;

	switch (op) {
	case HA_REDUCE_SUM:
		return a + b;
	case HA_REDUCE_PROD:
		return a * b;
	case HA_REDUCE_MAX:
		return first ? a : b;
	default:
		return first ? b : a;
	}
}

static double larger(double a, double b)
{
	if (isnan(a) || isnan(b))
		return isnan(a) ? b : a;
	if (a == b)
		return signbit(a) ? b : a;
	return a > b ? a : b;
}

static struct number combine(unsigned int type, unsigned int op, const struct number *a,
			     const struct number *b)
{
	struct number x = {0};

	x.integer = integers(type, op, a->integer, b->integer);
	if (op == HA_REDUCE_SUM) {
		x.single = a->single + b->single;
		x.real = a->real + b->real;
		x.units = a->units + b->units;
		x.minus_zero = a->minus_zero && b->minus_zero;
	} else if (op == HA_REDUCE_PROD) {
		x.single = a->single * b->single;
		x.real = a->real * b->real;
	} else {
		x.real =
		    op == HA_REDUCE_MAX ? larger(a->real, b->real) : -larger(-a->real, -b->real);
	}
	return x;
}

/* Round by round each two neighbours become one; who has none waits for the next round. */
static struct number tournament(unsigned int type, unsigned int op, struct number *x,
				unsigned int n)
{
	while (n > 1) {
		for (unsigned int i = 0; i < n / 2; i++)
			x[i] = combine(type, op, &x[2 * i], &x[2 * i + 1]);
		if (n % 2)
			x[n / 2] = x[n - 1];
		n = (n + 1) / 2;
	}
	return x[0];
}

void oracle_reduce(unsigned int type, unsigned int op, enum ha_reduce_form from,
		   enum ha_reduce_form to, void *dst, const void *const src[], unsigned int n,
		   size_t count)
{
	size_t in = oracle_bytes(type, op, from), out = oracle_bytes(type, op, to);
	struct number *x = calloc(n, sizeof(*x));
	enum how way = how(type, op);

	if (!x)
		abort();
	for (size_t i = 0; i < count; i++) {
		struct number result;

		for (unsigned int k = 0; k < n; k++)
			x[k] = read_number(type, way, in, (const char *)src[k] + i * in);
		result = tournament(type, op, x, n);
		write_number(type, way, out, (char *)dst + i * out, &result);
	}
	free(x);
}
