/* SPDX-License-Identifier: Apache-2.0 */
/* See verb_calls.h. */
#include "verb_calls.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static uint8_t buffer[8192];

/* The verb's own result, then what its tidying up says. */
static int then(int err, int undo)
{
	return err ? err : undo;
}

/* ---------------------------------------------------------------- device */

static int open_device(const struct verb_target *t)
{
	struct ibv_context *ctx = ibv_open_device(t->ctx->device);

	return ctx ? ibv_close_device(ctx) : errno;
}

static int query_device(const struct verb_target *t)
{
	struct ibv_device_attr attr;

	return ibv_query_device(t->ctx, &attr);
}

static int query_port(const struct verb_target *t)
{
	struct ibv_port_attr attr;

	return ibv_query_port(t->ctx, 1, &attr);
}

static int query_gid(const struct verb_target *t)
{
	union ibv_gid gid;

	return ibv_query_gid(t->ctx, 1, t->gid_index, &gid) ? errno : 0;
}

/* ---------------------------------------------------------------- memory */

static int pd(const struct verb_target *t)
{
	struct ibv_pd *made = ibv_alloc_pd(t->ctx);

	return made ? ibv_dealloc_pd(made) : errno;
}

static int mr(const struct verb_target *t)
{
	struct ibv_mr *made = ibv_reg_mr(t->pd, buffer, sizeof(buffer), IBV_ACCESS_LOCAL_WRITE);

	return made ? ibv_dereg_mr(made) : errno;
}

static int rereg_mr(const struct verb_target *t)
{
	struct ibv_mr *made = ibv_reg_mr(t->pd, buffer, sizeof(buffer), IBV_ACCESS_LOCAL_WRITE);
	int err;

	if (!made)
		return errno;
	err = ibv_rereg_mr(made, IBV_REREG_MR_CHANGE_ACCESS, t->pd, buffer, sizeof(buffer), 0)
		  ? errno
		  : 0;
	return then(err, ibv_dereg_mr(made));
}

static int reg_dmabuf_mr(const struct verb_target *t)
{
	int fd = memfd_create("verb_calls", MFD_CLOEXEC), err = 0;
	struct ibv_mr *made = NULL;

	if (fd < 0 || ftruncate(fd, 4096))
		err = errno;
	if (!err)
		made = ibv_reg_dmabuf_mr(t->pd, 0, 4096, 0, fd, IBV_ACCESS_LOCAL_WRITE);
	if (!err && !made)
		err = errno;
	if (fd >= 0)
		close(fd);
	return made ? ibv_dereg_mr(made) : err;
}

/* ---------------------------------------------------------------- queues */

static int comp_channel(const struct verb_target *t)
{
	struct ibv_comp_channel *made = ibv_create_comp_channel(t->ctx);

	return made ? ibv_destroy_comp_channel(made) : errno;
}

static int cq(const struct verb_target *t)
{
	struct ibv_cq *made = ibv_create_cq(t->ctx, 1, NULL, NULL, 0);

	return made ? ibv_destroy_cq(made) : errno;
}

static int resize_cq(const struct verb_target *t)
{
	struct ibv_cq *made = ibv_create_cq(t->ctx, 1, NULL, NULL, 0);
	int err;

	if (!made)
		return errno;
	err = ibv_resize_cq(made, 100);
	return then(err, ibv_destroy_cq(made));
}

static struct ibv_srq *make_srq(const struct verb_target *t)
{
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 4, .max_sge = 1}};

	return ibv_create_srq(t->pd, &init);
}

static int srq(const struct verb_target *t)
{
	struct ibv_srq *made = make_srq(t);

	return made ? ibv_destroy_srq(made) : errno;
}

static int modify_srq(const struct verb_target *t)
{
	struct ibv_srq_attr attr = {.srq_limit = 0};
	struct ibv_srq *made = make_srq(t);
	int err;

	if (!made)
		return errno;
	err = ibv_modify_srq(made, &attr, IBV_SRQ_LIMIT);
	return then(err, ibv_destroy_srq(made));
}

static int query_srq(const struct verb_target *t)
{
	struct ibv_srq *made = make_srq(t);
	struct ibv_srq_attr attr;
	int err;

	if (!made)
		return errno;
	err = ibv_query_srq(made, &attr);
	return then(err, ibv_destroy_srq(made));
}

/* ---------------------------------------------------------------- addresses */

/* The way to the device itself. */
static int own_address(const struct verb_target *t, struct ibv_ah_attr *attr)
{
	*attr = (struct ibv_ah_attr){
	    .port_num = 1,
	    .is_global = 1,
	    .grh = {.sgid_index = (uint8_t)t->gid_index, .hop_limit = 64},
	};
	return ibv_query_gid(t->ctx, 1, t->gid_index, &attr->grh.dgid) ? errno : 0;
}

static int ah(const struct verb_target *t)
{
	struct ibv_ah_attr attr;
	struct ibv_ah *made;
	int err = own_address(t, &attr);

	if (err)
		return err;
	made = ibv_create_ah(t->pd, &attr);
	return made ? ibv_destroy_ah(made) : errno;
}

/* ---------------------------------------------------------------- queue pairs */

static struct ibv_qp *make_qp(const struct verb_target *t)
{
	struct ibv_qp_init_attr init = {.send_cq = t->cq,
					.recv_cq = t->cq,
					.cap = {.max_send_wr = 1, .max_send_sge = 1},
					.qp_type = IBV_QPT_RC};

	return ibv_create_qp(t->pd, &init);
}

/* One step, of a queue pair whose other end is itself. */
static int to_state(const struct verb_target *t, struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {.qp_state = state,
				   .port_num = 1,
				   .path_mtu = IBV_MTU_1024,
				   .dest_qp_num = qp->qp_num,
				   .timeout = 14,
				   .retry_cnt = 7,
				   .rnr_retry = 7,
				   .min_rnr_timer = 12};
	int mask = IBV_QP_STATE, err = 0;

	if (state == IBV_QPS_INIT)
		mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	if (state == IBV_QPS_RTR) {
		err = own_address(t, &attr.ah_attr);
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	}
	if (state == IBV_QPS_RTS)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			IBV_QP_MAX_QP_RD_ATOMIC;
	return err ? err : ibv_modify_qp(qp, &attr, mask);
}

/* To a state, by way of those that come before it. */
static int walk(const struct verb_target *t, enum ibv_qp_state state)
{
	static const enum ibv_qp_state before[] = {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS};
	size_t steps = state == IBV_QPS_RTR   ? 1
		       : state == IBV_QPS_RTS ? 2
		       : state == IBV_QPS_SQD ? 3
		       : state == IBV_QPS_ERR ? 1
					      : 0;
	struct ibv_qp *qp = make_qp(t);
	int err = 0;

	if (!qp)
		return errno;
	for (size_t i = 0; i < steps && !err; i++)
		err = to_state(t, qp, before[i]);
	if (!err)
		err = to_state(t, qp, state);
	return then(err, ibv_destroy_qp(qp));
}

static int reset(const struct verb_target *t)
{
	return walk(t, IBV_QPS_RESET);
}

static int init(const struct verb_target *t)
{
	return walk(t, IBV_QPS_INIT);
}

static int rtr(const struct verb_target *t)
{
	return walk(t, IBV_QPS_RTR);
}

static int rts(const struct verb_target *t)
{
	return walk(t, IBV_QPS_RTS);
}

static int sqd(const struct verb_target *t)
{
	return walk(t, IBV_QPS_SQD);
}

static int error(const struct verb_target *t)
{
	return walk(t, IBV_QPS_ERR);
}

static int query_qp(const struct verb_target *t)
{
	struct ibv_qp *qp = make_qp(t);
	struct ibv_qp_init_attr made;
	struct ibv_qp_attr attr;
	int err;

	if (!qp)
		return errno;
	err = ibv_query_qp(qp, &attr, IBV_QP_STATE, &made);
	return then(err, ibv_destroy_qp(qp));
}

/* Made and destroyed: the rule says which of the two it means. */
static int qp(const struct verb_target *t)
{
	struct ibv_qp *made = make_qp(t);

	return made ? ibv_destroy_qp(made) : errno;
}

/* ---------------------------------------------------------------- all of them */

const struct verb_call verb_calls[] = {
    {"open_device", open_device},
    {"close_device", open_device},
    {"query_device", query_device},
    {"query_port", query_port},
    {"query_gid", query_gid},
    {"alloc_pd", pd},
    {"dealloc_pd", pd},
    {"reg_mr", mr},
    {"reg_dmabuf_mr", reg_dmabuf_mr},
    {"rereg_mr", rereg_mr},
    {"dereg_mr", mr},
    {"create_comp_channel", comp_channel},
    {"create_cq", cq},
    {"resize_cq", resize_cq},
    {"destroy_cq", cq},
    {"create_srq", srq},
    {"modify_srq", modify_srq},
    {"query_srq", query_srq},
    {"destroy_srq", srq},
    {"create_ah", ah},
    {"destroy_ah", ah},
    {"create_qp", qp},
    {"modify_qp", init},
    {"reset", reset},
    {"init", init},
    {"rtr", rtr},
    {"rts", rts},
    {"sqd", sqd},
    {"err", error},
    {"query_qp", query_qp},
    {"destroy_qp", qp},
};
const size_t num_verb_calls = sizeof(verb_calls) / sizeof(verb_calls[0]);

const struct verb_call *verb_call_named(const char *name)
{
	for (size_t i = 0; i < num_verb_calls; i++)
		if (!strcmp(name, verb_calls[i].name))
			return &verb_calls[i];
	return NULL;
}
