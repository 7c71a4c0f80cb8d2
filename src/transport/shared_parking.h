/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all senders over the same rails decide together: whether one of them is left out. Each of
 * them by itself would not find out (parking.h): what gets through while it leaves a rail out is
 * how the others have spread. So one of them, the leader, tries, and publishes which rail is left
 * out; all go by that word, whatever they know themselves. Who wants to try leads, while nobody
 * does. A leader that carries nothing makes way for one that does; what it has decided stays, and
 * what it was trying begins anew.
 *
 * Senders are driven by threads of their own. Which of them leads, and what is left out, are words
 * that any of them may read; what one leader hands on to the next goes with the former. Slots
 * differ from sender to sender, so what is left out is a rail.
 *
 * Nothing here knows a connection.
 */
#ifndef HA_TRANSPORT_SHARED_PARKING_H
#define HA_TRANSPORT_SHARED_PARKING_H

#include "base/list.h"
#include "transport/parking.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct ha_bundle;
struct ha_parking_sender;

/* Of the senders of one bundle to one port at the peer. */
struct ha_shared_parking {
	_Atomic(const struct ha_parking_sender *) leader; /* NULL: none. Changed by
							     compare-and-swap, and by it itself */
	atomic_uint left_out;	/* a rail and 1 more; 0: none is. Written by the leader */
	atomic_bool wanted;	/* another one has carried since the leader looked */
	struct ha_parking kept; /* between one leader and the next, which goes on with it */
	/* Under the lock of all. */
	struct ha_list link;
	unsigned senders;
	/* Constant. */
	const struct ha_bundle *bundle;
	uint8_t far_gid[16];
};

/* All of an instance. */
struct ha_shared_parkings {
	pthread_mutex_t lock; /* of the list; nothing is waited for with it */
	struct ha_list all;
};

/* One sender. All zero: it takes no part, and leaves no rail out. [T] */
struct ha_parking_sender {
	struct ha_shared_parking *shared; /* NULL: takes no part */
	struct ha_parking trial;	  /* while it leads */
	uint8_t rail_of_slot[HA_MAX_PATHS];
	/* As the leader. */
	bool carried;	  /* since it looked whether it should lead on */
	uint8_t idle;	  /* how often in a row others had carried then, and it had nothing */
	uint64_t look_ns; /* when it does so next */
};

void ha_shared_parkings_init(struct ha_shared_parkings *parkings);
void ha_shared_parkings_destroy(struct ha_shared_parkings *parkings);

/* Takes part with those of the same bundle that reach the same port there. Without memory it takes
 * none, and may try again. */
void ha_parking_join(struct ha_parking_sender *sender, struct ha_shared_parkings *parkings,
		     const struct ha_bundle *bundle, const uint8_t far_gid[16]);

/* Its end. */
void ha_parking_leave(struct ha_parking_sender *sender, struct ha_shared_parkings *parkings);

/* Slots of a mask, without the one that is on this rail and 1 more; but all if that is all. */
unsigned ha_parking_without(const struct ha_parking_sender *sender, unsigned slots,
			    unsigned left_out);

/* Those of these slots that are to carry: not one that is left out, unless there is no other. */
static inline unsigned ha_parking_carriers(const struct ha_parking_sender *sender, unsigned slots)
{
	unsigned left_out = 0;

	if (sender->shared)
		left_out = atomic_load_explicit(&sender->shared->left_out, memory_order_relaxed);
	return left_out == 0 ? slots : ha_parking_without(sender, slots, left_out);
}

/* A stripe sets out, where nothing of this sender was under way. */
static inline void ha_parking_sets_out(struct ha_parking_sender *sender, uint64_t now_ns)
{
	ha_parking_goes_on(&sender->trial, now_ns);
}

/*
 * A stripe is through, and the balance knows. slots: those that could carry. True: it has parked a
 * rail for all, for trial.parked_ms.
 */
bool ha_parking_sender_carried(struct ha_parking_sender *sender, const struct ha_balance *balance,
			       unsigned slots, uint32_t bytes, uint64_t now_ns);

/* That slot has another path from now on, or none; slots: those that are left. */
void ha_parking_sender_lost(struct ha_parking_sender *sender, unsigned slot, unsigned slots);

/* It has no paths any more: what it had left out is to be tried with those that come. */
void ha_parking_sender_begins(struct ha_parking_sender *sender);

/* It will carry nothing any more, or not for long: another one may lead. */
void ha_parking_resign(struct ha_parking_sender *sender);

/* Now and then; whether something of it is under way. When it is to be called again; 0: it does not
 * lead. */
uint64_t ha_parking_look(struct ha_parking_sender *sender, bool under_way, uint64_t now_ns);

#endif
