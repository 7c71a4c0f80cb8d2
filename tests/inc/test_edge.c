/* SPDX-License-Identifier: Apache-2.0 */
/* Both ends of one edge on a stepped fabric. */
#include "../unit/cmocka_all.h"

#include "../stepped_rules.h"

#include "base/clock.h"
#include "base/config.h"
#include "device/give_back.h"
#include "inc/verbs/edge.h"
#include "memory/mr.h"
#include "memory/pd.h"
#include "simverbs/simverbs.h"

#include <stdlib.h>
#include <string.h>

#define BYTES  4096
#define DEPTH  4
#define POISON 0xee

struct end {
	struct ha_device_set *set;
	struct ha_incarnation *on;
	struct ha_edge edge;
	uint8_t bytes[BYTES];
	struct ibv_mr *mr;
};

static struct ha_config config;
static struct end a, b;

static char *no_env(const char *name)
{
	(void)name;
	return NULL;
}

static const struct ha_edge_depth depth = {DEPTH, DEPTH};

static void open_end(struct end *end, uint32_t host)
{
	struct ha_port *port;

	sv_stepped_set_host(host);
	assert_int_equal(ha_device_set_open(&config, &end->set), HA_OK);
	port = &end->set->ports[0];
	memset(end->bytes, POISON, BYTES);
	assert_int_equal(ha_nic_pd_get(port->nic, &end->on), HA_OK);
	end->mr = ibv_reg_mr(end->on->pd, end->bytes, BYTES, IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(end->mr);
}

static void open_edge(struct end *end)
{
	assert_int_equal(ha_edge_open(&end->edge, &end->set->ports[0], &depth), HA_OK);
}

static void connect_edges(void)
{
	struct ha_edge_address of_a, of_b;

	ha_edge_address(&a.edge, &of_a);
	ha_edge_address(&b.edge, &of_b);
	assert_int_equal(ha_edge_connect(&a.edge, &of_b), HA_OK);
	assert_int_equal(ha_edge_connect(&b.edge, &of_a), HA_OK);
}

static int unconnected(void **state)
{
	(void)state;
	ha_config_load(&config, no_env);
	sv_stepped_destroy();
	assert_int_equal(sv_stepped_open(NULL), 0);
	open_end(&a, 0);
	open_end(&b, 1);
	return 0;
}

static int connected(void **state)
{
	unconnected(state);
	open_edge(&a);
	open_edge(&b);
	connect_edges();
	return 0;
}

static void close_end(struct end *end)
{
	struct sv_stepped_objects left;

	assert_int_equal(ha_edge_close(&end->edge), HA_OK);
	assert_int_equal(ibv_dereg_mr(end->mr), 0);
	ha_nic_pd_put(end->on);
	ha_memory_close(end->set);
	sv_stepped_get_objects(end == &b, 0, &left);
	assert_int_equal(left.mrs + left.qps + left.cqs + left.pds, 0);
	ha_device_set_close(end->set);
}

static int closed(void **state)
{
	(void)state;
	sv_stepped_fault_remove(-1);
	close_end(&a);
	close_end(&b);
	return sv_stepped_close();
}

static struct ibv_sge piece(const struct end *end, size_t offset, uint32_t length)
{
	return (struct ibv_sge){(uintptr_t)end->bytes + offset, length, end->mr->lkey};
}

static void settle(void)
{
	assert_true(sv_stepped_run_idle(100000) < 100000);
}

static void expect(struct end *end, enum ha_edge_event event, uint32_t bytes)
{
	uint32_t came = 0;

	assert_int_equal(ha_edge_poll(&end->edge, &came), event);
	assert_int_equal(came, bytes);
}

static void messages_keep_order_and_their_pieces(void **state)
{
	struct ibv_sge pieces[] = {piece(&a, 0, 8), piece(&a, 100, 0)};

	(void)state;
	for (size_t i = 0; i < 3; i++)
		assert_true(ha_edge_recv(&b.edge, piece(&b, 1024 * i, 1024)));
	memcpy(a.bytes, "12345678", 8);
	assert_true(ha_edge_send(&a.edge, pieces, 2));
	pieces[1].length = 200;
	memset(a.bytes + 100, 7, 200);
	assert_true(ha_edge_send(&a.edge, pieces, 2));
	pieces[0].length = 0;
	assert_true(ha_edge_send(&a.edge, pieces, 1));
	settle();
	expect(&b, HA_EDGE_CAME, 8);
	expect(&b, HA_EDGE_CAME, 208);
	expect(&b, HA_EDGE_CAME, 0);
	expect(&b, HA_EDGE_NOTHING, 0);
	assert_memory_equal(b.bytes, "12345678\xee", 9);
	assert_memory_equal(b.bytes + 1024, "12345678\x07", 9);
	for (unsigned int i = 0; i < 3; i++)
		expect(&a, HA_EDGE_SENT, 0);
	expect(&a, HA_EDGE_NOTHING, 0);
}

static void no_more_is_posted_than_there_is_room_for(void **state)
{
	struct ibv_sge sge = piece(&a, 0, 8);

	(void)state;
	for (unsigned int i = 0; i < DEPTH; i++) {
		assert_true(ha_edge_recv(&b.edge, piece(&b, 0, 8)));
		assert_true(ha_edge_has_room(&a.edge));
		assert_true(ha_edge_send(&a.edge, &sge, 1));
	}
	assert_false(ha_edge_has_room(&a.edge));
	settle();
	expect(&a, HA_EDGE_SENT, 0);
	assert_true(ha_edge_has_room(&a.edge));
	assert_false(ha_edge_recv(&b.edge, piece(&b, 0, 8))); /* none has been polled */
	assert_non_null(b.edge.fault);
}

static void the_last_word_wins_and_one_is_on_its_way_at_a_time(void **state)
{
	struct sv_stepped_traffic traffic;

	(void)state;
	assert_true(ha_edge_word(&b.edge) == 0);
	for (uint64_t word = 1; word <= 100; word++)
		ha_edge_say(&a.edge, word);
	settle();
	assert_true(ha_edge_word(&b.edge) == 1);
	expect(&a, HA_EDGE_NOTHING, 0); /* that it is there, which is no event of the caller's */
	ha_edge_say(&a.edge, 100);
	ha_edge_say(&b.edge, UINT64_MAX - 1);
	settle();
	assert_true(ha_edge_word(&b.edge) == 100 && ha_edge_word(&a.edge) == UINT64_MAX - 1);
	expect(&a, HA_EDGE_NOTHING, 0);
	ha_edge_say(&a.edge, 100); /* nothing new */
	ha_edge_say(&a.edge, 99);
	settle();
	sv_stepped_get_traffic(0, 0, &traffic);
	assert_int_equal(traffic.work_requests, 2);
	assert_true(ha_edge_word(&b.edge) == 100);
}

/* Whoever posts receives too late finds out, instead of waiting for the device to try again. */
static void a_message_without_a_receive_fails_the_edge(void **state)
{
	struct ibv_sge sge = piece(&a, 0, 8);

	(void)state;
	assert_true(ha_edge_send(&a.edge, &sge, 1));
	settle();
	expect(&a, HA_EDGE_NOTHING, 0);
	assert_string_equal(a.edge.fault, ibv_wc_status_str(IBV_WC_RNR_RETRY_EXC_ERR));
	assert_false(ha_edge_send(&a.edge, &sge, 1));
	assert_false(ha_edge_recv(&a.edge, sge));
}

static void a_peer_that_is_dead_fails_the_edge(void **state)
{
	struct ibv_sge sge = piece(&a, 0, 8);

	(void)state;
	sv_stepped_kill(1, 0);
	assert_true(ha_edge_send(&a.edge, &sge, 1));
	settle();
	expect(&a, HA_EDGE_NOTHING, 0);
	assert_string_equal(a.edge.fault, ibv_wc_status_str(IBV_WC_RETRY_EXC_ERR));
	sv_stepped_revive(1, 0);
}

static void nothing_lands_behind_a_fence(void **state)
{
	struct ibv_sge sge = piece(&a, 0, 1024);

	(void)state;
	memset(a.bytes, 1, 1024);
	assert_true(ha_edge_recv(&b.edge, piece(&b, 0, 1024)));
	assert_true(ha_edge_send(&a.edge, &sge, 1));
	ha_edge_say(&a.edge, 5);
	ha_edge_fence(&b.edge);
	expect(&b, HA_EDGE_NOTHING, 0);
	assert_int_equal(ha_edge_close(&b.edge), HA_OK);
	settle();
	for (unsigned int i = 0; i < BYTES; i++)
		assert_int_equal(b.bytes[i], POISON);
	expect(&a, HA_EDGE_NOTHING, 0);
	assert_non_null(a.edge.fault);
}

static void what_came_before_a_fence_is_counted(void **state)
{
	struct ibv_sge sge = piece(&a, 0, 1024);

	(void)state;
	assert_true(ha_edge_recv(&b.edge, piece(&b, 0, 1024)));
	assert_true(ha_edge_recv(&b.edge, piece(&b, 1024, 1024)));
	assert_true(ha_edge_send(&a.edge, &sge, 1));
	settle();
	ha_edge_fence(&b.edge);
	expect(&b, HA_EDGE_CAME, 1024);
	expect(&b, HA_EDGE_NOTHING, 0); /* the second one was flushed */
	assert_null(b.edge.fault);
	assert_false(ha_edge_has_room(&b.edge));
	assert_false(ha_edge_recv(&b.edge, piece(&b, 0, 8)));
}

/* Until the queue pair is destroyed its device may still write: so that is not called closed. */
static void a_queue_pair_that_is_not_destroyed_is_not_closed(void **state)
{
	const int rule = add_rule("errno=EBUSY verb=destroy_qp host=1 count=2");

	(void)state;
	ha_edge_fence(&b.edge);
	assert_int_equal(ha_edge_close(&b.edge), HA_ERR_SYSTEM);
	assert_int_equal(ha_edge_close(&b.edge), HA_ERR_SYSTEM);
	assert_int_equal(ha_edge_close(&b.edge), HA_OK);
	assert_int_equal(ha_edge_close(&b.edge), HA_OK);
	assert_int_equal(fired(rule), 2);
}

/* Closing is in close_end(), which finds that nothing is left. */
static void what_fails_while_it_is_opened_leaves_nothing(void **state)
{
	static const char *const rules[] = {
	    "errno=ENOMEM verb=reg_mr host=0 count=1",
	    "errno=ENOMEM verb=create_cq host=0 count=1",
	    "errno=ENOMEM verb=create_qp host=0 count=1",
	    "errno=EINVAL verb=init host=0 count=1",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
		struct sv_stepped_objects before, after;
		const int rule = add_rule(rules[i]);

		sv_stepped_get_objects(0, 0, &before);
		assert_int_equal(ha_edge_open(&a.edge, &a.set->ports[0], &depth), HA_ERR_SYSTEM);
		assert_non_null(a.edge.fault);
		sv_stepped_get_objects(0, 0, &after);
		assert_memory_equal(&before, &after, sizeof(before));
		assert_int_equal(fired(rule), 1);
	}
	open_edge(&a);
	open_edge(&b);
	for (unsigned int i = 0; i < 2; i++) {
		const int rule = add_rule(i ? "errno=EINVAL verb=rts host=0 count=1"
					    : "errno=ENETUNREACH verb=rtr host=0 count=1");
		struct ha_edge_address of_b;

		ha_edge_address(&b.edge, &of_b);
		assert_int_equal(ha_edge_connect(&a.edge, &of_b), HA_ERR_SYSTEM);
		assert_int_equal(fired(rule), 1);
	}
}

static uint64_t now_ns;

static uint64_t the_time(void)
{
	return now_ns;
}

static unsigned leaked(void)
{
	return ha_nic_leaks(b.set->ports[0].nic).of[HA_OBJECT_QP];
}

/* Its member asks for it again and again; what a device refuses for seconds is counted for it,
 * until it is otherwise. */
static void a_queue_pair_that_is_refused_for_seconds_is_a_leak(void **state)
{
	const int rule = add_rule("errno=EBUSY verb=destroy_qp host=1");

	(void)state;
	now_ns = ha_now_ns();
	ha_clock_set_source(the_time);
	assert_int_equal(ha_edge_close(&b.edge), HA_ERR_SYSTEM);
	now_ns += HA_NS_PER_S;
	assert_int_equal(ha_edge_close(&b.edge), HA_ERR_SYSTEM);
	assert_int_equal(leaked(), 0);
	now_ns += 2 * HA_NS_PER_S;
	assert_int_equal(ha_edge_close(&b.edge), HA_ERR_SYSTEM);
	assert_int_equal(ha_edge_close(&b.edge), HA_ERR_SYSTEM);
	assert_int_equal(leaked(), 1);
	assert_int_equal(fired(rule), 4);
	sv_stepped_fault_remove(-1);
	assert_int_equal(ha_edge_close(&b.edge), HA_OK);
	assert_int_equal(leaked(), 0);
	ha_clock_set_source(NULL);
}

#define EDGE_TEST(test) cmocka_unit_test_setup_teardown(test, connected, closed)

/* ---- what is lost last ---------------------------------------------------------------------- */

#define LOOK_NS 50000ull

static uint32_t most_saying; /* of a's edge */

/* As programs do, until b has the message: nanoseconds, or 0: it has not come in that time. */
static uint64_t until_it_comes(uint64_t limit_ns)
{
	const uint64_t begun_ns = sv_stepped_now();
	uint32_t came;

	while (sv_stepped_now() < begun_ns + limit_ns) {
		ha_edge_look(&a.edge, sv_stepped_now());
		most_saying = a.edge.saying > most_saying ? a.edge.saying : most_saying;
		(void)sv_stepped_run(sv_stepped_now() + LOOK_NS);
		while (ha_edge_poll(&a.edge, &came) != HA_EDGE_NOTHING)
			;
		if (ha_edge_poll(&b.edge, &came) == HA_EDGE_CAME)
			return sv_stepped_now() - begun_ns;
	}
	return 0;
}

static void send_one(void)
{
	struct ibv_sge all = piece(&a, 0, BYTES);

	assert_true(ha_edge_recv(&b.edge, piece(&b, 0, BYTES)));
	assert_true(ha_edge_send(&a.edge, &all, 1));
}

static void what_is_lost_last_comes_when_the_word_is_said_once_more(void **state)
{
	const int rule = add_rule("drop op=send count=1");

	(void)state;
	send_one();
	assert_in_range(until_it_comes(10000000), 1, 300000);
	assert_int_equal(fired(rule), 1);
	assert_int_equal(ha_edge_word(&b.edge), 0);
	/* And a word that is lost itself. */
	add_rule("drop op=write count=1");
	ha_edge_say(&a.edge, 7);
	(void)until_it_comes(1000000);
	assert_int_equal(ha_edge_word(&b.edge), 7);
	assert_int_equal(a.edge.saying, 0);
}

static void what_is_said_once_more_may_be_lost_too(void **state)
{
	const int rule = add_rule("drop op=write count=3");

	(void)state;
	add_rule("drop op=send count=1");
	send_one();
	assert_in_range(until_it_comes(10000000), 300001, 2000000);
	assert_int_equal(fired(rule), 3);
	most_saying = 0;
	add_rule("drop"); /* everything: it ends there, and the queue pair has its own time */
	send_one();
	assert_int_equal(until_it_comes(60000000), 0);
	assert_int_equal(most_saying, DEPTH); /* the message has one place of those */
	assert_null(a.edge.fault);
}

/* A link of 1 ms each way: what takes as long as ever is not asked after. */
static void who_is_far_away_is_waited_for(void **state)
{
	(void)state;
	add_rule("delay=1ms");
	for (unsigned int i = 0; i < 4; i++) {
		most_saying = 0;
		send_one();
		assert_in_range(until_it_comes(10000000), 1, 2000000);
		(void)until_it_comes(3000000); /* its acknowledgement */
	}
	assert_int_equal(most_saying, 0);
}

static void nothing_is_said_once_more_on_an_edge_that_is_fenced(void **state)
{
	(void)state;
	add_rule("drop");
	send_one();
	ha_edge_look(&a.edge, 1);
	ha_edge_fence(&a.edge);
	ha_edge_look(&a.edge, 1000000000);
	assert_int_equal(a.edge.saying, 0);
	assert_null(a.edge.fault);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    EDGE_TEST(messages_keep_order_and_their_pieces),
	    EDGE_TEST(no_more_is_posted_than_there_is_room_for),
	    EDGE_TEST(the_last_word_wins_and_one_is_on_its_way_at_a_time),
	    EDGE_TEST(a_message_without_a_receive_fails_the_edge),
	    EDGE_TEST(a_peer_that_is_dead_fails_the_edge),
	    EDGE_TEST(nothing_lands_behind_a_fence),
	    EDGE_TEST(what_came_before_a_fence_is_counted),
	    EDGE_TEST(a_queue_pair_that_is_not_destroyed_is_not_closed),
	    EDGE_TEST(what_is_lost_last_comes_when_the_word_is_said_once_more),
	    EDGE_TEST(what_is_said_once_more_may_be_lost_too),
	    EDGE_TEST(who_is_far_away_is_waited_for),
	    EDGE_TEST(nothing_is_said_once_more_on_an_edge_that_is_fenced),
	    EDGE_TEST(a_queue_pair_that_is_refused_for_seconds_is_a_leak),
	    cmocka_unit_test_setup_teardown(what_fails_while_it_is_opened_leaves_nothing,
					    unconnected, closed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
