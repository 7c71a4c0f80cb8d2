/* SPDX-License-Identifier: Apache-2.0 */
/* Commands and their threads, of one NIC: see command.h. */
#include "progress/command.h"
#include "base/invariant.h"

#include "base/log.h"
#include "base/thread.h"
#include "progress/progress.h"

#include <pthread.h>
#include <stdlib.h>

#define MAX_THREADS 8
/* Of these, so many may wait for addresses that do not answer. */
#define MAX_RESOLVING 4

/* Fences that are waited for, others, and the rest. */
#define QUEUES 3

uint64_t ha_command_timeout_ns = HA_COMMAND_TIMEOUT_NS;
uint64_t ha_command_sick_ns = HA_COMMAND_SICK_NS;
uint64_t (*ha_command_took_ns)(void);

/* What a thread is at; where there are none, what one would be at. */
struct run {
	bool busy;
	uint8_t kind;
	struct ha_command *command; /* NULL while it frees itself */
	uint64_t key;
	uint64_t since_ns;
	/* Without threads: */
	uint64_t back_ns;
	uint64_t number; /* of those that were begun */
};

struct ha_commands {
	struct ha_progress *progress;
	bool threads;
	atomic_uint nout; /* sent and not back: a look without the lock */

	/* Protects the rest. */
	pthread_mutex_t lock;
	pthread_cond_t sent; /* or told to stop, or another one may run */
	pthread_cond_t came_back;
	struct ha_list waiting[QUEUES]; /* what is in the first of them goes first */
	struct run runs[MAX_THREADS];	/* by thread */
	uint64_t begun, back;		/* how many were run without threads; how many came back */
	pthread_t thread[MAX_THREADS];
	unsigned nthreads, nrunning;
	unsigned nalive; /* threads that have not ended */
	unsigned nidle;	 /* they wait for `sent` */
	unsigned nwoken; /* of these, they were woken for a command and are on their way */
	bool stop;
	/* Of an end that nobody waits for. */
	bool detached;
	void (*then)(void *arg);
	void *arg;
};

/* ---- running --------------------------------------------------------------------------------- */

static const struct run *run_of_key(const struct ha_commands *commands, uint64_t key)
{
	for (unsigned i = 0; i < MAX_THREADS; i++)
		if (commands->runs[i].busy && commands->runs[i].key == key)
			return &commands->runs[i];
	return NULL;
}

static unsigned nresolving(const struct ha_commands *commands)
{
	unsigned n = 0;

	for (unsigned i = 0; i < MAX_THREADS; i++)
		n += commands->runs[i].busy && commands->runs[i].kind == HA_COMMAND_RESOLVE;
	return n;
}

static struct ha_command *first_of(const struct ha_commands *commands, const struct ha_list *list)
{
	bool resolves = nresolving(commands) < MAX_RESOLVING;
	struct ha_list *pos;

	ha_list_for_each (pos, list) {
		struct ha_command *command = ha_container_of(pos, struct ha_command, link);

		if (!run_of_key(commands, command->key) &&
		    (command->kind != HA_COMMAND_RESOLVE || resolves))
			return command;
	}
	return NULL;
}

/* The first that may run now, or NULL. */
static struct ha_command *next_command(const struct ha_commands *commands)
{
	struct ha_command *command = NULL;

	for (unsigned q = 0; q < QUEUES && !command; q++)
		command = first_of(commands, &commands->waiting[q]);
	return command;
}

static struct ha_list *queue_of(struct ha_commands *commands, uint8_t kind)
{
	switch ((enum ha_command_kind)kind) {
	case HA_COMMAND_FENCE:
		return &commands->waiting[0];
	case HA_COMMAND_QUIET_FENCE:
		return &commands->waiting[1];
	case HA_COMMAND_DEVICE:
	case HA_COMMAND_RESOLVE:
	case HA_COMMAND_CLEAN:
		break;
	}
	return &commands->waiting[QUEUES - 1];
}

static bool none_waits(const struct ha_commands *commands)
{
	for (unsigned q = 0; q < QUEUES; q++)
		if (!ha_list_empty(&commands->waiting[q]))
			return false;
	return true;
}

/* With the lock. */
static void enqueue(struct ha_commands *commands, struct ha_command *command)
{
	atomic_store(&command->state, HA_COMMAND_WAITING);
	atomic_fetch_add_explicit(&commands->nout, 1, memory_order_relaxed);
	ha_list_push_back(queue_of(commands, command->kind), &command->link);
}

void ha_command_go_on(struct ha_command *command, void (*run)(struct ha_command *command),
		      enum ha_command_kind kind, uint64_t key)
{
	command->then.run = run;
	command->then.kind = (uint8_t)kind;
	command->then.key = key;
}

/* It has run. True: it has more to do, for which `run`, `kind` and `key` are set. */
static bool goes_on(struct ha_command *command)
{
	if (!command->then.run)
		return false;
	command->run = command->then.run;
	command->kind = command->then.kind;
	command->key = command->then.key;
	command->then.run = NULL;
	return true;
}

/* With the lock, of one that has run. Its owner may take it away as soon as it is done, but waits
 * for the lock to go. */
static void give_back(struct ha_commands *commands, struct ha_command *command)
{
	struct ha_poller *owner = command->owner;

	HA_INVARIANT(atomic_load(&command->state) == HA_COMMAND_RUNNING);
	HA_INVARIANT(!command->left);
	if (goes_on(command)) {
		enqueue(commands, command); /* this thread is free for it in a moment */
		return;
	}
	atomic_store_explicit(&command->state, HA_COMMAND_DONE, memory_order_release);
	ha_progress_call(commands->progress, owner);
}

/*
 * With the lock. True: one that is idle is to be woken, by a signal once the lock is let go.
 * Before, it would wake up only to wait for the lock.
 */
static bool takes_idle(struct ha_commands *commands)
{
	if (commands->nwoken == commands->nidle)
		return false;
	commands->nwoken++;
	return true;
}

/*
 * With the lock, of a thread that has taken a command. What came back before may let two others
 * run: one of its key, and one that resolves. This thread has one of these; nobody need wake up for
 * it. As takes_idle.
 */
static bool hands_on(struct ha_commands *commands)
{
	return commands->nwoken == 0 && next_command(commands) && takes_idle(commands);
}

/* The lock is let go. */
static void unlock_and_wake(struct ha_commands *commands, bool one)
{
	pthread_mutex_unlock(&commands->lock);
	if (one)
		pthread_cond_signal(&commands->sent);
}

/* With the lock, which is let go meanwhile. */
static void run_one(struct ha_commands *commands, struct ha_command *command, unsigned i)
{
	struct run *run = &commands->runs[i];

	HA_INVARIANT(!run->busy);
	HA_INVARIANT(atomic_load(&command->state) == HA_COMMAND_WAITING);
	HA_INVARIANT(!run_of_key(commands, command->key));
	ha_list_remove(&command->link);
	atomic_store(&command->state, HA_COMMAND_RUNNING);
	*run = (struct run){.busy = true,
			    .kind = command->kind,
			    .command = command,
			    .key = command->key,
			    .since_ns = ha_real_ns()};
	commands->nrunning++;
	unlock_and_wake(commands, hands_on(commands));
	command->run(command);
	pthread_mutex_lock(&commands->lock);
	run->command = NULL;
	if (command->left) {
		pthread_mutex_unlock(&commands->lock);
		command->abandoned(command);
		pthread_mutex_lock(&commands->lock);
	} else {
		give_back(commands, command);
	}
	run->busy = false;
	commands->nrunning--;
	commands->back++;
	atomic_fetch_sub_explicit(&commands->nout, 1, memory_order_relaxed);
	pthread_cond_broadcast(&commands->came_back);
}

struct start {
	struct ha_commands *commands;
	unsigned index;
};

static void destroy(struct ha_commands *commands)
{
	pthread_cond_destroy(&commands->came_back);
	pthread_cond_destroy(&commands->sent);
	pthread_mutex_destroy(&commands->lock);
	free(commands);
}

/* With the lock, of a thread. */
static void wait_for_command(struct ha_commands *commands)
{
	commands->nidle++;
	pthread_cond_wait(&commands->sent, &commands->lock);
	commands->nidle--;
	if (commands->nwoken > 0)
		commands->nwoken--;
}

/* With the lock: until it is told to stop and everything has been run. */
static void run_all(struct ha_commands *commands, unsigned i)
{
	for (;;) {
		struct ha_command *command = next_command(commands);

		if (command)
			run_one(commands, command, i);
		else if (commands->stop && none_waits(commands))
			break;
		else
			wait_for_command(commands);
	}
	pthread_cond_broadcast(&commands->sent); /* who waited for the last of a key */
}

static void *thread_main(void *arg)
{
	struct start start = *(struct start *)arg;
	struct ha_commands *commands = start.commands;
	void (*then)(void *) = NULL;

	free(arg);
	ha_log_defer(true); /* paths are built here */
	pthread_mutex_lock(&commands->lock);
	run_all(commands, start.index);
	if (--commands->nalive == 0 && commands->detached) {
		then = commands->then;
		arg = commands->arg;
	}
	pthread_mutex_unlock(&commands->lock);
	if (then) { /* the last one, and nobody waits */
		destroy(commands);
		then(arg);
	}
	return NULL;
}

/* ---- without threads ------------------------------------------------------------------------ */

/* One that a thread would be free for; NULL: none. */
static struct run *free_run(struct ha_commands *commands)
{
	for (unsigned i = 0; i < MAX_THREADS; i++)
		if (!commands->runs[i].busy)
			return &commands->runs[i];
	return NULL;
}

/* With the lock, which is let go meanwhile. What takes time is back when that is over. */
static void run_in_no_time(struct ha_commands *commands, struct run *run,
			   struct ha_command *command)
{
	uint64_t took_ns;

	HA_INVARIANT(!run->busy);
	HA_INVARIANT(atomic_load(&command->state) == HA_COMMAND_WAITING);
	HA_INVARIANT(!run_of_key(commands, command->key));
	ha_list_remove(&command->link);
	atomic_store(&command->state, HA_COMMAND_RUNNING);
	*run = (struct run){.busy = true,
			    .kind = command->kind,
			    .command = command,
			    .key = command->key,
			    .back_ns = UINT64_MAX,
			    .number = ++commands->begun};
	pthread_mutex_unlock(&commands->lock);
	command->run(command);
	pthread_mutex_lock(&commands->lock);
	took_ns = ha_command_took_ns ? ha_command_took_ns() : 0;
	run->since_ns = ha_now_ns();
	run->back_ns = run->since_ns + took_ns;
}

/* With the lock, which is let go meanwhile. As many as there would be threads. */
static void run_all_in_no_time(struct ha_commands *commands)
{
	struct ha_command *command;
	struct run *run;

	while ((run = free_run(commands)) && (command = next_command(commands)))
		run_in_no_time(commands, run, command);
}

/* With the lock, which is let go meanwhile. */
static void return_one(struct ha_commands *commands, struct run *run)
{
	struct ha_command *command = run->command;

	run->busy = false;
	run->command = NULL;
	commands->back++;
	atomic_fetch_sub_explicit(&commands->nout, 1, memory_order_relaxed);
	if (!command->left) {
		give_back(commands, command);
		return;
	}
	pthread_mutex_unlock(&commands->lock);
	command->abandoned(command);
	pthread_mutex_lock(&commands->lock);
}

/* Of those that are due the one that was begun first. */
static struct run *next_to_return(struct ha_commands *commands, uint64_t now_ns)
{
	struct run *next = NULL;

	for (unsigned i = 0; i < MAX_THREADS; i++) {
		struct run *run = &commands->runs[i];

		if (run->busy && run->back_ns <= now_ns && (!next || run->number < next->number))
			next = run;
	}
	return next;
}

/* With the lock, which is let go meanwhile: until nothing is due any more or, where nobody moves
 * the clock any more, all are back. Returns how many that were. */
static int return_due(struct ha_commands *commands, bool all)
{
	struct run *run;
	int n = 0;

	for (;; n++) { /* one that is back makes room for the next */
		run_all_in_no_time(commands);
		run = next_to_return(commands, all ? UINT64_MAX : ha_now_ns());
		if (!run)
			return n;
		return_one(commands, run);
	}
}

int ha_commands_round(struct ha_commands *commands)
{
	int n;

	pthread_mutex_lock(&commands->lock);
	n = return_due(commands, false);
	pthread_mutex_unlock(&commands->lock);
	return n;
}

static void wait_in_no_time(struct ha_commands *commands, bool for_ever)
{
	if (!for_ever) {
		(void)ha_commands_round(commands);
		return;
	}
	pthread_mutex_lock(&commands->lock);
	(void)return_due(commands, true);
	pthread_mutex_unlock(&commands->lock);
}

/* ---- threads --------------------------------------------------------------------------------- */

static void create_thread(struct ha_commands *commands)
{
	struct start *start = malloc(sizeof(*start));

	if (!start)
		return;
	*start = (struct start){.commands = commands, .index = commands->nthreads};
	if (ha_thread_start(&commands->thread[commands->nthreads], "nccl-ha-command", thread_main,
			    start) == 0) {
		commands->nthreads++;
		commands->nalive++;
	} else {
		free(start);
	}
}

/* One more if there are more commands than threads: one that was started a moment ago has none yet,
 * and will take one only. With the lock. False: there is none at all. */
static bool have_thread(struct ha_commands *commands)
{
	if (atomic_load_explicit(&commands->nout, memory_order_relaxed) > commands->nthreads &&
	    commands->nthreads < MAX_THREADS)
		create_thread(commands); /* with fewer it takes longer */
	return commands->nthreads > 0;
}

/* ---- for the owners ------------------------------------------------------------------------- */

void ha_command_send(struct ha_commands *commands, struct ha_command *command)
{
	bool alone;

	command->left = false;
	if (!commands) { /* no memory for a queue: better late than never */
		do {
			command->run(command);
		} while (goes_on(command));
		atomic_store_explicit(&command->state, HA_COMMAND_DONE, memory_order_release);
		return;
	}
	pthread_mutex_lock(&commands->lock);
	enqueue(commands, command);
	alone = commands->threads && !have_thread(commands);
	/* Who is on his way takes it, or sends the next one on before he begins with another. */
	unlock_and_wake(commands, commands->nwoken == 0 && takes_idle(commands));
	if (alone) /* no thread to be had: better late than never */
		(void)ha_commands_round(commands);
}

/* With the lock. */
static void take_back(struct ha_commands *commands, struct ha_command *command)
{
	if (atomic_load(&command->state) != HA_COMMAND_WAITING)
		return;
	ha_list_remove(&command->link);
	atomic_fetch_sub_explicit(&commands->nout, 1, memory_order_relaxed);
	atomic_store(&command->state, HA_COMMAND_IDLE);
}

/* With the lock. Whether a thread has it. */
static bool is_out(const struct ha_commands *commands, const struct ha_command *command)
{
	for (int i = 0; i < MAX_THREADS; i++)
		if (commands->runs[i].command == command)
			return true;
	return false;
}

void ha_command_recall(struct ha_commands *commands, struct ha_command *command)
{
	if (!commands)
		return;
	pthread_mutex_lock(&commands->lock);
	take_back(commands, command);
	pthread_mutex_unlock(&commands->lock);
}

/* With the lock: until something has come back, or until then. */
static void wait_until(struct ha_commands *commands, uint64_t until_ns)
{
	(void)ha_cond_wait_until(&commands->came_back, &commands->lock, until_ns);
}

static uint64_t later(uint64_t since_ns, uint64_t limit_ns)
{
	return limit_ns < UINT64_MAX - since_ns ? since_ns + limit_ns : UINT64_MAX;
}

/*
 * With the lock: what a command waits for. What cleans up is all the same to a NIC: where it has
 * kept one of these for long, it is not waited for with each.
 */
static const struct run *ahead_of(const struct ha_commands *commands,
				  const struct ha_command *command)
{
	const struct run *oldest = NULL;

	if (command->kind != HA_COMMAND_CLEAN)
		return run_of_key(commands, command->key);
	for (unsigned i = 0; i < MAX_THREADS; i++) {
		const struct run *run = &commands->runs[i];

		if (run->busy && run->kind == HA_COMMAND_CLEAN &&
		    (!oldest || run->since_ns < oldest->since_ns))
			oldest = run;
	}
	return oldest;
}

bool ha_command_wait(struct ha_commands *commands, struct ha_command *command, uint64_t limit_ns)
{
	uint64_t began_ns = ha_real_ns(), until_ns;
	bool back;

	if (!commands)
		return true;
	if (!commands->threads) {
		wait_in_no_time(commands, limit_ns == UINT64_MAX);
		return !ha_command_busy(command);
	}
	pthread_mutex_lock(&commands->lock);
	/* Also where the state says that it is done: whoever said so lets the lock go first. */
	while (!(back = !ha_command_busy(command))) {
		const struct run *run = ahead_of(commands, command);

		until_ns = later(run ? run->since_ns : began_ns, limit_ns);
		if (ha_real_ns() >= until_ns)
			break;
		wait_until(commands, until_ns);
	}
	pthread_mutex_unlock(&commands->lock);
	return back;
}

void ha_command_leave(struct ha_commands *commands, struct ha_command *command)
{
	if (!commands) {
		command->abandoned(command);
		return;
	}
	pthread_mutex_lock(&commands->lock);
	command->left = ha_command_busy(command);
	if (command->left)
		command = NULL;
	pthread_mutex_unlock(&commands->lock);
	if (command)
		command->abandoned(command);
}

bool ha_command_disown(struct ha_commands *commands, struct ha_command *command)
{
	bool out;

	if (!commands)
		return true;
	pthread_mutex_lock(&commands->lock);
	take_back(commands, command);
	out = is_out(commands, command);
	if (out)
		command->left = true;
	pthread_mutex_unlock(&commands->lock);
	return !out;
}

/* ---- health --------------------------------------------------------------------------------- */

/* With the lock: how long the oldest has been running that a healthy NIC is soon through with; 0:
 * none is. */
static uint64_t longest_ns(const struct ha_commands *commands, uint64_t now_ns)
{
	uint64_t longest = 0;

	if (commands->threads)
		now_ns = ha_real_ns();
	for (unsigned i = 0; i < MAX_THREADS; i++) {
		const struct run *run = &commands->runs[i];

		if (run->busy && run->kind != HA_COMMAND_RESOLVE && run->kind != HA_COMMAND_CLEAN &&
		    now_ns - run->since_ns > longest)
			longest = now_ns - run->since_ns;
	}
	return longest;
}

bool ha_commands_stuck(struct ha_commands *commands, uint64_t now_ns, uint64_t *next_ns)
{
	uint64_t longest;

	if (next_ns)
		*next_ns = UINT64_MAX;
	if (atomic_load_explicit(&commands->nout, memory_order_relaxed) == 0)
		return false;
	pthread_mutex_lock(&commands->lock);
	longest = longest_ns(commands, now_ns);
	pthread_mutex_unlock(&commands->lock);
	if (next_ns && longest != 0)
		*next_ns = now_ns + (longest < ha_command_sick_ns ? ha_command_sick_ns - longest
								  : HA_NS_PER_MS);
	return longest >= ha_command_sick_ns;
}

/* ---- life ---------------------------------------------------------------------------------- */

struct ha_commands *ha_commands_new(struct ha_progress *progress, bool threads)
{
	struct ha_commands *commands = calloc(1, sizeof(*commands));

	if (!commands)
		return NULL;
	commands->progress = progress;
	commands->threads = threads;
	pthread_mutex_init(&commands->lock, NULL);
	ha_cond_init(&commands->sent);
	ha_cond_init(&commands->came_back);
	for (unsigned q = 0; q < QUEUES; q++)
		ha_list_init(&commands->waiting[q]);
	return commands;
}

/* With the lock. False: it takes too long. */
static bool settle(struct ha_commands *commands)
{
	uint64_t until_ns = ha_real_ns() + ha_command_timeout_ns, back = commands->back;

	while (commands->nrunning > 0 || !none_waits(commands)) {
		if (back != commands->back) { /* they get on */
			back = commands->back;
			until_ns = ha_real_ns() + ha_command_timeout_ns;
		}
		if (ha_real_ns() >= until_ns)
			return false;
		wait_until(commands, until_ns);
	}
	return true;
}

bool ha_commands_end(struct ha_commands *commands, void (*then)(void *arg), void *arg)
{
	unsigned nthreads;
	bool settled;

	if (!commands) {
		then(arg);
		return true;
	}
	pthread_mutex_lock(&commands->lock);
	if (!commands->threads)
		(void)return_due(commands, true);
	settled = settle(commands);
	nthreads = commands->nthreads;
	commands->stop = true;
	commands->then = then;
	commands->arg = arg;
	commands->detached = !settled;
	for (unsigned i = 0; i < nthreads && !settled; i++)
		pthread_detach(commands->thread[i]);
	pthread_cond_broadcast(&commands->sent);
	pthread_mutex_unlock(&commands->lock);
	if (!settled) /* they are not ours any more */
		return false;
	for (unsigned i = 0; i < nthreads; i++)
		pthread_join(commands->thread[i], NULL);
	destroy(commands);
	then(arg);
	return true;
}
