/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HA_NCCL_RAIL_MODE=agent: an agent of this host says what part of a large message the second rail
 * of a bundle carries (docs/rails-agent.md). While none says anything of a connection, it goes by
 * islands (device/island.h): all of it over the second rail in one, over the first one beyond.
 */
#ifndef HA_TRANSPORT_RAIL_AGENT_H
#define HA_TRANSPORT_RAIL_AGENT_H

#include <stdbool.h>
#include <stdint.h>

struct ha_comm;
struct ha_hint;
struct ha_instance;
struct ha_path;

/* Of one sender. [T] */
struct ha_rail_flow {
	bool begun;	      /* it is known what follows */
	bool same_island;     /* both first rails are in one */
	struct ha_hint *hint; /* NULL: the agent cannot know this connection */
};

/*
 * A thread that looks for the agent and asks it, where the configuration has a bundle that goes by
 * one. What is wrong with the agent is a WARN, and events of the instance say when it is found and
 * lost. Without it, islands.
 */
void ha_rail_agent_open(struct ha_instance *inst);
/* After the last connection. At most two of the agent's answers are waited for, a tenth of a second
 * each. */
void ha_rail_agent_close(struct ha_instance *inst);

/* In a visit: the agent is told of a connection as soon as it has both rails. Under the token. */
void ha_rail_agent_visit(struct ha_comm *comm);

/*
 * What part of its next message, of so many bytes, the second rail of a sender's bundle carries, of
 * 1024. The two paths are those of rail 0 and rail 1; if the agent does not know of the connection
 * it is told now. Between islands, what is not worth a stripe goes over the first rail whatever the
 * agent says. Never waits. Under the token.
 */
unsigned ha_rail_agent_second(struct ha_comm *comm, const struct ha_path *first,
			      const struct ha_path *second, uint64_t bytes, uint64_t now_ns);

/* A connection ends: the agent is told. Under the token. */
void ha_rail_agent_leave(struct ha_comm *comm);

#endif
