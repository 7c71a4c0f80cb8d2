/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the hardware of a single path repairs by itself: packets that are lost, doubled or late, and
 * a short outage. Nobody notices.
 */
#include "harness.h"
#include "instance/instance.h"

#include <stdio.h>

/* The scenario every packet of which is lost once: sizes, groups, laps around the rings. */
static void scenario(struct pair *pair)
{
	const size_t offset[3] = {1 << 20, (1 << 20) + 8192, (1 << 20) + 16384};
	const size_t capacity[3] = {8000, 8000, 8000};
	const int tag[3] = {7, 8, 9};
	struct ha_request *recv, *send[3];
	int got[3];

	transfer(pair, 9000, 1);
	transfer(pair, 0, 2);
	transfer(pair, 1, 3);
	recv = post_recv(pair, 3, offset, capacity, tag);
	for (size_t i = 0; i < 3; i++) {
		fill(pair->from.bytes + i * 8192, 5000 + i, (uint32_t)i);
		send[i] = post_send(pair, i * 8192, 5000 + i, tag[i]);
	}
	assert_int_equal(pair_finish(pair, recv, got), HA_OK);
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(pair_finish(pair, send[i], NULL), HA_OK);
		assert_int_equal(got[i], 5000 + i);
		assert_true(filled(pair->to.bytes + offset[i], 5000 + i, (uint32_t)i));
	}
}

/* Every rule, at every packet of the scenario. */
static void at_every_packet(const char *action)
{
	for (unsigned nth = 1;; nth++) {
		uint64_t matched, fired;
		struct pair pair;
		char rule[128];
		int id;

		pair_init(&pair);
		pair_up(&pair);
		snprintf(rule, sizeof(rule), "%s nth=%u count=1", action, nth);
		id = sv_stepped_fault_add(rule, captured_log, sizeof(captured_log));
		assert_true(id >= 0);
		scenario(&pair);
		assert_true(sv_stepped_fault_stats(id, &matched, &fired));
		pair_close(&pair);
		assert_int_equal(captured_warnings, 0);
		if (fired == 0) {
			assert_true(nth > 10);
			return; /* past the last packet */
		}
	}
}

static void any_lost_packet_is_repaired(void **state)
{
	(void)state;
	at_every_packet("drop");
}

static void any_lost_acknowledgement_is_repaired(void **state)
{
	(void)state;
	at_every_packet("dropack");
}

static void any_doubled_packet_is_harmless(void **state)
{
	(void)state;
	at_every_packet("dup");
}

static void any_late_packet_is_harmless(void **state)
{
	(void)state;
	at_every_packet("delay=50us");
}

static void a_short_outage_is_survived(void **state)
{
	struct pair pair;
	const size_t offset = 0, size = 100000;
	const int tag = 1;
	struct ha_request *recv, *send;

	(void)state;
	pair_init(&pair);
	pair_up(&pair);
	recv = post_recv(&pair, 1, &offset, &size, &tag);
	fill(pair.from.bytes, size, 5);
	send = post_send(&pair, 0, size, tag);
	sv_stepped_step();
	sv_stepped_link(0, 0, false);
	for (int i = 0; i < 2; i++)
		ha_instance_progress(pair.inst[i]);
	sv_stepped_run(sv_stepped_now() + 100000000); /* less than the hardware's retries */
	sv_stepped_link(0, 0, true);
	assert_int_equal(pair_finish(&pair, recv, NULL), HA_OK);
	assert_int_equal(pair_finish(&pair, send, NULL), HA_OK);
	assert_true(filled(pair.to.bytes, size, 5));
	assert_int_equal(atomic_load(&pair.send->port_errors), 1);
	assert_int_equal(atomic_load(&pair.recv->port_errors), 0);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(any_lost_packet_is_repaired),
	    cmocka_unit_test(any_lost_acknowledgement_is_repaired),
	    cmocka_unit_test(any_doubled_packet_is_harmless),
	    cmocka_unit_test(any_late_packet_is_harmless),
	    cmocka_unit_test(a_short_outage_is_survived),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
