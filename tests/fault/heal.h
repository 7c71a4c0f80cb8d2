/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The second half of a run: nothing fails any more, and everything has to come back. What that is
 * is measured at a world of the same kind to which nothing was ever done.
 */
#ifndef HA_TESTS_FAULT_HEAL_H
#define HA_TESTS_FAULT_HEAL_H

#include "world.h"

/* Of virtual time. */
#define HEAL_NS (1000 * HA_NS_PER_MS)

/* What a world of this kind has when all is well. */
struct health {
	struct sv_stepped_objects objects[WORLD_HOSTS]; /* of all its devices */
	int descriptors;				/* of the process */
	uint64_t batch_ns;				/* that some more traffic takes */
};

/*
 * How a world with these options is without any fault, chance or trace. Plays it the first time, so
 * no world may be open. NULL: it is not well even so; `wrong` says why.
 */
const struct health *heal_unhurt(struct world *world, const struct world_options *options,
				 char *wrong, size_t size);

/* The same where a process begins anew: all that is left then is its own connection. (In a ring
 * others are left, too: there the health is that of the whole ring.) */
const struct health *heal_unhurt_anew(struct world *world, const struct world_options *options,
				      char *wrong, size_t size);

/* Whether there is something to heal: every connection between processes that live is up at both
 * ends, with all that was asked of it delivered. */
bool heal_applies(const struct world *world);

/* A process began anew, and has a connection. */
bool heal_began_anew(const struct world *world);

/*
 * Closes connections to processes that are gone, takes back what was done to the fabric and what
 * operators asked for, waits until the world is as
 * `unhurt` says, at most for `within_ns`, and asks for some more traffic. Returns how long it took
 * to heal. What is not as it was is said in `wrong`, which stays empty otherwise.
 */
uint64_t heal(struct world *world, const struct health *unhurt, uint64_t within_ns, char *wrong,
	      size_t size);

#endif
