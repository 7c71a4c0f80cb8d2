/* SPDX-License-Identifier: Apache-2.0 */
/* Verdicts, time limits, the trace of calls and the wire between the two ranks. */
#include "check.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* ---- verdicts ----------------------------------------------------------------------------- */

static _Noreturn void conclude(struct check *t, enum check_outcome outcome, const char *fmt,
			       va_list ap)
{
	int none = CHECK_NONE;

	if (atomic_compare_exchange_strong(&t->report->outcome, &none, (int)outcome)) {
		vsnprintf(t->report->text, sizeof(t->report->text), fmt, ap);
		atomic_store(&t->report->text_ready, true);
	}
	_exit(0);
}

void check_fail(struct check *t, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	conclude(t, CHECK_FAIL, fmt, ap);
}

void check_skip(struct check *t, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	conclude(t, CHECK_SKIP, fmt, ap);
}

void check_note(struct check *t, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(t->report->note, sizeof(t->report->note), fmt, ap);
	va_end(ap);
}

/* ---- time --------------------------------------------------------------------------------- */

uint64_t check_now_ns(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

uint64_t check_deadline(const struct check *t, int ms)
{
	return check_now_ns() + (uint64_t)ms * (uint64_t)t->opt->time_scale * 1000000ull;
}

void check_sleep_ms(int ms)
{
	struct timespec ts = {ms / 1000, (long)(ms % 1000) * 1000000};
	nanosleep(&ts, NULL);
}

void check_poll(struct check *t, uint64_t deadline_ns, const char *what)
{
	static _Thread_local unsigned polls;
	struct timespec nap = {0, 20000};

	if (check_now_ns() > deadline_ns)
		check_fail(t, "%s", what);
	/* The other end may need this core. */
	if (++polls % 64)
		sched_yield();
	else
		nanosleep(&nap, NULL);
}

/* ---- calling the plugin ------------------------------------------------------------------- */

void check_enter(struct check *t, const char *call)
{
	atomic_store_explicit(&t->report->rank[t->rank].since_ns, check_now_ns(),
			      memory_order_relaxed);
	atomic_store_explicit(&t->report->rank[t->rank].call, call, memory_order_release);
}

ncclResult_t check_leave(struct check *t, ncclResult_t result)
{
	atomic_store_explicit(&t->report->rank[t->rank].call, NULL, memory_order_release);
	return result;
}

void check_success(struct check *t, const char *call, ncclResult_t result)
{
	if (result != ncclSuccess)
		check_fail(t, "%s returned %s", call, np_result_name(result));
}

void check_load(struct check *t)
{
	char err[1024];

	check_enter(t, "dlopen");
	t->plugin = np_open(t->opt->plugin, t->is_coll ? 0 : t->api, err, sizeof(err));
	check_leave(t, ncclSuccess);
	if (!t->plugin ||
	    (t->is_coll && !np_coll_find(t->plugin, t->api, &t->coll, err, sizeof(err))))
		check_fail(t, "%s", err);
}

static void init_coll(struct check *t)
{
	MUST_COLL(t, init, &t->coll_ctx, 0x636865636bull);
	MUST_COLL(t, devices, &t->coll_ndev);
	if (t->coll_ndev < 1)
		check_fail(t, "devices of the collNet reports %d devices: is it switched on?",
			   t->coll_ndev);
}

void check_init(struct check *t)
{
	MUST(t, init, &t->ctx, 0x636865636bull, NCCL_NET_TRAFFIC_CLASS_UNDEF);
	MUST(t, devices, &t->ndev);
	if (t->ndev < 1)
		check_fail(t, "devices reports %d devices", t->ndev);
	if (t->opt->dev >= t->ndev)
		check_skip(t, "there is no device %d, devices reports %d", t->opt->dev, t->ndev);
	MUST(t, get_properties, t->opt->dev, &t->props);
	if (t->is_coll)
		init_coll(t);
}

/* ---- the other rank ----------------------------------------------------------------------- */

/* The other rank has gone. If it failed, its verdict counts; the supervisor ends this process. */
static _Noreturn void await_end(void)
{
	for (;;)
		pause();
}

void check_tell(struct check *t, const void *data, size_t size)
{
	if (send(t->peer_fd, data, size, MSG_NOSIGNAL) != (ssize_t)size)
		await_end();
}

void check_hear(struct check *t, void *data, size_t size)
{
	for (size_t got = 0; got < size;) {
		ssize_t n = recv(t->peer_fd, (char *)data + got, size - got, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			await_end();
		got += (size_t)n;
	}
}

void check_barrier(struct check *t)
{
	char c = 'b';

	check_tell(t, &c, 1);
	check_hear(t, &c, 1);
}

bool check_either(struct check *t, bool mine)
{
	bool theirs;

	check_tell(t, &mine, sizeof(mine));
	check_hear(t, &theirs, sizeof(theirs));
	return mine || theirs;
}

void check_part(struct check *t)
{
	char c = 'p';

	if (t->peer_fd < 0 || send(t->peer_fd, &c, 1, MSG_NOSIGNAL) != 1)
		return;
	while (recv(t->peer_fd, &c, 1, 0) < 0 && errno == EINTR)
		;
}

void check_die(struct check *t)
{
	atomic_store(&t->report->rank[t->rank].dies_on_purpose, true);
	kill(getpid(), SIGKILL);
	await_end();
}
