/* SPDX-License-Identifier: Apache-2.0 */
#include "ibgda/receiver.h"

#include <string.h>

#define PAGE 4096u
#define FLUSH_NS                                                                                   \
	20000000u /* a NIC that does not read its own memory in that time cannot be asked */

void ha_ibgda_receiver_abort(struct ha_ibgda_receiver *receiver, const char *why)
{
	if (receiver->fault)
		return;
	receiver->fault = ha_dev_load(&receiver->is_ended) ? "its program has ended it" : why;
	receiver->channel.end(receiver->channel.context);
}

void ha_ibgda_receiver_end(struct ha_ibgda_receiver *receiver)
{
	ha_dev_store(&receiver->is_ended, 1);
	receiver->channel.end(receiver->channel.context);
}

void ha_ibgda_receiver_notice_end(struct ha_ibgda_receiver *receiver)
{
	if (ha_dev_load(&receiver->is_ended))
		ha_ibgda_receiver_abort(receiver, NULL);
}

/* ---- opening --------------------------------------------------------------------------------- */

static bool open_nic(struct ha_ibgda_receiver *receiver, unsigned int nic)
{
	struct ha_ibgda_pair *loop = &receiver->loops[nic];
	struct ha_ibgda_address own;

	receiver->mrs[nic] =
	    ibv_reg_mr(receiver->nics[nic].pd, receiver->cells, PAGE,
		       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	if (!receiver->mrs[nic] || !ha_ibgda_pair_open(loop, &receiver->nics[nic], 1))
		return false;
	ha_ibgda_pair_address(loop, &own);
	return ha_ibgda_pair_connect(loop, &own);
}

bool ha_ibgda_receiver_open(struct ha_ibgda_receiver *receiver, const struct ha_ibgda_nic *nics,
			    unsigned int num_nics, struct ha_ibgda_channel channel,
			    const struct ha_ibgda_memory *memory)
{
	*receiver = (struct ha_ibgda_receiver){
	    .nics = nics, .num_nics = num_nics, .channel = channel, .memory = memory};
	receiver->cells = ha_ibgda_allocate(memory, PAGE, PAGE);
	if (!receiver->cells)
		return false;
	memset(receiver->cells, 0, PAGE);
	for (unsigned int nic = 0; nic < num_nics; nic++)
		if (!open_nic(receiver, nic)) {
			ha_ibgda_receiver_abort(receiver, "a NIC cannot be used");
			ha_ibgda_receiver_close(receiver);
			return false;
		}
	return true;
}

uint64_t ha_ibgda_receiver_signal(const struct ha_ibgda_receiver *receiver, uint32_t id)
{
	return __atomic_load_n(&receiver->cells[id], __ATOMIC_ACQUIRE);
}

void ha_ibgda_receiver_close(struct ha_ibgda_receiver *receiver)
{
	for (unsigned int n = 0; n < HA_IBGDA_OPENED_MOST; n++)
		(void)ha_ibgda_pair_close(&receiver->pairs[n].pair);
	for (unsigned int nic = 0; nic < receiver->num_nics; nic++) {
		(void)ha_ibgda_pair_close(&receiver->loops[nic]);
		if (receiver->mrs[nic])
			(void)ibv_dereg_mr(receiver->mrs[nic]);
		receiver->mrs[nic] = NULL;
	}
	ha_ibgda_release(receiver->memory, receiver->cells);
	receiver->cells = NULL;
}

/* ---- what it says ---------------------------------------------------------------------------- */

static void say(struct ha_ibgda_receiver *receiver, struct ha_ibgda_message *message)
{
	message->version = HA_IBGDA_VERSION;
	if (!receiver->channel.send(receiver->channel.context, message))
		ha_ibgda_receiver_abort(receiver, "the other end does not read what it is told");
}

void ha_ibgda_receiver_suspect(struct ha_ibgda_receiver *receiver, uint32_t nic)
{
	struct ha_ibgda_message message = {.kind = HA_IBGDA_SUSPECT, .nic = nic};

	say(receiver, &message);
}

/* ---- queue pairs ----------------------------------------------------------------------------- */

/* The place of a number; HA_IBGDA_OPENED_MOST: it has none. */
static unsigned int place_of(const struct ha_ibgda_receiver *receiver, uint32_t number)
{
	unsigned int n = 0;

	while (n < HA_IBGDA_OPENED_MOST && receiver->pairs[n].number != number)
		n++;
	return n;
}

static void is_asked(struct ha_ibgda_receiver *receiver, const struct ha_ibgda_message *asked)
{
	const unsigned int place = place_of(receiver, 0);
	struct ha_ibgda_message refusal = {
	    .kind = HA_IBGDA_REFUSED, .pair = asked->pair, .nic = asked->nic};

	if (place == HA_IBGDA_OPENED_MOST) {
		say(receiver, &refusal);
		return;
	}
	receiver->pairs[place].number = asked->pair;
	receiver->pairs[place].nic = asked->nic;
	receiver->pairs[place].is_asked = true;
	receiver->pairs[place].peer = asked->address;
}

/* Where there was one before. */
static bool make(struct ha_ibgda_receiver *receiver, unsigned int place)
{
	struct ha_ibgda_pair *pair = &receiver->pairs[place].pair;
	const struct ha_ibgda_nic *nic = &receiver->nics[receiver->pairs[place].nic];

	if (!ha_ibgda_pair_close(pair) || !ha_ibgda_pair_open(pair, nic, 0))
		return false;
	if (ha_ibgda_pair_connect(pair, &receiver->pairs[place].peer))
		return true;
	(void)ha_ibgda_pair_close(pair);
	return false;
}

static void opens(struct ha_ibgda_receiver *receiver, unsigned int place)
{
	const uint32_t nic = receiver->pairs[place].nic;
	struct ha_ibgda_message answer = {
	    .kind = HA_IBGDA_REFUSED, .pair = receiver->pairs[place].number, .nic = nic};

	receiver->pairs[place].is_asked = false;
	if (make(receiver, place)) {
		answer.kind = HA_IBGDA_OPENED;
		ha_ibgda_pair_address(&receiver->pairs[place].pair, &answer.address);
		answer.cells_addr = (uint64_t)(uintptr_t)receiver->cells;
		answer.cells_key = receiver->mrs[nic]->rkey;
		memcpy(answer.keys, receiver->nics[nic].rkeys, sizeof(answer.keys));
	} else {
		receiver->pairs[place].number = 0;
	}
	say(receiver, &answer);
}

bool ha_ibgda_receiver_prepare(struct ha_ibgda_receiver *receiver)
{
	unsigned int place = 0;

	if (receiver->fault)
		return false;
	while (place < HA_IBGDA_OPENED_MOST && !receiver->pairs[place].is_asked)
		place++;
	if (place < HA_IBGDA_OPENED_MOST) {
		opens(receiver, place);
		return true;
	}
	for (place = 0; place < HA_IBGDA_OPENED_MOST; place++)
		if (ha_ibgda_pair_is_fenced(&receiver->pairs[place].pair))
			return ha_ibgda_pair_close(&receiver->pairs[place].pair);
	return false;
}

/* ---- the end of one -------------------------------------------------------------------------- */

static void tell(struct ha_ibgda_receiver *receiver, uint32_t number, bool is_flushed)
{
	struct ha_ibgda_message answer = {
	    .kind = HA_IBGDA_VERDICT, .pair = number, .is_flushed = is_flushed};

	for (uint32_t id = 0; id < HA_IBGDA_IDS; id++)
		answer.cells[id] = ha_ibgda_receiver_signal(receiver, id);
	receiver->flushing = 0;
	say(receiver, &answer);
}

static bool post_flush(struct ha_ibgda_receiver *receiver, uint32_t nic)
{
	struct ha_ibgda_pair *loop = &receiver->loops[nic];
	struct ibv_sge to = {.addr = (uint64_t)(uintptr_t)&receiver->cells[HA_IBGDA_IDS],
			     .length = sizeof(uint64_t),
			     .lkey = receiver->mrs[nic]->lkey};
	struct ibv_send_wr wr = {.sg_list = &to,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_READ,
				 .send_flags = IBV_SEND_SIGNALED,
				 .wr.rdma = {.remote_addr = (uint64_t)(uintptr_t)receiver->cells,
					     .rkey = receiver->mrs[nic]->rkey}},
			   *bad;

	/* One that was given up and is not destroyed may still answer what it was asked before. */
	return loop->qp && !loop->fault && ibv_post_send(loop->qp, &wr, &bad) == 0;
}

/* Nothing of it arrives any more; and then what its NIC holds is placed, before the cells are read.
 */
static void close_pair(struct ha_ibgda_receiver *receiver, uint64_t now_ns)
{
	const unsigned int place = place_of(receiver, receiver->closing);
	const uint32_t number = receiver->closing;

	if (place < HA_IBGDA_OPENED_MOST && !ha_ibgda_pair_fence(&receiver->pairs[place].pair))
		return; /* again */
	receiver->closing = 0;
	if (place == HA_IBGDA_OPENED_MOST)
		return; /* it could not be made */
	receiver->pairs[place].number = 0;
	if (receiver->pairs[place].is_asked) {
		receiver->pairs[place].is_asked = false;
		return;
	}
	receiver->flushing = number;
	receiver->flushing_nic = receiver->pairs[place].nic;
	receiver->flushing_ns = now_ns;
	if (!post_flush(receiver, receiver->flushing_nic))
		tell(receiver, number, false);
}

static void look_at_flush(struct ha_ibgda_receiver *receiver, uint64_t now_ns)
{
	struct ha_ibgda_pair *loop = &receiver->loops[receiver->flushing_nic];
	struct ibv_wc wc;
	const int polled = ibv_poll_cq(loop->cq, 1, &wc);

	if (polled == 0 && now_ns - receiver->flushing_ns < FLUSH_NS)
		return;
	if (polled == 1 && wc.status == IBV_WC_SUCCESS) {
		tell(receiver, receiver->flushing, true);
		return;
	}
	(void)ha_ibgda_pair_close(loop);
	tell(receiver, receiver->flushing, false);
}

/* ---- what it hears --------------------------------------------------------------------------- */

static bool is_sense(const struct ha_ibgda_receiver *receiver,
		     const struct ha_ibgda_message *message)
{
	return message->version == HA_IBGDA_VERSION && message->pair != 0 &&
	       ((message->kind == HA_IBGDA_OPEN && message->nic < receiver->num_nics) ||
		(message->kind == HA_IBGDA_CLOSE && !receiver->closing && !receiver->flushing));
}

void ha_ibgda_receiver_step(struct ha_ibgda_receiver *receiver, uint64_t now_ns)
{
	struct ha_ibgda_message message;
	int heard = 0;

	ha_ibgda_receiver_notice_end(receiver);
	if (receiver->fault)
		return;
	if (receiver->closing)
		close_pair(receiver, now_ns);
	if (receiver->flushing)
		look_at_flush(receiver, now_ns);
	/* One thing after the other: a CLOSE waits until the one before it is answered. */
	if (!receiver->closing && !receiver->flushing)
		heard = receiver->channel.receive(receiver->channel.context, &message);
	if (heard < 0)
		ha_ibgda_receiver_abort(receiver, "the other end is gone");
	if (heard <= 0)
		return;
	if (!is_sense(receiver, &message)) {
		ha_ibgda_receiver_abort(receiver, "the other end says what makes no sense");
		return;
	}
	if (message.kind == HA_IBGDA_OPEN)
		is_asked(receiver, &message);
	else
		receiver->closing = message.pair;
}
