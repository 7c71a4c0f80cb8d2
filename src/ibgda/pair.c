/* SPDX-License-Identifier: Apache-2.0 */
#include "ibgda/pair.h"

#include "base/random.h"
#include "device/address.h"
#include "ibgda/provider.h"
#include "nccl_ha/ibgda_cqe.h"

#include <string.h>

#define PSN_MASK      0xffffffu
#define MIN_RNR_TIMER 12
#define MAX_READS     4 /* of a flush */
#define PAGE	      4096u

static bool fail(struct ha_ibgda_pair *pair, const char *why)
{
	if (!pair->fault)
		pair->fault = why;
	return false;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* What a slot had before it has again, so that who still looks at it looks at memory. */
static void *take(struct ibv_pd *pd, void *context, size_t size, size_t alignment, uint64_t type)
{
	struct ha_ibgda_arena *arena = context;
	const unsigned int part = type == HA_DV_RES_QP	 ? 0
				  : type == HA_DV_RES_CQ ? 1
							 : 2 + (arena->records++ & 1);

	(void)pd;
	if (arena->parts[part].at && arena->parts[part].size >= size)
		return arena->parts[part].at;
	if (arena->parts[part].at)
		return NULL; /* a device makes all queues of one size alike */
	arena->parts[part].at =
	    ha_ibgda_allocate(arena->memory, alignment < PAGE ? PAGE : alignment, size);
	arena->parts[part].size = arena->parts[part].at ? size : 0;
	return arena->parts[part].at;
}

static void keep(struct ibv_pd *pd, void *context, void *at, uint64_t type)
{
	(void)pd;
	(void)context;
	(void)at;
	(void)type;
}

void ha_ibgda_arena_free(struct ha_ibgda_arena *arena)
{
	for (unsigned int part = 0; part < 4; part++)
		ha_ibgda_release(arena->memory, arena->parts[part].at);
	*arena = (struct ha_ibgda_arena){0};
}

static struct ibv_pd *domain_of(struct ibv_pd *pd, struct ha_ibgda_arena *arena)
{
	struct ibv_parent_domain_init_attr attr = {
	    .pd = pd,
	    .comp_mask =
		IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT,
	    .alloc = take,
	    .free = keep,
	    .pd_context = arena,
	};

	return ibv_alloc_parent_domain(pd->context, &attr);
}

/* ---- making ---------------------------------------------------------------------------------- */

/* Of which entries are written over when their requests' blocks are free, as the room for requests
 * has it: nobody says what was taken. */
static struct ibv_cq *completions(struct ha_ibgda_pair *pair, uint32_t log)
{
	struct ibv_cq_init_attr_ex attr = {
	    .cqe = (1u << log) - 1,
	    .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD,
	    .flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN,
	    .parent_domain = pair->domain,
	};
	struct ibv_cq_ex *cq = ibv_create_cq_ex(pair->nic->context, &attr);

	return cq ? ibv_cq_ex_to_cq(cq) : NULL;
}

static bool make_qp(struct ha_ibgda_pair *pair, uint32_t sends)
{
	struct ibv_qp_init_attr init = {
	    .send_cq = pair->cq ? pair->cq : pair->nic->receives,
	    .recv_cq = pair->nic->receives,
	    .qp_type = IBV_QPT_RC,
	    .cap = {.max_send_wr = sends,
		    .max_send_sge = 1,
		    .max_inline_data = pair->domain ? HA_WQE_INLINE_MOST : 0},
	};

	pair->qp = ibv_create_qp(pair->domain ? pair->domain : pair->nic->pd, &init);
	return pair->qp ? true : fail(pair, "ibv_create_qp");
}

static bool to_init(struct ha_ibgda_pair *pair)
{
	struct ibv_qp_attr attr = {
	    .qp_state = IBV_QPS_INIT,
	    .port_num = pair->nic->port_num,
	    .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
	};

	if (ibv_modify_qp(pair->qp, &attr,
			  IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		return fail(pair, "ibv_modify_qp to INIT");
	return true;
}

static bool look_at_queues(struct ha_ibgda_pair *pair, struct ha_dv_qp *queue, struct ha_dv_cq *cq)
{
	struct ha_dv_obj obj = {.qp = {pair->qp, queue}, .cq = {pair->cq, cq}};

	*queue = (struct ha_dv_qp){0};
	*cq = (struct ha_dv_cq){0};
	if (!ha_ibgda_init_obj())
		return fail(pair, "there is no libmlx5.so.1");
	return ha_ibgda_init_obj()(&obj, HA_DV_OBJ_QP | HA_DV_OBJ_CQ) == 0
		   ? true
		   : fail(pair, "mlx5dv_init_obj");
}

/* Of a device that makes several blocks of each request that is asked for, as a ConnectX does. */
#define BLOCKS 4u

static bool make_driven(struct ha_ibgda_pair *pair, const struct ha_ibgda_arena *arena,
			uint32_t log, struct ha_ibgda_queue *out)
{
	const uint32_t count = 1u << log;
	struct ha_dv_qp queue;
	struct ha_dv_cq cq;

	pair->cq = completions(pair, log);
	if (!pair->cq)
		return fail(pair, "ibv_create_cq_ex");
	if (!make_qp(pair, count / BLOCKS) || !look_at_queues(pair, &queue, &cq))
		return false;
	if (queue.sends.count != count || queue.sends.stride != HA_WQE_BLOCK || cq.count != count ||
	    cq.size != HA_CQE_SIZE)
		return fail(pair, "the device makes queues of another size");
	if (!ha_ibgda_has_doorbell(arena->memory, queue.bf.reg, sizeof(uint64_t)))
		return fail(pair, "the program cannot have the doorbell");
	out->requests = queue.sends.buf;
	/* A thread that waits may still look there; in the same arena it is where it was. */
	if (out->completions != cq.buf)
		out->completions = cq.buf;
	out->record = queue.records + 1;
	out->doorbell = queue.bf.reg;
	out->qpn = pair->qp->qp_num;
	return to_init(pair);
}

static void begin(struct ha_ibgda_pair *pair, const struct ha_ibgda_nic *nic)
{
	*pair = (struct ha_ibgda_pair){.nic = nic, .psn = (uint32_t)ha_random() & PSN_MASK};
}

static bool end(struct ha_ibgda_pair *pair, bool is_made)
{
	if (!is_made)
		(void)ha_ibgda_pair_close(pair);
	return is_made;
}

bool ha_ibgda_pair_open_driven(struct ha_ibgda_pair *pair, const struct ha_ibgda_nic *nic,
			       struct ha_ibgda_arena *arena, uint32_t log,
			       struct ha_ibgda_queue *queue)
{
	begin(pair, nic);
	arena->records = 0;
	pair->domain = domain_of(nic->pd, arena);
	if (!pair->domain)
		return end(pair, fail(pair, "ibv_alloc_parent_domain"));
	return end(pair, make_driven(pair, arena, log, queue));
}

static bool has_completions(struct ha_ibgda_pair *pair, uint32_t sends)
{
	if (sends == 0)
		return true;
	pair->cq = ibv_create_cq(pair->nic->context, (int)sends, NULL, NULL, 0);
	return pair->cq ? true : fail(pair, "ibv_create_cq");
}

bool ha_ibgda_pair_open(struct ha_ibgda_pair *pair, const struct ha_ibgda_nic *nic, uint32_t sends)
{
	begin(pair, nic);
	return end(pair, has_completions(pair, sends) && make_qp(pair, sends) && to_init(pair));
}

/* ---- connecting ------------------------------------------------------------------------------ */

void ha_ibgda_pair_address(const struct ha_ibgda_pair *pair, struct ha_ibgda_address *out)
{
	*out = (struct ha_ibgda_address){.qpn = pair->qp->qp_num,
					 .psn = pair->psn,
					 .lid = pair->nic->own.lid,
					 .mtu = (uint8_t)pair->nic->own.mtu};
	memcpy(out->gid, pair->nic->own.gid.raw, sizeof(out->gid));
}

static bool to_rtr(struct ha_ibgda_pair *pair, const struct ha_ibgda_address *remote)
{
	const struct ha_port_addr *own = &pair->nic->own;
	struct ha_remote_addr to = {.lid = remote->lid};
	struct ibv_qp_attr attr = {
	    .qp_state = IBV_QPS_RTR,
	    .path_mtu = own->mtu < (enum ibv_mtu)remote->mtu ? own->mtu : (enum ibv_mtu)remote->mtu,
	    .dest_qp_num = remote->qpn,
	    .rq_psn = remote->psn,
	    .max_dest_rd_atomic = MAX_READS,
	    .min_rnr_timer = MIN_RNR_TIMER,
	};

	memcpy(to.gid, remote->gid, sizeof(to.gid));
	ha_address_fill(own, pair->nic->port_num, &to, &attr.ah_attr);
	return ibv_modify_qp(pair->qp, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				 IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				 IBV_QP_MIN_RNR_TIMER) == 0;
}

static bool to_rts(struct ha_ibgda_pair *pair)
{
	struct ibv_qp_attr attr = {
	    .qp_state = IBV_QPS_RTS,
	    .timeout = pair->nic->timeout,
	    .retry_cnt = pair->nic->retry_cnt,
	    .sq_psn = pair->psn,
	    .max_rd_atomic = MAX_READS,
	};

	return ibv_modify_qp(pair->qp, &attr,
			     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				 IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0;
}

bool ha_ibgda_pair_connect(struct ha_ibgda_pair *pair, const struct ha_ibgda_address *remote)
{
	if (!to_rtr(pair, remote))
		return fail(pair, "ibv_modify_qp to RTR");
	return to_rts(pair) ? true : fail(pair, "ibv_modify_qp to RTS");
}

/* ---- the end --------------------------------------------------------------------------------- */

bool ha_ibgda_pair_fence(struct ha_ibgda_pair *pair)
{
	if (pair->qp && ibv_destroy_qp(pair->qp) != 0)
		return fail(pair, "ibv_destroy_qp");
	pair->qp = NULL;
	return true;
}

bool ha_ibgda_pair_is_fenced(const struct ha_ibgda_pair *pair)
{
	return !pair->qp && pair->cq;
}

/* The queue pair first and for certain; of the rest a device that has died may keep what it likes.
 */
bool ha_ibgda_pair_close(struct ha_ibgda_pair *pair)
{
	if (!ha_ibgda_pair_fence(pair))
		return false;
	if (pair->cq)
		(void)ibv_destroy_cq(pair->cq);
	if (pair->domain)
		(void)ibv_dealloc_pd(pair->domain);
	pair->cq = NULL;
	pair->domain = NULL;
	return true;
}
