/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each operation of a stream passes, inline: a put and its test are one function each, and
 * save no registers between these steps. Slow ways are functions.
 */
#ifndef HA_GIN_VERBS_SENDER_POST_H
#define HA_GIN_VERBS_SENDER_POST_H

#include "gin/verbs/reader.h"
#include "gin/verbs/sender.h"
#include "memory/mr.h"
#include "transport/labels.h"

#include <arpa/inet.h>

#define HA_GIN_INLINE static inline __attribute__((always_inline))

/* Of what is written from; a registration may have to be made first, and waits. 0: there is none.
 */
uint32_t ha_gin_sender_find_lkey(struct ha_mr *from, struct ha_nic *nic)
    __attribute__((cold, noinline));
/* Nothing at all has to go somewhere for its notice. */
bool ha_gin_sender_post_nothing(struct ha_gin_sender *sender, const struct ibv_send_wr *noticed)
    __attribute__((cold, noinline));
/* What was begun and not posted, as far as there is room. */
void ha_gin_sender_post_all(struct ha_gin_sender *sender);

/* Where data goes from and to. False: its keys are not known. */
HA_GIN_INLINE bool ha_gin_sender_fill_data(struct ha_gin_sender *sender,
					   const struct ha_gin_request *request,
					   struct ibv_send_wr *wr)
{
	const struct ha_gin_remote *to = request->to;
	struct ibv_sge *sge = &sender->posting.data_sge;
	uint32_t lkey = ha_mr_lkey(ha_mr_keys(request->from_mr, sender->posting.nic_index));
	uint32_t rkey;

	if (__builtin_expect(lkey == 0, 0) &&
	    !(lkey = ha_gin_sender_find_lkey(request->from_mr, sender->qp.port->nic)))
		return false;
	if (__builtin_expect(!ha_gin_rkey(to, sender->epoch, &rkey), 0))
		return false;
	wr->wr.rdma.remote_addr = to->base + request->to_offset;
	wr->wr.rdma.rkey = rkey;
	sge->addr = request->from;
	sge->length = request->size;
	sge->lkey = lkey;
	return true;
}

HA_GIN_INLINE void ha_gin_sender_fill_record(struct ha_gin_sender *sender,
					     const struct ha_gin_request *request, uint64_t number)
{
	struct ha_gin_posting *posting = &sender->posting;

	posting->row.number = number;
	posting->row.region = request->region;
	posting->row.offset = request->signal_offset;
	posting->row.addend = request->addend;
	posting->record.wr.rdma.remote_addr =
	    sender->ring + number % HA_GIN_WINDOW * sizeof(posting->row);
}

/* The queue has room for what the receiver has room for, unless acknowledgements are late. */
HA_GIN_INLINE bool ha_gin_sender_has_room(const struct ha_gin_journal *journal)
{
	return journal->posted - journal->acknowledged < HA_GIN_WINDOW;
}

/* The next operation, of this number: data with the notice, or data and a record that has it, in
 * one list. False: not now. */
HA_GIN_INLINE bool ha_gin_sender_post_next(struct ha_gin_sender *sender,
					   const struct ha_gin_request *request, uint64_t number)
{
	struct ha_gin_posting *posting = &sender->posting;
	const bool has_signal = request->has_signal;
	struct ibv_send_wr *noticed = has_signal ? &posting->record : &posting->put;
	struct ibv_send_wr *first = noticed;

	if (request->to) {
		first = has_signal ? &posting->data : noticed;
		if (!ha_gin_sender_fill_data(sender, request, first))
			return false;
	}
	if (!ha_gin_post_this(&sender->journal, number))
		return false;
	noticed->wr_id = ha_gin_wr_id(HA_GIN_WR_OPERATION, number);
	noticed->imm_data = htonl(posting->imm | ha_imm_pack(number, 0, 1, has_signal));
	if (has_signal)
		ha_gin_sender_fill_record(sender, request, number);
	else if (!request->to)
		return ha_gin_sender_post_nothing(sender, noticed);
	return ha_gin_qp_send(&sender->qp, first);
}

HA_GIN_INLINE void ha_gin_sender_post(struct ha_gin_sender *sender)
{
	if (sender->journal.posted != sender->journal.issued)
		ha_gin_sender_post_all(sender);
}

/* Begins it, and posts what can be posted. */
HA_GIN_INLINE void ha_gin_sender_begin(struct ha_gin_sender *sender, struct ha_gin_request *request)
{
	struct ha_gin_journal *journal = &sender->journal;
	/* The one that had its slot before was tested to its end, so it is complete. */
	const uint64_t number = ha_gin_issue_in_room(journal);

	request->number = number;
	request->is_out = true;
	sender->next = &sender->requests[(number + 1) & (journal->slots - 1)];
	if (sender->state != HA_GIN_SENDER_RUNS)
		return;
	if (journal->posted != number)
		ha_gin_sender_post_all(sender);
	else if (ha_gin_sender_has_room(journal))
		(void)ha_gin_sender_post_next(sender, request, number);
}

/* What the receiver says costs a look at memory that it writes: only where it matters. */
HA_GIN_INLINE bool ha_gin_sender_has_to_hear(const struct ha_gin_journal *journal)
{
	return journal->is_e2e || journal->posted - journal->applied >= HA_GIN_WINDOW / 2;
}

HA_GIN_INLINE void ha_gin_sender_take(struct ha_gin_sender *sender, uint64_t wr_id)
{
	if (ha_gin_wr_what(wr_id) == HA_GIN_WR_OPERATION)
		(void)ha_gin_acknowledge(&sender->journal, sender->epoch, ha_gin_wr_low(wr_id));
	else if (ha_gin_wr_what(wr_id) == HA_GIN_WR_READ)
		ha_gin_reader_hears(sender, ha_gin_wr_low(wr_id));
}

HA_GIN_INLINE void ha_gin_sender_poll(struct ha_gin_sender *sender)
{
	struct ha_gin_journal *journal = &sender->journal;
	struct ibv_wc wc;

	/* Where nothing is under way there is nothing to come. */
	while ((journal->acknowledged != journal->posted || sender->qp.is_fencing) &&
	       ha_gin_qp_poll(&sender->qp, &wc))
		ha_gin_sender_take(sender, wc.wr_id);
	if (ha_gin_sender_has_to_hear(journal))
		(void)ha_gin_hear_applied(journal, sender->epoch, *sender->told);
}

/* Takes what has completed, and posts what can be posted. */
HA_GIN_INLINE void ha_gin_sender_works(struct ha_gin_sender *sender)
{
	if (sender->state != HA_GIN_SENDER_RUNS)
		return;
	ha_gin_sender_poll(sender);
	if (!sender->qp.fault)
		ha_gin_sender_post(sender);
	if (__builtin_expect(sender->reads.done != sender->reads.issued, 0))
		ha_gin_reader_works(sender);
}

#endif
