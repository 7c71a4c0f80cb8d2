/* SPDX-License-Identifier: Apache-2.0 */
/* What the two ends are doing when the fault comes. */
#ifndef HA_TESTS_FAULT_SCENARIO_H
#define HA_TESTS_FAULT_SCENARIO_H

#include "traffic.h"

struct scenario {
	const char *name;
	const char *about;
	unsigned hosts;	      /* a ring of so many; 0: two */
	unsigned rails;	      /* of each host */
	unsigned bundled;     /* so many of them are one device; 0: each is one */
	unsigned connections; /* all between port 0 of either host */
	bool both_directions; /* every other connection sends from host 1 to host 0 */
	bool from_connect;    /* faults come from the first call of connect on; else once every
				 connection is up and protected */
	bool close_at_once;   /* an end closes as soon as it is through, as NCCL may */
	bool in_turn;	      /* a connection begins when the one before it is half way through, and
				 closes when it is through; the last stays */
	int qps;	      /* per connection */
	uint8_t rail_qps[2];  /* of a bundle's rails */
	bool split;	      /* every message over all of them */
	bool for_walks;	      /* too long for every place */
	bool slow_hardware;   /* retries take long: heartbeats and soft timeouts see the failure */
	struct plan plan;
};

extern const struct scenario scenarios[];
extern const unsigned nscenarios;

const struct scenario *scenario_find(const char *name);

#endif
