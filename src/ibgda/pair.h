/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A queue pair of a stream: one whose send queue threads of a GPU drive, or the other end of one.
 * It is made for one generation and destroyed, which is its fence: nothing of it is executed or
 * arrives after that. Threads may hold the memory of its queues longer, so that is an arena's,
 * which stays.
 *
 * Verbs that change it may wait for the device. One thread.
 */
#ifndef HA_IBGDA_PAIR_H
#define HA_IBGDA_PAIR_H

#include "ibgda/allocate.h"
#include "ibgda/message.h"
#include "ibgda/nic.h"

#include <stdbool.h>
#include <stddef.h>

/* Where the queues of one slot lie, generation after generation. */
struct ha_ibgda_arena {
	const struct ha_ibgda_memory *memory; /* that it is taken from */
	struct {
		void *at;
		size_t size;
	} parts[4];	      /* requests, completions, two doorbell records */
	unsigned int records; /* that the pair has taken */
};

struct ha_ibgda_pair {
	const struct ha_ibgda_nic *nic;
	struct ibv_pd *domain; /* of an arena; NULL: of a receiver */
	struct ibv_cq *cq;     /* of its sends; NULL: it has none */
	struct ibv_qp *qp;     /* NULL: destroyed */
	uint32_t psn;
	const char *fault; /* the verb that failed; NULL: none */
};

/* With a send queue of 2^log requests, whose places it writes down in *queue. False: it is closed,
 * and `fault` says why. */
bool ha_ibgda_pair_open_driven(struct ha_ibgda_pair *pair, const struct ha_ibgda_nic *nic,
			       struct ha_ibgda_arena *arena, uint32_t log,
			       struct ha_ibgda_queue *queue);
/* One that its host posts to: `sends` at a time; 0: it only is the other end of one. */
bool ha_ibgda_pair_open(struct ha_ibgda_pair *pair, const struct ha_ibgda_nic *nic, uint32_t sends);
void ha_ibgda_pair_address(const struct ha_ibgda_pair *pair, struct ha_ibgda_address *out);
bool ha_ibgda_pair_connect(struct ha_ibgda_pair *pair, const struct ha_ibgda_address *remote);
/* Its fence, and nothing more: it is still to be closed. False: as below. */
bool ha_ibgda_pair_fence(struct ha_ibgda_pair *pair);
bool ha_ibgda_pair_is_fenced(const struct ha_ibgda_pair *pair);
/* False: the device refuses to destroy it: to be called again. A closed one is fine. */
bool ha_ibgda_pair_close(struct ha_ibgda_pair *pair);

/* No thread holds it any more. */
void ha_ibgda_arena_free(struct ha_ibgda_arena *arena);

#endif
