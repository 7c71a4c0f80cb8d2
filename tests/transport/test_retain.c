/* SPDX-License-Identifier: Apache-2.0 */
/*
 * End-to-end completion of small messages: the send is done when the hardware has acknowledged it,
 * since a copy is kept until the receiver has it. What is sent again is the copy, whatever became
 * of the application's memory.
 */
#include "harness.h"
#include "instance/instance.h"

#include "base/clock.h"
#include "memory/mr.h"
#include "memory/pages.h"
#include "transport/complete.h"
#include "transport/e2e.h"
#include "transport/retain.h"
#include "transport/send.h"

#include <string.h>
#include <unistd.h>

static const int tag = 1;

/* Memory for copies is not to be had. */
static bool no_pages;
void *__real_ha_pages_new(size_t size);
void *__wrap_ha_pages_new(size_t size);
void *__wrap_ha_pages_new(size_t size)
{
	return no_pages && size == HA_RETAIN_BYTES ? NULL : __real_ha_pages_new(size);
}

/* A close that waits gives its turn away: then the fabric and the receiver go on, or nobody does.
 */
static struct pair *closing;
static bool others_go_on;
int __wrap_sched_yield(void);

static void begin(struct pair *pair, int rails)
{
	pair_init(pair);
	pair->config.completion = HA_COMPLETION_E2E;
	pair->config.enable_backup = true;
	pair->fabric.rails = (unsigned)rails;
	pair_up(pair);
	if (rails > 1) {
		transfer(pair, 100, 1);
		pair_wait_standby(pair);
	}
	pair_idle(pair, 300); /* what is said at the beginning has been said */
	assert_int_equal(ha_retained_left(pair->send), 0);
}

static bool is_done(const struct ha_request *req)
{
	return atomic_load(&req->state) == HA_REQ_DONE;
}

static void poll(struct ha_comm *comm)
{
	ha_token_acquire(comm);
	ha_comm_poll(comm, 32);
	ha_token_release(comm);
}

int __wrap_sched_yield(void)
{
	if (!closing || !others_go_on)
		return usleep(10000);
	sv_stepped_run(sv_stepped_now() + HA_NS_PER_US);
	poll(closing->recv);
	if (ha_retained_left(closing->send) == 0)
		closing->inst[0]->threads = false;
	return 0;
}

static struct ha_request *ask_for(struct pair *pair, size_t at, size_t size)
{
	struct ha_request *recv = post_recv(pair, 1, &at, &size, &tag);

	sv_stepped_run_idle(1000);
	return recv;
}

/* It is there and acknowledged, and the receiver has not looked. */
static struct ha_request *send_unseen(struct pair *pair, size_t at, size_t size)
{
	struct ha_request *send = try_send(pair, at, size, tag);

	assert_non_null(send);
	sv_stepped_run_idle(1000);
	poll(pair->send);
	return send;
}

/* ---- when it is done ------------------------------------------------------------------------ */

static void
a_small_send_is_done_when_it_is_acknowledged_and_a_long_one_when_it_is_counted(void **state)
{
	static const size_t sizes[] = {0, 1, 8, 4096, HA_RETAIN_MAX, HA_RETAIN_MAX + 1};
	struct pair pair;

	(void)state;
	begin(&pair, 1);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		const bool is_small = sizes[i] <= HA_RETAIN_MAX;
		struct ha_request *recv, *send;

		fill(pair.from.bytes, sizes[i], 3);
		recv = ask_for(&pair, 0, sizes[i]);
		send = send_unseen(&pair, 0, sizes[i]);
		assert_int_equal(is_done(send), is_small);
		assert_int_equal(ha_retained_left(pair.send), is_small);
		/* Complete it is for the protocol when it is counted, either way. */
		assert_int_equal(pair.send->send->completed.base, i + 1);
		assert_int_equal(pair.send->outstanding, 1);
		assert_int_equal(pair_finish(&pair, send, NULL), HA_OK);
		assert_int_equal(pair_finish(&pair, recv, NULL), HA_OK);
		assert_true(filled(pair.to.bytes, sizes[i], 3));
		pair_pass(&pair, 10);
		assert_int_equal(ha_retained_left(pair.send), 0);
		assert_int_equal(pair.send->send->completed.base, i + 2);
		assert_int_equal(pair.send->outstanding, 0);
	}
	assert_int_equal(pair.send->count.messages, sizeof(sizes) / sizeof(*sizes));
	pair_close(&pair);
	assert_int_equal(captured_warnings, 0);
}

static void of_a_group_no_copy_is_kept(void **state)
{
	static const size_t at[] = {0, 100}, size[] = {100, 100};
	static const int tags[] = {1, 2};
	struct ha_request *recv, *send[2];
	struct pair pair;

	(void)state;
	begin(&pair, 1);
	recv = post_recv(&pair, 2, at, size, tags);
	sv_stepped_run_idle(1000);
	for (int i = 0; i < 2; i++)
		send[i] = try_send(&pair, at[i], size[i], tags[i]);
	sv_stepped_run_idle(1000);
	poll(pair.send);
	assert_false(is_done(send[0]) || is_done(send[1]));
	assert_int_equal(ha_retained_left(pair.send), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(pair_finish(&pair, send[i], NULL), HA_OK);
	assert_int_equal(pair_finish(&pair, recv, (int[2]){0}), HA_OK);
	pair_close(&pair);
}

static void of_a_gpus_memory_no_copy_is_kept(void **state)
{
	struct ha_request *recv, *send;
	struct pair pair;

	(void)state;
	begin(&pair, 1);
	pair.from.mr->host = false; /* the processor could not read it */
	recv = ask_for(&pair, 0, 100);
	send = send_unseen(&pair, 0, 100);
	assert_false(is_done(send));
	assert_int_equal(pair_finish(&pair, send, NULL), HA_OK);
	assert_int_equal(pair_finish(&pair, recv, NULL), HA_OK);
	pair.from.mr->host = true;
	pair_close(&pair);
}

static void where_there_is_no_memory_for_copies_sends_wait_for_their_count(void **state)
{
	struct ha_request *recv, *send;
	struct pair pair;

	(void)state;
	no_pages = true;
	begin(&pair, 1);
	no_pages = false;
	assert_null(pair.send->send->retained);
	assert_logged("no memory for copies of small messages");
	recv = ask_for(&pair, 0, 100);
	send = send_unseen(&pair, 0, 100);
	assert_false(is_done(send));
	assert_int_equal(pair_finish(&pair, send, NULL), HA_OK);
	assert_int_equal(pair_finish(&pair, recv, NULL), HA_OK);
	pair_close(&pair);
}

static void with_rc_nothing_is_kept(void **state)
{
	struct pair pair;

	(void)state;
	pair_init(&pair);
	pair.config.enable_backup = true;
	pair_up(&pair);
	transfer(&pair, 100, 1);
	assert_null(pair.send->send->retained);
	pair_close(&pair);
}

/* ---- room ----------------------------------------------------------------------------------- */

static size_t slot_of(size_t i)
{
	return i * 2 * HA_RETAIN_MAX;
}

/* Neither more bytes nor more messages than there is room for; what comes later waits, and room
 * comes back in order. */
static void what_there_is_no_room_for_waits(void **state)
{
	static const struct {
		size_t size;
		unsigned fit;
	} cases[] = {{8, HA_RETAIN_COUNT},	    {HA_RETAIN_MAX, 2},
		     {HA_RETAIN_MAX - 64, 2},	    {HA_RETAIN_BYTES / 3, 3},
		     {HA_RETAIN_BYTES / 3 + 64, 2}, {1000, HA_RETAIN_COUNT}};
	struct pair pair;

	(void)state;
	begin(&pair, 1);
	for (unsigned round = 0; round < 60; round++) {
		const size_t size = cases[round % 6].size;
		const unsigned fit = cases[round % 6].fit, n = fit + 2;
		struct ha_request *recv[HA_RETAIN_COUNT + 2], *send[HA_RETAIN_COUNT + 2];
		unsigned done = 0;

		for (unsigned i = 0; i < n; i++)
			recv[i] = ask_for(&pair, slot_of(i), size);
		for (unsigned i = 0; i < n; i++) {
			fill(pair.from.bytes + slot_of(i), size, round * 100 + i);
			send[i] = send_unseen(&pair, slot_of(i), size);
			done += is_done(send[i]);
		}
		/* Where the last round ended decides where the turn comes, which can cost a place.
		 */
		assert_in_range(done, fit - (size > 1000), fit);
		assert_int_equal(ha_retained_left(pair.send), done);
		for (unsigned i = 0; i < n; i++) {
			assert_int_equal(pair_finish(&pair, recv[i], NULL), HA_OK);
			assert_int_equal(pair_finish(&pair, send[i], NULL), HA_OK);
			assert_true(filled(pair.to.bytes + slot_of(i), size, round * 100 + i));
		}
		pair_pass(&pair, 10);
		assert_int_equal(ha_retained_left(pair.send), 0);
	}
	pair_close(&pair);
}

/* One call, as the application makes it. */
static bool is_done_now(struct ha_request *req)
{
	bool done;

	assert_int_equal(ha_test(req, &done, NULL), HA_OK);
	return done;
}

/*
 * Nobody tests a send that is done. So while those that follow are counted when they are
 * acknowledged, nothing looks for the count of the one before them, until its place in the window
 * is needed.
 */
static void a_sender_that_only_sends_is_not_held_up_by_what_was_counted(void **state)
{
	struct ha_request *recv, *send, *next;
	unsigned behind = 0;
	struct pair pair;

	(void)state;
	begin(&pair, 1);
	recv = ask_for(&pair, 0, 64);
	for (uint32_t i = 0; i < 5 * HA_WINDOW; i++) {
		const bool unseen = i % 100 == 2;

		fill(pair.from.bytes, 64, i);
		send = try_send(&pair, 0, 64, tag);
		assert_non_null(send);
		sv_stepped_run_idle(1000);
		if (unseen)
			assert_true(is_done_now(send));
		assert_true(is_done_now(recv));
		assert_true(filled(pair.to.bytes, 64, i));
		next = ask_for(&pair, 0, 64);
		if (!unseen)
			assert_true(is_done_now(send));
		if (ha_retained_left(pair.send) != 0)
			behind++;
		recv = next;
	}
	assert_true(behind > 3 * HA_WINDOW);
	pair_close(&pair);
}

static struct ha_request *send_one(struct pair *pair)
{
	struct ha_request *send = try_send(pair, 0, 64, tag);

	assert_non_null(send);
	sv_stepped_run_idle(1000);
	return send;
}

/*
 * One was not counted when it was acknowledged, the next one was, and then a count comes for both
 * and the one after them at once: what was complete before does not end the look.
 */
static void what_is_counted_is_complete_whatever_was_complete_before(void **state)
{
	struct ha_request *recv, *send, *early;
	struct pair pair;

	(void)state;
	begin(&pair, 1);
	recv = ask_for(&pair, 0, 64);
	for (int i = 0; i < 4; i++) {
		send = send_one(&pair);
		if (i == 2) /* before the receiver looks */
			assert_true(is_done_now(send));
		assert_true(is_done_now(recv));
		recv = ask_for(&pair, 0, 64);
		if (i != 2)
			assert_true(is_done_now(send));
	}
	assert_int_equal(ha_retained_left(pair.send), 1);
	early = ask_for(&pair, 0, 64); /* does not count what is sent now; the one after it does */
	send = send_one(&pair);
	assert_true(is_done_now(recv));
	recv = ask_for(&pair, 0, 64);
	assert_true(is_done_now(send));
	assert_int_equal(ha_retained_left(pair.send), 0);
	assert_int_equal(pair.send->outstanding, 0);
	send = send_one(&pair);
	assert_true(is_done_now(early));
	assert_int_equal(pair_finish(&pair, send, NULL), HA_OK);
	(void)recv;
	pair_close(&pair);
}

/* ---- what is sent again --------------------------------------------------------------------- */

/*
 * Sends four messages, of which the receiver's device takes the last ones with it; all sends are
 * done, and their memory is used for something else before anybody notices.
 */
static void lose_some(struct pair *pair, size_t size, bool deregister)
{
	struct ha_request *recv[4], *send;
	int id = add_rule("kill=unplaced host=1 rail=0 dir=rx op=write nth=2");

	memset(pair->to.bytes, CANARY, 4 * slot_of(1));
	for (size_t i = 0; i < 4; i++)
		recv[i] = ask_for(pair, slot_of(i), size);
	for (size_t i = 0; i < 4; i++) {
		fill(pair->from.bytes + slot_of(i), size, (uint32_t)i + 50);
		send = try_send(pair, slot_of(i), size, tag);
		if (!send)
			break;
		for (int step = 0; step < 100 && !is_done(send) && sv_stepped_step(); step++)
			poll(pair->send);
		if (!is_done(send)) { /* the device died before it acknowledged this one */
			fail_msg("message %zu is not acknowledged", i);
		}
		assert_int_equal(pair_finish(pair, send, NULL), HA_OK);
		memset(pair->from.bytes + slot_of(i), 0x11, size);
		if (fired(id))
			break;
	}
	assert_int_equal(fired(id), 1);
	assert_true(ha_retained_left(pair->send) >= 1);
	if (deregister) {
		ha_dereg_mr(pair->send, pair->from.mr);
		pair->from.mr = NULL;
	}
	for (size_t i = 0; i < 2; i++) {
		assert_int_equal(pair_finish(pair, recv[i], NULL), HA_OK);
		assert_true(filled(pair->to.bytes + slot_of(i), size, (uint32_t)i + 50));
	}
	assert_int_equal(pair->recv->count.failovers, 1);
}

static void what_a_nic_took_with_it_is_sent_again_from_the_copy(void **state)
{
	static const size_t sizes[] = {1, 64, 4096};

	(void)state;
	for (int deregister = 0; deregister < 2; deregister++)
		for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
			struct pair pair;

			begin(&pair, 2);
			lose_some(&pair, sizes[i], deregister);
			pair_close(&pair);
		}
}

/* ---- closing -------------------------------------------------------------------------------- */

static void close_unseen(struct pair *pair, bool others)
{
	struct ha_request *recv, *send;

	begin(pair, 1);
	fill(pair->from.bytes, 100, 7);
	recv = ask_for(pair, 0, 100);
	send = send_unseen(pair, 0, 100);
	assert_int_equal(pair_finish(pair, send, NULL), HA_OK);
	assert_int_equal(ha_retained_left(pair->send), 1);
	closing = pair;
	others_go_on = others;
	pair->inst[0]->threads = true; /* time passes while it waits */
	ha_dereg_mr(pair->send, pair->from.mr);
	pair->from.mr = NULL;
	ha_close_send(pair->send);
	pair->send = NULL;
	pair->inst[0]->threads = false;
	closing = NULL;
	assert_int_equal(pair_finish(pair, recv, NULL), HA_OK);
	assert_true(filled(pair->to.bytes, 100, 7));
}

static void a_close_waits_until_the_peer_has_what_was_done(void **state)
{
	struct pair pair;

	(void)state;
	close_unseen(&pair, true);
	assert_logged("1 messages, 100 bytes"); /* it was counted before the end */
	pair_close(&pair);
	assert_int_equal(captured_warnings, 0);
}

static void a_close_does_not_wait_for_ever(void **state)
{
	const uint64_t began_ns = ha_real_ns();
	struct pair pair;

	(void)state;
	close_unseen(&pair, false);
	assert_in_range(ha_real_ns() - began_ns, 2 * HA_NS_PER_S, 20 * HA_NS_PER_S);
	assert_logged("the peer has not said yet that it has the last 1 messages");
	pair_close(&pair);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
	    cmocka_unit_test(
		a_small_send_is_done_when_it_is_acknowledged_and_a_long_one_when_it_is_counted),
	    cmocka_unit_test(of_a_group_no_copy_is_kept),
	    cmocka_unit_test(of_a_gpus_memory_no_copy_is_kept),
	    cmocka_unit_test(where_there_is_no_memory_for_copies_sends_wait_for_their_count),
	    cmocka_unit_test(with_rc_nothing_is_kept),
	    cmocka_unit_test(what_there_is_no_room_for_waits),
	    cmocka_unit_test(a_sender_that_only_sends_is_not_held_up_by_what_was_counted),
	    cmocka_unit_test(what_is_counted_is_complete_whatever_was_complete_before),
	    cmocka_unit_test(what_a_nic_took_with_it_is_sent_again_from_the_copy),
	    cmocka_unit_test(a_close_waits_until_the_peer_has_what_was_done),
	    cmocka_unit_test(a_close_does_not_wait_for_ever),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
