/* SPDX-License-Identifier: Apache-2.0 */
/* Work that succeeds: what its completions say, at both ends, and what an empty message does. */
#include "probe.h"

#include <arpa/inet.h>
#include <string.h>

/* A receiver's completion, without what a plain one has not to say. */
static void say_receive(const char *name, struct end *end)
{
	struct ibv_wc wc;

	if (!next_wc(end, &wc, WAIT_MS)) {
		answer(name, "nothing");
		return;
	}
	answer(name, "%s %s wr_id=%u byte_len=%u imm=%s own-qpn=%s", status_name(wc.status),
	       wc_opcode_name(wc.opcode), (unsigned)wc.wr_id, wc.byte_len,
	       !(wc.wc_flags & IBV_WC_WITH_IMM)	  ? "none"
	       : wc.imm_data == htonl(0x12345678) ? "right"
						  : "wrong",
	       yes_no(wc.qp_num == end->qpn));
}

static void say_send(const char *name, struct end *end)
{
	struct ibv_wc wc;

	if (!next_wc(end, &wc, WAIT_MS))
		answer(name, "nothing");
	else
		answer(name, "%s %s wr_id=%u own-qpn=%s", status_name(wc.status),
		       wc_opcode_name(wc.opcode), (unsigned)wc.wr_id,
		       yes_no(wc.qp_num == end->qpn));
}

static void ask_writes(struct pair *pair)
{
	fill(pair);
	NEED(!post_write(&pair->a, &pair->b, 10000, 1));
	say_send("write", &pair->a);
	answer("write.data", "%s", yes_no(arrived(pair, 10000)));
	fill(pair);
	NEED(!post_recv(&pair->b, 0, 2) && !post_write_imm(&pair->a, &pair->b, 9000, 3));
	say_send("write-imm", &pair->a);
	say_receive("write-imm.receiver", &pair->b);
	answer("write-imm.data", "%s", yes_no(arrived(pair, 9000)));
	NEED(!post_recv(&pair->b, 64, 4) && !post_write_imm(&pair->a, &pair->b, 0, 5));
	say_send("write-imm.empty", &pair->a);
	say_receive("write-imm.empty.receiver", &pair->b);
}

static void ask_messages(struct pair *pair)
{
	struct send send;

	fill(pair);
	NEED(!post_recv(&pair->b, 9000, 6) && !post_message(&pair->a, &pair->b, 7000, 7));
	say_send("send", &pair->a);
	say_receive("send.receiver", &pair->b);
	answer("send.data", "%s", yes_no(arrived(pair, 7000)));
	NEED(!post_recv(&pair->b, 0, 8) && !post_message(&pair->a, &pair->b, 0, 9));
	say_send("send.empty", &pair->a);
	say_receive("send.empty.receiver", &pair->b);
	make_send(&send, &pair->a, &pair->b, IBV_WR_SEND_WITH_IMM, 5)->wr.wr_id = 10;
	NEED(!post_recv(&pair->b, 64, 11) && !post(&pair->a, &send));
	say_send("send-imm", &pair->a);
	say_receive("send-imm.receiver", &pair->b);
}

/* Nothing is touched, so the key and the address do not matter. */
static void ask_empty(struct pair *pair)
{
	struct send send;

	make_send(&send, &pair->a, &pair->b, IBV_WR_RDMA_WRITE, 0);
	send.wr.num_sge = 0;
	send.wr.wr.rdma.rkey = 0xdeadbeef;
	send.wr.wr.rdma.remote_addr = 1;
	NEED(!post(&pair->a, &send));
	answer("write.empty.bad-key", "%s", next_status(&pair->a, WAIT_MS));
	make_send(&send, &pair->a, &pair->b, IBV_WR_RDMA_READ, 0);
	send.wr.wr.rdma.rkey = 0xdeadbeef;
	NEED(!post(&pair->a, &send));
	answer("read.empty.bad-key", "%s", next_status(&pair->a, WAIT_MS));
	answer("empty.state", "%s", state_name(end_settled_state(&pair->a, IBV_QPS_ERR)));
}

static void ask_fetches(struct pair *pair)
{
	struct ibv_wc wc;
	struct send send;
	uint64_t before = 41, after;

	fill(pair);
	NEED(!post_read(&pair->a, &pair->b, 20000, 12));
	NEED(next_wc(&pair->a, &wc, WAIT_MS));
	answer("read", "%s %s byte_len=%u", status_name(wc.status), wc_opcode_name(wc.opcode),
	       wc.byte_len);
	answer("read.data", "%s", yes_no(arrived(pair, 20000)));
	memcpy(pair->b.buf, &before, sizeof(before));
	end_put_memory(&pair->b);
	make_send(&send, &pair->a, &pair->b, IBV_WR_ATOMIC_FETCH_AND_ADD, 8);
	send.wr.wr.atomic.remote_addr = pair->b.addr;
	send.wr.wr.atomic.rkey = pair->b.rkey;
	send.wr.wr.atomic.compare_add = 1;
	NEED(!post(&pair->a, &send));
	say_send("fetch-add", &pair->a);
	memcpy(&before, pair->a.buf, sizeof(before));
	end_get_memory(&pair->b);
	memcpy(&after, pair->b.buf, sizeof(after));
	answer("fetch-add.data", "%d to %d", (int)before, (int)after);
}

/* Two pieces on each side. */
static void ask_pieces(struct pair *pair)
{
	struct ibv_sge out[2] = {{pair->a.addr, 1000, pair->a.lkey},
				 {pair->a.addr + 1000, 5000, pair->a.lkey}};
	struct ibv_sge in[2] = {{pair->b.addr, 4500, pair->b.lkey},
				{pair->b.addr + 4500, 4500, pair->b.lkey}};
	struct ibv_recv_wr recv = {.sg_list = in, .num_sge = 2};
	struct send send;

	fill(pair);
	make_send(&send, &pair->a, &pair->b, IBV_WR_SEND, 0);
	send.wr.sg_list = out;
	send.wr.num_sge = 2;
	NEED(!post_recv_wr(&pair->b, &recv) && !post(&pair->a, &send));
	answer("pieces", "%s", next_status(&pair->a, WAIT_MS));
	answer("pieces.receiver", "%s", next_status(&pair->b, WAIT_MS));
	answer("pieces.data", "%s", yes_no(arrived(pair, 6000)));
}

/* Which of a row of work requests complete, and in which order. */
static void ask_order(struct pair *pair)
{
	struct words words = {0};
	struct ibv_wc wcs[8];
	struct send send;
	unsigned n;

	for (unsigned i = 0; i < 6; i++) {
		make_send(&send, &pair->a, &pair->b,
			  i % 3 == 1 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, 5000 * (6 - i));
		send.wr.wr_id = i;
		if (i == 2 || i == 3)
			send.wr.send_flags = 0;
		NEED(!post(&pair->a, &send));
	}
	n = take_all(&pair->a, wcs, 8);
	for (unsigned i = 0; i < n; i++)
		add_word(&words, "%u", (unsigned)wcs[i].wr_id);
	answer("order.signalled-only", "%s", words_text(&words));
}

/* A receiver that may already receive and is told so by the first message. */
static void ask_ready_to_receive(struct probe *probe)
{
	struct options options = patient();
	struct words words;
	struct pair pair;

	options.b_state = IBV_QPS_RTR;
	pair_open(&pair, &probe->a, &probe->b, &options);
	drop_events(&probe->b);
	NEED(!post_write(&pair.a, &pair.b, 8, 1));
	answer("rtr.takes-a-write", "%s", next_status(&pair.a, WAIT_MS));
	answer("rtr.events", "%s", events_within(&probe->b, &words, QUIET_MS));
	answer("rtr.state", "%s", state_name(end_state(&pair.b)));
	pair_close(&pair);
}

static void ask_signal_all(struct probe *probe)
{
	struct options options = patient();
	struct pair pair;
	struct send send;

	options.signal_all = true;
	pair_open(&pair, &probe->a, &probe->b, &options);
	make_send(&send, &pair.a, &pair.b, IBV_WR_RDMA_WRITE, 8)->wr.send_flags = 0;
	NEED(!post(&pair.a, &send));
	answer("signal-all", "%s", next_status(&pair.a, WAIT_MS));
	pair_close(&pair);
}

/* The queue pair drains and goes on. */
static void ask_drain(struct probe *probe)
{
	struct options options = patient();
	struct words words;
	struct pair pair;

	pair_open(&pair, &probe->a, &probe->b, &options);
	NEED(!end_to(&pair.a, IBV_QPS_SQD));
	NEED(!post_write(&pair.a, &pair.b, 8, 1));
	answer("sqd.holds-back", "%s", next_status(&pair.a, QUIET_MS));
	NEED(!end_modify(&pair.a, &pair.b, IBV_QPS_RTS, &options));
	answer("sqd.then-rts", "%s", next_status(&pair.a, 500));
	answer("sqd.events-unasked", "%s", events_within(&probe->a, &words, QUIET_MS));
	pair_close(&pair);
}

void ask_transfers(struct probe *probe)
{
	struct options options = patient();
	struct pair pair;

	pair_open(&pair, &probe->a, &probe->b, &options);
	ask_writes(&pair);
	ask_messages(&pair);
	ask_fetches(&pair);
	ask_pieces(&pair);
	ask_order(&pair);
	ask_empty(&pair);
	pair_close(&pair);
	ask_ready_to_receive(probe);
	ask_signal_all(probe);
	ask_drain(probe);
}
