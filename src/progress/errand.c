/* SPDX-License-Identifier: Apache-2.0 */
/* Errands and their threads: see errand.h. */
#include "progress/errand.h"

#include "base/log.h"
#include "base/thread.h"
#include "progress/progress.h"

#include <pthread.h>
#include <stdlib.h>

/* As many addresses may be without an answer before errands wait for each other. */
#define MAX_THREADS 4

uint64_t ha_errand_patience_ns = HA_ERRAND_PATIENCE_NS;

/* What a thread is at. */
struct run {
	bool busy;
	struct ha_errand *errand; /* NULL while it frees itself */
	uint64_t key;
	uint64_t since_ns;
};

struct ha_errands {
	struct ha_progress *progress;
	bool threads;

	/* Protects the rest. */
	pthread_mutex_t lock;
	pthread_cond_t sent; /* or told to stop */
	pthread_cond_t came_back;
	struct ha_list waiting;
	struct run runs[MAX_THREADS]; /* by thread */
	uint64_t back;		      /* how many came back */
	pthread_t thread[MAX_THREADS];
	unsigned nthreads, nrunning;
	unsigned nalive; /* threads that have not ended */
	bool stop;
	/* Of an end that nobody waits for. */
	bool detached;
	void (*then)(void *arg);
	void *arg;
};

/* ---- running --------------------------------------------------------------------------------- */

static const struct run *run_of_key(const struct ha_errands *errands, uint64_t key)
{
	for (unsigned i = 0; i < MAX_THREADS; i++)
		if (errands->runs[i].busy && errands->runs[i].key == key)
			return &errands->runs[i];
	return NULL;
}

/* The first that may run now, or NULL. */
static struct ha_errand *next_errand(struct ha_errands *errands)
{
	struct ha_list *pos;

	ha_list_for_each (pos, &errands->waiting) {
		struct ha_errand *errand = ha_container_of(pos, struct ha_errand, link);

		if (!run_of_key(errands, errand->key))
			return errand;
	}
	return NULL;
}

/* With the lock. Its owner may take it away as soon as it is done, but waits for the lock to go. */
static void give_back(struct ha_errands *errands, struct ha_errand *errand)
{
	struct ha_poller *owner = errand->owner;

	atomic_store_explicit(&errand->state, HA_ERRAND_DONE, memory_order_release);
	ha_progress_call(errands->progress, owner);
}

/* With the lock, which is let go meanwhile. */
static void run_one(struct ha_errands *errands, struct ha_errand *errand, unsigned i)
{
	struct run *run = &errands->runs[i];

	ha_list_remove(&errand->link);
	atomic_store(&errand->state, HA_ERRAND_RUNNING);
	*run = (struct run){
	    .busy = true, .errand = errand, .key = errand->key, .since_ns = ha_real_ns()};
	errands->nrunning++;
	pthread_mutex_unlock(&errands->lock);
	errand->run(errand);
	pthread_mutex_lock(&errands->lock);
	run->errand = NULL;
	if (errand->left) {
		pthread_mutex_unlock(&errands->lock);
		errand->orphaned(errand);
		pthread_mutex_lock(&errands->lock);
	} else {
		give_back(errands, errand);
	}
	run->busy = false;
	errands->nrunning--;
	errands->back++;
	/* Another one of its key may wait. */
	pthread_cond_broadcast(&errands->sent);
	pthread_cond_broadcast(&errands->came_back);
}

struct start {
	struct ha_errands *errands;
	unsigned index;
};

static void destroy(struct ha_errands *errands)
{
	pthread_cond_destroy(&errands->came_back);
	pthread_cond_destroy(&errands->sent);
	pthread_mutex_destroy(&errands->lock);
	free(errands);
}

/* With the lock: until it is told to stop and everything has been run. */
static void run_all(struct ha_errands *errands, unsigned i)
{
	for (;;) {
		struct ha_errand *errand = next_errand(errands);

		if (errand)
			run_one(errands, errand, i);
		else if (errands->stop && ha_list_empty(&errands->waiting))
			return;
		else
			pthread_cond_wait(&errands->sent, &errands->lock);
	}
}

static void *thread_main(void *arg)
{
	struct start start = *(struct start *)arg;
	struct ha_errands *errands = start.errands;
	void (*then)(void *) = NULL;

	free(arg);
	ha_log_defer(true); /* paths are built here */
	pthread_mutex_lock(&errands->lock);
	run_all(errands, start.index);
	if (--errands->nalive == 0 && errands->detached) {
		then = errands->then;
		arg = errands->arg;
	}
	pthread_mutex_unlock(&errands->lock);
	if (then) { /* the last one, and nobody waits */
		destroy(errands);
		then(arg);
	}
	return NULL;
}

int ha_errands_round(struct ha_errands *errands)
{
	struct ha_errand *errand;
	int n = 0;

	pthread_mutex_lock(&errands->lock);
	for (; (errand = next_errand(errands)); n++)
		run_one(errands, errand, 0);
	pthread_mutex_unlock(&errands->lock);
	return n;
}

/* ---- threads --------------------------------------------------------------------------------- */

static void create_thread(struct ha_errands *errands)
{
	struct start *start = malloc(sizeof(*start));

	if (!start)
		return;
	*start = (struct start){.errands = errands, .index = errands->nthreads};
	if (ha_thread_start(&errands->thread[errands->nthreads], "nccl-ha-errand", thread_main,
			    start) == 0) {
		errands->nthreads++;
		errands->nalive++;
	} else {
		free(start);
	}
}

/* One more if all are out. With the lock. False: there is none at all. */
static bool have_thread(struct ha_errands *errands)
{
	if (errands->nrunning == errands->nthreads && errands->nthreads < MAX_THREADS)
		create_thread(errands); /* with fewer it takes longer */
	return errands->nthreads > 0;
}

/* ---- for the owners ------------------------------------------------------------------------- */

void ha_errand_send(struct ha_errands *errands, struct ha_errand *errand)
{
	bool alone;

	pthread_mutex_lock(&errands->lock);
	errand->left = false;
	atomic_store(&errand->state, HA_ERRAND_WAITING);
	ha_list_push_back(&errands->waiting, &errand->link);
	alone = errands->threads && !have_thread(errands);
	pthread_cond_signal(&errands->sent);
	pthread_mutex_unlock(&errands->lock);
	if (alone) /* no thread to be had: better late than never */
		(void)ha_errands_round(errands);
}

/* With the lock. */
static void take_back(struct ha_errand *errand)
{
	if (atomic_load(&errand->state) != HA_ERRAND_WAITING)
		return;
	ha_list_remove(&errand->link);
	atomic_store(&errand->state, HA_ERRAND_IDLE);
}

/* With the lock. Whether a thread has it. */
static bool is_out(const struct ha_errands *errands, const struct ha_errand *errand)
{
	for (int i = 0; i < MAX_THREADS; i++)
		if (errands->runs[i].errand == errand)
			return true;
	return false;
}

void ha_errand_recall(struct ha_errands *errands, struct ha_errand *errand)
{
	pthread_mutex_lock(&errands->lock);
	take_back(errand);
	pthread_mutex_unlock(&errands->lock);
}

/* With the lock: until something has come back, or until then. */
static void wait_until(struct ha_errands *errands, uint64_t until_ns)
{
	(void)ha_cond_wait_until(&errands->came_back, &errands->lock, until_ns);
}

static uint64_t later(uint64_t since_ns, uint64_t limit_ns)
{
	return limit_ns < UINT64_MAX - since_ns ? since_ns + limit_ns : UINT64_MAX;
}

bool ha_errand_wait(struct ha_errands *errands, struct ha_errand *errand, uint64_t limit_ns)
{
	uint64_t began_ns = ha_real_ns(), until_ns;
	bool back;

	if (!errands->threads)
		(void)ha_errands_round(errands);
	pthread_mutex_lock(&errands->lock);
	/* Also where the state says that it is done: whoever said so lets the lock go first. */
	while (!(back = !ha_errand_busy(errand))) {
		const struct run *run = run_of_key(errands, errand->key);

		until_ns = later(run ? run->since_ns : began_ns, limit_ns);
		if (ha_real_ns() >= until_ns)
			break;
		wait_until(errands, until_ns);
	}
	pthread_mutex_unlock(&errands->lock);
	return back;
}

void ha_errand_leave(struct ha_errands *errands, struct ha_errand *errand)
{
	pthread_mutex_lock(&errands->lock);
	errand->left = ha_errand_busy(errand);
	if (errand->left)
		errand = NULL;
	pthread_mutex_unlock(&errands->lock);
	if (errand)
		errand->orphaned(errand);
}

bool ha_errand_disown(struct ha_errands *errands, struct ha_errand *errand)
{
	bool out;

	pthread_mutex_lock(&errands->lock);
	take_back(errand);
	out = is_out(errands, errand);
	if (out)
		errand->left = true;
	pthread_mutex_unlock(&errands->lock);
	return !out;
}

/* ---- life ---------------------------------------------------------------------------------- */

struct ha_errands *ha_errands_new(struct ha_progress *progress, bool threads)
{
	struct ha_errands *errands = calloc(1, sizeof(*errands));

	if (!errands)
		return NULL;
	errands->progress = progress;
	errands->threads = threads;
	pthread_mutex_init(&errands->lock, NULL);
	ha_cond_init(&errands->sent);
	ha_cond_init(&errands->came_back);
	ha_list_init(&errands->waiting);
	return errands;
}

/* With the lock. False: it takes too long. */
static bool settle(struct ha_errands *errands)
{
	uint64_t until_ns = ha_real_ns() + ha_errand_patience_ns, back = errands->back;

	while (errands->nrunning > 0 || !ha_list_empty(&errands->waiting)) {
		if (back != errands->back) { /* they get on */
			back = errands->back;
			until_ns = ha_real_ns() + ha_errand_patience_ns;
		}
		if (ha_real_ns() >= until_ns)
			return false;
		wait_until(errands, until_ns);
	}
	return true;
}

bool ha_errands_end(struct ha_errands *errands, void (*then)(void *arg), void *arg)
{
	unsigned nthreads;
	bool settled;

	if (!errands) {
		then(arg);
		return true;
	}
	if (!errands->threads)
		(void)ha_errands_round(errands);
	pthread_mutex_lock(&errands->lock);
	settled = settle(errands);
	nthreads = errands->nthreads;
	errands->stop = true;
	errands->then = then;
	errands->arg = arg;
	errands->detached = !settled;
	for (unsigned i = 0; i < nthreads && !settled; i++)
		pthread_detach(errands->thread[i]);
	pthread_cond_broadcast(&errands->sent);
	pthread_mutex_unlock(&errands->lock);
	if (!settled) /* they are not ours any more */
		return false;
	for (unsigned i = 0; i < nthreads; i++)
		pthread_join(errands->thread[i], NULL);
	destroy(errands);
	then(arg);
	return true;
}
