/* SPDX-License-Identifier: Apache-2.0 */
/* Elements to reduce: a function of the seed. */
#ifndef HA_TESTS_REDUCE_SAMPLES_H
#define HA_TESTS_REDUCE_SAMPLES_H

#include "reduce/reduce.h"

#include <stdint.h>

/*
 * At even places a quarter each: any bits, among which are NaNs and numbers of all sizes; numbers
 * that make ties when they are added; numbers whose sum or product is ordinary; zeros, infinities,
 * denormals, limits. At odd ones the second and the third kind, in turn.
 */
void sample_elements(unsigned int type, void *at, size_t count, uint64_t seed);

extern const char *const type_names[HA_REDUCE_TYPES];
extern const char *const op_names[HA_REDUCE_OPS];

#endif
