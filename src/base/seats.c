/* SPDX-License-Identifier: Apache-2.0 */
#include "base/seats.h"

#include "base/random.h"

#include <string.h>

void ha_seats_init(struct ha_seats *seats)
{
	memset(seats, 0, sizeof(*seats));
	ha_list_init(&seats->by_age);
	seats->salt = ha_random();
}

uint64_t ha_seats_source(const union ha_sockaddr *from)
{
	uint64_t half = 0;
	uint32_t v4 = 0;

	if (from->sa.sa_family == AF_INET)
		return ntohl(from->in.sin_addr.s_addr);
	if (from->sa.sa_family != AF_INET6)
		return 0;
	if (IN6_IS_ADDR_V4MAPPED(&from->in6.sin6_addr)) {
		memcpy(&v4, &from->in6.sin6_addr.s6_addr[12], sizeof(v4));
		return ntohl(v4);
	}
	memcpy(&half, from->in6.sin6_addr.s6_addr, sizeof(half));
	return half;
}

/* Every bit of the source has a part in it, and the salt decides which. */
static uint8_t bucket_of(const struct ha_seats *seats, uint64_t source)
{
	uint64_t x = source ^ seats->salt;

	x = (x ^ x >> 32) * 0xd6e8feb86659fd93ull;
	x = (x ^ x >> 32) * 0xd6e8feb86659fd93ull;
	return (uint8_t)(x >> 56);
}

void ha_seats_take(struct ha_seats *seats, struct ha_seat *seat, uint64_t source)
{
	seat->bucket = bucket_of(seats, source);
	seats->from[seat->bucket]++;
	seats->taken++;
	ha_list_push_back(&seats->by_age, &seat->by_age);
}

void ha_seats_leave(struct ha_seats *seats, struct ha_seat *seat)
{
	seats->from[seat->bucket]--;
	seats->taken--;
	ha_list_remove(&seat->by_age);
}

struct ha_seat *ha_seats_next_to_leave(const struct ha_seats *seats)
{
	struct ha_seat *found = NULL;
	struct ha_list *pos;

	ha_list_for_each (pos, &seats->by_age) {
		struct ha_seat *seat = ha_container_of(pos, struct ha_seat, by_age);

		if (!found || seats->from[seat->bucket] > seats->from[found->bucket])
			found = seat;
	}
	return found;
}
