/* SPDX-License-Identifier: Apache-2.0 */
/* Registrations that come and go beside the traffic. */
#ifndef NP_CHURN_H
#define NP_CHURN_H

#include "tools/nccl-net-perf/rank.h"

#include <stdbool.h>
#include <stdint.h>

/* Registers and deregisters memory on the connections until told to stop, on the service thread. */
struct np_churn {
	struct np_rank *rk;
	struct np_side *side;
	_Atomic bool stop;
	/* The service thread's until np_churn_stop returns. */
	uint64_t rounds;
	struct np_error error;
};
void np_churn_start(struct np_churn *churn, struct np_rank *rk, struct np_side *side);
bool np_churn_stop(struct np_churn *churn);

#endif
