/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha-switchd/workers.h"

#include "base/clock.h"
#include "base/thread.h"
#include "tools/nccl-ha-switchd/equipment.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define JOIN_NS (2 * NS_FAREWELL_NS) /* for threads to end that were told to */

/* An order on its way, with all that it refers to. */
struct told {
	struct ns_letter letter;
	struct ns_order order;
	struct ha_talk_frame frame;
	uint8_t text[];
};

static struct ns_child *child_at(struct ha_list *pos)
{
	return ha_container_of(pos, struct ns_child, link);
}

/* ---- children ------------------------------------------------------------------------------- */

static void give_back(struct ns_worker *w, struct ns_child *child)
{
	ns_groups_leave(&w->groups, child);
	ns_line_unwatch(&child->line);
	ha_list_remove(&child->link);
	ns_inbox_put(w->back, &child->letter);
}

static void give_back_over(struct ns_worker *w)
{
	struct ha_list *pos, *after;

	ha_list_for_each_safe (pos, after, &w->children)
		if (ns_line_is_over(&child_at(pos)->line) || child_at(pos)->refusal)
			give_back(w, child_at(pos));
}

static void look_at_child(struct ns_line *line, uint64_t now_ns)
{
	struct ns_child *child = (struct ns_child *)line;
	enum ha_talk_event event;

	(void)now_ns;
	while (!child->refusal && (event = ha_talk_next(&line->talk)) != HA_TALK_NOTHING)
		if (event == HA_TALK_HEARD)
			child->refusal = "a switch is asked once, to join a tree";
	ns_line_watch(line, line->epoll);
}

static void adopt(struct ns_worker *w, struct ns_child *child)
{
	const char *why = "this switch has no memory for its group";

	ha_list_push_back(&w->children, &child->link);
	ns_line_begin(&child->line, look_at_child);
	if (ns_groups_admit(&w->groups, child, w->loop.now_ns, &why) != NS_JOINED)
		child->refusal = why;
	ns_line_watch(&child->line, w->groups.epoll);
}

/* ---- what the first thread says -------------------------------------------------------------- */

static void obey(struct ns_worker *w, struct told *told)
{
	ns_groups_obey(&w->groups, &told->order);
	explicit_bzero(told->frame.secret, sizeof(told->frame.secret));
	free(told);
}

static void read_letters(struct ns_worker *w)
{
	struct ns_letter *letter;

	while (!w->loop.ends && (letter = ns_inbox_take(&w->inbox))) {
		switch (letter->kind) {
		case NS_LETTER_CHILD:
			adopt(w, ha_container_of(letter, struct ns_child, letter));
			break;
		case NS_LETTER_ORDER:
			obey(w, ha_container_of(letter, struct told, letter));
			break;
		case NS_LETTER_STOP:
			w->loop.ends = true;
			break;
		}
	}
}

static void look(struct ns_loop *loop, void *source)
{
	struct ns_worker *w = (struct ns_worker *)loop;

	if (source == &w->inbox)
		read_letters(w);
	else
		((struct ns_line *)source)->look(source, loop->now_ns);
	give_back_over(w);
}

/* ---- time ----------------------------------------------------------------------------------- */

static void publish(struct ns_worker *w)
{
	struct ha_switch_counts counts;

	ns_groups_count(&w->groups, &counts);
#define PUBLISH(name, help)                                                                        \
	atomic_store_explicit(&w->counts.name, counts.name, memory_order_relaxed);
	HA_SWITCH_COUNTERS(PUBLISH)
#undef PUBLISH
}

void ns_worker_count(const struct ns_worker *worker, struct ha_switch_counts *counts)
{
#define READ(name, help)                                                                           \
	counts->name = atomic_load_explicit(&worker->counts.name, memory_order_relaxed);
	HA_SWITCH_COUNTERS(READ)
#undef READ
}

static void tick(struct ns_loop *loop)
{
	struct ns_worker *w = (struct ns_worker *)loop;

	ns_groups_tick(&w->groups, loop->now_ns);
	give_back_over(w);
	publish(w);
}

/* ---- life ----------------------------------------------------------------------------------- */

bool ns_worker_begin(struct ns_worker *worker, struct ha_port *port, const struct ha_job_key *site,
		     struct ns_inbox *back)
{
	*worker = (struct ns_worker){
	    .loop = {.groups = &worker->groups, .look = look, .tick = tick}, .back = back};
	ha_list_init(&worker->children);
	pthread_mutex_init(&worker->lock, NULL);
	ha_cond_init(&worker->ended);
	ns_groups_begin(&worker->groups, port, site, epoll_create1(EPOLL_CLOEXEC));
	return ns_inbox_begin(&worker->inbox) && worker->groups.epoll >= 0 &&
	       ns_loop_watch(&worker->loop, worker->inbox.fd, &worker->inbox);
}

void ns_worker_end(struct ns_worker *worker)
{
	const uint64_t until_ns = ha_real_ns() + NS_FAREWELL_NS;
	struct ha_list *pos;

	ha_list_for_each (pos, &worker->children)
		ha_talk_end(&child_at(pos)->line.talk);
	give_back_over(worker);
	while (!(worker->is_left = ns_groups_end(&worker->groups)) && ha_real_ns() < until_ns)
		(void)poll(NULL, 0, 10);
	publish(worker);
}

void ns_worker_free(struct ns_worker *worker)
{
	if (worker->groups.epoll >= 0)
		close(worker->groups.epoll);
	ns_inbox_end(&worker->inbox);
	pthread_cond_destroy(&worker->ended);
	pthread_mutex_destroy(&worker->lock);
}

static void *run(void *arg)
{
	struct ns_worker *w = arg;

	while (!w->loop.ends)
		ns_loop_turn(&w->loop);
	ns_worker_end(w);
	pthread_mutex_lock(&w->lock);
	w->has_ended = true;
	pthread_cond_signal(&w->ended);
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

/* Of who calls it, and of the threads that it starts from then on. */
static bool pin(int processor)
{
	cpu_set_t only;

	if (processor < 0)
		return true;
	CPU_ZERO(&only);
	CPU_SET((unsigned)processor, &only);
	return sched_setaffinity(0, sizeof(only), &only) == 0 ||
	       ns_wrong("--pin: processor %d: %s", processor, strerror(errno));
}

static bool start(struct ns_worker *worker, unsigned number, int processor)
{
	char name[16];
	int rc;

	if (!pin(processor))
		return false;
	snprintf(name, sizeof(name), "switchd-%u", number);
	rc = ha_thread_start(&worker->thread, name, run, worker);
	worker->is_running = rc == 0;
	return rc == 0 || ns_wrong("no thread %u: %s", number, strerror(rc));
}

bool ns_workers_begin(struct ns_workers *workers, unsigned n, const int *processor,
		      struct ha_port *port, const struct ha_job_key *site, struct ns_inbox *back)
{
	bool good = true;

	*workers = (struct ns_workers){.of = n ? calloc(n, sizeof(*workers->of)) : NULL};
	if (n && !workers->of)
		return ns_wrong("no memory");
	for (; good && workers->n < n; workers->n++) {
		struct ns_worker *worker = &workers->of[workers->n];

		good = ns_worker_begin(worker, port, site, back) ||
		       ns_wrong("no descriptors: %s", strerror(errno));
		good = good && start(worker, workers->n + 1, processor[workers->n + 1]);
	}
	return good && pin(processor[0]);
}

/* False: it is where it cannot be ended from. */
static bool join(struct ns_worker *worker, uint64_t until_ns)
{
	bool has_ended;

	if (!worker->is_running)
		return true;
	pthread_mutex_lock(&worker->lock);
	while (!worker->has_ended && ha_cond_wait_until(&worker->ended, &worker->lock, until_ns))
		;
	has_ended = worker->has_ended;
	pthread_mutex_unlock(&worker->lock);
	if (!has_ended)
		(void)pthread_detach(worker->thread); /* the end of the process is its end */
	return has_ended && pthread_join(worker->thread, NULL) == 0;
}

bool ns_workers_stop(struct ns_workers *workers)
{
	const uint64_t until_ns = ha_real_ns() + JOIN_NS;
	bool good = true;

	for (unsigned i = 0; i < workers->n; i++) {
		workers->of[i].stop.kind = NS_LETTER_STOP;
		ns_inbox_put(&workers->of[i].inbox, &workers->of[i].stop);
	}
	for (unsigned i = 0; i < workers->n; i++)
		if (!join(&workers->of[i], until_ns))
			good = ns_wrong("thread %u does not end: its device keeps it", i + 1);
		else if (workers->of[i].is_running && !workers->of[i].is_left)
			good = ns_wrong("the device does not let go of a tree");
	return good;
}

void ns_workers_free(struct ns_workers *workers)
{
	for (unsigned i = 0; i < workers->n; i++)
		ns_worker_free(&workers->of[i]);
	free(workers->of);
	*workers = (struct ns_workers){0};
}

/* ---- what the first thread has for them ------------------------------------------------------ */

static struct told *copy(const struct ns_order *order)
{
	const size_t length = order->frame ? order->frame->length : 0;
	struct told *told = malloc(sizeof(*told) + length);

	if (!told)
		return NULL;
	told->letter.kind = NS_LETTER_ORDER;
	told->order = *order;
	if (!order->frame)
		return told;
	told->frame = *order->frame;
	memcpy(told->text, order->frame->text, length);
	told->frame.text = told->text;
	told->order.frame = &told->frame;
	return told;
}

void ns_workers_tell(void *others, const struct ns_order *order)
{
	struct ns_workers *workers = others;

	for (unsigned i = 0; i < workers->n; i++) {
		struct told *told = copy(order);

		if (told)
			ns_inbox_put(&workers->of[i].inbox, &told->letter);
		else
			ns_wrong("no memory to tell a thread of a group");
	}
}

void ns_workers_give(struct ns_workers *workers, struct ns_child *child)
{
	child->letter.kind = NS_LETTER_CHILD;
	ns_inbox_put(&workers->of[child->thread - 1].inbox, &child->letter);
}
