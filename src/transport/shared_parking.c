/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/shared_parking.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

/* A leader makes way that has had nothing for so long, while others carried, so often: once says
 * little where all of them have just come to an end. */
#define IDLE_NS	   (125 * HA_NS_PER_MS)
#define IDLE_OFTEN 2

/* ---- who takes part -------------------------------------------------------------------------- */

void ha_shared_parkings_init(struct ha_shared_parkings *parkings)
{
	pthread_mutex_init(&parkings->lock, NULL);
	ha_list_init(&parkings->all);
}

void ha_shared_parkings_destroy(struct ha_shared_parkings *parkings)
{
	pthread_mutex_destroy(&parkings->lock);
}

/* With the lock. */
static struct ha_shared_parking *find(const struct ha_shared_parkings *parkings,
				      const struct ha_bundle *bundle, const uint8_t far_gid[16])
{
	struct ha_list *pos;

	ha_list_for_each (pos, &parkings->all) {
		struct ha_shared_parking *shared =
		    ha_container_of(pos, struct ha_shared_parking, link);

		if (shared->bundle == bundle &&
		    memcmp(shared->far_gid, far_gid, sizeof(shared->far_gid)) == 0)
			return shared;
	}
	return NULL;
}

/* With the lock. NULL: no memory. */
static struct ha_shared_parking *add(struct ha_shared_parkings *parkings,
				     const struct ha_bundle *bundle, const uint8_t far_gid[16])
{
	struct ha_shared_parking *shared = calloc(1, sizeof(*shared));

	if (!shared)
		return NULL;
	shared->bundle = bundle;
	memcpy(shared->far_gid, far_gid, sizeof(shared->far_gid));
	ha_list_push_back(&parkings->all, &shared->link);
	return shared;
}

void ha_parking_join(struct ha_parking_sender *sender, struct ha_shared_parkings *parkings,
		     const struct ha_bundle *bundle, const uint8_t far_gid[16])
{
	if (sender->shared)
		return;
	pthread_mutex_lock(&parkings->lock);
	sender->shared = find(parkings, bundle, far_gid);
	if (!sender->shared)
		sender->shared = add(parkings, bundle, far_gid);
	if (sender->shared)
		sender->shared->senders++;
	pthread_mutex_unlock(&parkings->lock);
}

void ha_parking_leave(struct ha_parking_sender *sender, struct ha_shared_parkings *parkings)
{
	struct ha_shared_parking *shared = sender->shared;

	if (!shared)
		return;
	ha_parking_resign(sender);
	sender->shared = NULL;
	pthread_mutex_lock(&parkings->lock);
	if (--shared->senders == 0)
		ha_list_remove(&shared->link);
	else
		shared = NULL;
	pthread_mutex_unlock(&parkings->lock);
	free(shared);
}

/* ---- who leads ------------------------------------------------------------------------------- */

static bool leads(const struct ha_parking_sender *sender)
{
	return sender->shared &&
	       atomic_load_explicit(&sender->shared->leader, memory_order_relaxed) == sender;
}

/* What the leader leaves out is left out by all from now on. */
static void publish(const struct ha_parking_sender *sender)
{
	const unsigned slot = ha_parking_left_out(&sender->trial);
	const unsigned left_out = slot < HA_MAX_PATHS ? sender->rail_of_slot[slot] + 1u : 0;
	atomic_uint *word = &sender->shared->left_out;

	if (atomic_load_explicit(word, memory_order_relaxed) != left_out)
		atomic_store_explicit(word, left_out, memory_order_relaxed);
}

/* Of these, the slot on that rail; HA_MAX_PATHS: none is. */
static unsigned slot_on(const struct ha_parking_sender *sender, unsigned slots, unsigned rail)
{
	unsigned slot = 0;

	while (slot < HA_MAX_PATHS && !(slots >> slot & 1 && sender->rail_of_slot[slot] == rail))
		slot++;
	return slot;
}

/* Another one has led, or none: it goes on from what was decided. False: that one leads again, or
 * it could try nothing, or not what is left out. */
static bool take_over(struct ha_parking_sender *sender, unsigned slots, uint64_t now_ns)
{
	struct ha_shared_parking *shared = sender->shared;
	const struct ha_parking_sender *none = NULL;
	unsigned left_out, slot = 0;

	if ((slots & (slots - 1)) == 0 ||
	    !atomic_compare_exchange_strong_explicit(&shared->leader, &none, sender,
						     memory_order_acquire, memory_order_relaxed))
		return false;
	left_out = atomic_load_explicit(&shared->left_out, memory_order_relaxed);
	if (left_out != 0)
		slot = slot_on(sender, slots, left_out - 1);
	if (slot == HA_MAX_PATHS) {
		atomic_store_explicit(&shared->leader, NULL, memory_order_release);
		return false;
	}
	sender->trial = shared->kept;
	ha_parking_goes_over(&sender->trial, slot);
	sender->idle = 0;
	sender->look_ns = now_ns + IDLE_NS;
	ha_parking_goes_on(&sender->trial, now_ns);
	return true;
}

/* Whether it leads now. */
static bool lead(struct ha_parking_sender *sender, unsigned slots, uint64_t now_ns)
{
	struct ha_shared_parking *shared = sender->shared;
	const struct ha_parking_sender *leader =
	    atomic_load_explicit(&shared->leader, memory_order_relaxed);

	if (leader == sender)
		return true;
	if (!leader)
		return take_over(sender, slots, now_ns);
	if (!atomic_load_explicit(&shared->wanted, memory_order_relaxed))
		atomic_store_explicit(&shared->wanted, true, memory_order_relaxed);
	return false;
}

void ha_parking_resign(struct ha_parking_sender *sender)
{
	struct ha_shared_parking *shared = sender->shared;

	if (!leads(sender))
		return;
	ha_parking_stop(&sender->trial);
	publish(sender);
	shared->kept = sender->trial;
	atomic_store_explicit(&shared->leader, NULL, memory_order_release);
}

/* It has led for IDLE_NS, in which it carried something, or others did alone, or nobody. What takes
 * longer is under way. */
static void judge(struct ha_parking_sender *sender, bool under_way)
{
	const bool wanted = atomic_load_explicit(&sender->shared->wanted, memory_order_relaxed);

	sender->idle = !sender->carried && !under_way && wanted ? (uint8_t)(sender->idle + 1) : 0;
	atomic_store_explicit(&sender->shared->wanted, false, memory_order_relaxed);
	sender->carried = false;
}

uint64_t ha_parking_look(struct ha_parking_sender *sender, bool under_way, uint64_t now_ns)
{
	if (!leads(sender))
		return 0;
	if (now_ns < sender->look_ns)
		return sender->look_ns;
	judge(sender, under_way);
	sender->look_ns = now_ns + IDLE_NS;
	if (sender->idle < IDLE_OFTEN)
		return sender->look_ns;
	ha_parking_resign(sender);
	return 0;
}

/* ---- what it does ---------------------------------------------------------------------------- */

unsigned ha_parking_without(const struct ha_parking_sender *sender, unsigned slots,
			    unsigned left_out)
{
	const unsigned slot = slot_on(sender, slots, left_out - 1);
	const unsigned left = slot < HA_MAX_PATHS ? slots & ~(1u << slot) : slots;

	return left ? left : slots;
}

bool ha_parking_sender_carried(struct ha_parking_sender *sender, const struct ha_balance *balance,
			       unsigned slots, uint32_t bytes, uint64_t now_ns)
{
	bool parked;

	if (!sender->shared || !lead(sender, slots, now_ns))
		return false;
	sender->carried = true;
	parked = ha_parking_carried(&sender->trial, balance, slots, bytes, now_ns);
	publish(sender);
	return parked;
}

void ha_parking_sender_lost(struct ha_parking_sender *sender, unsigned slot, unsigned slots)
{
	if (!leads(sender))
		return;
	ha_parking_lost(&sender->trial, slot);
	publish(sender);
	if ((slots & (slots - 1)) == 0) /* of one rail there is nothing to try */
		ha_parking_resign(sender);
}

void ha_parking_sender_begins(struct ha_parking_sender *sender)
{
	if (!leads(sender))
		return;
	sender->trial = (struct ha_parking){0};
	ha_parking_resign(sender);
}
