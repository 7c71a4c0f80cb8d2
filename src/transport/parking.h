/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a rail should be left out because it slows the others down by more than it carries
 * itself: two NICs behind one PCIe bridge do that, or a switch that pauses its senders. That all
 * rails end together (balance.h) does not show it, and the one that is slowed down may look like
 * the slow one. So it is tried: for a while one rail has nothing, then the next, and if more bytes
 * are through without it than before and after, twice, it is parked: a processor that somebody else
 * has, or what other connections do, makes one of these slow or fast, too. Then it is tried again,
 * after longer and longer. Nothing here knows a connection.
 *
 *	REST --(due)--> TOGETHER --(measured)--> ALONE --(all were tried)--> REST
 *						 | ^ ^
 *				        (better) | | +--(no better: the next one)
 *						 v |
 *		      PARKED --(due)--------> AGAIN (no better than this: the next one;
 *			   ^			 |	  better once: the same one)
 *			   +---------------------+ (better, twice; after PARKED, once)
 *
 * Time counts only while something is under way: how much a program sends is no matter.
 *
 * Who tries may have to stop in the middle. Then it is tried again at once; where that comes to no
 * end, either, what was before stays: what is parked for as long again, and else a hundred times as
 * long as rails were left out. Otherwise they would be, again and again, to no end.
 */
#ifndef HA_TRANSPORT_PARKING_H
#define HA_TRANSPORT_PARKING_H

#include "transport/balance.h"

#include <stdbool.h>
#include <stdint.h>

enum ha_parking_state {
	HA_PARKING_REST,
	HA_PARKING_TOGETHER, /* what all of them carry is measured */
	HA_PARKING_ALONE,    /* what they carry without one is */
	HA_PARKING_AGAIN,    /* what all of them carry is, after that was more */
	HA_PARKING_PARKED,   /* and meanwhile what they carry without it */
};

/* Of one sender. All zero: nothing was tried, and it is due. [T] */
struct ha_parking {
	uint8_t state;	/* enum ha_parking_state: parking.c writes it */
	uint8_t slot;	/* ALONE, PARKED: that is left out; AGAIN: that was */
	uint8_t tried;	/* mask of slots, without which it was no better */
	uint8_t better; /* how often, without this one */
	uint8_t parked; /* where parked_ms is not 0: the slot that was parked last */
	bool settled;	/* of what is measured the beginning is over, which does not count */
	bool broken;	/* the last try came to no end */
	uint32_t stripes;
	uint64_t bytes, busy_ns; /* of what is measured */
	uint64_t under_way;	 /* bytes that were when it began */
	uint64_t without_ns;	 /* in which one was left out, since they rested */
	uint64_t since_ns;	 /* until when busy_ns counts */
	double together, alone;	 /* bytes a nanosecond */
	uint64_t due_ns;	 /* REST, PARKED */
	uint32_t parked_ms;	 /* last time */
};

/* The slot that is left out; HA_MAX_PATHS: none is. */
static inline unsigned ha_parking_left_out(const struct ha_parking *parking)
{
	const bool is = parking->state == HA_PARKING_ALONE || parking->state == HA_PARKING_PARKED;

	return is ? parking->slot : HA_MAX_PATHS;
}

/* A stripe sets out, where nothing was under way. */
void ha_parking_goes_on(struct ha_parking *parking, uint64_t now_ns);

/*
 * A stripe is through, and the balance knows. slots: those that could carry. True: a rail is
 * parked from now on, for parked_ms.
 */
bool ha_parking_carried(struct ha_parking *parking, const struct ha_balance *balance,
			unsigned slots, uint32_t bytes, uint64_t now_ns);

/* That slot has another path from now on, or none. */
void ha_parking_lost(struct ha_parking *parking, unsigned slot);

/* What is being tried is not measured to its end: nothing is tried any more, until it is due. */
void ha_parking_stop(struct ha_parking *parking);

/* What another sender has stopped: here that which is parked, if one is, is on this slot. */
void ha_parking_goes_over(struct ha_parking *parking, unsigned slot);

#endif
