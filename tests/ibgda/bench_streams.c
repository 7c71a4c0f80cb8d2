/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads of a GPU (or of the host, kernels.h) post on streams of libnccl-ha-ibgda between two
 * contexts of a live fabric, in memory of the host that the GPU reaches. What a post costs, and
 * what a cut does to threads that never end by themselves. The result is a line of JSON; status 1:
 * a byte or a sum was wrong.
 *
 *     bench_streams post BYTES WINDOW SIGNALS STREAMS THREADS COUNT    each thread posts so many
 *     bench_streams cuts STREAMS THREADS CUTS SIGNALS                  until so many cuts and
 * signals are over
 */
#include "nccl_ha/ibgda.h"

#include "../fabric/pair.h"
#include "kernels.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MS	    1000000ull
#define PAGE	    4096u
#define POOL	    (512ull << 20)
#define OWN	    3u /* regions */
#define PEERS	    5u
#define PAGES_MOST  65536u
#define FREED_MOST  4096u
#define PAUSES_MOST 200000u
#define WARM_MOVES  4u
#define GAP_MS	    10u /* between two cuts: the next queue pair is made */
#define LONGEST_S   20u

enum kind { PORT, PEERS_PORT, SWITCH, KINDS };
static const char *const kind_names[KINDS] = {"port", "peers_port", "switch"};

static struct {
	struct ha_ibgda_context *a, *b;
	struct {
		struct ha_ibgda_end *puts, *receives;
	} streams[KERNEL_STREAMS];
	unsigned int num_streams, threads_each;
	struct kernel_job *job;
	uint64_t *seen; /* by thread */
	unsigned long wrong;
	bool runs; /* threads do */
	/* Memory: a pool that threads reach, and doorbells' pages. */
	uint8_t *pool;
	size_t used;
	struct {
		void *at;
		size_t bytes;
	} freed[FREED_MOST], *given;
	unsigned int num_freed, num_given;
	void *pages[PAGES_MOST];
	unsigned int num_pages, late_pages;
	uint64_t late_ns; /* the longest of those */
	/* Of every stream at every cut. */
	struct {
		uint64_t *ns;
		unsigned int count;
	} pauses[KINDS];
} w;

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void stop_all(void)
{
	if (!w.runs)
		return;
	__atomic_store_n(&w.job->stops, 1, __ATOMIC_RELEASE);
	for (unsigned int n = 0; n < w.num_streams; n++)
		ha_ibgda_end_abort(w.streams[n].puts);
	(void)kernel_join(w.job);
	w.runs = false;
}

/* No kernel is left that waits for ever. */
static void die(const char *what, unsigned int number)
{
	fprintf(stderr, "bench_streams: %s (%u)\n", what, number);
	stop_all();
	exit(1);
}

static void must(bool is_so, const char *what)
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
		w.late_pages++;
		if (now_ns() - began_ns > w.late_ns)
			w.late_ns = now_ns() - began_ns;
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

static void unmap_pages(void)
{
	while (w.num_pages)
		kernel_unmap(w.pages[--w.num_pages]);
}

static void make_pool(void)
{
	w.pool = mmap(NULL, POOL, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	w.given = calloc(PAGES_MOST, sizeof(*w.given));
	must(w.pool != MAP_FAILED && w.given, "memory");
	must(!kernel_map(w.pool, POOL), "memory that threads reach");
}

/* ---- streams ----------------------------------------------------------------------------- */

static struct ha_ibgda_context *open_context(const char *nics)
{
	const struct ha_ibgda_options options = {.size = sizeof(options),
						 .nics = nics,
						 .outage_ms = 30000,
						 .memory = {allocate, release, doorbell, &w}};
	struct ha_ibgda_context *context;

	must(!ha_ibgda_context_open(&options, &context), "a context");
	return context;
}

static struct ha_ibgda_status status_of(unsigned int n)
{
	struct ha_ibgda_status status = {.size = sizeof(status)};

	must(!ha_ibgda_end_status(w.streams[n].puts, &status), "a status");
	if (status.reason)
		die(status.reason, n);
	return status;
}

static void open_streams(void)
{
	for (unsigned int n = 0; n < w.num_streams; n++) {
		int fds[2];

		must(!socketpair(AF_UNIX, SOCK_STREAM, 0, fds), "sockets");
		must(!ha_ibgda_receive_open(w.b, fds[1], &w.streams[n].receives) &&
			 !ha_ibgda_put_open(w.a, fds[0], &w.streams[n].puts),
		     "a stream");
	}
}

static void wait_until_at(unsigned int nic)
{
	const uint64_t until_ns = now_ns() + LONGEST_S * 1000 * MS;

	for (unsigned int n = 0; n < w.num_streams;) {
		const struct ha_ibgda_status status = status_of(n);

		if (status.nic == nic &&
		    (status.state == HA_IBGDA_STATE_HOME || status.state == HA_IBGDA_STATE_AWAY))
			n++;
		else if (now_ns() > until_ns)
			die("a stream does not come to its NIC", n);
		else
			usleep(500);
	}
}

/* So that doorbells have their pages before threads run. */
static void warm_up(void)
{
	wait_until_at(0);
	for (unsigned int move = 1; move <= WARM_MOVES; move++) {
		for (unsigned int n = 0; n < w.num_streams; n++)
			must(!ha_ibgda_end_move(w.streams[n].puts, move % 2), "a move");
		wait_until_at(move % 2);
	}
}

static void open_all(unsigned int bytes, unsigned int window, bool signals, uint64_t count)
{
	const unsigned int num_threads = w.num_streams * w.threads_each;
	const size_t slots = (size_t)KERNEL_SLOTS * bytes, all = slots * num_threads;
	uint8_t *own, *peers;

	make_pool();
	own = allocate(NULL, PAGE, all);
	peers = allocate(NULL, PAGE, all);
	w.job = allocate(NULL, PAGE, sizeof(*w.job));
	w.seen = calloc(num_threads, sizeof(*w.seen));
	must(own && peers && w.job && w.seen, "memory");
	*w.job = (struct kernel_job){
	    .threads = allocate(NULL, PAGE, num_threads * sizeof(*w.job->threads)),
	    .num_threads = num_threads,
	    .own_region = OWN,
	    .peer_region = PEERS,
	    .bytes = bytes,
	    .window = window,
	    .signals = signals,
	    .count = count};
	must(w.job->threads != NULL, "memory");
	w.a = open_context("=sim0,sim1");
	w.b = open_context("=sim2,sim3");
	must(!ha_ibgda_register(w.a, OWN, own, all) && !ha_ibgda_register(w.b, PEERS, peers, all),
	     "regions");
	open_streams();
	for (unsigned int n = 0; n < num_threads; n++)
		w.job->threads[n] = (struct kernel_thread){
		    .from = (uintptr_t)own + n * slots,
		    .to = (uintptr_t)peers + n * slots,
		    .id = n / w.num_streams,
		    .stream = ha_ibgda_end_stream(w.streams[n % w.num_streams].puts)};
	warm_up();
}

static void close_all(void)
{
	unmap_pages();
	for (unsigned int n = 0; n < w.num_streams; n++) {
		ha_ibgda_end_close(w.streams[n].puts);
		ha_ibgda_end_close(w.streams[n].receives);
	}
	must(!ha_ibgda_context_close(w.a) && !ha_ibgda_context_close(w.b), "an end of it");
}

/* ---- the receiver ------------------------------------------------------------------------ */

/* Who sees a signal has its put; a later one may have come to its place. */
static void look_at(unsigned int n)
{
	const struct kernel_thread *thread = &w.job->threads[n];
	const uint64_t *signals = ha_ibgda_end_signals(w.streams[n % w.num_streams].receives);
	const uint64_t value = __atomic_load_n(&signals[thread->id], __ATOMIC_ACQUIRE);
	const uint64_t *first =
	    (const uint64_t *)(uintptr_t)(thread->to + value % KERNEL_SLOTS * w.job->bytes);
	const uint64_t *last = first + w.job->bytes / 8 - 1;
	const uint64_t words[2] = {__atomic_load_n(first, __ATOMIC_ACQUIRE),
				   __atomic_load_n(last, __ATOMIC_ACQUIRE)};

	w.wrong += value < w.seen[n];
	for (unsigned int end = 0; end < 2 && value; end++)
		w.wrong += words[end] < value || words[end] % KERNEL_SLOTS != value % KERNEL_SLOTS;
	w.seen[n] = value;
}

static uint64_t look_at_all(void)
{
	uint64_t sum = 0;

	for (unsigned int n = 0; n < w.job->num_threads; n++) {
		look_at(n);
		sum += w.seen[n];
	}
	return sum;
}

static uint64_t seen_of_stream(unsigned int n)
{
	uint64_t sum = 0;

	for (unsigned int t = n; t < w.job->num_threads; t += w.num_streams) {
		look_at(t);
		sum += w.seen[t];
	}
	return sum;
}

/* Every put is there, the last of each slot, and every signal was counted once. */
static uint64_t judge(void)
{
	uint64_t posted = 0, sum = 0;
	const uint64_t until_ns = now_ns() + LONGEST_S * 1000 * MS;

	for (unsigned int n = 0; n < w.job->num_threads; n++) {
		posted += w.job->threads[n].posted;
		if (w.job->threads[n].over)
			die("a thread's stream was over", n);
	}
	while (w.job->signals && (sum = look_at_all()) < posted && now_ns() < until_ns)
		usleep(1000);
	w.wrong += w.job->signals && sum != posted;
	for (unsigned int n = 0; n < w.job->num_threads; n++) {
		const struct kernel_thread *thread = &w.job->threads[n];

		w.wrong += memcmp((const void *)(uintptr_t)thread->from,
				  (const void *)(uintptr_t)thread->to,
				  (size_t)KERNEL_SLOTS * w.job->bytes) != 0;
	}
	return posted;
}

/* ---- cuts -------------------------------------------------------------------------------- */

static void apply(enum kind kind, unsigned int rail, bool heals)
{
	if (kind == SWITCH)
		must(!fabric_tool("cut %s %u%s", fabric_name(), rail, heals ? " --heal" : ""),
		     "cut");
	else
		must(!fabric_tool("link %s 0 %u %s", fabric_name(), kind == PORT ? rail : rail + 2,
				  heals ? "up" : "down"),
		     "link");
}

/* From the order, so with what the tool takes to carry it out, to the first signal that came when
 * it had. */
static void measure(enum kind kind, uint64_t then_ns)
{
	uint64_t seen[KERNEL_STREAMS];
	bool waits[KERNEL_STREAMS];
	unsigned int left = w.num_streams;

	for (unsigned int n = 0; n < w.num_streams; n++) {
		seen[n] = seen_of_stream(n);
		waits[n] = true;
	}
	while (left) {
		for (unsigned int n = 0; n < w.num_streams; n++) {
			if (!waits[n] || seen_of_stream(n) == seen[n])
				continue;
			waits[n] = false;
			left--;
			if (w.pauses[kind].count < PAUSES_MOST)
				w.pauses[kind].ns[w.pauses[kind].count++] = now_ns() - then_ns;
		}
		if (now_ns() - then_ns > LONGEST_S * 1000 * MS)
			die("nothing arrives any more of so many streams", left);
		usleep(20);
	}
}

static void cut(unsigned int number)
{
	const unsigned int rail = number % 2;
	const enum kind kind = number / 2 % KINDS;
	const uint64_t then_ns = now_ns();

	apply(kind, rail, false);
	measure(kind, then_ns);
	wait_until_at(1 - rail);
	apply(kind, rail, true);
	usleep(GAP_MS * 1000);
}

static int by_size(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static void show_pauses(void)
{
	for (unsigned int kind = 0; kind < KINDS; kind++) {
		uint64_t *ns = w.pauses[kind].ns;
		const unsigned int count = w.pauses[kind].count;

		if (!count)
			continue;
		qsort(ns, count, sizeof(*ns), by_size);
		printf(", \"%s\": {\"n\": %u, \"p50_ms\": %.3f, \"p99_ms\": %.3f, \"longest_ms\": "
		       "%.3f}",
		       kind_names[kind], count, (double)ns[count / 2] / 1e6,
		       (double)ns[(uint64_t)count * 99 / 100] / 1e6, (double)ns[count - 1] / 1e6);
	}
}

/* ---- both ways --------------------------------------------------------------------------- */

static void show_common(const char *where, uint64_t posted, double seconds)
{
	uint64_t failovers = 0;

	for (unsigned int n = 0; n < w.num_streams; n++)
		failovers += status_of(n).failovers;
	printf("{\"on\": \"%s\", \"backup\": %d, \"streams\": %u, \"threads\": %u, \"posted\": "
	       "%llu, \"wrong\": %lu, "
	       "\"failovers\": %llu, \"late_doorbells\": %u, \"late_longest_ms\": %.3f, "
	       "\"seconds\": %.3f",
	       where, kernel_has_backup, w.num_streams, w.job->num_threads,
	       (unsigned long long)posted, w.wrong, (unsigned long long)failovers, w.late_pages,
	       (double)w.late_ns / 1e6, seconds);
}

static void start(void)
{
	__atomic_store_n(&w.runs, true, __ATOMIC_RELEASE);
	must(!kernel_start(w.job), "threads");
}

static void join(void)
{
	must(!kernel_join(w.job), "threads do not end well");
	w.runs = false;
}

static void post(const char *where, const unsigned long *words)
{
	uint64_t longest_ns = 1, posted;

	w.num_streams = (unsigned int)words[3];
	w.threads_each = (unsigned int)words[4];
	open_all((unsigned int)words[0], (unsigned int)words[1], words[2] != 0, words[5]);
	start();
	join();
	posted = judge();
	for (unsigned int n = 0; n < w.job->num_threads; n++)
		if (w.job->threads[n].ns > longest_ns)
			longest_ns = w.job->threads[n].ns;
	show_common(where, posted, (double)longest_ns / 1e9);
	printf(", \"ns\": %.1f, \"per_s\": %.0f, \"gb_per_s\": %.4f}\n",
	       (double)longest_ns / (double)w.job->count, (double)posted * 1e9 / (double)longest_ns,
	       (double)posted * w.job->bytes / (double)longest_ns);
}

static void cuts(const char *where, const unsigned long *words)
{
	const uint64_t began_ns = now_ns();
	unsigned int number = 0;

	w.num_streams = (unsigned int)words[0];
	w.threads_each = (unsigned int)words[1];
	for (unsigned int kind = 0; kind < KINDS; kind++) {
		w.pauses[kind].ns = calloc(PAUSES_MOST, sizeof(uint64_t));
		must(w.pauses[kind].ns != NULL, "memory");
	}
	open_all(8, KERNEL_SLOTS / 2, true, 0);
	start();
	while (number < words[2])
		cut(number++);
	while (look_at_all() < words[3])
		usleep(1000);
	__atomic_store_n(&w.job->stops, 1, __ATOMIC_RELEASE);
	join();
	show_common(where, judge(), (double)(now_ns() - began_ns) / 1e9);
	printf(", \"cuts\": %u", number);
	show_pauses();
	printf("}\n");
}

int main(int argc, char **argv)
{
	const bool cut_them = argc == 6 && !strcmp(argv[1], "cuts");
	unsigned long words[6] = {0};
	const char *where;

	if (!cut_them && (argc != 8 || strcmp(argv[1], "post"))) {
		fprintf(stderr,
			"usage: bench_streams post BYTES WINDOW SIGNALS STREAMS THREADS COUNT\n"
			"       bench_streams cuts STREAMS THREADS CUTS SIGNALS\n");
		return 2;
	}
	for (int n = 2; n < argc; n++)
		words[n - 2] = strtoul(argv[n], NULL, 10);
	fabric_up("--hosts 1 --rails 4");
	alarm(getenv("BENCH_STREAMS_S") ? (unsigned int)atoi(getenv("BENCH_STREAMS_S")) : 110);
	setenv("SIMVERBS_FABRIC", fabric_name(), 1);
	setenv("SIMVERBS_HOST", "0", 1);
	setenv("HA_NCCL_QP_TIMEOUT", "8", 0);
	setenv("HA_NCCL_QP_RETRY_CNT", "3", 0);
	/* simverbs' own: who looks for that library finds it loaded. */
	must(dlopen(getenv("SIMVERBS_MLX5") ? getenv("SIMVERBS_MLX5") : SIMVERBS_MLX5, RTLD_NOW),
	     dlerror());
	where = kernel_open();
	must(where != NULL, "there is nowhere to run");
	if (cut_them)
		cuts(where, words);
	else
		post(where, words);
	close_all();
	return w.wrong != 0;
}
