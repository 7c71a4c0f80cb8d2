/* SPDX-License-Identifier: Apache-2.0 */
/* Work that fails: what the sender hears, what becomes of the receiver, who gets which event. */
#include "probe.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* What a test of an error starts from; changed by each. */
struct mistake {
	const char *name;
	enum ibv_wr_opcode opcode;
	uint32_t length;
	uint64_t address_offset;
	uint32_t rkey_xor, lkey_xor;
	bool from_beyond; /* the local address */
	uint32_t receive; /* a receive of so many bytes is posted; 0: none */
	unsigned int qp_access, mr_access;
};

#define ALL_ACCESS                                                                                 \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |               \
	 IBV_ACCESS_REMOTE_ATOMIC)
#define NO_WRITE (ALL_ACCESS & ~(unsigned)IBV_ACCESS_REMOTE_WRITE)
#define NO_READ	 (ALL_ACCESS & ~(unsigned)IBV_ACCESS_REMOTE_READ)
#define USUAL	 .length = 100, .qp_access = ALL_ACCESS, .mr_access = ALL_ACCESS

#define KERNEL_TICK_MS 4 /* of Debian's and Ubuntu's kernels: 250 a second */

static const struct mistake mistakes[] = {
    {"write.bad-key", IBV_WR_RDMA_WRITE, USUAL, .rkey_xor = 0x5a5a5a00},
    {"write.beyond-the-end", IBV_WR_RDMA_WRITE, USUAL, .address_offset = BUF_BYTES - 50},
    {"write.before-the-start", IBV_WR_RDMA_WRITE, USUAL, .address_offset = (uint64_t)-8},
    {"write.region-not-writable", IBV_WR_RDMA_WRITE, .length = 100, .qp_access = ALL_ACCESS,
     .mr_access = NO_WRITE},
    {"write.queue-pair-not-writable", IBV_WR_RDMA_WRITE, .length = 100,
     .qp_access = IBV_ACCESS_REMOTE_READ, .mr_access = ALL_ACCESS},
    {"write-imm.bad-key", IBV_WR_RDMA_WRITE_WITH_IMM, USUAL, .rkey_xor = 0x5a5a5a00, .receive = 64},
    {"write.bad-local-key", IBV_WR_RDMA_WRITE, USUAL, .lkey_xor = 0x5a5a5a00},
    {"write.from-beyond-the-end", IBV_WR_RDMA_WRITE, USUAL, .from_beyond = true},
    {"read.bad-key", IBV_WR_RDMA_READ, USUAL, .rkey_xor = 0x5a5a5a00},
    {"read.region-not-readable", IBV_WR_RDMA_READ, .length = 100, .qp_access = ALL_ACCESS,
     .mr_access = NO_READ},
    {"read.queue-pair-not-readable", IBV_WR_RDMA_READ, .length = 100,
     .qp_access = IBV_ACCESS_REMOTE_WRITE, .mr_access = ALL_ACCESS},
    {"send.longer-than-the-receive", IBV_WR_SEND, USUAL, .receive = 40},
    {"fetch-add.unaligned", IBV_WR_ATOMIC_FETCH_AND_ADD, .length = 8, .qp_access = ALL_ACCESS,
     .mr_access = ALL_ACCESS, .address_offset = 4},
};

static void say(const char *mistake, const char *what, const char *text)
{
	char name[96];

	snprintf(name, sizeof(name), "%s.%s", mistake, what);
	answer(name, "%s", text);
}

static int post_mistake(struct pair *pair, const struct mistake *mistake)
{
	struct send send;

	make_send(&send, &pair->a, &pair->b, mistake->opcode, mistake->length)->wr.wr_id = 77;
	send.sge.lkey ^= mistake->lkey_xor;
	if (mistake->from_beyond)
		send.sge.addr += BUF_BYTES - 50;
	send.wr.wr.rdma.remote_addr += mistake->address_offset;
	send.wr.wr.rdma.rkey ^= mistake->rkey_xor;
	if (mistake->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		send.wr.wr.atomic.remote_addr = pair->b.addr + mistake->address_offset;
		send.wr.wr.atomic.rkey = pair->b.rkey;
	}
	return post(&pair->a, &send);
}

static void make_mistake(struct probe *probe, const struct mistake *mistake)
{
	struct words words = {0}, events;
	struct options options = patient();
	struct ibv_wc wc;
	struct pair pair;
	int rc;

	options.qp_access = mistake->qp_access;
	options.mr_access = mistake->mr_access;
	pair_open(&pair, &probe->a, &probe->b, &options);
	drop_events(&probe->a);
	drop_events(&probe->b);
	if (mistake->receive)
		NEED(!post_recv(&pair.b, mistake->receive, 5));
	fill(&pair);
	rc = post_mistake(&pair, mistake);
	NEED(!post_write(&pair.a, &pair.b, 8, 78));
	if (rc)
		add_word(&words, "refused %s,", errno_name(rc));
	else if (!next_wc(&pair.a, &wc, WAIT_MS))
		add_word(&words, "nothing,");
	else
		add_word(&words, "%s of %s,", status_name(wc.status),
			 wc.wr_id == 77 && wc.qp_num == pair.a.qpn ? "it" : "another");
	add_word(&words, "then %s,", next_status(&pair.a, WAIT_MS));
	add_word(&words, "state %s", state_name(end_settled_state(&pair.a, IBV_QPS_ERR)));
	say(mistake->name, "sender", words_text(&words));
	say(mistake->name, "sender-events", events_within(&probe->a, &events, 1));
	if (mistake->receive)
		say(mistake->name, "its-receive", next_status(&pair.b, WAIT_MS));
	say(mistake->name, "receiver-state", state_name(end_settled_state(&pair.b, IBV_QPS_ERR)));
	say(mistake->name, "receiver-events", events_within(&probe->b, &events, 1));
	pair_close(&pair);
}

/* No receive for a message: waits, or an error once rnr_retry is used up. */
static void ask_no_receive(struct probe *probe)
{
	struct options options = patient();
	struct words words;
	struct pair pair;

	options.rnr_retry = 0;
	pair_open(&pair, &probe->a, &probe->b, &options);
	drop_events(&probe->b);
	fill(&pair);
	NEED(!post_write_imm(&pair.a, &pair.b, 100, 1));
	answer("no-receive.write-imm", "%s", next_status(&pair.a, WAIT_MS));
	answer("no-receive.write-imm.wrote", "%s", yes_no(arrived(&pair, 100)));
	answer("no-receive.sender-state", "%s",
	       state_name(end_settled_state(&pair.a, IBV_QPS_ERR)));
	answer("no-receive.receiver-state", "%s",
	       state_name(end_settled_state(&pair.b, IBV_QPS_ERR)));
	answer("no-receive.receiver-events", "%s", events_within(&probe->b, &words, 1));
	pair_close(&pair);

	options = patient();
	options.rnr_retry = 7;
	pair_open(&pair, &probe->a, &probe->b, &options);
	NEED(!post_write_imm(&pair.a, &pair.b, 100, 1));
	answer("no-receive.rnr-retry-7", "%s", next_status(&pair.a, 100));
	NEED(!post_recv(&pair.b, 0, 1));
	answer("no-receive.rnr-retry-7.once-there-is-one", "%s", next_status(&pair.a, WAIT_MS));
	answer("no-receive.rnr-retry-7.receiver", "%s", next_status(&pair.b, WAIT_MS));
	pair_close(&pair);
}

/* Reads need what was agreed when the queue pair was made ready. */
static void ask_no_reads(struct probe *probe)
{
	struct options options = patient();
	struct pair pair;

	options.max_rd_atomic = 0;
	pair_open(&pair, &probe->a, &probe->b, &options);
	if (post_read(&pair.a, &pair.b, 100, 1))
		answer("read.none-agreed", "refused");
	else
		answer("read.none-agreed", "%s", next_status(&pair.a, 200));
	pair_close(&pair);
}

/* A peer that is not there, or does not take anything in its state. */
static void ask_deaf(struct probe *probe, enum ibv_qp_state state)
{
	struct options options = quick();
	double began, least, took;
	struct words words;
	struct pair pair;
	char name[64];

	options.b_state = state;
	pair_open(&pair, &probe->a, &probe->b, &options);
	drop_events(&probe->a);
	drop_events(&probe->b);
	fill(&pair);
	began = now_ms();
	NEED(!post_write(&pair.a, &pair.b, 100, 1));
	snprintf(name, sizeof(name), "peer-in-%s", state_name(state));
	say(name, "write", next_status(&pair.a, WAIT_MS));
	took = now_ms() - began;
	/* Each of retry_cnt + 1 attempts gets one to four times the timeout. A process that had to
	 * wait for a processor measures more, so the upper end is generous. The kernel counts in
	 * ticks: it drops a fraction of one, and the first of each attempt is already under way. */
	least = 4.096e-3 * (1 << options.timeout) * (options.retry_cnt + 1);
	say(name, "gave-up",
	    took < least - 2 * KERNEL_TICK_MS * (options.retry_cnt + 1) ? "early"
	    : took > least * 4 + 200					? "late"
									: "in time");
	say(name, "sender-state", state_name(end_settled_state(&pair.a, IBV_QPS_ERR)));
	say(name, "wrote", yes_no(arrived(&pair, 100)));
	say(name, "sender-events", events_within(&probe->a, &words, 1));
	say(name, "receiver-events", events_within(&probe->b, &words, 1));
	pair_close(&pair);
}

static void ask_nobody(struct probe *probe)
{
	struct options options = quick();
	struct pair pair;

	pair_open(&pair, &probe->a, &probe->b, &options);
	end_destroy_qp(&pair.b);
	NEED(!post_write(&pair.a, &pair.b, 100, 1));
	answer("peer-destroyed.write", "%s", next_status(&pair.a, WAIT_MS));
	pair_close(&pair);

	/* Seven times and no more. */
	options.retry_cnt = 7;
	options.timeout = 8; /* 1 ms */
	options.b_state = IBV_QPS_INIT;
	pair_open(&pair, &probe->a, &probe->b, &options);
	NEED(!post_write(&pair.a, &pair.b, 100, 1));
	answer("retry-count-7", "%s", next_status(&pair.a, 500));
	pair_close(&pair);
}

/* Packet numbers that the ends did not agree upon. */
static void ask_psn(struct probe *probe)
{
	struct options options = quick();
	struct pair pair;

	options.a_state = IBV_QPS_RESET;
	pair_open(&pair, &probe->a, &probe->b, &options);
	pair.a.psn = (pair.a.psn + 1000) & 0xffffff; /* b expects the one before */
	end_bring(&pair.a, &pair.b, IBV_QPS_RTS, &options);
	fill(&pair);
	NEED(!post_write(&pair.a, &pair.b, 100, 1));
	answer("psn.too-high.write", "%s", next_status(&pair.a, WAIT_MS));
	answer("psn.too-high.wrote", "%s", yes_no(arrived(&pair, 100)));
	pair_close(&pair);

	pair_open(&pair, &probe->a, &probe->b, &options);
	pair.a.psn = (pair.a.psn - 1000) & 0xffffff;
	end_bring(&pair.a, &pair.b, IBV_QPS_RTS, &options);
	fill(&pair);
	NEED(!post_write(&pair.a, &pair.b, 100, 1));
	(void)next_status(&pair.a, WAIT_MS); /* taken for a repetition, or ignored */
	answer("psn.too-low.wrote", "%s", yes_no(arrived(&pair, 100)));
	pair_close(&pair);
}

void ask_errors(struct probe *probe)
{
	for (size_t i = 0; i < sizeof(mistakes) / sizeof(mistakes[0]); i++)
		make_mistake(probe, &mistakes[i]);
	ask_no_receive(probe);
	ask_no_reads(probe);
	ask_deaf(probe, IBV_QPS_ERR);
	ask_deaf(probe, IBV_QPS_INIT);
	ask_deaf(probe, IBV_QPS_RESET);
	ask_nobody(probe);
	ask_psn(probe);
}
