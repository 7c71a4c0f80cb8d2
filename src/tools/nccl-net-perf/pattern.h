/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The data that is sent, and what must arrive.
 *
 * Every byte is a function of who sent it, in which iteration, and its position, so that data of
 * another rank, an earlier iteration or another place is seen to be wrong. Sums are chosen so that
 * their closed form is exact in every element type.
 */
#ifndef NP_PATTERN_H
#define NP_PATTERN_H

#include <stddef.h>
#include <stdint.h>

#include "tools/nccl-net-perf/options.h"

/* ---- plain bytes ------------------------------------------------------------------------- */

/* Bytes [pos, pos + len) of what `rank` sends in `iteration`. */
void np_pattern_fill(void *buf, size_t len, int rank, uint32_t iteration, uint64_t pos);

/* How many of them are not right. */
uint64_t np_pattern_check(const void *buf, size_t len, int rank, uint32_t iteration, uint64_t pos);

/* ---- elements to sum ---------------------------------------------------------------------- */

void np_summand_fill(void *buf, size_t count, enum np_type type, int rank, uint32_t iteration);

/* out[i] = a[i] + b[i]; out may be one of them. int8 and int32 wrap. */
void np_sum(void *out, const void *a, const void *b, size_t count, enum np_type type);

/* How many elements are not the sum over ranks 0 … nranks-1. */
uint64_t np_sum_check(const void *buf, size_t count, enum np_type type, int nranks,
		      uint32_t iteration);

#endif
