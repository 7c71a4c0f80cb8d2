/* SPDX-License-Identifier: Apache-2.0 */
#include "gin/verbs/sender.h"

#include "base/clock.h"
#include "base/log.h"
#include "memory/mr.h"
#include "transport/comm.h"
#include "transport/labels.h"

#include <arpa/inet.h>

/* An offer for a path that the connection is not on, at this end, is asked for anew after so long.
 */
#define OFFER_TIMEOUT_NS (200 * HA_NS_PER_MS)

#define SLOW_NS_PER_BYTE 16

/* Data and record of each operation. */
static const struct ha_gin_depth depth = {.sends = 2 * HA_GIN_WINDOW,
					  .max_inline = sizeof(struct ha_gin_record)};

void ha_gin_sender_init(struct ha_gin_sender *sender, uint32_t rank, struct ha_gin_out *out,
			const struct ha_config *config, bool is_e2e)
{
	*sender = (struct ha_gin_sender){
	    .rank = rank, .out = out, .config = config, .trouble_ns = ha_now_ns()};
	ha_gin_journal_init(&sender->journal, HA_GIN_WINDOW, is_e2e);
}

/* ---- operations ----------------------------------------------------------------------------- */

struct ha_gin_request *ha_gin_sender_put(struct ha_gin_sender *sender, const struct ha_gin_put *put)
{
	struct ha_gin_request *request = &sender->requests[sender->journal.issued % HA_GIN_WINDOW];
	uint64_t number;

	if (request->is_out || !ha_gin_issue(&sender->journal, &number))
		return NULL;
	sender->puts[number % HA_GIN_WINDOW] = *put;
	*request = (struct ha_gin_request){sender, number, true};
	return request;
}

/* Keys of what is written from and to; a registration here may have to be made first, and waits. */
static bool find_keys(const struct ha_gin_sender *sender, const struct ha_gin_put *put,
		      uint32_t *lkey, uint32_t *rkey)
{
	struct ha_nic *nic = sender->qp.port->nic;
	struct ibv_mr *mr;

	*lkey = *rkey = 0;
	if (!put->size)
		return true;
	if (!ha_gin_rkey(put->to, sender->rank, sender->epoch, rkey))
		return false;
	if (ha_mr_on(put->from->mr, nic, &mr) != HA_OK)
		return false;
	*lkey = mr->lkey;
	return true;
}

static bool post_record(struct ha_gin_sender *sender, const struct ha_gin_put *put, uint64_t number)
{
	struct ha_gin_record record = {
	    .number = number,
	    .epoch = sender->epoch,
	    .region = (uint16_t)put->signals->number,
	    .offset = put->signal_offset,
	    .addend = put->addend,
	};
	struct ibv_sge sge = {(uintptr_t)&record, sizeof(record), 0};
	struct ibv_send_wr wr = {
	    .wr_id = ha_gin_wr_id(HA_GIN_WR_OPERATION, number),
	    .sg_list = &sge,
	    .num_sge = 1,
	    .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
	    .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE,
	    .imm_data = htonl(ha_imm_pack(number, sender->epoch, 1, true)),
	};

	wr.wr.rdma.remote_addr = sender->ring + number % HA_GIN_WINDOW * sizeof(record);
	wr.wr.rdma.rkey = sender->ring_rkey;
	return ha_gin_qp_send(&sender->qp, &wr);
}

/* Data: with the notice, where there is no record that has it. Of no bytes it goes nowhere. */
static bool post_data(struct ha_gin_sender *sender, const struct ha_gin_put *put, uint64_t number,
		      uint32_t lkey, uint32_t rkey)
{
	struct ibv_sge sge = {put->size ? put->from->base + put->from_offset : 0,
			      (uint32_t)put->size, lkey};
	struct ibv_send_wr wr = {
	    .wr_id = ha_gin_wr_id(HA_GIN_WR_OPERATION, number),
	    .sg_list = &sge,
	    .num_sge = put->size != 0,
	    .opcode = put->signals ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_WRITE_WITH_IMM,
	    .send_flags = put->signals ? 0 : IBV_SEND_SIGNALED,
	    .imm_data = htonl(ha_imm_pack(number, sender->epoch, 1, false)),
	};

	wr.wr.rdma.remote_addr =
	    put->size ? put->to->remotes[sender->rank].base + put->to_offset : sender->ring;
	wr.wr.rdma.rkey = put->size ? rkey : sender->ring_rkey;
	return ha_gin_qp_send(&sender->qp, &wr);
}

/* The queue has room for what the receiver has room for, unless acknowledgements are late. */
static bool has_room(const struct ha_gin_journal *journal)
{
	return journal->posted - journal->acknowledged < HA_GIN_WINDOW;
}

static void post(struct ha_gin_sender *sender)
{
	struct ha_gin_journal *journal = &sender->journal;
	uint64_t number;

	while (journal->posted != journal->issued && has_room(journal)) {
		const struct ha_gin_put *put = &sender->puts[journal->posted % HA_GIN_WINDOW];
		uint32_t lkey, rkey;

		if (!find_keys(sender, put, &lkey, &rkey) || !ha_gin_post(journal, &number))
			return;
		if ((put->size || !put->signals) && !post_data(sender, put, number, lkey, rkey))
			return;
		if (put->signals && !post_record(sender, put, number))
			return;
	}
}

static void poll(struct ha_gin_sender *sender)
{
	struct ibv_wc wc;

	/* Where nothing is under way there is nothing to come. */
	while ((sender->journal.acknowledged != sender->journal.posted || sender->qp.is_fencing) &&
	       ha_gin_qp_poll(&sender->qp, &wc))
		if (ha_gin_wr_what(wc.wr_id) == HA_GIN_WR_OPERATION)
			(void)ha_gin_acknowledge(&sender->journal, sender->epoch,
						 ha_gin_wr_low(wc.wr_id));
	if (sender->told)
		(void)ha_gin_hear_applied(&sender->journal, sender->epoch, *sender->told);
}

void ha_gin_sender_posts(struct ha_gin_sender *sender)
{
	if (sender->state == HA_GIN_SENDER_RUNS && !sender->qp.fault)
		post(sender);
}

void ha_gin_sender_works(struct ha_gin_sender *sender)
{
	if (sender->state != HA_GIN_SENDER_RUNS)
		return;
	poll(sender);
	if (!sender->qp.fault)
		post(sender);
}

/* ---- epochs --------------------------------------------------------------------------------- */

static void fence(struct ha_gin_sender *sender)
{
	if (sender->state != HA_GIN_SENDER_RUNS && sender->state != HA_GIN_SENDER_ANSWERED)
		return;
	sender->state = HA_GIN_SENDER_FENCING;
	sender->trouble_ns = ha_now_ns();
	ha_gin_journal_fence(&sender->journal);
	ha_gin_qp_fence(&sender->qp);
}

static ha_result_t suspect(struct ha_gin_sender *sender, uint32_t epoch)
{
	struct ha_gin_message message = {.say = HA_GIN_SUSPECT, .epoch = epoch};

	return ha_gin_out_say(sender->out, &message);
}

static void say_where(const struct ha_gin_sender *sender)
{
	const struct ha_gin_journal *journal = &sender->journal;

	if (sender->failovers)
		HA_INFO_LIMITED(
		    HA_SUBSYS_NET,
		    "GIN: to rank %u: goes on over %s:%d, in epoch %u, after %llu ms; "
		    "%llu operations are to be written",
		    sender->rank, sender->qp.port->nic->name, sender->qp.port->port_num,
		    sender->epoch,
		    (unsigned long long)((ha_now_ns() - sender->trouble_ns) / HA_NS_PER_MS),
		    (unsigned long long)(journal->issued - journal->posted));
}

void ha_gin_sender_hears(struct ha_gin_sender *sender, const struct ha_gin_message *message)
{
	if (message->say == HA_GIN_READY) {
		if (sender->state != HA_GIN_SENDER_ANSWERED || message->epoch != sender->epoch)
			return;
		sender->state = HA_GIN_SENDER_RUNS;
		say_where(sender);
		sender->trouble_ns = 0;
		sender->moved_ns = ha_now_ns();
		return;
	}
	sender->offer = *message;
	sender->has_offer = true;
	sender->offer_ns = ha_now_ns();
	fence(sender);
}

static ha_result_t not_resumed(const struct ha_gin_sender *sender, enum ha_gin_resume what)
{
	if (what == HA_GIN_LOST)
		HA_WARN("GIN: to rank %u: a put that was complete never reached the receiver's "
			"software: its NIC acknowledged it and died",
			sender->rank);
	else
		HA_WARN("GIN: rank %u says of what it has what cannot be: all ranks must have the "
			"same nccl-ha",
			sender->rank);
	return HA_ERR_REMOTE;
}

/* The first epoch has nothing before it. */
static ha_result_t resume(struct ha_gin_sender *sender, const struct ha_gin_message *offer)
{
	const struct ha_gin_verdict verdict = offer->offer.verdict;
	const uint64_t posted = sender->journal.posted;
	enum ha_gin_resume what;

	if (offer->epoch == 0 && sender->journal.end == HA_GIN_UP)
		return HA_OK;
	ha_gin_journal_fence(&sender->journal);
	ha_gin_journal_fenced(&sender->journal);
	what = ha_gin_journal_resume(&sender->journal, offer->epoch, &verdict);
	if (what != HA_GIN_RESUMED)
		return not_resumed(sender, what);
	sender->failovers++;
	sender->replayed += posted - verdict.counted;
	return HA_OK;
}

/* False: this end cannot be made there now. */
static bool make_end(struct ha_gin_sender *sender, struct ha_port *port,
		     const struct ha_gin_message *offer, struct ha_gin_message *answer)
{
	struct ibv_mr *told;

	if (ha_mr_on(sender->told_mr, port->nic, &told) != HA_OK ||
	    ha_gin_qp_open(&sender->qp, port, &depth) != HA_OK)
		return false;
	if (ha_gin_qp_connect(&sender->qp, &offer->offer.address) != HA_OK) {
		(void)ha_gin_qp_close(&sender->qp);
		return false;
	}
	*answer = (struct ha_gin_message){.say = HA_GIN_ANSWER, .epoch = offer->epoch};
	ha_gin_qp_address(&sender->qp, &answer->answer.address);
	answer->answer.told = (uintptr_t)sender->told;
	answer->answer.told_rkey = told->rkey;
	return true;
}

/* Waits for the connection to be on that path at this end, too. */
static ha_result_t take_offer(struct ha_gin_sender *sender)
{
	const struct ha_gin_message *offer = &sender->offer;
	struct ha_gin_path_name name;
	struct ha_gin_message answer;
	struct ha_port *port;

	if (!ha_gin_path_now(sender->out->comm, &port, &name) ||
	    name.slot != offer->offer.path.slot ||
	    name.generation != offer->offer.path.generation) {
		if (ha_now_ns() - sender->offer_ns < OFFER_TIMEOUT_NS)
			return HA_OK;
		sender->has_offer = false;
		return suspect(sender, offer->epoch);
	}
	sender->has_offer = false;
	if (!make_end(sender, port, offer, &answer))
		return suspect(sender, offer->epoch);
	HA_TRY(resume(sender, offer));
	sender->epoch = offer->epoch;
	sender->ring = offer->offer.ring;
	sender->ring_rkey = offer->offer.ring_rkey;
	sender->state = HA_GIN_SENDER_ANSWERED;
	return ha_gin_out_say(sender->out, &answer);
}

/* HA_NCCL_RTO_MS, and what all that is posted takes on a link that is slow, or shared by many. */
static uint64_t completion_timeout_ns(const struct ha_gin_sender *sender)
{
	const struct ha_gin_journal *journal = &sender->journal;
	uint64_t bytes = 0;

	for (uint64_t k = journal->acknowledged; k != journal->posted; k++)
		bytes += sender->puts[k % HA_GIN_WINDOW].size;
	return (unsigned int)sender->config->rto_ms * HA_NS_PER_MS + bytes * SLOW_NS_PER_BYTE;
}

/* A queue pair that says nothing at all: a wedged NIC takes posts and completes none. */
static void look_for_silence(struct ha_gin_sender *sender)
{
	const struct ha_gin_journal *journal = &sender->journal;
	const uint64_t now_ns = ha_now_ns();

	if (journal->acknowledged != sender->seen || journal->acknowledged == journal->posted) {
		sender->seen = journal->acknowledged;
		sender->moved_ns = now_ns;
	}
	if (now_ns - sender->moved_ns > completion_timeout_ns(sender) && !sender->qp.fault)
		sender->qp.fault = "no completion for as long as HA_NCCL_RTO_MS";
}

static ha_result_t leave(struct ha_gin_sender *sender)
{
	HA_INFO_LIMITED(HA_SUBSYS_NET, "GIN: to rank %u: the queue pair on %s:%d failed: %s",
			sender->rank, sender->qp.port->nic->name, sender->qp.port->port_num,
			sender->qp.fault);
	fence(sender);
	return suspect(sender, sender->epoch);
}

static void end_fence(struct ha_gin_sender *sender)
{
	poll(sender);
	if (!ha_gin_qp_is_fenced(&sender->qp) || !ha_gin_qp_close(&sender->qp))
		return;
	ha_gin_journal_fenced(&sender->journal);
	sender->state = HA_GIN_SENDER_FENCED;
}

static ha_result_t look_at_outage(const struct ha_gin_sender *sender)
{
	const uint64_t limit_ns = (unsigned int)sender->config->give_up_ms * HA_NS_PER_MS;

	if (!sender->trouble_ns || ha_now_ns() - sender->trouble_ns < limit_ns)
		return HA_OK;
	HA_WARN("GIN: to rank %u: no path for %d ms (HA_NCCL_OUTAGE_MS)", sender->rank,
		sender->config->give_up_ms);
	return HA_ERR_SYSTEM;
}

ha_result_t ha_gin_sender_mends(struct ha_gin_sender *sender)
{
	if (sender->state == HA_GIN_SENDER_RUNS) {
		look_for_silence(sender);
		return sender->qp.fault ? leave(sender) : HA_OK;
	}
	if (sender->state == HA_GIN_SENDER_FENCING)
		end_fence(sender);
	if (sender->state == HA_GIN_SENDER_FENCED && sender->has_offer)
		HA_TRY(take_offer(sender));
	return look_at_outage(sender);
}

bool ha_gin_sender_close(struct ha_gin_sender *sender)
{
	return ha_gin_qp_close(&sender->qp);
}
