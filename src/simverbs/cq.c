/* SPDX-License-Identifier: Apache-2.0 */
/* Completion queues and completion channels. */
#include "core.h"
#include "direct_qp.h"

#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* ---------------------------------------------------------------- channels */

struct ibv_comp_channel *sv_create_comp_channel(struct ibv_context *context)
{
	struct sv_context *ctx = sv_ctx(context);
	struct sv_channel *channel;
	int err = sv_verb_gate(context, SV_VERB_CREATE_COMP_CHANNEL);

	if (err) {
		errno = err;
		return NULL;
	}
	channel = calloc(1, sizeof(*channel));
	if (!channel)
		return NULL;
	channel->ibv.context = context;
	channel->ibv.fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
	if (channel->ibv.fd < 0) {
		free(channel);
		return NULL;
	}
	sv_list_init(&channel->ready);
	sv_port_lock(ctx->port);
	sv_list_add_tail(&ctx->channels, &channel->link);
	sv_port_unlock(ctx->port);
	return &channel->ibv;
}

void sv_free_channel(struct sv_channel *channel)
{
	struct sv_port *port = sv_ctx_port(channel->ibv.context);

	sv_port_lock(port);
	sv_list_del(&channel->link);
	sv_port_unlock(port);
	close(channel->ibv.fd);
	free(channel);
}

int sv_destroy_comp_channel(struct ibv_comp_channel *ibv)
{
	struct sv_channel *channel = sv_container_of(ibv, struct sv_channel, ibv);
	struct sv_port *port = sv_ctx_port(ibv->context);
	bool busy;

	sv_port_lock(port);
	busy = ibv->refcnt != 0;
	sv_port_unlock(port);
	if (busy)
		return EBUSY;
	sv_free_channel(channel);
	return 0;
}

int sv_get_cq_event(struct ibv_comp_channel *ibv, struct ibv_cq **cq_out, void **cq_context)
{
	struct sv_channel *channel = sv_container_of(ibv, struct sv_channel, ibv);
	struct sv_port *port = sv_ctx_port(ibv->context);
	uint64_t count;

	for (;;) {
		ssize_t n = read(ibv->fd, &count, sizeof(count));
		struct sv_cq *cq = NULL;

		/* A signal ends the wait, too: who was interrupted has to be told. */
		if (n != sizeof(count))
			return -1;
		sv_port_lock(port);
		/* Empty: the event's CQ was destroyed meanwhile. */
		if (!sv_list_empty(&channel->ready)) {
			cq = sv_container_of(channel->ready.next, struct sv_cq, ready_link);
			sv_list_del(&cq->ready_link);
			if (--cq->ready_events)
				sv_list_add_tail(&channel->ready, &cq->ready_link);
			cq->comp_reported++;
		}
		sv_port_unlock(port);
		if (cq) {
			*cq_out = sv_cq_ibv(cq);
			*cq_context = cq->ex.cq_context;
			return 0;
		}
	}
}

void sv_ack_cq_events(struct ibv_cq *cq, unsigned int nevents)
{
	pthread_mutex_lock(&cq->mutex);
	cq->comp_events_completed += nevents;
	pthread_cond_signal(&cq->cond);
	pthread_mutex_unlock(&cq->mutex);
}

static void notify(struct sv_cq *cq)
{
	struct sv_channel *channel;
	uint64_t one = 1;

	cq->arm = SV_CQ_UNARMED;
	if (!cq->ex.channel)
		return;
	channel = sv_container_of(cq->ex.channel, struct sv_channel, ibv);
	if (write(channel->ibv.fd, &one, sizeof(one)) != sizeof(one))
		return;
	if (cq->ready_events++ == 0)
		sv_list_add_tail(&channel->ready, &cq->ready_link);
}

/* ---------------------------------------------------------------- create, destroy */

static struct sv_cq *create_cq(struct ibv_context *context, uint32_t cqe, void *cq_context,
			       struct ibv_comp_channel *channel, uint32_t comp_vector)
{
	struct sv_context *ctx = sv_ctx(context);
	struct sv_port *port = ctx->port;
	uint32_t size = 1;
	struct sv_cq *cq;
	int err = sv_verb_gate(context, SV_VERB_CREATE_CQ);

	if (!err && (cqe == 0 || cqe > port->cfg.limits.max_cqe ||
		     comp_vector >= (uint32_t)context->num_comp_vectors))
		err = EINVAL;
	if (err) {
		errno = err;
		return NULL;
	}
	/* One more than asked for, rounded up, one of them never used: as devices do. */
	while (size < cqe + 1)
		size *= 2;
	cq = calloc(1, sizeof(*cq));
	if (!cq)
		return NULL;
	cq->ring = calloc(size, sizeof(*cq->ring));
	if (!cq->ring) {
		free(cq);
		return NULL;
	}
	cq->mask = size - 1;
	cq->ex.context = context;
	cq->ex.channel = channel;
	cq->ex.cq_context = cq_context;
	cq->ex.cqe = (int)(size - 1);
	pthread_mutex_init(&cq->ex.mutex, NULL);
	pthread_cond_init(&cq->ex.cond, NULL);
	pthread_mutex_init(&cq->poll_lock, NULL);
	sv_list_init(&cq->ready_link);
	sv_port_lock(port);
	if (port->num_cqs >= port->cfg.limits.max_cq) {
		sv_port_unlock(port);
		free(cq->ring);
		free(cq);
		errno = ENOMEM;
		return NULL;
	}
	port->num_cqs++;
	sv_port_objects_changed(port);
	cq->ex.handle = port->next_handle++;
	if (channel)
		channel->refcnt++;
	sv_list_add_tail(&ctx->cqs, &cq->link);
	sv_port_unlock(port);
	return cq;
}

struct ibv_cq *sv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
			    struct ibv_comp_channel *channel, int comp_vector)
{
	struct sv_cq *cq;

	if (cqe <= 0 || comp_vector < 0) {
		errno = EINVAL;
		return NULL;
	}
	cq = create_cq(context, (uint32_t)cqe, cq_context, channel, (uint32_t)comp_vector);
	return cq ? sv_cq_ibv(cq) : NULL;
}

struct ibv_cq_ex *sv_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	const uint64_t supported = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
				   IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
	struct sv_cq *cq;

	if (attr->wc_flags & ~supported ||
	    attr->comp_mask & ~(uint32_t)(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	cq = create_cq(context, attr->cqe, attr->cq_context, attr->channel, attr->comp_vector);
	if (!cq)
		return NULL;
	if (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS)
		cq->ignore_overrun = attr->flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
	if (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD)
		sv_direct_cq_of(cq, sv_pd(attr->parent_domain));
	sv_cq_ex_init(cq, attr->wc_flags);
	return &cq->ex;
}

void sv_free_cq(struct sv_cq *cq)
{
	struct sv_port *port = sv_ctx_port(cq->ex.context);

	sv_port_lock(port);
	sv_events_withdraw(sv_ctx(cq->ex.context), cq);
	sv_list_del(&cq->ready_link);
	sv_list_del(&cq->link);
	if (cq->ex.channel)
		cq->ex.channel->refcnt--;
	port->num_cqs--;
	sv_port_objects_changed(port);
	sv_direct_cq_free(cq);
	sv_port_unlock(port);
	free(cq->ring);
	pthread_mutex_destroy(&cq->poll_lock);
	pthread_mutex_destroy(&cq->ex.mutex);
	pthread_cond_destroy(&cq->ex.cond);
	free(cq);
}

int sv_destroy_cq(struct ibv_cq *ibv)
{
	struct sv_cq *cq = sv_cq(ibv);
	struct sv_port *port = sv_ctx_port(ibv->context);
	int err = sv_release_gate(ibv->context, SV_VERB_DESTROY_CQ);
	uint32_t async, comp;

	if (err)
		return sv_answer(err);
	sv_port_lock(port);
	if (cq->refs) {
		sv_port_unlock(port);
		return EBUSY;
	}
	/* From here on nothing more can be fetched for this CQ. */
	sv_events_withdraw(sv_ctx(ibv->context), cq);
	sv_list_del(&cq->ready_link);
	cq->arm = SV_CQ_UNARMED;
	async = cq->async_reported;
	comp = cq->comp_reported;
	sv_port_unlock(port);
	sv_wait_acked(&ibv->mutex, &ibv->cond, &ibv->async_events_completed, async);
	sv_wait_acked(&ibv->mutex, &ibv->cond, &ibv->comp_events_completed, comp);
	sv_free_cq(cq);
	return 0;
}

int sv_resize_cq(struct ibv_cq *ibv, int cqe)
{
	struct sv_cq *cq = sv_cq(ibv);
	struct sv_port *port = sv_ctx_port(ibv->context);
	uint32_t size = 1, head, count;
	struct sv_cqe *ring;
	int err = sv_verb_gate(ibv->context, SV_VERB_RESIZE_CQ);

	if (err)
		return err;
	if (cqe <= 0 || (uint32_t)cqe > port->cfg.limits.max_cqe || cq->direct)
		return EINVAL;
	while (size < (uint32_t)cqe + 1)
		size *= 2;
	ring = calloc(size, sizeof(*ring));
	if (!ring)
		return ENOMEM;
	sv_port_lock(port);
	head = atomic_load_explicit(&cq->head, memory_order_relaxed);
	count = atomic_load_explicit(&cq->tail, memory_order_relaxed) - head;
	if (count > size - 1) {
		sv_port_unlock(port);
		free(ring);
		return EINVAL;
	}
	for (uint32_t i = 0; i < count; i++)
		ring[i] = cq->ring[(head + i) & cq->mask];
	free(cq->ring);
	cq->ring = ring;
	cq->mask = size - 1;
	atomic_store_explicit(&cq->head, 0, memory_order_relaxed);
	atomic_store_explicit(&cq->tail, count, memory_order_relaxed);
	ibv->cqe = (int)(size - 1);
	sv_port_unlock(port);
	return 0;
}

/* ---------------------------------------------------------------- completions */

/* Is the queue armed for this completion? */
static bool tells(const struct sv_cq *cq, const struct sv_cqe *cqe)
{
	return cq->arm == SV_CQ_ARMED || (cq->arm == SV_CQ_ARMED_SOLICITED && cqe->solicited);
}

/* A queue that looks full: whether this completion goes into it all the same. */
static bool has_room(struct sv_cq *cq, const struct ibv_wc *wc, struct sv_qp *qp)
{
	if (cq->direct) {
		sv_direct_cq_push(cq, wc, qp);
		return false;
	}
	if (cq->ignore_overrun) {
		atomic_fetch_add_explicit(&cq->head, 1, memory_order_relaxed);
		return true;
	}
	qp->port->stats.cq_overruns++;
	if (!cq->overrun)
		sv_raise_cq(cq, IBV_EVENT_CQ_ERR);
	cq->overrun = true;
	qp->fatal = true;
	return false;
}

void sv_cq_push(struct sv_cq *cq, const struct ibv_wc *wc, bool solicited, struct sv_qp *qp)
{
	struct sv_port *port = qp->port;
	uint32_t head = atomic_load_explicit(&cq->head, memory_order_relaxed);
	uint32_t tail = atomic_load_explicit(&cq->tail, memory_order_relaxed);
	struct sv_cqe *cqe;

	/* A device that dies placed or unplaced acknowledges but its completions are lost. */
	if (port->dying || qp->abandoned)
		return;
	if (tail - head >= cq->mask && !has_room(cq, wc, qp))
		return;
	cqe = &cq->ring[tail & cq->mask];
	cqe->wc = *wc;
	cqe->wc.qp_num = qp->ibv.qp_num;
	cqe->solicited = solicited || wc->status != IBV_WC_SUCCESS;
	if (cq->wants_time)
		cqe->time_ns = sv_now(port);
	port->stats.cqes++;
	/* Pairs with the load in sv_poll_cq() that has no lock; only a hint there. */
	atomic_store_explicit(&cq->tail, tail + 1, memory_order_release);
	if (tells(cq, cqe))
		notify(cq);
}

void sv_cq_drop_qp(struct sv_cq *cq, uint32_t qpn)
{
	uint32_t head = atomic_load_explicit(&cq->head, memory_order_relaxed);
	uint32_t tail = atomic_load_explicit(&cq->tail, memory_order_relaxed);
	uint32_t kept = head;

	for (uint32_t i = head; i != tail; i++) {
		if (cq->ring[i & cq->mask].wc.qp_num != qpn) {
			if (kept != i)
				cq->ring[kept & cq->mask] = cq->ring[i & cq->mask];
			kept++;
		}
	}
	atomic_store_explicit(&cq->tail, kept, memory_order_relaxed);
}

static bool is_empty(struct sv_cq *cq)
{
	return atomic_load_explicit(&cq->head, memory_order_relaxed) ==
	       atomic_load_explicit(&cq->tail, memory_order_acquire);
}

/* Nothing to be had without the lock: what makes an empty poll cheap. */
static bool idle(struct sv_cq *cq, struct sv_port *port)
{
	return is_empty(cq) && !(port->ops->pending && port->ops->pending(port));
}

static uint32_t take(struct sv_cq *cq, uint32_t max)
{
	uint32_t head = atomic_load_explicit(&cq->head, memory_order_relaxed);
	uint32_t n = atomic_load_explicit(&cq->tail, memory_order_relaxed) - head;

	return n < max ? n : max;
}

int sv_poll_cq(struct ibv_cq *ibv, int num_entries, struct ibv_wc *wc)
{
	struct sv_cq *cq = sv_cq(ibv);
	struct sv_port *port = sv_ctx_port(ibv->context);
	uint32_t n, head;

	if (sv_fault_armed(port->faults, SV_POINT_VERB)) {
		int err = sv_verb_gate(ibv->context, SV_VERB_POLL_CQ);

		if (err && err != EIO)
			return -err;
	}
	if (idle(cq, port) || num_entries <= 0)
		return 0;
	sv_port_lock(port);
	if (is_empty(cq) && port->ops->progress)
		port->ops->progress(port);
	n = take(cq, (uint32_t)num_entries);
	head = atomic_load_explicit(&cq->head, memory_order_relaxed);
	for (uint32_t i = 0; i < n; i++)
		wc[i] = cq->ring[(head + i) & cq->mask].wc;
	atomic_store_explicit(&cq->head, head + n, memory_order_relaxed);
	sv_port_unlock(port);
	return (int)n;
}

bool sv_cq_pop(struct sv_cq *cq, struct sv_cqe *cqe)
{
	struct sv_port *port = sv_ctx_port(cq->ex.context);
	uint32_t n, head;

	if (idle(cq, port))
		return false;
	sv_port_lock(port);
	if (is_empty(cq) && port->ops->progress)
		port->ops->progress(port);
	n = take(cq, 1);
	head = atomic_load_explicit(&cq->head, memory_order_relaxed);
	if (n)
		*cqe = cq->ring[head & cq->mask];
	atomic_store_explicit(&cq->head, head + n, memory_order_relaxed);
	sv_port_unlock(port);
	return n == 1;
}

/*
 * Whoever arms a queue that holds a completion has not seen that one: it came between the last look
 * and now. Devices tell at once.
 */
static void tell_of_unseen(struct sv_cq *cq)
{
	uint32_t head = atomic_load_explicit(&cq->head, memory_order_relaxed);
	uint32_t tail = atomic_load_explicit(&cq->tail, memory_order_relaxed);

	for (uint32_t i = head; i != tail; i++)
		if (tells(cq, &cq->ring[i & cq->mask])) {
			notify(cq);
			return;
		}
}

int sv_req_notify_cq(struct ibv_cq *ibv, int solicited_only)
{
	struct sv_cq *cq = sv_cq(ibv);
	struct sv_port *port = sv_ctx_port(ibv->context);
	int err = sv_verb_gate(ibv->context, SV_VERB_REQ_NOTIFY_CQ);

	if (err)
		return err;
	sv_port_lock(port);
	if (!solicited_only)
		cq->arm = SV_CQ_ARMED;
	else if (cq->arm == SV_CQ_UNARMED)
		cq->arm = SV_CQ_ARMED_SOLICITED;
	tell_of_unseen(cq);
	sv_port_unlock(port);
	if (port->ops->may_block)
		port->ops->may_block(port);
	return 0;
}
