/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine thread of a port: makes progress when no application does, runs timers, follows the
 * interface.
 *
 * While an application polls, it reads the sockets itself, and a thread that the kernel wakes for
 * each packet would only be in its way: then the engine naps, and looks again after NAP_NS. So a
 * packet that comes just after the last poll of an application waits that long.
 */
#include "simverbs/roce/wire.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* One round of work; sets when to be back at the latest. Takes the port lock. `naps`: an
 * application receives, and is not to be kept from it. */
static void work(struct sv_roce_wire *w, bool naps)
{
	uint64_t now_ns = sv_roce_now_ns(), until;

	sv_port_lock(w->port);
	if (w->news) {
		w->news = false;
		if (sv_roce_interface_news(&w->itf))
			sv_roce_link_sync(w);
	}
	if (sv_port_next_deadline(w->port) <= now_ns)
		sv_roce_catch_up(w);
	else if (!naps)
		sv_roce_progress(w);
	until = sv_roce_link_run(w, now_ns);
	until = earlier(until, sv_port_run_timers(w->port, now_ns));
	if (w->hold.held)
		until = earlier(until, sv_hold_run(&w->hold, now_ns));
	sv_roce_flush(w);
	if (atomic_load_explicit(&w->unsent, memory_order_relaxed) &&
	    !atomic_load_explicit(&w->blocked, memory_order_relaxed))
		until = now_ns;
	/* Under the lock: sv_roce_thread_arm wakes us for anything earlier than this. */
	atomic_store_explicit(&w->sleeps_until_ns, until, memory_order_relaxed);
	sv_port_unlock(w->port);
}

static void take_wakes(struct sv_roce_wire *w)
{
	uint64_t count;

	while (read(w->wake_fd, &count, sizeof(count)) < 0 && errno == EINTR)
		;
}

/* A socket says once that its link went down, and is no sleep until it has. */
static void take_errors(const struct pollfd *fds, nfds_t n)
{
	for (nfds_t i = 0; i < n; i++) {
		int error;
		socklen_t bytes = sizeof(error);

		if (fds[i].revents & POLLERR)
			(void)getsockopt(fds[i].fd, SOL_SOCKET, SO_ERROR, &error, &bytes);
	}
}

/* Sleeps until woken, until there is something to receive (unless it naps), or `until_ns`. */
static void rest(struct sv_roce_wire *w, bool naps, uint64_t until_ns)
{
	bool blocked = atomic_load_explicit(&w->blocked, memory_order_relaxed);
	short events = (short)((naps ? 0 : POLLIN) | (blocked ? POLLOUT : 0));
	struct pollfd fds[SV_ROCE_MAX_FDS] = {{.fd = w->wake_fd, .events = POLLIN},
					      {.fd = w->itf.news_fd, .events = POLLIN}};
	uint64_t now_ns = sv_roce_now_ns();
	struct timespec ts, *limit = NULL;
	nfds_t n = 2;

	if (until_ns <= now_ns)
		return;
	if (until_ns != UINT64_MAX) {
		ts.tv_sec = (time_t)((until_ns - now_ns) / 1000000000u);
		ts.tv_nsec = (long)((until_ns - now_ns) % 1000000000u);
		limit = &ts;
	}
	if (events) {
		sv_port_lock(w->port);
		n += w->io->fds(w, fds + n, events);
		sv_port_unlock(w->port);
	}
	ppoll(fds, n, limit, NULL);
	if (fds[0].revents)
		take_wakes(w);
	w->news = fds[1].revents != 0;
	take_errors(fds + 2, n - 2);
}

static void *engine_main(void *arg)
{
	struct sv_roce_wire *w = arg;
	uint32_t polls = 0;

	while (!atomic_load(&w->stop)) {
		uint32_t polls_now = atomic_load_explicit(&w->polls, memory_order_relaxed);
		bool naps = polls_now != polls;
		uint64_t until;

		polls = polls_now;
		work(w, naps);
		until = atomic_load_explicit(&w->sleeps_until_ns, memory_order_relaxed);
		rest(w, naps, naps ? earlier(until, sv_roce_now_ns() + SV_ROCE_NAP_NS) : until);
	}
	return NULL;
}

void sv_roce_thread_wake(struct sv_roce_wire *w)
{
	uint64_t one = 1;

	/* Full is as good. */
	if (write(w->wake_fd, &one, sizeof(one)) != sizeof(one))
		return;
}

void sv_roce_thread_arm(struct sv_port *port, uint64_t deadline_ns)
{
	struct sv_roce_wire *w = sv_port_wire(port);

	if (deadline_ns + SV_ROCE_NAP_NS >=
	    atomic_load_explicit(&w->sleeps_until_ns, memory_order_relaxed))
		return;
	atomic_store_explicit(&w->sleeps_until_ns, deadline_ns, memory_order_relaxed);
	sv_roce_thread_wake(w);
}

int sv_roce_thread_start(struct sv_roce_wire *w)
{
	sigset_t all, before;
	char name[16];
	int rc;

	w->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (w->wake_fd < 0)
		return -errno;
	/* The application's signals are the application's business. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&w->thread, NULL, engine_main, w);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc) {
		close(w->wake_fd);
		return -rc;
	}
	snprintf(name, sizeof(name), "roce/%.10s", w->itf.name);
	pthread_setname_np(w->thread, name);
	return 0;
}

void sv_roce_thread_stop(struct sv_roce_wire *w)
{
	atomic_store(&w->stop, true);
	sv_roce_thread_wake(w);
	pthread_join(w->thread, NULL);
	close(w->wake_fd);
}
