/* SPDX-License-Identifier: Apache-2.0 */
#include "reduce/fold.h"

/* A node of the tree is its first source and the power of two that it is wide; over the end it has
 * none. */

static bool has_one_form(const struct ha_reduction *reduction)
{
	return ha_reduce_bytes(reduction, HA_REDUCE_WIRE) ==
	       ha_reduce_bytes(reduction, HA_REDUCE_WIDE);
}

size_t ha_fold_scratch_bytes(const struct ha_reduction *reduction, unsigned int n, size_t count)
{
	if (has_one_form(reduction))
		return 0;
	return (n + 1) / 2 * count * ha_reduce_bytes(reduction, HA_REDUCE_WIDE);
}

void ha_fold_begin(struct ha_fold *fold, const struct ha_reduction *reduction, unsigned int n,
		   size_t count, void *scratch)
{
	fold->reduction = reduction;
	fold->n = n;
	fold->count = count;
	fold->scratch = scratch;
	fold->come = 0;
	for (unsigned int i = 0; i < n; i++)
		fold->part[i].covers = 0;
}

void ha_fold_add(struct ha_fold *fold, unsigned int i, void *source, enum ha_reduce_form form)
{
	fold->come |= 1u << i;
	fold->part[i] = (struct ha_fold_part){source, form, 1};
}

static uint32_t bits_below(unsigned int n)
{
	return n < 32 ? (1u << n) - 1 : UINT32_MAX;
}

/* How many sources a node has. */
static unsigned int sources_of(const struct ha_fold *fold, unsigned int first, unsigned int width)
{
	return first + width > fold->n ? fold->n - first : width;
}

static bool all_came(const struct ha_fold *fold, unsigned int first, unsigned int n)
{
	uint32_t wanted = bits_below(n) << first;

	return (fold->come & wanted) == wanted;
}

/* Nothing of the node has been reduced, and all is in one form: it can be at one go. */
static bool is_raw(const struct ha_fold *fold, unsigned int first, unsigned int n)
{
	for (unsigned int i = first; i < first + n; i++)
		if (fold->part[i].covers != 1 || fold->part[i].form != fold->part[first].form)
			return false;
	return true;
}

/* Where a node's partial result goes: over its first source if that is large enough; two sources
 * share a place otherwise. */
static void *place_of(const struct ha_fold *fold, unsigned int first)
{
	size_t wide = ha_reduce_bytes(fold->reduction, HA_REDUCE_WIDE);

	if (has_one_form(fold->reduction))
		return fold->part[first].at;
	return fold->scratch + first / 2 * fold->count * wide;
}

static void reduce_node(struct ha_fold *fold, unsigned int first, unsigned int width, void *dst,
			enum ha_reduce_form to);

/* The value of a node all of whose sources have come, as a partial result. */
static const void *wide_value(struct ha_fold *fold, unsigned int first, unsigned int width)
{
	struct ha_fold_part *part = &fold->part[first];
	unsigned int n = sources_of(fold, first, width);

	if (part->covers == n && (part->form == HA_REDUCE_WIDE || has_one_form(fold->reduction)))
		return part->at;
	reduce_node(fold, first, width, place_of(fold, first), HA_REDUCE_WIDE);
	*part = (struct ha_fold_part){place_of(fold, first), HA_REDUCE_WIDE, (uint8_t)n};
	return part->at;
}

static void reduce_node(struct ha_fold *fold, unsigned int first, unsigned int width, void *dst,
			enum ha_reduce_form to)
{
	const void *src[HA_FOLD_SOURCES];
	unsigned int n = sources_of(fold, first, width), half = width / 2;

	if (is_raw(fold, first, n)) {
		for (unsigned int i = 0; i < n; i++)
			src[i] = fold->part[first + i].at;
		ha_reduce(fold->reduction, fold->part[first].form, to, dst, src, n, fold->count);
	} else if (half >= n) { /* nothing on the right */
		reduce_node(fold, first, half, dst, to);
	} else {
		src[0] = wide_value(fold, first, half);
		src[1] = wide_value(fold, first + half, half);
		ha_reduce(fold->reduction, HA_REDUCE_WIDE, to, dst, src, 2, fold->count);
	}
}

/* The largest nodes below this one all of whose sources have come. */
static void advance(struct ha_fold *fold, unsigned int first, unsigned int width)
{
	if (width < 2 || first >= fold->n)
		return;
	if (all_came(fold, first, sources_of(fold, first, width))) {
		if (sources_of(fold, first, width) > 1)
			wide_value(fold, first, width);
		return;
	}
	advance(fold, first, width / 2);
	advance(fold, first + width / 2, width / 2);
}

/* The root's width: the smallest power of two that holds all sources. */
static unsigned int root_of(const struct ha_fold *fold)
{
	return fold->n > 1 ? 1u << (32 - __builtin_clz(fold->n - 1)) : 1;
}

void ha_fold_advance(struct ha_fold *fold)
{
	if (!ha_fold_is_complete(fold))
		advance(fold, 0, root_of(fold));
}

bool ha_fold_is_complete(const struct ha_fold *fold)
{
	return all_came(fold, 0, fold->n);
}

void ha_fold_finish(struct ha_fold *fold, void *dst, enum ha_reduce_form form)
{
	reduce_node(fold, 0, root_of(fold), dst, form);
}
