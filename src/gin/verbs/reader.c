/* SPDX-License-Identifier: Apache-2.0 */
#include "gin/verbs/reader.h"

#include "gin/verbs/adder.h"
#include "memory/mr.h"

static struct ha_gin_request *request_of(struct ha_gin_reads *reads, uint64_t number)
{
	return &reads->requests[number & (reads->slots - 1)];
}

struct ha_gin_request *ha_gin_reader_next(struct ha_gin_sender *sender)
{
	struct ha_gin_request *request = request_of(&sender->reads, sender->reads.issued);

	return request->is_out ? NULL : request;
}

void ha_gin_reader_begin(struct ha_gin_sender *sender, struct ha_gin_request *request)
{
	request->number = sender->reads.issued++;
	request->is_out = true;
	if (sender->state == HA_GIN_SENDER_RUNS && !sender->qp.fault)
		ha_gin_reader_works(sender);
}

/* False: its keys are not known, or it cannot be posted. */
static bool post_read(struct ha_gin_sender *sender, const struct ha_gin_request *request)
{
	struct ibv_sge sge = {request->from, request->size, 0};
	struct ibv_send_wr wr = {.wr_id = ha_gin_wr_id(HA_GIN_WR_READ, request->number),
				 .sg_list = &sge,
				 .num_sge = request->size != 0,
				 .opcode = IBV_WR_RDMA_READ,
				 .send_flags = IBV_SEND_SIGNALED};
	struct ibv_mr *mr;

	if (!ha_gin_rkey(request->to, sender->epoch, &wr.wr.rdma.rkey) ||
	    ha_mr_on(request->from_mr, sender->qp.port->nic, &mr) != HA_OK)
		return false;
	sge.lkey = mr->lkey;
	wr.wr.rdma.remote_addr = request->to->base + request->to_offset;
	return ha_gin_qp_send(&sender->qp, &wr);
}

/* Pushes one NIC that something came by. False: not now. */
static bool push_one(struct ha_gin_sender *sender)
{
	struct ha_gin_reads *reads = &sender->reads;
	const unsigned int nic = (unsigned int)__builtin_ctz(reads->came_by);

	if (!reads->is_pushing)
		reads->is_pushing =
		    ha_gin_adder_push(sender->adder, nic, reads->lives[nic], &reads->push);
	if (!reads->is_pushing || !ha_gin_adder_has_pushed(sender->adder, &reads->push))
		return false;
	reads->is_pushing = false;
	reads->came_by &= ~((uint32_t)1 << nic);
	return true;
}

/* Behind all reads that came before it, through each NIC that they came by. */
static void flush(struct ha_gin_sender *sender)
{
	struct ha_gin_reads *reads = &sender->reads;

	if (reads->done != reads->posted)
		return;
	while (reads->came_by)
		if (!push_one(sender))
			return;
	reads->posted++;
	reads->done++;
}

static void post(struct ha_gin_sender *sender)
{
	struct ha_gin_reads *reads = &sender->reads;

	while (reads->posted != reads->issued && reads->posted - reads->done < HA_GIN_WINDOW) {
		const struct ha_gin_request *request = request_of(reads, reads->posted);
		const uint64_t before = reads->posted;

		if (!request->to)
			flush(sender);
		else if (post_read(sender, request))
			reads->posted++;
		if (reads->posted == before)
			return;
	}
}

void ha_gin_reader_works(struct ha_gin_sender *sender)
{
	struct ibv_wc wc;

	while (sender->reads.done != sender->reads.posted && ha_gin_qp_poll(&sender->qp, &wc))
		ha_gin_sender_takes(sender, wc.wr_id);
	if (!sender->qp.fault)
		post(sender);
}

void ha_gin_reader_hears(struct ha_gin_sender *sender, uint64_t number)
{
	struct ha_gin_reads *reads = &sender->reads;

	const unsigned int nic = (unsigned int)sender->qp.port->nic->index;

	if (number < reads->done || number >= reads->posted)
		return;
	reads->done = number + 1;
	reads->came_by |= (uint32_t)1 << nic;
	reads->lives[nic] = ha_gin_adder_life(sender->adder, nic);
}

void ha_gin_reader_again(struct ha_gin_sender *sender)
{
	sender->reads.posted = sender->reads.done;
}

static bool is_next(const struct ha_gin_reads *reads, bool flush)
{
	return reads->posted != reads->issued &&
	       !reads->requests[reads->posted & (reads->slots - 1)].to == flush;
}

bool ha_gin_reader_may_post(const struct ha_gin_sender *sender)
{
	const struct ha_gin_reads *reads = &sender->reads;

	return is_next(reads, false) && reads->posted - reads->done < HA_GIN_WINDOW;
}

bool ha_gin_reader_flushes(const struct ha_gin_sender *sender)
{
	const struct ha_gin_reads *reads = &sender->reads;

	return is_next(reads, true) && reads->done == reads->posted;
}

uint64_t ha_gin_reader_bytes(const struct ha_gin_sender *sender)
{
	const struct ha_gin_reads *reads = &sender->reads;
	uint64_t bytes = 0;

	for (uint64_t k = reads->done; k != reads->posted; k++)
		bytes += reads->requests[k & (reads->slots - 1)].size;
	return bytes;
}
