/* SPDX-License-Identifier: Apache-2.0 */
#include "rig.h"

#include "../fabric/pair.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PAGE	   4096u
#define POOL	   (512ull << 20)
#define OWN	   3u /* regions */
#define PEERS	   5u
#define PAGES_MOST 65536u
#define FREED_MOST 65536u
#define LONGEST_S  20u
#define WARM_CUTS  4u
#define GRACE_S	   3u /* for threads to return, before the program is ended */

struct rig rig;
const char *const rig_cut_names[RIG_CUTS] = {"port", "peers_port", "switch"};

static struct {
	struct ha_ibgda_context *a, *b;
	struct {
		struct ha_ibgda_end *puts, *receives;
	} streams[KERNEL_STREAMS];
	uint64_t *seen;	    /* by thread */
	uint64_t failovers; /* before threads ran */
	bool runs;	    /* threads do */
	uint8_t *own, *peers;
	size_t all; /* bytes of either */
	/* A pool that threads reach, and doorbells' pages. */
	uint8_t *pool;
	size_t used;
	struct {
		void *at;
		size_t bytes;
	} * freed, *given;
	unsigned int num_freed, num_given;
	void *pages[PAGES_MOST];
	unsigned int num_pages;
} w;

uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* No kernel is left that waits for ever. */
static void let_threads_return(void)
{
	if (!__atomic_load_n(&w.runs, __ATOMIC_ACQUIRE))
		return;
	__atomic_store_n(&rig.job->hold, 0, __ATOMIC_RELEASE);
	__atomic_store_n(&rig.job->stops, 1, __ATOMIC_RELEASE);
	__atomic_store_n(&rig.job->leaves, 1, __ATOMIC_RELEASE);
	for (unsigned int n = 0; n < rig.plan.streams; n++)
		ha_ibgda_end_abort(w.streams[n].puts);
	(void)rig_wait(now_ns() + GRACE_S * 1000 * MS);
}

void die(const char *what, unsigned int number)
{
	fprintf(stderr, "rig: %s (%u)\n", what, number);
	let_threads_return();
	fabric_down();
	_exit(1);
}

void must(bool is_so, const char *what)
{
	if (!is_so)
		die(what, 0);
}

/* ---- memory ------------------------------------------------------------------------------ */

/* A GPU maps it once, before its threads run: blocks of few sizes come and go in it. */
static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;

static void *take_freed(size_t alignment, size_t bytes)
{
	for (unsigned int n = 0; n < w.num_freed; n++) {
		void *at = w.freed[n].at;

		if (w.freed[n].bytes != bytes || (uintptr_t)at % alignment)
			continue;
		w.freed[n] = w.freed[--w.num_freed];
		return at;
	}
	return NULL;
}

static void *take_new(size_t alignment, size_t bytes)
{
	const size_t first = (w.used + alignment - 1) & ~(alignment - 1);

	if (first + bytes > POOL || w.num_given == PAGES_MOST)
		return NULL;
	w.used = first + bytes;
	w.given[w.num_given].at = w.pool + first;
	w.given[w.num_given++].bytes = bytes;
	return w.pool + first;
}

static void *allocate(void *argument, size_t alignment, size_t bytes)
{
	void *at;

	(void)argument;
	pthread_mutex_lock(&pool_lock);
	at = take_freed(alignment, bytes);
	if (!at)
		at = take_new(alignment, bytes);
	pthread_mutex_unlock(&pool_lock);
	if (at)
		memset(at, 0, bytes);
	return at;
}

static void release(void *argument, void *memory)
{
	unsigned int n = 0;

	(void)argument;
	pthread_mutex_lock(&pool_lock);
	while (n < w.num_given && w.given[n].at != memory)
		n++;
	if (n < w.num_given && w.num_freed < FREED_MOST) {
		w.freed[w.num_freed].at = memory;
		w.freed[w.num_freed++].bytes = w.given[n].bytes;
	}
	pthread_mutex_unlock(&pool_lock);
}

static bool has_page(const void *page)
{
	for (unsigned int n = 0; n < w.num_pages; n++)
		if (w.pages[n] == page)
			return true;
	return false;
}

/* Pages of doorbells are used again. One that is new while threads run is counted: a GPU's driver
 * may take long. */
static int map_page(void *page)
{
	const uint64_t began_ns = now_ns();

	if (has_page(page))
		return 0;
	if (w.num_pages == PAGES_MOST || kernel_map(page, PAGE))
		return -1;
	w.pages[w.num_pages++] = page;
	if (__atomic_load_n(&w.runs, __ATOMIC_ACQUIRE)) {
		rig.late_doorbells++;
		if (now_ns() - began_ns > rig.late_ns)
			rig.late_ns = now_ns() - began_ns;
	}
	return 0;
}

static int doorbell(void *argument, void *at, size_t bytes)
{
	void *page = (void *)((uintptr_t)at & ~(uintptr_t)(PAGE - 1));
	int result;

	(void)argument, (void)bytes;
	pthread_mutex_lock(&pool_lock);
	result = map_page(page);
	pthread_mutex_unlock(&pool_lock);
	return result;
}

/* Before their device gives them back. */
static void unmap_pages(void)
{
	pthread_mutex_lock(&pool_lock);
	while (w.num_pages)
		kernel_unmap(w.pages[--w.num_pages]);
	pthread_mutex_unlock(&pool_lock);
}

static void make_pool(void)
{
	w.pool = mmap(NULL, POOL, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	w.given = calloc(PAGES_MOST, sizeof(*w.given));
	w.freed = calloc(FREED_MOST, sizeof(*w.freed));
	must(w.pool != MAP_FAILED && w.given && w.freed, "memory");
	must(!kernel_map(w.pool, POOL), "memory that threads reach");
}

/* ---- streams ----------------------------------------------------------------------------- */

/* How long a queue may be silent, and a NIC that waits for a processor may leave what it is sent
 * without an answer: 7 times 17 s. */
static void let_streams_stay(void)
{
	must(!setenv("HA_NCCL_RTO_MS", "600000", 1) && !setenv("NCCL_IB_TIMEOUT", "22", 1) &&
		 !setenv("NCCL_IB_RETRY_CNT", "7", 1),
	     "an environment");
}

static struct ha_ibgda_context *open_context(const char *nics)
{
	const struct ha_ibgda_options options = {
	    .size = sizeof(options),
	    .nics = nics,
	    .outage_ms = rig.plan.outage_ms ? rig.plan.outage_ms : 30000,
	    .memory = {allocate, release, doorbell, &w}};
	struct ha_ibgda_context *context;

	must(!ha_ibgda_context_open(&options, &context), "a context");
	return context;
}

struct ha_ibgda_status rig_status(unsigned int stream)
{
	struct ha_ibgda_status status = {.size = sizeof(status)};

	must(!ha_ibgda_end_status(w.streams[stream].puts, &status), "a status");
	return status;
}

uint64_t rig_failovers(void)
{
	uint64_t failovers = 0;

	for (unsigned int n = 0; n < rig.plan.streams; n++)
		failovers += rig_status(n).failovers;
	return failovers - w.failovers;
}

void rig_abort(unsigned int stream)
{
	ha_ibgda_end_abort(w.streams[stream].puts);
}

static void open_stream(struct ha_ibgda_end **puts, struct ha_ibgda_end **receives)
{
	int fds[2];

	must(!socketpair(AF_UNIX, SOCK_STREAM, 0, fds), "sockets");
	must(!ha_ibgda_receive_open(w.b, fds[1], receives) && !ha_ibgda_put_open(w.a, fds[0], puts),
	     "a stream");
}

void rig_wait_until_at(unsigned int nic)
{
	const uint64_t until_ns = now_ns() + LONGEST_S * 1000 * MS;

	for (unsigned int n = 0; n < rig.plan.streams;) {
		const struct ha_ibgda_status status = rig_status(n);

		if (status.reason)
			die(status.reason, n);
		if (status.nic == nic &&
		    (status.state == HA_IBGDA_STATE_HOME || status.state == HA_IBGDA_STATE_AWAY))
			n++;
		else if (now_ns() > until_ns)
			die("a stream does not come to its NIC", n);
		else
			usleep(500);
	}
}

/* What is told late of a cut moves a stream once more, and threads without a gate may not meet
 * that. */
static void wait_until_settled(void)
{
	const uint64_t until_ns = now_ns() + LONGEST_S * 1000 * MS;
	uint64_t failovers;

	do {
		must(now_ns() < until_ns, "streams that stay where they are");
		failovers = rig_failovers();
		usleep(300000);
	} while (rig_failovers() != failovers);
}

/* As many streams again for a moment, so that there are doorbells enough, and some cuts: all have
 * their pages before threads run. */
static void warm_up(void)
{
	struct ha_ibgda_end *puts[KERNEL_STREAMS], *receives[KERNEL_STREAMS];

	for (unsigned int n = 0; n < KERNEL_STREAMS; n++)
		open_stream(&puts[n], &receives[n]);
	rig_wait_until_at(0);
	for (unsigned int cut = 0; cut < WARM_CUTS; cut++) {
		rig_cut(RIG_PORT, cut % 2);
		rig_wait_until_at(1 - cut % 2);
		rig_heal(RIG_PORT, cut % 2);
		usleep(20000); /* the next ones are made */
	}
	for (unsigned int n = 0; n < KERNEL_STREAMS; n++) {
		ha_ibgda_end_close(puts[n]);
		ha_ibgda_end_close(receives[n]);
	}
	wait_until_settled();
}

static void make_memory(void)
{
	w.own = allocate(NULL, PAGE, w.all);
	w.peers =
	    rig.plan.in_memory_of_threads ? kernel_memory(w.all) : allocate(NULL, PAGE, w.all);
	must(w.own && w.peers, "memory");
	must(!ha_ibgda_register(w.a, OWN, w.own, w.all) &&
		 !ha_ibgda_register(w.b, PEERS, w.peers, w.all),
	     "regions");
}

static void make_job(void)
{
	const uint32_t count = rig.plan.streams * rig.plan.threads_each;
	struct kernel_job *job = allocate(NULL, PAGE, sizeof(*job));

	must(job != NULL, "memory");
	*job = (struct kernel_job){.threads = allocate(NULL, PAGE, count * sizeof(*job->threads)),
				   .watches = allocate(NULL, PAGE, count * sizeof(*job->watches)),
				   .num_threads = count,
				   .num_watches = rig.plan.watched ? count : 0,
				   .own_region = OWN,
				   .peer_region = PEERS,
				   .bytes = rig.plan.bytes,
				   .window = rig.plan.window,
				   .signals = rig.plan.signals,
				   .count = rig.plan.count};
	must(job->threads && job->watches, "memory");
	rig.job = job;
}

static void make_threads(void)
{
	const size_t slots = (size_t)KERNEL_SLOTS * rig.plan.bytes;

	for (uint32_t n = 0; n < rig.job->num_threads; n++) {
		const unsigned int stream = n % rig.plan.streams;
		const uint32_t id = n / rig.plan.streams;
		const uint64_t to = (uintptr_t)w.peers + n * slots;

		rig.job->threads[n] =
		    (struct kernel_thread){.from = (uintptr_t)w.own + n * slots,
					   .to = to,
					   .id = id,
					   .stream = ha_ibgda_end_stream(w.streams[stream].puts)};
		rig.job->watches[n] = (struct kernel_watch){
		    .signal = ha_ibgda_end_signals(w.streams[stream].receives) + id, .to = to};
	}
}

void rig_open(const struct rig_plan *plan)
{
	const uint32_t count = plan->streams * plan->threads_each;

	must(plan->streams > 0 && plan->streams <= KERNEL_STREAMS && plan->threads_each > 0 &&
		 plan->threads_each <= KERNEL_STREAMS && plan->bytes >= 8 && plan->bytes % 8 == 0 &&
		 plan->window > 0 && plan->window <= KERNEL_SLOTS,
	     "1 to 64 streams, and threads of each, 8 bytes or a multiple, 1 to 64 puts at a time");
	rig.plan = *plan;
	w.all = (size_t)KERNEL_SLOTS * plan->bytes * count;
	w.seen = calloc(count, sizeof(*w.seen));
	must(w.seen != NULL, "memory");
	make_pool();
	if (plan->has_no_gate)
		let_streams_stay();
	w.a = open_context("=sim0,sim1");
	w.b = open_context("=sim2,sim3");
	make_memory();
	for (unsigned int n = 0; n < plan->streams; n++)
		open_stream(&w.streams[n].puts, &w.streams[n].receives);
	make_job();
	make_threads();
	warm_up();
	w.failovers = rig_failovers();
}

void rig_close(void)
{
	for (unsigned int n = 0; n < rig.plan.streams; n++) {
		ha_ibgda_end_close(w.streams[n].puts);
		ha_ibgda_end_close(w.streams[n].receives);
	}
	unmap_pages();
	must(!ha_ibgda_context_close(w.a) && !ha_ibgda_context_close(w.b), "an end of it");
}

/* ---- threads ----------------------------------------------------------------------------- */

void rig_start(enum kernel_kind kind)
{
	for (uint32_t n = 0; n < rig.job->num_threads; n++)
		rig.job->threads[n].ended = 0;
	rig.job->stops = rig.job->leaves = 0;
	__atomic_store_n(&w.runs, true, __ATOMIC_RELEASE);
	must(!kernel_start(rig.job, kind), "threads");
}

void rig_stop(void)
{
	__atomic_store_n(&rig.job->stops, 1, __ATOMIC_RELEASE);
}

unsigned int rig_wait(uint64_t until_ns)
{
	unsigned int ended = 0;

	for (;;) {
		while (ended < rig.job->num_threads &&
		       __atomic_load_n(&rig.job->threads[ended].ended, __ATOMIC_ACQUIRE))
			ended++;
		if (ended == rig.job->num_threads || now_ns() > until_ns)
			return ended;
		usleep(100);
	}
}

void rig_join(void)
{
	__atomic_store_n(&rig.job->leaves, 1, __ATOMIC_RELEASE);
	must(!kernel_join(rig.job), "threads do not end well");
	__atomic_store_n(&w.runs, false, __ATOMIC_RELEASE);
}

/* ---- what has come ----------------------------------------------------------------------- */

static bool is_there(const uint64_t *word, uint64_t value)
{
	const uint64_t number = __atomic_load_n(word, __ATOMIC_ACQUIRE);

	return number >= value && number % KERNEL_SLOTS == value % KERNEL_SLOTS;
}

/* Who sees a signal has its put; a later one may have come to its place. What only a GPU reaches is
 * looked at by those who watch. */
static void look_at(unsigned int n)
{
	const struct kernel_watch *watch = &rig.job->watches[n];
	const uint64_t value = __atomic_load_n(watch->signal, __ATOMIC_ACQUIRE);
	const uint64_t *put =
	    (const uint64_t *)(uintptr_t)(watch->to + value % KERNEL_SLOTS * rig.plan.bytes);

	rig.wrong += value < w.seen[n];
	if (value && !rig.plan.in_memory_of_threads)
		rig.wrong +=
		    !is_there(put, value) || !is_there(put + rig.plan.bytes / 8 - 1, value);
	w.seen[n] = value;
}

uint64_t rig_look_at(unsigned int stream)
{
	uint64_t sum = 0;

	for (unsigned int n = stream; n < rig.job->num_threads; n += rig.plan.streams) {
		look_at(n);
		sum += w.seen[n];
	}
	return sum;
}

uint64_t rig_look(void)
{
	uint64_t sum = 0;

	for (unsigned int n = 0; n < rig.plan.streams; n++)
		sum += rig_look_at(n);
	return sum;
}

static void compare_bytes(void)
{
	uint8_t *own = malloc(w.all), *peers = malloc(w.all);

	must(own && peers && !kernel_copy(own, w.own, w.all) && !kernel_copy(peers, w.peers, w.all),
	     "a copy");
	rig.wrong += memcmp(own, peers, w.all) != 0;
	free(own);
	free(peers);
}

uint64_t rig_judge(void)
{
	const uint64_t until_ns = now_ns() + LONGEST_S * 1000 * MS;
	uint64_t posted = 0, sum = 0;

	for (unsigned int n = 0; n < rig.job->num_threads; n++) {
		posted += rig.job->threads[n].posted;
		if (rig.job->threads[n].over)
			die("a thread's stream was over", n);
	}
	while (rig.plan.signals && (sum = rig_look()) < posted && now_ns() < until_ns)
		usleep(1000);
	rig.wrong += rig.plan.signals && sum != posted;
	for (unsigned int n = 0; n < rig.job->num_threads; n++)
		rig.wrong += rig.plan.signals && w.seen[n] != rig.job->threads[n].posted;
	compare_bytes();
	return posted;
}

/* ---- cuts -------------------------------------------------------------------------------- */

static void apply(enum rig_cut kind, unsigned int rail, bool heals)
{
	if (kind == RIG_SWITCH)
		must(!fabric_tool("cut %s %u%s", fabric_name(), rail, heals ? " --heal" : ""),
		     "cut");
	else
		must(!fabric_tool("link %s 0 %u %s", fabric_name(),
				  kind == RIG_PORT ? rail : rail + 2, heals ? "up" : "down"),
		     "link");
}

void rig_cut(enum rig_cut kind, unsigned int rail)
{
	apply(kind, rail, false);
}

void rig_heal(enum rig_cut kind, unsigned int rail)
{
	apply(kind, rail, true);
}

/* ---- the whole --------------------------------------------------------------------------- */

/* The program's own, before the alarm that ends it without a word to a GPU. */
static void *ends_in_time(void *argument)
{
	sleep((unsigned int)(uintptr_t)argument);
	die("it takes too long", 0);
}

static void limit(void)
{
	const char *said = getenv("BENCH_STREAMS_S");
	const unsigned int seconds = said ? (unsigned int)atoi(said) : 110;
	pthread_t thread;

	must(seconds > 2 * GRACE_S, "BENCH_STREAMS_S is too short");
	alarm(seconds);
	must(!pthread_create(&thread, NULL, ends_in_time,
			     (void *)(uintptr_t)(seconds - GRACE_S - 1)),
	     "a thread");
}

void rig_begin(bool has_gpu_memory)
{
	fabric_up(has_gpu_memory ? "--hosts 1 --rails 4 --gpu" : "--hosts 1 --rails 4");
	limit();
	setenv("SIMVERBS_FABRIC", fabric_name(), 1);
	setenv("SIMVERBS_HOST", "0", 1);
	setenv("HA_NCCL_QP_TIMEOUT", "8", 0);
	setenv("HA_NCCL_QP_RETRY_CNT", "3", 0);
	/* simverbs' own: who looks for that library finds it loaded. */
	must(dlopen(getenv("SIMVERBS_MLX5") ? getenv("SIMVERBS_MLX5") : SIMVERBS_MLX5, RTLD_NOW),
	     "simverbs' libmlx5.so.1");
	rig.where = kernel_open();
	must(rig.where != NULL, "there is nowhere to run");
}
