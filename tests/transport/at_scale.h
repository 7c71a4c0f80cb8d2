/* SPDX-License-Identifier: Apache-2.0 */
/* Hundreds of connections on a virtual clock, whose NICs have commands to do that take time. */
#ifndef HA_TESTS_TRANSPORT_AT_SCALE_H
#define HA_TESTS_TRANSPORT_AT_SCALE_H

#include "harness.h"

/* A turn of each host's background thread, and so much time. */
static inline void pair_turn(struct pair *pair, uint64_t turn_ns)
{
	for (uint32_t host = 0; host < 2; host++) {
		sv_stepped_set_host(host);
		(void)ha_progress_turn(pair->inst[host]->progress);
	}
	sv_stepped_run(sv_stepped_now() + turn_ns);
}

#define AT_ONCE 8 /* commands that a NIC has been given; it does so many at once, at most */

/* Of each of its units, when it is through with what it was given. */
struct nic_units {
	uint64_t busy_until_ns[AT_ONCE];
};

static inline uint64_t *first_free(struct nic_units *units, unsigned nunits)
{
	uint64_t *first = &units->busy_until_ns[0];

	for (unsigned i = 1; i < nunits; i++)
		if (units->busy_until_ns[i] < *first)
			first = &units->busy_until_ns[i];
	return first;
}

/* What the last command of a NIC of so many units takes from now on, behind those before it. */
static inline uint64_t nic_took_ns(struct nic_units *units, unsigned nunits)
{
	const uint64_t ns = sv_stepped_waited_ns(), now_ns = sv_stepped_now();
	uint64_t *busy_until_ns = first_free(units, nunits);

	if (ns == 0)
		return 0;
	if (*busy_until_ns < now_ns)
		*busy_until_ns = now_ns;
	*busy_until_ns += ns;
	return *busy_until_ns - now_ns;
}

#endif
