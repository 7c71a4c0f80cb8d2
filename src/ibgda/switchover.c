/* SPDX-License-Identifier: Apache-2.0 */
#include "ibgda/switchover.h"

#include "nccl_ha/ibgda_cqe.h"

#include <stddef.h>
#include <string.h>

static struct ha_ibgda_queue *queue_of(const struct ha_ibgda_host *host, uint32_t queue)
{
	return &host->stream->queues[queue];
}

static struct ha_ibgda_queue *in_use(const struct ha_ibgda_host *host)
{
	return queue_of(host, host->queue);
}

static void shut(const struct ha_ibgda_host *host)
{
	uint64_t *word = &host->stream->gate, gate = ha_dev_load(word), before;

	while ((before = ha_dev_swap_if(
		    word, gate, (gate & ~(uint64_t)HA_IBGDA_CLOSED) | HA_IBGDA_DEAD)) != gate)
		gate = before;
}

void ha_ibgda_end_gate(struct ha_ibgda_host *host)
{
	ha_dev_store(&host->is_ended, 1);
	ha_dev_fence();
	shut(host);
}

/* Who ends it meanwhile has set the gate after this, or is seen here. */
static void set_gate(const struct ha_ibgda_host *host, uint32_t flags)
{
	ha_dev_store(&host->stream->gate, ha_ibgda_gate(in_use(host), flags));
	ha_dev_fence();
	if (ha_dev_load(&host->is_ended))
		shut(host);
}

static uint64_t depth(const struct ha_ibgda_host *host)
{
	return (uint64_t)1 << host->stream->log;
}

/* ---- the journal: what a request was, as its queue has it ------------------------------------ */

static uint32_t note(const struct ha_wqe *request)
{
	return (uint32_t)(request->words[1] >> 32);
}

static uint32_t opcode(const struct ha_wqe *request)
{
	return (uint32_t)(request->words[0] >> 24 & 0xff);
}

static bool is_nop(const struct ha_wqe *request)
{
	return opcode(request) == HA_WQE_NOP;
}

/* Behind puts, so that they are in memory when it is answered. */
static bool is_read(const struct ha_wqe *request)
{
	return opcode(request) == HA_WQE_READ;
}

static bool is_signal(const struct ha_wqe *request)
{
	return !is_nop(request) && (note(request) & HA_IBGDA_NOTE_SIGNAL);
}

static uint32_t id_of(const struct ha_wqe *request)
{
	return note(request) >> 24 & (HA_IBGDA_IDS - 1);
}

static uint64_t addend_of(const struct ha_wqe *request)
{
	return note(request) & HA_IBGDA_ADDEND_MOST;
}

static uint64_t value_of(const struct ha_wqe *request)
{
	return request->words[4] >> 32 | request->words[5] << 32;
}

static const struct ha_wqe *request(const struct ha_ibgda_host *host, uint64_t number)
{
	return ha_ibgda_request(host->stream, in_use(host), number);
}

/* ---- closing --------------------------------------------------------------------------------- */

void ha_ibgda_host_init(struct ha_ibgda_host *host, struct ha_ibgda_stream *stream)
{
	memset(host, 0, offsetof(struct ha_ibgda_host, is_ended));
	host->stream = stream;
	host->use[0] = HA_IBGDA_IN_USE;
	set_gate(host, 0);
}

uint32_t ha_ibgda_free_queue(const struct ha_ibgda_host *host)
{
	uint32_t queue = 0;

	while (queue < HA_IBGDA_QUEUES && host->use[queue] != HA_IBGDA_FREE)
		queue++;
	return queue;
}

/* A thread that publishes sees it, or what it has published is seen behind it. */
static void close_gate(struct ha_ibgda_host *host)
{
	set_gate(host, HA_IBGDA_CLOSED);
}

void ha_ibgda_fail(struct ha_ibgda_host *host)
{
	close_gate(host);
	host->state = HA_IBGDA_FAILED_OVER;
}

/* Requests below have a completion that says it is done. */
static uint64_t acknowledged(const struct ha_ibgda_host *host)
{
	const struct ha_ibgda_queue *queue = in_use(host);
	uint64_t number = ha_dev_load(&host->stream->cons);

	if (number < queue->base)
		number = queue->base;
	while (number < ha_dev_load(&queue->ready) &&
	       ha_cqe_read(queue->completions, host->stream->log, number - queue->base).kind ==
		   HA_CQE_DONE)
		number++;
	return number;
}

static bool is_refusal(uint8_t syndrome)
{
	return syndrome == HA_CQE_LOCAL_PROTECTION || syndrome == HA_CQE_REMOTE_ACCESS ||
	       syndrome == HA_CQE_REMOTE_INVALID;
}

enum ha_ibgda_front ha_ibgda_look_at_front(const struct ha_ibgda_host *host,
					   struct ha_ibgda_under_way *under_way)
{
	const struct ha_ibgda_queue *queue = in_use(host);
	const uint64_t number = acknowledged(host), index = number - queue->base;
	const struct ha_cqe cqe = ha_cqe_read(queue->completions, host->stream->log, index);

	*under_way = (struct ha_ibgda_under_way){number, ha_dev_load(&queue->ready)};
	if (cqe.kind == HA_CQE_FAILED && cqe.index == (uint16_t)index)
		return is_refusal(cqe.syndrome) ? HA_IBGDA_FRONT_REFUSED : HA_IBGDA_FRONT_FAILED;
	return number > queue->base || number >= under_way->last ? HA_IBGDA_MOVES : HA_IBGDA_WAITS;
}

static uint64_t bytes_of(const struct ha_wqe *request)
{
	return is_nop(request) || is_signal(request) ? 0
						     : ha_dev_swap32((uint32_t)request->words[4]);
}

uint64_t ha_ibgda_bytes_under_way(const struct ha_ibgda_host *host,
				  const struct ha_ibgda_under_way *under_way)
{
	uint64_t bytes = 0;

	for (uint64_t number = under_way->first; number < under_way->last; number++)
		bytes += bytes_of(request(host, number));
	return bytes;
}

/* Whatever was executed was published before, so it is below `ready` as it is read now. */
void ha_ibgda_fenced(struct ha_ibgda_host *host)
{
	host->ready = ha_dev_load(&in_use(host)->ready);
	host->reserved[host->queue] = ha_dev_load(&host->stream->resv);
	host->acked = acknowledged(host);
	host->state = HA_IBGDA_FENCED;
}

/* ---- what the receiver has ------------------------------------------------------------------- */

/* Requests below are covered by a signal that is in its cell; at least what is acknowledged. */
static uint64_t covered(const struct ha_ibgda_host *host, const struct ha_ibgda_verdict *verdict)
{
	for (uint64_t number = host->ready; number > host->acked; number--) {
		const struct ha_wqe *last = request(host, number - 1);

		if (is_signal(last) && value_of(last) <= verdict->cells[id_of(last)])
			return number;
	}
	return host->acked;
}

/* What is acknowledged and nobody can have written over. */
static uint64_t journal_begins(const struct ha_ibgda_host *host)
{
	const uint64_t reserved = host->reserved[host->queue], base = in_use(host)->base;
	const uint64_t begins = reserved > depth(host) ? reserved - depth(host) : 0;

	return begins > base ? begins : base;
}

/* Whether the journal tells what the newest acknowledged signal of an id wrote. */
static bool newest_acked(const struct ha_ibgda_host *host, uint32_t id, uint64_t *value)
{
	for (uint64_t number = host->acked; number > journal_begins(host); number--) {
		const struct ha_wqe *last = request(host, number - 1);

		if (!is_signal(last) || id_of(last) != id)
			continue;
		*value = value_of(last);
		return true;
	}
	for (uint64_t number = host->acked; number < host->ready; number++) {
		const struct ha_wqe *first = request(host, number);

		if (!is_signal(first) || id_of(first) != id)
			continue;
		*value = value_of(first) - addend_of(first);
		return true;
	}
	return false;
}

static enum ha_ibgda_judged judge_id(const struct ha_ibgda_host *host,
				     const struct ha_ibgda_verdict *verdict, uint32_t id)
{
	const uint64_t cell = verdict->cells[id];
	uint64_t value;

	if (cell >= ha_dev_load(&host->stream->sums[id]))
		return HA_IBGDA_FINE; /* all that ever had a number */
	if (newest_acked(host, id, &value))
		return cell < value ? HA_IBGDA_LOST : HA_IBGDA_FINE;
	return verdict->is_flushed ? HA_IBGDA_FINE : HA_IBGDA_UNKNOWN;
}

/* Acknowledged requests behind the newest signal that is in its cell, of which a dead NIC proves
 * nothing. */
static bool has_unproved(const struct ha_ibgda_host *host, const struct ha_ibgda_verdict *verdict)
{
	if (covered(host, verdict) > host->acked)
		return false;
	if (host->acked == in_use(host)->base)
		return false; /* what came before was settled when this queue began */
	for (uint64_t number = host->acked; number > journal_begins(host); number--) {
		const struct ha_wqe *last = request(host, number - 1);

		if (is_nop(last) || is_read(last) ||
		    (is_signal(last) && value_of(last) <= verdict->cells[id_of(last)]))
			return false;
		if (!is_signal(last))
			return true;
	}
	return true;
}

enum ha_ibgda_judged ha_ibgda_judge(const struct ha_ibgda_host *host,
				    const struct ha_ibgda_verdict *verdict)
{
	for (uint32_t id = 0; id < HA_IBGDA_IDS; id++) {
		const enum ha_ibgda_judged judged = judge_id(host, verdict, id);

		if (judged != HA_IBGDA_FINE)
			return judged;
	}
	return !verdict->is_flushed && has_unproved(host, verdict) ? HA_IBGDA_UNPROVED
								   : HA_IBGDA_FINE;
}

/* ---- the next queue -------------------------------------------------------------------------- */

static void set_words(struct ha_ibgda_host *host, uint32_t next, uint64_t base, uint64_t ready)
{
	struct ha_ibgda_queue *queue = queue_of(host, next);

	ha_dev_store(&queue->base, base);
	ha_dev_store(&queue->ready, ready);
	ha_dev_store(&queue->prod, ready);
	ha_dev_store(&queue->taken, ready);
	ha_dev_store(&queue->lock, 0);
	host->use[next] = HA_IBGDA_IN_USE;
	host->next = next;
}

/* A request of the old queue, as the new one's path has it. */
static void copy(const struct ha_ibgda_host *host, uint64_t number)
{
	const struct ha_wqe *from = request(host, number);
	const struct ha_ibgda_queue *queue = queue_of(host, host->next);
	struct ha_wqe *to = ha_ibgda_request(host->stream, queue, number);
	const uint32_t index = (uint32_t)(number - queue->base);
	const struct ha_wqe_data data = {
	    .addr = ha_dev_swap64(from->words[5]),
	    .remote_addr = ha_dev_swap64(from->words[2]),
	    .lkey = queue->keys[note(from) >> 8 & (HA_IBGDA_REGIONS - 1)].local,
	    .rkey = queue->keys[note(from) & (HA_IBGDA_REGIONS - 1)].remote,
	    .size = ha_dev_swap32((uint32_t)from->words[4])};
	const struct ha_wqe_data of_cells = {.addr = data.addr,
					     .remote_addr = queue->cells_addr,
					     .lkey = data.lkey,
					     .rkey = queue->cells_key,
					     .size = data.size};

	if (is_signal(from))
		ha_wqe_write_value(to, index, HA_WQE_WRITE, queue->qpn,
				   queue->cells_addr + (uint64_t)8 * id_of(from), queue->cells_key,
				   value_of(from), note(from));
	else if (is_nop(from))
		ha_wqe_nop(to, index, queue->qpn);
	else if (is_read(from))
		ha_wqe_transfer(to, index, HA_WQE_READ, queue->qpn, &of_cells, note(from));
	else
		ha_wqe_transfer(to, index, HA_WQE_WRITE, queue->qpn, &data, note(from));
}

/* Completion k stays that of request k: what is settled becomes a request that does nothing. */
void ha_ibgda_prepare(struct ha_ibgda_host *host, uint32_t next,
		      const struct ha_ibgda_verdict *verdict)
{
	const uint64_t settled = covered(host, verdict);

	set_words(host, next, host->acked, host->ready);
	for (uint64_t number = host->acked; number < host->ready; number++) {
		const struct ha_ibgda_queue *queue = queue_of(host, next);

		if (number < settled)
			ha_wqe_nop(ha_ibgda_request(host->stream, queue, number),
				   (uint32_t)(number - queue->base), queue->qpn);
		else
			copy(host, number);
	}
	host->state = HA_IBGDA_PREPARED;
}

static void ring(const struct ha_ibgda_host *host, const struct ha_ibgda_queue *queue, uint64_t end)
{
	ha_dev_fence();
	ha_dev_store32(queue->record, ha_wqe_record((uint32_t)(end - queue->base)));
	ha_dev_fence();
	ha_dev_store_doorbell(queue->doorbell,
			      ha_ibgda_request(host->stream, queue, end - 1)->words[0]);
}

void ha_ibgda_start(struct ha_ibgda_host *host)
{
	const struct ha_ibgda_queue *queue = queue_of(host, host->next);

	if (queue->ready > queue->base)
		ring(host, queue, queue->ready);
	host->state = HA_IBGDA_STARTED;
}

void ha_ibgda_open(struct ha_ibgda_host *host)
{
	if (host->use[host->queue] == HA_IBGDA_IN_USE)
		host->use[host->queue] = HA_IBGDA_LEFT;
	host->queue = host->next;
	host->generation++;
	ha_dev_store(host->stream->alarm, 0);
	set_gate(host, 0);
	host->state = HA_IBGDA_RUNS;
}

void ha_ibgda_give_up(struct ha_ibgda_host *host)
{
	set_gate(host, HA_IBGDA_DEAD);
	host->state = HA_IBGDA_GIVEN_UP;
}

/* ---- what was left --------------------------------------------------------------------------- */

static void silence(struct ha_ibgda_host *host, uint32_t left)
{
	ha_dev_store(&queue_of(host, left)->prod, HA_IBGDA_NEVER);
	ha_dev_fence();
	host->use[left] = HA_IBGDA_SILENCED;
}

/* Who held the lock when `prod` was set may have set it after that: so the lock is read first. */
static void look_for_silence(struct ha_ibgda_host *host, uint32_t left)
{
	const struct ha_ibgda_queue *queue = queue_of(host, left);

	if (ha_dev_load(&queue->lock))
		return;
	if (ha_dev_load(&queue->prod) == HA_IBGDA_NEVER)
		host->use[left] = HA_IBGDA_SILENT;
	else
		silence(host, left);
}

/* All that was reserved in its time is published elsewhere, or was taken: nobody writes into it any
 * more. */
static void look_for_writers(struct ha_ibgda_host *host, uint32_t left)
{
	if (host->state == HA_IBGDA_RUNS &&
	    ha_dev_load(&in_use(host)->ready) >= host->reserved[left])
		host->use[left] = HA_IBGDA_FREE;
}

unsigned int ha_ibgda_retire(struct ha_ibgda_host *host)
{
	unsigned int left = 0;

	for (uint32_t queue = 0; queue < HA_IBGDA_QUEUES; queue++) {
		if (queue == host->queue)
			continue;
		if (host->use[queue] == HA_IBGDA_LEFT)
			silence(host, queue);
		else if (host->use[queue] == HA_IBGDA_SILENCED)
			look_for_silence(host, queue);
		else if (host->use[queue] == HA_IBGDA_SILENT)
			look_for_writers(host, queue);
		left += host->use[queue] > HA_IBGDA_IN_USE;
	}
	return left;
}

/* ---- a planned switch ------------------------------------------------------------------------ */

void ha_ibgda_plan(struct ha_ibgda_host *host)
{
	close_gate(host);
	silence(host, host->queue);
	host->ready = 0;
	host->state = HA_IBGDA_PLANNED;
}

/* What is rung may be complete, and its block another request's already. */
static bool is_rung(const struct ha_ibgda_queue *queue, uint64_t end)
{
	return *queue->record == ha_wqe_record((uint32_t)(end - queue->base));
}

/* When nobody rings any more the host does, for what was published and not rung. */
bool ha_ibgda_is_drained(struct ha_ibgda_host *host)
{
	const struct ha_ibgda_queue *queue = in_use(host);

	if (host->use[host->queue] == HA_IBGDA_SILENCED) {
		look_for_silence(host, host->queue);
		if (host->use[host->queue] != HA_IBGDA_SILENT)
			return false;
		host->ready = ha_dev_load(&queue->ready);
		if (!is_rung(queue, host->ready))
			ring(host, queue, host->ready);
	}
	host->acked = acknowledged(host);
	return host->acked >= host->ready;
}

void ha_ibgda_prepare_planned(struct ha_ibgda_host *host, uint32_t next)
{
	host->acked = host->ready;
	host->reserved[host->queue] = ha_dev_load(&host->stream->resv);
	set_words(host, next, host->ready, host->ready);
	host->state = HA_IBGDA_STARTED;
}
