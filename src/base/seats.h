/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may stay of those who have connected and have not said yet who they are. Seats are limited,
 * and when all are taken somebody makes way: of the source that has most of them, who came first.
 * So a flood costs those nothing who come from elsewhere; who comes from the same source has as
 * long as it takes to fill all seats.
 *
 * A source is a number: ha_seats_source of an address, or whatever else those who come in numbers
 * cannot have many of. Not thread-safe.
 */
#ifndef HA_BASE_SEATS_H
#define HA_BASE_SEATS_H

#include "base/list.h"
#include "base/net.h"

#include <stdbool.h>
#include <stdint.h>

#define HA_SEATS	 256
#define HA_SEATS_BUCKETS 256

/* Embedded in whoever sits there. */
struct ha_seat {
	struct ha_list by_age;
	uint8_t bucket;
};

struct ha_seats {
	struct ha_list by_age; /* who came first is first */
	unsigned taken;
	uint64_t salt;
	/* How many come from the sources of a bucket. Which of them share one nobody can tell
	 * beforehand; then they count as one. */
	uint16_t from[HA_SEATS_BUCKETS];
};

void ha_seats_init(struct ha_seats *seats);

/* IPv4: the address. IPv6: its upper half, of which one host has all the rest. */
uint64_t ha_seats_source(const union ha_sockaddr *from);

void ha_seats_take(struct ha_seats *seats, struct ha_seat *seat, uint64_t source);
void ha_seats_leave(struct ha_seats *seats, struct ha_seat *seat);

/* Who has to leave for the next one; NULL: nobody sits. */
struct ha_seat *ha_seats_next_to_leave(const struct ha_seats *seats);

#endif
