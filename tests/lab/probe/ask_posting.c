/* SPDX-License-Identifier: Apache-2.0 */
/* Posting: what is refused at the call, in which state, and what happens to the rest of a list. */
#include "probe.h"

#include <errno.h>
#include <stdio.h>

static void ask_state(struct pair *pair, enum ibv_qp_state state, const struct options *options)
{
	char name[64];
	int rc;

	end_bring(&pair->a, &pair->b, state, options);
	snprintf(name, sizeof(name), "post.send-in-%s", state_name(state));
	rc = post_write(&pair->a, &pair->b, 8, 1);
	answer(name, "%s, %s", errno_name(rc), rc ? "-" : next_status(&pair->a, QUIET_MS));
	end_bring(&pair->a, &pair->b, state, options);
	/* What the change itself flushes, it flushes a little later: that is not asked here. */
	if (state == IBV_QPS_ERR)
		next_status(&pair->a, QUIET_MS);
	snprintf(name, sizeof(name), "post.receive-in-%s", state_name(state));
	rc = post_recv(&pair->a, 8, 1);
	answer(name, "%s, %s", errno_name(rc), rc ? "-" : next_status(&pair->a, QUIET_MS));
}

static void ask_posting_states(struct probe *probe)
{
	static const enum ibv_qp_state states[] = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR,
						   IBV_QPS_RTS,	  IBV_QPS_SQD,	IBV_QPS_ERR};
	struct options options = patient();
	struct pair pair;

	options.a_state = IBV_QPS_RESET;
	options.b_state = IBV_QPS_RTS;
	pair_open(&pair, &probe->a, &probe->b, &options);
	for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
		/* The peer expects the first packet number again. */
		end_bring(&pair.b, &pair.a, IBV_QPS_RTS, &options);
		ask_state(&pair, states[i], &options);
	}
	pair_close(&pair);
}

static uint32_t cap_of(struct end *end, bool send)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	NEED(!ibv_query_qp(end->qp, &attr, IBV_QP_CAP, &init));
	return send ? init.cap.max_send_wr : init.cap.max_recv_wr;
}

static void ask_full(struct probe *probe)
{
	struct options options = patient();
	struct pair pair;
	uint32_t n, cap;
	int rc = 0;

	options.a_state = IBV_QPS_SQD; /* takes sends and does nothing with them */
	pair_open(&pair, &probe->a, &probe->b, &options);
	cap = cap_of(&pair.a, true);
	for (n = 0; n < 1000 && !rc; n++)
		rc = post_write(&pair.a, &pair.b, 8, n);
	answer("post.send-queue-full", "%s", errno_name(rc));
	answer("post.send-queue-holds-its-cap", "%s", yes_no(n - 1 >= cap));
	cap = cap_of(&pair.a, false);
	for (n = 0, rc = 0; n < 1000 && !rc; n++)
		rc = post_recv(&pair.a, 8, n);
	answer("post.receive-queue-full", "%s", errno_name(rc));
	answer("post.receive-queue-holds-its-cap", "%s", yes_no(n - 1 >= cap));
	pair_close(&pair);
}

static void ask_arguments(struct probe *probe)
{
	struct options options = patient();
	struct ibv_sge sges[64];
	struct pair pair;
	struct send send;
	uint8_t first;
	int rc;

	pair_open(&pair, &probe->a, &probe->b, &options);
	for (int i = 0; i < 64; i++)
		sges[i] = (struct ibv_sge){(uintptr_t)pair.a.buf, 1, pair.a.mr->lkey};
	make_send(&send, &pair.a, &pair.b, IBV_WR_RDMA_WRITE, 8);
	send.wr.sg_list = sges;
	send.wr.num_sge = 64;
	answer("post.too-many-sges", "%s", errno_name(post(&pair.a, &send)));
	make_send(&send, &pair.a, &pair.b, IBV_WR_RDMA_WRITE, 8);
	send.sge.length = 8192;
	send.wr.send_flags |= IBV_SEND_INLINE;
	answer("post.inline-too-long", "%s", errno_name(post(&pair.a, &send)));
	make_send(&send, &pair.a, &pair.b, IBV_WR_RDMA_READ, 8);
	send.wr.send_flags |= IBV_SEND_INLINE;
	answer("post.inline-read", "%s", errno_name(post(&pair.a, &send)));
	make_send(&send, &pair.a, &pair.b, (enum ibv_wr_opcode)200, 8);
	answer("post.unknown-opcode", "%s", errno_name(post(&pair.a, &send)));
	answer("post.refused.leaves-state", "%s",
	       state_name(end_settled_state(&pair.a, IBV_QPS_ERR)));
	answer("post.refused.completes", "%s", next_status(&pair.a, QUIET_MS));
	pair_close(&pair);

	pair_open(&pair, &probe->a, &probe->b, &options);
	make_send(&send, &pair.a, &pair.b, IBV_WR_RDMA_WRITE, 32);
	send.wr.send_flags |= IBV_SEND_INLINE;
	send.sge.lkey = 0xdeadbeef;
	fill(&pair);
	first = pair.a.buf[0];
	rc = post(&pair.a, &send);
	pair.a.buf[0] = (uint8_t)(first + 1); /* it is ours again as soon as it is posted */
	answer("post.inline-needs-no-key", "%s, %s", errno_name(rc), next_status(&pair.a, WAIT_MS));
	end_get_memory(&pair.b);
	answer("post.inline-copies-at-once", "%s",
	       yes_no(pair.b.buf[0] == first && pair.b.buf[31] == pair.a.buf[31]));
	pair_close(&pair);
}

/* A list whose second work request is refused: the first goes out, the third does not. */
static void ask_list(struct probe *probe)
{
	struct options options = patient();
	struct ibv_send_wr *bad = NULL;
	struct send sends[3];
	struct ibv_wc wcs[4];
	struct pair pair;
	unsigned n;
	int rc;

	pair_open(&pair, &probe->a, &probe->b, &options);
	for (unsigned i = 0; i < 3; i++) {
		make_send(&sends[i], &pair.a, &pair.b, IBV_WR_RDMA_WRITE, 8);
		sends[i].wr.wr_id = i;
		sends[i].wr.next = i < 2 ? &sends[i + 1].wr : NULL;
	}
	sends[1].wr.num_sge = 64;
	rc = ibv_post_send(pair.a.qp, &sends[0].wr, &bad);
	answer("post.list-with-a-bad-one", "%s", errno_name(rc));
	answer("post.list-with-a-bad-one.names-it", "%s", yes_no(bad == &sends[1].wr));
	n = take_all(&pair.a, wcs, 4);
	answer("post.list-with-a-bad-one.completes", "%u", n);
	pair_close(&pair);
}

void ask_posting(struct probe *probe)
{
	ask_posting_states(probe);
	ask_full(probe);
	ask_arguments(probe);
	ask_list(probe);
}
