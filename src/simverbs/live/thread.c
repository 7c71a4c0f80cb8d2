/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine thread of a port: makes progress when no application does, and runs timers.
 *
 * An application that polls makes all progress itself (wire.c), and then a second thread would only
 * be in its way. An application that waits by looking at memory, or not at all, needs the engine.
 * Nobody tells which it is, so:
 *
 *	spin	while packets come: the engine watches, and delivers what no poller has taken within
 *		SPIN_LEAVE_NS. With few processors it stops very soon after the last packet.
 *	nap	no packets, but there was polling since the last look: senders leave a napping
 *engine alone while the last poll is only microseconds ago (grace_ns), since another will likely
 *follow. In case it does not, the engine looks after NAP_NS. sleep	neither packets nor polling:
 *every sender wakes it.
 *
 * The cost: a packet may wait for NAP_NS when it comes just after the last poll of an application,
 * and a timer may be late by as much.
 */
#include "simverbs/live/wire.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NAP_NS 200000u

#define DIRECT_NS 50000u /* a doorbell in memory wakes nobody: it is looked at so often */

#define POLLED_PAUSES 64 /* some microseconds */
#define SPIN_LEAVE_NS 1000u

/* Sleeps until woken, or until `until_ns` of the fabric's clock. */
static void bed(struct sv_wire *w, uint32_t seq, uint64_t now_ns, uint64_t until_ns)
{
	struct timespec ts, *limit = NULL;

	if (until_ns <= now_ns)
		return;
	if (until_ns != UINT64_MAX) {
		ts.tv_sec = (time_t)((until_ns - now_ns) / 1000000000u);
		ts.tv_nsec = (long)((until_ns - now_ns) % 1000000000u);
		limit = &ts;
	}
	syscall(SYS_futex, (uint32_t *)&w->me->wake_seq, FUTEX_WAIT, seq, limit, NULL, 0);
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Puts the protocol's counters where `simverbs status` finds them. Locked. */
static void publish_stats(struct sv_wire *w)
{
	struct sv_port_stats st;

	sv_port_get_stats(w->port, &st);
	sv_set_count(w->me, SV_CNT_RETRANSMITS, st.retransmits);
	sv_set_count(w->me, SV_CNT_TIMEOUTS, st.timeouts);
	sv_set_count(w->me, SV_CNT_RNR_WAITS, st.rnr_waits);
	sv_set_count(w->me, SV_CNT_NAKS_SENT, st.naks_seq + st.naks_rnr + st.naks_other);
	sv_set_count(w->me, SV_CNT_DUPLICATES, st.duplicates);
	sv_set_count(w->me, SV_CNT_OUT_OF_SEQUENCE, st.out_of_sequence);
	sv_set_count(w->me, SV_CNT_COMPLETIONS, st.cqes);
}

/* One round of work; sets when to be back at the latest. Takes the port lock. */
static void work(struct sv_wire *w)
{
	uint64_t now_ns = sv_fabric_now_ns(w->h);
	uint64_t until = sv_state_run(w->fab, now_ns);

	sv_port_lock(w->port);
	sv_wire_progress(w->port);
	if (sv_port_look_direct(w->port))
		until = earlier(until, now_ns + DIRECT_NS);
	until = earlier(until, sv_control_run(w, now_ns));
	until = earlier(until, sv_control_tell(w, now_ns));
	until = earlier(until, sv_port_run_timers(w->port, now_ns));
	if (w->hold.held)
		until = earlier(until, sv_hold_run(&w->hold, now_ns));
	if (atomic_load_explicit(&w->want_kick, memory_order_relaxed))
		until = earlier(until, now_ns + SV_KICK_RETRY_NS);
	until = earlier(until, atomic_load_explicit(&w->due_ns, memory_order_relaxed));
	publish_stats(w);
	/* Under the lock: sv_thread_arm wakes us for anything earlier than this. */
	atomic_store_explicit(&w->sleeps_until_ns, until, memory_order_relaxed);
	sv_port_unlock(w->port);
}

static uint64_t packets_seen(const struct sv_wire *w)
{
	return atomic_load_explicit(&w->me->counters[SV_CNT_RX_PACKETS], memory_order_relaxed);
}

/* Delivers what is there, if nobody is at it already. */
static void deliver_now(struct sv_wire *w)
{
	if (!sv_port_trylock(w->port))
		return;
	sv_wire_progress(w->port);
	sv_port_look_direct(w->port);
	sv_port_unlock(w->port);
}

/* Looks less often while somebody polls: each look takes a cache line away from the two ends. */
static void relax(bool somebody_polls)
{
	int i;

	for (i = 0; i < (somebody_polls ? POLLED_PAUSES : 1); i++)
		sv_cpu_relax();
}

/*
 * Watches for packets until none has come for a while. A poller gets SPIN_LEAVE_NS to take one;
 * once the engine had to take it, the next is taken at once, until a poller turns up again.
 * True: a timer is due, or the engine shall stop.
 */
static bool spin(struct sv_wire *w)
{
	uint64_t seen = packets_seen(w), now_ns = sv_fabric_now_ns(w->h);
	uint64_t end_ns = now_ns + w->spin_ns, work_since_ns = 0, leave_ns = SPIN_LEAVE_NS;
	uint32_t polls_then = atomic_load_explicit(&w->polls, memory_order_relaxed);

	for (;; now_ns = sv_fabric_now_ns(w->h)) {
		uint32_t polls = atomic_load_explicit(&w->polls, memory_order_relaxed);

		if (now_ns >= atomic_load_explicit(&w->sleeps_until_ns, memory_order_relaxed) ||
		    atomic_load_explicit(&w->stop, memory_order_relaxed))
			return true;
		if (!sv_wire_has_work(w)) {
			work_since_ns = 0;
		} else if (!work_since_ns) {
			work_since_ns = now_ns;
			leave_ns = polls == polls_then ? 0 : SPIN_LEAVE_NS;
		}
		if (work_since_ns && now_ns - work_since_ns >= leave_ns) {
			deliver_now(w);
			work_since_ns = 0;
		}
		if (packets_seen(w) != seen) {
			seen = packets_seen(w);
			end_ns = now_ns + w->spin_ns;
		} else if (now_ns > end_ns) {
			return false;
		}
		relax(polls != polls_then);
		polls_then = polls;
	}
}

/* Goes to bed if there is nothing to do, until woken or it is time; only for a nap, or longer. */
static void rest(struct sv_wire *w, enum sv_engine_state how, uint32_t seq)
{
	uint64_t until_ns;

	/* seq_cst: senders set their bit first and look at `engine` then; as sv_thread_arm does. */
	atomic_store_explicit(&w->me->engine, how, memory_order_seq_cst);
	until_ns = atomic_load_explicit(&w->sleeps_until_ns, memory_order_seq_cst);
	if (how == SV_ENGINE_NAPPING)
		until_ns = earlier(until_ns, sv_fabric_now_ns(w->h) + NAP_NS);
	/* `stop` is set before wake_seq is bumped: we see the one or miss the other's value. */
	if (!sv_wire_has_work(w) && !atomic_load_explicit(&w->stop, memory_order_seq_cst))
		bed(w, seq, sv_fabric_now_ns(w->h), until_ns);
	atomic_store_explicit(&w->me->engine, SV_ENGINE_AWAKE, memory_order_seq_cst);
}

static void *engine_main(void *arg)
{
	struct sv_wire *w = arg;
	uint64_t packets = 0;
	uint32_t polls = 0;

	/* What is on its way for microseconds shall not be late by the usual fifty. */
	if (w->paced)
		prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
	do {
		/* Before the work: a wake that comes during it is not slept through. */
		uint32_t seq = atomic_load_explicit(&w->me->wake_seq, memory_order_seq_cst);
		uint32_t polls_now;

		work(w);
		sv_count(w->me, SV_CNT_ENGINE_WAKES, 1);
		if (packets_seen(w) != packets) {
			packets = packets_seen(w);
			if (spin(w))
				continue;
		}
		polls_now = atomic_load_explicit(&w->polls, memory_order_relaxed);
		if (polls_now == polls) {
			rest(w, SV_ENGINE_ASLEEP, seq);
		} else {
			polls = polls_now;
			rest(w, SV_ENGINE_NAPPING, seq);
		}
	} while (!atomic_load(&w->stop));
	work(w); /* once more: leaves the counters as they are in the end */
	return NULL;
}

void sv_thread_arm(struct sv_port *port, uint64_t deadline_ns)
{
	struct sv_wire *w = sv_port_wire(port);

	/*
	 * The engine set sleeps_until_ns under the lock that we hold. If it is not asleep yet, it
	 * finds ours when it goes to bed; and from a nap it is back before it could be late by more
	 * than it may be.
	 */
	if (deadline_ns + NAP_NS >= atomic_load_explicit(&w->sleeps_until_ns, memory_order_relaxed))
		return;
	atomic_store_explicit(&w->sleeps_until_ns, deadline_ns, memory_order_seq_cst);
	if (atomic_load_explicit(&w->me->engine, memory_order_seq_cst) == SV_ENGINE_ASLEEP)
		sv_slot_wake(w->me);
}

int sv_thread_start(struct sv_wire *w)
{
	sigset_t all, before;
	char name[16];
	int rc;

	/* The application's signals are the application's business. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&w->thread, NULL, engine_main, w);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc)
		return -rc;
	snprintf(name, sizeof(name), "simverbs/%u", w->device);
	pthread_setname_np(w->thread, name);
	return 0;
}

void sv_thread_stop(struct sv_wire *w)
{
	atomic_store(&w->stop, true);
	sv_slot_wake(w->me);
	pthread_join(w->thread, NULL);
}
