/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asynchronous events. A context's descriptor is a semaphore that counts the events in the ring, so
 * an application can poll it, block in it, or set O_NONBLOCK, as with the kernel's. An event that
 * is withdrawn (its object goes away) stays in the ring as a blank: the count must not be lowered
 * behind the back of a reader.
 */
#include "core.h"

#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define BLANK	     ((enum ibv_event_type) - 1)
#define CLOSED	     ((enum ibv_event_type) - 2)
#define RING_INITIAL 16u

int sv_events_init(struct sv_event_queue *q)
{
	q->ring = calloc(RING_INITIAL, sizeof(*q->ring));
	if (!q->ring)
		return ENOMEM;
	q->mask = RING_INITIAL - 1;
	q->head = q->tail = 0;
	q->fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
	if (q->fd < 0) {
		free(q->ring);
		return errno;
	}
	return 0;
}

void sv_events_free(struct sv_event_queue *q)
{
	close(q->fd);
	free(q->ring);
}

static bool grow(struct sv_event_queue *q)
{
	uint32_t size = q->mask + 1;
	struct ibv_async_event *ring = calloc((size_t)size * 2, sizeof(*ring));

	if (!ring)
		return false;
	for (uint32_t i = 0; i < size; i++)
		ring[i] = q->ring[(q->head + i) & q->mask];
	free(q->ring);
	q->ring = ring;
	q->head = 0;
	q->tail = size;
	q->mask = size * 2 - 1;
	return true;
}

static void raise_event(struct sv_context *ctx, const struct ibv_async_event *event)
{
	struct sv_event_queue *q = &ctx->events;
	uint64_t one = 1;

	if (q->tail - q->head > q->mask && !grow(q))
		return; /* as hardware whose event queue is full */
	q->ring[q->tail++ & q->mask] = *event;
	if (write(q->fd, &one, sizeof(one)) != sizeof(one))
		q->tail--;
}

void sv_raise_port(struct sv_context *ctx, uint32_t phys, enum ibv_event_type type)
{
	raise_event(
	    ctx, &(struct ibv_async_event){.element.port_num = (int)phys + 1, .event_type = type});
}

void sv_raise_qp(struct sv_qp *qp, enum ibv_event_type type)
{
	if (qp->abandoned)
		return;
	raise_event(sv_ctx(qp->ibv.context),
		    &(struct ibv_async_event){.element.qp = &qp->ibv, .event_type = type});
}

void sv_raise_cq(struct sv_cq *cq, enum ibv_event_type type)
{
	raise_event(sv_ctx(cq->ex.context),
		    &(struct ibv_async_event){.element.cq = sv_cq_ibv(cq), .event_type = type});
}

void sv_raise_srq(struct sv_srq *srq, enum ibv_event_type type)
{
	raise_event(sv_ctx(srq->ibv.context),
		    &(struct ibv_async_event){.element.srq = &srq->ibv, .event_type = type});
}

void sv_events_close(struct sv_context *ctx)
{
	raise_event(ctx, &(struct ibv_async_event){.event_type = CLOSED});
}

enum element { ELEMENT_PORT, ELEMENT_QP, ELEMENT_CQ, ELEMENT_SRQ };

static enum element element_of(enum ibv_event_type type)
{
	switch (type) {
	case IBV_EVENT_CQ_ERR:
		return ELEMENT_CQ;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return ELEMENT_QP;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return ELEMENT_SRQ;
	default:
		return ELEMENT_PORT;
	}
}

void sv_events_withdraw(struct sv_context *ctx, const void *object)
{
	struct sv_event_queue *q = &ctx->events;

	for (uint32_t i = q->head; i != q->tail; i++) {
		struct ibv_async_event *event = &q->ring[i & q->mask];

		if (event->event_type != BLANK && element_of(event->event_type) != ELEMENT_PORT &&
		    event->element.qp == object)
			event->event_type = BLANK;
	}
}

static void count_reported(const struct ibv_async_event *event)
{
	switch (element_of(event->event_type)) {
	case ELEMENT_QP:
		sv_qp(event->element.qp)->async_reported++;
		break;
	case ELEMENT_CQ:
		sv_cq(event->element.cq)->async_reported++;
		break;
	case ELEMENT_SRQ:
		sv_srq(event->element.srq)->async_reported++;
		break;
	case ELEMENT_PORT:
		break;
	}
}

/* Locked. The next one; false: there will be none any more, which the next reader shall see, too.
 */
static bool take_event(struct sv_event_queue *q, struct ibv_async_event *event)
{
	uint64_t one = 1;

	*event = q->ring[q->head & q->mask];
	if (event->event_type == CLOSED)
		return write(q->fd, &one, sizeof(one)) != sizeof(one);
	q->head++;
	if (event->event_type != BLANK)
		count_reported(event);
	return true;
}

int sv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	struct sv_context *ctx = sv_ctx(context);
	uint64_t count;
	bool open;

	for (;;) {
		ssize_t n = read(context->async_fd, &count, sizeof(count));

		/* A signal ends the wait, too: who was interrupted has to be told. */
		if (n != sizeof(count))
			return -1;
		sv_port_lock(ctx->port);
		open = take_event(&ctx->events, event);
		sv_port_unlock(ctx->port);
		if (!open) {
			errno = EIO;
			return -1;
		}
		if (event->event_type != BLANK)
			return 0;
	}
}

void sv_ack_async_event(struct ibv_async_event *event)
{
	pthread_mutex_t *mutex;
	pthread_cond_t *cond;
	uint32_t *completed;

	switch (element_of(event->event_type)) {
	case ELEMENT_QP:
		mutex = &event->element.qp->mutex;
		cond = &event->element.qp->cond;
		completed = &event->element.qp->events_completed;
		break;
	case ELEMENT_CQ:
		mutex = &event->element.cq->mutex;
		cond = &event->element.cq->cond;
		completed = &event->element.cq->async_events_completed;
		break;
	case ELEMENT_SRQ:
		mutex = &event->element.srq->mutex;
		cond = &event->element.srq->cond;
		completed = &event->element.srq->events_completed;
		break;
	default:
		return;
	}
	pthread_mutex_lock(mutex);
	++*completed;
	pthread_cond_signal(cond);
	pthread_mutex_unlock(mutex);
}

void sv_wait_acked(pthread_mutex_t *mutex, pthread_cond_t *cond, const uint32_t *completed,
		   uint32_t reported)
{
	pthread_mutex_lock(mutex);
	while (*completed != reported)
		pthread_cond_wait(cond, mutex);
	pthread_mutex_unlock(mutex);
}
