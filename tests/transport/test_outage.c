/* SPDX-License-Identifier: Apache-2.0 */
/*
 * No path at all for a while: with the defaults nothing ends that NCCL's own transport would have
 * survived, whether the bootstrap socket goes over the same network or not; and an outage that
 * never ends, or a peer that is gone, is an error in time.
 */
#include "harness.h"
#include "instance/instance.h"

#include "base/clock.h"
#include "failover/engine.h"
#include "failover/reconnect_server.h"
#include "transport/ctrl_sock.h"
#include "transport/failover_ops.h"
#include "transport/path.h"
#include "transport/recv.h"
#include "transport/send.h"

#include <errno.h>
#include <linux/filter.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- the course of a test -------------------------------------------------------------------- */

static const char *const *site;

static char *of_site(const char *name)
{
	for (const char *const *var = site; var && var[0]; var += 2)
		if (strcmp(var[0], name) == 0)
			return (char *)(uintptr_t)var[1];
	return NULL;
}

/* With the settings of a site and our defaults for the rest, name and value in turn, NULL at the
 * end. */
static void open_site(struct pair *pair, uint32_t rails, const char *const *env)
{
	pair_init(pair);
	site = env;
	ha_config_load(&pair->config, of_site);
	strcpy(pair->config.socket_ifname, "=lo");
	pair->config.stats = false;
	pair->fabric.rails = rails;
	pair_up(pair);
}

/* One tick of time with everything that falls into it. */
static void tick(struct pair *pair)
{
	sv_stepped_run(sv_stepped_now() + HA_NS_PER_MS);
	for (int host = 0; host < 2; host++)
		ha_instance_progress(pair->inst[host]);
}

static void pass(struct pair *pair, unsigned ms)
{
	for (unsigned i = 0; i < ms; i++)
		tick(pair);
}

static bool has_failed(const struct pair *pair)
{
	return ha_comm_error(pair->send) != HA_OK || ha_comm_error(pair->recv) != HA_OK;
}

static void assert_alive(const struct pair *pair)
{
	if (has_failed(pair))
		fail_msg("the connection has failed; log:\n%s", pair->log);
}

static unsigned ms_until_failed(struct pair *pair, unsigned limit_ms)
{
	for (unsigned ms = 0; ms < limit_ms; ms++) {
		if (has_failed(pair))
			return ms;
		tick(pair);
	}
	fail_msg("no error after %u ms; log:\n%s", limit_ms, pair->log);
	return limit_ms;
}

static void cut_all(const struct pair *pair, bool cut)
{
	for (uint32_t rail = 0; rail < pair->fabric.rails; rail++)
		sv_stepped_cut(rail, cut);
}

static void warm_up(struct pair *pair)
{
	transfer(pair, 5000, 1);
	if (pair->config.enable_backup && pair->fabric.rails > 1)
		pair_wait_standby(pair);
	pass(pair, 1000);
}

/* Messages that are under way, or wait, while nothing passes. */
#define MESSAGES 8
#define SIZE	 30000u

struct stream {
	struct ha_request *recv[MESSAGES], *send[MESSAGES];
};

static size_t place(unsigned i)
{
	return 4096 + i * (size_t)(SIZE + 4096);
}

static void begin(struct pair *pair, struct stream *s)
{
	memset(pair->to.bytes, CANARY, place(MESSAGES));
	for (unsigned i = 0; i < MESSAGES; i++) {
		const size_t offset = place(i), size = SIZE;
		const int tag = (int)i;

		fill(pair->from.bytes + offset, size, 100 + i);
		s->recv[i] = post_recv(pair, 1, &offset, &size, &tag);
		s->send[i] = post_send(pair, offset, size, tag);
	}
}

static void finish(struct pair *pair, const struct stream *s)
{
	for (unsigned i = 0; i < MESSAGES; i++) {
		int got = 0;

		assert_int_equal(pair_finish(pair, s->recv[i], &got), HA_OK);
		assert_int_equal(pair_finish(pair, s->send[i], NULL), HA_OK);
		assert_int_equal(got, SIZE);
		assert_true(filled(pair->to.bytes + place(i), SIZE, 100 + i));
		for (size_t b = 1; b <= 4096; b++)
			assert_int_equal(pair->to.bytes[place(i) - b], CANARY);
	}
}

/* ---- the limit ------------------------------------------------------------------------------- */

static void with_the_defaults_30_s_without_any_path_are_survived(void **state)
{
	(void)state;
	for (uint32_t rails = 1; rails <= 2; rails++) {
		struct stream stream;
		struct pair pair;

		open_site(&pair, rails, NULL);
		warm_up(&pair);
		begin(&pair, &stream);
		cut_all(&pair, true);
		pass(&pair, 30000);
		assert_alive(&pair);
		assert_logged("no path is left");
		cut_all(&pair, false);
		finish(&pair, &stream);
		transfer(&pair, 5000, 2);
		assert_alive(&pair);
		pair_close(&pair);
	}
}

/* The longest that was measured with NCCL's own transport, on a ConnectX-6, was 58.8 s. */
static void with_the_defaults_an_outage_ends_in_an_error_later_than_with_nccls_own(void **state)
{
	struct stream stream;
	struct pair pair;

	(void)state;
	open_site(&pair, 2, NULL);
	warm_up(&pair);
	begin(&pair, &stream);
	cut_all(&pair, true);
	assert_in_range(ms_until_failed(&pair, 100000), 60000, 73000);
	assert_logged("no path to the peer for ");
	pair_close(&pair);
}

/* ---- a site's NCCL_IB_TIMEOUT --------------------------------------------------------------- */

static const char *const long_timeout_site[] = {"NCCL_IB_TIMEOUT", "22", NULL};

/* NCCL would wait for 137 s, a ConnectX for 235 s; here there is another way. */
static void where_there_is_a_standby_the_soft_timeout_does_not_wait_for_the_sites(void **state)
{
	const size_t offset = 0, size = 5000;
	struct ha_request *recv, *send;
	const int tag = 1;
	struct pair pair;
	unsigned ms = 0;

	(void)state;
	open_site(&pair, 2, long_timeout_site);
	assert_int_equal(pair.config.rc_timeout, 22);
	warm_up(&pair);
	fill(pair.from.bytes, size, 7);
	recv = post_recv(&pair, 1, &offset, &size, &tag);
	tick(&pair);
	assert_true(sv_stepped_wedge(0, 0, pair.send->paths[0]->qps[0].qp->qp_num, false));
	send = try_send(&pair, 0, size, tag);
	assert_non_null(send);
	for (; ms < 5000 && pair.recv->count.failovers == 0; ms++)
		tick(&pair);
	assert_in_range(ms, 1000, 1270);
	assert_logged("no completion in time");
	assert_int_equal(pair_finish(&pair, recv, NULL), HA_OK);
	assert_int_equal(pair_finish(&pair, send, NULL), HA_OK);
	assert_true(filled(pair.to.bytes, size, 7));
	pair_close(&pair);
}

static void where_there_is_none_the_connection_waits_as_long_as_nccls_own_would(void **state)
{
	(void)state;
	for (uint32_t rails = 1; rails <= 2; rails++) {
		struct stream stream;
		struct pair pair;

		open_site(&pair, rails, long_timeout_site);
		warm_up(&pair);
		begin(&pair, &stream);
		cut_all(&pair, true);
		pass(&pair, 236000);
		assert_alive(&pair);
		cut_all(&pair, false);
		finish(&pair, &stream);
		pair_close(&pair);
	}
}

/* ---- without failover ----------------------------------------------------------------------- */

static const char *const no_failover[] = {"HA_NCCL_ENABLE_BACKUP", "0", NULL};

static void without_failover_30_s_are_survived_as_by_nccls_own(void **state)
{
	struct stream stream;
	struct pair pair;

	(void)state;
	open_site(&pair, 1, no_failover);
	warm_up(&pair);
	begin(&pair, &stream);
	cut_all(&pair, true);
	pass(&pair, 30000);
	assert_alive(&pair);
	cut_all(&pair, false);
	finish(&pair, &stream);
	assert_int_equal(captured_warnings, 0);
	pair_close(&pair);
}

static void without_failover_the_hardware_gives_up_when_nccls_would(void **state)
{
	struct stream stream;
	struct pair pair;

	(void)state;
	open_site(&pair, 1, no_failover);
	warm_up(&pair);
	begin(&pair, &stream);
	cut_all(&pair, true);
	assert_in_range(ms_until_failed(&pair, 80000), 34000, 36000);
	assert_logged("completion with status 12");
	pair_close(&pair);
}

/* ---- an outage of the bootstrap network, too ------------------------------------------------ */

/* From here on the kernel takes nothing that comes for this socket, and answers nothing. */
static void deafen(int fd, bool deaf)
{
	struct sock_filter nothing = BPF_STMT(BPF_RET | BPF_K, 0);
	const struct sock_fprog program = {.len = 1, .filter = &nothing};
	int none = 0;

	if (deaf)
		assert_int_equal(
		    setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)), 0);
	else
		assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &none, sizeof(none)),
				 0);
}

/* Where the receiver's host may be dialled again. */
static int reconnect_server(const struct pair *pair)
{
	const union ha_sockaddr *wanted = &pair->recv->failover->reconnect_at.addr;

	for (int fd = 3; fd < 1024; fd++) {
		union ha_sockaddr addr = {0};
		socklen_t length = sizeof(addr);

		if (getsockname(fd, &addr.sa, &length) == 0 && addr.sa.sa_family == AF_INET &&
		    addr.in.sin_port == wanted->in.sin_port)
			return fd;
	}
	fail_msg("nobody listens for those that dial again");
	return -1;
}

/* What a kernel takes 15 s to find out it finds out in 0.3 s here: these are of real time. */
static void shorten_user_timeout(int fd)
{
	const int ms = 300;

	assert_int_equal(setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms)), 0);
}

/* The network between the two hosts, sockets and all, until both have noticed. */
static void cut_everything(struct pair *pair)
{
	const struct ha_failover *send = pair->send->failover, *recv = pair->recv->failover;

	shorten_user_timeout(pair->send->ctrl_sock->frames.fd);
	shorten_user_timeout(pair->recv->ctrl_sock->frames.fd);
	deafen(reconnect_server(pair), true);
	deafen(pair->send->ctrl_sock->frames.fd, true);
	deafen(pair->recv->ctrl_sock->frames.fd, true);
	cut_all(pair, true);
	pass(pair, 2500); /* until heartbeats are missed, and something is said */
	for (int i = 0; i < 500 && !(send->socket_broken && recv->socket_broken); i++) {
		usleep(10000);
		tick(pair);
	}
	assert_true(send->socket_broken);
	assert_true(recv->socket_broken);
	assert_logged("the bootstrap socket is broken (Connection timed out)");
}

static void the_bootstrap_socket_may_go_over_the_network_that_is_out(void **state)
{
	(void)state;
	for (uint32_t rails = 1; rails <= 2; rails++) {
		struct stream stream;
		struct pair pair;

		open_site(&pair, rails, NULL);
		warm_up(&pair);
		begin(&pair, &stream);
		cut_everything(&pair);
		pass(&pair, 30000);
		assert_alive(&pair);
		deafen(reconnect_server(&pair), false);
		cut_all(&pair, false);
		finish(&pair, &stream);
		assert_int_equal(pair.send->failover->reconnected, 1);
		assert_int_equal(pair.recv->failover->reconnected, 1);
		transfer(&pair, 5000, 2);
		assert_alive(&pair);
		pair_close(&pair);
	}
}

/* A host that lost its power closes nothing and refuses nothing: it is an outage that never ends.
 */
static void a_peer_whose_host_is_gone_is_an_error_at_the_limit(void **state)
{
	struct stream stream;
	struct pair pair;

	(void)state;
	open_site(&pair, 2, NULL);
	warm_up(&pair);
	begin(&pair, &stream);
	cut_everything(&pair);
	assert_in_range(ms_until_failed(&pair, 100000), 60000, 72000);
	assert_logged("no path to the peer for ");
	pair_close(&pair);
}

/* Without failover the queue pair decides, as for NCCL's own. */
static void without_failover_the_bootstrap_socket_decides_nothing(void **state)
{
	struct stream stream;
	struct pair pair;

	(void)state;
	open_site(&pair, 1, no_failover);
	warm_up(&pair);
	begin(&pair, &stream);
	shorten_user_timeout(pair.send->ctrl_sock->frames.fd);
	deafen(pair.send->ctrl_sock->frames.fd, true);
	deafen(pair.recv->ctrl_sock->frames.fd, true);
	ha_ctrl_sock_abort(pair.send->ctrl_sock, &(struct ha_abort){.code = HA_ERR_SYSTEM});
	for (int i = 0; i < 500 && pair.send->ctrl_sock->frames.fd >= 0; i++) {
		usleep(10000);
		tick(&pair);
	}
	assert_int_equal(pair.send->ctrl_sock->frames.fd, -1); /* it has noticed */
	assert_alive(&pair);
	finish(&pair, &stream);
	pair_close(&pair);
}

/* ---- a peer that is gone -------------------------------------------------------------------- */

/* What its host does for a process that is gone: closes its sockets and destroys its queue pairs.
 */
static void die(struct pair *pair, struct ha_comm *comm)
{
	ha_ctrl_sock_stop(comm->ctrl_sock);
	ha_frame_sock_close(&comm->ctrl_sock->frames);
	ha_reconnect_server_close(pair->inst[comm->is_send ? 0 : 1]);
	cut_all(pair, true);
}

static void a_process_that_died_is_an_error_at_once_and_not_at_the_limit(void **state)
{
	(void)state;
	for (int sender_dies = 0; sender_dies < 2; sender_dies++) {
		struct ha_comm *alive;
		struct pair pair;
		unsigned ms = 0;

		open_site(&pair, 2, NULL);
		warm_up(&pair);
		alive = sender_dies ? pair.recv : pair.send;
		die(&pair, sender_dies ? pair.send : pair.recv);
		for (; ms < 100000 && ha_comm_error(alive) == HA_OK; ms++) {
			sv_stepped_run(sv_stepped_now() + HA_NS_PER_MS);
			ha_instance_progress(pair.inst[sender_dies ? 1 : 0]);
		}
		print_message("a %s that died is an error after %u ms\n",
			      sender_dies ? "sender" : "receiver", ms);
		assert_int_equal(ha_comm_error(alive), HA_ERR_REMOTE);
		assert_true(ms < 100);
		assert_logged("the peer left without a goodbye");
		pair_close(&pair);
	}
}

/*
 * In an outage the sender's socket timed out and is gone; when the network is back, the receiver's
 * kernel still says something on it and is told that there is none. The sender is about to dial.
 */
static void
a_reset_after_an_outage_is_not_taken_for_death_before_the_sender_has_dialled(void **state)
{
	const struct linger at_once = {.l_onoff = 1, .l_linger = 0};
	struct pair pair;
	int server;

	(void)state;
	open_site(&pair, 1, NULL);
	warm_up(&pair);
	server = reconnect_server(&pair);
	deafen(server, true);
	cut_all(&pair, true);
	pass(&pair, 4000); /* so it dials every two seconds, as long as nobody answers */
	assert_int_equal(setsockopt(pair.send->ctrl_sock->frames.fd, SOL_SOCKET, SO_LINGER,
				    &at_once, sizeof(at_once)),
			 0);
	ha_progress_unwatch(pair.inst[0]->progress, &pair.send->ctrl_sock->watch);
	pair.send->ctrl_sock->frames.error = ETIMEDOUT;
	assert_true(pair.send->ops->socket_broken(pair.send));
	ha_frame_sock_close(&pair.send->ctrl_sock->frames); /* a reset */
	pass(&pair, 3500);
	assert_logged("the bootstrap socket is broken (Connection reset by peer)");
	assert_alive(&pair);
	deafen(server, false);
	cut_all(&pair, false);
	transfer(&pair, 5000, 3);
	assert_int_equal(pair.recv->failover->reconnected, 1);
	pair_close(&pair);
}

/* ---- what is told of it --------------------------------------------------------------------- */

#define CONNECTIONS 8
#define OUTAGE_S    59

static unsigned infos, warnings;

static void count_lines(enum ha_log_level level, unsigned long subsys, const char *file, int line,
			const char *text)
{
	infos += level == HA_LOG_INFO;
	warnings += level == HA_LOG_WARN;
	capture_sink(level, subsys, file, line, text);
}

static bool all_protected(const struct pair *pairs)
{
	for (unsigned i = 0; i < CONNECTIONS; i++)
		if (!pair_has_standby(&pairs[i]))
			return false;
	return true;
}

static void connect_all(struct pair *world, struct pair *pairs)
{
	pair_init(world);
	world->config.enable_backup = true;
	world->fabric.rails = 2;
	pair_open(world);
	for (unsigned i = 0; i < CONNECTIONS; i++) {
		pairs[i] = *world;
		pair_connect(&pairs[i]);
	}
	for (unsigned ms = 0; ms < 10000 && !all_protected(pairs); ms++)
		tick(world);
	assert_true(all_protected(pairs));
}

static bool is_told_of(const struct ha_comm *comm, const char *what)
{
	char line[256];

	snprintf(line, sizeof(line), "connection %s: %s", comm->name, what);
	return logged(line);
}

/*
 * Each connection builds paths, proves them in vain and gives them up, five times a second. What is
 * told of that are the first ones of each cause, and one now and then; of what a connection loses
 * that it used, everything.
 */
static void what_an_outage_says_does_not_grow_with_it(void **state)
{
	static const char *const causes[] = {" built", " is given up", " failed: error completion"};
	struct pair pairs[CONNECTIONS], world;
	unsigned ends, allowed;

	(void)state;
	connect_all(&world, pairs);
	cut_all(&world, true);
	capture_log();
	ha_log_set_sink(count_lines);
	infos = warnings = 0;
	for (unsigned i = 0; i < CONNECTIONS; i++)
		(void)post_recv(&pairs[i], 1, &(size_t){0}, &(size_t){5000}, &(int){1});
	pass(&world, OUTAGE_S * 1000);
	print_message("%u INFO and %u WARN in %u s of %u connections\n", infos, warnings, OUTAGE_S,
		      CONNECTIONS);
	/* Of either end one that fails, one that says that nothing is left; and of each pair of
	 * ports at either end that its heartbeats are missed, and lost. */
	ends = 2 * CONNECTIONS;
	allowed = (HA_LOG_BURST + OUTAGE_S / 10 + 1) * (unsigned)(sizeof(causes) / sizeof(*causes));
	assert_in_range(infos, 1, allowed + 2 * ends);
	assert_in_range(warnings, ends, ends + 16);
	for (size_t i = 0; i < sizeof(causes) / sizeof(*causes); i++)
		assert_logged(causes[i]);
	assert_logged("more like it, left out here");
	for (unsigned i = 0; i < CONNECTIONS; i++) {
		assert_int_equal(ha_comm_error(pairs[i].recv), HA_OK);
		assert_true(is_told_of(pairs[i].recv, "no path is left"));
		assert_true(is_told_of(pairs[i].send, "no path is left"));
	}
	/* And what ends them is told of each, by who finds it first and by the other. */
	pass(&world, 15000);
	for (unsigned i = 0; i < CONNECTIONS; i++) {
		assert_int_not_equal(ha_comm_error(pairs[i].recv), HA_OK);
		assert_true(is_told_of(pairs[i].recv, "no path to the peer for ") ||
			    is_told_of(pairs[i].recv, "the peer has given up"));
		assert_true(is_told_of(pairs[i].send, "no path to the peer for ") ||
			    is_told_of(pairs[i].send, "the peer has given up"));
	}
	for (unsigned i = 0; i < CONNECTIONS; i++)
		pair_disconnect(&pairs[i]);
	pair_close(&world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(with_the_defaults_30_s_without_any_path_are_survived),
	    cmocka_unit_test(
		with_the_defaults_an_outage_ends_in_an_error_later_than_with_nccls_own),
	    cmocka_unit_test(where_there_is_a_standby_the_soft_timeout_does_not_wait_for_the_sites),
	    cmocka_unit_test(where_there_is_none_the_connection_waits_as_long_as_nccls_own_would),
	    cmocka_unit_test(without_failover_30_s_are_survived_as_by_nccls_own),
	    cmocka_unit_test(without_failover_the_hardware_gives_up_when_nccls_would),
	    cmocka_unit_test(the_bootstrap_socket_may_go_over_the_network_that_is_out),
	    cmocka_unit_test(a_peer_whose_host_is_gone_is_an_error_at_the_limit),
	    cmocka_unit_test(without_failover_the_bootstrap_socket_decides_nothing),
	    cmocka_unit_test(a_process_that_died_is_an_error_at_once_and_not_at_the_limit),
	    cmocka_unit_test(
		a_reset_after_an_outage_is_not_taken_for_death_before_the_sender_has_dialled),
	    cmocka_unit_test(what_an_outage_says_does_not_grow_with_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
