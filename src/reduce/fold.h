/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One reduction whose sources come one after the other, in any order: a node of the tree (reduce.h)
 * is computed as soon as both its halves are there, and the result is that of ha_reduce() over all
 * of them, to the bit.
 *
 * Sources that came since the last ha_fold_advance() are reduced together as far as they are
 * neighbours, so a caller who sweeps his connections first and calls it then pays little memory
 * traffic when he is late, and few additions after the last source when he is early.
 *
 * One thread at a time. Nothing is allocated: buffers are the caller's until the fold is finished.
 */
#ifndef HA_REDUCE_FOLD_H
#define HA_REDUCE_FOLD_H

#include "reduce/reduce.h"

#include <stdbool.h>
#include <stdint.h>

#define HA_FOLD_SOURCES 32

/* Place i of the tree: the sources [i, i + covers), reduced. Nobody looks at the places of the
 * others then. */
struct ha_fold_part {
	void *at;
	enum ha_reduce_form form;
	uint8_t covers; /* 0: the source has not come */
};

struct ha_fold {
	const struct ha_reduction *reduction;
	unsigned int n;
	size_t count; /* elements */
	char *scratch;
	uint32_t come; /* bitmap of the sources */
	struct ha_fold_part part[HA_FOLD_SOURCES];
};

/* What a fold of n sources needs beside their buffers; 0 where partial results have the size of
 * sources. */
size_t ha_fold_scratch_bytes(const struct ha_reduction *reduction, unsigned int n, size_t count);

/* 1 <= n <= HA_FOLD_SOURCES. `scratch` has ha_fold_scratch_bytes, of any alignment. */
void ha_fold_begin(struct ha_fold *fold, const struct ha_reduction *reduction, unsigned int n,
		   size_t count, void *scratch);

/* Source i < n has come. Its buffer may be written over with a partial result. Not twice. */
void ha_fold_add(struct ha_fold *fold, unsigned int i, void *source, enum ha_reduce_form form);

/* Computes what can be computed, but for the root. */
void ha_fold_advance(struct ha_fold *fold);

bool ha_fold_is_complete(const struct ha_fold *fold); /* all sources have come */

/* The root, when all have come. `dst` is neither scratch nor, unless it has its size, a source. */
void ha_fold_finish(struct ha_fold *fold, void *dst, enum ha_reduce_form form);

#endif
