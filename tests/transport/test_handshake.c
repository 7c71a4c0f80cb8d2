/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Experiment A: the handle has room in NCCL's, set-up never waits, and a path in reserve is made in
 * the background.
 *
 * Both ends, and whoever says nothing, live in one thread: a call of connect or accept that waited
 * for another party would wait for ever. How long each really took is looked at as well.
 */
#include "harness.h"

#include "base/clock.h"
#include "nccl_ha/nccl_net.h"
#include "peer.h"
#include "transport/wire.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

/* Of a call, on a machine that may have something else to do; one that waits for a peer waits for
 * tens of seconds. */
#define CALL_NS HA_NS_PER_S
#define CALLS	2000
#define FLOW	32 /* messages under way */
#define ROUNDS	4000
#define BYTES	((size_t)20000)

_Static_assert(HA_HANDLE_BYTES <= NCCL_NET_HANDLE_MAXSIZE, "the handle has room in NCCL's");

static uint64_t real_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * HA_NS_PER_S + (uint64_t)now.tv_nsec;
}

static void begin(struct pair *pair)
{
	pair_init(pair);
	pair->config.enable_backup = true;
	pair->fabric.rails = 2;
}

static void try_connect(struct pair *pair)
{
	uint64_t since_ns = real_ns();

	assert_int_equal(
	    ha_connect(pair->inst[0], 0, HA_TRAFFIC_CLASS_UNDEF, pair->handle, &pair->send), HA_OK);
	assert_in_range(real_ns() - since_ns, 0, CALL_NS);
}

static void try_accept(struct pair *pair)
{
	uint64_t since_ns = real_ns();

	assert_int_equal(ha_accept(pair->listen, &pair->recv), HA_OK);
	assert_in_range(real_ns() - since_ns, 0, CALL_NS);
}

/* ---- the handle ------------------------------------------------------------------------------ */

static void the_handle_stays_in_its_128_bytes(void **state)
{
	uint8_t bytes[NCCL_NET_HANDLE_MAXSIZE + 64], canary[64];
	struct pair pair;

	(void)state;
	begin(&pair);
	pair_open(&pair);
	memset(bytes, CANARY, sizeof(bytes));
	memset(canary, CANARY, sizeof(canary));
	assert_int_equal(ha_listen(pair.inst[1], 0, bytes, &pair.listen), HA_OK);
	assert_memory_equal(bytes + NCCL_NET_HANDLE_MAXSIZE, canary, sizeof(canary));
	/* NCCL connects with a copy, in which connect keeps what it needs. */
	for (int i = 0; i < CALLS && !(pair.send && pair.recv); i++) {
		if (!pair.send)
			assert_int_equal(
			    ha_connect(pair.inst[0], 0, HA_TRAFFIC_CLASS_UNDEF, bytes, &pair.send),
			    HA_OK);
		assert_memory_equal(bytes + NCCL_NET_HANDLE_MAXSIZE, canary, sizeof(canary));
		if (!pair.recv)
			try_accept(&pair);
	}
	assert_non_null(pair.send);
	assert_non_null(pair.recv);
	pair_close(&pair);
}

/* ---- nobody waits --------------------------------------------------------------------------- */

/* A listener that takes connections and never says a word. */
static void connect_does_not_wait_for_a_silent_listener(void **state)
{
	struct pair pair;
	int listener, fd = -1;

	(void)state;
	begin(&pair);
	pair_open(&pair);
	listener = peer_listen(pair.handle, 0x1234);
	for (int i = 0; i < CALLS; i++) {
		try_connect(&pair);
		assert_null(pair.send);
		if (fd < 0)
			fd = peer_accept(listener);
	}
	assert_true(fd >= 0); /* it did dial */
	close(fd);
	close(listener);
	pair_close(&pair);
}

static void accept_does_not_wait(struct pair *pair, int calls)
{
	for (int i = 0; i < calls; i++) {
		try_accept(pair);
		assert_null(pair->recv);
	}
}

/* Nobody; somebody silent; somebody who says who he is and then nothing. */
static void accept_does_not_wait_for_a_silent_peer(void **state)
{
	struct ha_handle handle;
	struct ha_hello hello;
	struct pair pair;
	int fd;

	(void)state;
	begin(&pair);
	pair_open(&pair);
	assert_int_equal(ha_listen(pair.inst[1], 0, pair.handle, &pair.listen), HA_OK);
	accept_does_not_wait(&pair, CALLS);
	fd = peer_dial(pair.handle);
	accept_does_not_wait(&pair, CALLS);
	assert_int_equal(ha_handle_decode(pair.handle, &handle), HA_WIRE_OK);
	hello = peer_hello(handle.secrets.ask);
	peer_say_hello(fd, &hello);
	accept_does_not_wait(&pair, CALLS);
	close(fd);
	pair_close(&pair);
}

/* The other end calls once in a hundred: the calls between have nothing to do, and say so at once.
 */
static void neither_waits_for_an_end_that_is_slow(void **state)
{
	(void)state;
	for (int slow = 0; slow < 2; slow++) {
		struct pair pair;
		int calls = 0;

		begin(&pair);
		pair_open(&pair);
		assert_int_equal(ha_listen(pair.inst[1], 0, pair.handle, &pair.listen), HA_OK);
		for (int i = 0; i < 100 * CALLS && !(pair.send && pair.recv); i++) {
			if (!pair.send && (slow != 0 || i % 100 == 0))
				try_connect(&pair);
			if (!pair.recv && (slow != 1 || i % 100 == 0))
				try_accept(&pair);
			calls++;
		}
		assert_non_null(pair.send);
		assert_non_null(pair.recv);
		assert_true(calls > 100); /* there were calls that had to come again */
		pair_close(&pair);
	}
}

/* ---- the path in reserve -------------------------------------------------------------------- */

struct flow {
	struct pair *pair;
	struct ha_request *recv[FLOW], *send[FLOW];
	unsigned asked, sent, received, released;
};

static size_t offset_of(unsigned n)
{
	return n % FLOW * (BYTES + 64);
}

static void take(struct flow *f)
{
	unsigned n = f->received;
	bool done;
	int size;

	if (n == f->asked)
		return;
	assert_int_equal(ha_test(f->recv[n % FLOW], &done, &size), HA_OK);
	if (!done)
		return;
	assert_int_equal(size, BYTES);
	assert_true(filled(f->pair->to.bytes + offset_of(n), BYTES, n));
	f->received++;
}

static void release(struct flow *f)
{
	bool done;

	if (f->released == f->sent)
		return;
	assert_int_equal(ha_test(f->send[f->released % FLOW], &done, NULL), HA_OK);
	f->released += done;
}

/* A round of both applications: always as much under way as there may be, up to `limit`. */
static void flow(struct flow *f, unsigned limit)
{
	const size_t at = offset_of(f->asked), size = BYTES;
	const int tag = 1;

	if (f->asked < limit && f->asked - f->received < FLOW) {
		memset(f->pair->to.bytes + at, 0, BYTES);
		f->recv[f->asked % FLOW] = post_recv(f->pair, 1, &at, &size, &tag);
		f->asked += f->recv[f->asked % FLOW] != NULL;
	}
	if (f->sent < limit && f->sent - f->released < FLOW) {
		fill(f->pair->from.bytes + offset_of(f->sent), BYTES, f->sent);
		f->send[f->sent % FLOW] = try_send(f->pair, offset_of(f->sent), BYTES, tag);
		f->sent += f->send[f->sent % FLOW] != NULL;
	}
	take(f);
	release(f);
	pair_step(f->pair);
}

/* How many messages come through in so many rounds. */
static unsigned flow_for(struct flow *f, int rounds)
{
	unsigned before = f->received;

	while (rounds-- > 0) {
		flow(f, UINT32_MAX);
		assert_true(f->asked - f->released > 0); /* never idle */
	}
	return f->received - before;
}

static void the_standby_comes_up_behind_traffic(void **state)
{
	struct pair pair;
	struct flow f = {.pair = &pair};
	unsigned before, limit;
	int rounds = 0;

	(void)state;
	begin(&pair);
	pair_up(&pair);
	/* The connection is NCCL's, and there is no standby yet ... */
	assert_false(pair_has_standby(&pair));
	while (f.received == 0 && ++rounds < 100000)
		flow(&f, UINT32_MAX);
	/* ... and neither when the first message is through. */
	assert_int_equal(f.received, 1);
	assert_false(pair_has_standby(&pair));
	before = flow_for(&f, ROUNDS);
	assert_true(pair_has_standby(&pair));
	/* Traffic went on meanwhile, as fast as it goes on without. */
	assert_true(before * 10 >= flow_for(&f, ROUNDS) * 9);
	assert_true(before >= FLOW);
	limit = f.asked > f.sent ? f.asked : f.sent;
	while ((f.received < limit || f.released < limit) && ++rounds < 2000000)
		flow(&f, limit);
	assert_int_equal(f.received, limit);
	assert_int_equal(f.released, limit);
	assert_int_equal(pair.send->count.failovers, 0);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_handle_stays_in_its_128_bytes),
	    cmocka_unit_test(connect_does_not_wait_for_a_silent_listener),
	    cmocka_unit_test(accept_does_not_wait_for_a_silent_peer),
	    cmocka_unit_test(neither_waits_for_an_end_that_is_slow),
	    cmocka_unit_test(the_standby_comes_up_behind_traffic),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
