/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Links with a rate and a latency, in virtual time: exactly as long as asked, shared by those that
 * want them at either end, and counted. And who can reach whom.
 */
#include "world.h"

#include <infiniband/verbs.h>

#define MTU	1024u
#define HEADERS 64u /* that a packet has on a cable */
#define CHUNK	(BUF_SIZE / 2)

/* 10 Gb/s and 2 us on rail 0, 3.3 Gb/s and 20 us on rail 1. */
#define RATE_0	  10000u
#define RATE_1	  3300u
#define LATENCY_0 2000u
#define LATENCY_1 20000u

static const struct world_opts rails = {.fabric = {.rails = 2,
						   .rail_rate_mbps = {RATE_0, RATE_1},
						   .rail_latency_ns = {LATENCY_0, LATENCY_1}},
					.timeout = 20};

static uint64_t on_link_ns(uint32_t payload, uint32_t mbps)
{
	return (payload + HEADERS) * 8000ull / mbps;
}

static void pair_open(struct world *w, const struct world_opts *opts, uint32_t rail_a,
		      uint32_t rail_b)
{
	assert_int_equal(sv_stepped_open(&opts->fabric), 0);
	end_open(&w->a, 0, rail_a, opts);
	end_open(&w->b, 1, rail_b, opts);
	connect_ends(&w->a, &w->b, opts);
}

static void pair_close(struct world *w)
{
	end_close(&w->a);
	end_close(&w->b);
	assert_int_equal(sv_stepped_close(), 0);
}

/* When the packet that comes next is there, counted from now. */
static uint64_t next_in_ns(void)
{
	struct sv_event_info next;

	assert_true(sv_stepped_peek(&next));
	assert_int_equal(next.kind, SV_EVENT_PACKET);
	return next.time_ns - sv_stepped_now();
}

static void expect_one_way_ns(uint32_t rail_a, uint32_t rail_b, uint64_t expected_ns)
{
	struct world w;

	pair_open(&w, &rails, rail_a, rail_b);
	assert_int_equal(post(&w.a, IBV_WR_RDMA_WRITE, 1, 0, 8, &w.b, 0), 0);
	assert_int_equal(next_in_ns(), expected_ns);
	settle();
	expect_wc(&w.a, 1, IBV_WC_SUCCESS);
	pair_close(&w);
}

static void latency_and_rate_are_the_rails_own(void **state)
{
	(void)state;
	expect_one_way_ns(0, 0, LATENCY_0 + on_link_ns(8, RATE_0));
	expect_one_way_ns(1, 1, LATENCY_1 + on_link_ns(8, RATE_1));
}

/* The slower of the two links takes longest; the first bits are through it before the last came. */
static void between_two_rails_it_is_half_of_each(void **state)
{
	(void)state;
	expect_one_way_ns(0, 1, (LATENCY_0 + LATENCY_1) / 2 + on_link_ns(8, RATE_1));
	expect_one_way_ns(1, 0, (LATENCY_0 + LATENCY_1) / 2 + on_link_ns(8, RATE_1));
}

/* From the first bit's departure to the last packet's arrival. */
static void a_message_takes_its_bytes_by_the_rate(void **state)
{
	struct sv_event_info next = {0};
	const uint32_t packets = CHUNK / MTU;
	struct world w;
	uint64_t start_ns, last_ns = 0;

	(void)state;
	pair_open(&w, &rails, 1, 1);
	start_ns = sv_stepped_now();
	assert_int_equal(post(&w.a, IBV_WR_RDMA_WRITE, 1, 0, CHUNK, &w.b, 0), 0);
	while (sv_stepped_peek(&next)) {
		if (next.kind == SV_EVENT_PACKET && next.length)
			last_ns = next.time_ns - start_ns;
		assert_true(sv_stepped_step());
	}
	assert_int_equal(last_ns, LATENCY_1 + packets * on_link_ns(MTU, RATE_1));
	expect_wc(&w.a, 1, IBV_WC_SUCCESS);
	pair_close(&w);
}

/* ---------------------------------------------------------------- incast */

#define SENDERS 4

struct incast {
	struct end sink[SENDERS], sender[SENDERS];
};

/* Hosts 1 to 4 send to host 0. */
static void incast_open(struct incast *in, const struct world_opts *opts)
{
	assert_int_equal(sv_stepped_open(&opts->fabric), 0);
	for (uint32_t i = 0; i < SENDERS; i++) {
		end_open(&in->sink[i], 0, 0, opts);
		end_open(&in->sender[i], i + 1, 0, opts);
		connect_ends(&in->sender[i], &in->sink[i], opts);
	}
}

static void incast_close(struct incast *in)
{
	for (uint32_t i = 0; i < SENDERS; i++) {
		end_close(&in->sender[i]);
		end_close(&in->sink[i]);
	}
	assert_int_equal(sv_stepped_close(), 0);
}

static void incast_post(struct incast *in)
{
	for (uint32_t i = 0; i < SENDERS; i++)
		assert_int_equal(
		    post(&in->sender[i], IBV_WR_RDMA_WRITE, i, 0, CHUNK, &in->sink[i], 0), 0);
}

/* Steps until all of it has come, counting by sender what did until `half_ns`. */
static uint64_t incast_run(uint64_t half_ns, uint64_t bytes[SENDERS])
{
	const uint64_t start_ns = sv_stepped_now();
	struct sv_event_info next;
	uint64_t last_ns = 0;

	while (sv_stepped_peek(&next)) {
		if (next.kind == SV_EVENT_PACKET && next.dst_host == 0 && next.length) {
			last_ns = next.time_ns - start_ns;
			if (last_ns <= half_ns)
				bytes[next.src_host - 1] += next.length;
		}
		assert_true(sv_stepped_step());
	}
	return last_ns;
}

/* The receiver's link is the bottleneck: all of it takes as long as one sender's would take four
 * times, and at half of that each has had its quarter. */
static void four_into_one_have_a_quarter_each(void **state)
{
	const struct world_opts opts = {
	    .fabric = {.hosts = 1 + SENDERS, .rate_mbps = RATE_0, .latency_ns = LATENCY_0},
	    .timeout = 20};
	const uint64_t all_ns = SENDERS * (CHUNK / MTU) * on_link_ns(MTU, RATE_0) + LATENCY_0;
	uint64_t bytes[SENDERS] = {0}, sum = 0;
	struct incast in;

	(void)state;
	incast_open(&in, &opts);
	incast_post(&in);
	assert_int_equal(incast_run(all_ns / 2, bytes), all_ns);
	for (int i = 0; i < SENDERS; i++)
		sum += bytes[i];
	for (int i = 0; i < SENDERS; i++)
		assert_in_range(bytes[i] * 1000 / sum, 238, 262);
	for (uint32_t i = 0; i < SENDERS; i++)
		expect_wc(&in.sender[i], i, IBV_WC_SUCCESS);
	incast_close(&in);
}

/* An aggregator's box has a port for each: nobody waits for anybody. It is the last host. */
static void into_an_aggregator_nobody_waits(void **state)
{
	const struct world_opts opts = {
	    .fabric = {.hosts = 2, .rate_mbps = RATE_0, .latency_ns = LATENCY_0, .aggregators = 1},
	    .timeout = 20};
	const uint64_t one_ns = (CHUNK / MTU) * on_link_ns(MTU, RATE_0) + LATENCY_0;
	struct sv_stepped_link_stats link;
	struct sv_event_info next;
	struct end sink[2], sender[2];
	uint64_t last_ns = 0, start_ns;

	(void)state;
	assert_int_equal(sv_stepped_open(&opts.fabric), 0);
	for (uint32_t i = 0; i < 2; i++) {
		end_open(&sink[i], 2, 0, &opts);
		end_open(&sender[i], i, 0, &opts);
		connect_ends(&sender[i], &sink[i], &opts);
	}
	start_ns = sv_stepped_now();
	for (uint32_t i = 0; i < 2; i++)
		assert_int_equal(post(&sender[i], IBV_WR_RDMA_WRITE, i, 0, CHUNK, &sink[i], 0), 0);
	while (sv_stepped_peek(&next)) {
		if (next.kind == SV_EVENT_PACKET && next.length)
			last_ns = next.time_ns - start_ns;
		assert_true(sv_stepped_step());
	}
	assert_int_equal(last_ns, one_ns);
	for (uint32_t i = 0; i < 2; i++) {
		expect_wc(&sender[i], i, IBV_WC_SUCCESS);
		sv_stepped_get_link_stats(2, 0, i, 0, &link);
		assert_int_equal(link.bytes_in, CHUNK);
		assert_int_equal(link.packets_in, CHUNK / MTU);
		assert_int_equal(link.bytes_out, 0);
	}
	for (uint32_t i = 0; i < 2; i++) {
		end_close(&sender[i]);
		end_close(&sink[i]);
	}
	assert_int_equal(sv_stepped_close(), 0);
}

/* ---------------------------------------------------------------- what is counted */

static void a_port_counts_what_it_was_given(void **state)
{
	const struct world_opts opts = {.fabric = {.rails = 2}};
	struct sv_stepped_traffic a, b, idle;
	struct sv_stepped_link_stats link;
	struct ibv_sge sge;
	struct ibv_send_wr wr, *bad;
	struct world w;

	(void)state;
	pair_open(&w, &opts, 0, 0);
	assert_int_equal(post_recv(&w.b, 10, 0, 4096), 0);
	assert_int_equal(post(&w.a, IBV_WR_RDMA_WRITE, 1, 0, 3 * MTU, &w.b, 0), 0);
	wr = wr_of(IBV_WR_SEND_WITH_IMM, 2, &sge);
	sge = (struct ibv_sge){(uintptr_t)w.a.buf, 100, w.a.mr->lkey};
	wr.imm_data = 77;
	assert_int_equal(ibv_post_send(w.a.qp, &wr, &bad), 0);
	assert_int_equal(post(&w.a, IBV_WR_RDMA_READ, 3, 0, 2 * MTU, &w.b, 0), 0);
	settle();
	expect_wc(&w.a, 1, IBV_WC_SUCCESS);
	expect_wc(&w.a, 2, IBV_WC_SUCCESS);
	expect_wc(&w.a, 3, IBV_WC_SUCCESS);
	expect_wc(&w.b, 10, IBV_WC_SUCCESS);
	sv_stepped_get_traffic(0, 0, &a);
	sv_stepped_get_traffic(1, 0, &b);
	sv_stepped_get_traffic(0, 1, &idle);
	assert_int_equal(a.work_requests, 3);
	assert_int_equal(a.bytes_out, 3 * MTU + 100);
	assert_int_equal(a.packets_out, 3 + 1 + 1); /* the read is asked for in one */
	assert_int_equal(a.bytes_in, 2 * MTU);
	assert_int_equal(b.bytes_in, a.bytes_out);
	assert_int_equal(b.packets_in, a.packets_out);
	assert_int_equal(b.packets_out, a.packets_in);
	assert_int_equal(b.receives, 1);
	assert_int_equal(b.immediates, 1);
	assert_int_equal(b.work_requests + a.receives + a.immediates, 0);
	sv_stepped_get_link_stats(0, 0, 1, 0, &link);
	assert_int_equal(link.bytes_out, a.bytes_out);
	assert_int_equal(link.packets_in, a.packets_in);
	idle.bytes_out += idle.packets_out + idle.work_requests + idle.bytes_in + idle.packets_in +
			  idle.receives + idle.immediates;
	assert_int_equal(idle.bytes_out, 0);
	pair_close(&w);
}

/* ---------------------------------------------------------------- islands */

static struct end open_end(uint32_t host, uint32_t rail)
{
	struct end e;

	end_open(&e, host, rail, &rails);
	return e;
}

/* What becomes of a queue pair that is to be connected from one device to the other. */
static int rtr(uint32_t host, uint32_t rail, uint32_t peer_host, uint32_t peer_rail)
{
	struct end from = open_end(host, rail), to = open_end(peer_host, peer_rail);
	int err;

	assert_int_equal(to_init(&from, &rails), 0);
	err = to_rtr(&from, &to, &rails);
	end_close(&from);
	end_close(&to);
	return err;
}

static void the_second_rail_ends_at_its_island(void **state)
{
	const struct sv_stepped_opts opts = {.hosts = 4, .rails = 3, .islands = "0-1,2-3"};

	(void)state;
	assert_int_equal(sv_stepped_open(&opts), 0);
	assert_int_equal(rtr(0, 1, 1, 1), 0);
	assert_int_equal(rtr(2, 1, 3, 1), 0);
	assert_int_equal(rtr(0, 1, 2, 1), ENETUNREACH);
	assert_int_equal(rtr(3, 1, 1, 1), ENETUNREACH);
	assert_int_equal(rtr(0, 0, 2, 1), ENETUNREACH);
	assert_int_equal(rtr(0, 0, 1, 1), 0);
	assert_int_equal(rtr(0, 0, 3, 0), 0);
	assert_int_equal(rtr(0, 2, 3, 2), 0);
	assert_int_equal(sv_stepped_close(), 0);
}

static void an_address_says_which_island(void **state)
{
	const struct sv_stepped_opts opts = {.hosts = 4, .rails = 2, .islands = "0,3"};
	static const uint8_t island[4] = {0, 2, 3, 1}; /* who is not named is one by himself */
	struct ibv_context *ctx;
	union ibv_gid gid;

	(void)state;
	assert_int_equal(sv_stepped_open(&opts), 0);
	for (uint32_t host = 0; host < 4; host++)
		for (uint32_t rail = 0; rail < 2; rail++) {
			ctx = open_host(host, rail);
			assert_int_equal(ibv_query_gid(ctx, 1, 3, &gid), 0);
			assert_int_equal(gid.raw[12], 10);
			assert_int_equal(gid.raw[13], rail);
			assert_int_equal(gid.raw[14], rail == 1 ? island[host] : 0);
			assert_int_equal(gid.raw[15], host + 1);
			assert_int_equal(ibv_close_device(ctx), 0);
		}
	assert_int_equal(sv_stepped_close(), 0);
}

static void what_is_no_island_is_refused(void **state)
{
	static const char *const bad[] = {
	    "0-4", "4",	 "0,0", "1-0", "0-1,1-2", "x",	 "0-",
	    "-1",  "0,", ",0",	"0 1", "0-1-2",	  "0;1", "99999999999999999999"};
	struct sv_stepped_opts opts = {.hosts = 4, .rails = 2};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		opts.islands = bad[i];
		if (sv_stepped_open(&opts) != -EINVAL)
			fail_msg("islands '%s' are taken", bad[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(latency_and_rate_are_the_rails_own),
	    cmocka_unit_test(between_two_rails_it_is_half_of_each),
	    cmocka_unit_test(a_message_takes_its_bytes_by_the_rate),
	    cmocka_unit_test(four_into_one_have_a_quarter_each),
	    cmocka_unit_test(into_an_aggregator_nobody_waits),
	    cmocka_unit_test(a_port_counts_what_it_was_given),
	    cmocka_unit_test(the_second_rail_ends_at_its_island),
	    cmocka_unit_test(an_address_says_which_island),
	    cmocka_unit_test(what_is_no_island_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
