/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verbs that take their time (wait=), as commands to a sick device do: each waits by itself, and
 * other devices, other hosts and the data path of the device itself know nothing of it.
 */
#include "pair.h"
#include "verb_calls.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

/* So long a verb waits: others are done by then, on a busy machine too. */
#define WAIT_S	  2
#define FOREVER	  "100s"
#define SICK	  15 /* devices of a host that have a rule */
#define RAILS	  (SICK + 1)
#define ROCE_GID  3
#define WRITES	  200
#define MEANWHILE 20 /* of them are done while the command waits; each may wait for a processor */

static const struct end_options opt = {.len = 4096, .timeout = 16, .retry_cnt = 7};

/* ---------------------------------------------------------------- in the processes */

static void target_open(struct verb_target *t, int rail)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	NEED(list && list[rail]);
	t->ctx = ibv_open_device(list[rail]);
	ibv_free_device_list(list);
	NEED(t->ctx);
	t->pd = ibv_alloc_pd(t->ctx);
	t->cq = ibv_create_cq(t->ctx, 16, NULL, NULL, 0);
	t->gid_index = ROCE_GID;
	NEED(t->pd && t->cq);
}

static void target_close(struct verb_target *t)
{
	NEED(!ibv_destroy_cq(t->cq));
	NEED(!ibv_dealloc_pd(t->pd));
	NEED(!ibv_close_device(t->ctx));
}

/* Comes back when the test has done what it does to the fabric at this place. */
static void let_the_test(int test_fd)
{
	char byte = 'r';

	NEED(write(test_fd, &byte, 1) == 1);
	NEED(read(test_fd, &byte, 1) == 1);
}

static void all_verbs(const struct verb_target *t)
{
	for (size_t i = 0; i < num_verb_calls; i++) {
		int err = verb_calls[i].call(t);

		if (err)
			fprintf(stderr, "%s: %s\n", verb_calls[i].name, strerror(err));
		NEED(!err);
	}
}

/* A thread that calls one verb. */
struct caller {
	pthread_t thread;
	const struct verb_call *call;
	const struct verb_target *target;
	double began_s, ended_s;
	int err;
};

static void *call(void *arg)
{
	struct caller *c = arg;

	c->began_s = now_s();
	c->err = c->call->call(c->target);
	c->ended_s = now_s();
	return NULL;
}

static void start(struct caller *c, const struct verb_call *verb, const struct verb_target *target)
{
	*c = (struct caller){.call = verb, .target = target};
	NEED(!pthread_create(&c->thread, NULL, call, c));
}

static void join_one_that_waited(struct caller *c)
{
	NEED(!pthread_join(c->thread, NULL));
	if (c->err || c->ended_s - c->began_s < WAIT_S)
		fprintf(stderr, "%s: %s after %.3f s\n", c->call->name, strerror(c->err),
			c->ended_s - c->began_s);
	NEED(!c->err);
	NEED(c->ended_s - c->began_s >= WAIT_S);
}

/* ---------------------------------------------------------------- other devices */

static size_t batch_size(size_t first)
{
	return num_verb_calls - first < SICK ? num_verb_calls - first : SICK;
}

/* Each of the first devices waits in a verb of its own. All verbs on the last are done meanwhile.
 */
static int with_sick_devices(int peer_fd, int test_fd, void *arg)
{
	struct verb_target targets[RAILS];
	struct caller callers[SICK];

	(void)arg;
	for (int r = 0; r < RAILS; r++)
		target_open(&targets[r], r);
	for (size_t first = 0; first < num_verb_calls; first += SICK) {
		double healthy_s;

		let_the_test(test_fd); /* add rules */
		meet(peer_fd);
		for (size_t i = 0; i < batch_size(first); i++)
			start(&callers[i], &verb_calls[first + i], &targets[i]);
		all_verbs(&targets[SICK]);
		healthy_s = now_s();
		for (size_t i = 0; i < batch_size(first); i++) {
			join_one_that_waited(&callers[i]);
			NEED(healthy_s < callers[i].ended_s);
		}
		meet(peer_fd);
		let_the_test(test_fd); /* look at them and remove them */
	}
	for (int r = 0; r < RAILS; r++)
		target_close(&targets[r]);
	return 0;
}

/* The other host calls all of them on a rail whose device is sick at the first. */
static int on_another_host(int peer_fd, int test_fd, void *arg)
{
	struct verb_target t;

	(void)test_fd;
	(void)arg;
	target_open(&t, 0);
	for (size_t first = 0; first < num_verb_calls; first += SICK) {
		double began_s;

		meet(peer_fd);
		began_s = now_s();
		all_verbs(&t);
		NEED(now_s() - began_s < WAIT_S);
		meet(peer_fd);
	}
	target_close(&t);
	return 0;
}

static void add_rule(const char *rule)
{
	assert_int_equal(fabric_tool("fault %s '%s' >/dev/null", fabric_name(), rule), 0);
}

static void each_fired_once(size_t rules)
{
	json_t *status = fabric_status();

	assert_non_null(status);
	assert_int_equal(json_array_size(json_object_get(status, "faults")), rules);
	for (unsigned i = 0; i < rules; i++)
		if (status_fired(status, i) != 1)
			fail_msg("rule %u fired %lld times", i, status_fired(status, i));
	json_decref(status);
}

static void each_command_waits_and_no_other_device_does(void **state)
{
	struct pair pair;
	char rule[80];

	(void)state;
	fabric_up("--hosts 2 --rails 16 --dmabuf");
	pair_start(&pair, with_sick_devices, on_another_host, NULL);
	for (size_t first = 0; first < num_verb_calls; first += SICK) {
		assert_int_equal(pair_wait_byte(&pair, 0), 'r');
		for (size_t i = 0; i < batch_size(first); i++) {
			snprintf(rule, sizeof(rule), "wait=%ds verb=%s host=0 rail=%zu", WAIT_S,
				 verb_calls[first + i].name, i);
			add_rule(rule);
		}
		pair_send_byte(&pair, 0, 'g');
		assert_int_equal(pair_wait_byte(&pair, 0), 'r');
		each_fired_once(batch_size(first));
		assert_int_equal(fabric_tool("fault %s --clear", fabric_name()), 0);
		pair_send_byte(&pair, 0, 'g');
	}
	assert_int_equal(pair_join(&pair, 0, 30), 0);
	assert_int_equal(pair_join(&pair, 1, 30), 0);
	fabric_down();
}

/* ---------------------------------------------------------------- the same device */

/* Ends with the one process, whose peer only has to be there. */
static int is_there(int peer_fd, int test_fd, void *arg)
{
	struct end end;

	(void)test_fd;
	(void)arg;
	end_open(&end, peer_fd, &opt);
	meet(peer_fd);
	end_close(&end);
	return 0;
}

static void *modify(void *arg)
{
	struct ibv_qp_attr attr = {.min_rnr_timer = 14};

	NEED(!ibv_modify_qp(((struct end *)arg)->qp, &attr, IBV_QP_MIN_RNR_TIMER));
	return NULL;
}

static void write_and_poll(struct end *end, uint64_t writes)
{
	struct ibv_wc wc;

	for (uint64_t i = 0; i < writes; i++) {
		NEED(!end_post_write(end, 0, 8, i));
		NEED(end_wait(end, &wc, 10) == IBV_WC_SUCCESS);
	}
}

/* Several threads in modify_qp, one of them on the queue pair whose data goes on. */
static int commands_beside_each_other(int peer_fd, int test_fd, void *arg)
{
	struct caller callers[8];
	struct verb_target target;
	double began_s, written_s;
	pthread_t thread;
	struct end end;

	(void)arg;
	end_open(&end, peer_fd, &opt);
	target = (struct verb_target){end.ctx, end.pd, end.cq, ROCE_GID};
	let_the_test(test_fd); /* add a rule */
	began_s = now_s();
	NEED(!pthread_create(&thread, NULL, modify, &end));
	for (size_t i = 0; i < 8; i++)
		start(&callers[i], verb_call_named("modify_qp"), &target);
	write_and_poll(&end, MEANWHILE);
	written_s = now_s();
	write_and_poll(&end, WRITES - MEANWHILE);
	for (size_t i = 0; i < 8; i++)
		join_one_that_waited(&callers[i]);
	NEED(!pthread_join(thread, NULL));
	NEED(now_s() - began_s >= WAIT_S);
	NEED(written_s - began_s < WAIT_S);
	/* One after the other they would take nine times as long as one. */
	NEED(now_s() - began_s < 4 * WAIT_S);
	meet(peer_fd);
	end_close(&end);
	return 0;
}

static void commands_of_a_device_wait_beside_each_other(void **state)
{
	struct pair pair;
	char rule[80];

	(void)state;
	fabric_up("--hosts 2 --rails 1");
	pair_start(&pair, commands_beside_each_other, is_there, NULL);
	assert_int_equal(pair_wait_byte(&pair, 0), 'r');
	snprintf(rule, sizeof(rule), "wait=%ds verb=modify_qp host=0 rail=0", WAIT_S);
	add_rule(rule);
	pair_send_byte(&pair, 0, 'g');
	assert_int_equal(pair_join(&pair, 0, 60), 0);
	assert_int_equal(pair_join(&pair, 1, 60), 0);
	fabric_down();
}

/* ---------------------------------------------------------------- sick and worse */

/* A queue pair that is wedged is put into error, does not flush, and is destroyed late. */
static int destroys_what_is_wedged(int peer_fd, int test_fd, void *arg)
{
	struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
	double began_s, ended_s;
	struct ibv_wc wc;
	struct end end;

	(void)arg;
	end_open(&end, peer_fd, &opt);
	let_the_test(test_fd); /* add rules */
	NEED(!end_post_write(&end, 0, 8, 1));
	NEED(!ibv_modify_qp(end.qp, &error, IBV_QP_STATE));
	NEED(ibv_poll_cq(end.cq, 1, &wc) == 0);
	began_s = now_s();
	NEED(!ibv_destroy_qp(end.qp));
	ended_s = now_s();
	NEED(ended_s - began_s >= WAIT_S);
	NEED(ibv_poll_cq(end.cq, 1, &wc) == 0);
	NEED(!ibv_dereg_mr(end.mr));
	NEED(!ibv_destroy_cq(end.cq));
	NEED(!ibv_dealloc_pd(end.pd));
	NEED(!ibv_close_device(end.ctx));
	free(end.buf);
	NEED(now_s() - ended_s < WAIT_S);
	meet(peer_fd);
	return 0;
}

static void a_wedged_queue_pair_is_destroyed_late(void **state)
{
	struct pair pair;
	char rule[80];

	(void)state;
	fabric_up("--hosts 2 --rails 1");
	pair_start(&pair, destroys_what_is_wedged, is_there, NULL);
	assert_int_equal(pair_wait_byte(&pair, 0), 'r');
	add_rule("wedge=hard host=0 rail=0 op=write");
	snprintf(rule, sizeof(rule), "wait=%ds verb=destroy_qp host=0 rail=0", WAIT_S);
	add_rule(rule);
	pair_send_byte(&pair, 0, 'g');
	assert_int_equal(pair_join(&pair, 0, 60), 0);
	assert_int_equal(pair_join(&pair, 1, 60), 0);
	each_fired_once(2);
	fabric_down();
}

static void *modify_until_it_dies(void *arg)
{
	struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};

	NEED(ibv_modify_qp(((struct end *)arg)->qp, &error, IBV_QP_STATE) == EIO);
	return NULL;
}

/* Threads wait for far longer than the device lives. */
static int outlives_its_device(int peer_fd, int test_fd, void *arg)
{
	pthread_t thread;
	struct end end;
	double began_s;

	(void)arg;
	end_open(&end, peer_fd, &opt);
	let_the_test(test_fd); /* add rules */
	began_s = now_s();
	NEED(!pthread_create(&thread, NULL, modify_until_it_dies, &end));
	let_the_test(test_fd); /* kill the device as soon as the rule has fired */
	NEED(!pthread_join(thread, NULL));
	end_close(&end); /* nothing of a dead device waits */
	NEED(now_s() - began_s < 30);
	meet(peer_fd);
	return 0;
}

static void a_device_that_dies_ends_what_waits(void **state)
{
	struct pair pair;

	(void)state;
	fabric_up("--hosts 2 --rails 1");
	pair_start(&pair, outlives_its_device, is_there, NULL);
	assert_int_equal(pair_wait_byte(&pair, 0), 'r');
	add_rule("wait=" FOREVER " verb=modify_qp host=0 rail=0");
	add_rule("wait=" FOREVER " verb=destroy_qp host=0 rail=0");
	pair_send_byte(&pair, 0, 'g');
	assert_int_equal(pair_wait_byte(&pair, 0), 'r');
	assert_int_equal(wait_until_fired(0, 20), 1);
	assert_int_equal(fabric_tool("device %s 0 0 kill", fabric_name()), 0);
	pair_send_byte(&pair, 0, 'g');
	assert_int_equal(pair_join(&pair, 0, 60), 0);
	assert_int_equal(pair_join(&pair, 1, 60), 0);
	fabric_down();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(each_command_waits_and_no_other_device_does),
	    cmocka_unit_test(commands_of_a_device_wait_beside_each_other),
	    cmocka_unit_test(a_wedged_queue_pair_is_destroyed_late),
	    cmocka_unit_test(a_device_that_dies_ends_what_waits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
