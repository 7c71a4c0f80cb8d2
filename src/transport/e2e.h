/* SPDX-License-Identifier: Apache-2.0 */
/* Completion end to end: a send is done when the peer's software has the message. [T] */
#ifndef HA_TRANSPORT_E2E_H
#define HA_TRANSPORT_E2E_H

#include "transport/comm.h"
#include "transport/recv.h"
#include "transport/send.h"

#include <stdint.h>

struct ha_path;

/*
 * A sender that waits asks for the count after this, and then at intervals that double. Where
 * counts ride, a read gains nothing and costs the NIC some work, so they have the time that an
 * application takes from one collective to the next.
 */
#define HA_COUNT_ASK_FIRST_NS 64000u
#define HA_COUNT_ASK_MAX_NS   64000u

/*
 * So many waits in a row that ended by asking say that none rides: then it is asked this soon, and
 * once in so many it is seen whether one comes by itself again. A pause says nothing.
 */
#define HA_COUNT_IN_VAIN    4
#define HA_COUNT_ASK_MIN_NS 2000u
#define HA_COUNT_TRY_AGAIN  64

/* Receiver, after completions: what it has, where the sender can read it. */
static inline void ha_e2e_note(const struct ha_comm *comm)
{
	__atomic_store_n(&comm->recv_ring->count, comm->recv->done.base, __ATOMIC_RELAXED);
}

/* Sender, at each poll: takes up what the receiver has counted, and asks if that takes too long. */
void ha_e2e_look(struct ha_comm *comm);

/*
 * Sender: whether the peer has message `seq`, as far as one look says: it was counted already, or
 * is by the row that counts it if receives are asked for as they were.
 */
static inline bool ha_e2e_is_counted(const struct ha_comm *comm, uint64_t seq)
{
	const struct ha_send_side *s = comm->send;
	const uint32_t row = (uint32_t)seq + s->count_ahead;

	return seq < s->delivered ||
	       ha_cts_count(comm->send_ring->cts[row & comm->slot_mask]) - 1 == seq;
}

/* Sender: the hardware is through with a group of which that is not so. Looks at all rows. */
void ha_e2e_acknowledged(struct ha_comm *comm, struct ha_send_group *group);

/* Sender: the peer has every message before this one, as it says in a message or a read found. */
void ha_e2e_heard(struct ha_comm *comm, uint64_t count);

/* Sender: a read of the count completed, at this position of the first queue pair's queue. */
void ha_e2e_answered(struct ha_comm *comm, struct ha_path *path, uint32_t mark);

#endif
