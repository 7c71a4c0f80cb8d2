/* SPDX-License-Identifier: Apache-2.0 */
/* Devices, and queue pairs that are brought to the state that a question needs. */
#include "probe.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

/* ---- devices ------------------------------------------------------------------------------- */

static bool is_mapped_ipv4(const union ibv_gid *gid)
{
	static const uint8_t prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

	return !memcmp(gid->raw, prefix, sizeof(prefix));
}

void port_refresh(struct port *port)
{
	struct ibv_gid_entry entry;

	if (port->far) {
		far_refresh(port);
		return;
	}
	NEED(!ibv_query_port(port->ctx, 1, &port->attr));
	for (int i = 0; i < port->attr.gid_tbl_len; i++) {
		if (ibv_query_gid_ex(port->ctx, 1, (uint32_t)i, &entry, 0) ||
		    entry.gid_type != IBV_GID_TYPE_ROCE_V2 || !is_mapped_ipv4(&entry.gid))
			continue;
		port->gid = entry.gid;
		port->gid_index = (uint8_t)i;
		return;
	}
	give_up("device %s has no RoCE v2 address of IPv4", port->name);
}

uint32_t port_empty_gid(const struct port *port)
{
	struct ibv_gid_entry entry;
	uint32_t i = 0;

	while (i < (uint32_t)port->attr.gid_tbl_len &&
	       !ibv_query_gid_ex(port->ctx, 1, i, &entry, 0))
		i++;
	return i;
}

void port_open(struct port *port, const char *name)
{
	struct ibv_device **list;
	int n;

	*port = (struct port){.name = name};
	if (strchr(name, ':')) {
		port->far = far_open(name);
		port_refresh(port);
		return;
	}
	list = ibv_get_device_list(&n);
	NEED(list);
	for (int i = 0; i < n && !port->ctx; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			port->ctx = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	if (!port->ctx)
		give_up("device %s cannot be opened", name);
	NEED(fcntl(port->ctx->async_fd, F_SETFL,
		   fcntl(port->ctx->async_fd, F_GETFL) | O_NONBLOCK) == 0);
	port->pd = ibv_alloc_pd(port->ctx);
	NEED(port->pd);
	port_refresh(port);
}

void port_close(struct port *port)
{
	if (port->far) {
		far_close(port->far);
		return;
	}
	NEED(!ibv_dealloc_pd(port->pd));
	NEED(!ibv_close_device(port->ctx));
}

/* ---- options ------------------------------------------------------------------------------- */

struct options patient(void)
{
	return (struct options){
	    .type = IBV_QPT_RC,
	    .sends = 16,
	    .recvs = 16,
	    .sges = 2,
	    .inline_bytes = 64,
	    .cqes = 64,
	    .timeout = 17, /* 0.54 s */
	    .retry_cnt = 6,
	    .rnr_retry = 6,
	    .min_rnr_timer = 12, /* 0.64 ms */
	    .max_rd_atomic = 4,
	    .qp_access =
		IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
	    .mr_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			 IBV_ACCESS_REMOTE_ATOMIC,
	    .a_state = IBV_QPS_RTS,
	    .b_state = IBV_QPS_RTS,
	};
}

struct options quick(void)
{
	struct options options = patient();

	options.timeout = 13; /* 34 ms, three times */
	options.retry_cnt = 2;
	return options;
}

/* ---- states -------------------------------------------------------------------------------- */

struct ibv_ah_attr address_of(const struct end *from, const struct end *to)
{
	return (struct ibv_ah_attr){
	    .is_global = 1,
	    .port_num = 1,
	    .grh = {.dgid = to->port->gid, .sgid_index = from->port->gid_index, .hop_limit = 64},
	};
}

struct ibv_qp_attr attr_for(const struct end *end, const struct end *peer, enum ibv_qp_state to,
			    const struct options *options, int *mask)
{
	struct ibv_qp_attr attr = {
	    .qp_state = to,
	    .path_mtu = end->port->attr.active_mtu,
	    .qkey = 0x11111111,
	    .rq_psn = peer->psn,
	    .sq_psn = end->psn,
	    .dest_qp_num = peer->qpn,
	    .qp_access_flags = options->qp_access,
	    .ah_attr = address_of(end, peer),
	    .max_rd_atomic = options->max_rd_atomic,
	    .max_dest_rd_atomic = 4,
	    .min_rnr_timer = options->min_rnr_timer,
	    .port_num = 1,
	    .timeout = options->timeout,
	    .retry_cnt = options->retry_cnt,
	    .rnr_retry = options->rnr_retry,
	};
	bool ud = options->type == IBV_QPT_UD;
	bool drained = to == IBV_QPS_RTS && end_state(end) == IBV_QPS_SQD;

	*mask = IBV_QP_STATE;
	if (to == IBV_QPS_INIT)
		*mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
	if (to == IBV_QPS_RTR && !ud)
		*mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	if (to == IBV_QPS_RTS && !drained)
		*mask |= IBV_QP_SQ_PSN;
	if (to == IBV_QPS_RTS && !ud && !drained)
		*mask |=
		    IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	return attr;
}

static int modify(struct end *end, struct ibv_qp_attr *attr, int mask)
{
	return end->port->far ? far_modify(end, attr, mask) : ibv_modify_qp(end->qp, attr, mask);
}

int end_modify(struct end *end, const struct end *peer, enum ibv_qp_state to,
	       const struct options *options)
{
	int mask;
	struct ibv_qp_attr attr = attr_for(end, peer, to, options, &mask);

	return modify(end, &attr, mask);
}

int end_to(struct end *end, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {.qp_state = state};

	return modify(end, &attr, IBV_QP_STATE);
}

void end_query(const struct end *end, struct ibv_qp_attr *attr)
{
	struct ibv_qp_init_attr init;

	if (end->port->far)
		far_query(end, attr);
	else
		NEED(!ibv_query_qp(end->qp, attr, IBV_QP_STATE, &init));
}

/* While a queue pair drains, some devices allow no other state than ERR. */
static void wait_drained(struct end *end)
{
	struct ibv_qp_attr attr;
	double until = now_ms() + WAIT_MS;

	do {
		end_query(end, &attr);
		NEED(now_ms() < until);
	} while (attr.sq_draining);
}

void end_bring(struct end *end, const struct end *peer, enum ibv_qp_state state,
	       const struct options *options)
{
	static const enum ibv_qp_state steps[] = {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS};

	NEED(!end_to(end, IBV_QPS_RESET));
	for (size_t i = 0; i < 3 && state != IBV_QPS_RESET; i++) {
		NEED(!end_modify(end, peer, steps[i], options));
		if (steps[i] == state)
			return;
	}
	if (state == IBV_QPS_ERR || state == IBV_QPS_SQD)
		NEED(!end_to(end, state));
	if (state == IBV_QPS_SQD)
		wait_drained(end);
}

enum ibv_qp_state end_state(const struct end *end)
{
	struct ibv_qp_attr attr;

	end_query(end, &attr);
	return attr.qp_state;
}

enum ibv_qp_state end_settled_state(struct end *end, enum ibv_qp_state expected)
{
	double until = now_ms() + QUIET_MS;

	while (end_state(end) != expected && now_ms() < until) /* and one look after that */
		sleep_ms(1);
	return end_state(end);
}

/* ---- ends and pairs ------------------------------------------------------------------------ */

static void make_queues(struct end *end, const struct options *options)
{
	struct port *port = end->port;
	struct ibv_qp_init_attr init = {
	    .qp_type = options->type,
	    .sq_sig_all = options->signal_all,
	    .cap = {.max_send_wr = options->sends,
		    .max_recv_wr = options->recvs,
		    .max_send_sge = options->sges,
		    .max_recv_sge = options->sges,
		    .max_inline_data = options->inline_bytes},
	};

	end->mr = ibv_reg_mr(port->pd, end->buf, BUF_BYTES, options->mr_access);
	NEED(end->mr);
	end->channel = ibv_create_comp_channel(port->ctx);
	NEED(end->channel);
	NEED(fcntl(end->channel->fd, F_SETFL, fcntl(end->channel->fd, F_GETFL) | O_NONBLOCK) == 0);
	end->cq = ibv_create_cq(port->ctx, options->cqes, end, end->channel, 0);
	NEED(end->cq);
	init.send_cq = init.recv_cq = end->cq;
	end->qp = ibv_create_qp(port->pd, &init);
	NEED(end->qp);
	end->qpn = end->qp->qp_num;
	end->lkey = end->mr->lkey;
	end->rkey = end->mr->rkey;
	end->addr = (uintptr_t)end->buf;
}

void end_open(struct end *end, struct port *port, const struct options *options)
{
	static uint32_t next_psn = 0xfffff0; /* wraps within the first messages */

	*end = (struct end){.port = port, .psn = next_psn};
	next_psn = (next_psn + 0x1234) & 0xffffff;
	end->buf = aligned_alloc(4096, BUF_BYTES);
	NEED(end->buf);
	memset(end->buf, 0, BUF_BYTES);
	if (port->far)
		far_end_open(end, options);
	else
		make_queues(end, options);
}

void end_put_memory(struct end *end)
{
	if (end->port->far)
		far_put_memory(end);
}

void end_get_memory(struct end *end)
{
	if (end->port->far)
		far_get_memory(end);
}

void end_destroy_qp(struct end *end)
{
	if (end->port->far) {
		far_destroy_qp(end);
		return;
	}
	NEED(!ibv_destroy_qp(end->qp));
	end->qp = NULL;
}

static void destroy_queues(struct end *end)
{
	if (end->qp)
		end_destroy_qp(end);
	NEED(!ibv_destroy_cq(end->cq));
	NEED(!ibv_destroy_comp_channel(end->channel));
	NEED(!ibv_dereg_mr(end->mr));
}

void end_close(struct end *end)
{
	if (end->port->far)
		far_end_close(end);
	else
		destroy_queues(end);
	free(end->buf);
}

void region_open(struct region *region, struct end *end, unsigned int access, bool own_pd)
{
	*region = (struct region){.end = end};
	if (end->port->far) {
		far_region_open(region, access, own_pd);
		return;
	}
	if (own_pd)
		NEED(region->own_pd = ibv_alloc_pd(end->port->ctx));
	region->mr =
	    ibv_reg_mr(own_pd ? region->own_pd : end->port->pd, end->buf, BUF_BYTES, access);
	NEED(region->mr);
	region->lkey = region->mr->lkey;
	region->rkey = region->mr->rkey;
}

int region_close(struct region *region)
{
	int rc;

	if (region->end->port->far)
		return far_region_close(region);
	rc = ibv_dereg_mr(region->mr);
	if (region->own_pd)
		NEED(!ibv_dealloc_pd(region->own_pd));
	return rc;
}

void pair_open(struct pair *pair, struct port *a, struct port *b, const struct options *options)
{
	end_open(&pair->a, a, options);
	end_open(&pair->b, b, options);
	end_bring(&pair->b, &pair->a, options->b_state, options);
	end_bring(&pair->a, &pair->b, options->a_state, options);
}

void pair_close(struct pair *pair)
{
	end_close(&pair->a);
	end_close(&pair->b);
}
