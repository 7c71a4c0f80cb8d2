/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job with a key: both ends prove that they have it, a peer without it or with another one is
 * refused with a reason and once, and nothing is believed that was recorded, altered, cut, turned
 * around or said in another order, on the socket or over a path.
 */
#include "../made_key.h"
#include "harness.h"
#include "instance/instance.h"
#include "peer.h"

#include "base/clock.h"
#include "failover/engine.h"
#include "failover/fsm.h"
#include "failover/signaling.h"
#include "liveness/packet.h"
#include "liveness/session.h"
#include "liveness/session_recv.h"
#include "transport/ctrl_sock.h"
#include "transport/handshake.h"
#include "transport/recv.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- set-up -------------------------------------------------------------------------------- */

static char key_files[2][MADE_KEY_PATH]; /* of the sender, of the receiver; empty: it has none */

/* 0: none. */
static void make_key(int end, uint8_t number)
{
	key_files[end][0] = '\0';
	if (number != 0)
		make_key_file(number, key_files[end]);
}

static int remove_keys(void **state)
{
	(void)state;
	for (int end = 0; end < 2; end++)
		if (key_files[end][0])
			unlink(key_files[end]);
	return 0;
}

/* Each instance with a key of its own. */
static void open_with(struct pair *pair, uint8_t sender, uint8_t receiver)
{
	pair_init(pair);
	pair->config.enable_backup = true;
	pair->fabric.rails = 2;
	make_key(0, sender);
	make_key(1, receiver);
	if (sv_stepped_open_contexts() != 0)
		sv_stepped_destroy(); /* what a test that failed half way left */
	assert_int_equal(sv_stepped_open(&pair->fabric), 0);
	ha_clock_set_source(sv_stepped_now);
	for (uint32_t host = 0; host < 2; host++) {
		struct ha_instance_options options = {.config = &pair->config, .no_threads = true};

		snprintf(pair->config.job_key_file, sizeof(pair->config.job_key_file), "%s",
			 key_files[host]);
		sv_stepped_set_host(host);
		if (ha_instance_open(&options, &pair->inst[host]) != HA_OK)
			fail_msg("%s", pair->log);
	}
}

static void open_connected(struct pair *pair)
{
	open_with(pair, 7, 7);
	pair_connect(pair);
	pair_wait_standby(pair);
	assert_true(pair->send->auth.on);
	assert_true(pair->recv->auth.on);
}

static uint64_t refused(const struct pair *pair, int end, enum ha_refused what)
{
	return atomic_load(&pair->inst[end]->refused[what]);
}

static void assert_nothing_refused(const struct pair *pair)
{
	for (int end = 0; end < 2; end++)
		for (int what = 0; what < HA_REFUSED_KINDS; what++)
			assert_int_equal(refused(pair, end, (enum ha_refused)what), 0);
}

/* ---- the handshake ------------------------------------------------------------------------- */

static void two_ends_with_the_key_live_as_without(void **state)
{
	struct pair pair;

	(void)state;
	open_connected(&pair);
	transfer(&pair, 5000, 1);
	assert_int_equal(shutdown(pair.send->ctrl_sock->frames.fd, SHUT_RDWR), 0);
	pair_idle(&pair, 50);
	assert_int_equal(pair.send->failover->reconnected, 1);
	assert_int_equal(pair.recv->failover->reconnected, 1);
	transfer(&pair, 5000, 2);
	sv_stepped_link(0, 0, false);
	transfer(&pair, 5000, 3);
	assert_int_equal(pair.recv->count.failovers, 1);
	pair_idle(&pair, 100);
	assert_int_equal(ha_comm_error(pair.send), HA_OK);
	assert_int_equal(ha_comm_error(pair.recv), HA_OK);
	assert_nothing_refused(&pair);
	pair_close(&pair);
}

static const struct {
	uint8_t sender, receiver;
	const char *at_listener, *at_connector;
} unequal[] = {
    {7, 8, "its job key is another", "it refuses our job key"},
    {7, 0, "it has a job key, and this process has none", "it refuses our job key"},
    {0, 7, "it has no job key", "it refuses our job key"},
};

/* Of its host there is one line, and it comes by once a second: whoever hears can say such a
 * refusal. */
static void a_peer_without_our_key_is_refused_and_its_host_named_once(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(unequal) / sizeof(unequal[0]); i++) {
		struct ha_comm *send = NULL, *recv = NULL;
		ha_result_t result = HA_OK;
		struct pair pair;
		char text[100];
		uint64_t began_ns;

		open_with(&pair, unequal[i].sender, unequal[i].receiver);
		began_ns = sv_stepped_now();
		assert_int_equal(ha_listen(pair.inst[1], 0, pair.handle, &pair.listen), HA_OK);
		for (int n = 0; n < 1000 && result == HA_OK; n++) {
			sv_stepped_run(sv_stepped_now() + 25 * HA_NS_PER_MS);
			result =
			    ha_connect(pair.inst[0], 0, HA_TRAFFIC_CLASS_UNDEF, pair.handle, &send);
			assert_int_equal(ha_accept(pair.listen, &recv), HA_OK);
			assert_null(send);
			assert_null(recv);
		}
		assert_int_equal(result, HA_ERR_REMOTE);
		assert_in_range(sv_stepped_now() - began_ns, 20 * HA_NS_PER_S, 22 * HA_NS_PER_S);
		assert_logged(unequal[i].at_listener);
		assert_logged(unequal[i].at_connector);
		assert_logged("a connection from 127.0.0.1:");
		snprintf(text, sizeof(text), "ours: %s%s)",
			 unequal[i].sender ? "HA_NCCL_JOB_KEY_FILE=" : "none", key_files[0]);
		assert_logged(text);
		/* At the listener one; at the connector the first time, after 10 s, and the last.
		 */
		assert_int_equal(captured_warnings, 4);
		assert_logged("given up after 2");
		assert_in_range(refused(&pair, 1, HA_refused_handshakes), 15, 22);
		pair_close(&pair);
		remove_keys(NULL);
	}
}

/* What an end with the key says, in bytes, as somebody who listens has it. */
struct recorded {
	uint8_t hello[HA_HELLO_BYTES];
	struct ha_frame_sock sock;
	size_t length; /* of READY, in sock.out */
};

static void say_hello(struct pair *pair, int fd, struct recorded *r)
{
	struct ha_handle handle;
	struct ha_hello hello;

	assert_int_equal(ha_handle_decode(pair->handle, &handle), HA_WIRE_OK);
	hello = peer_hello(handle.secrets.ask);
	hello.features = HA_FEATURE_AUTH;
	hello.endpoint.ring_length = 1u << 20;
	ha_auth_draw_nonce(hello.nonce);
	ha_hello_encode(&hello, r->hello);
	assert_true(ha_auth_seal_hello(pair->inst[0]->job_key, NULL, r->hello));
	peer_say_frame(fd, HA_FRAME_HELLO, r->hello, sizeof(r->hello));
}

static void hear_hello(struct pair *pair, int fd, uint8_t answer[HA_HELLO_BYTES])
{
	uint8_t buf[HA_FRAME_HEADER + HA_HELLO_BYTES];
	struct ha_comm *comm;
	bool closed;

	for (int i = 0; i < 5; i++) {
		assert_int_equal(ha_accept(pair->listen, &comm), HA_OK);
		assert_null(comm);
	}
	assert_int_equal(peer_hear(fd, buf, sizeof(buf), &closed), sizeof(buf));
	memcpy(answer, buf + HA_FRAME_HEADER, HA_HELLO_BYTES);
}

static void make_ready(struct pair *pair, const uint8_t answer[HA_HELLO_BYTES], struct recorded *r)
{
	struct ha_hello connector, listener;
	struct ha_hmac_key key;
	struct ha_auth auth;

	assert_true(ha_auth_hello_is_genuine(pair->inst[0]->job_key, r->hello, answer));
	assert_int_equal(ha_hello_decode(r->hello, HA_HELLO_BYTES, &connector), HA_WIRE_OK);
	assert_int_equal(ha_hello_decode(answer, HA_HELLO_BYTES, &listener), HA_WIRE_OK);
	assert_true(ha_auth_begin(&auth, pair->inst[0]->job_key, &connector, &listener));
	ha_auth_socket_key(&auth, NULL, NULL, &key);
	memset(&r->sock, 0, sizeof(r->sock));
	ha_frame_sock_authenticate(&r->sock, &key, HA_SPEAKER_SENDER);
	assert_true(ha_frame_sock_queue(&r->sock, HA_FRAME_READY, NULL, 0));
	r->length = r->sock.out_len;
}

static struct ha_comm *accept_next(struct pair *pair)
{
	struct ha_comm *comm = NULL;

	for (int i = 0; i < 10 && !comm; i++)
		assert_int_equal(ha_accept(pair->listen, &comm), HA_OK);
	return comm;
}

/* All that a connector said, once more: the listener's random number is another one. */
static void a_handshake_that_is_replayed_altered_or_cut_is_refused(void **state)
{
	uint8_t answer[HA_HELLO_BYTES], other[HA_HELLO_BYTES];
	struct recorded r;
	struct ha_comm *comm;
	struct pair pair;
	uint64_t before;
	int fd, again;

	(void)state;
	open_with(&pair, 7, 7);
	assert_int_equal(ha_listen(pair.inst[1], 0, pair.handle, &pair.listen), HA_OK);
	fd = peer_dial(pair.handle);
	say_hello(&pair, fd, &r);
	hear_hello(&pair, fd, answer);
	make_ready(&pair, answer, &r);
	peer_say(fd, r.sock.out, r.length);
	comm = accept_next(&pair);
	assert_non_null(comm); /* who has the key is let in */
	ha_close_recv(comm);
	again = peer_dial(pair.handle);
	peer_say_frame(again, HA_FRAME_HELLO, r.hello, sizeof(r.hello));
	hear_hello(&pair, again, other);
	assert_memory_not_equal(other, answer, sizeof(other));
	peer_say(again, r.sock.out, r.length);
	assert_null(accept_next(&pair));
	assert_int_equal(refused(&pair, 1, HA_refused_handshakes), 1);
	close(again);
	for (size_t bit = 64; bit < 8 * HA_HELLO_BYTES; bit += 97) {
		uint8_t altered[HA_HELLO_BYTES];

		before = refused(&pair, 1, HA_refused_handshakes);
		memcpy(altered, r.hello, sizeof(altered));
		altered[bit / 8] ^= (uint8_t)(1u << bit % 8);
		again = peer_dial(pair.handle);
		peer_say_frame(again, HA_FRAME_HELLO, altered, sizeof(altered));
		assert_null(accept_next(&pair));
		assert_int_equal(refused(&pair, 1, HA_refused_handshakes), before + 1);
		close(again);
	}
	again = peer_dial(pair.handle);
	peer_say_frame(again, HA_FRAME_HELLO, r.hello, HA_HELLO_BYTES - 1); /* cut */
	before = refused(&pair, 1, HA_refused_handshakes);
	assert_null(accept_next(&pair));
	assert_int_equal(refused(&pair, 1, HA_refused_handshakes), before + 1);
	close(again);
	close(fd);
	pair_close(&pair);
}

/* A handle with the listener's secrets, and the address of somebody else. */
static int take_address(const struct pair *pair, uint8_t handle[HA_HANDLE_BYTES])
{
	struct ha_handle real, taken;
	int listener = peer_listen(handle, 1);

	assert_int_equal(ha_handle_decode(pair->handle, &real), HA_WIRE_OK);
	assert_int_equal(ha_handle_decode(handle, &taken), HA_WIRE_OK);
	real.addr = taken.addr;
	ha_handle_encode(&real, handle);
	return listener;
}

/* Until it has dialled, for 2 s. */
static int dialled(struct pair *pair, int listener, uint8_t *handle)
{
	struct ha_comm *comm;
	int fd = -1;

	for (int i = 0; i < 100 && fd < 0; i++) {
		sv_stepped_run(sv_stepped_now() + 20 * HA_NS_PER_MS);
		assert_int_equal(
		    ha_connect(pair->inst[0], 0, HA_TRAFFIC_CLASS_UNDEF, handle, &comm), HA_OK);
		fd = peer_accept(listener);
	}
	assert_true(fd >= 0);
	return fd;
}

static ha_result_t answered(struct pair *pair, uint8_t *handle)
{
	struct ha_comm *comm = NULL;
	ha_result_t result = HA_OK;

	for (int i = 0; i < 10 && result == HA_OK; i++)
		result = ha_connect(pair->inst[0], 0, HA_TRAFFIC_CLASS_UNDEF, handle, &comm);
	assert_null(comm);
	return result;
}

/* What comes of a connect that is answered so, within some rounds. */
static ha_result_t answered_with(struct pair *pair, int listener, uint8_t *handle,
				 const uint8_t *hello, uint32_t length)
{
	int fd = dialled(pair, listener, handle);
	ha_result_t result;

	peer_say_frame(fd, HA_FRAME_HELLO, hello, length);
	result = answered(pair, handle);
	close(fd);
	return result;
}

/* The HELLO with which it dialled. */
static void hear_asked(struct pair *pair, int fd, uint8_t *handle, uint8_t asked[HA_HELLO_BYTES])
{
	uint8_t buf[HA_FRAME_HEADER + HA_HELLO_BYTES];
	bool closed;

	assert_int_equal(answered(pair, handle), HA_OK);
	assert_int_equal(peer_hear(fd, buf, sizeof(buf), &closed), sizeof(buf));
	memcpy(asked, buf + HA_FRAME_HEADER, HA_HELLO_BYTES);
}

/* A connect of two who have the job's key is heard by who has taken the listener's address. */
struct heard {
	struct pair pair;
	struct ha_handle real;
	uint8_t handle[HA_HANDLE_BYTES];
	int listener, fd;
};

static void hear_in_its_place(struct heard *h, uint8_t asked[HA_HELLO_BYTES])
{
	open_with(&h->pair, 7, 7);
	assert_int_equal(ha_listen(h->pair.inst[1], 0, h->pair.handle, &h->pair.listen), HA_OK);
	assert_int_equal(ha_handle_decode(h->pair.handle, &h->real), HA_WIRE_OK);
	h->listener = take_address(&h->pair, h->handle);
	h->fd = dialled(&h->pair, h->listener, h->handle);
	hear_asked(&h->pair, h->fd, h->handle, asked);
}

/* At the listener's address, with its secret, of every reason: bare, by another HELLO's code,
 * altered. */
static void who_hears_the_secrets_ends_no_connect_by_a_refusal(void **state)
{
	uint8_t asked[2][HA_HELLO_BYTES], payload[HA_REJECT_BYTES];
	uint64_t count = 0;
	struct heard h;

	(void)state;
	hear_in_its_place(&h, asked[0]);
	for (unsigned n = 0; n < 3 * HA_REJECT_KEY; n++) {
		struct ha_reject reject = {.secret = h.real.secrets.answer,
					   .reason = (uint16_t)(1 + n / 3),
					   .version = 9,
					   .min_version = 8};

		ha_reject_encode(&reject, payload);
		if (n > 0) {
			h.fd = dialled(&h.pair, h.listener, h.handle);
			hear_asked(&h.pair, h.fd, h.handle, asked[1]);
		}
		if (n % 3 == 1)
			assert_true(
			    ha_auth_seal_reject(h.pair.inst[1]->job_key, asked[0], payload));
		if (n % 3 == 2) {
			assert_true(
			    ha_auth_seal_reject(h.pair.inst[1]->job_key, asked[1], payload));
			payload[20] ^= 1;
		}
		peer_say_frame(h.fd, HA_FRAME_REJECT, payload, sizeof(payload));
		assert_int_equal(answered(&h.pair, h.handle), HA_OK);
		assert_int_equal(refused(&h.pair, 0, HA_refused_handshakes), ++count);
		close(h.fd);
	}
	assert_int_equal(captured_warnings, 1);
	assert_logged("it refuses our job key, or a stranger answers in its place: trying again");
	close(h.listener);
	pair_close(&h.pair);
}

/* Who has the key is believed, and at once. */
static void a_refusal_that_is_the_listeners_ends_a_connect(void **state)
{
	uint8_t asked[HA_HELLO_BYTES], payload[HA_REJECT_BYTES];
	struct ha_reject reject = {.reason = HA_REJECT_VERSION, .version = 9, .min_version = 8};
	struct heard h;

	(void)state;
	hear_in_its_place(&h, asked);
	reject.secret = h.real.secrets.answer;
	ha_reject_encode(&reject, payload);
	assert_true(ha_auth_seal_reject(h.pair.inst[1]->job_key, asked, payload));
	peer_say_frame(h.fd, HA_FRAME_REJECT, payload, sizeof(payload));
	assert_int_equal(answered(&h.pair, h.handle), HA_ERR_REMOTE);
	assert_logged("protocol versions 8 to 9");
	close(h.fd);
	close(h.listener);
	pair_close(&h.pair);
}

/* What our listener says to a HELLO of another version has its code. */
static void a_listener_proves_its_refusal(void **state)
{
	uint8_t hello_bytes[HA_HELLO_BYTES], buf[512];
	struct ha_hello hello;
	struct ha_handle handle;
	struct pair pair;
	bool closed;
	int fd;

	(void)state;
	open_with(&pair, 7, 7);
	assert_int_equal(ha_listen(pair.inst[1], 0, pair.handle, &pair.listen), HA_OK);
	assert_int_equal(ha_handle_decode(pair.handle, &handle), HA_WIRE_OK);
	hello = peer_hello(handle.secrets.ask);
	hello.version = hello.min_version = HA_WIRE_VERSION + 1;
	hello.features = HA_FEATURE_AUTH;
	ha_hello_encode(&hello, hello_bytes);
	assert_true(ha_auth_seal_hello(pair.inst[0]->job_key, NULL, hello_bytes));
	fd = peer_dial(pair.handle);
	peer_say_frame(fd, HA_FRAME_HELLO, hello_bytes, sizeof(hello_bytes));
	assert_null(accept_next(&pair));
	assert_int_equal(peer_hear(fd, buf, sizeof(buf), &closed),
			 HA_FRAME_HEADER + HA_REJECT_BYTES);
	assert_true(
	    ha_auth_reject_is_genuine(pair.inst[0]->job_key, hello_bytes, buf + HA_FRAME_HEADER));
	close(fd);
	pair_close(&pair);
}

/* What the listener said to another HELLO, at its address: as it was, altered, and cut. */
static void a_listeners_hello_that_is_replayed_altered_or_cut_is_refused_and_counted(void **state)
{
	(void)state;
	for (unsigned kind = 0; kind < 4; kind++) {
		uint8_t answer[HA_HELLO_BYTES], handle[HA_HANDLE_BYTES];
		bool is_cut = kind == 3;
		struct recorded r;
		struct pair pair;
		int fd, listener;

		open_with(&pair, 7, 7);
		assert_int_equal(ha_listen(pair.inst[1], 0, pair.handle, &pair.listen), HA_OK);
		fd = peer_dial(pair.handle);
		say_hello(&pair, fd, &r);
		hear_hello(&pair, fd, answer);
		listener = take_address(&pair, handle);
		if (kind == 1)
			answer[100] ^= 1;
		if (kind == 2)
			answer[HA_HELLO_BYTES - 1] ^= 1;
		assert_int_equal(answered_with(&pair, listener, handle, answer,
					       HA_HELLO_BYTES - (is_cut ? 1 : 0)),
				 HA_OK); /* it is tried again */
		assert_int_equal(refused(&pair, 0, HA_refused_handshakes), 1);
		close(listener);
		close(fd);
		pair_close(&pair);
		remove_keys(NULL);
	}
}

/* ---- frames on the socket ------------------------------------------------------------------ */

/* Two frames as the sender would say them next. */
struct frames {
	uint8_t bytes[2][256];
	size_t length[2];
};

static struct frames next_frames(const struct ha_comm *comm, enum ha_frame_type type,
				 uint32_t length)
{
	struct ha_frame_sock sock = comm->ctrl_sock->frames;
	uint8_t payload[2][HA_MESSAGE_MAX_BYTES];
	struct frames frames = {0};

	for (unsigned i = 0; i < 2; i++) {
		struct ha_message m = {.kind = HA_MSG_PING,
				       .epoch = comm->failover->epoch,
				       .serial = 1000 + i,
				       .window.base = 1};

		(void)ha_message_encode(&m, payload[i]);
		sock.out_len = 0;
		assert_true(ha_frame_sock_queue(&sock, type, payload[i], length));
		memcpy(frames.bytes[i], sock.out, sock.out_len);
		frames.length[i] = sock.out_len;
	}
	return frames;
}

static void say_twice(int fd, struct frames *f)
{
	peer_say(fd, f->bytes[0], f->length[0]);
	peer_say(fd, f->bytes[0], f->length[0]);
}

static void say_altered(int fd, struct frames *f)
{
	f->bytes[0][HA_FRAME_HEADER + 3] ^= 1;
	peer_say(fd, f->bytes[0], f->length[0]);
}

static void say_as_another_type(int fd, struct frames *f)
{
	f->bytes[0][4] ^= 1;
	peer_say(fd, f->bytes[0], f->length[0]);
}

/* With a length that fits what is left. */
static void say_cut(int fd, struct frames *f)
{
	f->bytes[0][8]--;
	peer_say(fd, f->bytes[0], f->length[0] - 1);
}

static void say_without_a_code(int fd, struct frames *f)
{
	f->bytes[0][8] -= HA_CODE_BYTES;
	peer_say(fd, f->bytes[0], f->length[0] - HA_CODE_BYTES);
}

static void say_in_another_order(int fd, struct frames *f)
{
	peer_say(fd, f->bytes[1], f->length[1]);
	peer_say(fd, f->bytes[0], f->length[0]);
}

static void (*const tampered[])(int fd, struct frames *f) = {
    say_twice, say_altered, say_as_another_type, say_cut, say_without_a_code, say_in_another_order,
};

/* Both have a socket, and it is another one. */
static bool is_whole(const struct pair *pair, uint32_t before)
{
	return pair->recv->failover->reconnected > before && !pair->send->failover->socket_broken &&
	       !pair->recv->failover->socket_broken;
}

/* To either end, of every kind of frame: the socket is given up, and dialled again. */
static void a_frame_that_is_not_the_peers_is_refused_and_counted(void **state)
{
	static const struct {
		enum ha_frame_type type;
		uint32_t length;
	} kinds[] = {{HA_FRAME_CONTROL, HA_MESSAGE_BYTES},
		     {HA_FRAME_PORTS, 80},
		     {HA_FRAME_BYE, HA_BYE_BYTES},
		     {HA_FRAME_ABORT, HA_ABORT_BYTES},
		     {HA_FRAME_READY, 0}};
	struct pair pair;
	uint32_t times;

	(void)state;
	open_connected(&pair);
	for (unsigned k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++)
		for (unsigned i = 0; i < sizeof(tampered) / sizeof(tampered[0]); i++) {
			int to = (int)((k + i) % 2);
			struct ha_comm *from = to ? pair.send : pair.recv;
			uint64_t before = refused(&pair, to, HA_refused_messages);
			struct frames frames = next_frames(from, kinds[k].type, kinds[k].length);

			/* Genuine ones of these would be believed once. */
			if ((tampered[i] == say_twice && kinds[k].type != HA_FRAME_CONTROL) ||
			    (tampered[i] == say_altered && kinds[k].length == 0))
				continue;
			times = pair.recv->failover->reconnected;
			tampered[i](from->ctrl_sock->frames.fd, &frames);
			for (int ms = 0;
			     ms < 2500 && (refused(&pair, to, HA_refused_messages) == before ||
					   !is_whole(&pair, times));
			     ms++)
				pair_idle(&pair, 1);
			pair_idle(&pair,
				  10500); /* it lasts: the next one that breaks is another matter */
			assert_true(refused(&pair, to, HA_refused_messages) > before);
			assert_true(is_whole(&pair, times));
			assert_int_equal(ha_comm_error(pair.send), HA_OK);
			assert_int_equal(ha_comm_error(pair.recv), HA_OK);
		}
	transfer(&pair, 3000, 1);
	pair_close(&pair);
}

/* What an end has said comes back to it, when so many frames have come that its number fits. */
static void an_end_does_not_believe_its_own_words(void **state)
{
	uint8_t payload[HA_MESSAGE_MAX_BYTES];
	struct ha_frame_sock sock;
	struct ha_message m = {.kind = HA_MSG_ABORT, .serial = 1000, .window.base = 1};
	struct pair pair;

	(void)state;
	open_connected(&pair);
	m.epoch = pair.recv->failover->epoch;
	(void)ha_message_encode(&m, payload);
	sock = pair.recv->ctrl_sock->frames;
	sock.auth.said = sock.auth.heard;
	sock.out_len = 0;
	assert_true(ha_frame_sock_queue(&sock, HA_FRAME_CONTROL, payload, HA_MESSAGE_BYTES));
	peer_say(pair.send->ctrl_sock->frames.fd, sock.out, sock.out_len);
	pair_idle(&pair, 2);
	assert_int_equal(refused(&pair, 1, HA_refused_messages), 1);
	assert_int_equal(ha_comm_error(pair.recv), HA_OK);
	pair_close(&pair);
}

/* Whoever has the secret of a REJOIN and not the key. */
static void a_rejoin_without_the_key_is_refused(void **state)
{
	struct ha_rejoin rejoin = {0};
	uint8_t payload[HA_REJOIN_BYTES + HA_CODE_BYTES] = {0}, buf[200];
	const union ha_sockaddr *addr;
	struct pair pair;
	bool closed = false;
	int fd;

	(void)state;
	open_connected(&pair);
	addr = &pair.recv->failover->reconnect_at.addr;
	rejoin.secret = pair.recv->failover->reconnect_at.secrets.ask;
	rejoin.connection_id = pair.send->id;
	ha_rejoin_encode(&rejoin, payload);
	for (unsigned code = 0; code < 2; code++) {
		fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		assert_int_equal(connect(fd, &addr->sa, ha_sockaddr_len(addr)), 0);
		peer_say_frame(fd, HA_FRAME_REJOIN, payload,
			       code ? sizeof(payload) : HA_REJOIN_BYTES);
		for (int i = 0; i < 100 && !closed; i++) {
			pair_idle(&pair, 1);
			assert_int_equal(peer_hear(fd, buf, sizeof(buf), &closed), 0);
		}
		assert_true(closed);
		closed = false;
		assert_int_equal(refused(&pair, 1, HA_refused_rejoins), code + 1);
		close(fd);
	}
	assert_int_equal(pair.recv->failover->reconnected, 0);
	pair_close(&pair);
}

/* What a receiver that has closed says is under codes like all that it said before, and whoever has
 * no key hears nothing. */
static void a_goodbye_that_is_said_again_is_said_with_the_key(void **state)
{
	const size_t offset = 0, size = 300000;
	struct ha_rejoin rejoin = {0};
	uint8_t payload[HA_REJOIN_BYTES], buf[200];
	struct ha_request *recv, *send;
	union ha_sockaddr addr;
	bool closed = false;
	const int tag = 1;
	struct pair pair;
	int fd;

	(void)state;
	open_connected(&pair);
	addr = pair.recv->failover->reconnect_at.addr;
	rejoin.secret = pair.recv->failover->reconnect_at.secrets.ask;
	rejoin.connection_id = pair.send->id;
	recv = post_recv(&pair, 1, &offset, &size, &tag);
	send = post_send(&pair, 0, size, tag);
	add_rule("dropack host=1");
	assert_int_equal(pair_finish(&pair, recv, NULL), HA_OK);
	sv_stepped_cut(0, true);
	sv_stepped_cut(1, true);
	assert_int_equal(shutdown(pair.recv->ctrl_sock->frames.fd, SHUT_RDWR), 0);
	ha_dereg_mr(pair.recv, pair.to.mr);
	pair.to.mr = NULL;
	ha_close_recv(pair.recv);
	pair.recv = NULL;
	ha_rejoin_encode(&rejoin, payload);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(fd, &addr.sa, ha_sockaddr_len(&addr)), 0);
	peer_say_frame(fd, HA_FRAME_REJOIN, payload, sizeof(payload));
	for (int i = 0; i < 100 && !closed; i++) {
		ha_instance_progress(pair.inst[1]);
		assert_int_equal(peer_hear(fd, buf, sizeof(buf), &closed), 0);
	}
	assert_true(closed);
	close(fd);
	assert_int_equal(refused(&pair, 1, HA_refused_rejoins), 1);
	assert_int_equal(pair_finish(&pair, send, NULL), HA_OK);
	assert_logged("is told again that its connection");
	assert_int_equal(refused(&pair, 0, HA_refused_messages), 0);
	assert_int_equal(refused(&pair, 1, HA_refused_rejoins), 1);
	pair_close(&pair);
}

/* ---- messages over a path ------------------------------------------------------------------- */

static struct ha_mailbox *box_of(const struct pair *pair, unsigned p)
{
	return &pair->recv->recv_ring->msg_in[p];
}

/* The receiver looks into its box of this path. True: it heard something. */
static bool hears(const struct pair *pair, unsigned p)
{
	uint64_t received = pair->recv->count.control_received;

	ha_token_acquire(pair->recv);
	pair->recv->failover->slots[p].notes.msg = true;
	ha_signaling_read_path_msg(pair->recv);
	ha_token_release(pair->recv);
	return pair->recv->count.control_received != received;
}

static void a_message_over_a_path_that_is_not_the_peers_is_refused_and_counted(void **state)
{
	struct ha_mailbox first, last;
	struct pair pair;
	unsigned p;

	(void)state;
	open_connected(&pair);
	p = pair.recv->active;
	ha_say(pair.send, HA_SAY_PING);
	pair_idle(&pair, 5);
	first = *box_of(&pair, p);
	ha_say(pair.send, HA_SAY_PING);
	pair_idle(&pair, 5);
	last = *box_of(&pair, p);
	assert_memory_not_equal(&first, &last, sizeof(first));
	assert_nothing_refused(&pair);
	assert_false(hears(&pair, p)); /* heard before: it is looked at twice now and then */
	assert_nothing_refused(&pair);
	*box_of(&pair, p) = first; /* said again */
	assert_false(hears(&pair, p));
	assert_int_equal(refused(&pair, 1, HA_refused_messages), 1);
	*box_of(&pair, 3) = last; /* for another path */
	assert_false(hears(&pair, 3));
	assert_int_equal(refused(&pair, 1, HA_refused_messages), 2);
	for (size_t at = 0; at < HA_MAILBOX_SEALED; at += 13) { /* altered */
		*box_of(&pair, p) = last;
		box_of(&pair, p)->bytes[at] ^= 1;
		assert_false(hears(&pair, p));
	}
	*box_of(&pair, p) = last; /* cut: no code */
	memset(box_of(&pair, p)->bytes + HA_MAILBOX_CODE_OFFS, 0, HA_CODE_BYTES);
	assert_false(hears(&pair, p));
	assert_int_equal(refused(&pair, 1, HA_refused_messages), 3 + (HA_MAILBOX_SEALED + 12) / 13);
	transfer(&pair, 3000, 1);
	pair_close(&pair);
}

/* ---- heartbeats ---------------------------------------------------------------------------- */

/* To the receiver's port, as the device hands over what the sender's says. */
struct beats {
	struct ha_live_port *port;
	struct ha_heartbeat ping;
	struct ha_datagram datagram;
	uint8_t packet[HA_HEARTBEAT_SEALED];
};

static struct beats beats_of(const struct pair *pair)
{
	const struct ha_offer *peer = &pair->recv->failover->peer_ports.offers[0];
	struct beats b = {.port = pair->inst[1]->liveness->asked[0],
			  .ping = {.kind = HA_HEARTBEAT_PING, .from = peer->live_id, .seq = 1000},
			  .datagram = {.from_qpn = peer->live_qpn, .has_gid = true}};

	assert_non_null(b.port);
	b.ping.to = b.port->id;
	memcpy(b.datagram.from_gid, peer->gid, sizeof(peer->gid));
	return b;
}

static void beat(struct beats *b, size_t len)
{
	b->datagram.data = b->packet;
	b->datagram.len = len;
	ha_session_received(b->port, &b->datagram);
}

static void sealed_beat(struct pair *pair, struct beats *b, uint64_t seq)
{
	b->ping.seq = seq;
	ha_heartbeat_encode(&b->ping, b->packet);
	assert_true(ha_heartbeat_seal(pair->inst[0]->job_key, b->packet));
	beat(b, sizeof(b->packet));
}

static void a_heartbeat_without_its_code_is_refused_and_counted(void **state)
{
	struct pair pair;
	struct beats b;
	uint64_t answered;

	(void)state;
	open_connected(&pair);
	pair_idle(&pair, 300);
	assert_logged("are answered");
	assert_nothing_refused(&pair);
	b = beats_of(&pair);
	answered = b.port->count.answered;
	ha_heartbeat_encode(&b.ping, b.packet);
	beat(&b, HA_HEARTBEAT_BYTES);
	assert_int_equal(refused(&pair, 1, HA_refused_heartbeats), 1);
	assert_true(ha_heartbeat_seal(pair.inst[0]->job_key, b.packet));
	for (unsigned at = 0; at < sizeof(b.packet); at++) {
		b.packet[at] ^= 1;
		beat(&b, sizeof(b.packet));
		b.packet[at] ^= 1;
		assert_int_equal(refused(&pair, 1, HA_refused_heartbeats), 2 + at);
	}
	beat(&b, sizeof(b.packet) - 1); /* cut */
	assert_int_equal(refused(&pair, 1, HA_refused_heartbeats), 2 + sizeof(b.packet));
	assert_int_equal(b.port->count.answered, answered);
	beat(&b, sizeof(b.packet));
	assert_int_equal(b.port->count.answered, answered + 1);
	pair_close(&pair);
}

/* Recorded by whoever listens there; genuine, and said by the peer once. */
static void a_heartbeat_that_is_said_again_is_not_answered_again(void **state)
{
	static const struct {
		uint64_t seq;
		bool answered;
	} said[] = {{1000, true},  {1000, false}, {1002, true},	 {1001, true}, {1001, false},
		    {1002, false}, {938, true},	  {937, false},	 {938, false}, {1066, true},
		    {1002, false}, {1003, true},  {1003, false}, {2000, true}, {1066, false},
		    {1936, true},  {1999, true},  {1999, false}};
	struct pair pair;
	struct beats b;

	(void)state;
	open_connected(&pair);
	b = beats_of(&pair);
	for (unsigned i = 0; i < sizeof(said) / sizeof(said[0]); i++) {
		uint64_t answered = b.port->count.answered;
		uint64_t before = refused(&pair, 1, HA_refused_heartbeats);

		sealed_beat(&pair, &b, said[i].seq);
		assert_int_equal(b.port->count.answered - answered, said[i].answered);
		assert_int_equal(refused(&pair, 1, HA_refused_heartbeats) - before,
				 !said[i].answered);
	}
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_teardown(two_ends_with_the_key_live_as_without, remove_keys),
	    cmocka_unit_test_teardown(a_peer_without_our_key_is_refused_and_its_host_named_once,
				      remove_keys),
	    cmocka_unit_test_teardown(a_handshake_that_is_replayed_altered_or_cut_is_refused,
				      remove_keys),
	    cmocka_unit_test_teardown(
		a_listeners_hello_that_is_replayed_altered_or_cut_is_refused_and_counted,
		remove_keys),
	    cmocka_unit_test_teardown(who_hears_the_secrets_ends_no_connect_by_a_refusal,
				      remove_keys),
	    cmocka_unit_test_teardown(a_refusal_that_is_the_listeners_ends_a_connect, remove_keys),
	    cmocka_unit_test_teardown(a_listener_proves_its_refusal, remove_keys),
	    cmocka_unit_test_teardown(a_frame_that_is_not_the_peers_is_refused_and_counted,
				      remove_keys),
	    cmocka_unit_test_teardown(an_end_does_not_believe_its_own_words, remove_keys),
	    cmocka_unit_test_teardown(a_rejoin_without_the_key_is_refused, remove_keys),
	    cmocka_unit_test_teardown(a_goodbye_that_is_said_again_is_said_with_the_key,
				      remove_keys),
	    cmocka_unit_test_teardown(
		a_message_over_a_path_that_is_not_the_peers_is_refused_and_counted, remove_keys),
	    cmocka_unit_test_teardown(a_heartbeat_without_its_code_is_refused_and_counted,
				      remove_keys),
	    cmocka_unit_test_teardown(a_heartbeat_that_is_said_again_is_not_answered_again,
				      remove_keys),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
