/* SPDX-License-Identifier: Apache-2.0 */
#include "direct_qp.h"
#include "direct.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE	4096u
#define RECORDS 64u /* bytes for two doorbell records: a line of their own */
#define RES_QP	((uint64_t)1 << 32 | 1)
#define RES_DBR ((uint64_t)1 << 32 | 3)
#define RES_CQ	((uint64_t)1 << 32 | 5)
#define BLOCKS	4u /* that a ConnectX has for each request, as the largest one would take 3 */
#define MOST	65536u
#define DEFAULT ((void *)-1) /* an allocator leaves it to the library */
#define INLINE	28u

/* A page with one register. Whoever rings after its queue pair is gone rings for nobody, also when
 * another one has it. */
struct sv_doorbell {
	uint64_t *page;
	uint32_t before[SV_DIRECT_BEFORE]; /* queue pairs that had it */
	unsigned int owners;
	struct sv_doorbell *next;
};

/* Memory that the program sees. */
struct memory {
	void *at;
	struct sv_pd *from; /* whose allocator gave it; NULL: calloc */
	uint64_t type;
};

struct sv_direct_qp {
	struct sv_qp *qp;
	struct sv_list link;
	struct sv_direct_sq sq;
	struct memory blocks, records;
	struct sv_doorbell *doorbell;
};

struct sv_direct_ring {
	struct sv_direct_cq cq;
	struct memory entries, records;
	uint32_t count;
};

/* ---------------------------------------------------------------- memory */

static bool take_memory(struct memory *memory, struct sv_pd *pd, size_t size, size_t alignment,
			uint64_t type)
{
	*memory = (struct memory){.type = type};
	if (pd && pd->alloc) {
		memory->at = pd->alloc(&pd->ibv, pd->pd_context, size, alignment, type);
		memory->from = pd;
		if (memory->at != DEFAULT) {
			/* Completions are cleared by themselves, as programs may look at them. */
			if (memory->at && type != RES_CQ)
				memset(memory->at, 0, size);
			return memory->at;
		}
		memory->from = NULL;
	}
	memory->at = aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
	if (memory->at)
		memset(memory->at, 0, size);
	return memory->at;
}

static void give_memory(struct memory *memory)
{
	if (memory->from && memory->at)
		memory->from->free(&memory->from->ibv, memory->from->pd_context, memory->at,
				   memory->type);
	else
		free(memory->at);
	memory->at = NULL;
}

/* The one that was given back first: whoever is late with it is found out as late as can be. */
static struct sv_doorbell *take_doorbell(struct sv_context *ctx)
{
	struct sv_doorbell *doorbell = ctx->doorbells;

	if (doorbell) {
		ctx->doorbells = doorbell->next;
		return doorbell;
	}
	doorbell = calloc(1, sizeof(*doorbell));
	if (!doorbell)
		return NULL;
	doorbell->page =
	    mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (doorbell->page != MAP_FAILED)
		return doorbell;
	free(doorbell);
	return NULL;
}

static void give_doorbell(struct sv_context *ctx, struct sv_doorbell *doorbell, uint32_t qpn)
{
	struct sv_doorbell **last = &ctx->doorbells;

	if (!doorbell)
		return;
	doorbell->before[doorbell->owners++ % SV_DIRECT_BEFORE] = qpn;
	while (*last)
		last = &(*last)->next;
	doorbell->next = NULL;
	*last = doorbell;
}

void sv_doorbells_free(struct sv_context *ctx)
{
	while (ctx->doorbells) {
		struct sv_doorbell *doorbell = ctx->doorbells;

		ctx->doorbells = doorbell->next;
		munmap(doorbell->page, PAGE);
		free(doorbell);
	}
}

/* ---------------------------------------------------------------- mistakes */

static void name_mistake(const uint64_t *count, uint64_t *named, const char *what)
{
	if (*count && !*named)
		fprintf(stderr, "simverbs: a program that drives a send queue itself: %s\n", what);
	*named = *count;
}

static void name_mistakes(struct sv_port *port)
{
	const struct sv_direct_mistakes *m = &port->mistakes;
	struct sv_direct_mistakes *n = &port->named;

	name_mistake(&m->stale, &n->stale,
		     "a work request was not there when it was rung for, or of an earlier lap; is "
		     "a barrier missing before the doorbell record?");
	name_mistake(&m->malformed, &n->malformed,
		     "a work request or doorbell is of another queue pair, or cannot be");
	name_mistake(&m->without_doorbell, &n->without_doorbell,
		     "the doorbell record went on, and the doorbell was not rung");
	name_mistake(&m->without_record, &n->without_record,
		     "the doorbell was rung before the doorbell record was set");
	name_mistake(&m->overrun, &n->overrun,
		     "a completion fell on one that was not taken: does it count what it takes?");
}

void sv_direct_mistakes(struct ibv_context *context, struct sv_direct_mistakes *out)
{
	struct sv_port *port = sv_ctx_port(context);

	sv_port_lock(port);
	*out = port->mistakes;
	sv_port_unlock(port);
}

/* ---------------------------------------------------------------- queue pairs */

static bool may_be_exposed(const struct sv_qp *qp)
{
	return qp->ibv.qp_type == IBV_QPT_RC && !qp->dead && qp->sq_head == 0 &&
	       (qp->state == IBV_QPS_RESET || qp->state == IBV_QPS_INIT) &&
	       qp->sq_size * BLOCKS <= MOST && qp->ibv.send_cq != qp->ibv.recv_cq;
}

/* What its doorbell says. A thread that is late may ring for the queue pair that had it before. */
static uint64_t rung(const struct sv_direct_qp *direct)
{
	return __atomic_load_n(direct->doorbell->page, __ATOMIC_RELAXED);
}

static int make_send_queue(struct sv_qp *qp, struct sv_direct_qp *direct)
{
	const uint32_t count = qp->sq_size * BLOCKS;

	direct->doorbell = take_doorbell(sv_ctx(qp->ibv.context));
	if (!direct->doorbell ||
	    !take_memory(&direct->blocks, qp->pd, (size_t)count * SV_DIRECT_BLOCK, PAGE, RES_QP) ||
	    !take_memory(&direct->records, qp->pd, RECORDS, RECORDS, RES_DBR) ||
	    sv_qp_make_sends(qp, count, 1, INLINE))
		return ENOMEM;
	direct->sq = (struct sv_direct_sq){.blocks = direct->blocks.at,
					   .count = count,
					   .qpn = qp->ibv.qp_num,
					   .record = (uint32_t *)direct->records.at + 1,
					   .doorbell = direct->doorbell->page,
					   .before = direct->doorbell->before,
					   .rung = rung(direct),
					   .mistakes = &qp->port->mistakes};
	return 0;
}

static void free_send_queue(struct sv_direct_qp *direct)
{
	give_memory(&direct->blocks);
	give_memory(&direct->records);
	give_doorbell(sv_ctx(direct->qp->ibv.context), direct->doorbell, direct->qp->ibv.qp_num);
	free(direct);
}

static int expose_qp(struct sv_qp *qp)
{
	struct sv_direct_qp *direct;
	int err;

	if (qp->direct)
		return 0;
	if (!may_be_exposed(qp))
		return EOPNOTSUPP;
	direct = calloc(1, sizeof(*direct));
	if (!direct)
		return ENOMEM;
	direct->qp = qp;
	err = make_send_queue(qp, direct);
	if (err) {
		free_send_queue(direct);
		return err;
	}
	qp->cap.max_send_wr = 0; /* nothing can be posted by ibv_post_send() any more */
	qp->direct = direct;
	sv_list_add_tail(&qp->port->directs, &direct->link);
	/* Who looks at doorbells may be asleep. */
	if (qp->port->ops->arm_timer)
		qp->port->ops->arm_timer(qp->port, sv_now(qp->port));
	return 0;
}

int sv_direct_send_queue(struct ibv_qp *ibv, struct sv_direct_send_queue *out)
{
	struct sv_qp *qp = sv_qp(ibv);
	int err;

	sv_port_lock(qp->port);
	err = expose_qp(qp);
	if (!err)
		*out = (struct sv_direct_send_queue){.blocks = qp->direct->blocks.at,
						     .count = qp->direct->sq.count,
						     .records = qp->direct->records.at,
						     .doorbell = qp->direct->doorbell->page};
	sv_port_unlock(qp->port);
	return err;
}

void sv_direct_qp_reset(struct sv_qp *qp)
{
	if (!qp->direct)
		return;
	*(uint32_t *)qp->direct->records.at = 0;
	((uint32_t *)qp->direct->records.at)[1] = 0;
	qp->direct->sq.next = qp->direct->sq.upto = 0;
	qp->direct->sq.rung = rung(qp->direct);
}

void sv_direct_qp_free(struct sv_qp *qp)
{
	if (!qp->direct)
		return;
	sv_list_del(&qp->direct->link);
	free_send_queue(qp->direct);
	qp->direct = NULL;
}

/* ---------------------------------------------------------------- work requests */

static uint8_t opcode_of(enum sv_direct_opcode opcode)
{
	switch (opcode) {
	case SV_DIRECT_WRITE_IMM:
		return IBV_WR_RDMA_WRITE_WITH_IMM;
	case SV_DIRECT_READ:
		return IBV_WR_RDMA_READ;
	case SV_DIRECT_FETCH_ADD:
		return IBV_WR_ATOMIC_FETCH_AND_ADD;
	case SV_DIRECT_NOP: /* goes as a write of no bytes: it is through when its turn is */
	case SV_DIRECT_WRITE:
		break;
	}
	return IBV_WR_RDMA_WRITE;
}

/* As if it had been posted. A request that is none fails when its turn comes. */
static void enter(struct sv_qp *qp, const struct sv_direct_work *work, bool is_good)
{
	struct sv_swqe *wqe = sv_sq_slot(qp, qp->sq_head);

	wqe->wr_id = work->index;
	wqe->opcode = opcode_of(work->opcode);
	wqe->flags = IBV_SEND_SIGNALED | (work->is_inline ? IBV_SEND_INLINE : 0);
	wqe->imm = work->imm;
	wqe->raddr = work->remote_addr;
	wqe->rkey = work->rkey;
	wqe->compare = wqe->swap_add = work->addend;
	wqe->length = work->size;
	wqe->num_sge = work->size && !work->is_inline;
	wqe->sge[0] =
	    (struct ibv_sge){.addr = work->addr, .length = work->size, .lkey = work->lkey};
	memcpy(wqe->inline_data, work->bytes, sizeof(work->bytes));
	sv_finish_wqe(qp, wqe);
	if (!is_good)
		wqe->status = IBV_WC_LOC_QP_OP_ERR;
	qp->sq_head++;
}

/* A request is read when everything before it has been sent, and not when it is rung for. */
static void execute(struct sv_qp *qp)
{
	struct sv_direct_work work;

	while (qp->state == IBV_QPS_RTS && !qp->wedged && qp->sq_next == qp->sq_head &&
	       qp->sq_head - qp->sq_tail < qp->sq_size) {
		const enum sv_direct_taken taken = sv_direct_take(&qp->direct->sq, &work);

		if (taken == SV_DIRECT_NONE)
			return;
		enter(qp, &work, taken == SV_DIRECT_WORK);
		sv_requester_run(qp);
		sv_qp_check_fatal(qp);
	}
}

/* In error all that is rung for comes back, also what is rung for later. */
static void flush(struct sv_qp *qp)
{
	struct ibv_wc wc = {.status = IBV_WC_WR_FLUSH_ERR};

	while (!qp->wedged_hard && qp->direct->sq.next != qp->direct->sq.upto) {
		wc.wr_id = qp->direct->sq.next++;
		sv_cq_push(sv_cq(qp->ibv.send_cq), &wc, false, qp);
	}
}

static void look(struct sv_qp *qp, uint64_t now_ns)
{
	if (qp->dead)
		return;
	sv_direct_look(&qp->direct->sq, now_ns);
	execute(qp);
	if (qp->state == IBV_QPS_ERR)
		flush(qp);
}

bool sv_port_look_direct(struct sv_port *port)
{
	struct sv_list *node;

	if (sv_list_empty(&port->directs))
		return false;
	sv_list_for_each (node, &port->directs)
		look(sv_container_of(node, struct sv_direct_qp, link)->qp, sv_now(port));
	name_mistakes(port);
	return true;
}

/* ---------------------------------------------------------------- completions */

static uint8_t syndrome_of(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_SUCCESS:
		return 0;
	case IBV_WC_LOC_QP_OP_ERR:
		return 0x02;
	case IBV_WC_LOC_PROT_ERR:
		return 0x04;
	case IBV_WC_WR_FLUSH_ERR:
		return 0x05;
	case IBV_WC_REM_INV_REQ_ERR:
		return 0x12;
	case IBV_WC_REM_ACCESS_ERR:
		return 0x13;
	case IBV_WC_REM_OP_ERR:
		return 0x14;
	case IBV_WC_RETRY_EXC_ERR:
		return 0x15;
	case IBV_WC_RNR_RETRY_EXC_ERR:
		return 0x16;
	case IBV_WC_LOC_LEN_ERR:
		return 0x01;
	default:
		return 0x10; /* a bad response */
	}
}

void sv_direct_cq_of(struct sv_cq *cq, struct sv_pd *pd)
{
	struct sv_port *port = sv_ctx_port(pd->ibv.context);

	sv_port_lock(port);
	cq->pd = pd;
	pd->refs++;
	sv_port_unlock(port);
}

static int expose_cq(struct sv_cq *cq)
{
	const uint32_t count = cq->mask + 1;
	struct sv_direct_ring *ring;

	if (cq->direct)
		return 0;
	if (count > MOST || atomic_load(&cq->tail) != 0)
		return EOPNOTSUPP;
	ring = calloc(1, sizeof(*ring));
	if (!ring ||
	    !take_memory(&ring->entries, cq->pd, (size_t)count * SV_DIRECT_BLOCK, PAGE, RES_CQ)) {
		free(ring);
		return ENOMEM;
	}
	if (!take_memory(&ring->records, cq->pd, RECORDS, RECORDS, RES_DBR)) {
		give_memory(&ring->entries);
		free(ring);
		return ENOMEM;
	}
	ring->count = count;
	ring->cq = (struct sv_direct_cq){
	    .entries = ring->entries.at,
	    .log = (uint32_t)__builtin_ctz(count),
	    .record = cq->ignore_overrun ? NULL : ring->records.at,
	    .mistakes = &sv_ctx_port(cq->ex.context)->mistakes,
	};
	sv_direct_cq_clear(&ring->cq);
	cq->direct = ring;
	cq->mask = 0;
	return 0;
}

int sv_direct_completion_queue(struct ibv_cq *ibv, struct sv_direct_completion_queue *out)
{
	struct sv_port *port = sv_ctx_port(ibv->context);
	struct sv_cq *cq = sv_cq(ibv);
	int err;

	sv_port_lock(port);
	err = expose_cq(cq);
	if (!err)
		*out = (struct sv_direct_completion_queue){.entries = cq->direct->entries.at,
							   .count = cq->direct->count,
							   .records = cq->direct->records.at};
	sv_port_unlock(port);
	return err;
}

/* Only of queue pairs that are the program's own, too: who posts has nobody who polls. */
void sv_direct_cq_push(struct sv_cq *cq, const struct ibv_wc *wc, struct sv_qp *qp)
{
	if (!qp->direct || wc->opcode & IBV_WC_RECV) {
		qp->port->mistakes.malformed++;
		return;
	}
	qp->port->stats.cqes++;
	sv_direct_complete(&cq->direct->cq, qp->ibv.qp_num, (uint16_t)wc->wr_id,
			   syndrome_of(wc->status));
}

void sv_direct_cq_free(struct sv_cq *cq)
{
	if (cq->direct) {
		give_memory(&cq->direct->entries);
		give_memory(&cq->direct->records);
		free(cq->direct);
	}
	if (cq->pd)
		cq->pd->refs--;
}
