/* SPDX-License-Identifier: Apache-2.0 */
/* Errands and their threads: see errand.h. */
#include "progress/errand.h"

#include "base/thread.h"
#include "progress/progress.h"

#include <pthread.h>
#include <stdlib.h>

/* As many addresses may be without an answer before errands wait for each other. */
#define MAX_THREADS 4

struct ha_errands {
	struct ha_progress *progress;
	bool threads;

	/* Protects the rest. */
	pthread_mutex_t lock;
	pthread_cond_t sent; /* or told to stop */
	pthread_cond_t came_back;
	struct ha_list waiting;
	struct ha_errand *running[MAX_THREADS]; /* by thread; NULL: none */
	bool disowned[MAX_THREADS];		/* likewise */
	pthread_t thread[MAX_THREADS];
	unsigned nthreads, nrunning;
	bool stop;
};

/* ---- running --------------------------------------------------------------------------------- */

static bool key_runs(const struct ha_errands *errands, uint64_t key)
{
	for (unsigned i = 0; i < MAX_THREADS; i++)
		if (errands->running[i] && errands->running[i]->key == key)
			return true;
	return false;
}

/* The first that may run now, or NULL. */
static struct ha_errand *next_errand(struct ha_errands *errands)
{
	struct ha_list *pos;

	ha_list_for_each (pos, &errands->waiting) {
		struct ha_errand *errand = ha_container_of(pos, struct ha_errand, link);

		if (!key_runs(errands, errand->key))
			return errand;
	}
	return NULL;
}

static void finished(struct ha_errands *errands, unsigned i)
{
	struct ha_errand *errand = errands->running[i];
	bool disowned = errands->disowned[i];

	errands->running[i] = NULL;
	errands->disowned[i] = false;
	errands->nrunning--;
	if (!disowned) {
		/* Its owner may take it away as soon as it is done, but waits for the lock to go.
		 */
		struct ha_poller *owner = errand->owner;

		atomic_store_explicit(&errand->state, HA_ERRAND_DONE, memory_order_release);
		ha_progress_call(errands->progress, owner);
	}
	/* Another one of its key may wait. */
	pthread_cond_broadcast(&errands->sent);
	pthread_cond_broadcast(&errands->came_back);
	if (disowned) {
		pthread_mutex_unlock(&errands->lock);
		errand->orphaned(errand);
		pthread_mutex_lock(&errands->lock);
	}
}

/* With the lock, which is let go meanwhile. */
static void run_one(struct ha_errands *errands, struct ha_errand *errand, unsigned i)
{
	ha_list_remove(&errand->link);
	atomic_store(&errand->state, HA_ERRAND_RUNNING);
	errands->running[i] = errand;
	errands->nrunning++;
	pthread_mutex_unlock(&errands->lock);
	errand->run(errand);
	pthread_mutex_lock(&errands->lock);
	finished(errands, i);
}

struct start {
	struct ha_errands *errands;
	unsigned index;
};

static void *thread_main(void *arg)
{
	struct start start = *(struct start *)arg;
	struct ha_errands *errands = start.errands;

	free(arg);
	pthread_mutex_lock(&errands->lock);
	while (!errands->stop) {
		struct ha_errand *errand = next_errand(errands);

		if (!errand) {
			pthread_cond_wait(&errands->sent, &errands->lock);
			continue;
		}
		run_one(errands, errand, start.index);
	}
	pthread_mutex_unlock(&errands->lock);
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
			    start) == 0)
		errands->nthreads++;
	else
		free(start);
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
	atomic_store(&errand->state, HA_ERRAND_WAITING);
	ha_list_push_back(&errands->waiting, &errand->link);
	alone = errands->threads && !have_thread(errands);
	pthread_cond_signal(&errands->sent);
	pthread_mutex_unlock(&errands->lock);
	if (alone) /* no thread to be had: better late than never */
		(void)ha_errands_round(errands);
}

static int place_of(const struct ha_errands *errands, const struct ha_errand *errand)
{
	for (int i = 0; i < MAX_THREADS; i++)
		if (errands->running[i] == errand)
			return i;
	return -1;
}

/* With the lock. */
static void take_back(struct ha_errand *errand)
{
	if (atomic_load(&errand->state) != HA_ERRAND_WAITING)
		return;
	ha_list_remove(&errand->link);
	atomic_store(&errand->state, HA_ERRAND_IDLE);
}

void ha_errand_recall(struct ha_errands *errands, struct ha_errand *errand)
{
	if (atomic_load(&errand->state) == HA_ERRAND_IDLE)
		return;
	pthread_mutex_lock(&errands->lock);
	take_back(errand);
	while (place_of(errands, errand) >= 0)
		pthread_cond_wait(&errands->came_back, &errands->lock);
	pthread_mutex_unlock(&errands->lock);
}

bool ha_errand_disown(struct ha_errands *errands, struct ha_errand *errand)
{
	int i;

	pthread_mutex_lock(&errands->lock);
	take_back(errand);
	i = place_of(errands, errand);
	if (i >= 0)
		errands->disowned[i] = true;
	pthread_mutex_unlock(&errands->lock);
	return i < 0;
}

void ha_errands_settle(struct ha_errands *errands)
{
	pthread_mutex_lock(&errands->lock);
	while (errands->nrunning > 0)
		pthread_cond_wait(&errands->came_back, &errands->lock);
	pthread_mutex_unlock(&errands->lock);
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
	pthread_cond_init(&errands->sent, NULL);
	pthread_cond_init(&errands->came_back, NULL);
	ha_list_init(&errands->waiting);
	return errands;
}

void ha_errands_free(struct ha_errands *errands)
{
	if (!errands)
		return;
	pthread_mutex_lock(&errands->lock);
	errands->stop = true;
	pthread_cond_broadcast(&errands->sent);
	pthread_mutex_unlock(&errands->lock);
	for (unsigned i = 0; i < errands->nthreads; i++)
		pthread_join(errands->thread[i], NULL);
	pthread_cond_destroy(&errands->came_back);
	pthread_cond_destroy(&errands->sent);
	pthread_mutex_destroy(&errands->lock);
	free(errands);
}
