/* SPDX-License-Identifier: Apache-2.0 */
#include "world.h"

#include <fcntl.h>
#include <malloc.h>

#define MAX_EVENTS 10000000u

const unsigned int all_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

static struct world_opts with_defaults(const struct world_opts *opts)
{
	struct world_opts o = {0};

	if (opts)
		o = *opts;
	o.type = o.type ? o.type : IBV_QPT_RC;
	o.cqe = o.cqe ? o.cqe : 256;
	o.wrs = o.wrs ? o.wrs : 64;
	o.mtu = o.mtu ? o.mtu : IBV_MTU_1024;
	o.access = o.access ? o.access : all_access;
	o.timeout = o.timeout ? o.timeout : 10;
	o.retry_cnt = o.retry_cnt ? o.retry_cnt : 3;
	o.rnr_retry = o.rnr_retry == 255 ? 0 : o.rnr_retry ? o.rnr_retry : 3;
	o.rd_atomic = o.rd_atomic ? o.rd_atomic : 4;
	o.dest_rd_atomic = o.dest_rd_atomic ? o.dest_rd_atomic : o.rd_atomic;
	return o;
}

struct ibv_context *open_host(uint32_t host, uint32_t rail)
{
	struct ibv_device **list;
	struct ibv_context *ctx;
	int n;

	sv_stepped_set_host(host);
	list = ibv_get_device_list(&n);
	assert_non_null(list);
	assert_true((int)rail < n);
	ctx = ibv_open_device(list[rail]);
	ibv_free_device_list(list);
	return ctx;
}

static void make_qp(struct end *e, const struct world_opts *o)
{
	struct ibv_qp_init_attr init = {
	    .send_cq = e->cq,
	    .recv_cq = e->cq,
	    .srq = e->srq,
	    .cap = {.max_send_wr = o->wrs,
		    .max_recv_wr = o->wrs,
		    .max_send_sge = 4,
		    .max_recv_sge = 4,
		    .max_inline_data = o->max_inline},
	    .qp_type = o->type,
	    .sq_sig_all = o->sig_all,
	};

	e->qp = ibv_create_qp(e->pd, &init);
	assert_non_null(e->qp);
}

void end_open(struct end *e, uint32_t host, uint32_t rail, const struct world_opts *opts)
{
	struct world_opts o = with_defaults(opts);

	*e = (struct end){.host = host, .rail = rail, .port_num = 1, .psn = 0xfffff0u + host};
	e->ctx = open_host(host, rail);
	assert_non_null(e->ctx);
	assert_int_equal(fcntl(e->ctx->async_fd, F_SETFL, O_NONBLOCK), 0);
	e->pd = ibv_alloc_pd(e->ctx);
	assert_non_null(e->pd);
	e->cq = ibv_create_cq(e->ctx, o.cqe, NULL, NULL, 0);
	assert_non_null(e->cq);
	assert_int_equal(posix_memalign((void **)&e->buf, 4096, BUF_SIZE), 0);
	memset(e->buf, 0, BUF_SIZE);
	e->mr = ibv_reg_mr(e->pd, e->buf, BUF_SIZE, o.access | IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(e->mr);
	if (o.srq_wrs && host) {
		struct ibv_srq_init_attr init = {.attr = {.max_wr = o.srq_wrs, .max_sge = 4}};

		e->srq = ibv_create_srq(e->pd, &init);
		assert_non_null(e->srq);
	}
	make_qp(e, &o);
}

void end_close(struct end *e)
{
	if (e->qp)
		assert_int_equal(ibv_destroy_qp(e->qp), 0);
	if (e->srq)
		assert_int_equal(ibv_destroy_srq(e->srq), 0);
	assert_int_equal(ibv_dereg_mr(e->mr), 0);
	assert_int_equal(ibv_destroy_cq(e->cq), 0);
	assert_int_equal(ibv_dealloc_pd(e->pd), 0);
	assert_int_equal(ibv_close_device(e->ctx), 0);
	free(e->buf);
}

struct ibv_ah_attr address_of(const struct end *e)
{
	struct ibv_ah_attr attr = {.port_num = 1};
	struct ibv_port_attr port;

	assert_int_equal(ibv_query_port(e->ctx, e->port_num, &port), 0);
	attr.dlid = port.lid;
	if (port.link_layer == IBV_LINK_LAYER_ETHERNET) {
		attr.is_global = 1;
		attr.grh.sgid_index = 3;
		attr.grh.hop_limit = 64;
		assert_int_equal(ibv_query_gid(e->ctx, e->port_num, 3, &attr.grh.dgid), 0);
	}
	return attr;
}

int to_init(struct end *e, const struct world_opts *opts)
{
	struct world_opts o = with_defaults(opts);
	struct ibv_qp_attr attr = {
	    .qp_state = IBV_QPS_INIT,
	    .port_num = e->port_num,
	    .pkey_index = e->pkey_index,
	    .qkey = QKEY,
	    .qp_access_flags = o.access,
	};

	return ibv_modify_qp(e->qp, &attr,
			     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				 (o.type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
}

int to_rtr(struct end *e, const struct end *peer, const struct world_opts *opts)
{
	struct world_opts o = with_defaults(opts);
	struct ibv_qp_attr attr = {
	    .qp_state = IBV_QPS_RTR,
	    .path_mtu = o.mtu,
	    .dest_qp_num = peer->qp->qp_num,
	    .rq_psn = peer->psn,
	    .max_dest_rd_atomic = o.dest_rd_atomic,
	    .min_rnr_timer = 12,
	};

	if (o.type == IBV_QPT_UD)
		return ibv_modify_qp(e->qp, &attr, IBV_QP_STATE);
	attr.ah_attr = address_of(peer);
	attr.ah_attr.port_num = e->port_num;
	return ibv_modify_qp(e->qp, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				 IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

int to_rts(struct end *e, const struct world_opts *opts)
{
	struct world_opts o = with_defaults(opts);
	struct ibv_qp_attr attr = {
	    .qp_state = IBV_QPS_RTS,
	    .sq_psn = e->psn,
	    .timeout = o.timeout,
	    .retry_cnt = o.retry_cnt,
	    .rnr_retry = o.rnr_retry,
	    .max_rd_atomic = o.rd_atomic,
	};

	if (o.type == IBV_QPT_UD)
		return ibv_modify_qp(e->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
	return ibv_modify_qp(e->qp, &attr,
			     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				 IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

void connect_ends(struct end *a, struct end *b, const struct world_opts *opts)
{
	assert_int_equal(to_init(a, opts), 0);
	assert_int_equal(to_init(b, opts), 0);
	assert_int_equal(to_rtr(a, b, opts), 0);
	assert_int_equal(to_rtr(b, a, opts), 0);
	assert_int_equal(to_rts(a, opts), 0);
	assert_int_equal(to_rts(b, opts), 0);
}

int to_state(struct ibv_qp *qp, enum ibv_qp_state state)
{
	return ibv_modify_qp(qp, &(struct ibv_qp_attr){.qp_state = state}, IBV_QP_STATE);
}

enum ibv_qp_state state_of(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	assert_int_equal(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
	return attr.qp_state;
}

void world_open(struct world *w, const struct world_opts *opts)
{
	/* Thousands of worlds per test: keep their memory instead of mapping it anew each time. */
	mallopt(M_MMAP_THRESHOLD, 64 << 20);
	mallopt(M_TRIM_THRESHOLD, 512 << 20);
	sv_stepped_destroy(); /* what a test that failed left behind */
	assert_int_equal(sv_stepped_open(opts ? &opts->fabric : NULL), 0);
	end_open(&w->a, 0, 0, opts);
	end_open(&w->b, opts && opts->loopback ? 0 : 1, 0, opts);
	if (!opts || !opts->unconnected)
		connect_ends(&w->a, &w->b, opts);
}

void world_close(struct world *w)
{
	end_close(&w->a);
	end_close(&w->b);
	assert_int_equal(sv_stepped_open_contexts(), 0);
	assert_int_equal(sv_stepped_close(), 0);
}

struct ibv_send_wr wr_of(enum ibv_wr_opcode op, uint64_t id, struct ibv_sge *sge)
{
	return (struct ibv_send_wr){
	    .wr_id = id,
	    .sg_list = sge,
	    .num_sge = 1,
	    .opcode = op,
	    .send_flags = IBV_SEND_SIGNALED,
	    .imm_data = (uint32_t)id ^ 0x5a5a5a5au,
	};
}

int post_flags(struct end *e, enum ibv_wr_opcode op, uint64_t id, uint32_t offset, uint32_t length,
	       const struct end *peer, uint32_t peer_offset, unsigned int flags)
{
	struct ibv_sge sge = {
	    .addr = (uintptr_t)e->buf + offset, .length = length, .lkey = e->mr->lkey};
	struct ibv_send_wr wr = wr_of(op, id, &sge), *bad;

	wr.send_flags = flags;
	if (peer) {
		wr.wr.rdma.remote_addr = (uintptr_t)peer->buf + peer_offset;
		wr.wr.rdma.rkey = peer->mr->rkey;
	}
	return ibv_post_send(e->qp, &wr, &bad);
}

int post(struct end *e, enum ibv_wr_opcode op, uint64_t id, uint32_t offset, uint32_t length,
	 const struct end *peer, uint32_t peer_offset)
{
	return post_flags(e, op, id, offset, length, peer, peer_offset, IBV_SEND_SIGNALED);
}

int post_recv(struct end *e, uint64_t id, uint32_t offset, uint32_t length)
{
	struct ibv_sge sge = {
	    .addr = (uintptr_t)e->buf + offset, .length = length, .lkey = e->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;

	if (e->srq)
		return ibv_post_srq_recv(e->srq, &wr, &bad);
	return ibv_post_recv(e->qp, &wr, &bad);
}

void settle(void)
{
	assert_true(sv_stepped_run_idle(MAX_EVENTS) < MAX_EVENTS);
}

struct ibv_wc expect_wc(struct end *e, uint64_t id, enum ibv_wc_status status)
{
	struct ibv_wc wc;

	assert_int_equal(ibv_poll_cq(e->cq, 1, &wc), 1);
	if (wc.status != status || wc.wr_id != id)
		print_error("completion of %llu: %s\n", (unsigned long long)wc.wr_id,
			    ibv_wc_status_str(wc.status));
	assert_int_equal(wc.status, status);
	assert_int_equal(wc.wr_id, id);
	assert_int_equal(wc.qp_num, e->qp->qp_num);
	return wc;
}

void expect_no_wc(struct end *e)
{
	struct ibv_wc wc;

	assert_int_equal(ibv_poll_cq(e->cq, 1, &wc), 0);
}

void expect_event(struct ibv_context *ctx, enum ibv_event_type type)
{
	struct ibv_async_event event;

	assert_int_equal(ibv_get_async_event(ctx, &event), 0);
	if (event.event_type != type)
		print_error("event %s\n", ibv_event_type_str(event.event_type));
	assert_int_equal(event.event_type, type);
	ibv_ack_async_event(&event);
}

void expect_no_event(struct ibv_context *ctx)
{
	struct ibv_async_event event;

	assert_int_equal(ibv_get_async_event(ctx, &event), -1);
	assert_int_equal(errno, EAGAIN);
}

struct verb_target target_of(const struct end *e)
{
	return (struct verb_target){e->ctx, e->pd, e->cq, 3};
}

void fill(uint8_t *buf, size_t length, unsigned int seed)
{
	uint32_t x = seed * 2654435761u + 1;

	for (size_t i = 0; i < length; i++) {
		x = x * 1664525u + 1013904223u;
		buf[i] = (uint8_t)(x >> 24);
	}
}

int world_setup(void **state)
{
	static struct world world;

	world_open(&world, *state);
	*state = &world;
	return 0;
}

int world_teardown(void **state)
{
	world_close(*state);
	return 0;
}
