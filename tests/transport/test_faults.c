/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Failures on a connection's only path, which the hardware does not survive: one latched error with
 * one clear line, the same from every call, and close works.
 */
#include "harness.h"
#include "instance/instance.h"

static void a_dead_path_is_a_remote_error_at_the_sender(void **state)
{
	struct in_flight t;
	struct pair pair;

	(void)state;
	pair_init(&pair);
	pair_up(&pair);
	t = pair_start(&pair);
	sv_stepped_step();
	sv_stepped_cut(0, true);
	assert_int_equal(pair_finish(&pair, t.send, NULL), HA_ERR_REMOTE);
	assert_logged("transport retry counter exceeded");
	assert_logged("sim0:1");
	assert_int_equal(captured_warnings, 1);
	pair_assert_latched(&pair, pair.send, t.send, HA_ERR_REMOTE);
	assert_int_equal(captured_warnings, 1);
	pair_close(&pair);
}

/* A clear-to-send is unsignalled, and yet its failure must be told by its own status. */
static void a_clear_to_send_that_is_lost_is_a_remote_error_at_the_receiver(void **state)
{
	const size_t offset = 0, capacity = 100;
	struct ha_request *recv;
	const int tag = 1;
	struct pair pair;

	(void)state;
	pair_init(&pair);
	pair_up(&pair);
	sv_stepped_cut(0, true);
	recv = post_recv(&pair, 1, &offset, &capacity, &tag);
	assert_int_equal(pair_finish(&pair, recv, NULL), HA_ERR_REMOTE);
	assert_logged("transport retry counter exceeded");
	assert_int_equal(captured_warnings, 1);
	pair_assert_latched(&pair, pair.recv, recv, HA_ERR_REMOTE);
	pair_close(&pair);
}

static void a_dead_device_is_a_system_error_at_once(void **state)
{
	struct in_flight t;
	struct pair pair;
	bool done;

	(void)state;
	pair_init(&pair);
	pair_up(&pair);
	t = pair_start(&pair);
	sv_stepped_step();
	sv_stepped_kill(0, 0);
	ha_instance_progress(pair.inst[0]);
	assert_int_equal(ha_test(t.send, &done, NULL), HA_ERR_SYSTEM);
	assert_logged("device sim0 failed");
	pair_assert_latched(&pair, pair.send, t.send, HA_ERR_SYSTEM);
	pair_close(&pair); /* every verb of host 0 fails now */
}

/* Error statuses as a device reports them, and what each is called. */
static const struct {
	const char *name;
	ha_result_t code;
} statuses[] = {
    {"RETRY_EXC_ERR", HA_ERR_REMOTE},	 {"RNR_RETRY_EXC_ERR", HA_ERR_REMOTE},
    {"REM_OP_ERR", HA_ERR_REMOTE},	 {"RESP_TIMEOUT_ERR", HA_ERR_REMOTE},
    {"REM_ACCESS_ERR", HA_ERR_INTERNAL}, {"REM_INV_REQ_ERR", HA_ERR_INTERNAL},
    {"LOC_PROT_ERR", HA_ERR_INTERNAL},	 {"LOC_LEN_ERR", HA_ERR_INTERNAL},
    {"LOC_QP_OP_ERR", HA_ERR_SYSTEM},	 {"FATAL_ERR", HA_ERR_SYSTEM},
    {"GENERAL_ERR", HA_ERR_SYSTEM},
};

static void every_status_is_latched_with_one_line(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++) {
		struct in_flight t;
		struct pair pair;
		char rule[128];

		pair_init(&pair);
		pair_up(&pair);
		transfer(&pair, 10, 1);
		snprintf(rule, sizeof(rule), "wc=%s host=0 op=write nth=1", statuses[i].name);
		assert_true(sv_stepped_fault_add(rule, captured_log, sizeof(captured_log)) >= 0);
		t = pair_start(&pair);
		assert_int_equal(pair_finish(&pair, t.send, NULL), statuses[i].code);
		assert_int_equal(captured_warnings, 1);
		assert_logged("vendor error");
		assert_logged("number 2");
		pair_assert_latched(&pair, pair.send, t.send, statuses[i].code);
		pair_close(&pair);
		assert_int_equal(captured_warnings, 1);
	}
}

static void verbs_that_fail_are_named(void **state)
{
	static const struct {
		const char *rule, *text;
		bool at_sender;
	} cases[] = {
	    {"errno=ENOMEM verb=post_send host=0 nth=1", "ibv_post_send failed", true},
	    {"errno=ENOMEM verb=post_send host=1 nth=1", "ibv_post_send failed", false},
	    {"errno=EINVAL verb=poll_cq host=0 nth=1", "ibv_poll_cq failed", true},
	    {"errno=EINVAL verb=poll_cq host=1 nth=1", "ibv_poll_cq failed", false},
	    {"errno=ENOMEM verb=post_recv host=1 nth=1", "ibv_post_recv failed", false},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const size_t offset = 0, size = 100;
		const int tag = 1;
		struct pair pair;
		struct ha_comm *comm;

		pair_init(&pair);
		pair_up(&pair);
		assert_true(
		    sv_stepped_fault_add(cases[i].rule, captured_log, sizeof(captured_log)) >= 0);
		comm = cases[i].at_sender ? pair.send : pair.recv;
		/* A few messages: receives are put back a batch at a time. */
		for (int k = 0; k < 3 * HA_RQ_BATCH && ha_comm_error(comm) == HA_OK; k++) {
			struct ha_request *recv, *send = NULL;
			void *data = pair.to.bytes;
			bool done = false;

			if (ha_irecv(pair.recv, 1, &data, &size, &tag, &pair.to.mr, &recv) != HA_OK)
				break;
			for (int s = 0; s < 100 && ha_comm_error(comm) == HA_OK && !done; s++) {
				if (!send && ha_isend(pair.send, pair.from.bytes, size, tag,
						      pair.from.mr, &send) != HA_OK)
					break;
				pair_step(&pair);
				if (recv && ha_test(recv, &done, NULL) != HA_OK)
					break;
			}
			for (int s = 0; send && s < 100; s++) {
				if (ha_test(send, &done, NULL) != HA_OK || done)
					break;
				pair_step(&pair);
			}
			(void)offset;
		}
		assert_int_equal(ha_comm_error(comm), HA_ERR_SYSTEM);
		assert_logged(cases[i].text);
		assert_in_range(captured_warnings, 1, 2); /* the other end may have been told */
		pair_close(&pair);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_dead_path_is_a_remote_error_at_the_sender),
	    cmocka_unit_test(a_clear_to_send_that_is_lost_is_a_remote_error_at_the_receiver),
	    cmocka_unit_test(a_dead_device_is_a_system_error_at_once),
	    cmocka_unit_test(every_status_is_latched_with_one_line),
	    cmocka_unit_test(verbs_that_fail_are_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
