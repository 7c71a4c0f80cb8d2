/* SPDX-License-Identifier: Apache-2.0 */
/* What each rank of a test contributes to an operation, and what has to come out. */
#ifndef HA_TESTS_INC_ELEMENTS_H
#define HA_TESTS_INC_ELEMENTS_H

#include "reduce/reduce.h"

#include <stdbool.h>
#include <stdint.h>

#define ELEMENTS_RANKS 32

struct elements {
	unsigned op; /* its number, from which its elements come */
	enum ha_reduce_type type;
	enum ha_reduce_op operation;
	size_t count;
	bool is_wild; /* any bits; of sums and products of floats only the digest counts then, */
	bool is_in_order; /* but where one switch adds all ranks, or members that do as it would */
};

size_t elements_size(const struct elements *elements);
void elements_contribute(const struct elements *elements, unsigned rank, uint8_t *at);

/* What has to come out, of as many bytes as each contribution has; false: no memory. */
bool elements_result(const struct elements *elements, unsigned ranks, uint8_t *result);
/* As the oracle has it, in the order of ranks. */
bool elements_are_right(const struct elements *elements, unsigned ranks, const uint8_t *result);
/* Of a result; to be xored over operations. */
uint64_t elements_digest(const struct elements *elements, const uint8_t *result);

#endif
