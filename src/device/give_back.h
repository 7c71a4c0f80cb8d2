/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Giving verbs objects back: the one place where they are destroyed for good.
 *
 * A device may refuse that for a moment (EBUSY, EAGAIN, EIO), and what it refused lives: it may
 * still use the memory that it was made with. So the object is kept with the incarnation that it
 * was made on, and its memory with it, and the device is asked again after HA_GIVE_BACK_NS, then
 * ever more seldom, once a minute in the end. What was refused for seconds is a leak: it is
 * counted, one line of the NIC says so, and its ports' statistics and an event.
 *
 * With the incarnation all of it ends: a context that is closed has no objects any more.
 */
#ifndef HA_DEVICE_GIVE_BACK_H
#define HA_DEVICE_GIVE_BACK_H

#include "base/clock.h"
#include "base/list.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct ha_incarnation;
struct ha_nic;

/* Asks again for what a NIC refused, and is told when there is something to ask for. Any thread. */
struct ha_asker {
	void (*refused)(struct ha_asker *asker);
};

#define HA_GIVE_BACK_NS	    (20 * HA_NS_PER_MS)
#define HA_GIVE_BACK_MAX_NS (60 * HA_NS_PER_S)
/* Refused so often an object is a leak: by then the pauses add up to 2.5 seconds. */
#define HA_GIVE_BACK_TRIES 8

enum ha_object_kind {
	HA_OBJECT_QP,
	HA_OBJECT_CQ,
	HA_OBJECT_CHANNEL,
	HA_OBJECT_AH,
	HA_OBJECT_MR,
	HA_OBJECT_PD,
	HA_OBJECT_KINDS
};

/* What a device has refused: its incarnation's. */
struct ha_refusals {
	pthread_mutex_t lock;
	struct ha_list objects;		    /* but those that somebody is asking for */
	atomic_uint leaks[HA_OBJECT_KINDS]; /* of them, and of what others ask for */
	atomic_bool told;
};

void ha_refusals_init(struct ha_refusals *refusals);

/*
 * Gives back an object that nobody uses any more: what it was made of before (queues before their
 * completion queue, that before its channel, everything before its protection domain). NULL: there
 * is none, and perhaps no incarnation either. then(arg): when there is none any more, here or on
 * the thread that asked again; frees its memory. NULL: it has none of ours. May wait for the
 * device; whoever calls it holds the incarnation, or closes it. Any thread.
 */
void ha_give_back(struct ha_incarnation *on, enum ha_object_kind kind, void *object,
		  void (*then)(void *arg), void *arg);

/*
 * So many more, or with less than nothing fewer, of what somebody else asks for are leaks: queue
 * pairs that may still write where they must not. Whoever holds the incarnation. Any thread.
 */
void ha_leaks_add(struct ha_incarnation *on, enum ha_object_kind kind, int more);

/* Objects that their owner asks for itself, again and again. */
struct ha_asked {
	uint64_t since_ns; /* some are refused; 0: none */
	unsigned leaks;	   /* that are counted */
};
/* After each time that their owner has asked: so many of them are refused. When that was so for as
 * long as above they are leaks, until it is otherwise. NULL: there is no incarnation any more. As
 * ha_leaks_add. */
void ha_leaks_of_asked(struct ha_incarnation *on, struct ha_asked *asked, enum ha_object_kind kind,
		       unsigned refused);

/* What the NIC refuses to take back for good, of all its incarnations that live. Any thread. */
struct ha_leaks {
	unsigned of[HA_OBJECT_KINDS];
};
struct ha_leaks ha_nic_leaks(struct ha_nic *nic);

/* "2 queue pairs, a registration"; "nothing". Returns buf. */
const char *ha_leaks_text(const struct ha_leaks *leaks, char *buf, size_t size);

/* When some object has to be asked for again; 0: there is none. Any thread, never waits long. */
uint64_t ha_give_back_due(struct ha_incarnation *on);

/* Asks for what is due. As ha_give_back. */
void ha_give_back_again(struct ha_incarnation *on);

/* For who closes it: before, asks for all that is left; after, ends what is left nevertheless,
 * with its memory. */
void ha_give_back_last(struct ha_incarnation *on);
void ha_refusals_end(struct ha_refusals *refusals);

#endif
