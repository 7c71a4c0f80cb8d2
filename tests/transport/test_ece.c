/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Enhanced connection establishment: both ends of each path, the one in reserve too, agree on the
 * options that both devices have; where one end has none there is none, and traffic all the same.
 */
#include "harness.h"

#include <string.h>

#define VENDOR 0x5356

static void begin_with(struct pair *pair, bool enabled)
{
	pair_init(pair);
	pair->config.ib_ece_enable = enabled;
	pair->config.enable_backup = true;
	pair->fabric.rails = 2;
	pair->config.ib_qps_per_connection = 2;
	pair_open(pair);
}

static void begin(struct pair *pair)
{
	begin_with(pair, true);
}

/* Of every queue pair of every path of an end: they agree. 0: without. */
static uint32_t options_of(const struct ha_comm *comm, unsigned paths)
{
	uint32_t options = 0;
	unsigned seen = 0;

	for (unsigned p = 0; p < comm->npaths; p++) {
		const struct ha_path *path = comm->paths[p];

		if (!path || !ha_path_ready(path))
			continue;
		for (unsigned q = 0; q < path->nqps; q++) {
			struct ibv_ece ece = {0};

			/* What the queue pair itself says, whatever the path believes. */
			assert_int_equal(ibv_query_ece(path->qps[q].qp, &ece), 0);
			assert_int_equal(ece.vendor_id, VENDOR);
			if (seen == 0 && q == 0)
				options = ece.options;
			assert_int_equal(ece.options, options);
		}
		assert_int_equal(path->ece.known, options != 0);
		seen++;
	}
	assert_int_equal(seen, paths);
	return options;
}

static void carries_on(struct pair *pair)
{
	for (uint32_t i = 1; i < 20; i++)
		transfer(pair, i * 1000, i);
	assert_int_equal(captured_warnings, 0);
}

static void options_for(uint32_t host, uint32_t vendor, uint32_t options)
{
	for (uint32_t rail = 0; rail < 2; rail++)
		sv_stepped_set_ece(host, rail, vendor, options);
}

static void both_ends_agree_on_what_both_have(void **state)
{
	(void)state;
	for (uint32_t host = 0; host < 2; host++) { /* whichever has fewer */
		struct pair pair;

		begin(&pair);
		options_for(host, VENDOR, 0xd);
		pair_connect(&pair);
		pair_wait_standby(&pair);
		assert_int_equal(options_of(pair.send, 2), 0x5);
		assert_int_equal(options_of(pair.recv, 2), 0x5);
		carries_on(&pair);
		pair_close(&pair);
	}
}

/* Rules count from their first match, so that they are made before the connection. */
static void refused(const char *rule)
{
	struct pair pair;
	int id;

	begin(&pair);
	id = add_rule(rule);
	pair_connect(&pair);
	pair_wait_standby(&pair);
	assert_true(fired(id) > 0);
	sv_stepped_fault_remove(id);
	assert_int_equal(options_of(pair.send, 2), 0);
	assert_int_equal(options_of(pair.recv, 2), 0);
	carries_on(&pair);
	pair_close(&pair);
}

static uint32_t unconnected_options(const struct ha_comm *comm)
{
	const struct ha_path *path = comm->paths[0];

	return path->ece.known ? path->ece.options : 0;
}

static void where_a_device_refuses_there_is_none(void **state)
{
	(void)state;
	refused("errno=EINVAL verb=set_ece host=0");
	refused("errno=EINVAL verb=set_ece host=1");
	refused("errno=EOPNOTSUPP verb=set_ece host=1");
}

/* The second queue pair is refused what the first one took. */
static void one_queue_pair_that_is_refused_is_enough(void **state)
{
	(void)state;
	refused("errno=EINVAL verb=set_ece host=1 nth=2 every=4 count=100");
}

static void where_an_end_cannot_say_there_is_none(void **state)
{
	static const char *const rules[] = {
	    "errno=EOPNOTSUPP verb=query_ece host=0",
	    "errno=ENOSYS verb=query_ece host=0",
	    "errno=EOPNOTSUPP verb=query_ece host=1",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
		struct pair pair;
		int id;

		begin(&pair);
		id = add_rule(rules[i]);
		pair_connect(&pair);
		pair_wait_standby(&pair);
		assert_true(fired(id) > 0);
		assert_int_equal(unconnected_options(pair.send), 0);
		assert_int_equal(unconnected_options(pair.recv), 0);
		sv_stepped_fault_remove(id);
		assert_int_equal(options_of(pair.send, 2), 0);
		assert_int_equal(options_of(pair.recv, 2), 0);
		carries_on(&pair);
		pair_close(&pair);
	}
}

static void other_vendors_do_not_agree(void **state)
{
	struct pair pair;

	(void)state;
	begin(&pair);
	options_for(1, 0x15b3, 0x7);
	pair_connect(&pair);
	pair_wait_standby(&pair);
	assert_int_equal(unconnected_options(pair.send), 0);
	assert_int_equal(unconnected_options(pair.recv), 0);
	carries_on(&pair);
	pair_close(&pair);
}

static void it_can_be_switched_off(void **state)
{
	struct pair pair;

	(void)state;
	begin_with(&pair, false);
	pair_connect(&pair);
	pair_wait_standby(&pair);
	assert_int_equal(options_of(pair.send, 2), 0);
	assert_int_equal(options_of(pair.recv, 2), 0);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(both_ends_agree_on_what_both_have),
	    cmocka_unit_test(where_a_device_refuses_there_is_none),
	    cmocka_unit_test(one_queue_pair_that_is_refused_is_enough),
	    cmocka_unit_test(where_an_end_cannot_say_there_is_none),
	    cmocka_unit_test(other_vendors_do_not_agree),
	    cmocka_unit_test(it_can_be_switched_off),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
