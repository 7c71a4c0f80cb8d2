/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What must never be, asked where it would be seen first. In builds for tests (HA_INVARIANTS) a
 * condition that does not hold ends the process with a line that names it. Elsewhere it is
 * compiled, so that it stays right, and nothing is left of it: it is not evaluated.
 *
 * Not for what a peer, a driver or an application may do: that has to be answered in every build.
 */
#ifndef HA_BASE_INVARIANT_H
#define HA_BASE_INVARIANT_H

#include <stdint.h>

#ifdef HA_INVARIANTS
void ha_invariant_broken(const char *what, const char *file, int line, const char *function)
    __attribute__((noreturn, cold));

#define HA_INVARIANT(condition)                                                                    \
	(__builtin_expect(!(condition), 0)                                                         \
	     ? ha_invariant_broken(#condition, __FILE__, __LINE__, __func__)                       \
	     : (void)0)

/* A number that never goes back: `seen` is kept from one look to the next, in such builds alone. */
#define HA_INVARIANT_GROWS(seen, now)                                                              \
	do {                                                                                       \
		HA_INVARIANT((now) >= (seen));                                                     \
		(seen) = (now);                                                                    \
	} while (0)
#else
/* In a branch that is never taken and not only in sizeof: what it calls counts as used. */
#define HA_INVARIANT(condition) ((void)(0 && (condition)))
#endif

#endif
