/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One stream over verbs: a sender's journal, a receiver's inbox and its applier post on queue pairs
 * of a stepped fabric, with two rails. Data and signal words are in the memory of a GPU that is a
 * stand-in, into which the receiver's NICs write late. Something fails at each event of a run in
 * turn, or at each third: ports, the wire, one direction of it, either NIC, queue pairs, the
 * loopback; the stream goes on over the other rail.
 *
 * A kernel watches the words: whatever a signal tells it of must be there, and is filled anew; a
 * write that comes later is seen at the end, and so is a sum that is not exact.
 */
#include "../simverbs/world.h"

#include "fakecuda.h"
#include "gin/inbox.h"
#include "gin/journal.h"
#include "gin/record.h"
#include "transport/labels.h"

#include <arpa/inet.h>
#include <malloc.h>

#define OPS	  8
#define ROOM	  3
#define RAILS	  2
#define WORDS	  2
#define DATA	  1500u /* two packets */
#define STRIDE	  2048u
#define TARGETS	  64u
#define GPU_SIZE  (TARGETS + OPS * STRIDE)
#define TOLD	  (OPS * STRIDE) /* in the sender's memory */
#define CONSUMED  0xc0
#define POISON	  0xde
#define JITTER_NS 3000

enum fault {
	NOTHING,
	PORT_OF_SENDER,
	PORT_OF_RECEIVER,
	CUT,
	NO_ACKNOWLEDGEMENTS,
	NO_DATA,
	NIC_OF_SENDER,
	NIC_OF_RECEIVER,
	NIC_UNPLACED,
	QP_OF_SENDER,
	QP_OF_RECEIVER,
	LOOPBACK,
	LOOPBACK_WEDGED,
	ALARM,
	FAULTS
};

static struct run {
	struct end s[RAILS], r[RAILS], l[RAILS];
	uint8_t *gpu, *view; /* as the program knows it, as a kernel sees it */
	struct ibv_mr *gpu_of_r[RAILS], *gpu_of_l[RAILS];
	enum fault fault;
	uint8_t *old_loopback; /* its memory */
	struct ha_gin_journal journal;
	struct ha_gin_inbox inbox;
	struct ha_gin_applier applier;
	struct ha_gin_word words[WORDS];
	struct ha_gin_record record[OPS]; /* addend 0: a put alone */
	uint64_t released, told;
	bool is_reading[OPS];
	bool is_troubled, is_lost;
	unsigned int stage;
	uint32_t epoch; /* and so the rail */
	int rule;
} w;

static struct world_opts opts = {
    .fabric = {.hosts = 2, .rails = RAILS, .gpu = true, .isolated_rails = true},
    .max_inline = 64,
};

static uint64_t stride = 3;    /* events from one failure to the next */
static uint64_t schedules = 1; /* in each of which packets have delays of their own */

/* How often in all runs of a test. */
static struct {
	unsigned int runs, fired, failovers, replays, lost, cannot_tell, reads, taken_back, gave_up,
	    flushes, unplaced;
} seen;

static unsigned int fill_of(uint64_t number)
{
	return (unsigned int)number + 1;
}

static uint8_t *target(uint64_t number)
{
	return w.view + TARGETS + number * STRIDE;
}

static uint64_t word_now(unsigned int word)
{
	uint64_t value;

	memcpy(&value, w.view + 8 * word, sizeof(value));
	return value;
}

/* ---- the kernel ----------------------------------------------------------------------------- */

static bool is_filled(uint64_t number)
{
	uint8_t expected[DATA];

	fill(expected, DATA, fill_of(number));
	return memcmp(target(number), expected, DATA) == 0;
}

static void is_told(uint64_t number)
{
	for (; w.told <= number; w.told++) {
		if (!is_filled(w.told) && w.applier.gave_up == 0)
			fail_msg("torn: %u", (unsigned int)w.told);
		memset(target(w.told), CONSUMED, DATA);
	}
}

/* Each value of a word is the sum of its signals up to one. */
static void kernel_looks(void)
{
	for (unsigned int word = 0; word < WORDS; word++) {
		uint64_t sum = 0, now = word_now(word);
		bool is_sum = now == 0;

		for (uint64_t k = 0; k < OPS && sum < now; k++) {
			if (!w.record[k].addend || w.record[k].offset != 8u * word)
				continue;
			sum += w.record[k].addend;
			is_sum |= sum == now;
			if (sum == now)
				is_told(k < w.told ? w.told - 1 : k);
		}
		if (!is_sum)
			fail_msg("the word is %u", (unsigned int)now);
	}
}

/* ---- the sender ----------------------------------------------------------------------------- */

static int post_write(struct end *e, enum ibv_wr_opcode op, uint64_t id, uint32_t imm,
		      struct ibv_sge sge, uint64_t to, uint32_t rkey, unsigned int flags)
{
	struct ibv_send_wr wr = wr_of(op, id, &sge), *bad;

	wr.send_flags = flags;
	wr.imm_data = htonl(imm);
	wr.wr.rdma.remote_addr = to;
	wr.wr.rdma.rkey = rkey;
	return ibv_post_send(e->qp, &wr, &bad);
}

static void post_operation(uint64_t k)
{
	struct end *s = &w.s[w.epoch], *r = &w.r[w.epoch];
	struct ha_gin_record *record = &w.record[k];
	uint32_t imm = ha_imm_pack(k, w.epoch, 1, record->addend != 0);
	struct ibv_sge data = {(uintptr_t)s->buf + k * STRIDE, DATA, s->mr->lkey};
	struct ibv_sge inlined = {(uintptr_t)record, sizeof(*record), 0};
	uint64_t to = (uintptr_t)w.gpu + TARGETS + k * STRIDE;
	uint32_t rkey = w.gpu_of_r[w.epoch]->rkey;
	int rc;

	record->epoch = w.epoch;
	if (!record->addend) {
		rc = post_write(s, IBV_WR_RDMA_WRITE_WITH_IMM, k, imm, data, to, rkey,
				IBV_SEND_SIGNALED);
	} else {
		rc = post_write(s, IBV_WR_RDMA_WRITE, k, 0, data, to, rkey, 0);
		if (rc == 0)
			rc = post_write(s, IBV_WR_RDMA_WRITE_WITH_IMM, k, imm, inlined,
					(uintptr_t)r->buf + k % ROOM * sizeof(*record), r->mr->rkey,
					IBV_SEND_SIGNALED | IBV_SEND_INLINE);
	}
	if (rc != 0)
		w.is_troubled = true;
}

static void release(void)
{
	for (; w.released < ha_gin_completed(&w.journal); w.released++)
		for (unsigned int rail = 0; rail < RAILS; rail++)
			memset(w.s[rail].buf + w.released * STRIDE, POISON, DATA);
}

static void sender_polls(void)
{
	struct end *s = &w.s[w.epoch];
	struct ibv_wc wc;
	uint64_t told;

	while (ibv_poll_cq(s->cq, 1, &wc) > 0) {
		if (wc.status == IBV_WC_SUCCESS)
			ha_gin_acknowledge(&w.journal, w.epoch, wc.wr_id);
		else
			w.is_troubled = true;
	}
	memcpy(&told, s->buf + TOLD, sizeof(told));
	ha_gin_hear_applied(&w.journal, w.epoch, told);
	release();
}

static void sender_works(void)
{
	uint64_t k;

	sender_polls();
	while (ha_gin_post(&w.journal, &k))
		post_operation(k);
}

/* ---- the receiver --------------------------------------------------------------------------- */

static void arrives(const struct ibv_wc *wc)
{
	uint32_t imm = ntohl(wc->imm_data);
	uint64_t k = ha_imm_seq(imm);
	const struct ha_gin_region region = {w.words, sizeof(w.words) / sizeof(w.words[0]) * 8};
	const volatile struct ha_gin_record *ring = (const void *)w.r[w.epoch].buf;
	struct ha_gin_record record = {0};
	struct ha_gin_word *word = NULL;
	enum ha_gin_arrival arrival;

	if (ha_imm_record(imm))
		assert_true(ha_gin_record_take(&ring[k % ROOM], k, ha_imm_epoch(imm), &region, 1,
					       &record, &word));
	arrival = ha_gin_count(&w.inbox, ha_imm_epoch(imm), k, word, record.addend);
	assert_int_equal(arrival, HA_GIN_COUNTED);
}

static void receiver_polls(void)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(w.r[w.epoch].cq, 1, &wc) > 0) {
		if (wc.status != IBV_WC_SUCCESS)
			w.is_troubled = true;
		else if (wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM)
			arrives(&wc);
	}
}

static void take_loopback(unsigned int n, const struct ibv_wc *wc)
{
	enum ha_gin_do what = (enum ha_gin_do)(wc->wr_id >> 8);
	uint64_t k = wc->wr_id & 0xff, value, turned = w.inbox.turned;

	memcpy(&value, w.l[n].buf + 8 * k, sizeof(value));
	switch (what) {
	case HA_GIN_ADD:
		assert_true(ha_gin_added(&w.inbox, k, value));
		break;
	case HA_GIN_READ:
		w.is_reading[k] = false;
		assert_true(ha_gin_was_read(&w.inbox, k, value));
		seen.reads++;
		seen.taken_back += w.inbox.turned < turned;
		break;
	case HA_GIN_FLUSH:
		assert_true(ha_gin_flushed(&w.applier, n));
		seen.flushes++;
		break;
	case HA_GIN_SET: /* of words that are never set to zero */
	case HA_GIN_WAIT:
		fail();
	}
}

/* False: something has failed on it. */
static bool poll_loopback(unsigned int n)
{
	struct ibv_wc wc;
	bool works = true;

	while (ibv_poll_cq(w.l[n].cq, 1, &wc) > 0) {
		works &= wc.status == IBV_WC_SUCCESS;
		if (wc.status == IBV_WC_SUCCESS)
			take_loopback(n, &wc);
	}
	return works;
}

static void open_loopback(unsigned int n)
{
	struct end *l = &w.l[n];

	end_open(l, 1, n, &opts);
	assert_int_equal(to_init(l, &opts), 0);
	assert_int_equal(to_rtr(l, l, &opts), 0);
	assert_int_equal(to_rts(l, &opts), 0);
	w.gpu_of_l[n] = ibv_reg_mr(l->pd, w.gpu, GPU_SIZE, all_access);
	assert_non_null(w.gpu_of_l[n]);
}

/* It is destroyed: then it can do nothing any more. Where the NIC lives, there is another one. */
static void loopback_fails(unsigned int n)
{
	bool nic_died = n == 0 && (w.fault == NIC_OF_RECEIVER || w.fault == NIC_UNPLACED);

	if (nic_died)
		ha_gin_nic_died(&w.applier, n);
	else
		ha_gin_loopback_failed(&w.applier, n);
	to_state(w.l[n].qp, IBV_QPS_ERR);
	poll_loopback(n);
	ibv_destroy_qp(w.l[n].qp);
	w.l[n].qp = NULL;
	ha_gin_loopback_fenced(&w.applier, n);
	for (uint64_t k = 0; k < OPS; k++)
		if (w.is_reading[k])
			assert_true(ha_gin_read_failed(&w.inbox, k));
	memset(w.is_reading, 0, sizeof(w.is_reading));
	if (nic_died)
		return;
	assert_null(w.old_loopback);
	w.old_loopback = w.l[n].buf;
	open_loopback(n);
	assert_true(ha_gin_loopback_made(&w.applier, n));
}

static void do_task(const struct ha_gin_task *task)
{
	struct end *l = &w.l[task->nic];
	uint64_t at = (uintptr_t)w.gpu + 8u * (uint64_t)(task->word ? task->word - w.words : 0);
	struct ibv_sge sge = {(uintptr_t)l->buf + 8 * task->number, 8, l->mr->lkey};
	struct ibv_send_wr wr =
	    wr_of(IBV_WR_RDMA_READ, (uint64_t)task->what << 8 | task->number, &sge);
	struct ibv_send_wr *bad;
	int rc;

	if (task->what == HA_GIN_ADD) {
		wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
		wr.wr.atomic.remote_addr = at;
		wr.wr.atomic.rkey = w.gpu_of_l[task->nic]->rkey;
		wr.wr.atomic.compare_add = task->addend;
	} else {
		wr.wr.rdma.remote_addr = at;
		wr.wr.rdma.rkey = w.gpu_of_l[task->nic]->rkey;
	}
	w.is_reading[task->number] |= task->what == HA_GIN_READ;
	rc = ibv_post_send(l->qp, &wr, &bad);
	if (rc != 0)
		loopback_fails(task->nic);
}

static void receiver_works(void)
{
	struct end *s = &w.s[w.epoch], *r = &w.r[w.epoch];
	struct ha_gin_task task;
	uint64_t applied;

	receiver_polls();
	for (unsigned int n = 0; n < RAILS; n++)
		if (w.l[n].qp && !poll_loopback(n))
			loopback_fails(n);
	while ((task = ha_gin_next(&w.inbox)).what != HA_GIN_WAIT)
		do_task(&task);
	if (ha_gin_tell(&w.inbox, &applied) &&
	    post_write(r, IBV_WR_RDMA_WRITE, 0, 0, (struct ibv_sge){(uintptr_t)&applied, 8, 0},
		       (uintptr_t)s->buf + TOLD, s->mr->rkey,
		       IBV_SEND_SIGNALED | IBV_SEND_INLINE) != 0)
		w.is_troubled = true;
}

/* ---- failover ------------------------------------------------------------------------------- */

static void fence_sender(void)
{
	to_state(w.s[0].qp, IBV_QPS_ERR);
	sender_polls();
	ibv_destroy_qp(w.s[0].qp);
	w.s[0].qp = NULL;
	ha_gin_journal_fenced(&w.journal);
}

static void fence_receiver(void)
{
	to_state(w.r[0].qp, IBV_QPS_ERR);
	receiver_polls();
	ibv_destroy_qp(w.r[0].qp);
	w.r[0].qp = NULL;
	ha_gin_inbox_fenced(&w.inbox);
}

static void resume(void)
{
	struct ha_gin_verdict verdict;
	uint64_t posted = w.journal.posted;

	assert_true(ha_gin_inbox_verdict(&w.inbox, &verdict));
	switch (ha_gin_journal_resume(&w.journal, 1, &verdict)) {
	case HA_GIN_RESUMED:
		break;
	case HA_GIN_LOST:
		w.is_lost = true;
		return;
	default:
		fail();
	}
	assert_true(ha_gin_inbox_resume(&w.inbox, 1, 1));
	w.epoch = 1;
	w.is_troubled = false;
	seen.failovers++;
	seen.replays += verdict.counted < posted;
}

/* A step of it, between events of the fabric; which end is fenced first, changes. */
static void fails_over(bool sender_first)
{
	switch (w.stage++) {
	case 0:
		ha_gin_journal_fence(&w.journal);
		ha_gin_inbox_fence(&w.inbox);
		break;
	case 1:
	case 2:
		if ((w.stage == 2) == sender_first)
			fence_sender();
		else
			fence_receiver();
		break;
	case 3:
		resume();
		break;
	default:
		fail_msg("the second path fails, too");
	}
}

/* Nothing happens any more, and somebody waits: what a timer would find. */
static void times_out(void)
{
	unsigned int flushing =
	    w.applier.flushing ? (unsigned int)__builtin_ctz(w.applier.flushing) : 0;

	if (w.applier.open && w.applier.works >> w.applier.adder & 1)
		loopback_fails(w.applier.adder);
	else if (w.applier.flushing)
		loopback_fails(flushing);
	else if (w.epoch == 0)
		w.is_troubled = true;
	else
		fail_msg("stuck");
}

/* ---- runs ----------------------------------------------------------------------------------- */

static void happens(enum fault fault)
{
	switch (fault) {
	case PORT_OF_SENDER:
		sv_stepped_link(0, 0, false);
		break;
	case PORT_OF_RECEIVER:
		sv_stepped_link(1, 0, false);
		break;
	case CUT:
		sv_stepped_cut(0, true);
		break;
	case NO_ACKNOWLEDGEMENTS:
		sv_stepped_block(1, 0, 0, 0, true);
		break;
	case NO_DATA:
		sv_stepped_block(0, 0, 1, 0, true);
		break;
	case NIC_OF_SENDER:
		sv_stepped_kill(0, 0);
		break;
	case NIC_OF_RECEIVER:
		sv_stepped_kill(1, 0);
		break;
	case QP_OF_SENDER:
		if (w.s[0].qp)
			assert_int_equal(to_state(w.s[0].qp, IBV_QPS_ERR), 0);
		break;
	case QP_OF_RECEIVER:
		if (w.r[0].qp)
			assert_int_equal(to_state(w.r[0].qp, IBV_QPS_ERR), 0);
		break;
	case LOOPBACK:
		assert_int_equal(to_state(w.l[0].qp, IBV_QPS_ERR), 0);
		break;
	case LOOPBACK_WEDGED:
		assert_true(sv_stepped_wedge(1, 0, w.l[0].qp->qp_num, true));
		break;
	case ALARM:
		w.is_troubled = true;
		break;
	case NOTHING:
	case NIC_UNPLACED:
	case FAULTS:
		break;
	}
}

static void open_run(enum fault fault, uint64_t index)
{
	char rule[100];

	memset(&w, 0, sizeof(w));
	w.fault = fault;
	sv_stepped_destroy();
	assert_int_equal(sv_stepped_open(&opts.fabric), 0);
	w.gpu = fakecuda_alloc(GPU_SIZE);
	w.view = fakecuda_look(w.gpu);
	memset(w.view, 0, GPU_SIZE);
	for (unsigned int n = 0; n < RAILS; n++) {
		end_open(&w.s[n], 0, n, &opts);
		end_open(&w.r[n], 1, n, &opts);
		connect_ends(&w.s[n], &w.r[n], &opts);
		open_loopback(n);
		w.gpu_of_r[n] = ibv_reg_mr(w.r[n].pd, w.gpu, GPU_SIZE, all_access);
		assert_non_null(w.gpu_of_r[n]);
		for (unsigned int i = 0; i < OPS; i++)
			assert_int_equal(post_recv(&w.r[n], i, 0, 0), 0);
		for (uint64_t k = 0; k < OPS; k++)
			fill(w.s[n].buf + k * STRIDE, DATA, fill_of(k));
	}
	add_rule("gpu=reorder within=20us host=1");
	if (fault == NIC_UNPLACED) {
		snprintf(rule, sizeof(rule), "kill=unplaced host=1 rail=0 op=write dir=rx nth=%u",
			 (unsigned int)index + 1);
		w.rule = add_rule(rule);
	}
}

static void close_run(void)
{
	sv_stepped_destroy();
	for (unsigned int n = 0; n < RAILS; n++) {
		free(w.s[n].buf);
		free(w.r[n].buf);
		free(w.l[n].buf);
	}
	free(w.old_loopback);
	fakecuda_free(w.gpu);
}

static bool is_finished(void)
{
	return w.is_lost || w.applier.over != HA_GIN_WORKS ||
	       (ha_gin_completed(&w.journal) == OPS && w.inbox.applied == OPS);
}

static void everything_is_right(enum fault fault)
{
	bool nic_died = fault == NIC_OF_RECEIVER || fault == NIC_UNPLACED;
	uint64_t sum[WORDS] = {0};

	seen.lost += w.is_lost;
	seen.cannot_tell += w.applier.over == HA_GIN_CANNOT_TELL;
	seen.gave_up += w.applier.gave_up > 0;
	assert_true(nic_died || (!w.is_lost && w.applier.gave_up == 0));
	for (uint64_t k = 0; k < w.told; k++)
		for (unsigned int i = 0; i < DATA; i++)
			if (target(k)[i] != CONSUMED)
				fail_msg("late_write: %u", (unsigned int)k);
	if (w.is_lost || w.applier.over != HA_GIN_WORKS)
		return;
	for (uint64_t k = 0; k < OPS; k++)
		sum[w.record[k].offset / 8] += w.record[k].addend;
	for (unsigned int word = 0; word < WORDS; word++)
		assert_true(word_now(word) == sum[word]);
	for (uint64_t k = w.told; k < OPS; k++)
		assert_true(is_filled(k) || nic_died);
}

static bool run(enum fault fault, uint64_t index)
{
	bool has_fired = false;
	uint64_t number;

	open_run(fault, index);
	ha_gin_applier_init(&w.applier, RAILS, false);
	ha_gin_inbox_init(&w.inbox, &w.applier, 0, ROOM);
	ha_gin_journal_init(&w.journal, ROOM, false);
	for (uint64_t k = 0; k < OPS; k++) {
		assert_true(ha_gin_issue(&w.journal, &number));
		/* A put alone is the fourth, and the last. */
		w.record[k] = (struct ha_gin_record){
		    .number = k, .offset = k % 3 == 2 ? 8 : 0, .addend = k % 4 == 3 ? 0 : k + 1};
	}
	for (uint64_t i = 0; !is_finished(); i++) {
		if (i == index && fault != NOTHING && fault != NIC_UNPLACED) {
			has_fired = w.epoch == 0;
			happens(fault);
		}
		if (w.is_troubled)
			fails_over(index % 2);
		if (w.is_lost)
			break;
		if (w.s[w.epoch].qp)
			sender_works();
		if (w.r[w.epoch].qp)
			receiver_works();
		kernel_looks();
		if (!is_finished() && !w.is_troubled && !sv_stepped_step())
			times_out();
		kernel_looks();
	}
	sv_stepped_run_idle(100000); /* what is late comes now */
	kernel_looks();
	if (fault == NIC_UNPLACED)
		has_fired = fired(w.rule) > 0;
	everything_is_right(fault);
	close_run();
	seen.runs++;
	seen.fired += has_fired;
	seen.unplaced += has_fired && fault == NIC_UNPLACED;
	return has_fired;
}

static void at_each_event(enum fault fault)
{
	uint64_t index = 0;

	while (run(fault, index))
		index += stride;
	if (index < 10)
		fail_msg("fault %u fired at %u events", fault, (unsigned int)index);
}

/* The first one has no delays but the wire's. */
static void choose_schedule(uint64_t number)
{
	opts.fabric.seed = number;
	opts.fabric.jitter_ns = number ? JITTER_NS : 0;
}

static void puts_and_signals_arrive_exactly(void **state)
{
	(void)state;
	memset(&seen, 0, sizeof(seen));
	run(NOTHING, 0);
	assert_int_equal(seen.failovers, 0);
}

static void whatever_fails_at_whatever_event_sums_are_exact(void **state)
{
	(void)state;
	memset(&seen, 0, sizeof(seen));
	for (uint64_t number = 0; number < schedules; number++) {
		choose_schedule(number);
		for (enum fault fault = NOTHING + 1; fault < FAULTS; fault++)
			at_each_event(fault);
	}
	print_message("%u NICs died with acknowledged data that was not placed\n", seen.unplaced);
	print_message("%u faults: %u failovers, %u replays, %u reads, %u taken back, %u flushes; "
		      "%u losses found, "
		      "%u not proved, %u could not tell\n",
		      seen.fired, seen.failovers, seen.replays, seen.reads, seen.taken_back,
		      seen.flushes, seen.lost, seen.gave_up, seen.cannot_tell);
	assert_true(seen.failovers && seen.replays && seen.reads && seen.taken_back &&
		    seen.flushes);
	assert_true(seen.lost && seen.gave_up && seen.cannot_tell);
	if (stride > 1)
		return;
	assert_true(seen.fired >= 700 * schedules);
	assert_true(seen.unplaced >= 20 * schedules);
}

/* gin_verbs [STRIDE [SCHEDULES]] */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(puts_and_signals_arrive_exactly),
	    cmocka_unit_test(whatever_fails_at_whatever_event_sums_are_exact),
	};

	/* Memory of the next run is that of the last one. */
	mallopt(M_MMAP_THRESHOLD, 64 << 20);
	mallopt(M_TRIM_THRESHOLD, 512 << 20);
	if (argc > 1)
		stride = strtoul(argv[1], NULL, 10);
	if (argc > 2)
		schedules = strtoul(argv[2], NULL, 10);
	return cmocka_run_group_tests_name("gin_verbs", tests, NULL, NULL);
}
