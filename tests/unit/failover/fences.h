/* SPDX-License-Identifier: Apache-2.0 */
/* What tests ask of the fences of a connection's paths. */
#ifndef HA_TESTS_FENCES_H
#define HA_TESTS_FENCES_H

#include "failover/engine.h"
#include "transport/comm.h"

/* Every generation that was to be fenced is, as far as this end knows. */
static inline bool all_are_fenced(const struct ha_comm *comm)
{
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (comm->failover->slots[p].fenced_gen < comm->failover->slots[p].want_gen)
			return false;
	return true;
}

#endif
