/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The threads of a switch beside its first one. Each has groups of its own (groups.h), with their
 * trees, so memory, queue pairs and completion queues, and looks after the connections of the
 * children in them. It shares nothing with another thread but its inbox and what it has counted.
 *
 * A child is handed over with its connection and belongs to one thread at a time: the first one has
 * it until it knows which tree it wants to join, and again when it has left or is refused. Whatever
 * keeps a worker waiting, as a device does, keeps no other thread waiting.
 */
#ifndef NS_WORKERS_H
#define NS_WORKERS_H

#include "tools/nccl-ha-switchd/groups.h"
#include "tools/nccl-ha-switchd/loop.h"

#include <pthread.h>
#include <stdatomic.h>

#define NS_FAREWELL_NS 2000000000ull /* for a device to let go of what the last trees had */

struct ns_worker {
	struct ns_loop loop; /* first: loops are workers */
	struct ns_groups groups;
	struct ns_inbox inbox;
	struct ns_inbox *back;	 /* where its children go when they have left */
	struct ha_list children; /* that it has */
	struct ns_letter stop;
	pthread_t thread;
	bool is_running;      /* as the first thread knows */
	bool is_left;	      /* at its end: the device has let go of all */
	pthread_mutex_t lock; /* of what follows */
	pthread_cond_t ended;
	bool has_ended;
	struct {
#define NS_COUNTER(name, help) _Atomic uint64_t name;
		HA_SWITCH_COUNTERS(NS_COUNTER)
#undef NS_COUNTER
	} counts; /* told to the first thread */
};

struct ns_workers {
	struct ns_worker *of; /* worker t - 1 is thread t */
	unsigned n;
};

/*
 * processor: of each thread, the first one too; -1: any. back: the first thread's inbox. False,
 * after a line on stderr. Either way ns_workers_stop is to be called. The first thread calls this,
 * and all that follows.
 */
bool ns_workers_begin(struct ns_workers *workers, unsigned n, const int *processor,
		      struct ha_port *port, const struct ha_job_key *site, struct ns_inbox *back);
/* They end, within a time limit. What they had is in `back` then. False, after a line: one does
 * not, or the device does not let go of what it had, so that is there until the process ends. */
bool ns_workers_stop(struct ns_workers *workers);
/* When all have stopped. */
void ns_workers_free(struct ns_workers *workers);

/* Of struct ns_sharing; others: struct ns_workers. */
void ns_workers_tell(void *others, const struct ns_order *order);
/* A child that nobody watches, to its thread. */
void ns_workers_give(struct ns_workers *workers, struct ns_child *child);

/* What a thread has counted, at its last tick; `refused` is 0. */
void ns_worker_count(const struct ns_worker *worker, struct ha_switch_counts *counts);

/* ---- one, without a thread, as tests have it ------------------------------------------------- */

/* False: no descriptors. Either way ns_worker_end, on its thread, then ns_worker_free. */
bool ns_worker_begin(struct ns_worker *worker, struct ha_port *port, const struct ha_job_key *site,
		     struct ns_inbox *back);
void ns_worker_end(struct ns_worker *worker);
void ns_worker_free(struct ns_worker *worker);

#endif
