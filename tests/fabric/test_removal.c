/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device that the kernel takes away from a process of a live fabric: EIO from its commands, data
 * that still lands, then the event and the end. And a destroy and a modify that fail by rule.
 */
#include "pair.h"

#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MESSAGE 100000u

static const struct end_options quick = {.len = 1 << 20, .timeout = 15, .retry_cnt = 3};

static void say(int fd, char byte)
{
	NEED(write(fd, &byte, 1) == 1);
}

static void hear(int fd)
{
	char byte;

	NEED(read(fd, &byte, 1) == 1);
}

static int to_error(struct end *end)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	return ibv_modify_qp(end->qp, &attr, IBV_QP_STATE);
}

static int write_status(struct end *end)
{
	struct ibv_wc wc;

	NEED(!end_post_write(end, 0, MESSAGE, 1));
	return end_wait(end, &wc, 10);
}

/* The rule is carried out by whichever engine comes first: wait for what it does, not for a time.
 */
static void wait_for_eio(struct end *end)
{
	struct ibv_port_attr attr;
	double until_s = now_s() + 10;

	while (ibv_query_port(end->ctx, 1, &attr) != EIO) {
		NEED(now_s() < until_s);
		usleep(1000);
	}
}

static void need_nothing_given_back(struct end *end)
{
	NEED(to_error(end) == EIO);
	NEED(ibv_destroy_qp(end->qp) == EIO);
	NEED(ibv_destroy_cq(end->cq) == EIO);
	NEED(ibv_dereg_mr(end->mr) == EIO);
	NEED(ibv_dealloc_pd(end->pd) == EIO);
}

static int removed_host(int peer_fd, int test_fd, void *arg)
{
	struct pollfd fd = {.events = POLLIN};
	struct ibv_async_event event;
	struct end end;

	(void)arg;
	end_open(&end, peer_fd, &quick);
	say(test_fd, 'r');
	wait_for_eio(&end);
	need_nothing_given_back(&end);
	fd.fd = end.ctx->async_fd;
	NEED(poll(&fd, 1, 0) == 0); /* two seconds later */
	say(peer_fd, 'w');
	hear(peer_fd);
	for (size_t i = 0; i < MESSAGE; i++)
		NEED(end_sees(&end.buf[i]) == pattern(5, i)); /* it landed all the same */
	NEED(end_event(&end, 10) == IBV_EVENT_DEVICE_FATAL);
	NEED(poll(&fd, 1, 0) == 1);
	NEED(ibv_get_async_event(end.ctx, &event) == -1 && errno == EIO);
	NEED(end_post_write(&end, 0, 8, 1) == 0); /* and nothing comes of it */
	need_nothing_given_back(&end);
	NEED(ibv_close_device(end.ctx) == 0);
	free(end.buf);
	say(peer_fd, 'g');
	say(test_fd, 'd');
	hear(test_fd);
	end_open(&end, peer_fd, &quick);
	NEED(write_status(&end) == IBV_WC_SUCCESS);
	meet(peer_fd);
	end_close(&end);
	return 0;
}

/* Fills a message, and writes it when the other host says so. */
static void write_when_told(struct end *end, int peer_fd, int test_fd)
{
	end_open(end, peer_fd, &quick);
	for (size_t i = 0; i < MESSAGE; i++)
		end->buf[i] = pattern(5, i);
	say(test_fd, 'r');
	hear(peer_fd);
	NEED(write_status(end) == IBV_WC_SUCCESS);
	say(peer_fd, 'w');
}

static int removed_peer(int peer_fd, int test_fd, void *arg)
{
	struct end end;

	(void)arg;
	write_when_told(&end, peer_fd, test_fd);
	hear(peer_fd);
	NEED(write_status(&end) == IBV_WC_RETRY_EXC_ERR);
	NEED(end_event(&end, 0.1) == -1);
	end_reconnect(&end, peer_fd, &quick);
	NEED(write_status(&end) == IBV_WC_SUCCESS);
	meet(peer_fd);
	end_close(&end);
	return 0;
}

static const char *device_of(struct json_t *status)
{
	return json_string_value(
	    json_object_get(json_array_get(json_object_get(status, "devices"), 0), "device"));
}

static void a_device_that_is_taken_away_ends_in_the_kernels_order(void **state)
{
	struct pair pair;
	json_t *status;

	(void)state;
	fabric_up("--hosts 2 --rails 1");
	pair_start(&pair, removed_host, removed_peer, NULL);
	for (int who = 0; who < 2; who++)
		assert_int_equal(pair_wait_byte(&pair, who), 'r');
	/* Long enough for a busy machine; the event says when it is over. */
	assert_int_equal(
	    fabric_tool("fault %s 'disassociate=2s at=1ms host=0 rail=0'", fabric_name()), 0);
	assert_int_equal(pair_wait_byte(&pair, 0), 'd');
	status = fabric_status();
	assert_int_equal(status_fired(status, 0), 1);
	assert_string_equal(device_of(status), "disassociated");
	json_decref(status);
	assert_int_equal(fabric_tool("device %s 0 0 revive", fabric_name()), 0);
	pair_send_byte(&pair, 0, 'g');
	for (int who = 0; who < 2; who++)
		assert_int_equal(pair_join(&pair, who, 20), 0);
}

/* By hand: a millisecond between the first EIO and the event. */
static int by_hand(int peer_fd, int test_fd, void *arg)
{
	struct end end;

	(void)arg;
	end_open(&end, peer_fd, &quick);
	say(test_fd, 'r');
	NEED(end_event(&end, 10) == IBV_EVENT_DEVICE_FATAL);
	need_nothing_given_back(&end);
	NEED(ibv_close_device(end.ctx) == 0);
	free(end.buf);
	return 0;
}

static void the_tool_takes_a_device_away(void **state)
{
	struct pair pair;

	(void)state;
	fabric_up("--hosts 2 --rails 1");
	pair_start(&pair, by_hand, by_hand, NULL);
	for (int who = 0; who < 2; who++)
		assert_int_equal(pair_wait_byte(&pair, who), 'r');
	assert_int_equal(fabric_tool("device %s 0 0 disassociate", fabric_name()), 0);
	assert_int_equal(fabric_tool("device %s 1 0 disassociate", fabric_name()), 0);
	for (int who = 0; who < 2; who++)
		assert_int_equal(pair_join(&pair, who, 20), 0);
}

/* ---- back again ----------------------------------------------------------------------------- */

/* The one device there is. */
static __be64 look_for(const char *name)
{
	char node_guid[600];
	struct ibv_device **list;
	__be64 guid;
	int n;

	list = ibv_get_device_list(&n);
	NEED(list && n == 1);
	NEED(!strcmp(ibv_get_device_name(list[0]), name));
	snprintf(node_guid, sizeof(node_guid), "%s/node_guid", list[0]->ibdev_path);
	NEED(access(node_guid, R_OK) == 0);
	guid = ibv_get_device_guid(list[0]);
	ibv_free_device_list(list);
	return guid;
}

static int reset_host(int peer_fd, int test_fd, void *arg)
{
	struct end old, fresh;
	__be64 guid;

	(void)arg;
	guid = look_for("sim0");
	end_open(&old, peer_fd, &quick);
	say(test_fd, 'r');
	NEED(end_event(&old, 10) == IBV_EVENT_DEVICE_FATAL);
	say(peer_fd, 'd');
	say(test_fd, 'd');
	hear(test_fd);
	NEED(look_for("sim0_1") == guid);
	end_open(&fresh, peer_fd, &quick); /* beside the dead one */
	NEED(fresh.qp->qp_num != old.qp->qp_num);
	NEED(write_status(&fresh) == IBV_WC_SUCCESS);
	need_nothing_given_back(&old);
	meet(peer_fd);
	NEED(ibv_close_device(old.ctx) == 0);
	free(old.buf);
	NEED(write_status(&fresh) == IBV_WC_SUCCESS);
	meet(peer_fd);
	end_close(&fresh);
	return 0;
}

static int reset_peer(int peer_fd, int test_fd, void *arg)
{
	struct end end;

	(void)arg;
	end_open(&end, peer_fd, &quick);
	say(test_fd, 'r');
	hear(peer_fd);
	end_reconnect(&end, peer_fd, &quick);
	NEED(write_status(&end) == IBV_WC_SUCCESS);
	meet(peer_fd);
	meet(peer_fd);
	end_close(&end);
	return 0;
}

static void a_device_comes_back_beside_its_dead_context_under_another_name(void **state)
{
	struct pair pair;

	(void)state;
	fabric_up("--hosts 2 --rails 1");
	pair_start(&pair, reset_host, reset_peer, NULL);
	for (int who = 0; who < 2; who++)
		assert_int_equal(pair_wait_byte(&pair, who), 'r');
	assert_int_equal(fabric_tool("device %s 0 0 disassociate", fabric_name()), 0);
	assert_int_equal(pair_wait_byte(&pair, 0), 'd');
	assert_int_equal(
	    fabric_tool("fault %s 'revive=renamed at=1ms host=0 rail=0'", fabric_name()), 0);
	assert_int_equal(wait_until_fired(0, 10), 1);
	pair_send_byte(&pair, 0, 'g');
	for (int who = 0; who < 2; who++)
		assert_int_equal(pair_join(&pair, who, 20), 0);
}

/* ---- the driver's word alone ---------------------------------------------------------------- */

static int feigning_host(int peer_fd, int test_fd, void *arg)
{
	struct end end;

	(void)arg;
	end_open(&end, peer_fd, &quick);
	say(test_fd, 'r');
	NEED(end_event(&end, 10) == IBV_EVENT_DEVICE_FATAL);
	NEED(to_error(&end) == 0);
	NEED(ibv_destroy_qp(end.qp) == 0);
	NEED(ibv_dereg_mr(end.mr) == 0);
	say(peer_fd, 'w');
	hear(peer_fd);
	for (size_t i = 0; i < MESSAGE; i++)
		NEED(end_sees(&end.buf[i]) == pattern(5, i)); /* where it was deregistered */
	NEED(ibv_destroy_cq(end.cq) == 0);
	NEED(ibv_dealloc_pd(end.pd) == 0);
	NEED(ibv_close_device(end.ctx) == 0);
	free(end.buf);
	return 0;
}

static int feigning_peer(int peer_fd, int test_fd, void *arg)
{
	struct end end;

	(void)arg;
	write_when_told(&end, peer_fd, test_fd);
	end_close(&end);
	return 0;
}

static void what_a_driver_says_it_destroyed_goes_on(void **state)
{
	struct pair pair;
	json_t *status;

	(void)state;
	fabric_up("--hosts 2 --rails 1");
	pair_start(&pair, feigning_host, feigning_peer, NULL);
	for (int who = 0; who < 2; who++)
		assert_int_equal(pair_wait_byte(&pair, who), 'r');
	assert_int_equal(fabric_tool("fault %s 'feign=5s at=1ms host=0 rail=0'", fabric_name()), 0);
	for (int who = 0; who < 2; who++)
		assert_int_equal(pair_join(&pair, who, 20), 0);
	status = fabric_status();
	assert_int_equal(status_fired(status, 0), 1);
	assert_string_equal(device_of(status), "feigning");
	json_decref(status);
}

/* ---- verbs that fail ------------------------------------------------------------------------ */

static int refused(int peer_fd, int test_fd, void *arg)
{
	struct end end;

	(void)arg;
	(void)test_fd;
	end_open(&end, peer_fd, &quick);
	NEED(ibv_destroy_qp(end.qp) == EBUSY);
	NEED(to_error(&end) == ENOMEM);
	NEED(write_status(&end) == IBV_WC_SUCCESS); /* as if nothing had been asked */
	meet(peer_fd);
	NEED(to_error(&end) == 0);
	end_close(&end);
	return 0;
}

static void destroy_and_modify_fail_once_and_leave_all_as_it_was(void **state)
{
	struct pair pair;
	json_t *status;

	(void)state;
	fabric_up("--hosts 2 --rails 1");
	/* Each host's fourth change of state: behind INIT, RTR and RTS. */
	assert_int_equal(
	    fabric_tool("fault %s 'errno=EBUSY verb=destroy_qp host=0 nth=1'", fabric_name()), 0);
	assert_int_equal(
	    fabric_tool("fault %s 'errno=EBUSY verb=destroy_qp host=1 nth=1'", fabric_name()), 0);
	assert_int_equal(
	    fabric_tool("fault %s 'errno=ENOMEM verb=modify_qp host=0 nth=4'", fabric_name()), 0);
	assert_int_equal(
	    fabric_tool("fault %s 'errno=ENOMEM verb=modify_qp host=1 nth=4'", fabric_name()), 0);
	pair_start(&pair, refused, refused, NULL);
	for (int who = 0; who < 2; who++)
		assert_int_equal(pair_join(&pair, who, 20), 0);
	status = fabric_status();
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(status_fired(status, i), 1);
	json_decref(status);
}

static int take_down(void **state)
{
	(void)state;
	fabric_down();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_teardown(a_device_that_is_taken_away_ends_in_the_kernels_order,
				      take_down),
	    cmocka_unit_test_teardown(what_a_driver_says_it_destroyed_goes_on, take_down),
	    cmocka_unit_test_teardown(the_tool_takes_a_device_away, take_down),
	    cmocka_unit_test_teardown(
		a_device_comes_back_beside_its_dead_context_under_another_name, take_down),
	    cmocka_unit_test_teardown(destroy_and_modify_fail_once_and_leave_all_as_it_was,
				      take_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
