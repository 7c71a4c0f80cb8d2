/* SPDX-License-Identifier: Apache-2.0 */
/* Who has to leave when all seats are taken. */
#include "../cmocka_all.h"

#include "base/seats.h"

#include <arpa/inet.h>
#include <string.h>

static struct ha_seat crowd[HA_SEATS + 1];

static union ha_sockaddr address(int family, const char *text)
{
	union ha_sockaddr addr;

	memset(&addr, 0, sizeof(addr));
	addr.sa.sa_family = (sa_family_t)family;
	assert_int_equal(
	    inet_pton(family, text,
		      family == AF_INET ? (void *)&addr.in.sin_addr : (void *)&addr.in6.sin6_addr),
	    1);
	return addr;
}

static uint64_t source(int family, const char *text)
{
	union ha_sockaddr addr = address(family, text);

	return ha_seats_source(&addr);
}

/* Two sources that do not happen to count as one. */
static uint64_t another(struct ha_seats *seats, uint64_t than)
{
	struct ha_seat a, b;

	ha_seats_take(seats, &a, than);
	for (uint64_t i = than + 1;; i++) {
		bool same;

		ha_seats_take(seats, &b, i);
		same = a.bucket == b.bucket;
		ha_seats_leave(seats, &b);
		if (same)
			continue;
		ha_seats_leave(seats, &a);
		return i;
	}
}

static void nobody_has_to_leave_where_nobody_sits(void **state)
{
	struct ha_seats seats;

	(void)state;
	ha_seats_init(&seats);
	assert_null(ha_seats_next_to_leave(&seats));
	ha_seats_take(&seats, &crowd[0], 1);
	ha_seats_leave(&seats, &crowd[0]);
	assert_null(ha_seats_next_to_leave(&seats));
	assert_int_equal(seats.taken, 0);
}

static void of_one_source_who_came_first_leaves_first(void **state)
{
	struct ha_seats seats;

	(void)state;
	ha_seats_init(&seats);
	for (int i = 0; i < HA_SEATS; i++)
		ha_seats_take(&seats, &crowd[i], 7);
	for (int i = 0; i < HA_SEATS; i++) {
		assert_ptr_equal(ha_seats_next_to_leave(&seats), &crowd[i]);
		ha_seats_leave(&seats, &crowd[i]);
	}
}

/* The one came first of all and is alone; the others come 10,000 times. */
static void a_crowd_from_one_source_makes_nobody_else_leave(void **state)
{
	struct ha_seats seats;
	uint64_t theirs;

	(void)state;
	ha_seats_init(&seats);
	theirs = another(&seats, 7);
	ha_seats_take(&seats, &crowd[0], 7);
	for (int i = 1; i < HA_SEATS; i++)
		ha_seats_take(&seats, &crowd[i], theirs);
	for (int i = 0; i < 10000; i++) {
		struct ha_seat *leaves = ha_seats_next_to_leave(&seats);

		assert_ptr_equal(leaves, &crowd[1 + i % (HA_SEATS - 1)]);
		ha_seats_leave(&seats, leaves);
		ha_seats_take(&seats, leaves, theirs);
		assert_int_equal(seats.taken, HA_SEATS);
	}
}

static void a_source_is_a_host(void **state)
{
	(void)state;
	assert_true(source(AF_INET, "10.0.0.1") != source(AF_INET, "10.0.0.2"));
	assert_true(source(AF_INET, "10.0.0.1") == source(AF_INET6, "::ffff:10.0.0.1"));
	assert_true(source(AF_INET6, "::ffff:10.0.0.1") != source(AF_INET6, "::ffff:10.0.0.2"));
	assert_true(source(AF_INET6, "2001:db8::1") == source(AF_INET6, "2001:db8::ffff:2"));
	assert_true(source(AF_INET6, "2001:db8::1") != source(AF_INET6, "2001:db8:0:1::1"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(nobody_has_to_leave_where_nobody_sits),
	    cmocka_unit_test(of_one_source_who_came_first_leaves_first),
	    cmocka_unit_test(a_crowd_from_one_source_makes_nobody_else_leave),
	    cmocka_unit_test(a_source_is_a_host),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
