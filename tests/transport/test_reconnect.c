/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bootstrap sockets that break although both processes live: the sender dials again, the receiver's
 * server lets it in, nobody else, and a peer that is gone is still known to be in time.
 */
#include "../descriptors.h"
#include "harness.h"
#include "instance/instance.h"
#include "peer.h"

#include "base/clock.h"
#include "failover/engine.h"
#include "failover/fsm.h"
#include "failover/message.h"
#include "failover/reconnect_server.h"
#include "transport/ctrl_sock.h"
#include "transport/failover_ops.h"
#include "transport/recv.h"
#include "transport/send.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static void open_pair(struct pair *pair, uint32_t rails)
{
	pair_init(pair);
	pair->config.enable_backup = true;
	pair->fabric.rails = rails;
	pair_up(pair);
}

/* Both ends have said PORTS. */
static void settle(struct pair *pair)
{
	for (int i = 0; i < 1000 && (pair->send->failover->peer_ports.count == 0 ||
				     pair->recv->failover->peer_ports.count == 0);
	     i++)
		pair_idle(pair, 1);
	assert_true(ha_secrets_known(&pair->send->failover->peer_reconnect_at.secrets));
	assert_false(ha_secrets_known(&pair->recv->failover->peer_reconnect_at.secrets));
}

static void open_settled(struct pair *pair, uint32_t rails)
{
	open_pair(pair, rails);
	settle(pair);
}

static void break_socket(const struct ha_comm *comm)
{
	assert_int_equal(shutdown(comm->ctrl_sock->frames.fd, SHUT_RDWR), 0);
}

static bool is_whole(const struct pair *pair, uint32_t times)
{
	return pair->send->failover->reconnected == times &&
	       pair->recv->failover->reconnected == times && !pair->send->failover->socket_broken &&
	       !pair->recv->failover->socket_broken;
}

/* In milliseconds, as the connection's clock goes. */
static void wait_rejoined(struct pair *pair, uint32_t times, unsigned within_ms)
{
	for (unsigned i = 0; i < within_ms && !is_whole(pair, times); i++)
		pair_idle(pair, 1);
	if (!is_whole(pair, times))
		fail_msg("the socket is not replaced for the %u. time within %u ms; log:\n%s",
			 times, within_ms, pair->log);
	assert_int_equal(ha_comm_error(pair->send), HA_OK);
	assert_int_equal(ha_comm_error(pair->recv), HA_OK);
}

/* Asked and answered with a fabric that carries nothing: over the socket. */
static void assert_socket_carries_messages(struct pair *pair)
{
	uint64_t send_heard = pair->send->failover->heard_ns,
		 recv_heard = pair->recv->failover->heard_ns;

	sv_stepped_cut(0, true);
	ha_say(pair->send, HA_SAY_PING);
	pair_idle(pair, 4);
	sv_stepped_cut(0, false);
	assert_true(pair->send->failover->heard_ns > send_heard);
	assert_true(pair->recv->failover->heard_ns > recv_heard);
}

/* ---- a socket that breaks -------------------------------------------------------------------- */

static void a_socket_that_breaks_at_either_end_is_replaced(void **state)
{
	(void)state;
	for (int at_sender = 0; at_sender < 2; at_sender++) {
		struct pair pair;

		open_settled(&pair, 1);
		transfer(&pair, 1000, 1);
		break_socket(at_sender ? pair.send : pair.recv);
		wait_rejoined(&pair, 1, 50);
		assert_logged("the bootstrap socket is broken (closed by the other end)");
		assert_logged("the bootstrap socket was dialled again and works");
		assert_socket_carries_messages(&pair);
		transfer(&pair, 100000, 2);
		assert_int_equal(captured_warnings, 0);
		assert_int_equal(pair.recv->failover->epoch, 1);
		pair_close(&pair);
		assert_int_equal(captured_warnings, 0);
	}
}

/* The receiver's end of the old socket looks healthy: a firewall has forgotten the connection. */
static void a_half_open_socket_is_replaced(void **state)
{
	struct pair pair;
	uint8_t buf[4096];
	bool closed;
	int old;

	(void)state;
	open_settled(&pair, 1);
	old = dup(pair.send->ctrl_sock->frames.fd);
	assert_true(old >= 0);
	ha_progress_unwatch(pair.inst[0]->progress, &pair.send->ctrl_sock->watch);
	assert_true(pair.send->ops->socket_broken(pair.send));
	assert_false(pair.recv->failover->socket_broken);
	wait_rejoined(&pair, 1, 50);
	peer_hear(old, buf, sizeof(buf), &closed);
	assert_true(closed);
	close(old);
	assert_socket_carries_messages(&pair);
	transfer(&pair, 5000, 1);
	pair_close(&pair);
}

static void a_socket_may_break_again_and_again(void **state)
{
	struct pair pair;
	int descriptors;

	(void)state;
	open_settled(&pair, 1);
	descriptors = open_descriptors();
	for (uint32_t i = 1; i <= 40; i++) {
		break_socket(i % 2 ? pair.send : pair.recv);
		wait_rejoined(&pair, i, 2500);
		transfer(&pair, 100 * i, i);
		assert_int_equal(open_descriptors(), descriptors);
	}
	assert_socket_carries_messages(&pair);
	assert_int_equal(captured_warnings, 0);
	pair_close(&pair);
}

/* ---- and the only path with it -------------------------------------------------------------- */

static void one_port_survives_a_flap_without_its_socket(void **state)
{
	static const unsigned down_ms[] = {1, 100, 900};

	(void)state;
	for (int host = 0; host < 2; host++)
		for (unsigned i = 0; i < sizeof(down_ms) / sizeof(down_ms[0]); i++) {
			struct pair pair;

			open_settled(&pair, 1);
			transfer(&pair, 3000, 1);
			break_socket(host ? pair.send : pair.recv);
			sv_stepped_link((uint32_t)host, 0, false);
			pair_idle(&pair, down_ms[i]);
			sv_stepped_link((uint32_t)host, 0, true);
			transfer(&pair, 50000, 2);
			assert_int_equal(pair.recv->count.failovers, 1);
			assert_int_equal(pair.send->count.failovers, 1);
			assert_true(is_whole(&pair, 1));
			pair_close(&pair);
		}
}

static void a_message_in_flight_survives_both(void **state)
{
	(void)state;
	for (unsigned steps = 0; steps < 30; steps += 3) {
		const size_t offset = 8192, size = 20000;
		const int tag = 7;
		struct ha_request *recv, *send;
		struct pair pair;
		int got = 0;

		open_settled(&pair, 1);
		fill(pair.from.bytes, size, 3);
		recv = post_recv(&pair, 1, &offset, &size, &tag);
		send = post_send(&pair, 0, size, tag);
		for (unsigned i = 0; i < steps; i++)
			sv_stepped_step();
		sv_stepped_link(1, 0, false);
		break_socket(steps % 2 ? pair.send : pair.recv);
		pair_idle(&pair, 20);
		sv_stepped_link(1, 0, true);
		assert_int_equal(pair_finish(&pair, recv, &got), HA_OK);
		assert_int_equal(pair_finish(&pair, send, NULL), HA_OK);
		assert_int_equal(got, (int)size);
		assert_true(filled(pair.to.bytes + offset, size, 3));
		assert_true(is_whole(&pair, 1));
		pair_close(&pair);
	}
}

/* The network is away: attempts get no answer, and paths keep the connection. */
static void it_is_dialled_until_it_answers(void **state)
{
	uint8_t handle[HA_HANDLE_BYTES];
	struct ha_reconnect_at real;
	struct ha_handle hole;
	struct pair pair;
	int listener;

	(void)state;
	open_settled(&pair, 1);
	listener = peer_listen(handle, 1);
	assert_int_equal(ha_handle_decode(handle, &hole), HA_WIRE_OK);
	real = pair.send->failover->peer_reconnect_at;
	pair.send->failover->peer_reconnect_at.addr = hole.addr;
	break_socket(pair.recv);
	pair_idle(&pair, 10000);
	assert_true(pair.send->failover->socket_broken);
	assert_int_equal(ha_comm_error(pair.send), HA_OK);
	assert_int_equal(ha_comm_error(pair.recv), HA_OK);
	transfer(&pair, 3000, 1);
	pair.send->failover->peer_reconnect_at = real;
	wait_rejoined(&pair, 1, 5000);
	close(listener);
	assert_socket_carries_messages(&pair);
	pair_close(&pair);
}

/* A middlebox that changes bytes, or a kernel with a fault: what came is not what was said. */
static void say_no_frame(int fd)
{
	peer_say(fd, "HTTP/1.1 200 OK\r\n\r\n", 19);
}

static void say_a_damaged_message(int fd)
{
	struct ha_message m = {.kind = HA_MSG_PING, .epoch = 1};
	uint8_t bytes[HA_MESSAGE_MAX_BYTES];
	size_t length = ha_message_encode(&m, bytes);

	bytes[length - 1] ^= 1;
	peer_say_frame(fd, HA_FRAME_CONTROL, bytes, (uint32_t)length);
}

static void say_no_list_of_ports(int fd)
{
	peer_say_frame(fd, HA_FRAME_PORTS, "\xff garbage", 9);
}

static void (*const garblers[])(int fd) = {say_no_frame, say_a_damaged_message,
					   say_no_list_of_ports};

static void a_socket_that_garbles_is_replaced(void **state)
{
	(void)state;
	for (size_t g = 0; g < sizeof(garblers) / sizeof(garblers[0]); g++)
		for (int at_sender = 0; at_sender < 2; at_sender++) {
			struct pair pair;

			open_settled(&pair, 1);
			transfer(&pair, 1000, 1);
			garblers[g]((at_sender ? pair.send : pair.recv)->ctrl_sock->frames.fd);
			wait_rejoined(&pair, 1, 50);
			assert_logged("the bootstrap socket is broken (");
			assert_socket_carries_messages(&pair);
			transfer(&pair, 100000, 2);
			assert_int_equal(captured_warnings, 0);
			pair_close(&pair);
		}
}

/* Nothing that it says is ever understood. */
static void a_peer_that_says_nothing_but_garbage_is_given_up(void **state)
{
	struct pair pair;
	unsigned times = 0;

	(void)state;
	open_settled(&pair, 1);
	for (unsigned ms = 0; ms < 60000 && ha_comm_error(pair.recv) == HA_OK; ms++) {
		struct ha_ctrl_sock *sock = pair.recv->ctrl_sock;

		if (!pair.recv->failover->socket_broken && !pair.send->failover->socket_broken) {
			sock->readable = true;
			sock->frames.in_len =
			    HA_FRAME_HEADER; /* of zeros, before the peer's words */
			memset(sock->frames.in, 0, HA_FRAME_HEADER);
			ha_progress_call(pair.inst[1]->progress, &pair.recv->poller);
			times++;
		}
		pair_idle(&pair, 1);
	}
	assert_int_equal(ha_comm_error(pair.recv), HA_ERR_INTERNAL);
	assert_int_equal(times, 9);
	assert_logged("a control message that is not from this plugin");
	pair_close(&pair);
}

/* ---- strangers ------------------------------------------------------------------------------- */

static int dial_server(const struct pair *pair)
{
	const union ha_sockaddr *addr = &pair->recv->failover->reconnect_at.addr;
	int fd = socket(addr->sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(connect(fd, &addr->sa, ha_sockaddr_len(addr)), 0);
	return fd;
}

static void say_rejoin(int fd, uint64_t secret, uint64_t id)
{
	struct ha_rejoin rejoin = {.secret = secret, .connection_id = id};
	uint8_t payload[HA_REJOIN_BYTES];

	ha_rejoin_encode(&rejoin, payload);
	peer_say_frame(fd, HA_FRAME_REJOIN, payload, sizeof(payload));
}

static void say_garbage(int fd, const struct pair *pair)
{
	(void)pair;
	peer_say(fd, "GET / HTTP/1.1\r\n\r\n", 18);
}

static void say_wrong_secret(int fd, const struct pair *pair)
{
	say_rejoin(fd, pair->recv->failover->reconnect_at.secrets.ask + 1, pair->send->id);
}

/* What a sender waits for is nothing that it says. */
static void say_the_answer(int fd, const struct pair *pair)
{
	say_rejoin(fd, pair->recv->failover->reconnect_at.secrets.answer, pair->send->id);
}

static void say_wrong_connection(int fd, const struct pair *pair)
{
	say_rejoin(fd, pair->recv->failover->reconnect_at.secrets.ask, pair->send->id + 1);
}

/* Of a connection without a server. */
static void say_no_secret(int fd, const struct pair *pair)
{
	say_rejoin(fd, 0, pair->send->id);
}

static void say_something_else(int fd, const struct pair *pair)
{
	(void)pair;
	peer_say_frame(fd, HA_FRAME_READY, NULL, 0);
}

static void say_half(int fd, const struct pair *pair)
{
	uint8_t payload[HA_REJOIN_BYTES / 2] = {0};

	(void)pair;
	peer_say_frame(fd, HA_FRAME_REJOIN, payload, sizeof(payload));
}

static void (*const strangers[])(int fd, const struct pair *pair) = {
    say_garbage,	say_wrong_secret, say_wrong_connection, say_no_secret,
    say_something_else, say_half,	  say_the_answer,
};

static bool hung_up(int fd)
{
	uint8_t buf[2048];
	bool closed;

	assert_int_equal(peer_hear(fd, buf, sizeof(buf), &closed), 0);
	return closed;
}

static void strangers_at_the_server_are_turned_away(void **state)
{
	struct pair pair;
	int descriptors;

	(void)state;
	open_settled(&pair, 1);
	descriptors = open_descriptors();
	for (size_t i = 0; i < sizeof(strangers) / sizeof(strangers[0]); i++) {
		int fd = dial_server(&pair);

		strangers[i](fd, &pair);
		for (int n = 0; n < 1000 && !hung_up(fd); n++)
			pair_idle(&pair, 1);
		assert_true(hung_up(fd));
		close(fd);
		assert_int_equal(open_descriptors(), descriptors);
	}
	assert_true(is_whole(&pair, 0));
	assert_socket_carries_messages(&pair);
	transfer(&pair, 3000, 1);
	assert_int_equal(captured_warnings, 0);
	pair_close(&pair);
	assert_logged("the socket for peers that dial again turned 7 away");
}

static uint64_t refused(const struct pair *pair)
{
	return atomic_load(&pair->inst[1]->refused[HA_refused_rejoins]);
}

static int dial_server_from(const struct pair *pair, uint32_t ip)
{
	const union ha_sockaddr *addr = &pair->recv->failover->reconnect_at.addr;
	struct sockaddr_in self = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(ip)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&self, sizeof(self)), 0);
	assert_int_equal(connect(fd, &addr->sa, ha_sockaddr_len(addr)), 0);
	return fd;
}

/* The receiver's answer to a REJOIN that was said on this socket. */
static struct ha_rejoin hear_rejoin(struct pair *pair, int fd)
{
	uint8_t buf[HA_FRAME_HEADER + HA_REJOIN_BYTES];
	struct ha_rejoin said;
	size_t got = 0;
	bool closed = false;

	for (int i = 0; i < 100 && got < sizeof(buf) && !closed; i++) {
		pair_idle(pair, 1);
		got += peer_hear(fd, buf + got, sizeof(buf) - got, &closed);
	}
	assert_int_equal(got, sizeof(buf));
	assert_int_equal(ha_rejoin_decode(buf + HA_FRAME_HEADER, HA_REJOIN_BYTES, &said),
			 HA_WIRE_OK);
	return said;
}

/* Somebody listened when the socket was dialled again, and says the same once more. */
static void a_rejoin_that_is_said_again_is_refused_and_counted(void **state)
{
	struct ha_secrets before;
	struct pair pair;
	int fd;

	(void)state;
	open_settled(&pair, 1);
	for (uint32_t i = 1; i <= 3; i++) {
		before = pair.recv->failover->reconnect_at.secrets;
		break_socket(pair.send);
		wait_rejoined(&pair, i, 2500);
		pair_idle(&pair, 2500); /* it lasts: the next one is dialled at once */
		assert_int_equal(refused(&pair), i - 1);
		fd = dial_server(&pair);
		say_rejoin(fd, before.ask, pair.send->id);
		peer_say_frame(fd, HA_FRAME_READY, NULL, 0);
		for (int n = 0; n < 100 && !hung_up(fd); n++)
			pair_idle(&pair, 1);
		assert_true(hung_up(fd));
		assert_int_equal(refused(&pair), i);
		close(fd);
		assert_true(is_whole(&pair, i));
		assert_socket_carries_messages(&pair);
	}
	assert_false(logged("looks healthy"));
	pair_close(&pair);
}

/* With the right secret, and from a host that is not the peer's. */
static void a_socket_is_taken_over_only_from_where_the_peer_is(void **state)
{
	struct pair pair;
	int fd;

	(void)state;
	open_settled(&pair, 1);
	fd = dial_server_from(&pair, 0x7f000002);
	say_rejoin(fd, pair.recv->failover->reconnect_at.secrets.ask, pair.send->id);
	for (int n = 0; n < 100 && !hung_up(fd); n++)
		pair_idle(&pair, 1);
	assert_true(hung_up(fd));
	assert_int_equal(refused(&pair), 1);
	close(fd);
	assert_true(is_whole(&pair, 0));
	assert_socket_carries_messages(&pair);
	pair_close(&pair);
}

/* Whoever can do that is at the peer's host and knows the secret; the operator is told. */
static void a_socket_that_looks_healthy_is_not_replaced_without_a_word(void **state)
{
	char theirs[HA_SOCKADDR_TEXT_MAX], text[200];
	union ha_sockaddr self;
	socklen_t length = sizeof(self);
	struct pair pair;
	int fd;

	(void)state;
	open_settled(&pair, 1);
	fd = dial_server(&pair);
	assert_int_equal(getsockname(fd, &self.sa, &length), 0);
	say_rejoin(fd, pair.recv->failover->reconnect_at.secrets.ask, pair.send->id);
	(void)hear_rejoin(&pair, fd);
	assert_int_equal(captured_warnings, 0);
	assert_true(is_whole(&pair, 0)); /* it has not shown that it heard */
	peer_say_frame(fd, HA_FRAME_READY, NULL, 0);
	for (int n = 0; n < 20 && pair.recv->failover->reconnected == 0; n++)
		pair_idle(&pair, 1);
	assert_int_equal(captured_warnings, 1);
	snprintf(text, sizeof(text), "looks healthy here and is replaced by one of %s",
		 ha_sockaddr_text(&self, theirs, sizeof(theirs)));
	assert_logged(text);
	close(fd);
	pair_close(&pair);
}

/* An answer, or READY, that is lost with its socket keeps nobody out. */
static void a_rejoin_that_is_cut_off_is_begun_again(void **state)
{
	(void)state;
	for (int heard = 0; heard < 2; heard++) {
		struct ha_rejoin answer;
		struct pair pair;
		int fd;

		open_settled(&pair, 1);
		fd = dial_server(&pair);
		say_rejoin(fd, pair.recv->failover->reconnect_at.secrets.ask, pair.send->id);
		answer = hear_rejoin(&pair, fd);
		close(fd);
		if (heard) /* by the sender, whose READY does not arrive */
			pair.send->failover->peer_reconnect_at.secrets = answer.next;
		break_socket(pair.send);
		wait_rejoined(&pair, 1, 50);
		assert_memory_equal(&pair.send->failover->peer_reconnect_at.secrets,
				    &pair.recv->failover->reconnect_at.secrets,
				    sizeof(struct ha_secrets));
		assert_socket_carries_messages(&pair);
		pair_close(&pair);
	}
}

static void a_silent_guest_has_five_seconds(void **state)
{
	struct pair pair;
	int descriptors, fd;

	(void)state;
	open_settled(&pair, 1);
	descriptors = open_descriptors();
	fd = dial_server(&pair);
	pair_idle(&pair, 4500);
	assert_false(hung_up(fd));
	pair_idle(&pair, 1000);
	assert_true(hung_up(fd));
	close(fd);
	assert_int_equal(open_descriptors(), descriptors);
	pair_close(&pair);
}

#define FLOOD 100

static void a_flood_of_strangers_does_not_keep_the_peer_out(void **state)
{
	int crowd[FLOOD], descriptors;
	struct pair pair;

	(void)state;
	open_settled(&pair, 1);
	descriptors = open_descriptors();
	for (int i = 0; i < FLOOD; i++) {
		crowd[i] = dial_server(&pair);
		if (i == FLOOD / 2)
			break_socket(pair.send);
		if (i % 10 == 0)
			pair_idle(&pair, 1);
	}
	wait_rejoined(&pair, 1, 2000);
	for (int i = 0; i < FLOOD; i++)
		close(crowd[i]);
	pair_idle(&pair, 20);
	assert_int_equal(open_descriptors(), descriptors);
	assert_socket_carries_messages(&pair);
	transfer(&pair, 3000, 1);
	pair_close(&pair);
}

/* As the server says at its end. */
static unsigned turned_away(void)
{
	static const char says[] = "the socket for peers that dial again turned ";
	const char *at = strstr(captured_log, says);

	assert_non_null(at);
	return (unsigned)strtoul(at + sizeof(says) - 1, NULL, 10);
}

/* 40 in each millisecond, who say nothing. One who finds the server's queue full goes away. */
#define PER_MS 40
#define KEPT   (15 * PER_MS)

struct crowd {
	int fds[KEPT];
	unsigned dialled;
};

static void crowd_comes(struct crowd *crowd, const struct pair *pair)
{
	const union ha_sockaddr *addr = &pair->recv->failover->reconnect_at.addr;

	for (int i = 0; i < PER_MS; i++, crowd->dialled++) {
		int *fd = &crowd->fds[crowd->dialled % KEPT];

		if (crowd->dialled >= KEPT)
			close(*fd);
		*fd = socket(addr->sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		assert_true(*fd >= 0);
		if (connect(*fd, &addr->sa, ha_sockaddr_len(addr)) != 0)
			assert_int_equal(errno, EINPROGRESS);
	}
}

static void crowd_leaves(struct crowd *crowd)
{
	for (unsigned i = 0; i < crowd->dialled && i < KEPT; i++)
		close(crowd->fds[i]);
}

/*
 * Ends the sender's socket only, as a firewall that has forgotten it may. The receiver's is from
 * now on one whose other end nobody reads, which is returned.
 */
static int break_senders_socket(struct pair *pair)
{
	struct ha_watch *watch = &pair->recv->ctrl_sock->watch;
	struct ha_progress *progress = pair->inst[1]->progress;
	union ha_sockaddr at;
	int listener = ha_net_listen(&pair->inst[1]->bootstrap_addr, 1, &at);
	int nobody = socket(at.sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int fd = watch->fd, other;

	assert_true(listener >= 0 && nobody >= 0);
	assert_int_equal(connect(nobody, &at.sa, ha_sockaddr_len(&at)), 0);
	other = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	assert_true(other >= 0);
	ha_progress_unwatch(progress, watch);
	assert_int_equal(dup3(other, fd, O_CLOEXEC), fd);
	watch->fd = fd;
	assert_int_equal(ha_progress_watch(progress, watch), HA_OK);
	close(other);
	close(listener);
	return nobody;
}

/* Breaks the socket, so that both notice or the sender only. What is to be closed; -1: nothing. */
typedef int (*how_it_breaks)(struct pair *pair);

static int at_both_ends(struct pair *pair)
{
	break_socket(pair->send);
	return -1;
}

static void expect_healthy(const struct pair *pair, how_it_breaks breaks)
{
	if (breaks == at_both_ends)
		return;
	assert_true(ha_frame_sock_looks_healthy(&pair->recv->ctrl_sock->frames));
	assert_false(pair->recv->failover->socket_broken);
}

/* From the break on; the crowd was there before, and comes all the time. */
static unsigned ms_to_rejoin(bool crowded, how_it_breaks breaks)
{
	struct crowd crowd = {.dialled = 0};
	struct pair pair;
	unsigned ms = 0;
	int nobody;

	open_settled(&pair, 1);
	for (int i = 0; i < 5 && crowded; i++) {
		crowd_comes(&crowd, &pair);
		pair_idle(&pair, 1);
	}
	pair_idle(&pair, 60);
	nobody = breaks(&pair);
	expect_healthy(&pair, breaks);
	for (; ms < 20000 && !is_whole(&pair, 1); ms++) {
		if (crowded)
			crowd_comes(&crowd, &pair);
		pair_idle(&pair, 1);
	}
	assert_true(is_whole(&pair, 1));
	crowd_leaves(&crowd);
	if (nobody >= 0)
		close(nobody);
	pair_idle(&pair, 20);
	assert_socket_carries_messages(&pair);
	transfer(&pair, 3000, 1);
	pair_close(&pair);
	return ms;
}

static void a_crowd_that_keeps_coming_costs_the_peer_no_more_than_its_own_time(void **state)
{
	unsigned alone = ms_to_rejoin(false, at_both_ends);
	unsigned crowded = ms_to_rejoin(true, at_both_ends);

	(void)state;
	/* Until the next admissions, if those of these 50 ms have been. */
	if (crowded > 2 * alone + 50)
		fail_msg("%u ms, and %u without a crowd", crowded, alone);
}

/* The receiver is told so over the paths. */
static void nor_where_only_the_sender_has_lost_its_socket(void **state)
{
	unsigned alone = ms_to_rejoin(false, break_senders_socket);
	unsigned crowded = ms_to_rejoin(true, break_senders_socket);

	(void)state;
	if (crowded > 2 * alone + 50)
		fail_msg("%u ms, and %u without a crowd", crowded, alone);
}

/* Its REJOIN is four milliseconds on its way, in which 160 others of the same host come. */
static void who_dials_in_a_crowd_has_time_to_speak(void **state)
{
	struct crowd crowd = {.dialled = 0};
	struct pair pair;
	int fd;

	(void)state;
	open_settled(&pair, 1);
	ha_progress_unwatch(pair.inst[1]->progress, &pair.recv->ctrl_sock->watch);
	assert_true(pair.recv->ops->socket_broken(pair.recv)); /* so that it expects somebody */
	for (int ms = 0; ms < 10; ms++) {
		crowd_comes(&crowd, &pair);
		pair_idle(&pair, 1);
	}
	fd = dial_server(&pair);
	for (int ms = 0; ms < 4; ms++) {
		crowd_comes(&crowd, &pair);
		pair_idle(&pair, 1);
	}
	assert_false(hung_up(fd));
	close(fd);
	crowd_leaves(&crowd);
	break_socket(pair.send);
	wait_rejoined(&pair, 1, 2000);
	pair_close(&pair);
}

/* While no connection misses its socket, a second of them costs what 200 do. */
static void strangers_cost_the_thread_only_so_much(void **state)
{
	struct crowd crowd = {.dialled = 0};
	struct pair pair;

	(void)state;
	open_settled(&pair, 1);
	for (int i = 0; i < 500; i += 25) {
		crowd_comes(&crowd, &pair);
		pair_idle(&pair, 25);
	}
	crowd_leaves(&crowd);
	pair_idle(&pair,
		  500); /* 800 came in half a second, and the queue is served for as long again */
	sv_stepped_set_host(1);
	ha_reconnect_server_close(pair.inst[1]);
	assert_in_range(turned_away(), 100, 220);
	pair_close(&pair);
}

/* ---- a peer that is frozen ------------------------------------------------------------------ */

static size_t unread(const struct ha_comm *comm)
{
	int n = 0;

	assert_int_equal(ioctl(comm->ctrl_sock->frames.fd, FIONREAD, &n), 0);
	return (size_t)n;
}

/* Time in which one of the two processes does not run, and its NIC and its kernel do. */
static void freeze(struct pair *pair, uint32_t host, unsigned ms)
{
	uint64_t until_ns = sv_stepped_now() + ms * HA_NS_PER_MS;

	sv_stepped_set_host(!host);
	while (sv_stepped_now() < until_ns) {
		sv_stepped_run(sv_stepped_now() + HA_NS_PER_MS);
		for (int round = 0; round < 5; round++)
			ha_instance_progress(pair->inst[!host]);
	}
}

/*
 * Its socket is up, and what it is told stays there until it reads. The kernel gives up a
 * connection whose window has been closed for too long, so it must not be filled.
 */
static void a_frozen_peer_is_waited_for_without_filling_its_socket(void **state)
{
	(void)state;
	for (uint32_t host = 0; host < 2; host++) {
		struct in_flight t;
		struct pair pair;
		size_t said;

		open_settled(&pair, 2);
		pair_wait_standby(&pair);
		transfer(&pair, 3000, 1);
		t = pair_start(&pair);
		assert_int_equal(unread(host ? pair.recv : pair.send), 0);
		freeze(&pair, host, 90000);
		said = unread(host ? pair.recv : pair.send);
		assert_in_range(said, host == 0 ? 1 : 0, 12 * 1024 - 1);
		assert_int_equal(ha_comm_error(pair.send), HA_OK);
		assert_int_equal(ha_comm_error(pair.recv), HA_OK);
		assert_int_equal(pair_finish(&pair, t.recv, NULL), HA_OK);
		assert_int_equal(pair_finish(&pair, t.send, NULL), HA_OK);
		transfer(&pair, 20000, 2);
		pair_wait_standby(&pair);
		assert_true(is_whole(&pair, 0));
		pair_close(&pair);
	}
}

/* ---- the end -------------------------------------------------------------------------------- */

static void close_while_a_redial_is_under_way(void **state)
{
	int before = open_descriptors();

	(void)state;
	for (unsigned rounds = 0; rounds < 48; rounds++) {
		struct pair pair;

		open_settled(&pair, 1);
		if (rounds % 4 == 0)
			sv_stepped_link(0, 0, false);
		break_socket(rounds % 2 ? pair.send : pair.recv);
		/* Each end takes a round of its own at a time: every order of the two. */
		for (unsigned i = 0; i < rounds / 2; i++)
			ha_instance_progress(pair.inst[(i + rounds) % 3 == 0]);
		if (rounds % 3 == 0) {
			ha_dereg_mr(pair.recv, pair.to.mr);
			ha_close_recv(pair.recv);
			pair.recv = NULL;
			pair.to.mr = NULL;
			pair_idle(&pair, 50);
		}
		pair_close(&pair);
		assert_int_equal(open_descriptors(), before);
	}
}

/* ---- a receiver that has closed -------------------------------------------------------------- */

/* One who has closed and whose process lives: the last acknowledgements and BYE are lost with the
 * path and the socket. */
static void close_unheard(struct pair *pair, struct in_flight *t)
{
	*t = pair_start(pair);
	assert_true(sv_stepped_fault_add("dropack host=1", captured_log, sizeof(captured_log)) >=
		    0);
	assert_int_equal(pair_finish(pair, t->recv, NULL), HA_OK);
	sv_stepped_cut(0, true);
	break_socket(pair->recv);
	ha_dereg_mr(pair->recv, pair->to.mr);
	pair->to.mr = NULL;
	ha_close_recv(pair->recv);
	pair->recv = NULL;
}

static void a_sender_hears_of_a_peer_that_closed_when_it_dials_again(void **state)
{
	(void)state;
	for (int e2e = 0; e2e < 2; e2e++) {
		struct in_flight t;
		struct pair pair;

		pair_init(&pair);
		pair.config.enable_backup = true;
		pair.config.completion = e2e ? HA_COMPLETION_E2E : HA_COMPLETION_RC;
		pair_up(&pair);
		settle(&pair);
		close_unheard(&pair, &t);
		for (int ms = 0; ms < 1000 && !atomic_load(&pair.send->peer_bye); ms++)
			pair_idle(&pair, 1);
		assert_true(atomic_load(&pair.send->peer_bye));
		assert_logged("is told again that its connection");
		assert_int_equal(pair_finish(&pair, t.send, NULL), HA_OK);
		assert_int_equal(ha_comm_error(pair.send), HA_OK);
		assert_int_equal(captured_warnings, 0);
		assert_int_equal(refused(&pair), 0);
		pair_close(&pair);
	}
}

/* What it does not have is not there. */
static void a_sender_hears_what_a_peer_that_closed_does_not_have(void **state)
{
	struct in_flight t;
	struct pair pair;

	(void)state;
	open_settled(&pair, 1);
	t = pair_start(&pair);
	sv_stepped_cut(0, true);
	break_socket(pair.recv);
	ha_close_recv(pair.recv);
	pair.recv = NULL;
	assert_int_equal(pair_finish(&pair, t.send, NULL), HA_ERR_REMOTE);
	assert_logged("the peer closed the connection with 1 requests outstanding");
	pair_close(&pair);
}

struct farewell_visitor {
	int fd;
	uint64_t id;
	struct ha_secrets secrets; /* of the connection, when it closed */
	union ha_sockaddr addr;
};

/* Somebody who dials as the sender would; that one does not. */
static void visit_closed(struct pair *pair, struct farewell_visitor *visitor)
{
	visitor->id = pair->send->id;
	visitor->secrets = pair->recv->failover->reconnect_at.secrets;
	visitor->addr = pair->recv->failover->reconnect_at.addr;
	visitor->fd = -1;
	ha_dereg_mr(pair->recv, pair->to.mr);
	pair->to.mr = NULL;
	ha_close_recv(pair->recv);
	pair->recv = NULL;
}

static void dial_closed(struct farewell_visitor *visitor, uint32_t ip)
{
	struct sockaddr_in self = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(ip)};

	if (visitor->fd >= 0)
		close(visitor->fd);
	visitor->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(visitor->fd >= 0);
	assert_int_equal(bind(visitor->fd, (struct sockaddr *)&self, sizeof(self)), 0);
	assert_int_equal(connect(visitor->fd, &visitor->addr.sa, ha_sockaddr_len(&visitor->addr)),
			 0);
}

static bool is_turned_away(struct pair *pair, int fd)
{
	for (int n = 0; n < 100 && !hung_up(fd); n++)
		pair_idle(pair, 1);
	return hung_up(fd);
}

static const uint32_t peers_ip = 0x7f000001, another_ip = 0x7f000002;

/* BYE, after READY on a socket that was answered, and then the end. */
static void assert_says_bye(struct pair *pair, int fd)
{
	uint8_t buf[HA_FRAME_HEADER + HA_MESSAGE_MAX_BYTES];
	struct ha_frame_header header;
	struct ha_message m;
	bool closed = false;
	size_t got = 0;

	peer_say_frame(fd, HA_FRAME_READY, NULL, 0);
	for (int i = 0; i < 100 && !closed; i++) {
		pair_idle(pair, 1);
		got += peer_hear(fd, buf + got, sizeof(buf) - got, &closed);
	}
	assert_true(closed);
	assert_int_equal(ha_frame_header_decode(buf, got, &header), HA_WIRE_OK);
	assert_int_equal(header.type, HA_FRAME_CONTROL);
	assert_int_equal(got, HA_FRAME_HEADER + header.length);
	assert_int_equal(ha_message_decode(buf + HA_FRAME_HEADER, header.length, &m), HA_WIRE_OK);
	assert_int_equal(m.kind, HA_MSG_BYE);
	assert_int_equal(m.window.base, 2); /* one message, and it is there */
}

/* To nobody but who knows the secret, which is good for one time, and comes from where the sender
 * is: as of a connection that lives. */
static void who_is_told_of_a_closed_connection_proves_that_it_is_the_sender(void **state)
{
	struct farewell_visitor visitor;
	struct ha_rejoin said;
	struct pair pair;

	(void)state;
	open_settled(&pair, 1);
	transfer(&pair, 3000, 1);
	visit_closed(&pair, &visitor);
	for (unsigned i = 0; i < 3; i++) {
		dial_closed(&visitor, i == 2 ? another_ip : peers_ip);
		say_rejoin(visitor.fd, visitor.secrets.ask + (i == 0), visitor.id + (i == 1));
		assert_true(is_turned_away(&pair, visitor.fd));
		assert_int_equal(refused(&pair), i + 1);
	}
	dial_closed(&visitor, peers_ip);
	say_rejoin(visitor.fd, visitor.secrets.ask, visitor.id);
	said = hear_rejoin(&pair, visitor.fd);
	assert_int_equal(said.secret, visitor.secrets.answer);
	assert_says_bye(&pair, visitor.fd);
	/* Again, as often as what is said may be lost, and each time with the next secrets. */
	dial_closed(&visitor, peers_ip);
	say_rejoin(visitor.fd, visitor.secrets.ask, visitor.id);
	assert_true(is_turned_away(&pair, visitor.fd));
	dial_closed(&visitor, peers_ip);
	say_rejoin(visitor.fd, said.next.ask, visitor.id);
	assert_int_equal(hear_rejoin(&pair, visitor.fd).secret, said.next.answer);
	assert_says_bye(&pair, visitor.fd);
	close(visitor.fd);
	assert_int_equal(refused(&pair), 4);
	pair_close(&pair);
}

/* The answer came before the close, and READY comes after it. */
static void a_connection_may_close_between_answer_and_ready(void **state)
{
	struct farewell_visitor visitor;
	struct ha_rejoin said;
	struct pair pair;
	int fd;

	(void)state;
	open_settled(&pair, 1);
	transfer(&pair, 3000, 1);
	fd = dial_server(&pair);
	say_rejoin(fd, pair.recv->failover->reconnect_at.secrets.ask, pair.send->id);
	said = hear_rejoin(&pair, fd);
	visit_closed(&pair, &visitor);
	assert_says_bye(&pair, fd);
	close(fd);
	/* Who has heard that answer goes on from its secrets. */
	dial_closed(&visitor, peers_ip);
	say_rejoin(visitor.fd, said.next.ask, visitor.id);
	assert_int_equal(hear_rejoin(&pair, visitor.fd).secret, said.next.answer);
	close(visitor.fd);
	pair_close(&pair);
}

/* As long as a sender may look for its peer; and not at all for one that has said BYE itself. */
static void a_closed_connection_is_forgotten_when_nobody_asks_any_more(void **state)
{
	struct farewell_visitor visitor;
	struct pair pair;

	(void)state;
	for (int sender_first = 0; sender_first < 2; sender_first++) {
		const unsigned outage_ms = 400;

		pair_init(&pair);
		pair.config.enable_backup = true;
		pair.config.give_up_ms = (int)outage_ms;
		pair_up(&pair);
		settle(&pair);
		visitor.id = pair.send->id;
		if (sender_first) {
			ha_dereg_mr(pair.send, pair.from.mr);
			pair.from.mr = NULL;
			ha_close_send(pair.send);
			pair_idle(&pair, 2);
			pair.send = NULL;
			visitor.secrets = pair.recv->failover->reconnect_at.secrets;
			visitor.addr = pair.recv->failover->reconnect_at.addr;
			visitor.fd = -1;
			ha_dereg_mr(pair.recv, pair.to.mr);
			pair.to.mr = NULL;
			ha_close_recv(pair.recv);
			pair.recv = NULL;
		} else {
			visit_closed(&pair, &visitor);
			pair_idle(&pair, outage_ms - 50);
			dial_closed(&visitor, peers_ip);
			say_rejoin(visitor.fd, visitor.secrets.ask, visitor.id);
			(void)hear_rejoin(&pair, visitor.fd);
			pair_idle(&pair, 100);
		}
		dial_closed(&visitor, peers_ip);
		say_rejoin(visitor.fd, visitor.secrets.ask, visitor.id);
		assert_true(is_turned_away(&pair, visitor.fd));
		/* The one before hung up without READY. */
		assert_int_equal(refused(&pair), sender_first ? 1 : 2);
		close(visitor.fd);
		pair_close(&pair);
	}
}

/* ---- a process that died -------------------------------------------------------------------- */

/* What its host does for a process that is gone. */
static void die(struct pair *pair, struct ha_comm *comm)
{
	ha_ctrl_sock_stop(comm->ctrl_sock);
	ha_frame_sock_close(&comm->ctrl_sock->frames);
	ha_reconnect_server_close(pair->inst[comm->is_send ? 0 : 1]);
	sv_stepped_cut(0, true);
}

static unsigned ms_until_error(struct pair *pair, struct ha_comm *alive)
{
	uint64_t died_ns = sv_stepped_now();

	for (int i = 0; i < 5000 && ha_comm_error(alive) == HA_OK; i++) {
		ha_instance_progress(pair->inst[alive->is_send ? 0 : 1]);
		sv_stepped_run(sv_stepped_now() + HA_NS_PER_MS);
	}
	assert_int_equal(ha_comm_error(alive), HA_ERR_REMOTE);
	return (unsigned)((sv_stepped_now() - died_ns) / HA_NS_PER_MS);
}

/* Idle, under traffic, or without a path to ask it over. */
static void a_process_that_died_is_known_and_named_within_100_ms(void **state)
{
	enum { IDLE, TRAFFIC, LINK_DOWN, SITUATIONS };

	(void)state;
	for (int i = 0; i < 2 * SITUATIONS; i++) {
		int situation = i / 2, sender_dies = i % 2;
		struct ha_comm *alive;
		struct pair pair;
		char named[80];
		unsigned ms;

		if (situation == LINK_DOWN && sender_dies)
			continue; /* a_sender_that_died_does_not_dial_and_that_is_an_error */
		open_settled(&pair, 1);
		alive = sender_dies ? pair.recv : pair.send;
		transfer(&pair, 3000, 1);
		pair_idle(&pair, 3000);
		if (situation == TRAFFIC)
			(void)pair_start(&pair);
		if (situation == LINK_DOWN) {
			sv_stepped_link(0, 0, false);
			pair_idle(&pair, 300);
		}
		die(&pair, sender_dies ? pair.send : pair.recv);
		ms = ms_until_error(&pair, alive);
		print_message("a %s that died is an error after %u ms\n",
			      sender_dies ? "sender" : "receiver", ms);
		assert_in_range(ms, situation == LINK_DOWN ? 10 : 25, 50);
		assert_logged("its socket is closed and another one refused");
		snprintf(named, sizeof(named), "process %d on host %s is gone", (int)getpid(),
			 pair.inst[0]->host);
		assert_logged(named);
		pair_close(&pair);
	}
}

/* A firewall that closes the socket and refuses others: nobody is dead. */
static void firewall(struct pair *pair, int at_sender)
{
	ha_reconnect_server_close(pair->inst[!at_sender]);
	break_socket(at_sender ? pair->recv : pair->send);
}

static void assert_nobody_is_dead(struct pair *pair)
{
	assert_int_equal(ha_comm_error(pair->send), HA_OK);
	assert_int_equal(ha_comm_error(pair->recv), HA_OK);
}

static void a_host_that_refuses_is_not_believed_where_a_path_denies_it(void **state)
{
	(void)state;
	for (int at_sender = 0; at_sender < 2; at_sender++) {
		struct pair pair;

		open_settled(&pair, 1);
		transfer(&pair, 3000, 1);
		/* Nor does the other end hear of the new socket. */
		ha_reconnect_server_close(pair.inst[at_sender]);
		firewall(&pair, at_sender);
		pair_idle(&pair, 5000);
		assert_true(pair.send->failover->socket_broken);
		assert_true(pair.recv->failover->socket_broken);
		assert_nobody_is_dead(&pair);
		transfer(&pair, 20000, 2);
		pair_close(&pair);
	}
}

/* Its process gets no processor, and its NIC answers all the same. */
static void a_frozen_peer_behind_a_firewall_that_refuses_is_waited_for(void **state)
{
	(void)state;
	for (uint32_t host = 0; host < 2; host++) {
		struct in_flight t;
		struct pair pair;

		open_settled(&pair, 1);
		transfer(&pair, 3000, 1);
		t = pair_start(&pair);
		ha_reconnect_server_close(pair.inst[0]);
		ha_reconnect_server_close(pair.inst[1]);
		break_socket(host ? pair.send : pair.recv);
		freeze(&pair, host, 60000);
		assert_nobody_is_dead(&pair);
		assert_int_equal(pair_finish(&pair, t.recv, NULL), HA_OK);
		assert_int_equal(pair_finish(&pair, t.send, NULL), HA_OK);
		transfer(&pair, 20000, 2);
		pair_close(&pair);
	}
}

/* Nor does what the active path says decide, where there is another one. */
static void a_path_in_reserve_denies_it_too(void **state)
{
	(void)state;
	for (uint32_t host = 0; host < 2; host++) {
		struct pair pair;

		open_settled(&pair, 2);
		pair_wait_standby(&pair);
		transfer(&pair, 3000, 1);
		ha_reconnect_server_close(pair.inst[0]);
		ha_reconnect_server_close(pair.inst[1]);
		break_socket(host ? pair.send : pair.recv);
		sv_stepped_cut(ha_comm_path(pair.send)->port->nic == pair.send->primary ? 0 : 1,
			       true);
		freeze(&pair, host, 150);
		assert_nobody_is_dead(&pair);
		pair_close(&pair);
	}
}

/* Answers are on their way, and come when it is over. */
static void hold_everything(unsigned ms)
{
	char rule[60];

	snprintf(rule, sizeof(rule), "hold until=%lluns",
		 (unsigned long long)(sv_stepped_now() + ms * HA_NS_PER_MS));
	add_rule(rule);
}

/* This end was stopped, and finds an old question without an answer when it runs again. */
static void silence_proves_nothing_to_an_end_that_slept(void **state)
{
	(void)state;
	for (uint32_t host = 0; host < 2; host++) {
		struct pair pair;

		open_settled(&pair, 1);
		transfer(&pair, 3000, 1);
		ha_reconnect_server_close(pair.inst[0]);
		ha_reconnect_server_close(pair.inst[1]);
		break_socket(host ? pair.send : pair.recv);
		pair_pass(&pair, 25);
		hold_everything(120);
		pair_pass(&pair, 20);
		sv_stepped_run(sv_stepped_now() + 99 * HA_NS_PER_MS);
		for (int round = 0; round < 4; round++) /* before they come */
			ha_instance_progress(pair.inst[round % 2]);
		assert_nobody_is_dead(&pair);
		pair_idle(&pair, 1000);
		assert_nobody_is_dead(&pair);
		transfer(&pair, 20000, 2);
		pair_close(&pair);
	}
}

static void a_receiver_that_asks_after_its_sender_is_no_stranger(void **state)
{
	struct pair pair;

	(void)state;
	open_settled(&pair, 1);
	/* The sender's end of the socket looks healthy. */
	ha_progress_unwatch(pair.inst[1]->progress, &pair.recv->ctrl_sock->watch);
	assert_true(pair.recv->ops->socket_broken(pair.recv));
	pair_idle(&pair, 5000);
	assert_nobody_is_dead(&pair);
	assert_int_equal(atomic_load(&pair.inst[0]->refused[HA_refused_rejoins]), 0);
	sv_stepped_set_host(0);
	ha_reconnect_server_close(pair.inst[0]);
	assert_true(turned_away() >= 3); /* it did ask */
	pair_close(&pair);
}

/* ---- somebody else at the port of a receiver that died -------------------------------------- */

/* A program of anyone's: what it does with what it hears. */
struct impostor {
	int listener, fd;
	unsigned heard; /* clients that said something */
	void (*answer)(struct impostor *impostor, const uint8_t *said, size_t length);
	struct ha_secrets secrets; /* as the receiver had them, for one that stole them */
};

static void take_port(struct impostor *impostor, const struct ha_comm *of)
{
	union ha_sockaddr addr = of->failover->reconnect_at.addr, bound;

	impostor->fd = -1;
	impostor->secrets = of->failover->reconnect_at.secrets;
	impostor->listener = ha_net_listen(&addr, 16, &bound);
	assert_true(impostor->listener >= 0);
	assert_int_equal(bound.in.sin_port, addr.in.sin_port);
}

static void impostor_turn(struct impostor *impostor)
{
	uint8_t buf[4096];
	bool closed;
	size_t got;
	int fd = accept4(impostor->listener, NULL, NULL, SOCK_CLOEXEC);

	if (fd >= 0) {
		if (impostor->fd >= 0)
			close(impostor->fd);
		impostor->fd = fd;
	}
	if (impostor->fd < 0)
		return;
	got = peer_hear(impostor->fd, buf, sizeof(buf), &closed);
	if (got == 0)
		return;
	impostor->heard++;
	impostor->answer(impostor, buf, got);
}

static void leave_port(struct impostor *impostor)
{
	close(impostor->listener);
	if (impostor->fd >= 0)
		close(impostor->fd);
}

static void echo(struct impostor *impostor, const uint8_t *said, size_t length)
{
	peer_say(impostor->fd, said, length);
}

/* And says that everything has been received, and more than there ever was. */
static void echo_and_say_bye(struct impostor *impostor, const uint8_t *said, size_t length)
{
	struct ha_message m = {.kind = HA_MSG_BYE, .serial = 1 << 20, .window.base = 1ull << 40};
	uint8_t payload[HA_MESSAGE_MAX_BYTES];

	echo(impostor, said, length);
	peer_say_frame(impostor->fd, HA_FRAME_CONTROL, payload,
		       (uint32_t)ha_message_encode(&m, payload));
}

static void say_something_http(struct impostor *impostor, const uint8_t *said, size_t length)
{
	(void)said, (void)length;
	peer_say(impostor->fd, "HTTP/1.1 400 Bad Request\r\n\r\n", 28);
}

/* Time goes on for the sender and the impostor; the receiver is dead. */
static unsigned ms_until_latched(struct pair *pair, struct impostor *impostor, unsigned at_most_ms)
{
	uint64_t died_ns = sv_stepped_now();

	for (unsigned i = 0; i < at_most_ms && ha_comm_error(pair->send) == HA_OK; i++) {
		ha_instance_progress(pair->inst[0]);
		impostor_turn(impostor);
		sv_stepped_run(sv_stepped_now() + HA_NS_PER_MS);
	}
	return (unsigned)((sv_stepped_now() - died_ns) / HA_NS_PER_MS);
}

static void whoever_takes_a_dead_receivers_port_is_not_the_receiver(void **state)
{
	static void (*const answers[])(struct impostor *, const uint8_t *,
				       size_t) = {echo, echo_and_say_bye, say_something_http};

	(void)state;
	for (unsigned i = 0; i < 2 * sizeof(answers) / sizeof(answers[0]); i++) {
		struct impostor impostor = {.answer = answers[i / 2]};
		struct in_flight t;
		struct pair pair;
		unsigned ms;

		open_settled(&pair, 1);
		transfer(&pair, 3000, 1);
		t = pair_start(&pair);
		if (i % 2) {
			sv_stepped_link(0, 0, false);
			pair_idle(&pair, 300);
		}
		die(&pair, pair.recv);
		take_port(&impostor, pair.recv);
		ms = ms_until_latched(&pair, &impostor, 5000);
		assert_true(impostor.heard >= 2);
		if (ms > 1000)
			fail_msg("after %u ms: error %d; log:\n%s", ms, ha_comm_error(pair.send),
				 pair.log);
		pair_assert_latched(&pair, pair.send, t.send, HA_ERR_REMOTE);
		assert_int_equal(pair.send->failover->reconnected, 0);
		assert_true(atomic_load(&pair.inst[0]->refused[HA_refused_rejoins]) >= 2);
		leave_port(&impostor);
		pair_close(&pair);
	}
}

/* It lets the receiver in, so its host does not refuse; what it would say is not even heard. */
static void whoever_takes_a_dead_senders_port_is_not_the_sender(void **state)
{
	struct impostor impostor = {.answer = echo_and_say_bye};
	struct pair pair;
	uint64_t died_ns;
	unsigned ms;

	(void)state;
	open_settled(&pair, 1);
	transfer(&pair, 3000, 1);
	(void)pair_start(&pair);
	die(&pair, pair.send);
	take_port(&impostor, pair.send);
	died_ns = sv_stepped_now();
	for (unsigned i = 0; i < 5000 && ha_comm_error(pair.recv) == HA_OK; i++) {
		ha_instance_progress(pair.inst[1]);
		impostor_turn(&impostor);
		sv_stepped_run(sv_stepped_now() + HA_NS_PER_MS);
	}
	ms = (unsigned)((sv_stepped_now() - died_ns) / HA_NS_PER_MS);
	assert_int_equal(ha_comm_error(pair.recv), HA_ERR_REMOTE);
	assert_in_range(ms, 2000, 2500);
	assert_true(impostor.fd >= 0);
	assert_int_equal(impostor.heard, 0);
	leave_port(&impostor);
	pair_close(&pair);
}

/* Binds the next socket to the port that it will dial, which connects it to itself. */
static const union ha_sockaddr *to_itself;
static unsigned self_connects;

int __real_bind(int fd, const struct sockaddr *addr, socklen_t length);
/* Seen from outside, for shared objects that bind, too. */
__attribute__((visibility("default"))) int __wrap_bind(int fd, const struct sockaddr *addr,
						       socklen_t length);
int __wrap_bind(int fd, const struct sockaddr *addr, socklen_t length)
{
	union ha_sockaddr self;

	if (!to_itself)
		return __real_bind(fd, addr, length);
	memcpy(&self, addr, length);
	assert_int_equal(self.in.sin_port, 0);
	self.in.sin_port = to_itself->in.sin_port;
	self_connects++;
	/* What the attempt before has left does not matter. */
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)), 0);
	return __real_bind(fd, &self.sa, length);
}

static void a_socket_connected_to_itself_is_not_the_receiver(void **state)
{
	struct in_flight t;
	union ha_sockaddr addr;
	struct pair pair;

	(void)state;
	open_settled(&pair, 1);
	t = pair_start(&pair);
	sv_stepped_link(0, 0, false);
	pair_idle(&pair, 300);
	addr = pair.recv->failover->reconnect_at.addr;
	die(&pair, pair.recv);
	to_itself = &addr;
	self_connects = 0;
	assert_true(ms_until_error(&pair, pair.send) < 1000);
	to_itself = NULL;
	assert_true(self_connects >= 2);
	assert_int_equal(pair.send->failover->reconnected, 0);
	pair_assert_latched(&pair, pair.send, t.send, HA_ERR_REMOTE);
	pair_close(&pair);
}

/* Who has stolen the secrets, and nothing more to say, is no frozen peer that is waited for. */
static void say_the_right_thing_and_nothing_more(struct impostor *impostor, const uint8_t *said,
						 size_t length)
{
	struct ha_rejoin rejoin;
	uint8_t payload[HA_REJOIN_BYTES];

	if (impostor->heard > 1)
		return;
	assert_true(length >= HA_FRAME_HEADER + HA_REJOIN_BYTES);
	assert_int_equal(ha_rejoin_decode(said + HA_FRAME_HEADER, HA_REJOIN_BYTES, &rejoin),
			 HA_WIRE_OK);
	assert_true(rejoin.secret == impostor->secrets.ask);
	rejoin.secret = impostor->secrets.answer;
	rejoin.next = (struct ha_secrets){1, 2};
	ha_rejoin_encode(&rejoin, payload);
	peer_say_frame(impostor->fd, HA_FRAME_REJOIN, payload, sizeof(payload));
}

static void a_socket_that_has_carried_nothing_is_no_frozen_peer(void **state)
{
	struct impostor impostor = {.answer = say_the_right_thing_and_nothing_more};
	struct in_flight t;
	struct pair pair;
	unsigned ms;

	(void)state;
	pair_init(&pair);
	pair.config.enable_backup = true;
	pair.config.give_up_ms = 3000;
	pair_up(&pair);
	settle(&pair);
	t = pair_start(&pair);
	sv_stepped_link(0, 0, false);
	pair_idle(&pair, 300);
	die(&pair, pair.recv);
	take_port(&impostor, pair.recv);
	ms = ms_until_latched(&pair, &impostor, 30000);
	assert_int_equal(pair.send->failover->reconnected, 1);
	assert_in_range(ms, 2000, 6000);
	assert_logged("no path to the peer for");
	pair_assert_latched(&pair, pair.send, t.send, HA_ERR_REMOTE);
	leave_port(&impostor);
	pair_close(&pair);
}

/*
 * A receiver never had to get through to its sender's host, so a firewall may have refused always:
 * without a path that denies it, silence decides.
 */
static void a_sender_that_died_does_not_dial_and_that_is_an_error(void **state)
{
	(void)state;
	for (int link_down = 0; link_down < 2; link_down++) {
		struct pair pair;
		unsigned ms;

		open_settled(&pair, 1);
		transfer(&pair, 3000, 1);
		pair_idle(&pair, 3000);
		if (link_down) {
			sv_stepped_link(0, 0, false);
			pair_idle(&pair, 300);
		}
		die(&pair, pair.send);
		ms = ms_until_error(&pair, pair.recv);
		assert_in_range(ms, link_down ? 2000 : 25, link_down ? 2500 : 50);
		assert_logged(link_down ? "its socket is closed and it answers on no path"
					: "its socket is closed and another one refused");
		pair_close(&pair);
	}
}

/* An end that has given up says so to a sender that dials again. */
static void an_error_is_told_over_the_new_socket(void **state)
{
	struct pair pair;

	(void)state;
	open_settled(&pair, 1);
	sv_stepped_cut(0, true);
	break_socket(pair.recv);
	ha_instance_progress(pair.inst[1]); /* it knows that its socket is broken */
	ha_comm_fail(pair.recv, HA_ERR_SYSTEM, "a test makes this end give up");
	for (int i = 0; i < 500 && ha_comm_error(pair.send) == HA_OK; i++)
		pair_idle(&pair, 1);
	assert_int_equal(ha_comm_error(pair.send), HA_ERR_REMOTE);
	assert_logged("the peer has given up (result 2");
	pair_close(&pair);
}

/* ---- with the background threads ------------------------------------------------------------ */

static atomic_uint replaced; /* sockets, as the log says */

static void count_replaced(enum ha_log_level level, unsigned long subsys, const char *file,
			   int line, const char *text)
{
	(void)level, (void)subsys, (void)file, (void)line;
	if (strstr(text, "the bootstrap socket was dialled again and works"))
		atomic_fetch_add(&replaced, 1);
}

/* Closing races with everything the two progress threads do about a broken socket. */
static void close_races_with_threads_that_redial(void **state)
{
	const struct timespec tick = {.tv_nsec = 200000};
	int before = open_descriptors();
	struct pair pair;

	(void)state;
	pair_init(&pair);
	atomic_store(&replaced, 0);
	ha_log_set_sink(count_replaced); /* the captured log is for one thread */
	pair.config.enable_backup = true;
	assert_int_equal(sv_stepped_open(&pair.fabric), 0);
	ha_clock_set_source(sv_stepped_now);
	for (uint32_t host = 0; host < 2; host++) {
		struct ha_instance_options options = {.config = &pair.config};

		sv_stepped_set_host(host);
		assert_int_equal(ha_instance_open(&options, &pair.inst[host]), HA_OK);
	}
	for (unsigned i = 0; i < 24; i++) {
		int socket_of_sender;

		pair_connect(&pair);
		socket_of_sender = pair.send->ctrl_sock->frames.fd;
		for (unsigned n = 0; n < 20 + 3 * i; n++) {
			if (n == 20)
				(void)shutdown(socket_of_sender, SHUT_RDWR);
			sv_stepped_run(sv_stepped_now() + HA_NS_PER_MS);
			nanosleep(&tick, NULL);
		}
		ha_dereg_mr(pair.send, pair.from.mr);
		ha_dereg_mr(pair.recv, pair.to.mr);
		munmap(pair.from.bytes, MEM_SIZE);
		munmap(pair.to.bytes, MEM_SIZE);
		pair.from.bytes = pair.to.bytes = NULL;
		ha_close_send(pair.send);
		ha_close_recv(pair.recv);
		pair.send = pair.recv = NULL;
	}
	pair_close(&pair);
	print_message("%u ends got another socket before they were closed\n", replaced);
	assert_true(replaced > 0);
	assert_int_equal(open_descriptors(), before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_socket_that_breaks_at_either_end_is_replaced),
	    cmocka_unit_test(a_half_open_socket_is_replaced),
	    cmocka_unit_test(a_socket_may_break_again_and_again),
	    cmocka_unit_test(one_port_survives_a_flap_without_its_socket),
	    cmocka_unit_test(a_message_in_flight_survives_both),
	    cmocka_unit_test(it_is_dialled_until_it_answers),
	    cmocka_unit_test(a_socket_that_garbles_is_replaced),
	    cmocka_unit_test(a_peer_that_says_nothing_but_garbage_is_given_up),
	    cmocka_unit_test(strangers_at_the_server_are_turned_away),
	    cmocka_unit_test(a_rejoin_that_is_said_again_is_refused_and_counted),
	    cmocka_unit_test(a_socket_is_taken_over_only_from_where_the_peer_is),
	    cmocka_unit_test(a_socket_that_looks_healthy_is_not_replaced_without_a_word),
	    cmocka_unit_test(a_rejoin_that_is_cut_off_is_begun_again),
	    cmocka_unit_test(a_silent_guest_has_five_seconds),
	    cmocka_unit_test(a_flood_of_strangers_does_not_keep_the_peer_out),
	    cmocka_unit_test(a_crowd_that_keeps_coming_costs_the_peer_no_more_than_its_own_time),
	    cmocka_unit_test(nor_where_only_the_sender_has_lost_its_socket),
	    cmocka_unit_test(who_dials_in_a_crowd_has_time_to_speak),
	    cmocka_unit_test(strangers_cost_the_thread_only_so_much),
	    cmocka_unit_test(a_frozen_peer_is_waited_for_without_filling_its_socket),
	    cmocka_unit_test(close_while_a_redial_is_under_way),
	    cmocka_unit_test(a_sender_hears_of_a_peer_that_closed_when_it_dials_again),
	    cmocka_unit_test(a_sender_hears_what_a_peer_that_closed_does_not_have),
	    cmocka_unit_test(who_is_told_of_a_closed_connection_proves_that_it_is_the_sender),
	    cmocka_unit_test(a_connection_may_close_between_answer_and_ready),
	    cmocka_unit_test(a_closed_connection_is_forgotten_when_nobody_asks_any_more),
	    cmocka_unit_test(a_process_that_died_is_known_and_named_within_100_ms),
	    cmocka_unit_test(a_host_that_refuses_is_not_believed_where_a_path_denies_it),
	    cmocka_unit_test(a_frozen_peer_behind_a_firewall_that_refuses_is_waited_for),
	    cmocka_unit_test(a_path_in_reserve_denies_it_too),
	    cmocka_unit_test(silence_proves_nothing_to_an_end_that_slept),
	    cmocka_unit_test(a_receiver_that_asks_after_its_sender_is_no_stranger),
	    cmocka_unit_test(whoever_takes_a_dead_senders_port_is_not_the_sender),
	    cmocka_unit_test(whoever_takes_a_dead_receivers_port_is_not_the_receiver),
	    cmocka_unit_test(a_socket_connected_to_itself_is_not_the_receiver),
	    cmocka_unit_test(a_socket_that_has_carried_nothing_is_no_frozen_peer),
	    cmocka_unit_test(a_sender_that_died_does_not_dial_and_that_is_an_error),
	    cmocka_unit_test(an_error_is_told_over_the_new_socket),
	    cmocka_unit_test(close_races_with_threads_that_redial),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
