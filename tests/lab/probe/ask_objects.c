/* SPDX-License-Identifier: Apache-2.0 */
/* Objects that others use, completion queues at their limits, what destroying leaves behind. */
#include "probe.h"

#include <errno.h>
#include <string.h>

static void ask_destroying(struct probe *probe)
{
	struct options options = patient();
	struct pair pair;

	pair_open(&pair, &probe->a, &probe->b, &options);
	answer("destroy.cq-of-a-qp", "%s", errno_name(ibv_destroy_cq(pair.a.cq)));
	answer("destroy.channel-of-a-cq", "%s",
	       errno_name(ibv_destroy_comp_channel(pair.a.channel)));
	answer("destroy.pd-of-a-qp", "%s", errno_name(ibv_dealloc_pd(probe->a.pd)));
	NEED(!post_recv(&pair.a, 64, 1));
	answer("destroy.qp-with-receives", "%s", errno_name(ibv_destroy_qp(pair.a.qp)));
	pair.a.qp = NULL;
	answer("destroy.qp-with-receives.then", "%s", next_status(&pair.a, QUIET_MS));
	pair_close(&pair);
}

static void ask_pd_of_mr(struct probe *probe)
{
	static uint8_t memory[4096];
	struct ibv_pd *pd = ibv_alloc_pd(probe->a.ctx);
	struct ibv_mr *mr;

	NEED(pd);
	mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	NEED(mr);
	answer("destroy.pd-of-an-mr", "%s", errno_name(ibv_dealloc_pd(pd)));
	NEED(!ibv_dereg_mr(mr));
	answer("destroy.pd", "%s", errno_name(ibv_dealloc_pd(pd)));
}

static void ask_srq(struct probe *probe)
{
	struct ibv_srq_init_attr attr = {.attr = {.max_wr = 8, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(probe->a.pd, &attr);
	struct ibv_cq *cq = ibv_create_cq(probe->a.ctx, 8, NULL, NULL, 0);
	struct ibv_qp_init_attr init = {.send_cq = cq,
					.recv_cq = cq,
					.srq = srq,
					.qp_type = IBV_QPT_RC,
					.cap = {.max_send_wr = 4, .max_send_sge = 1}};
	struct ibv_recv_wr wr = {.wr_id = 1}, *bad;
	struct ibv_qp *qp;

	NEED(srq && cq);
	qp = ibv_create_qp(probe->a.pd, &init);
	NEED(qp);
	answer("srq.post", "%s", errno_name(ibv_post_srq_recv(srq, &wr, &bad)));
	answer("srq.destroy-with-a-qp", "%s", errno_name(ibv_destroy_srq(srq)));
	NEED(!ibv_destroy_qp(qp));
	answer("srq.destroy", "%s", errno_name(ibv_destroy_srq(srq)));
	NEED(!ibv_destroy_cq(cq));
}

/* The numbers of queue pairs: a late packet must not find another with its number. */
static void ask_numbers(struct probe *probe)
{
	struct options options = patient();
	struct end end;
	uint32_t numbers[4];
	bool again = false;

	end_open(&end, &probe->a, &options);
	end_close(&end);
	for (unsigned i = 0; i < 4; i++) {
		end_open(&end, &probe->a, &options);
		numbers[i] = end.qp->qp_num;
		end_close(&end);
		for (unsigned j = 0; j < i; j++)
			again |= numbers[j] == numbers[i];
	}
	answer("qpn.comes-again-at-once", "%s", yes_no(again));
}

/* Completions that nobody took when their queue pair went away. */
static void ask_leftovers(struct probe *probe)
{
	struct options options = patient();
	struct pair pair;

	pair_open(&pair, &probe->a, &probe->b, &options);
	NEED(!post_write(&pair.a, &pair.b, 8, 1));
	sleep_ms(QUIET_MS);
	NEED(!end_to(&pair.a, IBV_QPS_RESET));
	answer("leftover-completion.after-reset", "%s", next_status(&pair.a, QUIET_MS));
	pair_close(&pair);

	pair_open(&pair, &probe->a, &probe->b, &options);
	NEED(!post_write(&pair.a, &pair.b, 8, 1));
	sleep_ms(QUIET_MS);
	end_destroy_qp(&pair.a);
	answer("leftover-completion.after-destroy", "%s", next_status(&pair.a, QUIET_MS));
	pair_close(&pair);
}

static void ask_cq_sizes(struct probe *probe)
{
	struct ibv_device_attr attr;
	struct ibv_cq *cq;
	struct ibv_wc wc;

	NEED(!ibv_query_device(probe->a.ctx, &attr));
	errno = 0;
	cq = ibv_create_cq(probe->a.ctx, attr.max_cqe + 1, NULL, NULL, 0);
	answer("cq.over-max", "%s", cq ? "0" : errno_name(errno));
	if (cq)
		NEED(!ibv_destroy_cq(cq));
	errno = 0;
	cq = ibv_create_cq(probe->a.ctx, 0, NULL, NULL, 0);
	answer("cq.of-0", "%s", cq ? "0" : errno_name(errno));
	if (cq)
		NEED(!ibv_destroy_cq(cq));
	cq = ibv_create_cq(probe->a.ctx, 100, NULL, NULL, 0);
	NEED(cq);
	answer("cq.of-100-has-them", "%s", yes_no(cq->cqe >= 100));
	answer("cq.poll-empty", "%d", ibv_poll_cq(cq, 1, &wc));
	answer("cq.poll-for-none", "%d", ibv_poll_cq(cq, 0, &wc));
	answer("cq.resize-up", "%s", errno_name(ibv_resize_cq(cq, 500)));
	answer("cq.resize-up-has-them", "%s", yes_no(cq->cqe >= 500));
	answer("cq.resize-over-max", "%s", errno_name(ibv_resize_cq(cq, attr.max_cqe + 1)));
	NEED(!ibv_destroy_cq(cq));
}

/* Resizing with completions inside; n of them. */
static void ask_resize_full(struct probe *probe)
{
	struct options options = patient();
	struct ibv_wc wcs[16];
	struct pair pair;
	unsigned n;

	pair_open(&pair, &probe->a, &probe->b, &options);
	for (unsigned i = 0; i < 8; i++)
		NEED(!post_write(&pair.a, &pair.b, 8, i));
	sleep_ms(QUIET_MS);
	answer("cq.resize-below-its-completions", "%s", errno_name(ibv_resize_cq(pair.a.cq, 1)));
	answer("cq.resize-with-completions", "%s", errno_name(ibv_resize_cq(pair.a.cq, 200)));
	n = take_all(&pair.a, wcs, 16);
	answer("cq.resize-keeps-completions", "%s", yes_no(n == 8 && wcs[7].wr_id == 7));
	pair_close(&pair);
}

/* More completions than the queue holds. */
static void ask_overrun(struct probe *probe)
{
	struct options options = patient();
	struct words words;
	struct pair pair;
	unsigned size;

	options.sends = 64;
	options.cqes = 4;
	pair_open(&pair, &probe->a, &probe->b, &options);
	drop_events(&probe->a);
	size = (unsigned)pair.a.cq->cqe;
	for (unsigned i = 0; i < size + 4 && i < 64; i++)
		if (post_write(&pair.a, &pair.b, 8, i))
			break;
	answer("cq.overrun.events", "%s", events_within(&probe->a, &words, QUIET_MS));
	answer("cq.overrun.qp-state", "%s", state_name(end_settled_state(&pair.a, IBV_QPS_ERR)));
	pair_close(&pair);
}

void ask_objects(struct probe *probe)
{
	ask_destroying(probe);
	ask_pd_of_mr(probe);
	ask_srq(probe);
	ask_numbers(probe);
	ask_leftovers(probe);
	ask_cq_sizes(probe);
	ask_resize_full(probe);
	ask_overrun(probe);
}
