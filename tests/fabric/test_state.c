/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Links, switches and devices that go away and come back under two processes: who is told, who only
 * notices that nobody answers, and what works again afterwards.
 */
#include "pair.h"

#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define MESSAGE 100000u

/* 4.096 us << 15 = 134 ms, three retries: gives up after half a second. Shorter would be an
 * error now and then on a machine where the peer has to wait for a processor. */
static const struct end_options quick = {.len = 1 << 20, .timeout = 15, .retry_cnt = 3};

static void say(int test_fd, char byte)
{
	NEED(write(test_fd, &byte, 1) == 1);
}

static void hear(int test_fd)
{
	char byte;

	NEED(read(test_fd, &byte, 1) == 1);
}

static int write_status(struct end *end)
{
	struct ibv_wc wc;

	NEED(!end_post_write(end, 0, MESSAGE, 1));
	return end_wait(end, &wc, 10);
}

static enum ibv_port_state port_state(struct end *end)
{
	struct ibv_port_attr attr;

	NEED(!ibv_query_port(end->ctx, 1, &attr));
	return attr.state;
}

/* Both processes begin so: connected, one message across, then the test is told. */
static void begin(struct end *end, int peer_fd, int test_fd)
{
	end_open(end, peer_fd, &quick);
	NEED(port_state(end) == IBV_PORT_ACTIVE);
	NEED(write_status(end) == IBV_WC_SUCCESS);
	meet(peer_fd);
	say(test_fd, 'r');
}

/* And end so, once what was broken is whole: one more message across. */
static void finish(struct end *end, int peer_fd)
{
	NEED(write_status(end) == IBV_WC_SUCCESS);
	meet(peer_fd);
	end_close(end);
}

static void reconnect_and_finish(struct end *end, int peer_fd)
{
	end_reconnect(end, peer_fd, &quick);
	finish(end, peer_fd);
}

/* --- the test's side ------------------------------------------------------------------------ */

static int one_rail(void **state)
{
	(void)state;
	fabric_up("--hosts 2 --rails 1");
	return 0;
}

static int take_down(void **state)
{
	(void)state;
	fabric_down();
	return 0;
}

static void both_say(struct pair *pair, char byte)
{
	for (int who = 0; who < 2; who++)
		assert_int_equal(pair_wait_byte(pair, who), byte);
}

static void start(struct pair *pair, pair_body first, pair_body second)
{
	pair_start(pair, first, second, NULL);
	both_say(pair, 'r');
}

static void tell_both(struct pair *pair)
{
	for (int who = 0; who < 2; who++)
		pair_send_byte(pair, who, 'g');
}

static void both_end_well(struct pair *pair)
{
	for (int who = 0; who < 2; who++)
		assert_int_equal(pair_join(pair, who, 20), 0);
}

/* --- a link --------------------------------------------------------------------------------- */

static int link_host(int peer_fd, int test_fd, void *arg)
{
	struct end end;

	(void)arg;
	begin(&end, peer_fd, test_fd);
	NEED(end_event(&end, 5) == IBV_EVENT_PORT_ERR);
	NEED(port_state(&end) == IBV_PORT_DOWN);
	NEED(write_status(&end) == IBV_WC_RETRY_EXC_ERR);
	say(test_fd, 'd');
	NEED(end_event(&end, 5) == IBV_EVENT_PORT_ACTIVE);
	NEED(port_state(&end) == IBV_PORT_ACTIVE);
	reconnect_and_finish(&end, peer_fd);
	return 0;
}

static int link_peer(int peer_fd, int test_fd, void *arg)
{
	struct end end;

	(void)arg;
	begin(&end, peer_fd, test_fd);
	hear(test_fd);
	NEED(write_status(&end) == IBV_WC_RETRY_EXC_ERR);
	NEED(port_state(&end) == IBV_PORT_ACTIVE);
	NEED(end_event(&end, 0.1) == -1); /* the other end's cable is none of our business */
	say(test_fd, 'd');
	reconnect_and_finish(&end, peer_fd);
	return 0;
}

static void link_down_is_an_event_at_its_host_and_silence_at_the_peer(void **state)
{
	struct pair pair;

	(void)state;
	start(&pair, link_host, link_peer);
	assert_int_equal(fabric_tool("link %s 0 0 down", fabric_name()), 0);
	pair_send_byte(&pair, 1, 'g');
	both_say(&pair, 'd');
	assert_int_equal(fabric_tool("link %s 0 0 up", fabric_name()), 0);
	both_end_well(&pair);
}

/* What an end says there comes back to it. */
static int open_loop(void)
{
	struct sockaddr_in self = {.sin_family = AF_INET,
				   .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
	socklen_t len = sizeof(self);
	int loop = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	NEED(!bind(loop, (struct sockaddr *)&self, len));
	NEED(!getsockname(loop, (struct sockaddr *)&self, &len));
	NEED(!connect(loop, (struct sockaddr *)&self, len));
	return loop;
}

static int alone(int peer_fd, int test_fd, void *arg)
{
	struct end end;

	(void)peer_fd;
	(void)arg;
	begin(&end, open_loop(), test_fd);
	NEED(end_event(&end, 5) == IBV_EVENT_PORT_ERR);
	NEED(port_state(&end) == IBV_PORT_DOWN);
	NEED(write_status(&end) == IBV_WC_SUCCESS);
	say(test_fd, 'd');
	end_close(&end);
	return 0;
}

static void a_queue_pair_to_itself_needs_no_link(void **state)
{
	struct pair pair;

	(void)state;
	start(&pair, alone, alone);
	for (int host = 0; host < 2; host++)
		assert_int_equal(fabric_tool("link %s %d 0 down", fabric_name(), host), 0);
	both_say(&pair, 'd');
	both_end_well(&pair);
}

/* --- a switch ------------------------------------------------------------------------------- */

static int cut_end(int peer_fd, int test_fd, void *arg)
{
	struct end end;

	(void)arg;
	begin(&end, peer_fd, test_fd);
	hear(test_fd);
	NEED(write_status(&end) == IBV_WC_RETRY_EXC_ERR);
	NEED(port_state(&end) == IBV_PORT_ACTIVE);
	NEED(end_event(&end, 0.1) == -1);
	say(test_fd, 'd');
	hear(test_fd);
	reconnect_and_finish(&end, peer_fd);
	return 0;
}

static void a_cut_in_the_switch_is_silent_at_both_ends(void **state)
{
	struct pair pair;

	(void)state;
	start(&pair, cut_end, cut_end);
	assert_int_equal(fabric_tool("cut %s 0", fabric_name()), 0);
	tell_both(&pair);
	both_say(&pair, 'd');
	assert_int_equal(fabric_tool("cut %s 0 --heal", fabric_name()), 0);
	tell_both(&pair);
	both_end_well(&pair);
}

/* --- a device ------------------------------------------------------------------------------- */

static int killed_host(int peer_fd, int test_fd, void *arg)
{
	struct ibv_device_attr attr;
	struct end end;

	(void)arg;
	begin(&end, peer_fd, test_fd);
	NEED(end_event(&end, 5) == IBV_EVENT_DEVICE_FATAL);
	NEED(ibv_query_device(end.ctx, &attr) == EIO);
	NEED(end_post_write(&end, 0, 8, 1) == EIO);
	end_close(&end); /* destroying works on a dead device */
	say(test_fd, 'd');
	hear(test_fd);
	end_open(&end, peer_fd, &quick);
	finish(&end, peer_fd);
	return 0;
}

static int killed_peer(int peer_fd, int test_fd, void *arg)
{
	struct end end;

	(void)arg;
	begin(&end, peer_fd, test_fd);
	hear(test_fd);
	NEED(write_status(&end) == IBV_WC_RETRY_EXC_ERR);
	NEED(end_event(&end, 0.1) == -1);
	say(test_fd, 'd');
	reconnect_and_finish(&end, peer_fd);
	return 0;
}

static void a_killed_device_is_fatal_to_its_host_and_comes_back(void **state)
{
	struct pair pair;

	(void)state;
	start(&pair, killed_host, killed_peer);
	assert_int_equal(fabric_tool("device %s 0 0 kill", fabric_name()), 0);
	assert_int_equal(pair_wait_byte(&pair, 0), 'd');
	pair_send_byte(&pair, 1, 'g');
	assert_int_equal(pair_wait_byte(&pair, 1), 'd');
	assert_int_equal(fabric_tool("device %s 0 0 revive", fabric_name()), 0);
	pair_send_byte(&pair, 0, 'g');
	both_end_well(&pair);
}

/* --- the fabric ----------------------------------------------------------------------------- */

static int bereft(int peer_fd, int test_fd, void *arg)
{
	struct end end;

	(void)arg;
	end_open(&end, peer_fd, &quick);
	say(test_fd, 'r');
	NEED(end_event(&end, 5) == IBV_EVENT_DEVICE_FATAL);
	NEED(end_post_write(&end, 0, 8, 1) == EIO);
	end_close(&end);
	return 0;
}

static void bringing_the_fabric_down_kills_the_devices_of_its_users(void **state)
{
	struct pair pair;

	(void)state;
	start(&pair, bereft, bereft);
	fabric_down();
	both_end_well(&pair);
}

static int works(int peer_fd, int test_fd, void *arg)
{
	struct end end;

	(void)arg;
	(void)test_fd;
	end_open(&end, peer_fd, &quick);
	finish(&end, peer_fd);
	return 0;
}

/* --- a device with two ports ----------------------------------------------------------------- */

/* On port 2, while the link of port 1 goes, and then its own. */
static int on_second_port(int peer_fd, int test_fd, void *arg)
{
	struct end_options opt = quick;
	struct ibv_port_attr attr;
	struct ibv_wc wc;
	struct end end;

	(void)arg;
	opt.port = 2;
	end_open(&end, peer_fd, &opt);
	NEED(write_status(&end) == IBV_WC_SUCCESS);
	meet(peer_fd);
	say(test_fd, 'r');
	NEED(end_event(&end, 5) == IBV_EVENT_PORT_ERR);
	NEED(!ibv_query_port(end.ctx, 1, &attr) && attr.state == IBV_PORT_DOWN);
	NEED(!ibv_query_port(end.ctx, 2, &attr) && attr.state == IBV_PORT_ACTIVE);
	NEED(!end_post_write(&end, 0, MESSAGE, 2) && end_wait(&end, &wc, 10) == IBV_WC_SUCCESS);
	meet(peer_fd);
	say(test_fd, 'd');
	NEED(end_event(&end, 5) == IBV_EVENT_PORT_ERR);
	NEED(!ibv_query_port(end.ctx, 2, &attr) && attr.state == IBV_PORT_DOWN);
	NEED(write_status(&end) == IBV_WC_RETRY_EXC_ERR);
	meet(peer_fd);
	end_close(&end);
	return 0;
}

static void the_ports_of_a_device_have_links_of_their_own(void **state)
{
	struct pair pair;

	(void)state;
	fabric_up("--hosts 2 --rails 1 --ports 2");
	assert_int_equal(fabric_tool("link %s 0 0.3 down 2>/dev/null", fabric_name()), 2);
	start(&pair, on_second_port, on_second_port);
	assert_int_equal(fabric_tool("link %s 0 0.1 down", fabric_name()), 0);
	assert_int_equal(fabric_tool("link %s 1 0.1 down", fabric_name()), 0);
	both_say(&pair, 'd');
	assert_int_equal(fabric_tool("fault %s 'link=down host=0 rail=0 port=2 at=0s' >/dev/null",
				     fabric_name()),
			 0);
	assert_int_equal(fabric_tool("link %s 1 0.2 down", fabric_name()), 0);
	both_end_well(&pair);
}

/* --- partitions, and subnets behind a router -------------------------------------------------- */

struct infiniband_case {
	struct end_options opt[2];
	enum ibv_wc_status status;
};

static int infiniband_end(const struct end_options *opt, enum ibv_wc_status status, int peer_fd)
{
	struct ibv_port_attr attr;
	struct end end;

	end_open(&end, peer_fd, opt);
	NEED(!ibv_query_port(end.ctx, 1, &attr));
	NEED(!!(attr.flags & IBV_QPF_GRH_REQUIRED) == opt->routed);
	NEED(attr.pkey_tbl_len == 2);
	NEED(write_status(&end) == (int)status);
	meet(peer_fd);
	end_close(&end);
	return 0;
}

static int first_end(int peer_fd, int test_fd, void *arg)
{
	const struct infiniband_case *c = arg;

	(void)test_fd;
	return infiniband_end(&c->opt[0], c->status, peer_fd);
}

static int second_end(int peer_fd, int test_fd, void *arg)
{
	const struct infiniband_case *c = arg;

	(void)test_fd;
	return infiniband_end(&c->opt[1], c->status, peer_fd);
}

static void partitions_talk_within_and_routers_between_subnets(void **state)
{
	struct infiniband_case c = {.opt = {quick, quick}, .status = IBV_WC_SUCCESS};
	struct pair pair;

	(void)state;
	fabric_up("--hosts 2 --rails 1 --link-layer ib --pkeys 0xffff,0x8001");
	c.opt[0].pkey_index = c.opt[1].pkey_index = 1;
	pair_start(&pair, first_end, second_end, &c);
	both_end_well(&pair);
	c.opt[0].pkey_index = 0;
	c.status = IBV_WC_RETRY_EXC_ERR;
	pair_start(&pair, first_end, second_end, &c);
	both_end_well(&pair);
	fabric_down();
	fabric_up("--hosts 2 --rails 1 --link-layer ib --pkeys 0xffff,0x8001 --subnets 2 "
		  "--grh-required");
	c = (struct infiniband_case){.opt = {quick, quick}, .status = IBV_WC_SUCCESS};
	c.opt[0].routed = c.opt[1].routed = true;
	pair_start(&pair, first_end, second_end, &c);
	both_end_well(&pair);
}

static void infiniband_addresses_work_too(void **state)
{
	struct pair pair;

	(void)state;
	fabric_up("--hosts 2 --rails 1 --link-layer ib");
	pair_start(&pair, works, works, NULL);
	both_end_well(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(
		link_down_is_an_event_at_its_host_and_silence_at_the_peer, one_rail, take_down),
	    cmocka_unit_test_setup_teardown(a_queue_pair_to_itself_needs_no_link, one_rail,
					    take_down),
	    cmocka_unit_test_setup_teardown(a_cut_in_the_switch_is_silent_at_both_ends, one_rail,
					    take_down),
	    cmocka_unit_test_setup_teardown(a_killed_device_is_fatal_to_its_host_and_comes_back,
					    one_rail, take_down),
	    cmocka_unit_test_setup_teardown(bringing_the_fabric_down_kills_the_devices_of_its_users,
					    one_rail, take_down),
	    cmocka_unit_test_teardown(the_ports_of_a_device_have_links_of_their_own, take_down),
	    cmocka_unit_test_teardown(partitions_talk_within_and_routers_between_subnets,
				      take_down),
	    cmocka_unit_test_teardown(infiniband_addresses_work_too, take_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
