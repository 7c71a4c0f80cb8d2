/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A reliable connection over a fabric that loses, doubles, delays and reorders: one fault at each
 * packet of a workload in turn, and many at random. Data and counts must be right every time, the
 * fault must have fired, and a run must be repeatable from its seed.
 */
#include "world.h"

/* One thread only: under ThreadSanitizer, which is slow, a part of it will do. */
#if defined(__SANITIZE_THREAD__)
#define STRIDE 7u
#else
#define STRIDE 1u
#endif

#define ROUNDS	  6u
#define WRITE_LEN 3000u
#define SEND_LEN  1500u
#define READ_LEN  2500u

/* Where things lie in each buffer. */
#define COUNTER	 0u
#define RESULTS	 64u
#define OUT	 4096u
#define WRITTEN	 (OUT + 32768u)
#define RECEIVED (WRITTEN + 32768u)
#define READ	 (RECEIVED + 32768u)

static uint64_t hash_event(uint64_t hash, const struct sv_event_info *e)
{
	const uint64_t words[] = {
	    e->kind,	e->time_ns, e->src_host, e->dst_host,
	    e->src_qpn, e->psn,	    e->length,	 e->op ? (uint64_t)e->op[0] : 0};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		hash = (hash ^ words[i]) * 0x100000001b3ull;
	return hash;
}

static bool changing_bursts;

/* Runs to the end, noting what happened. */
static uint64_t run_hashed(void)
{
	uint64_t hash = 0xcbf29ce484222325ull;
	struct sv_event_info info;
	uint64_t limit = 200000;

	while (sv_stepped_peek(&info) && limit--) {
		hash = hash_event(hash, &info);
		/* Retransmissions are then cut into other bursts than what they repeat. */
		if (changing_bursts)
			sv_stepped_set_burst(512u << hash % 5);
		sv_stepped_step();
	}
	assert_true(limit > 0);
	return hash;
}

static void post_atomic(struct end *e, const struct end *peer, uint64_t id, uint32_t round)
{
	struct ibv_sge sge = {(uintptr_t)e->buf + RESULTS + 8 * round, 8, e->mr->lkey};
	struct ibv_send_wr wr = wr_of(IBV_WR_ATOMIC_FETCH_AND_ADD, id, &sge), *bad;

	wr.wr.atomic.remote_addr = (uintptr_t)peer->buf + COUNTER;
	wr.wr.atomic.rkey = peer->mr->rkey;
	wr.wr.atomic.compare_add = 1000;
	assert_int_equal(ibv_post_send(e->qp, &wr, &bad), 0);
}

static void post_work(struct end *e, const struct end *peer)
{
	fill(e->buf + OUT, 32768, e->host + 1);
	for (uint32_t i = 0; i < 2 * ROUNDS; i++)
		assert_int_equal(post_recv(e, 1000 + i, RECEIVED + i * SEND_LEN, SEND_LEN), 0);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		assert_int_equal(post(e, IBV_WR_RDMA_WRITE_WITH_IMM, 10 * i, OUT + i * WRITE_LEN,
				      WRITE_LEN, peer, WRITTEN + i * WRITE_LEN),
				 0);
		assert_int_equal(
		    post(e, IBV_WR_SEND, 10 * i + 1, OUT + i * SEND_LEN, SEND_LEN, NULL, 0), 0);
		assert_int_equal(post(e, IBV_WR_RDMA_READ, 10 * i + 2, READ + i * READ_LEN,
				      READ_LEN, peer, OUT + i * READ_LEN),
				 0);
		post_atomic(e, peer, 10 * i + 3, i);
	}
}

/* Every completion of both kinds, each queue in its order, and every byte. */
static void check_work(struct end *e, const struct end *peer)
{
	uint64_t next_send = 0, next_recv = 1000;
	struct ibv_wc wc;

	for (uint32_t n = 0; n < 6 * ROUNDS; n++) {
		assert_int_equal(ibv_poll_cq(e->cq, 1, &wc), 1);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		if (wc.wr_id >= 1000) {
			assert_int_equal(wc.wr_id, next_recv++);
			continue;
		}
		assert_int_equal(wc.wr_id, next_send);
		next_send += next_send % 10 == 3 ? 7 : 1;
	}
	expect_no_wc(e);
	assert_int_equal(next_recv, 1000 + 2 * ROUNDS);
	assert_memory_equal(e->buf + WRITTEN, peer->buf + OUT, ROUNDS * WRITE_LEN);
	assert_memory_equal(e->buf + READ, peer->buf + OUT, ROUNDS * READ_LEN);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		uint64_t old;

		/* Receives alternate between immediates, which use no memory, and sends. */
		assert_memory_equal(e->buf + RECEIVED + (2 * i + 1) * SEND_LEN,
				    peer->buf + OUT + i * SEND_LEN, SEND_LEN);
		memcpy(&old, e->buf + RESULTS + (size_t)8 * i, 8);
		assert_int_equal(old, 1000 * i);
	}
	assert_int_equal(*(uint64_t *)(void *)(e->buf + COUNTER), 1000 * ROUNDS);
}

struct run {
	uint64_t hash, sent, end_ns;
	uint64_t fired;
};

static struct run work_under(const char *rules, const struct sv_stepped_opts *fabric, bool srq)
{
	struct world_opts opts = {.mtu = IBV_MTU_512, .retry_cnt = 7, .rnr_retry = 7};
	struct sv_stepped_stats stats;
	struct run run = {0};
	uint64_t matched, fired;
	char err[256];
	struct world w;

	if (fabric)
		opts.fabric = *fabric;
	opts.srq_wrs = srq ? 64 : 0;
	world_open(&w, &opts);
	if (rules && sv_stepped_fault_add(rules, err, sizeof(err)) < 0)
		fail_msg("%s", err);
	post_work(&w.a, &w.b);
	post_work(&w.b, &w.a);
	run.hash = run_hashed();
	check_work(&w.a, &w.b);
	check_work(&w.b, &w.a);
	expect_no_event(w.a.ctx);
	for (int id = 0; sv_stepped_fault_stats(id, &matched, &fired); id++)
		run.fired += fired;
	sv_stepped_get_stats(&stats);
	run.sent = stats.sent;
	run.end_ns = sv_stepped_now();
	world_close(&w);
	return run;
}

static const char *const faults[] = {
    "drop",	 "drop dir=rx", "corrupt",	    "dup",     "dup=3",	    "dup dir=rx",
    "delay=3us", "delay=9ms",	"delay=3us dir=rx", "reorder", "reorder=3", "slow=100",
};
#define NUM_FAULTS (sizeof(faults) / sizeof(faults[0]))

static void each_packet(const struct sv_stepped_opts *fabric, bool srq)
{
	struct run clean = work_under(NULL, fabric, srq);
	char rule[64];

	for (size_t f = 0; f < NUM_FAULTS; f++) {
		for (uint64_t i = 1 + f % STRIDE; i <= clean.sent; i += STRIDE) {
			struct run run;

			snprintf(rule, sizeof(rule), "%s nth=%llu", faults[f],
				 (unsigned long long)i);
			run = work_under(rule, fabric, srq);
			if (run.fired != 1)
				fail_msg("'%s' fired %llu times", rule,
					 (unsigned long long)run.fired);
		}
	}
	print_message("  %zu faults at one in %u of %llu packets\n", NUM_FAULTS, STRIDE,
		      (unsigned long long)clean.sent);
}

static void test_each_packet_each_fault(void **state)
{
	(void)state;
	each_packet(NULL, false);
}

static void test_each_packet_each_fault_srq(void **state)
{
	(void)state;
	each_packet(NULL, true);
}

static void test_each_packet_each_fault_narrow(void **state)
{
	(void)state;
	each_packet(&(struct sv_stepped_opts){.window_packets = 3, .inbox_packets = 4}, false);
}

/* A stretch of packets lost, from each packet on: fewer than a QP has tries for one of them. */
static void test_bursts_of_loss(void **state)
{
	struct run clean = work_under(NULL, NULL, false);
	char rule[64];

	(void)state;
	for (uint64_t i = 1; i <= clean.sent; i++) {
		for (int count = 2; count <= 6; count += 2) {
			snprintf(rule, sizeof(rule), "drop nth=%llu count=%d",
				 (unsigned long long)i, count);
			assert_true(work_under(rule, NULL, false).fired > 0);
		}
	}
}

static const char noise[] = "drop prob=0.03\n"
			    "dup prob=0.05\n"
			    "delay=5us prob=0.05\n"
			    "reorder=2 prob=0.05\n"
			    "corrupt prob=0.01\n"
			    "dropack prob=0.1\n";

static void test_noise(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 300; seed++) {
		struct sv_stepped_opts fabric = {.seed = seed, .jitter_ns = 500};

		assert_true(work_under(noise, &fabric, seed % 2).fired > 0);
	}
}

/* Bursts as in live mode, and bursts that change: duplicates that are new in part. */
static void test_noise_with_bursts(void **state)
{
	uint64_t lost = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= 300; seed++) {
		struct sv_stepped_opts fabric = {.seed = seed,
						 .jitter_ns = 500,
						 .burst_bytes = 8192,
						 .inbox_packets = seed % 3 ? 0 : 8};

		changing_bursts = seed % 2;
		lost += work_under(noise, &fabric, seed % 5 == 0).fired;
	}
	changing_bursts = false;
	assert_true(lost > 1000);
}

static void test_each_packet_each_fault_bursts(void **state)
{
	(void)state;
	each_packet(&(struct sv_stepped_opts){.burst_bytes = 2048}, false);
}

static void test_replay_from_seed(void **state)
{
	struct sv_stepped_opts fabric = {.jitter_ns = 2000};
	uint64_t other = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= 20; seed++) {
		struct run first, again;

		fabric.seed = seed;
		first = work_under(noise, &fabric, false);
		again = work_under(noise, &fabric, false);
		assert_int_equal(first.hash, again.hash);
		assert_int_equal(first.end_ns, again.end_ns);
		assert_int_not_equal(first.hash, other);
		other = first.hash;
	}
}

/* The clean workload needs no retransmission: what was sent is what had to be. */
static void test_no_needless_packets(void **state)
{
	struct run clean = work_under(NULL, NULL, false);

	(void)state;
	/* Per round and direction: 6 + 3 of data, one READ and its 5 responses, one atomic and its
	 * answer, and the acks of the two messages that ask for one. */
	assert_int_equal(clean.sent, 2 * ROUNDS * (6 + 3 + 1 + 5 + 1 + 1 + 2));
}

struct pair {
	struct end from, to;
};

static void pair_open(struct pair *pair, uint32_t from, uint32_t to, const struct world_opts *opts)
{
	end_open(&pair->from, from, 0, opts);
	end_open(&pair->to, to, 0, opts);
	connect_ends(&pair->from, &pair->to, opts);
}

static void pair_write(struct pair *pair, uint64_t id)
{
	assert_int_equal(post(&pair->from, IBV_WR_RDMA_WRITE, id, 0, 8, &pair->to, 0), 0);
}

static void pair_close(struct pair *pair)
{
	end_close(&pair->from);
	end_close(&pair->to);
}

/* What host 0 sent is lost, and has no room to be sent again until what host 2 sent is there:
 * longer than all retries take. Meanwhile it is tried whenever something of host 3 arrives. */
static void a_retry_that_waits_for_room_is_not_counted(void **state)
{
	static const struct world_opts hasty = {.fabric = {.hosts = 4, .inbox_packets = 1}},
				       lasting = {.timeout = 20};
	struct pair waits, blocks, moves;
	int lost, late;

	(void)state;
	assert_int_equal(sv_stepped_open(&hasty.fabric), 0);
	pair_open(&waits, 0, 1, &hasty);
	pair_open(&blocks, 2, 1, &lasting);
	pair_open(&moves, 3, 2, &lasting);
	lost = add_rule("drop host=0 op=write nth=1");
	late = add_rule("delay=500ms host=2 op=write nth=1");
	add_rule("delay=20ms host=3 op=write");
	pair_write(&waits, 1);
	pair_write(&blocks, 2);
	for (uint64_t i = 0; i < 20; i++)
		pair_write(&moves, i);
	settle();
	expect_wc(&blocks.from, 2, IBV_WC_SUCCESS);
	expect_wc(&waits.from, 1, IBV_WC_SUCCESS);
	assert_int_equal(fired(lost), 1);
	assert_int_equal(fired(late), 1);
	pair_close(&waits);
	pair_close(&blocks);
	pair_close(&moves);
	assert_int_equal(sv_stepped_close(), 0);
}

#define MS 1000000u

/*
 * Host 0 asks for as much as host 2 answers at a time, has no answer in time and asks again. Then
 * the first answers come, and it asks for more, while the second ones still wait: a flood from host
 * 1 takes all the room on their way.
 */
static void answers_that_nobody_waits_for_are_no_reason_to_refuse(void **state)
{
	static const struct world_opts narrow = {
	    .fabric = {.hosts = 3, .inbox_packets = 4}, .rd_atomic = 2, .dest_rd_atomic = 2};
	static const struct world_opts lasting = {.mtu = IBV_MTU_256, .timeout = 20};
	struct pair asks, floods;
	int late;

	(void)state;
	assert_int_equal(sv_stepped_open(&narrow.fabric), 0);
	pair_open(&asks, 0, 2, &narrow);
	pair_open(&floods, 1, 0, &lasting);
	late = add_rule("delay=4300us op=readresp count=2");
	for (uint32_t i = 0; i < 6; i++)
		assert_int_equal(
		    post(&asks.from, IBV_WR_RDMA_READ, i, i * 64, 64, &asks.to, i * 64), 0);
	fill(asks.to.buf, 6 * 64, 7);
	sv_stepped_run(sv_stepped_now() + 4190000); /* the retry is due at 4.194 ms */
	for (uint64_t i = 0; i < 4; i++)
		assert_int_equal(post(&floods.from, IBV_WR_RDMA_WRITE, i, 0, 65536, &floods.to, 0),
				 0);
	settle();
	for (uint64_t i = 0; i < 6; i++)
		expect_wc(&asks.from, i, IBV_WC_SUCCESS);
	assert_memory_equal(asks.from.buf, asks.to.buf, 6 * 64);
	for (uint64_t i = 0; i < 4; i++)
		expect_wc(&floods.from, i, IBV_WC_SUCCESS);
	assert_int_equal(fired(late), 2);
	pair_close(&asks);
	pair_close(&floods);
	assert_int_equal(sv_stepped_close(), 0);
}

static uint64_t sent(void)
{
	struct sv_stepped_stats stats;

	sv_stepped_get_stats(&stats);
	return stats.sent;
}

/* Packets that leave before any is acknowledged. */
static uint64_t post_much(struct world *w, uint64_t id)
{
	uint64_t before = sent();

	assert_int_equal(post(&w->a, IBV_WR_RDMA_WRITE, id, 0, 65536, &w->b, 0), 0);
	return sent() - before;
}

/* Each loss leaves half, one packet at least; with what arrives it grows, and is whole in the end.
 */
static void after_a_loss_less_is_under_way(void **state)
{
	static const uint32_t again[] = {16, 8, 4, 2, 1, 1};
	struct world *w = *state;
	uint64_t at_ns = sv_stepped_now() + 2 * MS, id = 0, first = 0;

	add_rule("drop host=0 op=write");
	assert_int_equal(post_much(w, id), 32);
	sv_stepped_run(at_ns);
	for (uint32_t i = 0; i < sizeof(again) / sizeof(*again); i++) {
		uint64_t before = sent();

		sv_stepped_run(at_ns += 4194304);
		assert_int_equal(sent() - before, again[i]);
	}
	assert_int_equal(sv_stepped_fault_remove(-1), 0);
	for (; first < 32 && id < 20; id++) {
		settle();
		expect_wc(&w->a, id, IBV_WC_SUCCESS);
		first = post_much(w, id + 1);
		assert_in_range(first, 2, id ? 32 : 31);
	}
	assert_int_equal(first, 32);
	settle();
	expect_wc(&w->a, id, IBV_WC_SUCCESS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_no_needless_packets),
	    cmocka_unit_test(test_each_packet_each_fault),
	    cmocka_unit_test(test_each_packet_each_fault_srq),
	    cmocka_unit_test(test_each_packet_each_fault_narrow),
	    cmocka_unit_test(test_each_packet_each_fault_bursts),
	    cmocka_unit_test(test_noise_with_bursts),
	    cmocka_unit_test(test_bursts_of_loss),
	    cmocka_unit_test(test_noise),
	    cmocka_unit_test(test_replay_from_seed),
	    cmocka_unit_test(a_retry_that_waits_for_room_is_not_counted),
	    cmocka_unit_test(answers_that_nobody_waits_for_are_no_reason_to_refuse),
	    WORLD_TEST(after_a_loss_less_is_under_way,
		       .fabric = {.window_packets = 32, .window_adapts = true}, .mtu = IBV_MTU_256,
		       .timeout = 10 /* 4.194 ms */, .retry_cnt = 7),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
