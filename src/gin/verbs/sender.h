/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sender's end of a stream: operations are written over the queue pair of the present epoch, as
 * the journal says (gin/journal.h), and written again over the next one's.
 *
 *                 OFFER            READY
 *        FENCED ---------> ANSWERED -----> RUNS
 *           ^                 |             |
 *           |  drained        v             v  a fault, or an OFFER
 *           '------------- FENCING <--------'
 *
 * The receiver chooses the path: that of the ordinary connection between the two, by its name. One
 * thread.
 */
#ifndef HA_GIN_VERBS_SENDER_H
#define HA_GIN_VERBS_SENDER_H

#include "gin/journal.h"
#include "gin/record.h"
#include "gin/verbs/adder.h"
#include "gin/verbs/channel.h"
#include "gin/verbs/region.h"

#include <stdalign.h>

enum ha_gin_sender_state {
	HA_GIN_SENDER_FENCED, /* also before the first epoch */
	HA_GIN_SENDER_ANSWERED,
	HA_GIN_SENDER_RUNS,
	HA_GIN_SENDER_FENCING,
};

/* A request of the application, with what is to be written, or read, again until it is complete. */
struct ha_gin_request {
	alignas(64) struct ha_gin_sender *sender; /* constant */
	const uint64_t *completed;		  /* constant: all below that number are */
	uint64_t number;
	bool is_out; /* not tested to its end yet */
	bool has_signal;
	uint16_t region; /* of the signal */
	uint32_t size;	 /* bytes */
	struct ha_mr *from_mr;
	const struct ha_gin_remote *to; /* NULL: there is no data */
	uint64_t from, to_offset;	/* an address; bytes */
	uint64_t signal_offset, addend;
};

/* Of reader.h. */
struct ha_gin_reads {
	uint64_t issued, posted, done;
	uint64_t slots; /* a power of 2 */
	struct ha_gin_request *requests;
	/* NICs that something came by since the last flush, and in which life of theirs. */
	uint32_t came_by;
	uint32_t lives[HA_MAX_NICS];
	bool is_pushing;
	struct ha_gin_push push;
};

/* Work requests of an operation, as far as they are the same for all of an epoch. */
struct ha_gin_posting {
	struct ibv_send_wr put;	   /* data, with the notice */
	struct ibv_send_wr data;   /* of a signal, before its record */
	struct ibv_send_wr record; /* with the notice */
	struct ibv_sge data_sge;
	struct ibv_sge record_sge;
	struct ha_gin_record row;
	uint32_t imm; /* of number 0, without a record */
	unsigned int nic_index;
};

struct ha_gin_sender {
	enum ha_gin_sender_state state;
	bool is_gone; /* its owner knows why, and begins nothing any more */
	struct ha_gin_journal journal;
	struct ha_gin_qp qp;
	uint32_t epoch; /* of the queue pair */
	uint32_t rank;	/* to which */
	struct ha_gin_out *out;
	const struct ha_config *config;
	/* The receiver writes here how many it has applied. */
	const volatile uint64_t *told;
	struct ha_mr *told_mr;
	uint64_t ring; /* the receiver's records */
	uint32_t ring_rkey;
	struct ha_gin_posting posting;
	bool has_offer;
	struct ha_gin_message offer;
	uint64_t offer_ns;
	uint64_t trouble_ns;		      /* since when nothing comes through; 0: all is well */
	uint64_t came_before;		      /* ... this epoch, over */
	struct ha_gin_path_name path, barren; /* of the queue pair; of the last one that failed */
	struct ha_gin_standstill own_waits;
	uint64_t failovers, replayed;
	struct ha_gin_adder *adder;
	struct ha_gin_reads reads;
	struct ha_gin_request *next;	 /* of these: of the next number */
	struct ha_gin_request *requests; /* by number modulo the journal's slots; owned */
};

/* On failure it is to be closed. */
ha_result_t ha_gin_sender_init(struct ha_gin_sender *sender, uint32_t rank, struct ha_gin_out *out,
			       struct ha_gin_adder *adder, const struct ha_config *config,
			       bool is_e2e) HA_MUST_CHECK;
/* Room for at least so many requests of each kind, a power of 2. USAGE: some have begun. */
ha_result_t ha_gin_sender_widen(struct ha_gin_sender *sender, unsigned int slots) HA_MUST_CHECK;

/* The request that comes next, to be filled: all but sender, completed, number and is_out. NULL: as
 * many as there are slots were not tested to their end. Nothing has happened yet. */
static inline struct ha_gin_request *ha_gin_sender_next(struct ha_gin_sender *sender)
{
	struct ha_gin_request *request = sender->next;

	return request->is_out ? NULL : request;
}

static inline bool ha_gin_is_complete(const struct ha_gin_request *request)
{
	return request->number < *request->completed;
}

/* A success of its queue pair's, whoever polled. */
void ha_gin_sender_takes(struct ha_gin_sender *sender, uint64_t wr_id);

/* What its receiver says: OFFER and READY. */
void ha_gin_sender_hears(struct ha_gin_sender *sender, const struct ha_gin_message *message);

/* What takes time: fences, and other epochs. An error is the end of the stream, and was said. */
ha_result_t ha_gin_sender_mends(struct ha_gin_sender *sender) HA_MUST_CHECK;

/* False: the device does not let go: to be closed again. */
bool ha_gin_sender_close(struct ha_gin_sender *sender);

#endif
