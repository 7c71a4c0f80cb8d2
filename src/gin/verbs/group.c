/* SPDX-License-Identifier: Apache-2.0 */
#include "gin/verbs/group.h"

#include "base/hot.h"
#include "base/log.h"
#include "gin/verbs/adder.h"
#include "gin/verbs/reader.h"
#include "gin/verbs/receiver.h"
#include "memory/mr.h"
#include "memory/pages.h"
#include "transport/comm.h"
#include "transport/shared.h"
#include "transport/user_mr.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* What takes time is looked at each so many rounds, unless something does not run. */
#define MEND_EVERY 16

/* What a peer writes at this rank beside the application's memory. Its key is given to nobody else:
 * what a rank says it is that signals, no other one can change. */
struct block {
	struct ha_gin_record ring[HA_GIN_WINDOW];
	uint64_t told;
};

struct peer {
	uint8_t handle[HA_HANDLE_MAX]; /* ha_connect keeps its state there */
	struct block *block;	       /* on pages of its own */
	struct ha_mr *block_mr;
	struct ha_gin_out out;
	struct ha_gin_in in; /* open when it has said who it is */
	bool has_run;	     /* both streams had their first epoch */
	ha_result_t why;     /* a connection to or from it has ended */
	struct ha_gin_sender sender;
	struct ha_gin_receiver receiver;
};

/* Somebody has connected, and has not said who it is. */
struct stranger {
	struct ha_gin_in in;
	struct stranger *next;
};

struct ha_gin_group {
	_Atomic uint32_t token;	  /* 1: taken, as a connection's */
	_Atomic uint32_t waiting; /* for it, and first */
	ha_result_t error;
	struct ha_instance *inst;
	struct ha_listen *listen;
	int dev;
	uint32_t rank, ranks;
	uint32_t accepted;
	struct stranger *strangers;
	struct ha_gin_adder adder;
	struct ha_gin_memory *
	    *memories;		       /* by number; NULL: no rank has said so far that it has it */
	struct ha_gin_region *regions; /* likewise; what signals may go to */
	uint32_t room, registered;
	uint64_t rounds;
	uint64_t largest; /* put, in bytes */
	struct peer peers[];
};

/*
 * One thread drives a group, again and again, and has the token nearly always; another one seldom
 * registers memory beside it, and would not get it by chance. So who drives makes way.
 */
static bool try_lock(struct ha_gin_group *group)
{
	return atomic_load_explicit(&group->waiting, memory_order_relaxed) == 0 &&
	       atomic_exchange_explicit(&group->token, 1, memory_order_acquire) == 0;
}

static void __attribute__((cold, noinline)) wait_for_lock(struct ha_gin_group *group)
{
	atomic_fetch_add_explicit(&group->waiting, 1, memory_order_relaxed);
	while (atomic_exchange_explicit(&group->token, 1, memory_order_acquire) != 0)
		sched_yield();
	atomic_fetch_sub_explicit(&group->waiting, 1, memory_order_relaxed);
}

static inline void lock(struct ha_gin_group *group)
{
	if (atomic_exchange_explicit(&group->token, 1, memory_order_acquire) != 0)
		wait_for_lock(group);
}

static void unlock(struct ha_gin_group *group)
{
	atomic_store_explicit(&group->token, 0, memory_order_release);
}

static ha_result_t latch(struct ha_gin_group *group, ha_result_t result)
{
	if (group->error == HA_OK)
		group->error = result;
	return group->error;
}

/* ---- memory --------------------------------------------------------------------------------- */

/* For memory of that number; in steps that double, since another rank may name any. */
static ha_result_t make_room(struct ha_gin_group *group, uint32_t number)
{
	uint32_t room = group->room > 0 ? group->room : 16;
	void *memories, *regions;

	if (number < group->room)
		return HA_OK;
	while (room <= number)
		room *= 2;
	memories = realloc(group->memories, room * sizeof(*group->memories));
	if (memories)
		group->memories = memories;
	regions = realloc(group->regions, room * sizeof(*group->regions));
	if (regions)
		group->regions = regions;
	if (!memories || !regions)
		return HA_ERR_SYSTEM;
	memset(group->memories + group->room, 0, (room - group->room) * sizeof(*group->memories));
	memset(group->regions + group->room, 0, (room - group->room) * sizeof(*group->regions));
	group->room = room;
	return HA_OK;
}

/* Some rank has memory of that number. */
static ha_result_t know(struct ha_gin_group *group, uint32_t number)
{
	struct ha_gin_memory *memory;

	HA_TRY(make_room(group, number));
	if (group->memories[number])
		return HA_OK;
	memory = calloc(1, sizeof(*memory) + group->ranks * sizeof(struct ha_gin_remote));
	if (!memory)
		return HA_ERR_SYSTEM;
	memory->number = number;
	group->memories[number] = memory;
	return HA_OK;
}

/* One that cannot be registered there is of no use over that path, and the next one may be. */
static ha_result_t say_memory(struct ha_gin_receiver *receiver, const struct ha_gin_memory *memory)
{
	struct ha_gin_message message = {
	    .say = HA_GIN_REGION, .epoch = receiver->epoch, .number = memory->number};
	struct ibv_mr *mr;

	if (ha_mr_on(memory->mr, receiver->qp.port->nic, &mr) != HA_OK) {
		receiver->qp.fault = "memory cannot be registered there";
		return HA_OK;
	}
	message.region.base = memory->base;
	message.region.size = memory->size;
	message.region.is_signals = memory->is_signals;
	message.region.rkey = mr->rkey;
	return ha_gin_out_say(receiver->out, &message);
}

static ha_result_t say_memories(void *arg, struct ha_gin_receiver *receiver)
{
	struct ha_gin_group *group = arg;

	for (uint32_t i = 0; i < group->registered; i++)
		if (group->memories[i]->mr)
			HA_TRY(say_memory(receiver, group->memories[i]));
	return HA_OK;
}

static const struct ha_gin_region *regions_of(void *arg, size_t *count)
{
	const struct ha_gin_group *group = arg;

	*count = group->registered;
	return group->regions;
}

/* Without a word: any memory of signals, which is where other data goes, too. */
static bool find_word(void *arg, const struct ha_gin_word *word, uint64_t *addr, struct ha_mr **mr)
{
	const struct ha_gin_group *group = arg;

	for (uint32_t i = 0; i < group->registered; i++) {
		const struct ha_gin_memory *memory = group->memories[i];
		const uint64_t count = memory->size / 8;

		if (!memory->words ||
		    (word && (word < memory->words || word >= memory->words + count)))
			continue;
		*addr = memory->base + (word ? (uint64_t)(word - memory->words) * 8 : 0);
		*mr = memory->mr;
		return true;
	}
	return false;
}

static ha_result_t can_signal(const struct ha_gin_group *group)
{
	const struct ha_nic *nic = ha_instance_port(group->inst, group->dev)->nic;

	if (nic->attr.atomic_cap != IBV_ATOMIC_NONE)
		return HA_OK;
	HA_WARN("GIN: %s has no atomics, by which signals are added", nic->name);
	return HA_ERR_SYSTEM;
}

/* Where a NIC takes over it has to have the memory, and then it is too late to begin. */
static void register_ahead(const struct ha_gin_group *group, struct ha_mr *mr)
{
	struct ha_device_set *set = group->inst->devices;

	if (!group->inst->config.enable_backup)
		return;
	for (int n = 0; n < set->nnics; n++)
		if (!atomic_load(&set->nics[n].fatal))
			ha_user_mr_ahead(mr, &set->nics[n]);
}

static ha_result_t register_it(struct ha_gin_group *group, void *data, size_t size, int type,
			       uint64_t offset, int fd, unsigned int how,
			       struct ha_gin_memory *memory)
{
	struct ha_nic *nic = ha_instance_port(group->inst, group->dev)->nic;

	if (how & HA_GIN_STRICT)
		type |= HA_MEM_STRICT_ORDER;
	memory->is_signals = (how & HA_GIN_STRICT) && (uintptr_t)data % 8 == 0 && size >= 8;
	if (memory->is_signals) {
		HA_TRY(can_signal(group));
		type |= HA_MEM_ATOMIC;
		memory->words = calloc(size / 8, sizeof(*memory->words));
		if (!memory->words)
			return HA_ERR_SYSTEM;
		for (size_t i = 0; i < size / 8; i++)
			memory->words[i].never_reset = (how & HA_GIN_NEVER_RESET) != 0;
	}
	memory->base = (uintptr_t)data;
	memory->size = size;
	return ha_mr_register(group->inst->devices, nic, data, size, type, offset, fd, &memory->mr);
}

static ha_result_t say_to_all(struct ha_gin_group *group, const struct ha_gin_memory *memory)
{
	for (uint32_t r = 0; r < group->ranks; r++)
		if (ha_gin_receiver_has_end(&group->peers[r].receiver))
			HA_TRY(say_memory(&group->peers[r].receiver, memory));
	return HA_OK;
}

static ha_result_t do_register(struct ha_gin_group *group, void *data, size_t size, int type,
			       uint64_t offset, int fd, unsigned int how,
			       struct ha_gin_memory **out)
{
	struct ha_gin_memory *memory;
	ha_result_t result;

	if (group->registered == HA_GIN_REGIONS) {
		HA_WARN("GIN: a group registers memory %d times at most", HA_GIN_REGIONS);
		return HA_ERR_USAGE;
	}
	HA_TRY(know(group, group->registered));
	memory = group->memories[group->registered];
	result = register_it(group, data, size, type, offset, fd, how, memory);
	if (result != HA_OK) {
		free(memory->words);
		memory->words = NULL;
		return result;
	}
	register_ahead(group, memory->mr);
	group->regions[group->registered++] = (struct ha_gin_region){memory->words, size};
	*out = memory;
	return say_to_all(group, memory);
}

ha_result_t ha_gin_register(struct ha_gin_group *group, void *data, size_t size, int type,
			    uint64_t offset, int fd, unsigned int how, struct ha_gin_memory **out)
{
	ha_result_t result;

	*out = NULL;
	lock(group);
	result = group->error;
	if (result == HA_OK)
		result = do_register(group, data, size, type, offset, fd, how, out);
	unlock(group);
	return result;
}

bool ha_gin_is_known(struct ha_gin_group *group, const struct ha_gin_memory *memory)
{
	bool is_known = true;

	lock(group);
	for (uint32_t r = 0; r < group->ranks; r++)
		is_known &= memory->remotes[r].is_known;
	unlock(group);
	return is_known;
}

void ha_gin_deregister(struct ha_gin_group *group, struct ha_gin_memory *memory)
{
	lock(group);
	group->regions[memory->number] = (struct ha_gin_region){0};
	ha_mr_deregister(memory->mr);
	memory->mr = NULL;
	free(memory->words);
	memory->words = NULL;
	for (uint32_t r = 0; r < group->ranks; r++)
		memory->remotes[r].is_known = false;
	unlock(group);
}

/* ---- who is who ----------------------------------------------------------------------------- */

static ha_result_t connect_to(struct ha_gin_group *group, struct peer *peer)
{
	struct ha_gin_message hello = {.say = HA_GIN_HELLO,
				       .hello = {.rank = group->rank, .nranks = group->ranks}};
	struct ha_comm *comm;

	HA_TRY(ha_connect(group->inst, group->dev, HA_TRAFFIC_CLASS_UNDEF, peer->handle, &comm));
	if (!comm)
		return HA_OK;
	HA_TRY(ha_gin_out_open(&peer->out, comm));
	return ha_gin_out_say(&peer->out, &hello);
}

static ha_result_t accept_one(struct ha_gin_group *group)
{
	struct stranger *stranger;
	struct ha_comm *comm;

	HA_TRY(ha_accept(group->listen, &comm));
	if (!comm)
		return HA_OK;
	stranger = calloc(1, sizeof(*stranger));
	if (!stranger) {
		ha_close_recv(comm);
		return HA_ERR_SYSTEM;
	}
	stranger->next = group->strangers;
	group->strangers = stranger;
	group->accepted++;
	return ha_gin_in_open(&stranger->in, comm);
}

static ha_result_t is_who(struct ha_gin_group *group, const struct ha_gin_message *hello,
			  struct peer **out)
{
	if (hello->say == HA_GIN_HELLO && hello->hello.nranks == group->ranks &&
	    hello->hello.rank < group->ranks && !group->peers[hello->hello.rank].in.comm) {
		*out = &group->peers[hello->hello.rank];
		return HA_OK;
	}
	HA_WARN("GIN: somebody connected as rank %u of %u; this is rank %u of %u, and each rank "
		"connects once",
		hello->hello.rank, hello->hello.nranks, group->rank, group->ranks);
	return HA_ERR_REMOTE;
}

/* *at: the stranger, or the next one when it is none any more. */
static ha_result_t ask(struct ha_gin_group *group, struct stranger **at)
{
	struct stranger *stranger = *at;
	struct ha_gin_message hello;
	struct peer *peer;
	bool is_heard;

	HA_TRY(ha_gin_in_hear(&stranger->in, &hello, &is_heard));
	if (!is_heard)
		return HA_OK;
	HA_TRY(is_who(group, &hello, &peer));
	peer->in = stranger->in;
	ha_gin_receiver_init(&peer->receiver, peer->in.comm);
	*at = stranger->next;
	free(stranger);
	return HA_OK;
}

static ha_result_t meet(struct ha_gin_group *group)
{
	struct stranger **at = &group->strangers;

	if (group->accepted < group->ranks)
		HA_TRY(accept_one(group));
	while (*at) {
		struct stranger *before = *at;

		HA_TRY(ask(group, at));
		if (*at == before)
			at = &before->next;
	}
	for (uint32_t r = 0; r < group->ranks; r++) {
		if (!group->peers[r].out.comm)
			HA_TRY(connect_to(group, &group->peers[r]));
		if (group->peers[r].out.comm)
			HA_TRY(ha_gin_out_progress(&group->peers[r].out));
	}
	return HA_OK;
}

/* ---- progress ------------------------------------------------------------------------------- */

static ha_result_t hears_region(struct ha_gin_group *group, uint32_t rank,
				const struct ha_gin_message *message)
{
	if (message->number >= HA_GIN_REGIONS) {
		HA_WARN("GIN: rank %u has registered memory more than %d times", rank,
			HA_GIN_REGIONS);
		return HA_ERR_REMOTE;
	}
	HA_TRY(know(group, message->number));
	ha_gin_remote_is(&group->memories[message->number]->remotes[rank], message);
	return HA_OK;
}

static ha_result_t hears(struct ha_gin_group *group, uint32_t rank,
			 const struct ha_gin_message *message)
{
	struct peer *peer = &group->peers[rank];

	switch (message->say) {
	case HA_GIN_REGION:
		return hears_region(group, rank, message);
	case HA_GIN_OFFER:
	case HA_GIN_READY:
		ha_gin_sender_hears(&peer->sender, message);
		return HA_OK;
	case HA_GIN_ANSWER:
	case HA_GIN_SUSPECT:
		return ha_gin_receiver_hears(&peer->receiver, message);
	default:
		HA_WARN("GIN: rank %u says %u, which this version does not know: all ranks must "
			"have the same nccl-ha",
			rank, message->say);
		return HA_ERR_REMOTE;
	}
}

static ha_result_t talk(struct ha_gin_group *group, uint32_t rank)
{
	struct peer *peer = &group->peers[rank];
	struct ha_gin_message message;
	bool is_heard = true;

	HA_TRY(ha_gin_out_progress(&peer->out));
	while (is_heard) {
		HA_TRY(ha_gin_in_hear(&peer->in, &message, &is_heard));
		if (is_heard && hears(group, rank, &message) != HA_OK)
			return latch(group, HA_ERR_REMOTE);
	}
	return ha_gin_out_progress(&peer->out);
}

static bool is_met(const struct peer *peer)
{
	return peer->out.comm && peer->in.comm;
}

static bool runs(const struct peer *peer)
{
	return peer->sender.state == HA_GIN_SENDER_RUNS &&
	       peer->receiver.state == HA_GIN_RECEIVER_RUNS && !peer->sender.qp.fault &&
	       !peer->receiver.qp.fault;
}

/* A rank that has ended, or cannot be reached, matters to who wants something of it. What it had
 * written by then still counts. */
static void is_gone(struct ha_gin_group *group, struct peer *peer, ha_result_t why)
{
	const struct ha_gin_journal *journal = &peer->sender.journal;

	peer->sender.is_gone = true;
	peer->why = why;
	if (group->error == HA_OK &&
	    (!peer->has_run || ha_gin_completed(journal) != journal->issued ||
	     peer->sender.reads.done != peer->sender.reads.issued))
		latch(group, why);
}

static void mend(struct ha_gin_group *group, uint32_t rank)
{
	struct peer *peer = &group->peers[rank];
	ha_result_t result = talk(group, rank);

	if (result != HA_OK) {
		is_gone(group, peer, result);
		return;
	}
	result = ha_gin_receiver_mends(&peer->receiver);
	if (result == HA_OK)
		result = ha_gin_sender_mends(&peer->sender);
	if (result == HA_OK)
		result = ha_gin_out_progress(&peer->out);
	if (result != HA_OK)
		latch(group, result);
	peer->has_run |= runs(peer);
}

static ha_result_t work(struct ha_gin_group *group, uint32_t rank, bool is_time)
{
	struct peer *peer = &group->peers[rank];

	if (!is_met(peer))
		return HA_OK;
	ha_gin_sender_works(&peer->sender);
	HA_TRY(ha_gin_receiver_works(&peer->receiver));
	if (!peer->sender.is_gone && (is_time || !runs(peer)))
		mend(group, rank);
	return HA_OK;
}

static ha_result_t progress(struct ha_gin_group *group)
{
	const bool is_time = group->rounds++ % MEND_EVERY == 0;
	bool all_are_met = true;

	for (uint32_t r = 0; r < group->ranks; r++)
		all_are_met &= group->peers[r].out.comm && group->peers[r].in.comm;
	if (!all_are_met)
		HA_TRY(meet(group));
	ha_gin_adder_poll(&group->adder);
	if (is_time || group->adder.applier.is_orphaned)
		ha_gin_adder_mend(&group->adder);
	for (uint32_t r = 0; r < group->ranks; r++)
		HA_TRY(work(group, r, is_time));
	return group->error;
}

ha_result_t ha_gin_group_progress(struct ha_gin_group *group)
{
	ha_result_t result;

	if (!try_lock(group)) {
		sched_yield();
		return HA_OK;
	}
	result = group->error;
	if (result == HA_OK) {
		result = progress(group);
		if (result != HA_OK)
			latch(group, result);
	}
	unlock(group);
	return result;
}

bool ha_gin_group_is_connected(struct ha_gin_group *group)
{
	bool all_have_run = true;

	lock(group);
	for (uint32_t r = 0; r < group->ranks; r++)
		all_have_run &= group->peers[r].has_run;
	unlock(group);
	return all_have_run;
}

/* ---- operations ----------------------------------------------------------------------------- */

static ha_result_t __attribute__((cold, noinline)) refuse(const char *what, uint32_t rank)
{
	HA_WARN("GIN: a put to rank %u is refused: %s", rank, what);
	return HA_ERR_ARGUMENT;
}

static ha_result_t take_data(const struct ha_gin_group *group, uint32_t rank,
			     const struct ha_gin_put *put, uint64_t size,
			     struct ha_gin_request *request)
{
	const struct ha_gin_memory *from = put->from;
	const struct ha_gin_remote *to;

	if (!from || !from->mr || !put->to)
		return refuse("its memory is not registered", rank);
	if (size > group->largest)
		return refuse("it is larger than maxP2pBytes of the device's properties", rank);
	if (!ha_gin_is_inside(put->from_offset, size, from->size))
		return refuse("it does not lie in the memory that it is from", rank);
	to = &put->to->remotes[rank];
	if (!to->is_known)
		return refuse("that rank has not registered the memory that it goes to", rank);
	if (!ha_gin_is_inside(put->to_offset, size, to->size))
		return refuse("it does not lie in that rank's memory", rank);
	request->from_mr = from->mr;
	request->from = from->base + put->from_offset;
	request->to = to;
	request->to_offset = put->to_offset;
	return HA_OK;
}

static ha_result_t take_signal(uint32_t rank, const struct ha_gin_put *put,
			       struct ha_gin_request *request)
{
	const struct ha_gin_remote *remote = &put->signals->remotes[rank];

	if (!remote->is_known || !remote->is_signals)
		return refuse("its signal goes to memory that was not registered for signals "
			      "(NCCL_NET_MR_FLAG_FORCE_SO)",
			      rank);
	if (put->signal_offset % 8 || !ha_gin_is_inside(put->signal_offset, 8, remote->size))
		return refuse("its signal is no word of that rank's memory", rank);
	request->region = (uint16_t)put->signals->number;
	request->signal_offset = put->signal_offset;
	request->addend = put->addend;
	return HA_OK;
}

static ha_result_t __attribute__((cold, noinline)) refuse_more(uint32_t rank)
{
	HA_WARN("GIN: more than %d requests to rank %u were not tested to their end", HA_GIN_WINDOW,
		rank);
	return HA_ERR_INTERNAL;
}

static ha_result_t do_put(struct ha_gin_group *group, uint32_t rank, const struct ha_gin_put *put,
			  struct ha_gin_request **out)
{
	const uint64_t size = put->size;
	struct ha_gin_request *request;

	if (rank >= group->ranks)
		return refuse("there is no such rank", rank);
	request = ha_gin_sender_next(&group->peers[rank].sender);
	if (!request)
		return refuse_more(rank);
	request->to = NULL;
	request->size = (uint32_t)size;
	request->has_signal = put->signals != NULL;
	if (size)
		HA_TRY(take_data(group, rank, put, size, request));
	if (put->signals)
		HA_TRY(take_signal(rank, put, request));
	if (request->sender->is_gone)
		return latch(group, group->peers[rank].why);
	ha_gin_sender_begin(request->sender, request);
	*out = request;
	return HA_OK;
}

HA_NO_CANARY ha_result_t ha_gin_put(struct ha_gin_group *group, uint32_t rank,
				    const struct ha_gin_put *put, struct ha_gin_request **out)
{
	ha_result_t result;

	*out = NULL;
	lock(group);
	result = group->error;
	if (result == HA_OK)
		result = do_put(group, rank, put, out);
	unlock(group);
	return result;
}

static ha_result_t check_get(const struct ha_gin_group *group, uint32_t rank,
			     const struct ha_gin_get *get)
{
	const struct ha_gin_remote *remote;

	if (rank >= group->ranks)
		return refuse("there is no such rank", rank);
	if (!get->from || !get->to || !get->to->mr)
		return refuse("its memory is not registered", rank);
	if (get->size > group->largest)
		return refuse("it is larger than maxP2pBytes of the device's properties", rank);
	remote = &get->from->remotes[rank];
	if (!remote->is_known || !ha_gin_is_inside(get->from_offset, get->size, remote->size))
		return refuse("what it is to read does not lie in that rank's memory", rank);
	if (!ha_gin_is_inside(get->to_offset, get->size, get->to->size))
		return refuse("it does not lie in the memory that it goes to", rank);
	return HA_OK;
}

static ha_result_t do_read(struct ha_gin_group *group, uint32_t rank, const struct ha_gin_get *get,
			   struct ha_gin_request **out)
{
	struct peer *peer = &group->peers[rank];
	struct ha_gin_request *request = ha_gin_reader_next(&peer->sender);

	if (!request)
		return refuse_more(rank);
	if (peer->sender.is_gone)
		return latch(group, peer->why);
	request->to = get ? &get->from->remotes[rank] : NULL;
	request->size = get ? (uint32_t)get->size : 0;
	if (get) {
		request->from_mr = get->to->mr;
		request->from = get->to->base + get->to_offset;
		request->to_offset = get->from_offset;
	}
	ha_gin_reader_begin(&peer->sender, request);
	*out = request;
	return HA_OK;
}

ha_result_t ha_gin_get(struct ha_gin_group *group, uint32_t rank, const struct ha_gin_get *get,
		       struct ha_gin_request **out)
{
	ha_result_t result;

	*out = NULL;
	lock(group);
	result = group->error;
	if (result == HA_OK)
		result = check_get(group, rank, get);
	if (result == HA_OK)
		result = do_read(group, rank, get, out);
	unlock(group);
	return result;
}

ha_result_t ha_gin_flush(struct ha_gin_group *group, uint32_t rank, struct ha_gin_request **out)
{
	ha_result_t result;

	*out = NULL;
	lock(group);
	result = group->error;
	if (result == HA_OK && rank >= group->ranks)
		result = refuse("there is no such rank", rank);
	if (result == HA_OK)
		result = do_read(group, rank, NULL, out);
	unlock(group);
	return result;
}

ha_result_t ha_gin_group_widen(struct ha_gin_group *group, unsigned int contexts)
{
	unsigned int slots = HA_GIN_WINDOW;
	ha_result_t result;

	while (slots < contexts * HA_GIN_WINDOW)
		slots *= 2;
	lock(group);
	result = group->error;
	if (contexts < 1 || contexts > HA_GIN_CONTEXTS)
		result = HA_ERR_ARGUMENT;
	for (uint32_t r = 0; result == HA_OK && r < group->ranks; r++)
		result = ha_gin_sender_widen(&group->peers[r].sender, slots);
	unlock(group);
	return result;
}

ha_result_t ha_gin_test(struct ha_gin_group *group, struct ha_gin_request *request, bool *done)
{
	ha_result_t result;
	bool is_done;

	lock(group);
	result = group->error;
	is_done = ha_gin_is_complete(request);
	if (!is_done && result == HA_OK) {
		ha_gin_sender_works(request->sender);
		is_done = ha_gin_is_complete(request);
	}
	request->is_out = !is_done;
	unlock(group);
	*done = is_done;
	return is_done ? HA_OK : result;
}

ha_result_t ha_gin_group_error(struct ha_gin_group *group)
{
	ha_result_t error;

	lock(group);
	error = group->error;
	unlock(group);
	return error;
}

void ha_gin_group_counts(struct ha_gin_group *group, struct ha_gin_counts *out)
{
	lock(group);
	*out = (struct ha_gin_counts){.unproved = group->adder.applier.gave_up,
				      .loopbacks = group->adder.failed,
				      .written = group->adder.written};
	for (uint32_t r = 0; r < group->ranks; r++) {
		out->failovers += group->peers[r].sender.failovers;
		out->replayed += group->peers[r].sender.replayed;
	}
	unlock(group);
}

/* ---- life ----------------------------------------------------------------------------------- */

static ha_result_t init_peer(struct ha_gin_group *group, uint32_t rank, const void *handle)
{
	const struct ha_config *config = &group->inst->config;
	struct peer *peer = &group->peers[rank];

	memcpy(peer->handle, handle, HA_HANDLE_MAX);
	HA_TRY(ha_gin_sender_init(&peer->sender, rank, &peer->out, &group->adder, config,
				  config->completion == HA_COMPLETION_E2E));
	peer->sender.told = &peer->block->told;
	peer->sender.told_mr = peer->block_mr;
	peer->receiver = (struct ha_gin_receiver){
	    .rank = rank,
	    .out = &peer->out,
	    .adder = &group->adder,
	    .config = config,
	    .ring = peer->block->ring,
	    .ring_mr = peer->block_mr,
	    .say_regions = say_memories,
	    .regions = regions_of,
	    .arg = group,
	};
	return HA_OK;
}

static ha_result_t make_block(struct ha_gin_group *group, struct ha_nic *nic, struct peer *peer)
{
	peer->block = ha_pages_new(sizeof(*peer->block));
	if (!peer->block)
		return HA_ERR_SYSTEM;
	HA_TRY(ha_mr_register(group->inst->devices, nic, peer->block, sizeof(*peer->block),
			      HA_MEM_HOST | HA_MEM_STRICT_ORDER, 0, -1, &peer->block_mr));
	register_ahead(group, peer->block_mr);
	return HA_OK;
}

static ha_result_t make(struct ha_gin_group *group, const struct ha_gin_shape *shape)
{
	struct ha_device_set *set = group->inst->devices;
	struct ha_nic *nic = ha_instance_port(group->inst, group->dev)->nic;

	HA_TRY(ha_gin_adder_open(&group->adder, set, nic,
				 group->inst->config.completion == HA_COMPLETION_E2E));
	group->adder.find = find_word;
	group->adder.arg = group;
	for (uint32_t r = 0; r < group->ranks; r++) {
		HA_TRY(make_block(group, nic, &group->peers[r]));
		HA_TRY(init_peer(group, r, shape->handles[r]));
	}
	return HA_OK;
}

ha_result_t ha_gin_group_open(const struct ha_gin_shape *shape, struct ha_gin_group **out)
{
	struct ha_gin_group *group;
	ha_result_t result;

	*out = NULL;
	if (!shape->ranks || shape->ranks > HA_GIN_RANKS || shape->rank >= shape->ranks ||
	    !ha_instance_port(shape->inst, shape->dev)) {
		HA_WARN("GIN: there is no rank %u of %u, or no device %d", shape->rank,
			shape->ranks, shape->dev);
		return HA_ERR_ARGUMENT;
	}
	group = calloc(1, sizeof(*group) + shape->ranks * sizeof(struct peer));
	if (!group)
		return HA_ERR_SYSTEM;
	group->inst = shape->inst;
	group->dev = shape->dev;
	group->rank = shape->rank;
	group->ranks = shape->ranks;
	group->listen = shape->listen;
	group->largest = ha_max_message(ha_instance_port(shape->inst, shape->dev));
	result = make(group, shape);
	if (result != HA_OK)
		ha_gin_group_close(group);
	else
		*out = group;
	return result;
}

static bool close_streams(struct ha_gin_group *group)
{
	bool are_closed = true;

	for (uint32_t r = 0; r < group->ranks; r++) {
		are_closed &= ha_gin_sender_close(&group->peers[r].sender);
		are_closed &= ha_gin_receiver_close(&group->peers[r].receiver);
	}
	return ha_gin_adder_close(&group->adder) && are_closed;
}

static void close_connections(struct ha_gin_group *group)
{
	struct stranger *stranger;

	for (uint32_t r = 0; r < group->ranks; r++) {
		ha_gin_out_close(&group->peers[r].out);
		ha_gin_in_close(&group->peers[r].in);
	}
	while ((stranger = group->strangers) != NULL) {
		group->strangers = stranger->next;
		ha_gin_in_close(&stranger->in);
		free(stranger);
	}
}

void ha_gin_group_close(struct ha_gin_group *group)
{
	if (!group)
		return;
	close_connections(group);
	if (!close_streams(group)) {
		HA_WARN("GIN: a device refuses to destroy a queue pair of a group that ends; its "
			"memory stays until the process ends");
		return;
	}
	for (uint32_t i = 0; i < group->room; i++) {
		if (!group->memories[i])
			continue;
		ha_mr_deregister(group->memories[i]->mr);
		free(group->memories[i]->words);
		free(group->memories[i]);
	}
	free(group->memories);
	free(group->regions);
	for (uint32_t r = 0; r < group->ranks; r++) {
		ha_mr_deregister(group->peers[r].block_mr);
		ha_pages_free(group->peers[r].block, sizeof(struct block));
	}
	free(group);
}
