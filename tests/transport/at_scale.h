/* SPDX-License-Identifier: Apache-2.0 */
/* Hundreds of connections on a virtual clock, whose NICs do one command after the other. */
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

/* What the last command of a NIC takes from now on, behind those before it; busy_until_ns: its. */
static inline uint64_t nic_took_ns(uint64_t *busy_until_ns)
{
	const uint64_t ns = sv_stepped_waited_ns(), now_ns = sv_stepped_now();

	if (ns == 0)
		return 0;
	if (*busy_until_ns < now_ns)
		*busy_until_ns = now_ns;
	*busy_until_ns += ns;
	return *busy_until_ns - now_ns;
}

#endif
