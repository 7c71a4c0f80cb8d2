/* SPDX-License-Identifier: Apache-2.0 */
#include "stream_world.h"

static void yield(const char *where);
#define HA_DEV_STEP(where) yield(where)
#define HA_DEV_PAUSE()	   yield("pause")

#include "ibgda/switchover.h"
#include "nccl_ha/ibgda.cuh"
#include "simverbs/direct.h"

#include <string.h>
#include <ucontext.h>

#define DEPTH_MOST  8u
#define POSTS_MOST  8u
#define OPS_MOST    (WORLD_THREADS * POSTS_MOST * 2)
#define IDS	    2u
#define EVENTS_MOST 60000u
#define STACK	    65536u
#define CELLS_ADDR  0x70000000ull
#define REMOTE_ADDR 0x60000000ull
#define REFILLED    0xfefefefefefefefeull /* what the receiver writes when it has been told */

/* A queue pair of the sender, its path, and the NIC at the other end. */
struct device {
	struct ha_wqe requests[DEPTH_MOST];
	uint8_t completions[DEPTH_MOST * SV_DIRECT_BLOCK];
	uint32_t record;
	uint64_t doorbell;
	struct sv_direct_sq sq;
	struct sv_direct_cq cq;
	bool is_up, receiver_up, is_broken, is_dead, is_gone;
	struct sv_direct_work works[DEPTH_MOST]; /* of an index, as they were taken */
	uint64_t taken, arrived, placed, acked;	 /* indices below */
	uint64_t base;
};

struct thread {
	ucontext_t context;
	const char *at;
	bool has_ended, is_held;
	unsigned int wake; /* generation */
};

static struct world {
	const struct world_plan *plan;
	struct world_result result;
	uint64_t random;
	ucontext_t scheduler;
	struct thread threads[WORLD_THREADS];
	unsigned int current;
	struct ha_ibgda_stream stream;
	struct ha_ibgda_queue queues[HA_IBGDA_QUEUES];
	struct device devices[HA_IBGDA_QUEUES];
	struct sv_direct_mistakes mistakes;
	struct ha_ibgda_host host;
	struct ha_ibgda_verdict verdict;
	uint64_t alarm;
	bool is_ordered; /* the host is to move the stream */
	/* The receiver. */
	uint64_t cells[IDS], told; /* numbers below were signalled */
	uint64_t remote[OPS_MOST];
	bool has[OPS_MOST], excused[OPS_MOST];
	/* What was asked for. */
	uint64_t payload[OPS_MOST], sums[IDS];
	unsigned int posted;
} w;

static char stacks[WORLD_THREADS][STACK];

static const char *const steps[] = {"reserve",	 "opened", "write",  "turn", "number", "publish",
				    "published", "ring",   "locked", "prod", "record", "doorbell",
				    "unlock",	 "gate",   "entry",  "poll"};

const char *world_step(unsigned int number)
{
	return number < sizeof(steps) / sizeof(steps[0]) ? steps[number] : NULL;
}

static void must(bool condition, const char *what)
{
	if (!condition && !w.result.wrong)
		w.result.wrong = what;
}

static unsigned int some(unsigned int below)
{
	w.random ^= w.random << 13;
	w.random ^= w.random >> 7;
	w.random ^= w.random << 17;
	return (unsigned int)((w.random >> 20) % below);
}

/* ---- threads of the GPU ---------------------------------------------------------------------- */

static void hold(struct thread *thread)
{
	if (w.result.held || !w.plan->held_at || strcmp(thread->at, w.plan->held_at) != 0)
		return;
	w.result.held++;
	thread->is_held = true;
	thread->wake = w.host.generation + w.plan->held_for;
}

static void yield(const char *where)
{
	struct thread *thread = &w.threads[w.current];

	thread->at = where;
	hold(thread);
	swapcontext(&thread->context, &w.scheduler);
}

/* A put, a signal, or a put and a signal; each put's source is its own, and its target. */
static struct ha_ibgda_work some_post(void)
{
	const unsigned int kind = some(4), n = w.posted++;
	struct ha_ibgda_work post = {0};

	w.payload[n] = 0x1000000000ull + n;
	if (kind != 0)
		post.put = (struct ha_ibgda_put){.local = (uint64_t)(uintptr_t)&w.payload[n],
						 .remote = REMOTE_ADDR + 8 * n,
						 .local_region = 1,
						 .remote_region = 2,
						 .size = 8};
	if (kind != 1) {
		post.signal = (struct ha_ibgda_signal){.id = some(IDS), .addend = 1 + some(3)};
		w.sums[post.signal.id] += post.signal.addend;
	}
	return post;
}

/* At the NIC of a queue that carries it: the one in use, and the next one as soon as that is rung.
 */
static bool has_arrived(uint64_t number)
{
	const struct device *device = &w.devices[w.host.queue], *next = &w.devices[w.host.next];

	return device->base + device->arrived > number ||
	       (w.host.state == HA_IBGDA_STARTED && next->base + next->arrived > number);
}

/* What is complete has come to the other end, and nothing reads its source any more. */
static void check_quiet(uint64_t upto)
{
	for (uint64_t number = 0; number <= upto && number < OPS_MOST; number++)
		must(w.has[number] || w.excused[number] || has_arrived(number),
		     "quiet, and it has not arrived");
}

static void thread_runs(void)
{
	struct thread *thread = &w.threads[w.current];
	enum ha_ibgda_result result = HA_IBGDA_OK;

	for (unsigned int n = 0; n < w.plan->posts && result == HA_IBGDA_OK; n++) {
		struct ha_ibgda_work post = some_post();
		const bool waits = n + 1 == w.plan->posts || some(2);

		result = ha_ibgda_post(&w.stream, &post);
		if (result == HA_IBGDA_OK && waits)
			result = ha_ibgda_quiet(&w.stream, post.first + post.count - 1);
		if (result == HA_IBGDA_OK && waits)
			check_quiet(post.first + post.count - 1);
	}
	must(result == HA_IBGDA_OK || w.result.given_up,
	     "a thread has ended and the stream has not");
	thread->has_ended = true;
	swapcontext(&thread->context, &w.scheduler);
}

static void thread_begins(unsigned int number)
{
	struct thread *thread = &w.threads[number];

	thread->at = "";
	thread->has_ended = thread->is_held = false;
	getcontext(&thread->context);
	thread->context.uc_stack.ss_sp = stacks[number];
	thread->context.uc_stack.ss_size = STACK;
	thread->context.uc_link = NULL;
	makecontext(&thread->context, thread_runs, 0);
}

static bool wakes(const struct thread *thread)
{
	const bool is_made = w.host.state == HA_IBGDA_PREPARED || w.host.state == HA_IBGDA_STARTED;

	return w.host.generation >= thread->wake ||
	       (w.plan->wakes_early && is_made && w.host.generation + 1 == thread->wake);
}

static void thread_step(unsigned int number)
{
	struct thread *thread = &w.threads[number];

	if (thread->is_held && wakes(thread))
		thread->is_held = false;
	if (thread->is_held) {
		w.is_ordered = w.host.state == HA_IBGDA_RUNS; /* generations come */
		return;
	}
	w.current = number;
	swapcontext(&w.scheduler, &thread->context);
}

/* ---- devices --------------------------------------------------------------------------------- */

static uint32_t key_of(unsigned int queue, unsigned int region)
{
	return 0x100 * (w.host.generation + 1) + 0x10 * queue + region;
}

/* A queue pair of the next generation, with all that a path has of its own. */
static void make_device(unsigned int number, uint64_t base)
{
	struct device *device = &w.devices[number];
	struct ha_ibgda_queue *queue = &w.queues[number];

	queue->qpn = 0x10 * (w.host.generation + 1) + number + 1;
	queue->cells_key = key_of(number, 9);
	queue->cells_addr = CELLS_ADDR;
	for (uint32_t region = 0; region < HA_IBGDA_REGIONS; region++)
		queue->keys[region] =
		    (struct ha_ibgda_keys){key_of(number, region), key_of(number, region) + 0x8000};
	queue->requests = device->requests;
	queue->completions = device->completions;
	queue->record = &device->record;
	queue->doorbell = &device->doorbell;
	device->record = 0;
	device->sq = (struct sv_direct_sq){.blocks = (const volatile uint8_t *)device->requests,
					   .count = 1u << w.plan->log,
					   .qpn = queue->qpn,
					   .record = &device->record,
					   .doorbell = &device->doorbell,
					   .rung = device->doorbell,
					   .mistakes = &w.mistakes};
	device->cq = (struct sv_direct_cq){
	    .entries = device->completions, .log = w.plan->log, .mistakes = &w.mistakes};
	sv_direct_cq_clear(&device->cq);
	device->is_up = device->receiver_up = true;
	device->is_broken = device->is_dead = device->is_gone = false;
	device->taken = device->arrived = device->placed = device->acked = 0;
	device->base = base;
}

static void put_lands(const struct device *device, unsigned int queue, uint64_t number,
		      const struct sv_direct_work *work)
{
	const uint64_t at = (work->remote_addr - REMOTE_ADDR) / 8;

	(void)device;
	must(work->lkey == w.queues[queue].keys[1].local &&
		 work->rkey == w.queues[queue].keys[2].remote && work->size == 8,
	     "a put with keys of another path");
	must(number >= w.told, "a put lands whose signal was given");
	must(at < OPS_MOST, "a put that nobody asked for");
	if (at < OPS_MOST)
		memcpy(&w.remote[at], (const void *)(uintptr_t)work->addr, sizeof(w.remote[at]));
	w.has[number] = true;
}

/* Who sees a signal may use, and write over, all that was put before it. */
static void signal_lands(unsigned int queue, uint64_t number, const struct sv_direct_work *work)
{
	const uint64_t id = (work->remote_addr - CELLS_ADDR) / 8;
	uint64_t value;

	memcpy(&value, work->bytes, sizeof(value));
	must(work->rkey == w.queues[queue].cells_key && work->size == 8 && id < IDS,
	     "a signal with keys of another path");
	if (id >= IDS)
		return;
	for (uint64_t below = 0; below < number; below++)
		must(w.has[below] || w.excused[below], "a signal lands before what it is for");
	must(value > w.cells[id], "a signal that does not grow");
	w.cells[id] = value;
	w.has[number] = true;
	w.told = number + 1 > w.told ? number + 1 : w.told;
	for (unsigned int n = 0; n < w.posted; n++)
		if (w.remote[n] == w.payload[n])
			w.remote[n] = REFILLED;
}

static void place(unsigned int queue)
{
	struct device *device = &w.devices[queue];
	const struct sv_direct_work *work = &device->works[device->placed % DEPTH_MOST];
	const uint64_t number = device->base + device->placed++;

	if (number >= OPS_MOST)
		must(false, "a number that nobody has");
	else if (work->opcode == SV_DIRECT_NOP)
		must(w.has[number] || w.excused[number], "settled, and not there");
	else if (work->is_inline)
		signal_lands(queue, number, work);
	else
		put_lands(device, queue, number, work);
}

static void place_all(unsigned int queue)
{
	while (w.devices[queue].placed < w.devices[queue].arrived)
		place(queue);
}

static void arrive(struct device *device)
{
	device->arrived++;
	if (!device->is_up || device->is_broken || device->acked + 1 != device->arrived)
		return;
	sv_direct_complete(&device->cq, device->sq.qpn, (uint16_t)device->acked, 0);
	device->acked++;
}

/* In error: what was taken and what is rung still is given back. */
static void flush(struct device *device, uint8_t first)
{
	struct sv_direct_work work;

	for (uint64_t index = device->cq.written; index < device->taken;
	     index++, first = HA_CQE_FLUSHED)
		sv_direct_complete(&device->cq, device->sq.qpn, (uint16_t)index, first);
	while (sv_direct_take(&device->sq, &work) != SV_DIRECT_NONE) {
		sv_direct_complete(&device->cq, device->sq.qpn, work.index, first);
		first = HA_CQE_FLUSHED;
	}
}

static void take(struct device *device)
{
	struct sv_direct_work work;

	if (device->taken >= device->placed + (1u << w.plan->log))
		return;
	switch (sv_direct_take(&device->sq, &work)) {
	case SV_DIRECT_NONE:
		return;
	case SV_DIRECT_BAD:
		must(false, "a request that is none");
		return;
	case SV_DIRECT_WORK:
		device->works[device->taken++ % DEPTH_MOST] = work;
	}
}

static void device_step(unsigned int queue)
{
	struct device *device = &w.devices[queue];

	if (!device->sq.qpn)
		return;
	sv_direct_look(&device->sq, 1);
	if (!device->is_up)
		flush(device, HA_CQE_FLUSHED);
	switch (some(4)) {
	case 0:
		if (device->is_up && !device->is_broken)
			take(device);
		return;
	case 1:
		if (device->receiver_up && !device->is_dead && device->arrived < device->taken)
			arrive(device);
		return;
	case 2:
		if (!device->is_gone && device->placed < device->arrived)
			place(queue);
		return;
	default:
		if (device->is_up && device->is_broken) { /* retries are over */
			device->is_up = false;
			flush(device, HA_CQE_RETRIES);
		}
	}
}

/* ---- faults ---------------------------------------------------------------------------------- */

static void breaks(enum world_fault fault)
{
	struct device *device = &w.devices[w.host.queue];
	const bool is_running = w.host.state == HA_IBGDA_RUNS || w.host.state == HA_IBGDA_PLANNED ||
				w.host.state == HA_IBGDA_FAILED_OVER;

	if (fault == WORLD_FALSE_ALARM || fault == WORLD_PLANNED) {
		if (w.host.state != HA_IBGDA_RUNS || device->is_broken)
			return;
		w.result.fired++;
		if (fault == WORLD_PLANNED)
			ha_ibgda_plan(&w.host);
		else
			w.is_ordered = true;
		return;
	}
	if (!is_running || device->is_broken)
		return;
	w.result.fired++;
	device->is_broken = true;
	if (fault == WORLD_CUT_LOST)
		device->taken = device->arrived;
	if (fault == WORLD_DIES_PLACED)
		place_all(w.host.queue);
	device->is_dead = fault == WORLD_DIES_PLACED || fault == WORLD_DIES_LOST;
	device->is_gone = fault == WORLD_DIES_LOST;
}

/* ---- the host -------------------------------------------------------------------------------- */

static void fence_step(struct device *device)
{
	if (device->is_up && some(2)) {
		device->is_up = false;
		sv_direct_look(&device->sq, 1);
		flush(device, HA_CQE_FLUSHED);
	} else if (device->receiver_up && some(2)) {
		device->receiver_up = false;
	}
	if (!device->is_up && !device->receiver_up)
		ha_ibgda_fenced(&w.host);
}

/* Acknowledged, and a NIC that died has it no more. */
static bool is_something_lost(const struct device *device)
{
	for (uint64_t index = device->placed; device->is_gone && index < device->acked; index++)
		if (device->works[index % DEPTH_MOST].opcode != SV_DIRECT_NOP)
			return true;
	return false;
}

static void ask_receiver(struct device *device)
{
	w.verdict = (struct ha_ibgda_verdict){.is_flushed = !device->is_dead};
	if (!device->is_dead)
		place_all(w.host.queue);
	memcpy(w.verdict.cells, w.cells, sizeof(w.cells));
	switch (ha_ibgda_judge(&w.host, &w.verdict)) {
	case HA_IBGDA_LOST:
		must(is_something_lost(device), "a loss, and nothing is lost");
		w.result.given_up = true;
		ha_ibgda_give_up(&w.host);
		return;
	case HA_IBGDA_UNKNOWN:
		must(device->is_dead, "nobody can tell, though a NIC was asked");
		w.result.given_up = true;
		ha_ibgda_give_up(&w.host);
		return;
	case HA_IBGDA_UNPROVED:
		must(device->is_dead, "not proved, though a NIC was asked");
		for (uint64_t number = 0; number < w.host.acked; number++)
			w.excused[number] = true;
		return;
	case HA_IBGDA_FINE:
		must(!is_something_lost(device),
		     "something is lost, and the host says that all is fine");
	}
}

static void next_generation(void)
{
	const uint32_t queue = ha_ibgda_free_queue(&w.host);
	struct device *device = &w.devices[w.host.queue];

	if (queue == HA_IBGDA_QUEUES) {
		must(false, "no queue is free");
		return;
	}
	if (w.host.state == HA_IBGDA_PLANNED) {
		place_all(w.host.queue);
		device->is_up = device->receiver_up = false;
		make_device(queue, w.host.ready);
		ha_ibgda_prepare_planned(&w.host, queue);
		return;
	}
	ask_receiver(device);
	if (w.host.state != HA_IBGDA_FENCED)
		return;
	if (w.told > w.host.acked)
		w.result.refilled += (unsigned int)(w.told - w.host.acked);
	make_device(queue, w.host.acked);
	ha_ibgda_prepare(&w.host, queue, &w.verdict);
}

static void host_watches(const struct device *device)
{
	const unsigned int left = ha_ibgda_retire(&w.host);

	w.result.left_most = left > w.result.left_most ? left : w.result.left_most;
	if (w.is_ordered || w.alarm || (device->is_broken && some(8) == 0)) {
		w.is_ordered = false;
		ha_ibgda_fail(&w.host);
	}
}

/* It takes its time while the gate is closed: threads that have passed it publish, ring, and are
 * executed. */
static void host_step(void)
{
	struct device *device = &w.devices[w.host.queue];

	if (w.host.state != HA_IBGDA_RUNS && some(8) != 0)
		return;
	switch (w.host.state) {
	case HA_IBGDA_RUNS:
		host_watches(device);
		return;
	case HA_IBGDA_FAILED_OVER:
		fence_step(device);
		return;
	case HA_IBGDA_FENCED:
		next_generation();
		return;
	case HA_IBGDA_PREPARED:
		ha_ibgda_start(&w.host);
		return;
	case HA_IBGDA_STARTED:
		ha_ibgda_open(&w.host);
		return;
	case HA_IBGDA_PLANNED:
		if (device->is_broken)
			ha_ibgda_fail(&w.host);
		else if (ha_ibgda_is_drained(&w.host))
			next_generation();
		return;
	case HA_IBGDA_GIVEN_UP:
		return;
	}
}

/* ---- a run ----------------------------------------------------------------------------------- */

static bool all_have_ended(void)
{
	for (unsigned int n = 0; n < w.plan->threads; n++)
		if (!w.threads[n].has_ended)
			return false;
	return w.host.state == HA_IBGDA_GIVEN_UP ||
	       (w.host.state == HA_IBGDA_RUNS && !w.devices[w.host.queue].is_broken &&
		!w.is_ordered);
}

static void check_mistakes(void)
{
	must(!w.mistakes.stale, "a request was not there when it was rung");
	must(!w.mistakes.malformed, "a doorbell or a request of another queue pair");
	must(!w.mistakes.without_record, "a doorbell without its record");
	must(!w.mistakes.without_doorbell, "a record without its doorbell");
}

static void event(void)
{
	const unsigned int actor = some(w.plan->threads + 4);

	for (unsigned int n = 0; n < 2; n++)
		if (w.plan->faults[n].fault && w.plan->faults[n].at == w.result.events)
			breaks(w.plan->faults[n].fault);
	w.result.events++;
	if (actor < w.plan->threads && !w.threads[actor].has_ended)
		thread_step(actor);
	else if (actor == w.plan->threads)
		host_step();
	else if (actor == w.plan->threads + 1)
		device_step(some(HA_IBGDA_QUEUES));
	else
		device_step(w.host.state == HA_IBGDA_STARTED ? w.host.next : w.host.queue);
	check_mistakes();
}

static void check_end(void)
{
	if (w.result.given_up)
		return;
	place_all(w.host.queue);
	for (uint64_t number = 0; number < w.stream.resv; number++)
		must(w.has[number] || w.excused[number], "an operation is lost");
	for (unsigned int id = 0; id < IDS; id++)
		must(w.cells[id] == w.sums[id], "a sum is wrong");
	for (unsigned int n = 0; n < 64; n++)
		w.result.left = ha_ibgda_retire(&w.host);
}

struct world_result world_run(const struct world_plan *plan)
{
	memset(&w, 0, sizeof(w));
	w.plan = plan;
	w.random = plan->seed * 0x9e3779b97f4a7c15ull + 1;
	w.stream =
	    (struct ha_ibgda_stream){.queues = w.queues, .alarm = &w.alarm, .log = plan->log};
	make_device(0, 0);
	ha_ibgda_host_init(&w.host, &w.stream);
	for (unsigned int n = 0; n < plan->threads; n++)
		thread_begins(n);
	while (!all_have_ended() && w.result.events < EVENTS_MOST && !w.result.wrong)
		event();
	must(w.result.events < EVENTS_MOST, "somebody waits for ever");
	if (!w.result.wrong)
		check_end();
	w.result.generations = w.host.generation;
	return w.result;
}
