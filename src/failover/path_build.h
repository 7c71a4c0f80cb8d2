/* SPDX-License-Identifier: Apache-2.0 */
/* Making one end of a path in the background: what receiver and sender do alike. All of it is [T].
 */
#ifndef HA_FAILOVER_PATH_BUILD_H
#define HA_FAILOVER_PATH_BUILD_H

#include "failover/message.h"

#include "base/result.h"

#include <stdbool.h>
#include <stdint.h>

struct ha_comm;

/* One end of a path: a new generation, with nqps queue pairs, over our port `port` and the peer's
 * `peer_port` (as in both PORTS). */
struct ha_path_plan {
	uint32_t generation;
	uint8_t nqps;
	uint8_t port, peer_port;
	const struct ha_wire_endpoint
	    *remote; /* the peer's, which it is connected to; NULL: later */
};

/*
 * Begins to make our end of path p, in the background. The slot has no path, and everything older
 * is fenced. False: no memory.
 */
bool ha_path_build_open(struct ha_comm *comm, unsigned p,
			const struct ha_path_plan *plan) HA_MUST_CHECK;

/* Begins to connect it to the peer's end, in the background. */
ha_result_t ha_path_build_connect(struct ha_comm *comm, unsigned p,
				  const struct ha_wire_endpoint *remote) HA_MUST_CHECK;

/* Whether ha_path_build_visit would find something to do: a look at memory only. */
bool ha_path_build_due(const struct ha_comm *comm);
/* Goes on with the paths that are made or connected by now, or cannot be. */
void ha_path_build_visit(struct ha_comm *comm);

/* Hangs the slot on the heartbeats between its two ports, as they are now. */
void ha_path_build_watch(struct ha_comm *comm, unsigned p);
void ha_path_build_unwatch(struct ha_comm *comm, unsigned p);

/* Sender: REBUILD{path.gen}. Answers it, or leaves it for the next time it is said. */
void ha_path_build_answer(struct ha_comm *comm, const struct ha_message *m);

#endif
