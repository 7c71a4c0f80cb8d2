/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What makes a connection leave its path, and what must not: completion statuses, verbs that fail,
 * asynchronous events. What is a path's fault costs a failover and nothing else; what is a
 * request's fault is an error at once, however many paths there are, or when several paths agree.
 */
#include "harness.h"
#include "instance/instance.h"

#include "base/clock.h"
#include "failover/engine.h"
#include "transport/clear_path.h"
#include "transport/recv.h"
#include "transport/send.h"

#include <dlfcn.h>
#include <string.h>

/* The completion queue made last without being a path's: see below. */
static struct ibv_cq *cq_of_heartbeats;

/* In front of the library's. A path's queue has no channel: it is polled. */
struct ibv_cq *ibv_create_cq(struct ibv_context *ctx, int cqe, void *cq_context,
			     struct ibv_comp_channel *channel, int comp_vector)
{
	struct ibv_cq *(*create)(struct ibv_context *, int, void *, struct ibv_comp_channel *, int);
	struct ibv_cq *cq;

	*(void **)&create = dlsym(RTLD_NEXT, "ibv_create_cq");
	cq = create(ctx, cqe, cq_context, channel, comp_vector);
	if (channel)
		cq_of_heartbeats = cq;
	return cq;
}

static void two_rails(struct pair *pair)
{
	pair_init(pair);
	pair->config.enable_backup = true;
	pair->fabric.rails = 2;
	pair_up(pair);
	pair_wait_standby(pair);
}

/* Both ends went on, once, and the connection is whole. */
static void assert_switched(struct pair *pair, uint64_t times)
{
	pair_idle(pair, 50);
	assert_int_equal(pair->recv->count.failovers, times);
	assert_int_equal(pair->send->count.failovers, times);
	assert_int_equal(ha_comm_error(pair->send), HA_OK);
	assert_int_equal(ha_comm_error(pair->recv), HA_OK);
	transfer(pair, 5000, 99);
}

/* ---- statuses -------------------------------------------------------------------------------- */

static const char *const of_paths[] = {
    "RETRY_EXC_ERR", "RNR_RETRY_EXC_ERR", "WR_FLUSH_ERR",     "FATAL_ERR",
    "GENERAL_ERR",   "REM_OP_ERR",	  "RESP_TIMEOUT_ERR", "LOC_QP_OP_ERR",
    "REM_ABORT_ERR", "REM_INV_REQ_ERR",	  "BAD_RESP_ERR",     "REM_ACCESS_ERR",
};

/* A message at the sender, a clear-to-send at the receiver; sent or not when it failed. */
static void a_status_of_a_path_is_a_failover(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(of_paths) / sizeof(of_paths[0]); i++)
		for (unsigned which = 0; which < 4; which++) {
			struct pair pair;
			char rule[128];
			int id;

			two_rails(&pair);
			snprintf(rule, sizeof(rule), "wc=%s host=%u op=write nth=1%s", of_paths[i],
				 which % 2, which / 2 ? " sent=0" : "");
			id = add_rule(rule);
			transfer(&pair, 20000, 3);
			assert_int_equal(fired(id), 1);
			assert_switched(&pair, 1);
			pair_close(&pair);
		}
}

static const char *const of_requests[] = {
    "LOC_LEN_ERR",
    "LOC_PROT_ERR",
    "LOC_ACCESS_ERR",
    "MW_BIND_ERR",
};

/* One message of 30000 bytes, which the rules are about, on its way. */
static struct ha_request *start(struct pair *pair)
{
	const size_t offset = 0, size = 30000;
	const int tag = 1;

	assert_non_null(post_recv(pair, 1, &offset, &size, &tag));
	fill(pair->from.bytes, size, 5);
	return post_send(pair, 0, size, tag);
}

static ha_result_t failing_transfer(struct pair *pair)
{
	return pair_finish(pair, start(pair), NULL);
}

static void a_status_of_a_request_is_an_error(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(of_requests) / sizeof(of_requests[0]); i++) {
		struct pair pair;
		char rule[128];
		int id;

		two_rails(&pair);
		snprintf(rule, sizeof(rule), "wc=%s host=0 op=write minlen=20000 nth=1",
			 of_requests[i]);
		id = add_rule(rule);
		assert_int_equal(failing_transfer(&pair), HA_ERR_INTERNAL);
		assert_int_equal(fired(id), 1);
		assert_logged("for a message (number 1)");
		pair_idle(&pair, 50);
		assert_int_equal(ha_comm_error(pair.recv), HA_ERR_REMOTE); /* it was told */
		assert_int_equal(pair.send->count.failovers, 0);
		pair_close(&pair);
	}
}

/* While both ends change their keys, one that does not fit is nobody's fault. */
static void a_wrong_key_is_a_paths_fault_while_keys_change(void **state)
{
	struct ha_request *send;
	struct pair pair;
	int id;

	(void)state;
	two_rails(&pair);
	id = add_rule("wc=REM_ACCESS_ERR host=0 op=write minlen=20000 nth=1");
	send = start(&pair);
	pair.send->epoch_changing = true;
	ha_comm_not_clear(pair.send);
	assert_int_equal(pair_finish(&pair, send, NULL), HA_OK);
	assert_int_equal(fired(id), 1);
	assert_switched(&pair, 1);
	pair_close(&pair);
}

/* The same answer on one path after the other is about the request. The first is repaired in place,
 * and what it answers then says nothing new. */
static void a_status_that_follows_a_request_is_an_error(void **state)
{
	static const struct {
		const char *status;
		ha_result_t code;
		unsigned paths;
	} cases[] = {
	    {"REM_OP_ERR", HA_ERR_REMOTE, 2},	     {"REM_ABORT_ERR", HA_ERR_REMOTE, 2},
	    {"GENERAL_ERR", HA_ERR_SYSTEM, 2},	     {"LOC_QP_OP_ERR", HA_ERR_SYSTEM, 4},
	    {"REM_INV_REQ_ERR", HA_ERR_INTERNAL, 3}, {"BAD_RESP_ERR", HA_ERR_INTERNAL, 3},
	    {"REM_ACCESS_ERR", HA_ERR_INTERNAL, 3},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct pair pair;
		char rule[128];
		int id;

		two_rails(&pair);
		snprintf(rule, sizeof(rule), "wc=%s host=0 op=write minlen=20000 sent=0",
			 cases[i].status);
		id = add_rule(rule);
		assert_int_equal(failing_transfer(&pair), cases[i].code);
		assert_int_equal(fired(id), cases[i].paths + 1);
		assert_int_equal(pair.send->count.failovers, cases[i].paths);
		snprintf(rule, sizeof(rule), "the same on %u paths in a row", cases[i].paths);
		assert_logged(rule);
		pair_close(&pair);
	}
}

/* Nothing but this would end it: the paths are proved again, by writes that are not refused. */
static void what_every_path_refuses_is_an_error_at_the_receiver_too(void **state)
{
	static const char *const rules[] = {
	    "wc=REM_INV_REQ_ERR host=1 op=write minlen=1 maxlen=64 sent=0",
	    "wc=REM_ACCESS_ERR host=1 op=write minlen=1 maxlen=64 sent=0",
	    "wc=REM_INV_REQ_ERR host=1 op=recv",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
		struct pair pair;
		struct ha_request *recv;
		const size_t offset = 0, size = 30000;
		const int tag = 1;
		uint64_t began_ns;
		int id;

		two_rails(&pair);
		id = add_rule(rules[i]);
		began_ns = sv_stepped_now();
		recv = post_recv(&pair, 1, &offset, &size, &tag);
		assert_non_null(recv);
		for (int k = 0; k < 3000 && ha_comm_error(pair.recv) == HA_OK; k++) {
			(void)try_send(&pair, 0, size, tag);
			pair_idle(&pair, 1);
		}
		assert_int_equal(ha_comm_error(pair.recv), HA_ERR_INTERNAL);
		assert_true(fired(id) >= 4);
		/* The first in place. What fails receives fails a standby's, too, if a probe comes
		 * to it before it is needed: then one more is in place. */
		assert_in_range(pair.send->count.failovers, 3, i == 2 ? 4 : 3);
		assert_true(sv_stepped_now() - began_ns < 1000 * HA_NS_PER_MS);
		assert_logged("the same on 3 paths in a row");
		pair_close(&pair);
	}
}

/* A device that says it of one message now and of another later says nothing about either. */
static void refusals_with_messages_between_them_are_the_paths(void **state)
{
	struct pair pair;

	(void)state;
	two_rails(&pair);
	for (unsigned i = 1; i <= 6; i++) {
		int id = add_rule("wc=REM_INV_REQ_ERR host=0 op=write minlen=20000 sent=0 nth=1");

		transfer(&pair, 30000, i);
		assert_int_equal(fired(id), 1);
		assert_switched(&pair, i);
		pair_wait_standby(&pair);
	}
	pair_close(&pair);
}

/* It is left alone, and tried again later. */
static void a_standby_that_refuses_probes_is_no_error(void **state)
{
	struct pair pair;
	int id;

	(void)state;
	pair_init(&pair);
	pair.config.enable_backup = true;
	pair.fabric.rails = 2;
	pair_up(&pair);
	id = add_rule("wc=REM_INV_REQ_ERR rail=1 op=write sent=0 count=5");
	pair_wait_standby(&pair);
	assert_int_equal(fired(id), 5);
	assert_switched(&pair, 0);
	pair_close(&pair);
}

/* Silence is the path's, as often as it takes. */
static void retries_that_run_out_never_blame_the_request(void **state)
{
	struct pair pair;
	int id;

	(void)state;
	two_rails(&pair);
	id = add_rule("wc=RETRY_EXC_ERR host=0 op=write minlen=20000 sent=0 count=9");
	assert_int_equal(failing_transfer(&pair), HA_OK);
	assert_int_equal(fired(id), 9);
	assert_switched(&pair, 9);
	pair_close(&pair);
}

/* ---- verbs ----------------------------------------------------------------------------------- */

/* Some of the calls are those of heartbeats, which have queues of their own and only lose one. */
static void a_verb_that_fails_is_a_failover(void **state)
{
	static const char *const rules[] = {
	    "errno=ENOMEM verb=post_send host=0", "errno=ENOMEM verb=post_send host=1",
	    "errno=EINVAL verb=poll_cq host=0",	  "errno=EINVAL verb=poll_cq host=1",
	    "errno=ENOMEM verb=post_recv host=1",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
		uint64_t failovers = 0;

		for (unsigned nth = 1; nth <= 6; nth++) {
			struct pair pair;
			char rule[128];
			int id;

			two_rails(&pair);
			snprintf(rule, sizeof(rule), "%s rail=0 nth=%u", rules[i], nth);
			id = add_rule(rule);
			for (uint32_t k = 0; fired(id) == 0; k++) {
				assert_true(k < 1000);
				transfer(&pair, 500 + k, k);
			}
			pair_idle(&pair, 100);
			assert_true(pair.recv->count.failovers <= 1);
			failovers += pair.recv->count.failovers;
			assert_switched(&pair, pair.recv->count.failovers);
			pair_close(&pair);
		}
		assert_true(failovers > 0);
	}
}

/* ---- events ---------------------------------------------------------------------------------- */

static void deliver(struct pair *pair, int end, enum ibv_event_type type, struct ha_path *path)
{
	struct ha_device_set *devices = ha_instance_devices(pair->inst[end]);
	struct ibv_async_event event = {.event_type = type};

	if (type == IBV_EVENT_CQ_ERR)
		event.element.cq = path->cq;
	else
		event.element.qp = path->qps[0].qp;
	devices->on_event(devices->on_event_arg, &event, path->nic);
}

static void an_event_of_a_queue_is_a_failover(void **state)
{
	static const enum ibv_event_type types[] = {IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR,
						    IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_CQ_ERR};

	(void)state;
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		for (int end = 0; end < 2; end++) {
			struct pair pair;
			struct ha_comm *comm;

			two_rails(&pair);
			comm = end ? pair.recv : pair.send;
			/* Whoever destroys the queue would hold the token: the event must not wait.
			 */
			ha_token_acquire(comm);
			deliver(&pair, end, types[i], ha_comm_path(comm));
			ha_token_release(comm);
			transfer(&pair, 20000, 3);
			assert_switched(&pair, 1);
			pair_close(&pair);
		}
}

/* It names no path, and nothing may be taken for one. */
static void an_event_of_the_heartbeats_queue_is_no_failover(void **state)
{
	struct pair pair;
	struct ha_device_set *devices;
	struct ibv_async_event event = {.event_type = IBV_EVENT_CQ_ERR};

	(void)state;
	cq_of_heartbeats = NULL;
	two_rails(&pair);
	assert_non_null(cq_of_heartbeats);
	assert_null(cq_of_heartbeats->cq_context);
	event.element.cq = cq_of_heartbeats;
	for (int end = 0; end < 2; end++) {
		devices = ha_instance_devices(pair.inst[end]);
		devices->on_event(devices->on_event_arg, &event, &devices->nics[0]);
	}
	transfer(&pair, 20000, 3);
	assert_switched(&pair, 0);
	pair_close(&pair);
}

/* A standby's trouble is its own. */
static void an_event_of_a_standby_is_no_failover(void **state)
{
	(void)state;
	for (int end = 0; end < 2; end++) {
		struct pair pair;
		struct ha_path *standby;
		uint32_t generation;

		two_rails(&pair);
		standby = (end ? pair.recv : pair.send)->paths[1];
		generation = standby->generation;
		deliver(&pair, end, IBV_EVENT_QP_FATAL, standby);
		pair_idle(&pair, 20);
		pair_wait_standby(&pair);
		assert_true(!pair.recv->paths[1] || pair.recv->paths[1]->generation > generation);
		assert_switched(&pair, 0);
		pair_close(&pair);
	}
}

static void an_address_that_goes_is_a_failover_and_another_is_not(void **state)
{
	union ibv_gid other = {{0}};

	(void)state;
	other.raw[10] = other.raw[11] = 0xff;
	other.raw[12] = 10;
	other.raw[15] = 77;
	for (uint32_t end = 0; end < 2; end++) {
		struct pair pair;
		uint32_t used, unused;

		two_rails(&pair);
		used = (uint32_t)pair.send->paths[0]->addr.gid_index;
		unused = used == 0 ? 1 : 0;
		sv_stepped_set_gid(end, 0, unused, &other);
		pair_idle(&pair, 20);
		transfer(&pair, 1000, 1);
		assert_switched(&pair, 0);
		sv_stepped_set_gid(end, 0, used, &other);
		pair_idle(&pair, 20);
		transfer(&pair, 1000, 1);
		assert_switched(&pair, 1);
		assert_logged("port address changed");
		pair_close(&pair);
	}
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* A peer that is stopped may take for ever to make its end of a standby. */
static void waiting_for_the_peers_end_keeps_no_processor_busy(void **state)
{
	struct pair pair;
	const struct ha_slot *slot;

	(void)state;
	pair_init(&pair);
	pair.config.enable_backup = true;
	pair.fabric.rails = 2;
	pair_up(&pair);
	slot = &pair.recv->failover->slots[1];
	for (int i = 0; i < 1000 && slot->state != HA_SLOT_REBUILDING; i++) {
		sv_stepped_run(sv_stepped_now() + HA_NS_PER_MS);
		ha_instance_progress(pair.inst[1]);
	}
	for (int i = 0; i < 100; i++) {
		ha_instance_progress(pair.inst[1]);
		assert_int_equal(slot->state, HA_SLOT_REBUILDING);
		assert_true(pair.recv->poller.due_ns > sv_stepped_now());
		sv_stepped_run(sv_stepped_now() + HA_NS_PER_MS);
	}
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_status_of_a_path_is_a_failover),
	    cmocka_unit_test(a_status_of_a_request_is_an_error),
	    cmocka_unit_test(a_wrong_key_is_a_paths_fault_while_keys_change),
	    cmocka_unit_test(a_status_that_follows_a_request_is_an_error),
	    cmocka_unit_test(what_every_path_refuses_is_an_error_at_the_receiver_too),
	    cmocka_unit_test(refusals_with_messages_between_them_are_the_paths),
	    cmocka_unit_test(a_standby_that_refuses_probes_is_no_error),
	    cmocka_unit_test(retries_that_run_out_never_blame_the_request),
	    cmocka_unit_test(a_verb_that_fails_is_a_failover),
	    cmocka_unit_test(an_event_of_a_queue_is_a_failover),
	    cmocka_unit_test(an_event_of_the_heartbeats_queue_is_no_failover),
	    cmocka_unit_test(an_event_of_a_standby_is_no_failover),
	    cmocka_unit_test(waiting_for_the_peers_end_keeps_no_processor_busy),
	    cmocka_unit_test(an_address_that_goes_is_a_failover_and_another_is_not),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
