/* SPDX-License-Identifier: Apache-2.0 */
/* What tests do with simverbs' stepped fabric as a whole. */
#ifndef HA_TESTS_STEPPED_FABRIC_H
#define HA_TESTS_STEPPED_FABRIC_H

#include <simverbs/simverbs.h>
#include <stdint.h>

/* The next event; but time goes on by step_ns at most, so that it does not run ahead of who takes
 * turns with the fabric. */
static inline void stepped_goes_on(uint64_t step_ns)
{
	const uint64_t soon_ns = sv_stepped_now() + step_ns;
	struct sv_event_info next;

	if (sv_stepped_peek(&next) && next.time_ns <= soon_ns)
		sv_stepped_step();
	else
		sv_stepped_run(soon_ns);
}

/* Adds what programs have on that device. */
static inline void stepped_add_objects(struct sv_stepped_objects *sum, uint32_t host, uint32_t rail)
{
	struct sv_stepped_objects one;

	sv_stepped_get_objects(host, rail, &one);
	sum->contexts += one.contexts;
	sum->pds += one.pds;
	sum->mrs += one.mrs;
	sum->cqs += one.cqs;
	sum->qps += one.qps;
	sum->ahs += one.ahs;
}

#endif
