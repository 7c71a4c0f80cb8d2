/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leaving a path that works for a better one, at the receiver:
 *
 *  - back to the preferred path when it has been healthy for a while (HA_NCCL_ENABLE_FAILBACK, and
 * from a path between rails of different numbers), or at once when the operator asks for it;
 *  - away from a drained port, at once when it is drained, and after that while when the
 *    connection had to go back there for want of anything else.
 *
 * The while grows for as long as going back turns out to have been a mistake. [T]
 */
#ifndef HA_FAILOVER_FAILBACK_H
#define HA_FAILOVER_FAILBACK_H

#include <stdbool.h>
#include <stdint.h>

struct ha_comm;

struct ha_failback {
	uint32_t hold_ms;	  /* how long the better path must have been healthy */
	uint64_t back_ns;	  /* when the last failback was; 0: never */
	uint64_t failed_ns;	  /* when a path failed first since then; 0: none did */
	uint64_t return_until_ns; /* the operator asked for the preferred path: until it is there */
	bool drained_now;	  /* a port was drained: there is nothing to wait for */
};

void ha_failback_init(struct ha_failback *back);

/* The active path failed. */
void ha_failback_failed(struct ha_failback *back, uint64_t now_ns);

/* The operator asks to go back. Holds for HA_FAILBACK_ASKED_MS. */
void ha_failback_ask(struct ha_failback *back, uint64_t now_ns);
#define HA_FAILBACK_ASKED_MS 10000

/* A port of this end or the peer's was drained. */
void ha_failback_drained(struct ha_failback *back);

/* Whether the preferred path is to be built although another one is in reserve. */
bool ha_failback_wants_preferred(const struct ha_failback *back, const struct ha_comm *comm,
				 uint64_t now_ns);

/* Leaves the active path if a better one has been up for long enough. */
void ha_failback_visit(struct ha_failback *back, struct ha_comm *comm, uint64_t now_ns);

/* When that will be; 0: nothing is better, or nobody wants it. */
uint64_t ha_failback_due_ns(const struct ha_failback *back, const struct ha_comm *comm);

#endif
