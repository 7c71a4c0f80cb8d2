/* SPDX-License-Identifier: Apache-2.0 */
#include "gin/verbs/sender.h"

#include "base/clock.h"
#include "base/hot.h"
#include "base/log.h"
#include "base/outage.h"
#include "gin/verbs/reader.h"
#include "gin/verbs/sender_post.h"
#include "memory/mr.h"
#include "transport/comm.h"
#include "transport/labels.h"

#include <arpa/inet.h>
#include <stdlib.h>

/* An offer for a path that the connection is not on, at this end, is asked for anew after so long.
 */
#define OFFER_TIMEOUT_NS (200 * HA_NS_PER_MS)

/* Data and record of each operation, and reads. */
static const struct ha_gin_depth depth = {.sends = 3 * HA_GIN_WINDOW,
					  .max_inline = sizeof(struct ha_gin_record)};

ha_result_t ha_gin_sender_init(struct ha_gin_sender *sender, uint32_t rank, struct ha_gin_out *out,
			       struct ha_gin_adder *adder, const struct ha_config *config,
			       bool is_e2e)
{
	*sender = (struct ha_gin_sender){
	    .rank = rank, .out = out, .adder = adder, .config = config, .trouble_ns = ha_now_ns()};
	ha_gin_journal_init(&sender->journal, HA_GIN_WINDOW, is_e2e);
	return ha_gin_sender_widen(sender, HA_GIN_WINDOW);
}

static struct ha_gin_request *new_requests(struct ha_gin_sender *sender, unsigned int slots,
					   const uint64_t *completed)
{
	struct ha_gin_request *requests =
	    aligned_alloc(alignof(struct ha_gin_request), slots * sizeof(*requests));

	for (unsigned int i = 0; requests && i < slots; i++)
		requests[i] = (struct ha_gin_request){.sender = sender, .completed = completed};
	return requests;
}

static void free_requests(struct ha_gin_sender *sender)
{
	free(sender->requests);
	free(sender->reads.requests);
	sender->requests = sender->reads.requests = NULL;
}

ha_result_t ha_gin_sender_widen(struct ha_gin_sender *sender, unsigned int slots)
{
	struct ha_gin_journal *journal = &sender->journal;

	if (sender->requests && slots <= journal->slots)
		return HA_OK;
	if (journal->issued || sender->reads.issued)
		return HA_ERR_USAGE;
	free_requests(sender);
	sender->requests = new_requests(
	    sender, slots, journal->is_e2e ? &journal->applied : &journal->acknowledged);
	sender->reads.requests = new_requests(sender, slots, &sender->reads.done);
	sender->next = sender->requests;
	sender->reads.slots = journal->slots = slots;
	return sender->requests && sender->reads.requests ? HA_OK : HA_ERR_SYSTEM;
}

/* ---- operations ----------------------------------------------------------------------------- */

/* What of the work requests stays as it is until the next epoch. */
static void prepare(struct ha_gin_sender *sender)
{
	struct ha_gin_posting *posting = &sender->posting;

	*posting = (struct ha_gin_posting){
	    .put = {.sg_list = &posting->data_sge,
		    .num_sge = 1,
		    .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		    .send_flags = IBV_SEND_SIGNALED},
	    .data = {.next = &posting->record,
		     .sg_list = &posting->data_sge,
		     .num_sge = 1,
		     .opcode = IBV_WR_RDMA_WRITE},
	    .record = {.sg_list = &posting->record_sge,
		       .num_sge = 1,
		       .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		       .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE},
	    .record_sge = {(uintptr_t)&posting->row, sizeof(posting->row), 0},
	    .row = {.epoch = sender->epoch},
	    .imm = ha_imm_pack(0, sender->epoch, 1, false),
	    .nic_index = (unsigned int)sender->qp.port->nic->index,
	};
	posting->record.wr.rdma.rkey = sender->ring_rkey;
}

void ha_gin_sender_takes(struct ha_gin_sender *sender, uint64_t wr_id)
{
	ha_gin_sender_take(sender, wr_id);
}

/* What has come back, and what was sent for that. */
static uint64_t came(const struct ha_gin_sender *sender)
{
	return sender->journal.acknowledged + sender->reads.done;
}

static bool is_under_way(const struct ha_gin_sender *sender)
{
	return came(sender) != sender->journal.posted + sender->reads.posted;
}

/* Operations, or a read, though the receiver has room. */
static bool may_post(const struct ha_gin_sender *sender)
{
	return ha_gin_may_post(&sender->journal) || ha_gin_reader_may_post(sender);
}

/* ---- epochs --------------------------------------------------------------------------------- */

static void fence(struct ha_gin_sender *sender)
{
	if (sender->state != HA_GIN_SENDER_RUNS && sender->state != HA_GIN_SENDER_ANSWERED)
		return;
	sender->state = HA_GIN_SENDER_FENCING;
	if (!sender->trouble_ns)
		sender->trouble_ns = ha_now_ns();
	sender->came_before = came(sender);
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
		ha_gin_qp_discard(&sender->qp);
		return false;
	}
	(void)ha_gin_adder_has(sender->adder, port); /* what is read may have to be pushed */
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
	sender->path = name;
	sender->ring = offer->offer.ring;
	sender->ring_rkey = offer->offer.ring_rkey;
	prepare(sender);
	sender->state = HA_GIN_SENDER_ANSWERED;
	return ha_gin_out_say(sender->out, &answer);
}

/* HA_NCCL_RTO_MS, and what all that is posted takes on a link that is slow, or shared by many. */
static uint64_t completion_timeout_ns(const struct ha_gin_sender *sender)
{
	const struct ha_gin_journal *journal = &sender->journal;
	uint64_t bytes = 0;

	for (uint64_t k = journal->acknowledged; k != journal->posted; k++)
		bytes += sender->requests[k & (journal->slots - 1)].size;
	bytes += ha_gin_reader_bytes(sender);
	return (unsigned int)sender->config->rto_ms * HA_NS_PER_MS + bytes * HA_SLOW_NS_PER_BYTE;
}

static void look_for_silence(struct ha_gin_sender *sender)
{
	ha_gin_qp_look_for_silence(&sender->qp, came(sender), is_under_way(sender),
				   completion_timeout_ns(sender));
}

/* A first queue pair may have been at fault itself; if nothing came over the next one there either,
 * the path is. */
static void look_at_path(struct ha_gin_sender *sender)
{
	const struct ha_gin_path_name before = sender->barren;

	sender->barren = sender->path;
	if (sender->trouble_ns && before.slot == sender->path.slot &&
	    before.generation == sender->path.generation)
		ha_gin_path_failed(sender->out->comm, &sender->path, sender->qp.fault);
}

static ha_result_t leave(struct ha_gin_sender *sender)
{
	HA_INFO_LIMITED(HA_SUBSYS_NET, "GIN: to rank %u: the queue pair on %s:%d failed: %s",
			sender->rank, sender->qp.port->nic->name, sender->qp.port->port_num,
			sender->qp.fault);
	look_at_path(sender);
	fence(sender);
	return suspect(sender, sender->epoch);
}

/* An epoch that carries nothing does not end what was wrong before it: a path may carry what the
 * connection says, and nothing of what is put. */
static void look_for_end_of_trouble(struct ha_gin_sender *sender)
{
	if (came(sender) != sender->came_before || (!is_under_way(sender) && !may_post(sender)))
		sender->trouble_ns = 0;
}

static void end_fence(struct ha_gin_sender *sender)
{
	ha_gin_sender_poll(sender);
	if (!ha_gin_qp_is_fenced(&sender->qp) || !ha_gin_qp_close(&sender->qp))
		return;
	ha_gin_journal_fenced(&sender->journal);
	ha_gin_reader_again(sender);
	sender->state = HA_GIN_SENDER_FENCED;
}

static ha_result_t look_at_outage(const struct ha_gin_sender *sender)
{
	if (!sender->trouble_ns || ha_now_ns() - sender->trouble_ns < ha_outage_ns(sender->config))
		return HA_OK;
	HA_WARN("GIN: to rank %u: no path for %d ms (HA_NCCL_OUTAGE_MS)", sender->rank,
		sender->config->give_up_ms);
	return HA_ERR_SYSTEM;
}

/* No path has anything to do with it: memory that is not registered at one of the ends any more, or
 * a NIC of this one that does not flush what it has read. */
static ha_result_t look_at_own_waits(struct ha_gin_sender *sender)
{
	const bool waits =
	    !is_under_way(sender) && (may_post(sender) || ha_gin_reader_flushes(sender));

	if (ha_gin_stands_ns(&sender->own_waits, came(sender), waits) <
	    ha_outage_ns(sender->config))
		return HA_OK;
	HA_WARN("GIN: to rank %u: nothing could be posted for %d ms (HA_NCCL_OUTAGE_MS): memory "
		"that it names is not registered at one of the ends any more, or a NIC does not "
		"flush what it has read",
		sender->rank, sender->config->give_up_ms);
	return HA_ERR_SYSTEM;
}

ha_result_t ha_gin_sender_mends(struct ha_gin_sender *sender)
{
	if (sender->state == HA_GIN_SENDER_RUNS) {
		look_for_end_of_trouble(sender);
		look_for_silence(sender);
		return sender->qp.fault ? leave(sender) : look_at_own_waits(sender);
	}
	if (sender->state == HA_GIN_SENDER_FENCING)
		end_fence(sender);
	if (sender->state == HA_GIN_SENDER_FENCED && sender->has_offer)
		HA_TRY(take_offer(sender));
	return look_at_outage(sender);
}

bool ha_gin_sender_close(struct ha_gin_sender *sender)
{
	if (!ha_gin_qp_close(&sender->qp))
		return false;
	free_requests(sender);
	return true;
}
