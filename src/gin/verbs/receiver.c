/* SPDX-License-Identifier: Apache-2.0 */
#include "gin/verbs/receiver.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/outage.h"
#include "memory/mr.h"
#include "transport/comm.h"
#include "transport/labels.h"

#include <arpa/inet.h>

/* From an offer that came to nothing to the next one. */
#define AGAIN_NS (5 * HA_NS_PER_MS)

static const struct ha_gin_depth depth = {
    .sends = 1, .recvs = HA_GIN_WINDOW, .max_inline = sizeof(uint64_t)};

void ha_gin_receiver_init(struct ha_gin_receiver *receiver, struct ha_comm *comm)
{
	receiver->comm = comm;
	receiver->trouble_ns = ha_now_ns();
}

/* ---- what comes ----------------------------------------------------------------------------- */

static ha_result_t impossible(const struct ha_gin_receiver *receiver, uint64_t number)
{
	HA_WARN("GIN: rank %u wrote what cannot be as operation %llu (out of order, without room, "
		"or with a record of no signal of this rank's): all ranks must have the same "
		"nccl-ha and register the same memory in the same order",
		receiver->rank, (unsigned long long)number);
	return HA_ERR_REMOTE;
}

/* The notice has the low bits of a number that is not far from what was counted. */
static uint64_t number_of(const struct ha_gin_receiver *receiver, uint32_t imm)
{
	const uint64_t next = receiver->inbox.counted;

	return next + (uint64_t)(int64_t)(int16_t)(uint16_t)(ha_imm_seq(imm) - next);
}

static ha_result_t arrives(struct ha_gin_receiver *receiver, uint32_t imm)
{
	const uint64_t number = number_of(receiver, imm);
	struct ha_gin_record record = {0};
	struct ha_gin_word *word = NULL;
	size_t count;
	const struct ha_gin_region *regions = receiver->regions(receiver->arg, &count);

	if (ha_imm_epoch(imm) != (receiver->epoch & 0xffu))
		return HA_OK;
	if (ha_imm_record(imm) &&
	    !ha_gin_record_take(&receiver->ring[number % HA_GIN_WINDOW], number, receiver->epoch,
				regions, count, &record, &word))
		return impossible(receiver, number);
	if (ha_gin_count(&receiver->inbox, receiver->epoch, number, word, record.addend) ==
	    HA_GIN_IMPOSSIBLE)
		return impossible(receiver, number);
	return HA_OK;
}

static ha_result_t poll(struct ha_gin_receiver *receiver)
{
	struct ibv_wc wc;

	while (ha_gin_qp_poll(&receiver->qp, &wc)) {
		if (ha_gin_wr_what(wc.wr_id) == HA_GIN_WR_TELL)
			receiver->is_telling = false;
		if (ha_gin_wr_what(wc.wr_id) != HA_GIN_WR_RECV)
			continue;
		HA_TRY(arrives(receiver, ntohl(wc.imm_data)));
		if (!receiver->qp.is_fencing)
			(void)ha_gin_qp_recv(&receiver->qp);
	}
	return HA_OK;
}

static void tell(struct ha_gin_receiver *receiver)
{
	uint64_t applied;
	struct ibv_sge sge = {(uintptr_t)&applied, sizeof(applied), 0};
	struct ibv_send_wr wr = {.wr_id = ha_gin_wr_id(HA_GIN_WR_TELL, 0),
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE};

	if (receiver->is_telling || receiver->qp.fault || !ha_gin_tell(&receiver->inbox, &applied))
		return;
	wr.wr.rdma.remote_addr = receiver->told_at;
	wr.wr.rdma.rkey = receiver->told_rkey;
	receiver->is_telling = ha_gin_qp_send(&receiver->qp, &wr);
}

static ha_result_t look_at_adder(const struct ha_gin_receiver *receiver)
{
	switch (receiver->adder->applier.over) {
	case HA_GIN_WORKS:
		return HA_OK;
	case HA_GIN_UNPROVED:
		HA_WARN("GIN: a NIC died with data that is not proved to be in memory, which "
			"HA_NCCL_COMPLETION=e2e takes for an error");
		return HA_ERR_SYSTEM;
	case HA_GIN_CANNOT_TELL:
		HA_WARN("GIN: a NIC died while it added a signal, and the word does not say "
			"whether it was added: something else writes to it, or a kernel set it "
			"to zero just then");
		return HA_ERR_SYSTEM;
	}
	return HA_ERR_INTERNAL;
}

ha_result_t ha_gin_receiver_is_in_time(struct ha_gin_receiver *receiver)
{
	const struct ha_gin_inbox *inbox = &receiver->inbox;

	if (!receiver->has_inbox ||
	    ha_gin_stands_ns(&receiver->adding, inbox->applied, inbox->applied != inbox->counted) <
		ha_outage_ns(receiver->config))
		return HA_OK;
	HA_WARN("GIN: from rank %u: a signal could not be added for %d ms (HA_NCCL_OUTAGE_MS)",
		receiver->rank, receiver->config->give_up_ms);
	return HA_ERR_SYSTEM;
}

/* Signals are added also while there is no path. */
ha_result_t ha_gin_receiver_works(struct ha_gin_receiver *receiver)
{
	if (!receiver->has_inbox)
		return HA_OK;
	if (receiver->state == HA_GIN_RECEIVER_RUNS)
		HA_TRY(poll(receiver));
	ha_gin_adder_serve(receiver->adder, &receiver->inbox);
	if (receiver->state == HA_GIN_RECEIVER_RUNS)
		tell(receiver);
	return look_at_adder(receiver);
}

/* ---- epochs --------------------------------------------------------------------------------- */

static void fence(struct ha_gin_receiver *receiver)
{
	if (!ha_gin_receiver_has_end(receiver))
		return;
	receiver->state = HA_GIN_RECEIVER_FENCING;
	if (!receiver->trouble_ns)
		receiver->trouble_ns = ha_now_ns();
	ha_gin_inbox_fence(&receiver->inbox);
	ha_gin_qp_fence(&receiver->qp);
}

static ha_result_t end_fence(struct ha_gin_receiver *receiver)
{
	HA_TRY(poll(receiver));
	if (!ha_gin_qp_is_fenced(&receiver->qp) || !ha_gin_qp_close(&receiver->qp))
		return HA_OK;
	ha_gin_inbox_fenced(&receiver->inbox);
	receiver->state = HA_GIN_RECEIVER_FENCED;
	return HA_OK;
}

static bool make_end(struct ha_gin_receiver *receiver, struct ha_port *port,
		     struct ha_gin_message *offer)
{
	struct ibv_mr *ring;

	if (!ha_gin_adder_has(receiver->adder, port) ||
	    ha_mr_on(receiver->ring_mr, port->nic, &ring) != HA_OK ||
	    ha_gin_qp_open(&receiver->qp, port, &depth) != HA_OK)
		return false;
	for (unsigned int i = 0; i < HA_GIN_WINDOW; i++)
		if (!ha_gin_qp_recv(&receiver->qp)) {
			ha_gin_qp_discard(&receiver->qp);
			return false;
		}
	ha_gin_qp_address(&receiver->qp, &offer->offer.address);
	offer->offer.ring = (uintptr_t)receiver->ring;
	offer->offer.ring_rkey = ring->rkey;
	return true;
}

/* The first epoch is 0, and needs no verdict. */
static void number_epoch(struct ha_gin_receiver *receiver, const struct ha_port *port,
			 struct ha_gin_verdict *verdict)
{
	if (receiver->has_inbox) {
		receiver->epoch++;
		(void)ha_gin_inbox_verdict(&receiver->inbox, verdict);
		return;
	}
	ha_gin_inbox_init(&receiver->inbox, &receiver->adder->applier,
			  (unsigned int)port->nic->index, HA_GIN_WINDOW);
	receiver->has_inbox = true;
}

static ha_result_t offer(struct ha_gin_receiver *receiver)
{
	struct ha_gin_message message = {.say = HA_GIN_OFFER};
	struct ha_gin_path_name name;
	struct ha_port *port;

	if (ha_now_ns() < receiver->again_ns || !ha_gin_path_now(receiver->comm, &port, &name))
		return HA_OK;
	receiver->again_ns = ha_now_ns() + AGAIN_NS;
	if (!make_end(receiver, port, &message))
		return HA_OK;
	number_epoch(receiver, port, &message.offer.verdict);
	receiver->path = message.offer.path = name;
	receiver->state = HA_GIN_RECEIVER_OFFERED;
	receiver->is_telling = false;
	message.epoch = receiver->epoch;
	HA_TRY(receiver->say_regions(receiver->arg, receiver));
	return ha_gin_out_say(receiver->out, &message);
}

static ha_result_t is_answered(struct ha_gin_receiver *receiver,
			       const struct ha_gin_message *answer)
{
	struct ha_gin_message ready = {.say = HA_GIN_READY, .epoch = receiver->epoch};

	if (ha_gin_qp_connect(&receiver->qp, &answer->answer.address) != HA_OK) {
		fence(receiver);
		return HA_OK;
	}
	/* Of the first epoch it is up from the beginning. */
	if (receiver->inbox.end != HA_GIN_UP)
		(void)ha_gin_inbox_resume(&receiver->inbox, receiver->epoch,
					  (unsigned int)receiver->qp.port->nic->index);
	receiver->told_at = answer->answer.told;
	receiver->told_rkey = answer->answer.told_rkey;
	receiver->state = HA_GIN_RECEIVER_RUNS;
	receiver->trouble_ns = 0;
	return ha_gin_out_say(receiver->out, &ready);
}

/* What is of another epoch is late. */
ha_result_t ha_gin_receiver_hears(struct ha_gin_receiver *receiver,
				  const struct ha_gin_message *message)
{
	if (message->epoch != receiver->epoch || !ha_gin_receiver_has_end(receiver))
		return HA_OK;
	if (message->say == HA_GIN_SUSPECT)
		fence(receiver);
	else if (receiver->state == HA_GIN_RECEIVER_OFFERED)
		return is_answered(receiver, message);
	return HA_OK;
}

static bool is_elsewhere(const struct ha_gin_receiver *receiver)
{
	struct ha_gin_path_name name;
	struct ha_port *port;

	return ha_gin_path_now(receiver->comm, &port, &name) &&
	       (name.slot != receiver->path.slot || name.generation != receiver->path.generation);
}

/* What the sender waits for, and cannot miss: it has acknowledgements of all that it wrote. */
static void look_for_silence(struct ha_gin_receiver *receiver)
{
	ha_gin_qp_look_for_silence(&receiver->qp, receiver->inbox.told, receiver->is_telling,
				   (unsigned int)receiver->config->rto_ms * HA_NS_PER_MS);
}

static void look_at_end(struct ha_gin_receiver *receiver)
{
	const struct ha_gin_qp *qp = &receiver->qp;

	look_for_silence(receiver);
	if (qp->fault)
		HA_INFO_LIMITED(HA_SUBSYS_NET,
				"GIN: from rank %u: the queue pair on %s:%d failed: %s",
				receiver->rank, qp->port->nic->name, qp->port->port_num, qp->fault);
	if (qp->fault || is_elsewhere(receiver))
		fence(receiver);
}

static ha_result_t look_at_outage(const struct ha_gin_receiver *receiver)
{
	if (!receiver->trouble_ns ||
	    ha_now_ns() - receiver->trouble_ns < ha_outage_ns(receiver->config))
		return HA_OK;
	HA_WARN("GIN: from rank %u: no path for %d ms (HA_NCCL_OUTAGE_MS)", receiver->rank,
		receiver->config->give_up_ms);
	return HA_ERR_SYSTEM;
}

ha_result_t ha_gin_receiver_mends(struct ha_gin_receiver *receiver)
{
	if (ha_gin_receiver_has_end(receiver))
		look_at_end(receiver);
	if (receiver->state == HA_GIN_RECEIVER_FENCING)
		HA_TRY(end_fence(receiver));
	if (receiver->state == HA_GIN_RECEIVER_FENCED)
		HA_TRY(offer(receiver));
	return look_at_outage(receiver);
}

bool ha_gin_receiver_close(struct ha_gin_receiver *receiver)
{
	return ha_gin_qp_close(&receiver->qp);
}
