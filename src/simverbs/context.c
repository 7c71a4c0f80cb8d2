/* SPDX-License-Identifier: Apache-2.0 */
/* Opened devices: life, attributes, GIDs and P_Keys, and the tables of operations. */
#include "core.h"
#include "direct_qp.h"
#include "fault_names.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* How soon a verb that waits notices that its device died. */
#define LOOK_NS 5000000u

static uint64_t clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

/* By the machine's clock, in steps: a device that dies ends all its commands. */
static void sleep_ns(uint64_t ns, const bool *dead)
{
	uint64_t now_ns = clock_ns(), end_ns = now_ns + ns;

	while (now_ns < end_ns && !__atomic_load_n(dead, __ATOMIC_RELAXED)) {
		uint64_t step_ns = end_ns - now_ns < LOOK_NS ? end_ns - now_ns : LOOK_NS;
		struct timespec step = {.tv_nsec = (long)step_ns};

		clock_nanosleep(CLOCK_MONOTONIC, 0, &step, NULL);
		now_ns = clock_ns();
	}
}

/* The caller holds no lock: others use the device, and all other devices, meanwhile. */
static void wait_for_command(struct sv_context *ctx, enum sv_verb verb)
{
	struct sv_port *port = ctx->port;
	uint64_t ns = sv_profile_command_ns((enum sv_profile)port->cfg.profile, verb);

	if (sv_fault_armed(port->faults, SV_POINT_VERB))
		ns += sv_fault_verb_wait_ns(port->faults, verb, port->cfg.host, port->cfg.rail,
					    sv_now(port));
	if (!ns)
		return;
	if (port->ops->verb_waits)
		port->ops->verb_waits(port, verb, ns, &ctx->dead);
	else
		sleep_ns(ns, &ctx->dead);
}

/* Posting and polling never leave the process: nobody there knows that the device was taken away.
 */
static int dead_answers(const struct sv_context *ctx, enum sv_verb verb)
{
	bool command = verb == SV_VERB_NONE || sv_verb_is_command(verb);

	return command || ctx->end == SV_END_DEATH ? EIO : 0;
}

int sv_verb_gate(struct ibv_context *context, enum sv_verb verb)
{
	struct sv_context *ctx = sv_ctx(context);
	struct sv_port *port = ctx->port;

	if (__builtin_expect(sv_ctx_dead(ctx), 0))
		return dead_answers(ctx, verb);
	if (__builtin_expect(!sv_fault_armed(port->faults, SV_POINT_VERB), 1) &&
	    port->cfg.profile == SV_PROFILE_EXACT)
		return 0;
	wait_for_command(ctx, verb);
	if (sv_ctx_dead(ctx))
		return dead_answers(ctx, verb);
	if (!sv_fault_armed(port->faults, SV_POINT_VERB))
		return 0;
	return sv_fault_verb(port->faults, verb, port->cfg.host, port->cfg.rail, sv_now(port));
}

int sv_release_gate(struct ibv_context *context, enum sv_verb verb)
{
	const struct sv_context *ctx = sv_ctx(context);
	int err = sv_verb_gate(context, verb);

	if (!sv_ctx_dead(ctx))
		return err;
	switch ((enum sv_end)ctx->end) {
	case SV_END_DEATH:
		return 0;
	case SV_END_DISASSOCIATION:
		return EIO;
	case SV_END_FEIGNED:
		break;
	}
	return SV_FEIGNED;
}

/* ---------------------------------------------------------------- open, close */

static void init_lists(struct sv_context *ctx)
{
	sv_list_init(&ctx->pds);
	sv_list_init(&ctx->mrs);
	sv_list_init(&ctx->cqs);
	sv_list_init(&ctx->qps);
	sv_list_init(&ctx->srqs);
	sv_list_init(&ctx->ahs);
	sv_list_init(&ctx->channels);
}

/* From here on it hears what becomes of the device. */
static int join_port(struct sv_context *ctx)
{
	int err = sv_events_init(&ctx->events);

	if (err)
		return err;
	ctx->vctx.context.async_fd = ctx->events.fd;
	sv_port_lock(ctx->port);
	if (ctx->port->dead || ctx->port->leaving)
		err = EIO;
	else
		sv_list_add_tail(&ctx->port->contexts, &ctx->link);
	sv_port_unlock(ctx->port);
	if (err)
		sv_events_free(&ctx->events);
	return err;
}

static void leave_port(struct sv_context *ctx)
{
	sv_port_lock(ctx->port);
	sv_list_del(&ctx->link);
	sv_port_unlock(ctx->port);
	sv_events_free(&ctx->events);
}

struct ibv_context *sv_open_device(struct ibv_device *ibv)
{
	struct sv_device *dev = sv_container_of(ibv, struct sv_device, ibv);
	struct sv_port *port = dev->get_port(dev);
	struct sv_context *ctx;
	int err;

	if (!port)
		return NULL;
	ctx = calloc(1, sizeof(*ctx));
	if (!ctx) {
		dev->put_port(dev, port);
		return NULL;
	}
	ctx->port = port;
	ctx->dev = dev;
	init_lists(ctx);
	ctx->vctx.sz = sizeof(ctx->vctx);
	ctx->vctx.context.device = ibv;
	ctx->vctx.context.cmd_fd = -1;
	ctx->vctx.context.num_comp_vectors = port->cfg.num_comp_vectors;
	ctx->vctx.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	pthread_mutex_init(&ctx->vctx.context.mutex, NULL);
	sv_context_set_ops(ctx);
	err = join_port(ctx);
	if (!err) {
		err = sv_verb_gate(&ctx->vctx.context, SV_VERB_OPEN_DEVICE);
		if (err)
			leave_port(ctx);
	}
	if (err) {
		free(ctx);
		dev->put_port(dev, port);
		errno = err;
		return NULL;
	}
	sv_device_get(dev);
	return &ctx->vctx.context;
}

/* What the application left behind goes too, as when the kernel closes a device file. */
static void free_objects(struct sv_context *ctx)
{
	while (!sv_list_empty(&ctx->qps))
		sv_free_qp(sv_container_of(ctx->qps.next, struct sv_qp, link));
	while (!sv_list_empty(&ctx->ahs))
		sv_free_ah(sv_container_of(ctx->ahs.next, struct sv_ah, link));
	while (!sv_list_empty(&ctx->srqs))
		sv_free_srq(sv_container_of(ctx->srqs.next, struct sv_srq, link));
	while (!sv_list_empty(&ctx->mrs))
		sv_free_mr(sv_container_of(ctx->mrs.next, struct sv_mr, link));
	while (!sv_list_empty(&ctx->cqs))
		sv_free_cq(sv_container_of(ctx->cqs.next, struct sv_cq, link));
	while (!sv_list_empty(&ctx->channels))
		sv_free_channel(sv_container_of(ctx->channels.next, struct sv_channel, link));
	while (!sv_list_empty(&ctx->pds)) {
		struct sv_pd *pd = sv_container_of(ctx->pds.prev, struct sv_pd, link);

		pd->refs = 0;
		sv_free_pd(pd);
	}
}

int sv_close_device(struct ibv_context *context)
{
	/* It may wait (the driver gives back what it has of the device) and does not fail. */
	sv_release_gate(context, SV_VERB_CLOSE_DEVICE);
	sv_free_context(sv_ctx(context));
	return 0;
}

void sv_free_context(struct sv_context *ctx)
{
	struct sv_device *dev = ctx->dev;
	struct sv_port *port = ctx->port;

	free_objects(ctx);
	sv_port_lock(port);
	sv_list_del(&ctx->link);
	sv_port_unlock(port);
	dev->put_port(dev, port);
	/* Not before: a process takes the device for closed when its descriptor is. */
	sv_events_free(&ctx->events);
	sv_doorbells_free(ctx);
	pthread_mutex_destroy(&ctx->vctx.context.mutex);
	free(ctx);
	sv_device_put(dev);
}

/* ---------------------------------------------------------------- attributes */

static uint16_t max_pkeys(const struct sv_port *port)
{
	uint32_t max = 0;

	for (uint32_t i = 0; i < port->cfg.num_phys; i++)
		if (port->cfg.phys[i].num_pkeys > max)
			max = port->cfg.phys[i].num_pkeys;
	return (uint16_t)max;
}

static void fill_device_attr(const struct sv_port *port, struct ibv_device_attr *attr)
{
	const struct sv_limits *limits = &port->cfg.limits;

	*attr = (struct ibv_device_attr){
	    .node_guid = port->cfg.node_guid,
	    .sys_image_guid = port->cfg.sys_image_guid,
	    .max_mr_size = limits->max_mr_size,
	    .page_size_cap = 0xfffffffffffff000ull,
	    .vendor_id = 0x51b,
	    .vendor_part_id = 1,
	    .hw_ver = 1,
	    .max_qp = (int)limits->max_qp,
	    .max_qp_wr = (int)limits->max_qp_wr,
	    .device_cap_flags = IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_PORT_ACTIVE_EVENT |
				IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_RC_RNR_NAK_GEN,
	    .max_sge = (int)limits->max_sge,
	    .max_sge_rd = (int)limits->max_sge,
	    .max_cq = (int)limits->max_cq,
	    .max_cqe = (int)limits->max_cqe,
	    .max_mr = (int)limits->max_mr,
	    .max_pd = (int)limits->max_pd,
	    .max_qp_rd_atom = (int)limits->max_rd_atomic,
	    .max_res_rd_atom = (int)(limits->max_rd_atomic * limits->max_qp),
	    .max_qp_init_rd_atom = (int)limits->max_rd_atomic,
	    .atomic_cap = IBV_ATOMIC_HCA,
	    .max_ah = (int)limits->max_ah,
	    .max_srq = (int)limits->max_srq,
	    .max_srq_wr = (int)limits->max_srq_wr,
	    .max_srq_sge = (int)limits->max_sge,
	    .max_pkeys = max_pkeys(port),
	    .local_ca_ack_delay = 15,
	    .phys_port_cnt = (uint8_t)port->cfg.num_phys,
	};
	snprintf(attr->fw_ver, sizeof(attr->fw_ver), "simverbs-%s", HA_VERSION);
}

int sv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	int err = sv_verb_gate(context, SV_VERB_QUERY_DEVICE);

	if (!err)
		fill_device_attr(sv_ctx_port(context), attr);
	return err;
}

static int query_device_ex(struct ibv_context *context,
			   const struct ibv_query_device_ex_input *input,
			   struct ibv_device_attr_ex *out, size_t size)
{
	struct ibv_device_attr_ex attr = {.phys_port_cnt_ex = sv_ctx_port(context)->cfg.num_phys};
	int err;

	if (input && input->comp_mask)
		return sv_told(EINVAL);
	if (size < sizeof(attr.orig_attr))
		return sv_told(EOPNOTSUPP);
	err = sv_query_device(context, &attr.orig_attr);
	if (err)
		return sv_told(err);
	attr.device_cap_flags_ex = attr.orig_attr.device_cap_flags;
	attr.completion_timestamp_mask = UINT64_MAX;
	attr.hca_core_clock = 1000000; /* kHz: the clock counts nanoseconds */
	memset(out, 0, size);
	memcpy(out, &attr, size < sizeof(attr) ? size : sizeof(attr));
	return 0;
}

static int query_rt_values(struct ibv_context *context, struct ibv_values_ex *values)
{
	uint64_t now_ns = sv_now(sv_ctx_port(context));

	if (values->comp_mask & ~(uint32_t)IBV_VALUES_MASK_RAW_CLOCK)
		return sv_told(EINVAL);
	/* The raw count goes into tv_nsec, as devices with a cycle counter do. */
	values->raw_clock = (struct timespec){.tv_nsec = (long)now_ns};
	return 0;
}

/* Width 4x; speed per lane as the codes of the port info attribute. */
static uint8_t speed_code(uint32_t rate_mbps)
{
	static const struct {
		uint32_t lane_mbps;
		uint8_t code;
	} speeds[] = {{2500, 1},   {5000, 2},	{10000, 4},   {14000, 16},
		      {25000, 32}, {50000, 64}, {100000, 128}};
	uint8_t code = 1;

	for (size_t i = 0; i < sizeof(speeds) / sizeof(speeds[0]); i++)
		if (rate_mbps / 4 >= speeds[i].lane_mbps)
			code = speeds[i].code;
	return code;
}

int sv_query_port(struct ibv_context *context, uint8_t port_num, struct ibv_port_attr *attr)
{
	struct sv_port *port = sv_ctx_port(context);
	const struct sv_phys_config *phys = sv_phys(port, port_num);
	int err = sv_verb_gate(context, SV_VERB_QUERY_PORT);
	enum ibv_port_state state;

	if (err)
		return err;
	if (!phys)
		return EINVAL;
	sv_port_lock(port);
	state = port->state[port_num - 1];
	*attr = (struct ibv_port_attr){
	    .state = state,
	    .max_mtu = port->cfg.mtu,
	    .active_mtu = port->cfg.mtu,
	    .gid_tbl_len = SV_MAX_GIDS,
	    .port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS,
	    .max_msg_sz = SV_MAX_MSG_SIZE,
	    .pkey_tbl_len = (uint16_t)phys->num_pkeys,
	    .lid = phys->lid,
	    .sm_lid = port->cfg.link_layer == IBV_LINK_LAYER_INFINIBAND ? 1 : 0,
	    .max_vl_num = 1,
	    .active_width = 2,
	    .active_speed = speed_code(port->cfg.rate_mbps),
	    .phys_state = state == IBV_PORT_ACTIVE ? 5 : 3, /* LinkUp : Disabled */
	    .link_layer = port->cfg.link_layer,
	    .flags = port->cfg.link_layer == IBV_LINK_LAYER_ETHERNET || phys->grh_required
			 ? IBV_QPF_GRH_REQUIRED
			 : 0,
	};
	sv_port_unlock(port);
	return 0;
}

static int query_port_sized(struct ibv_context *context, uint8_t port_num,
			    struct ibv_port_attr *out, size_t size)
{
	struct ibv_port_attr attr;
	int err = sv_query_port(context, port_num, &attr);

	if (err)
		return sv_told(err);
	memset(out, 0, size);
	memcpy(out, &attr, size < sizeof(attr) ? size : sizeof(attr));
	return 0;
}

/* ---------------------------------------------------------------- GIDs, P_Keys */

static int gid_entry(struct sv_port *port, uint32_t port_num, uint32_t index,
		     struct ibv_gid_entry *entry)
{
	static const union ibv_gid none;
	const struct sv_gid_entry *gid;

	if (index >= SV_MAX_GIDS)
		return EINVAL;
	gid = &sv_phys(port, port_num)->gids[index];
	if (!memcmp(&gid->gid, &none, sizeof(none)))
		return ENODATA;
	*entry = (struct ibv_gid_entry){
	    .gid = gid->gid,
	    .gid_index = index,
	    .port_num = port_num,
	    .gid_type = gid->type,
	    .ndev_ifindex = gid->ndev_ifindex,
	};
	return 0;
}

int sv_query_gid_ex(struct ibv_context *context, uint32_t port_num, uint32_t gid_index,
		    struct ibv_gid_entry *entry, uint32_t flags, size_t entry_size)
{
	struct sv_port *port = sv_ctx_port(context);
	struct ibv_gid_entry found;
	int err = sv_verb_gate(context, SV_VERB_QUERY_GID);

	if (err)
		return err;
	if (!sv_phys(port, port_num) || flags || entry_size < sizeof(found))
		return EINVAL;
	sv_port_lock(port);
	err = gid_entry(port, port_num, gid_index, &found);
	sv_port_unlock(port);
	if (!err)
		memcpy(entry, &found, sizeof(found));
	return err;
}

int sv_query_gid(struct ibv_context *context, uint8_t port_num, int index, union ibv_gid *gid)
{
	struct ibv_gid_entry entry;
	int err = sv_query_gid_ex(context, port_num, (uint32_t)index, &entry, 0, sizeof(entry));

	/* An empty slot reads as zeros. */
	if (err == ENODATA) {
		memset(gid, 0, sizeof(*gid));
		return 0;
	}
	if (err) {
		errno = err;
		return -1;
	}
	*gid = entry.gid;
	return 0;
}

ssize_t sv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
			   size_t max_entries, uint32_t flags, size_t entry_size)
{
	struct sv_port *port = sv_ctx_port(context);
	size_t n = 0;
	bool fits = true;
	int err = sv_verb_gate(context, SV_VERB_QUERY_GID);

	if (err)
		return -err;
	if (flags || entry_size < sizeof(*entries))
		return -EINVAL;
	sv_port_lock(port);
	for (uint32_t port_num = 1; port_num <= port->cfg.num_phys; port_num++)
		for (uint32_t i = 0; i < sv_phys(port, port_num)->num_gids; i++) {
			struct ibv_gid_entry found;

			if (gid_entry(port, port_num, i, &found))
				continue;
			fits = n < max_entries;
			if (!fits)
				break;
			memcpy((char *)entries + n++ * entry_size, &found, sizeof(found));
		}
	sv_port_unlock(port);
	return fits ? (ssize_t)n : -EINVAL;
}

int sv_query_gid_type(struct ibv_context *context, uint8_t port_num, unsigned int index,
		      enum ibv_gid_type *type)
{
	struct ibv_gid_entry entry;
	int err = sv_query_gid_ex(context, port_num, index, &entry, 0, sizeof(entry));

	if (err) {
		errno = err;
		return -1;
	}
	*type = (enum ibv_gid_type)entry.gid_type;
	return 0;
}

int sv_query_pkey(struct ibv_context *context, uint8_t port_num, int index, __be16 *pkey)
{
	const struct sv_phys_config *phys = sv_phys(sv_ctx_port(context), port_num);
	int err = sv_verb_gate(context, SV_VERB_NONE);

	if (!err && (!phys || index < 0 || (uint32_t)index >= phys->num_pkeys))
		err = EINVAL;
	if (err) {
		errno = err;
		return -1;
	}
	*pkey = htons(phys->pkeys[index]);
	return 0;
}

int sv_get_pkey_index(struct ibv_context *context, uint8_t port_num, __be16 pkey)
{
	const struct sv_phys_config *phys = sv_phys(sv_ctx_port(context), port_num);

	if (sv_verb_gate(context, SV_VERB_NONE) || !phys)
		return -1;
	for (uint32_t i = 0; i < phys->num_pkeys; i++)
		if (phys->pkeys[i] == ntohs(pkey))
			return (int)i;
	return -1;
}

/* ---------------------------------------------------------------- operations */

static struct ibv_td *alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr)
{
	struct sv_td *td;

	if (attr->comp_mask) {
		errno = EINVAL;
		return NULL;
	}
	td = calloc(1, sizeof(*td));
	if (!td)
		return NULL;
	td->ibv.context = context;
	return &td->ibv;
}

static int dealloc_td(struct ibv_td *td)
{
	free(sv_container_of(td, struct sv_td, ibv));
	return 0;
}

void sv_context_set_ops(struct sv_context *ctx)
{
	struct ibv_context_ops *ops = &ctx->vctx.context.ops;

	ops->poll_cq = sv_poll_cq;
	ops->req_notify_cq = sv_req_notify_cq;
	ops->post_send = sv_post_send;
	ops->post_recv = sv_post_recv;
	ops->post_srq_recv = sv_post_srq_recv;
	ctx->vctx.query_port = query_port_sized;
	ctx->vctx.query_device_ex = query_device_ex;
	ctx->vctx.query_rt_values = query_rt_values;
	ctx->vctx.create_cq_ex = sv_create_cq_ex;
	ctx->vctx.create_qp_ex = sv_create_qp_ex;
	ctx->vctx.create_srq_ex = sv_create_srq_ex;
	ctx->vctx.get_srq_num = sv_get_srq_num;
	ctx->vctx.alloc_td = alloc_td;
	ctx->vctx.dealloc_td = dealloc_td;
	ctx->vctx.alloc_parent_domain = sv_alloc_parent_domain;
}
