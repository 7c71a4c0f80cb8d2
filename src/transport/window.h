/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which sequence numbers are done: a cumulative count and a bitmap of the window above it, because
 * several queue pairs complete out of order. The receiver's is the truth about delivery.
 */
#ifndef HA_TRANSPORT_WINDOW_H
#define HA_TRANSPORT_WINDOW_H

#include "base/invariant.h"

#include <stdbool.h>
#include <stdint.h>

struct ha_window {
	uint64_t base; /* everything below is done */
	uint64_t bits; /* bit i: base + i is done; bit 0 is never set at rest */
};

/* False when seq is outside the window or was marked before. */
static inline bool ha_window_mark(struct ha_window *w, uint64_t seq)
{
	uint64_t bit;

	if (__builtin_expect(seq == w->base && w->bits == 0, 1)) {
		w->base++; /* in order, as one queue pair completes */
		return true;
	}
	if (seq < w->base || seq - w->base >= 64)
		return false;
	bit = 1ull << (seq - w->base);
	if (w->bits & bit)
		return false;
	w->bits |= bit;
	if (w->bits & 1) {
		/* Everything up to the first gap is done. Two shifts: one of 64 is undefined. */
		int run = w->bits == UINT64_MAX ? 64 : __builtin_ctzll(~w->bits);

		w->bits = w->bits >> (run - 1) >> 1;
		w->base += (unsigned)run;
	}
	HA_INVARIANT(!(w->bits & 1));
	return true;
}

/* What is done in either of the two. */
static inline void ha_window_merge(struct ha_window *into, const struct ha_window *w)
{
	/* In one step: a peer may name any number. */
	if (into->base < w->base) {
		uint64_t ahead = w->base - into->base;

		into->bits = ahead < 64 ? into->bits >> ahead : 0;
		into->base = w->base;
	}
	if (into->base - w->base < 64)
		into->bits |= w->bits >> (into->base - w->base);
	while (into->bits & 1) {
		into->bits >>= 1;
		into->base++;
	}
	HA_INVARIANT(into->base >= w->base);
	HA_INVARIANT(!(into->bits & 1));
}

/* Whether everything that is done comes before `seq`. */
static inline bool ha_window_below(const struct ha_window *w, uint64_t seq)
{
	unsigned bits = w->bits ? 64u - (unsigned)__builtin_clzll(w->bits) : 0;

	return w->base <= seq && bits <= seq - w->base;
}

static inline bool ha_window_has(const struct ha_window *w, uint64_t seq)
{
	if (seq < w->base)
		return true;
	return seq - w->base < 64 && (w->bits >> (seq - w->base) & 1);
}

#endif
