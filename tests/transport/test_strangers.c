/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bootstrap sockets against everyone who is not the peer, and against peers of other
 * versions: strangers are dropped without disturbing the real peer queued behind them, nothing
 * blocks, nothing leaks.
 */
#include "../descriptors.h"
#include "harness.h"
#include "instance/instance.h"
#include "peer.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void listen_at(struct pair *pair)
{
	assert_int_equal(ha_listen(pair->inst[1], 0, pair->handle, &pair->listen), HA_OK);
}

static uint64_t ask_of(const struct pair *pair)
{
	struct ha_handle handle;

	assert_int_equal(ha_handle_decode(pair->handle, &handle), HA_WIRE_OK);
	return handle.secrets.ask;
}

static uint64_t answer_of(const struct pair *pair)
{
	struct ha_handle handle;

	assert_int_equal(ha_handle_decode(pair->handle, &handle), HA_WIRE_OK);
	return handle.secrets.answer;
}

static void accept_some(struct pair *pair)
{
	for (int i = 0; i < 5; i++) {
		struct ha_comm *comm;

		assert_int_equal(ha_accept(pair->listen, &comm), HA_OK);
		assert_null(comm);
	}
}

static bool hung_up(int fd)
{
	uint8_t buf[2048];
	bool closed;

	peer_hear(fd, buf, sizeof(buf), &closed);
	return closed;
}

/* ---- strangers ------------------------------------------------------------------------------- */

static void say_http(int fd, uint64_t ask)
{
	(void)ask;
	peer_say(fd, "GET / HTTP/1.1\r\n\r\n", 18);
}

static void say_one_wrong_byte(int fd, uint64_t ask)
{
	(void)ask;
	peer_say(fd, "XXXX", 4);
}

static void say_a_wrong_secret(int fd, uint64_t ask)
{
	struct ha_hello hello = peer_hello(ask ^ 1);

	peer_say_hello(fd, &hello);
}

static void say_something_endless(int fd, uint64_t ask)
{
	struct ha_frame_header header = {.type = HA_FRAME_HELLO, .length = 1u << 30};
	uint8_t bytes[HA_FRAME_HEADER];

	(void)ask;
	ha_frame_header_encode(&header, bytes);
	peer_say(fd, bytes, sizeof(bytes));
}

static void say_a_short_hello(int fd, uint64_t ask)
{
	struct ha_hello hello = peer_hello(ask);
	uint8_t payload[HA_HELLO_BYTES];

	ha_hello_encode(&hello, payload);
	peer_say_frame(fd, HA_FRAME_HELLO, payload, 100);
}

static void say_a_hello_with_nonsense(int fd, uint64_t ask)
{
	struct ha_hello hello = peer_hello(ask);

	hello.endpoint.nqps = 200;
	peer_say_hello(fd, &hello);
}

static void say_a_hello_with_a_short_ring(int fd, uint64_t ask)
{
	struct ha_hello hello = peer_hello(ask);

	hello.endpoint.ring_length = 100;
	peer_say_hello(fd, &hello);
}

static void say_ready_first(int fd, uint64_t ask)
{
	(void)ask;
	peer_say_frame(fd, HA_FRAME_READY, NULL, 0);
}

static void say_hello_twice(int fd, uint64_t ask)
{
	struct ha_hello hello = peer_hello(ask);

	peer_say_hello(fd, &hello);
	peer_say_hello(fd, &hello);
}

static void say_nothing(int fd, uint64_t ask)
{
	(void)fd, (void)ask;
}

static void say_half_a_header(int fd, uint64_t ask)
{
	struct ha_frame_header header = {.type = HA_FRAME_HELLO, .length = HA_HELLO_BYTES};
	uint8_t bytes[HA_FRAME_HEADER];

	(void)ask;
	ha_frame_header_encode(&header, bytes);
	peer_say(fd, bytes, 7);
}

static void say_hello_and_then_nothing(int fd, uint64_t ask)
{
	struct ha_hello hello = peer_hello(ask);

	peer_say_hello(fd, &hello);
}

static const struct {
	const char *name;
	void (*say)(int fd, uint64_t ask);
	bool dropped_at_once;
} strangers[] = {
    {"http", say_http, true},
    {"one wrong byte", say_one_wrong_byte, true},
    {"wrong secret", say_a_wrong_secret, true},
    {"endless frame", say_something_endless, true},
    {"short hello", say_a_short_hello, true},
    {"nonsense in hello", say_a_hello_with_nonsense, true},
    {"short ring", say_a_hello_with_a_short_ring, true},
    {"out of turn", say_ready_first, true},
    {"hello twice", say_hello_twice, true},
    {"silence", say_nothing, false},
    {"half a header", say_half_a_header, false},
    {"hello, then silence", say_hello_and_then_nothing, false},
};
#define NSTRANGERS (sizeof(strangers) / sizeof(strangers[0]))

static void each_stranger_is_dropped_and_the_peer_behind_it_served(void **state)
{
	(void)state;
	for (size_t i = 0; i < NSTRANGERS; i++) {
		struct pair pair;
		int fd, before;

		pair_init(&pair);
		pair_open(&pair);
		before = open_descriptors();
		listen_at(&pair);
		fd = peer_dial(pair.handle);
		strangers[i].say(fd, ask_of(&pair));
		accept_some(&pair);
		if (hung_up(fd) != strangers[i].dropped_at_once)
			fail_msg("stranger '%s' was %s", strangers[i].name,
				 strangers[i].dropped_at_once ? "kept" : "dropped");
		pair_connect(&pair);
		transfer(&pair, 1000, 1);
		close(fd);
		ha_close_send(pair.send);
		ha_close_recv(pair.recv);
		pair.send = pair.recv = NULL;
		assert_int_equal(open_descriptors(), before);
		pair_close(&pair);
	}
}

static void a_silent_stranger_is_dropped_after_a_while(void **state)
{
	struct pair pair;
	int fd;

	(void)state;
	pair_init(&pair);
	pair_open(&pair);
	listen_at(&pair);
	fd = peer_dial(pair.handle);
	accept_some(&pair);
	assert_false(hung_up(fd));
	sv_stepped_run(sv_stepped_now() + 10000000000ull);
	accept_some(&pair);
	assert_true(hung_up(fd));
	close(fd);
	pair_close(&pair);
}

static void a_flood_of_silent_strangers_cannot_keep_the_peer_out(void **state)
{
	enum { FLOOD = 300 };
	struct pair pair;
	int fds[FLOOD];

	(void)state;
	pair_init(&pair);
	pair_open(&pair);
	listen_at(&pair);
	for (int i = 0; i < FLOOD; i++)
		fds[i] = peer_dial(pair.handle);
	for (int i = 0; i < 20; i++)
		accept_some(&pair);
	pair_connect(&pair);
	transfer(&pair, 1000, 1);
	for (int i = 0; i < FLOOD; i++)
		close(fds[i]);
	pair_close(&pair);
}

/* ---- a flood that does not end -------------------------------------------------------------- */

#define PER_ROUND 40
#define ROUND_MS  50

/* The newest of those who dial and say nothing, more than there are seats for. */
struct flood {
	int fds[12 * PER_ROUND];
	unsigned dialled;
};

#define KEPT (sizeof(((struct flood *)0)->fds) / sizeof(int))

static void flood_round(struct flood *flood, const struct pair *pair)
{
	for (int i = 0; i < PER_ROUND; i++, flood->dialled++) {
		int *fd = &flood->fds[flood->dialled % KEPT];

		if (flood->dialled >= KEPT)
			close(*fd);
		*fd = peer_dial(pair->handle);
	}
}

static void flood_end(struct flood *flood)
{
	for (unsigned i = 0; i < flood->dialled && i < KEPT; i++)
		close(flood->fds[i]);
}

/* Of both ends, until they are connected. The crowd comes before each call of accept. */
static unsigned rounds_to_connect(bool flooded)
{
	struct flood flood = {.dialled = 0};
	struct pair pair;
	unsigned round = 0;

	pair_init(&pair);
	pair_open(&pair);
	listen_at(&pair);
	for (; round < 400 && !(pair.send && pair.recv); round++) {
		if (!pair.send)
			assert_int_equal(ha_connect(pair.inst[0], 0, HA_TRAFFIC_CLASS_UNDEF,
						    pair.handle, &pair.send),
					 HA_OK);
		if (flooded)
			flood_round(&flood, &pair);
		if (!pair.recv)
			assert_int_equal(ha_accept(pair.listen, &pair.recv), HA_OK);
		sv_stepped_run(sv_stepped_now() + ROUND_MS * 1000000ull);
	}
	assert_true(pair.send && pair.recv);
	flood_end(&flood);
	pair_connect(&pair); /* registers memory */
	transfer(&pair, 1000, 1);
	pair_close(&pair);
	return round;
}

static void a_flood_that_does_not_end_costs_the_peer_no_more_than_its_own_time(void **state)
{
	unsigned alone = rounds_to_connect(false), flooded = rounds_to_connect(true);

	(void)state;
	if (flooded > 2 * alone)
		fail_msg("%u rounds, and %u without a flood", flooded, alone);
}

/* Five rounds on its way, in which 200 others of the same host come. */
static void a_hello_may_take_its_time_in_a_flood(void **state)
{
	struct flood flood = {.dialled = 0};
	uint8_t buf[HA_FRAME_HEADER + HA_HELLO_BYTES];
	struct ha_hello hello;
	struct ha_comm *comm;
	struct pair pair;
	bool closed;
	int fd;

	(void)state;
	pair_init(&pair);
	pair_open(&pair);
	listen_at(&pair);
	for (int round = 0; round < 10; round++) {
		flood_round(&flood, &pair);
		assert_int_equal(ha_accept(pair.listen, &comm), HA_OK);
	}
	fd = peer_dial(pair.handle);
	for (int round = 0; round < 5; round++) {
		flood_round(&flood, &pair);
		assert_int_equal(ha_accept(pair.listen, &comm), HA_OK);
	}
	hello = peer_hello(ask_of(&pair));
	peer_say_hello(fd, &hello);
	flood_round(&flood, &pair);
	assert_int_equal(ha_accept(pair.listen, &comm), HA_OK);
	assert_int_equal(peer_hear(fd, buf, sizeof(buf), &closed), sizeof(buf));
	assert_false(closed);
	flood_end(&flood);
	close(fd);
	pair_close(&pair);
}

static void strangers_that_come_during_the_handshake_do_not_disturb_it(void **state)
{
	enum { FLOOD = 100 };
	struct pair pair;
	int fds[FLOOD], n = 0;

	(void)state;
	pair_init(&pair);
	pair_open(&pair);
	listen_at(&pair);
	while (n < FLOOD || !pair.send || !pair.recv) {
		if (n < FLOOD) {
			fds[n] = peer_dial(pair.handle);
			strangers[(size_t)n % NSTRANGERS].say(fds[n], ask_of(&pair) ^ 5);
			n++;
		}
		if (!pair.recv)
			assert_int_equal(ha_accept(pair.listen, &pair.recv), HA_OK);
		if (!pair.send)
			assert_int_equal(ha_connect(pair.inst[0], 0, HA_TRAFFIC_CLASS_UNDEF,
						    pair.handle, &pair.send),
					 HA_OK);
	}
	while (n > 0)
		close(fds[--n]);
	pair_connect(&pair); /* registers memory */
	transfer(&pair, 1000, 1);
	pair_close(&pair);
}

static void the_handshake_works_over_ipv6(void **state)
{
	struct pair pair;

	(void)state;
	pair_init(&pair);
	pair_open(&pair);
	memset(&pair.inst[1]->bootstrap_addr, 0, sizeof(pair.inst[1]->bootstrap_addr));
	pair.inst[1]->bootstrap_addr.in6.sin6_family = AF_INET6;
	pair.inst[1]->bootstrap_addr.in6.sin6_addr = in6addr_loopback;
	pair_connect(&pair);
	transfer(&pair, 1000, 1);
	pair_close(&pair);
}

/* Where the last connect went. */
static union ha_sockaddr dialled;

int __real_connect(int fd, const struct sockaddr *addr, socklen_t length);
int __wrap_connect(int fd, const struct sockaddr *addr, socklen_t length);
int __wrap_connect(int fd, const struct sockaddr *addr, socklen_t length)
{
	memcpy(&dialled, addr, length < sizeof(dialled) ? length : sizeof(dialled));
	return __real_connect(fd, addr, length);
}

/* The handle's scope is a number of the listener's host. */
static void a_links_own_address_is_dialled_over_our_own_interface(void **state)
{
	struct ha_handle handle = {.version = HA_WIRE_VERSION, .secrets = {.ask = 1, .answer = 2}};
	uint8_t bytes[HA_HANDLE_BYTES];
	struct ha_comm *comm;
	struct pair pair;

	(void)state;
	pair_init(&pair);
	pair_open(&pair);
	handle.addr.in6.sin6_family = AF_INET6;
	handle.addr.in6.sin6_addr = in6addr_loopback;
	memcpy(handle.addr.in6.sin6_addr.s6_addr, "\xfe\x80", 2);
	handle.addr.in6.sin6_port = htons(9);
	handle.addr.in6.sin6_scope_id = 4711;
	ha_handle_encode(&handle, bytes);
	assert_int_equal(ha_connect(pair.inst[0], 0, HA_TRAFFIC_CLASS_UNDEF, bytes, &comm), HA_OK);
	assert_memory_equal(&dialled.in6.sin6_addr, &handle.addr.in6.sin6_addr, 16);
	assert_int_equal(dialled.in6.sin6_scope_id, if_nametoindex("lo"));
	pair_close(&pair);
}

/* ---- other versions -------------------------------------------------------------------------- */

static void a_peer_that_is_too_new_is_told_so(void **state)
{
	struct ha_frame_header header;
	struct ha_reject reject;
	struct ha_hello hello;
	uint8_t buf[256];
	struct pair pair;
	bool closed;
	size_t got;
	int fd;

	(void)state;
	pair_init(&pair);
	pair_open(&pair);
	listen_at(&pair);
	hello = peer_hello(ask_of(&pair));
	hello.version = hello.min_version = HA_WIRE_VERSION + 4;
	fd = peer_dial(pair.handle);
	peer_say_hello(fd, &hello);
	accept_some(&pair);
	got = peer_hear(fd, buf, sizeof(buf), &closed);
	assert_int_equal(got, HA_FRAME_HEADER + HA_REJECT_BYTES);
	assert_true(closed);
	assert_int_equal(ha_frame_header_decode(buf, got, &header), HA_WIRE_OK);
	assert_int_equal(header.type, HA_FRAME_REJECT);
	assert_int_equal(ha_reject_decode(buf + HA_FRAME_HEADER, header.length, &reject),
			 HA_WIRE_OK);
	assert_int_equal(reject.reason, HA_REJECT_VERSION);
	assert_int_equal(reject.version, HA_WIRE_VERSION);
	assert_logged("the peer speaks protocol versions 6 to 6, we 2 to 2");
	close(fd);
	pair_close(&pair);
}

static void a_newer_peer_that_knows_us_is_served_with_one_warning(void **state)
{
	struct ha_frame_header header;
	struct ha_hello hello, answer;
	uint8_t buf[2048];
	struct ha_comm *comm = NULL;
	struct pair pair;
	bool closed;
	int fd;

	(void)state;
	pair_init(&pair);
	pair_open(&pair);
	listen_at(&pair);
	hello = peer_hello(ask_of(&pair));
	hello.version = HA_WIRE_VERSION + 1;
	hello.features = ~HA_FEATURE_AUTH; /* a key that we do not have is another matter */
	fd = peer_dial(pair.handle);
	peer_say_hello(fd, &hello);
	accept_some(&pair);
	assert_true(peer_hear(fd, buf, sizeof(buf), &closed) == HA_FRAME_HEADER + HA_HELLO_BYTES);
	assert_false(closed);
	assert_int_equal(ha_frame_header_decode(buf, sizeof(buf), &header), HA_WIRE_OK);
	assert_int_equal(header.type, HA_FRAME_HELLO);
	assert_int_equal(ha_hello_decode(buf + HA_FRAME_HEADER, header.length, &answer),
			 HA_WIRE_OK);
	assert_true(answer.secret == answer_of(&pair));
	peer_say_frame(fd, HA_FRAME_READY, NULL, 0);
	for (int i = 0; i < 10 && !comm; i++)
		assert_int_equal(ha_accept(pair.listen, &comm), HA_OK);
	assert_non_null(comm);
	assert_logged("going on with version 2");
	assert_int_equal(captured_warnings, 1);
	ha_close_recv(comm);
	close(fd);
	pair_close(&pair);
}

/* ---- listeners that are none ---------------------------------------------------------------- */

static ha_result_t connect_until(struct pair *pair, uint8_t *handle, int listener, int *fd)
{
	struct ha_comm *comm = NULL;
	ha_result_t result = HA_OK;

	for (int i = 0; i < 100 && result == HA_OK && *fd < 0; i++) {
		result = ha_connect(pair->inst[0], 0, HA_TRAFFIC_CLASS_UNDEF, handle, &comm);
		assert_null(comm);
		*fd = peer_accept(listener);
	}
	for (int i = 0; i < 10 && result == HA_OK; i++)
		result = ha_connect(pair->inst[0], 0, HA_TRAFFIC_CLASS_UNDEF, handle, &comm);
	assert_null(comm);
	return result;
}

static void a_rejected_connect_says_why(void **state)
{
	struct ha_reject reject = {.secret = 77 + PEER_ANSWER,
				   .reason = HA_REJECT_VERSION,
				   .version = 9,
				   .min_version = 8};
	uint8_t payload[HA_REJECT_BYTES], handle[HA_HANDLE_BYTES];
	struct ha_comm *comm;
	struct pair pair;
	int fd = -1, listener;

	(void)state;
	pair_init(&pair);
	pair_open(&pair);
	listener = peer_listen(handle, 77);
	assert_int_equal(connect_until(&pair, handle, listener, &fd), HA_OK);
	ha_reject_encode(&reject, payload);
	peer_say_frame(fd, HA_FRAME_REJECT, payload, sizeof(payload));
	assert_int_equal(ha_connect(pair.inst[0], 0, HA_TRAFFIC_CLASS_UNDEF, handle, &comm),
			 HA_ERR_REMOTE);
	assert_logged("protocol versions 8 to 9");
	close(fd);
	close(listener);
	pair_close(&pair);
}

static void a_listener_that_knows_no_secret_is_tried_again(void **state)
{
	(void)state;
	for (int kind = 0; kind < 5; kind++) {
		struct ha_reject reject = {.secret = 77, .reason = HA_REJECT_RESOURCES};
		uint8_t handle[HA_HANDLE_BYTES], refusal[HA_REJECT_BYTES];
		struct ha_hello hello;
		struct pair pair;
		int fd = -1, again = -1, listener;

		pair_init(&pair);
		pair_open(&pair);
		listener = peer_listen(handle, 77);
		assert_int_equal(connect_until(&pair, handle, listener, &fd), HA_OK);
		if (kind == 0)
			peer_say(fd, "HTTP/1.1 400 Bad Request\r\n", 26);
		if (kind == 1) {
			hello = peer_hello(78);
			peer_say_hello(fd, &hello);
		}
		if (kind == 2)
			close(fd);
		if (kind == 3) { /* nothing but what it has heard */
			hello = peer_hello(77);
			peer_say_hello(fd, &hello);
		}
		if (kind == 4) {
			ha_reject_encode(&reject, refusal);
			peer_say_frame(fd, HA_FRAME_REJECT, refusal, sizeof(refusal));
		}
		assert_int_equal(connect_until(&pair, handle, listener, &again), HA_OK);
		sv_stepped_run(sv_stepped_now() + 100000000);
		assert_int_equal(connect_until(&pair, handle, listener, &again), HA_OK);
		assert_true(again >= 0);
		assert_int_equal(atomic_load(&pair.inst[0]->refused[HA_refused_handshakes]),
				 kind != 2);
		/* And not for ever. */
		close(listener);
		close(again);
		for (int i = 0; i < 1000; i++) {
			struct ha_comm *comm;
			ha_result_t result =
			    ha_connect(pair.inst[0], 0, HA_TRAFFIC_CLASS_UNDEF, handle, &comm);

			if (result != HA_OK) {
				assert_int_equal(result, HA_ERR_REMOTE);
				break;
			}
			assert_true(i < 999);
			sv_stepped_run(sv_stepped_now() + 100000000);
		}
		assert_logged("is the peer process alive");
		if (kind != 2)
			close(fd);
		pair_close(&pair);
	}
}

static void a_foreign_handle_is_refused(void **state)
{
	uint8_t handle[HA_HANDLE_BYTES];
	struct ha_comm *comm = (void *)1;
	struct pair pair;

	(void)state;
	pair_init(&pair);
	pair_open(&pair);
	memset(handle, 0x5a, sizeof(handle)); /* also names an attempt that does not exist */
	assert_int_equal(ha_connect(pair.inst[0], 0, HA_TRAFFIC_CLASS_UNDEF, handle, &comm),
			 HA_ERR_ARGUMENT);
	assert_null(comm);
	assert_logged("not from this plugin");
	pair_close(&pair);
}

static void devices_that_do_not_exist_are_refused(void **state)
{
	struct ha_comm *comm;
	struct ha_listen *listen;
	uint8_t handle[HA_HANDLE_BYTES];
	struct pair pair;

	(void)state;
	pair_init(&pair);
	pair_open(&pair);
	assert_int_equal(ha_listen(pair.inst[1], 99, handle, &listen), HA_ERR_ARGUMENT);
	assert_null(listen);
	listen_at(&pair);
	assert_int_equal(ha_connect(pair.inst[0], -1, HA_TRAFFIC_CLASS_UNDEF, pair.handle, &comm),
			 HA_ERR_ARGUMENT);
	assert_null(comm);
	pair_close(&pair);
}

/* NCCL gives up at any moment and says nothing. */
static void abandoned_handshakes_are_freed_with_the_instance(void **state)
{
	(void)state;
	for (int calls = 0; calls < 8; calls++) {
		struct pair pair;
		int before = open_descriptors();

		pair_init(&pair);
		pair_open(&pair);
		listen_at(&pair);
		for (int i = 0; i < calls; i++) {
			struct ha_comm *comm;

			assert_int_equal(
			    ha_connect(pair.inst[0], 0, HA_TRAFFIC_CLASS_UNDEF, pair.handle, &comm),
			    HA_OK);
			if (comm || i + 1 == calls) {
				ha_close_send(comm);
				break;
			}
			assert_int_equal(ha_accept(pair.listen, &comm), HA_OK);
			ha_close_recv(comm);
		}
		pair_close(&pair);
		assert_int_equal(open_descriptors(), before);
	}
}

static void a_control_message_that_is_nonsense_ends_the_connection(void **state)
{
	struct ha_comm *comm = NULL;
	struct ha_hello hello;
	struct pair pair;
	int fd;

	(void)state;
	pair_init(&pair);
	pair.config.enable_backup = false; /* as this peer: nothing is downgraded */
	pair_open(&pair);
	listen_at(&pair);
	hello = peer_hello(ask_of(&pair));
	fd = peer_dial(pair.handle);
	peer_say_hello(fd, &hello);
	accept_some(&pair);
	peer_say_frame(fd, HA_FRAME_READY, NULL, 0);
	for (int i = 0; i < 10 && !comm; i++)
		assert_int_equal(ha_accept(pair.listen, &comm), HA_OK);
	assert_non_null(comm);
	peer_say_frame(fd, 4711, "of a later version", 18); /* ignored */
	for (int i = 0; i < 5; i++)
		ha_instance_progress(pair.inst[1]);
	assert_int_equal(ha_comm_error(comm), HA_OK);
	peer_say(fd, "garbage, not a frame", 20);
	for (int i = 0; i < 5; i++)
		ha_instance_progress(pair.inst[1]);
	assert_int_equal(ha_comm_error(comm), HA_ERR_INTERNAL);
	assert_int_equal(captured_warnings, 1);
	ha_close_recv(comm);
	close(fd);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(each_stranger_is_dropped_and_the_peer_behind_it_served),
	    cmocka_unit_test(a_silent_stranger_is_dropped_after_a_while),
	    cmocka_unit_test(a_flood_of_silent_strangers_cannot_keep_the_peer_out),
	    cmocka_unit_test(a_flood_that_does_not_end_costs_the_peer_no_more_than_its_own_time),
	    cmocka_unit_test(a_hello_may_take_its_time_in_a_flood),
	    cmocka_unit_test(strangers_that_come_during_the_handshake_do_not_disturb_it),
	    cmocka_unit_test(the_handshake_works_over_ipv6),
	    cmocka_unit_test(a_links_own_address_is_dialled_over_our_own_interface),
	    cmocka_unit_test(a_peer_that_is_too_new_is_told_so),
	    cmocka_unit_test(a_newer_peer_that_knows_us_is_served_with_one_warning),
	    cmocka_unit_test(a_rejected_connect_says_why),
	    cmocka_unit_test(a_listener_that_knows_no_secret_is_tried_again),
	    cmocka_unit_test(a_foreign_handle_is_refused),
	    cmocka_unit_test(devices_that_do_not_exist_are_refused),
	    cmocka_unit_test(abandoned_handshakes_are_freed_with_the_instance),
	    cmocka_unit_test(a_control_message_that_is_nonsense_ends_the_connection),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
