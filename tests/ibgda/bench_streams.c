/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads of a GPU (or of the host, kernels.h) post on streams of libnccl-ha-ibgda (rig.h): what a
 * post costs, what a cut does to threads that never end by themselves, and when they end. The
 * result is a line of JSON. Status 0: all is right; 1: a byte or a sum was wrong, or something did
 * not come in time; 2: usage.
 */
#include "rig.h"

#include "../fabric/pair.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PAUSES_MOST 200000u
#define ROUNDS_MOST 1000u
#define GAP_MS	    10u /* between two cuts: the next queue pair is made */
#define LONGEST_S   20u

static struct {
	uint64_t *ns;
	unsigned int count;
} pauses[RIG_CUTS]; /* of every stream at every cut */

/* ---- figures ----------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/* Sorts them. */
static double of_hundred(double *values, size_t count, size_t part)
{
	qsort(values, count, sizeof(*values), by_size);
	return values[count * part / 100];
}

static double *doubles(size_t count)
{
	double *values = calloc(count ? count : 1, sizeof(*values));

	must(values != NULL, "memory");
	return values;
}

static void show_common(const char *mode, bool has_backup, uint64_t posted, double seconds)
{
	printf(
	    "{\"mode\": \"%s\", \"on\": \"%s\", \"backup\": %d, \"streams\": %u, \"threads\": %u, "
	    "\"posted\": %llu, \"wrong\": %lu, \"failovers\": %llu, \"late_doorbells\": %u, "
	    "\"late_longest_ms\": %.3f, \"seconds\": %.3f",
	    mode, rig.where, has_backup, rig.plan.streams, rig.job->num_threads,
	    (unsigned long long)posted, rig.wrong, (unsigned long long)rig_failovers(),
	    rig.late_doorbells, (double)rig.late_ns / 1e6, seconds);
}

static double since_s(uint64_t then_ns)
{
	return (double)(now_ns() - then_ns) / 1e9;
}

static uint64_t longest_s_from_now(void)
{
	return now_ns() + LONGEST_S * 1000 * MS;
}

/* ---- puts of which there are so many ----------------------------------------------------- */

static void plan_posts(const unsigned long *words, bool has_no_gate)
{
	rig_open(&(struct rig_plan){.bytes = (uint32_t)words[0],
				    .window = (uint32_t)words[1],
				    .signals = words[2] != 0,
				    .streams = (uint32_t)words[3],
				    .threads_each = (uint32_t)words[4],
				    .has_no_gate = has_no_gate,
				    .count = words[5]});
}

/* One kernel: how long its slowest thread took. */
static double run_once(enum kernel_kind kind)
{
	uint64_t longest_ns = 1;

	rig_start(kind);
	rig_join();
	for (unsigned int n = 0; n < rig.job->num_threads; n++)
		if (rig.job->threads[n].ns > longest_ns)
			longest_ns = rig.job->threads[n].ns;
	return (double)longest_ns;
}

static void post(const unsigned long *words)
{
	double ns, posted;

	plan_posts(words, !HA_IBGDA_BACKUP);
	ns = run_once(HA_IBGDA_BACKUP ? KERNEL_WITH : KERNEL_WITHOUT);
	posted = (double)rig_judge();
	show_common("post", HA_IBGDA_BACKUP, (uint64_t)posted, ns / 1e9);
	printf(", \"ns\": %.1f, \"per_s\": %.0f, \"gb_per_s\": %.4f}\n",
	       ns / (double)rig.plan.count, posted * 1e9 / ns, posted * rig.plan.bytes / ns);
}

/* ---- with a backup and without, in turn -------------------------------------------------- */

static void ask_for_samples(void)
{
	for (unsigned int n = 0; n < rig.job->num_threads; n++) {
		rig.job->threads[n].samples =
		    kernel_memory(rig.plan.count * sizeof(*rig.job->threads[n].samples));
		must(rig.job->threads[n].samples != NULL, "memory of samples");
	}
}

/* Of all threads, in ns, to `to`: of puts alone (0), or with their waits (1). */
static size_t take_samples(unsigned int which, double *to)
{
	const size_t bytes = rig.plan.count * sizeof(*rig.job->threads->samples);
	uint32_t(*samples)[KERNEL_SAMPLES] = malloc(bytes);
	size_t count = 0;

	must(samples != NULL, "memory");
	for (unsigned int n = 0; n < rig.job->num_threads; n++) {
		const struct kernel_thread *thread = &rig.job->threads[n];
		const double ns_of_cycle = (double)thread->ns / (double)thread->cycles;

		must(!kernel_copy(samples, thread->samples, bytes), "a copy");
		for (uint64_t each = 0; each < rig.plan.count; each++)
			to[count++] = samples[each][which] * ns_of_cycle;
	}
	free(samples);
	return count;
}

/* What was taken of one round, of either kind: of all; of a put and its wait; of a put. */
enum figure { OF_ALL, MEDIAN, LATE, POST, FIGURES };
static const char *const figure_names[FIGURES] = {"ns", "p50_ns", "p99_ns", "post_p50_ns"};

struct figures {
	double ns[FIGURES];
};

static struct figures measure(enum kernel_kind kind, double *samples)
{
	struct figures figures = {.ns = {run_once(kind)}};

	if (rig.plan.window == 1) {
		size_t count = take_samples(1, samples);

		figures.ns[MEDIAN] = of_hundred(samples, count, 50);
		figures.ns[LATE] = of_hundred(samples, count, 99);
		count = take_samples(0, samples);
		figures.ns[POST] = of_hundred(samples, count, 50);
	}
	return figures;
}

static void show_both(enum figure figure, const struct figures *off, const struct figures *on,
		      unsigned int rounds)
{
	double *values[3] = {doubles(rounds), doubles(rounds), doubles(rounds)};

	for (unsigned int n = 0; n < rounds; n++) {
		values[0][n] = off[n].ns[figure];
		values[1][n] = on[n].ns[figure];
		values[2][n] = values[1][n] / values[0][n];
	}
	printf(", \"%s\": {\"off\": %.1f, \"on\": %.1f, \"ratio\": %.4f, \"ratio_p25\": %.4f, "
	       "\"ratio_p75\": %.4f}",
	       figure_names[figure], of_hundred(values[0], rounds, 50),
	       of_hundred(values[1], rounds, 50), of_hundred(values[2], rounds, 50),
	       of_hundred(values[2], rounds, 25), of_hundred(values[2], rounds, 75));
	for (unsigned int n = 0; n < 3; n++)
		free(values[n]);
}

/* Times of rounds, each of which has both kinds in it, the first of them in turn: ratios are of
 * times. */
static void paired(const unsigned long *words)
{
	static struct figures off[ROUNDS_MOST], on[ROUNDS_MOST];
	const unsigned int rounds = (unsigned int)words[6];
	const uint64_t began_ns = now_ns();
	double *samples, puts;
	uint64_t posted;

	must(rounds > 0 && rounds <= ROUNDS_MOST, "1 to 1000 rounds");
	plan_posts(words, true);
	if (rig.plan.window == 1)
		ask_for_samples();
	samples = doubles(rig.plan.count * rig.job->num_threads);
	(void)measure(KERNEL_WITH, samples); /* the first of each is slow */
	(void)measure(KERNEL_WITHOUT, samples);
	for (unsigned int n = 0; n < rounds; n++) {
		if (n % 2)
			on[n] = measure(KERNEL_WITH, samples);
		off[n] = measure(KERNEL_WITHOUT, samples);
		if (n % 2 == 0)
			on[n] = measure(KERNEL_WITH, samples);
	}
	free(samples);
	posted = rig_judge();
	puts = (double)rig.plan.count * rig.job->num_threads;
	show_common("paired", true, posted, since_s(began_ns));
	printf(", \"bytes\": %u, \"window\": %u, \"rounds\": %u, \"puts_of_a_round\": %.0f",
	       rig.plan.bytes, rig.plan.window, rounds, puts);
	for (enum figure figure = OF_ALL; figure < (rig.plan.window == 1 ? FIGURES : MEDIAN);
	     figure++)
		show_both(figure, off, on, rounds);
	printf("}\n");
}

/* ---- cuts -------------------------------------------------------------------------------- */

/* From the order, so with what the tool takes to carry it out, to the first signal that came when
 * it had. */
static void time_first_payload(enum rig_cut kind, uint64_t then_ns)
{
	uint64_t seen[KERNEL_STREAMS];
	bool waits[KERNEL_STREAMS];
	unsigned int left = rig.plan.streams;

	for (unsigned int n = 0; n < rig.plan.streams; n++) {
		seen[n] = rig_look_at(n);
		waits[n] = true;
	}
	while (left) {
		for (unsigned int n = 0; n < rig.plan.streams; n++) {
			if (!waits[n] || rig_look_at(n) == seen[n])
				continue;
			waits[n] = false;
			left--;
			if (pauses[kind].count < PAUSES_MOST)
				pauses[kind].ns[pauses[kind].count++] = now_ns() - then_ns;
		}
		if (now_ns() - then_ns > LONGEST_S * 1000 * MS)
			die("nothing arrives any more of so many streams", left);
		usleep(20);
	}
}

static void cut(unsigned int number)
{
	const unsigned int rail = number % 2;
	const enum rig_cut kind = number / 2 % RIG_CUTS;
	const uint64_t then_ns = now_ns();

	rig_cut(kind, rail);
	time_first_payload(kind, then_ns);
	rig_wait_until_at(1 - rail);
	rig_heal(kind, rail);
	usleep(GAP_MS * 1000);
}

static void show_pauses(void)
{
	for (unsigned int kind = 0; kind < RIG_CUTS; kind++) {
		const unsigned int count = pauses[kind].count;
		double *ms = doubles(count);

		for (unsigned int n = 0; n < count; n++)
			ms[n] = (double)pauses[kind].ns[n] / 1e6;
		if (count)
			printf(", \"%s\": {\"n\": %u, \"p50_ms\": %.3f, \"p99_ms\": %.3f, "
			       "\"longest_ms\": %.3f}",
			       rig_cut_names[kind], count, of_hundred(ms, count, 50),
			       of_hundred(ms, count, 99), ms[count - 1]);
		free(ms);
	}
}

/* What threads have seen that watch. */
static uint64_t looks(void)
{
	uint64_t sum = 0;

	for (unsigned int n = 0; n < rig.job->num_watches; n++)
		sum += __atomic_load_n(&rig.job->watches[n].looks, __ATOMIC_ACQUIRE);
	return sum;
}

/* ... and that each has come to the last value. While nobody posts. */
static void judge_watches(void)
{
	const uint64_t until_ns = longest_s_from_now();

	for (unsigned int n = 0; n < rig.job->num_watches;) {
		const struct kernel_watch *watch = &rig.job->watches[n];

		if (__atomic_load_n(&watch->seen, __ATOMIC_ACQUIRE) == rig.job->threads[n].posted)
			rig.wrong += watch->wrong, n++;
		else if (now_ns() > until_ns)
			die("who watches does not see the last signal", n);
		else
			usleep(1000);
	}
}

/* Threads that post until they are stopped end, and all is right: how many were posted. */
static uint64_t end_well(void)
{
	rig_stop();
	if (rig_wait(longest_s_from_now()) < rig.job->num_threads)
		die("a thread does not end", 0);
	judge_watches();
	rig_join();
	return rig_judge();
}

static void cuts(const unsigned long *words)
{
	const uint64_t began_ns = now_ns();
	unsigned int number = 0;
	uint64_t posted;

	for (unsigned int kind = 0; kind < RIG_CUTS; kind++) {
		pauses[kind].ns = calloc(PAUSES_MOST, sizeof(uint64_t));
		must(pauses[kind].ns != NULL, "memory");
	}
	rig_open(&(struct rig_plan){.streams = (uint32_t)words[0],
				    .threads_each = (uint32_t)words[1],
				    .bytes = 8,
				    .window = KERNEL_SLOTS / 2,
				    .signals = true,
				    .watched = words[4] != 0});
	rig_start(HA_IBGDA_BACKUP ? KERNEL_WITH : KERNEL_WITHOUT);
	while (number < words[2])
		cut(number++);
	while (rig_look() < words[3])
		usleep(1000);
	posted = end_well();
	show_common("cuts", HA_IBGDA_BACKUP, posted, since_s(began_ns));
	printf(", \"cuts\": %u, \"watched\": %llu", number, (unsigned long long)looks());
	show_pauses();
	printf("}\n");
}

/* ---- the put, then its signal, as a thread sees them that spins there -------------------- */

static void order(const unsigned long *words)
{
	const uint64_t began_ns = now_ns();
	uint64_t posted, until_ns, seen;

	rig_open(&(struct rig_plan){.in_memory_of_threads = words[0] != 0,
				    .streams = (uint32_t)words[1],
				    .threads_each = (uint32_t)words[2],
				    .bytes = (uint32_t)words[3],
				    .window = 1,
				    .signals = true,
				    .watched = true});
	rig_start(KERNEL_WITH);
	until_ns = now_ns() + words[5] * 1000 * MS;
	while (looks() < words[4] && now_ns() < until_ns)
		usleep(1000);
	posted = end_well();
	seen = looks();
	show_common("order", true, posted, since_s(began_ns));
	printf(", \"memory\": \"%s\", \"bytes\": %u, \"watched\": %llu, \"is_complete\": %s}\n",
	       words[0] ? "threads" : "host", rig.plan.bytes, (unsigned long long)seen,
	       seen >= words[4] ? "true" : "false");
}

/* ---- a thread that sleeps between two stores --------------------------------------------- */

static const char *const steps[] = {"reserve",	 "opened", "write",  "turn", "number", "publish",
				    "published", "ring",   "locked", "prod", "record", "doorbell",
				    "unlock",	 "gate",   "entry",  "poll"};
#define STEPS (sizeof(steps) / sizeof(steps[0]))

static bool wait_for_word(const uint64_t *word, uint64_t value)
{
	const uint64_t until_ns = longest_s_from_now();

	while (__atomic_load_n(word, __ATOMIC_ACQUIRE) != value) {
		if (now_ns() > until_ns)
			return false;
		usleep(100);
	}
	return true;
}

/* Its own signals and those of its stream come again. */
static void wait_for_more(void)
{
	const uint64_t before = __atomic_load_n(rig.job->watches[0].signal, __ATOMIC_ACQUIRE);
	const uint64_t until_ns = longest_s_from_now();

	while (__atomic_load_n(rig.job->watches[0].signal, __ATOMIC_ACQUIRE) <
	       before + 2 * KERNEL_SLOTS) {
		if (now_ns() > until_ns)
			die("a thread that slept posts nothing any more", 0);
		usleep(200);
	}
	(void)rig_look();
}

/* How many generations of its stream began meanwhile. */
static uint64_t hold_at(const char *step, unsigned int generations)
{
	const uint64_t code = kernel_step_named(step), failovers = rig_status(0).failovers;

	__atomic_store_n(&rig.job->hold, code, __ATOMIC_RELEASE);
	if (!wait_for_word(&rig.job->held, code)) {
		fprintf(stderr, "rig: step %s\n", step);
		die("a thread does not come to a step", 0);
	}
	for (unsigned int n = 0; n < generations; n++) {
		const unsigned int rail = rig_status(0).nic;

		rig_cut(RIG_PORT, rail);
		rig_wait_until_at(1 - rail);
		rig_heal(RIG_PORT, rail);
		usleep(GAP_MS * 1000);
	}
	must(__atomic_load_n(&rig.job->held, __ATOMIC_ACQUIRE) == code,
	     "it was not held all the time");
	__atomic_store_n(&rig.job->hold, 0, __ATOMIC_RELEASE);
	must(wait_for_word(&rig.job->held, 0), "a thread does not wake up");
	wait_for_more();
	return rig_status(0).failovers - failovers;
}

static void late(const unsigned long *words)
{
	const uint64_t began_ns = now_ns();
	uint64_t posted, least = UINT64_MAX;

	rig_open(&(struct rig_plan){.streams = (uint32_t)words[0],
				    .threads_each = (uint32_t)words[1],
				    .bytes = 8,
				    .window = KERNEL_SLOTS / 2,
				    .signals = true});
	rig_start(KERNEL_HELD);
	for (unsigned int n = 0; n < STEPS; n++) {
		const uint64_t generations = hold_at(steps[n], (unsigned int)words[2]);

		least = generations < least ? generations : least;
	}
	posted = end_well();
	show_common("late", true, posted, since_s(began_ns));
	printf(", \"steps\": %zu, \"generations_least\": %llu}\n", STEPS,
	       (unsigned long long)least);
}

/* ---- no path, and an end ----------------------------------------------------------------- */

#define NO_PATH "there was no path for too long"
#define ABORTED "its program has ended it"

static uint64_t wait_for_reason(const char *reason)
{
	const uint64_t until_ns = longest_s_from_now();

	for (unsigned int n = 0; n < rig.plan.streams;) {
		const struct ha_ibgda_status status = rig_status(n);

		if (status.reason && strcmp(status.reason, reason))
			die(status.reason, n);
		if (status.reason)
			n++;
		else if (now_ns() > until_ns)
			die("a stream is not over", n);
		else
			usleep(100);
	}
	return now_ns();
}

/* Without any path, or as the program ends them, all threads return. */
static void over(const unsigned long *words)
{
	const bool aborts = words[2] == 0;
	uint64_t then_ns, latched_ns, returned_ns, posted = 0;

	rig_open(&(struct rig_plan){.streams = (uint32_t)words[0],
				    .threads_each = (uint32_t)words[1],
				    .outage_ms = (uint32_t)words[2],
				    .bytes = 8,
				    .window = KERNEL_SLOTS / 2,
				    .signals = true});
	rig_start(KERNEL_WITH);
	while (rig_look() < 2 * rig.job->num_threads * KERNEL_SLOTS)
		usleep(1000);
	if (!aborts)
		rig_cut(RIG_PORT, 0);
	if (!aborts)
		rig_wait_until_at(1);
	then_ns = now_ns(); /* the last path goes: no sooner than that */
	if (!aborts)
		rig_cut(RIG_PORT, 1);
	for (unsigned int n = 0; aborts && n < rig.plan.streams; n++)
		rig_abort(n);
	latched_ns = aborts ? then_ns : wait_for_reason(NO_PATH);
	if (rig_wait(longest_s_from_now()) < rig.job->num_threads)
		die("a thread does not return", 0);
	returned_ns = now_ns();
	(void)wait_for_reason(aborts ? ABORTED : NO_PATH);
	rig_join();
	for (unsigned int n = 0; n < rig.job->num_threads; n++) {
		posted += rig.job->threads[n].posted;
		rig.wrong += rig.job->threads[n].over != 1;
	}
	/* What a thread was told nothing of may have come. */
	rig.wrong += rig_look() > posted + rig.job->num_threads;
	show_common("over", true, posted, since_s(then_ns));
	printf(", \"outage_ms\": %lu, \"latched_ms\": %.3f, \"returned_ms\": %.3f}\n", words[2],
	       (double)(latched_ns - then_ns) / 1e6, (double)(returned_ns - latched_ns) / 1e6);
}

/* ------------------------------------------------------------------------------------------ */

#define WORDS_MOST 7u

static const struct mode {
	const char *name, *words, *what;
	void (*run)(const unsigned long *words);
	int least, most;
} modes[] = {
    {"post", "BYTES WINDOW SIGNALS STREAMS THREADS COUNT", "each thread posts so many", post, 6, 6},
    {"paired", "BYTES WINDOW SIGNALS STREAMS THREADS COUNT ROUNDS",
     "that with a backup and without, in turn", paired, 7, 7},
    {"cuts", "STREAMS THREADS CUTS SIGNALS [WATCHED]",
     "until so many cuts and signals are over; threads spin at signals, too", cuts, 4, 5},
    {"order", "OF_GPU STREAMS THREADS BYTES LOOKS SECONDS",
     "threads that spin see so many signals, each with its put; in a GPU's own memory", order, 6,
     6},
    {"late", "STREAMS THREADS GENERATIONS", "a thread sleeps at each of its steps", late, 3, 3},
    {"over", "STREAMS THREADS OUTAGE_MS", "no path is left; 0: the program ends streams", over, 3,
     3},
};
#define MODES (sizeof(modes) / sizeof(modes[0]))

static int usage(void)
{
	for (unsigned int n = 0; n < MODES; n++)
		fprintf(stderr, "%s bench_streams %s %s\n           %s\n",
			n ? "      " : "usage:", modes[n].name, modes[n].words, modes[n].what);
	return 2;
}

static const struct mode *mode_of(int argc, char **argv)
{
	for (unsigned int n = 0; argc > 1 && n < MODES; n++)
		if (!strcmp(argv[1], modes[n].name) && argc - 2 >= modes[n].least &&
		    argc - 2 <= modes[n].most)
			return &modes[n];
	return NULL;
}

int main(int argc, char **argv)
{
	const struct mode *mode = mode_of(argc, argv);
	unsigned long words[WORDS_MOST] = {0};

	if (!mode)
		return usage();
	for (int n = 2; n < argc; n++)
		words[n - 2] = strtoul(argv[n], NULL, 10);
	rig_begin(mode->run == order && words[0]);
	mode->run(words);
	rig_close();
	return rig.wrong != 0;
}
