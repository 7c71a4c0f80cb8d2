/* SPDX-License-Identifier: Apache-2.0 */
/* Fault rules: what the parser refuses and how it says so, and that each kind does what it says. */
#include "verb_calls.h"
#include "world.h"

#include <unistd.h>

/* ---------------------------------------------------------------- the language */

static const struct {
	const char *rule, *token;
} bad_rules[] = {
    {"", "no fault rule"},
    {"host=0", "no action"},
    {"frobnicate", "'frobnicate'"},
    {"drop hots=1", "'hots'"},
    {"drop host=x", "'host=x'"},
    {"drop host=", "'host='"},
    {"drop host=-1", "'host=-1'"},
    {"drop host=4294967295", "'host=4294967295'"},
    {"drop=1", "'drop'"},
    {"drop dup", "more than one action"},
    {"dup=0", "'dup=0'"},
    {"dup=many", "'dup=many'"},
    {"delay", "'delay='"},
    {"delay=5", "'delay=5'"},
    {"delay=5min", "'delay=5min'"},
    {"slow=0.5", "'slow=0.5'"},
    {"delay=1ms jitter=soon", "'jitter=soon'"},
    {"drop jitter=1ms", "jitter="},
    {"delay=1ms dist=exp", "dist="},
    {"delay=1ms jitter=1ms dist=normal", "'dist=normal'"},
    {"hold", "until="},
    {"hold=1ms until=2ms", "'hold'"},
    {"slow", "'slow='"},
    {"drop op=", "'op='"},
    {"drop op=write|wirte", "'wirte'"},
    {"drop part=end", "'part=end'"},
    {"drop dir=up", "'dir=up'"},
    {"drop nth=0", "'nth=0'"},
    {"drop prob=0", "'prob=0'"},
    {"drop prob=1.5", "'prob=1.5'"},
    {"drop prob=half", "'prob=half'"},
    {"drop at=soon", "'at=soon'"},
    {"drop for=1ms", "for="},
    {"drop sent=0", "sent="},
    {"drop verb=post_send", "errno= and verb="},
    {"errno=ENOMEM", "errno= and verb="},
    {"errno=ENOSUCH verb=post_send", "'errno=ENOSUCH'"},
    {"errno=0 verb=post_send", "'errno=0'"},
    {"errno=ENOMEM verb=post", "'verb=post'"},
    {"errno=ENOMEM verb=post_send dir=rx", "dir="},
    {"errno=ENOMEM verb=modify_qp qpn=3", "qpn="},
    {"errno=ENOMEM verb=close_device", "'verb=close_device'"},
    {"wait=1ms", "wait= and verb="},
    {"wait verb=modify_qp", "'wait='"},
    {"wait=0ms verb=modify_qp", "'wait=0ms'"},
    {"wait=20 verb=modify_qp", "'wait=20'"},
    {"wait=1ms verb=sqe", "'verb=sqe'"},
    {"wait=1ms verb=post_send", "'verb=post_send'"},
    {"wait=1ms verb=post_recv", "'verb=post_recv'"},
    {"wait=1ms verb=post_srq_recv", "'verb=post_srq_recv'"},
    {"wait=1ms verb=poll_cq", "'verb=poll_cq'"},
    {"wait=1ms verb=req_notify_cq", "'verb=req_notify_cq'"},
    {"wait=1ms verb=reg_mr op=write", "op="},
    {"verb=reg_mr minlen=1 wait=1ms", "minlen="},
    {"wait=1ms verb=reg_mr errno=ENOMEM", "more than one action"},
    {"wc=SUCCESS", "'wc=SUCCESS'"},
    {"wc=RETRY", "'wc=RETRY'"},
    {"wc=RETRY_EXC_ERR sent=2", "'sent=2'"},
    {"unordered=0us", "'unordered=0us'"},
    {"unordered=soon", "'unordered=soon'"},
    {"unordered dir=rx", "dir="},
    {"unordered op=send", "op=write"},
    {"unordered op=write|send", "op=write"},
    {"unordered verb=err", "verb="},
    {"unordered for=1ms", "for="},
    {"event=CQ_ERR", "'event=CQ_ERR'"},
    {"link=sideways", "'link=sideways'"},
    {"link", "'link='"},
    {"link=down at=1ms host=0", "rail="},
    {"link=down at=1ms rail=0", "host="},
    {"cut at=1ms", "rail="},
    {"kill=slowly", "'kill=slowly'"},
    {"revive=twice", "'revive=twice': expected renamed"},
    {"kill=placed at=1ms host=0 rail=0", "kill=placed"},
    {"kill=unplaced dir=tx", "dir=tx"},
    {"disassociate=later", "'disassociate=later'"},
    {"disassociate at=1ms host=0", "rail="},
    {"feign=now", "'feign=now'"},
    {"feign at=1ms rail=0", "host="},
    {"reorder dir=rx", "dir=rx"},
    {"drop qpn=last", "'qpn=last'"},
    {"drop qpn=first rail=0", "host="},
    {"drop qpn=first host=0", "rail="},
    {"errno=ENOMEM verb=modify_qp host=0 rail=0 qpn=first", "qpn="},
    {"drop port=0", "'port=0'"},
    {"drop port=3", "'port=3'"},
    {"errno=EIO verb=init port=1", "port="},
    {"kill at=1ms host=0 rail=0 port=1", "port="},
    {"wedge=soft", "'wedge=soft'"},
    {"err=loud", "'err=loud'"},
    {"link=down nth=1 period=1ms", "period="},
    {"drop\ndup\nwrong", "'wrong'"},
    {"@/nonexistent/rules", "/nonexistent/rules"},
};

static void test_bad_rules_are_named(void **state)
{
	char err[400];

	(void)state;
	assert_int_equal(sv_stepped_open(NULL), 0);
	for (size_t i = 0; i < sizeof(bad_rules) / sizeof(bad_rules[0]); i++) {
		memset(err, 0, sizeof(err));
		if (sv_stepped_fault_add(bad_rules[i].rule, err, sizeof(err)) >= 0)
			fail_msg("'%s' was accepted", bad_rules[i].rule);
		if (!strstr(err, bad_rules[i].token))
			fail_msg("'%s': message without %s: %s", bad_rules[i].rule,
				 bad_rules[i].token, err);
	}
	/* None of them left anything behind. */
	assert_false(sv_stepped_fault_stats(0, &(uint64_t){0}, &(uint64_t){0}));
	assert_int_equal(sv_stepped_close(), 0);
}

static void test_long_rule_and_short_buffer(void **state)
{
	char rule[400], err[16];

	(void)state;
	assert_int_equal(sv_stepped_open(NULL), 0);
	memset(rule, 'x', sizeof(rule) - 1);
	rule[sizeof(rule) - 1] = '\0';
	for (size_t size = 0; size <= sizeof(err); size++)
		assert_true(sv_stepped_fault_add(rule, err, size) < 0);
	assert_int_equal(sv_stepped_close(), 0);
}

static void test_files_comments_and_separators(void **state)
{
	char path[] = "/tmp/sv-rules-XXXXXX", text[64];
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(sv_stepped_open(NULL), 0);
	assert_int_equal(
	    add_rule("drop, host=0,nth=1 # first\n\n  # nothing\n dup=2 ; delay=1.5us"), 0);
	assert_int_equal(add_rule("link=down host=1 rail=0 at=5ms for=1ms period=2ms count=3"), 3);
	assert_true(write(fd, "drop op=ack\ndrop op=nak\n", 24) == 24);
	close(fd);
	snprintf(text, sizeof(text), "@%s", path);
	assert_int_equal(add_rule(text), 4);
	assert_int_equal(add_rule("wc=FATAL_ERR"), 6);
	unlink(path);
	assert_int_equal(sv_stepped_fault_remove(99), -ENOENT);
	assert_int_equal(sv_stepped_fault_remove(-1), 0);
	assert_int_equal(add_rule("drop"), 0);
	assert_int_equal(sv_stepped_close(), 0);
}

static void test_table_fills_up(void **state)
{
	char err[200];

	(void)state;
	assert_int_equal(sv_stepped_open(NULL), 0);
	for (int i = 0; i < 64; i++)
		assert_int_equal(add_rule("drop qpn=1"), i);
	assert_int_equal(sv_stepped_fault_add("drop", err, sizeof(err)), -ENOSPC);
	assert_non_null(strstr(err, "64"));
	assert_int_equal(sv_stepped_close(), 0);
}

/* ---------------------------------------------------------------- when */

/* Ten writes of one packet each; the rule says how many are hit. */
static void when(const char *rule, uint64_t expect_matched, uint64_t expect_fired)
{
	struct world w;
	int id;

	world_open(&w, &(struct world_opts){.retry_cnt = 7});
	id = add_rule(rule);
	for (uint64_t i = 0; i < 10; i++)
		assert_int_equal(post(&w.a, IBV_WR_RDMA_WRITE, i, 0, 10, &w.b, 0), 0);
	settle();
	for (uint64_t i = 0; i < 10; i++)
		expect_wc(&w.a, i, IBV_WC_SUCCESS);
	if (matched(id) != expect_matched || fired(id) != expect_fired)
		fail_msg("'%s': matched %llu, fired %llu", rule, (unsigned long long)matched(id),
			 (unsigned long long)fired(id));
	world_close(&w);
}

static void test_when(void **state)
{
	(void)state;
	when("delay=1ns", 20, 20); /* requests and acks */
	when("delay=1ns op=write", 10, 10);
	when("delay=1ns op=ack", 10, 10);
	when("delay=1ns op=write|ack", 20, 20);
	when("delay=1ns host=0", 10, 10);
	when("delay=1ns host=1", 10, 10);
	when("delay=1ns host=1 dir=rx", 10, 10);
	when("delay=1ns host=0 peer=0", 0, 0);
	when("delay=1ns rail=1", 0, 0);
	when("delay=1ns op=write nth=3", 10, 1);
	when("delay=1ns op=write nth=3 count=4", 10, 4);
	when("delay=1ns op=write count=4", 10, 4);
	when("delay=1ns op=write every=3", 10, 3);
	when("delay=1ns op=write nth=2 every=4 count=9", 10, 3);
	when("delay=1ns op=write part=first", 10, 10);
	when("delay=1ns op=write part=middle", 0, 0);
	when("delay=1ns op=write minlen=11", 0, 0);
	when("delay=1ns op=write maxlen=9", 0, 0);
	when("delay=1ns op=write minlen=10 maxlen=10", 10, 10);
	when("delay=1ns qpn=1", 0, 0);
	when("delay=1ns op=write qpn=first host=0 rail=0", 10, 10); /* all are of one */
	when("delay=1ns op=write qpn=first host=0 rail=0 nth=3 count=4", 10, 4);
	when("delay=1ns op=write at=1s", 0, 0);
	when("delay=1ns op=write until=1ns", 10, 10); /* all are sent at time 0 */
	when("delay=1ns op=ack until=1ns", 0, 0);
	when("delay=1us op=write prob=1", 10, 10);
	when("drop op=read", 0, 0);
}

/* Of two queue pairs of a device the one that writes first, from then on. */
static void test_the_first_queue_pair(void **state)
{
	struct ibv_qp_init_attr init = {.cap = {.max_send_wr = 8, .max_recv_wr = 8},
					.qp_type = IBV_QPT_RC};
	struct end other[2];
	struct world w;
	int id;

	(void)state;
	world_open(&w, &(struct world_opts){.retry_cnt = 1});
	other[0] = w.a;
	other[1] = w.b;
	for (struct end *e = other; e < other + 2; e++) {
		init.send_cq = init.recv_cq = e->cq;
		e->qp = ibv_create_qp(e->pd, &init);
		assert_non_null(e->qp);
	}
	connect_ends(&other[0], &other[1], NULL);
	id = add_rule("drop op=write qpn=first host=0 rail=0");
	assert_int_equal(post(&other[0], IBV_WR_RDMA_WRITE, 1, 0, 10, &other[1], 0), 0);
	for (uint64_t i = 2; i < 7; i++)
		assert_int_equal(post(&w.a, IBV_WR_RDMA_WRITE, i, 0, 10, &w.b, 0), 0);
	sv_stepped_run(100000); /* far below the retry time */
	assert_int_equal(fired(id), 1);
	for (uint64_t i = 2; i < 7; i++)
		expect_wc(&w.a, i, IBV_WC_SUCCESS);
	settle();
	expect_wc(&other[0], 1, IBV_WC_RETRY_EXC_ERR);
	assert_true(fired(id) > 1); /* it was tried again */
	assert_int_equal(ibv_destroy_qp(other[0].qp), 0);
	assert_int_equal(ibv_destroy_qp(other[1].qp), 0);
	world_close(&w);
}

static void test_probability(void **state)
{
	struct world w;
	int id;

	(void)state;
	world_open(&w, NULL);
	id = add_rule("dup op=write prob=0.25 seed=7");
	for (int i = 0; i < 100; i++) {
		for (uint64_t k = 0; k < 40; k++)
			assert_int_equal(post_flags(&w.a, IBV_WR_RDMA_WRITE, k, 0, 10, &w.b, 0, 0),
					 0);
		settle();
	}
	assert_int_equal(matched(id), 4000);
	assert_in_range(fired(id), 880, 1120);
	world_close(&w);
}

/* ---------------------------------------------------------------- verbs */

/* A verb of the data path, by name. */
static int try_data_verb(struct world *w, const char *verb)
{
	struct ibv_wc wc;

	if (!strcmp(verb, "post_send"))
		return post(&w->a, IBV_WR_RDMA_WRITE, 1, 0, 1, &w->b, 0);
	if (!strcmp(verb, "post_recv"))
		return post_recv(&w->a, 1, 0, 1);
	if (!strcmp(verb, "post_srq_recv"))
		return post_recv(&w->b, 1, 0, 1);
	if (!strcmp(verb, "poll_cq"))
		return -ibv_poll_cq(w->a.cq, 1, &wc);
	if (!strcmp(verb, "req_notify_cq"))
		return ibv_req_notify_cq(w->a.cq, 0);
	fail_msg("no way to call %s", verb);
	return 0;
}

static const char *const data_verbs[] = {"post_send", "post_recv", "post_srq_recv", "poll_cq",
					 "req_notify_cq"};
#define NUM_DATA_VERBS (sizeof(data_verbs) / sizeof(data_verbs[0]))

static int try_verb(struct world *w, const char *verb)
{
	const struct verb_call *call = verb_call_named(verb);
	const struct verb_target target = target_of(&w->a);

	return call ? call->call(&target) : try_data_verb(w, verb);
}

static void verb_fails(const char *verb)
{
	bool on_b = !strcmp(verb, "post_srq_recv");
	char rule[80];
	struct world w;
	int id;

	world_open(&w, &(struct world_opts){.srq_wrs = 4});
	snprintf(rule, sizeof(rule), "errno=EBUSY verb=%s host=%d nth=2 count=1", verb, on_b);
	id = add_rule(rule);
	/* The second is hit and no other. */
	assert_int_equal(try_verb(&w, verb), 0);
	assert_int_equal(try_verb(&w, verb), EBUSY);
	assert_int_equal(fired(id), 1);
	assert_int_equal(try_verb(&w, verb), 0);
	assert_int_equal(ibv_close_device(w.a.ctx), 0);
	assert_int_equal(ibv_close_device(w.b.ctx), 0);
	free(w.a.buf);
	free(w.b.buf);
	settle();
	assert_int_equal(sv_stepped_close(), 0);
}

static void test_each_verb_fails(void **state)
{
	(void)state;
	for (size_t i = 0; i < num_verb_calls; i++)
		if (strcmp(verb_calls[i].name, "close_device") != 0) /* which cannot */
			verb_fails(verb_calls[i].name);
	for (size_t i = 0; i < NUM_DATA_VERBS; i++)
		verb_fails(data_verbs[i]);
}

/* ---------------------------------------------------------------- completions */

static const struct {
	const char *name;
	enum ibv_wc_status status;
} statuses[] = {
    {"LOC_LEN_ERR", IBV_WC_LOC_LEN_ERR},	   {"LOC_QP_OP_ERR", IBV_WC_LOC_QP_OP_ERR},
    {"LOC_PROT_ERR", IBV_WC_LOC_PROT_ERR},	   {"WR_FLUSH_ERR", IBV_WC_WR_FLUSH_ERR},
    {"MW_BIND_ERR", IBV_WC_MW_BIND_ERR},	   {"BAD_RESP_ERR", IBV_WC_BAD_RESP_ERR},
    {"LOC_ACCESS_ERR", IBV_WC_LOC_ACCESS_ERR},	   {"REM_INV_REQ_ERR", IBV_WC_REM_INV_REQ_ERR},
    {"REM_ACCESS_ERR", IBV_WC_REM_ACCESS_ERR},	   {"REM_OP_ERR", IBV_WC_REM_OP_ERR},
    {"RETRY_EXC_ERR", IBV_WC_RETRY_EXC_ERR},	   {"RNR_RETRY_EXC_ERR", IBV_WC_RNR_RETRY_EXC_ERR},
    {"REM_ABORT_ERR", IBV_WC_REM_ABORT_ERR},	   {"FATAL_ERR", IBV_WC_FATAL_ERR},
    {"RESP_TIMEOUT_ERR", IBV_WC_RESP_TIMEOUT_ERR}, {"GENERAL_ERR", IBV_WC_GENERAL_ERR},
};
#define NUM_STATUSES (sizeof(statuses) / sizeof(statuses[0]))

/* The second of three writes fails; its data is there, or was never sent. */
static void wc_fault(size_t i, bool sent)
{
	char rule[80];
	struct world w;
	int id;

	world_open(&w, NULL);
	snprintf(rule, sizeof(rule), "wc=%s host=0 op=write nth=2 sent=%d", statuses[i].name, sent);
	id = add_rule(rule);
	memset(w.a.buf, 0x77, 300);
	for (uint32_t k = 0; k < 3; k++)
		assert_int_equal(post_flags(&w.a, IBV_WR_RDMA_WRITE, k, k * 100, 100, &w.b, k * 100,
					    k == 0 ? IBV_SEND_SIGNALED : 0),
				 0);
	settle();
	expect_wc(&w.a, 0, IBV_WC_SUCCESS);
	expect_wc(&w.a, 1, statuses[i].status); /* heard of though unsignalled */
	expect_wc(&w.a, 2, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(fired(id), 1);
	assert_int_equal(state_of(w.a.qp), IBV_QPS_ERR);
	assert_int_equal(w.b.buf[0], 0x77);
	assert_int_equal(w.b.buf[100], sent ? 0x77 : 0);
	world_close(&w);
}

static void test_each_status(void **state)
{
	(void)state;
	for (size_t i = 0; i < NUM_STATUSES; i++) {
		wc_fault(i, true);
		wc_fault(i, false);
	}
}

static void test_receive_status(void **state)
{
	struct world w;
	int id;

	(void)state;
	world_open(&w, NULL);
	id = add_rule("wc=FATAL_ERR host=1 op=recv nth=2");
	for (uint64_t i = 0; i < 3; i++) {
		assert_int_equal(post_recv(&w.b, i, 0, 10), 0);
		assert_int_equal(post(&w.a, IBV_WR_SEND, i, 0, 10, NULL, 0), 0);
	}
	settle();
	expect_wc(&w.b, 0, IBV_WC_SUCCESS);
	expect_wc(&w.b, 1, IBV_WC_FATAL_ERR);
	expect_wc(&w.b, 2, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(fired(id), 1);
	world_close(&w);
}

/* ---------------------------------------------------------------- events, links */

static void test_event_at_a_packet_and_at_a_time(void **state)
{
	struct world w;

	(void)state;
	world_open(&w, NULL);
	add_rule("event=PORT_ERR host=1 dir=rx op=write nth=2\n"
		 "event=LID_CHANGE host=0 rail=0 at=3ms");
	for (uint64_t i = 0; i < 3; i++)
		assert_int_equal(post(&w.a, IBV_WR_RDMA_WRITE, i, 0, 10, &w.b, 0), 0);
	sv_stepped_step();
	expect_no_event(w.b.ctx);
	sv_stepped_step();
	expect_event(w.b.ctx, IBV_EVENT_PORT_ERR);
	sv_stepped_run(2999999);
	expect_no_event(w.a.ctx);
	sv_stepped_run(3000000);
	expect_event(w.a.ctx, IBV_EVENT_LID_CHANGE);
	settle();
	expect_no_event(w.b.ctx);
	world_close(&w);
}

static void test_flapping_link(void **state)
{
	struct world w;
	int id;

	(void)state;
	world_open(&w, NULL);
	id = add_rule("link=down host=0 rail=0 at=1ms for=300us period=1ms count=5");
	settle();
	for (int i = 0; i < 5; i++) {
		expect_event(w.a.ctx, IBV_EVENT_PORT_ERR);
		expect_event(w.a.ctx, IBV_EVENT_PORT_ACTIVE);
	}
	expect_no_event(w.a.ctx);
	assert_int_equal(fired(id), 5);
	assert_int_equal(sv_stepped_now(), 5300000);
	world_close(&w);
}

/* The packet that brings the link down is lost with it, at either end, and so for a cut. */
static void link_fault(const char *rule, bool event_at_a, bool event_at_b)
{
	struct sv_stepped_stats stats;
	struct world w;
	int id;

	world_open(&w, NULL);
	id = add_rule(rule);
	memset(w.a.buf, 0x66, 3072);
	assert_int_equal(post(&w.a, IBV_WR_RDMA_WRITE, 1, 0, 3072, &w.b, 0), 0);
	sv_stepped_run(100000);
	assert_int_equal(fired(id), 1);
	assert_int_equal(w.b.buf[1023], 0x66);
	assert_int_equal(w.b.buf[1024], 0);
	sv_stepped_get_stats(&stats);
	assert_int_equal(stats.lost_fault, 1);
	assert_int_equal(stats.lost_link + stats.lost_cut, 1);
	settle();
	if (event_at_a) {
		expect_event(w.a.ctx, IBV_EVENT_PORT_ERR);
		expect_event(w.a.ctx, IBV_EVENT_PORT_ACTIVE);
	}
	if (event_at_b) {
		expect_event(w.b.ctx, IBV_EVENT_PORT_ERR);
		expect_event(w.b.ctx, IBV_EVENT_PORT_ACTIVE);
	}
	expect_no_event(w.a.ctx);
	expect_no_event(w.b.ctx);
	expect_wc(&w.a, 1, IBV_WC_SUCCESS); /* up again before the retries ended */
	assert_int_equal(w.b.buf[3071], 0x66);
	world_close(&w);
}

static void test_link_rules(void **state)
{
	(void)state;
	link_fault("link=down host=1 dir=rx op=write nth=2 for=5ms", false, true);
	link_fault("cut dir=rx op=write nth=2 for=5ms", false, false);
}

/* On the sending side the link goes with the packet that leaves. */
static void test_link_down_where_it_leaves(void **state)
{
	struct world w;
	int id;

	(void)state;
	world_open(&w, &(struct world_opts){.fabric = {.window_packets = 1}});
	id = add_rule("link=down host=0 op=write nth=2 for=5ms");
	memset(w.a.buf, 0x66, 3072);
	assert_int_equal(post(&w.a, IBV_WR_RDMA_WRITE, 1, 0, 3072, &w.b, 0), 0);
	sv_stepped_run(100000);
	assert_int_equal(fired(id), 1);
	expect_event(w.a.ctx, IBV_EVENT_PORT_ERR);
	assert_int_equal(w.b.buf[1023], 0x66);
	assert_int_equal(w.b.buf[1024], 0);
	settle();
	expect_event(w.a.ctx, IBV_EVENT_PORT_ACTIVE);
	expect_wc(&w.a, 1, IBV_WC_SUCCESS);
	world_close(&w);
}

static void test_slow_link(void **state)
{
	uint64_t normal_ns;
	struct world w;

	(void)state;
	world_open(&w, NULL);
	assert_int_equal(post(&w.a, IBV_WR_RDMA_WRITE, 1, 0, 65536, &w.b, 0), 0);
	settle();
	normal_ns = sv_stepped_now();
	add_rule("slow=50 host=0 op=write");
	assert_int_equal(post(&w.a, IBV_WR_RDMA_WRITE, 2, 0, 65536, &w.b, 0), 0);
	settle();
	/* 64 KiB at 400 Gb/s take 1.4 us of the first run's 3.4. */
	assert_true(sv_stepped_now() - normal_ns > 10 * normal_ns);
	expect_wc(&w.a, 1, IBV_WC_SUCCESS);
	expect_wc(&w.a, 2, IBV_WC_SUCCESS);
	world_close(&w);
}

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* How late each of many packets is by this rule, sorted. */
static void lateness(const char *rule, uint64_t *late_ns, size_t n)
{
	uint64_t undelayed_ns = 0, since_ns;
	struct world w;

	world_open(&w, &(struct world_opts){.timeout = 20});
	for (size_t i = 0; i <= n; i++) {
		if (i == 1)
			add_rule(rule);
		since_ns = sv_stepped_now();
		assert_int_equal(post(&w.a, IBV_WR_RDMA_WRITE, i, 0, 10, &w.b, 0), 0);
		settle();
		expect_wc(&w.a, i, IBV_WC_SUCCESS);
		if (i == 0)
			undelayed_ns = sv_stepped_now();
		else
			late_ns[i - 1] = sv_stepped_now() - since_ns - undelayed_ns;
	}
	world_close(&w);
	qsort(late_ns, n, sizeof(*late_ns), by_size);
}

static void test_jitter_is_distributed_as_it_says(void **state)
{
	enum { N = 4000 };
	static uint64_t late_ns[N];
	uint64_t sum;

	(void)state;
	lateness("delay=5us jitter=100us op=write seed=3", late_ns, N);
	assert_in_range(late_ns[0], 5000, 5500);
	assert_in_range(late_ns[N / 4], 28000, 32000);
	assert_in_range(late_ns[N / 2], 53000, 57000);
	assert_in_range(late_ns[N - 1], 104500, 105000);

	/* The median of an exponential is ln 2 of its mean, one in 20 is above ln 20 of it. */
	lateness("delay=0ns jitter=100us dist=exp op=write seed=4", late_ns, N);
	sum = 0;
	for (size_t i = 0; i < N; i++)
		sum += late_ns[i];
	assert_in_range(sum / N, 96000, 104000);
	assert_in_range(late_ns[N / 2], 66000, 73000);
	assert_in_range(late_ns[N - N / 20], 283000, 317000);
	assert_true(late_ns[N - 1] > 600000);
}

/* A queue: what comes behind a late packet is late as well, and nothing has to be sent again. */
static void test_jitter_keeps_the_order(void **state)
{
	struct sv_stepped_stats stats;
	struct world w;

	(void)state;
	world_open(&w, &(struct world_opts){.timeout = 20});
	add_rule("delay=0ns jitter=50us dist=exp op=write seed=5");
	for (uint64_t i = 0; i < 32; i++)
		assert_int_equal(post(&w.a, IBV_WR_RDMA_WRITE, i, 0, 3000, &w.b, 0), 0);
	settle();
	for (uint64_t i = 0; i < 32; i++)
		expect_wc(&w.a, i, IBV_WC_SUCCESS);
	sv_stepped_get_stats(&stats);
	assert_int_equal(stats.delayed, 96);  /* three packets each */
	assert_in_range(stats.sent, 97, 128); /* and acknowledgements */
	world_close(&w);
}

/* A link that is paused: nothing is lost, nothing overtakes, all goes on at the end of the pause.
 */
static void held_in(const char *rule)
{
	struct sv_stepped_stats stats;
	struct world w;
	int id;

	world_open(&w, &(struct world_opts){.timeout = 20});
	id = add_rule(rule);
	for (uint64_t i = 0; i < 8; i++) {
		assert_int_equal(
		    post(&w.a, IBV_WR_RDMA_WRITE, i, 0, 100 * (uint32_t)i + 1, &w.b, 0), 0);
		sv_stepped_run(sv_stepped_now() + 500000);
	}
	expect_no_wc(&w.a);
	assert_true(sv_stepped_now() < 5000000);
	settle();
	assert_in_range(sv_stepped_now(), 5000000, 5010000);
	for (uint64_t i = 0; i < 8; i++)
		expect_wc(&w.a, i, IBV_WC_SUCCESS);
	assert_int_equal(fired(id), 8);
	sv_stepped_get_stats(&stats);
	assert_int_equal(stats.delayed, 8);
	assert_int_equal(stats.sent, 16); /* nothing was sent twice */
	assert_int_equal(post(&w.a, IBV_WR_RDMA_WRITE, 9, 0, 10, &w.b, 0), 0);
	settle();
	expect_wc(&w.a, 9, IBV_WC_SUCCESS);
	assert_in_range(sv_stepped_now(), 5000000, 5020000);
	world_close(&w);
}

static void test_a_held_link_goes_on_in_order(void **state)
{
	(void)state;
	held_in("hold until=5ms op=write");
	held_in("hold until=5ms op=write dir=rx");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_bad_rules_are_named),
	    cmocka_unit_test(test_long_rule_and_short_buffer),
	    cmocka_unit_test(test_files_comments_and_separators),
	    cmocka_unit_test(test_table_fills_up),
	    cmocka_unit_test(test_when),
	    cmocka_unit_test(test_the_first_queue_pair),
	    cmocka_unit_test(test_probability),
	    cmocka_unit_test(test_each_status),
	    cmocka_unit_test(test_receive_status),
	    cmocka_unit_test(test_event_at_a_packet_and_at_a_time),
	    cmocka_unit_test(test_flapping_link),
	    cmocka_unit_test(test_link_rules),
	    cmocka_unit_test(test_link_down_where_it_leaves),
	    cmocka_unit_test(test_slow_link),
	    cmocka_unit_test(test_jitter_is_distributed_as_it_says),
	    cmocka_unit_test(test_jitter_keeps_the_order),
	    cmocka_unit_test(test_a_held_link_goes_on_in_order),
	    cmocka_unit_test(test_each_verb_fails),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
