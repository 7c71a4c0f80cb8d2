/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What src/reduce has to give, said again in the plainest way: one element after the other, by
 * numbers instead of bits. 16-bit floats are rounded by looking for the nearest of all there are;
 * sums of fp16 are sums of integers.
 */
#ifndef HA_TESTS_REDUCE_ORACLE_H
#define HA_TESTS_REDUCE_ORACLE_H

#include "reduce/reduce.h"

size_t oracle_bytes(unsigned int type, unsigned int op, enum ha_reduce_form form);

void oracle_reduce(unsigned int type, unsigned int op, enum ha_reduce_form from,
		   enum ha_reduce_form to, void *dst, const void *const src[], unsigned int n,
		   size_t count);

/* The value of a 16-bit float; infinities and NaN as such. */
double oracle_value(unsigned int type, unsigned int bits);

#endif
