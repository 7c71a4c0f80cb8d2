/* SPDX-License-Identifier: Apache-2.0 */
#include "admin/server.h"

#include "admin/drain.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/stats.h"
#include "base/stats_file.h"
#include "base/usdt.h"
#include "transport/shared.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define CLIENTS	   8
#define BACKLOG	   64
#define SILENCE_NS (2 * HA_NS_PER_S) /* until the request must be there */
#define READING_NS (5 * HA_NS_PER_S) /* until its answer must be read */
/* At a time: so that each has been looked at before the next ones may take its place. */
#define ADMISSIONS (CLIENTS / 2)
/* Without descriptors nobody can be let in, and the socket would stay readable. */
#define PAUSE_NS HA_NS_PER_S

#define ANSWER_BEGINS "nccl-ha 1 "
_Static_assert(NCCL_HA_CONTROL_VERSION == 1, "ANSWER_BEGINS says so");

/* An answer as it grows. */
struct answer {
	char *text;
	size_t length, size;
	bool lost; /* for want of memory */
};

struct client {
	struct ha_console *console;
	int fd;		       /* -1: the place is free */
	struct ha_watch watch; /* until the request is complete */
	struct ucred who;
	uint64_t since_ns; /* that it has been here, or that the answer has been ready */
	char request[NCCL_HA_CONTROL_REQUEST_MAX];
	size_t got;
	struct answer answer; /* text NULL: the request is not complete yet */
	size_t sent;
};

/* The progress thread's, once it is open. */
struct ha_console {
	struct ha_instance *inst;
	char path[HA_STATS_PATH_MAX + sizeof(NCCL_HA_CONTROL_SUFFIX)];
	int fd;
	struct ha_watch watch; /* fd -1: pausing */
	struct ha_poller poller;
	uint64_t open_again_ns;
	unsigned nclients;
	struct client clients[CLIENTS];
};

/* ---- answers --------------------------------------------------------------------------------- */

static void add(struct answer *answer, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void add(struct answer *answer, const char *fmt, ...)
{
	char line[256];
	va_list args;
	int n;

	va_start(args, fmt);
	n = vsnprintf(line, sizeof(line), fmt, args);
	va_end(args);
	if (n < 0 || (size_t)n >= sizeof(line)) {
		answer->lost = true;
		return;
	}
	if (answer->length + (size_t)n > answer->size) {
		size_t size = answer->size ? 2 * answer->size : 4096;
		char *text = realloc(answer->text, size);

		answer->lost |= !text;
		if (!text)
			return;
		answer->text = text;
		answer->size = size;
	}
	memcpy(answer->text + answer->length, line, (size_t)n);
	answer->length += (size_t)n;
}

struct telling {
	struct answer *answer;
	unsigned count[HA_FATE_COUNT], all;
};

static void tell(void *arg, const struct ha_verdict *v)
{
	struct telling *telling = arg;
	char port[HA_ORDER_DEVICE_MAX + 8] = "-";

	if (v->device)
		snprintf(port, sizeof(port), "%s:%d", v->device, v->port_num);
	add(telling->answer,
	    "connection %016" PRIx64 " %s %s %u.%" PRIu32 " %s %" PRIu32 " %s%s%s\n", v->id,
	    v->is_send ? "send" : "recv", ha_fate_text(v->fate), v->path, v->generation, port,
	    v->epoch, v->home ? "home" : "elsewhere", v->why ? " " : "", v->why ? v->why : "");
	telling->count[v->fate]++;
	telling->all++;
}

/* ---- requests -------------------------------------------------------------------------------- */

/* Who wants to know later why connections moved finds it here. */
static void log_order(const struct client *client, const struct ha_order *order,
		      const struct telling *told)
{
	char what[HA_ORDER_TEXT_MAX], text[320];

	ha_order_text(order, what);
	HA_USDT5(control, &what[0], client->who.uid, client->who.pid, told->count[HA_FATE_MOVING],
		 told->count[HA_FATE_REFUSED]);
	if (order->verb == HA_ORDER_STATUS)
		return;
	snprintf(text, sizeof(text),
		 "the operator (uid %u, pid %d) asks for %s: %u connections move, %u stay, %u are "
		 "where they should be",
		 client->who.uid, client->who.pid, what, told->count[HA_FATE_MOVING],
		 told->count[HA_FATE_REFUSED],
		 told->count[HA_FATE_AWAY] + told->count[HA_FATE_HOME]);
	if (order->target == HA_ORDER_CONNECTION)
		HA_INFO(HA_SUBSYS_NET, "%s", text);
	else
		HA_WARN("%s", text);
}

static const char *missing(const struct ha_order *order)
{
	return order->target == HA_ORDER_PORT ? "this process has no such port"
					      : "this process has no such connection";
}

static void obey(struct client *client, const char *text, size_t length)
{
	struct telling told = {.answer = &client->answer};
	struct ha_order order;
	const char *why;

	if (!ha_order_parse(text, length, &order, &why)) {
		add(&client->answer, ANSWER_BEGINS "error %s\n", why);
		return;
	}
	add(&client->answer, ANSWER_BEGINS "ok\n");
	if (!ha_operator_obey(client->console->inst, &order, tell, &told)) {
		client->answer.length = 0;
		add(&client->answer, ANSWER_BEGINS "error %s\n", missing(&order));
		return;
	}
	add(&client->answer, "end %u\n", told.all);
	log_order(client, &order, &told);
}

/* ---- clients ----------------------------------------------------------------------------------
 */

static void show_out(struct client *client)
{
	ha_progress_unwatch_self(client->console->inst->progress, &client->watch);
	close(client->fd);
	client->fd = -1;
	free(client->answer.text);
	client->answer = (struct answer){0};
	client->got = client->sent = 0;
	client->console->nclients--;
}

/* The rest is tried again by visits: a reader that is slow is no reason to be woken. */
static void send_answer(struct client *client)
{
	struct answer *answer = &client->answer;
	ssize_t n = send(client->fd, answer->text + client->sent, answer->length - client->sent,
			 MSG_NOSIGNAL | MSG_DONTWAIT);

	if (n > 0)
		client->sent += (size_t)n;
	if (client->sent == answer->length || (n < 0 && errno != EAGAIN && errno != EINTR))
		show_out(client);
}

/* Nobody waits for the answer any more: whoever asked believes that nothing was done. */
static bool has_left(const struct client *client)
{
	struct pollfd p = {.fd = client->fd};

	return poll(&p, 1, 0) == 1 && (p.revents & POLLHUP);
}

static void answer_request(struct client *client, size_t length)
{
	/* It may say what it likes from here on, and have closed its end. */
	ha_progress_unwatch_self(client->console->inst->progress, &client->watch);
	if (has_left(client)) {
		show_out(client);
		return;
	}
	obey(client, client->request, length);
	if (client->answer.lost || client->answer.length == 0) {
		HA_INFO(HA_SUBSYS_NET, "out of memory for an answer to the operator");
		show_out(client);
		return;
	}
	client->since_ns = ha_now_ns();
	send_answer(client);
}

static void read_request(struct client *client)
{
	ssize_t n = recv(client->fd, client->request + client->got,
			 sizeof(client->request) - client->got, MSG_DONTWAIT);
	const char *end;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		show_out(client);
		return;
	}
	client->got += (size_t)n;
	end = memchr(client->request, '\n', client->got);
	if (end)
		answer_request(client, (size_t)(end - client->request));
	else if (client->got == sizeof(client->request))
		answer_request(client, client->got); /* too long for any request */
}

/* Progress thread. */
static void client_ready(struct ha_watch *watch, uint32_t events)
{
	struct client *client = ha_container_of(watch, struct client, watch);

	(void)events;
	if (watch->fd >= 0) /* it may have left in the same round */
		read_request(client);
}

/* ---- letting them in ------------------------------------------------------------------------- */

static bool may_ask(int fd, struct ucred *who)
{
	socklen_t length = sizeof(*who);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, who, &length) != 0)
		return false;
	return who->uid == geteuid() || who->uid == 0;
}

static void turn_away(int fd, const struct ucred *who)
{
	static const char text[] = ANSWER_BEGINS "error only the job's user and root may ask\n";
	ssize_t ignored = send(fd, text, sizeof(text) - 1, MSG_NOSIGNAL | MSG_DONTWAIT);

	(void)ignored;
	close(fd);
	HA_TRACE(1, "uid %u asked for something and is not this job's user", who->uid);
}

/* A free place, or that of the client who has been here longest. */
static struct client *find_place(struct ha_console *console)
{
	struct client *oldest = &console->clients[0];

	for (unsigned i = 0; i < CLIENTS; i++) {
		struct client *client = &console->clients[i];

		if (client->fd < 0)
			return client;
		if (client->since_ns < oldest->since_ns)
			oldest = client;
	}
	show_out(oldest);
	return oldest;
}

static void seat(struct ha_console *console, int fd)
{
	struct client *client;
	struct ucred who;

	if (!may_ask(fd, &who)) {
		turn_away(fd, &who);
		return;
	}
	client = find_place(console);
	client->who = who;
	client->since_ns = ha_now_ns();
	client->fd = client->watch.fd = fd;
	console->nclients++;
	if (ha_progress_watch(console->inst->progress, &client->watch) != HA_OK) {
		client->watch.fd = -1;
		show_out(client);
		return;
	}
	read_request(client); /* who has sent it already is answered whoever else waits */
	ha_progress_call(console->inst->progress, &console->poller); /* for its deadline */
}

/* Progress thread. */
static void console_ready(struct ha_watch *watch, uint32_t events)
{
	struct ha_console *console = ha_container_of(watch, struct ha_console, watch);

	(void)events;
	for (unsigned i = 0; i < ADMISSIONS && watch->fd >= 0; i++) {
		int fd = accept4(console->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd >= 0) {
			seat(console, fd);
		} else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
			   errno == ENOMEM) {
			console->open_again_ns = ha_now_ns() + PAUSE_NS;
			ha_progress_unwatch_self(console->inst->progress, watch);
			ha_progress_call(console->inst->progress, &console->poller);
		} else {
			return; /* nobody there; one that left meanwhile is no concern */
		}
	}
}

/* ---- deadlines ------------------------------------------------------------------------------- */

static void due(struct ha_console *console, uint64_t at_ns)
{
	if (console->poller.due_ns == 0 || at_ns < console->poller.due_ns)
		console->poller.due_ns = at_ns;
}

static void look_after(struct client *client, uint64_t now_ns)
{
	uint64_t limit_ns = client->answer.text ? READING_NS : SILENCE_NS;

	if (client->fd >= 0 && now_ns - client->since_ns > limit_ns)
		show_out(client);
	if (client->fd >= 0 && client->answer.text)
		send_answer(client);
	if (client->fd >= 0)
		due(client->console,
		    client->answer.text ? now_ns + HA_NS_PER_MS : client->since_ns + limit_ns + 1);
}

static void open_again(struct ha_console *console, uint64_t now_ns)
{
	console->watch.fd = console->fd;
	if (ha_progress_watch(console->inst->progress, &console->watch) == HA_OK)
		return;
	console->watch.fd = -1;
	console->open_again_ns = now_ns + PAUSE_NS;
}

static enum ha_poll_result visit(struct ha_poller *poller)
{
	struct ha_console *console = ha_container_of(poller, struct ha_console, poller);
	uint64_t now_ns;

	console->poller.due_ns = 0;
	if (console->nclients == 0 && console->watch.fd >= 0)
		return HA_POLL_ASLEEP;
	now_ns = ha_now_ns();
	for (unsigned i = 0; i < CLIENTS; i++)
		look_after(&console->clients[i], now_ns);
	if (console->watch.fd < 0 && now_ns >= console->open_again_ns)
		open_again(console, now_ns);
	if (console->watch.fd < 0)
		due(console, console->open_again_ns);
	return HA_POLL_ASLEEP;
}

/* ---- life ------------------------------------------------------------------------------------ */

/* A bound socket takes its mode from its descriptor: nobody gets at it between two calls. */
static int listen_at(const char *path)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), saved;

	if (fd < 0)
		return -1;
	strncpy(addr.sun_path, path, sizeof(addr.sun_path) - 1);
	if (fchmod(fd, 0600) == 0 && bind(fd, (const struct sockaddr *)&addr, sizeof(addr)) == 0) {
		if (listen(fd, BACKLOG) == 0)
			return fd;
		saved = errno;
		unlink(path);
		errno = saved;
	}
	saved = errno;
	close(fd);
	errno = saved;
	return -1;
}

static struct ha_console *console_new(struct ha_instance *inst)
{
	struct ha_console *console = calloc(1, sizeof(*console));

	if (!console)
		return NULL;
	console->inst = inst;
	snprintf(console->path, sizeof(console->path), "%s" NCCL_HA_CONTROL_SUFFIX,
		 ha_stats_path(inst->stats));
	for (unsigned i = 0; i < CLIENTS; i++) {
		console->clients[i].console = console;
		console->clients[i].fd = -1;
		console->clients[i].watch = (struct ha_watch){.fd = -1, .ready = client_ready};
	}
	console->fd = listen_at(console->path);
	if (console->fd < 0) {
		HA_INFO(HA_SUBSYS_INIT, "no socket for the operator: %s: %s", console->path,
			strerror(errno));
		free(console);
		return NULL;
	}
	return console;
}

void ha_console_open(struct ha_instance *inst)
{
	struct ha_console *console;

	if (!inst->config.control || !inst->stats)
		return;
	console = console_new(inst);
	if (!console)
		return;
	console->watch = (struct ha_watch){.fd = console->fd, .ready = console_ready};
	if (ha_progress_watch(inst->progress, &console->watch) != HA_OK) {
		unlink(console->path);
		close(console->fd);
		free(console);
		return;
	}
	ha_list_init(&console->poller.link);
	console->poller.visit = visit;
	ha_progress_add(inst->progress, &console->poller);
	inst->console = console;
}

void ha_console_close(struct ha_instance *inst)
{
	struct ha_console *console = inst->console;

	if (!console)
		return;
	unlink(console->path);
	ha_progress_remove(inst->progress, &console->poller);
	ha_progress_unwatch(inst->progress, &console->watch);
	for (unsigned i = 0; i < CLIENTS; i++) {
		if (console->clients[i].fd < 0)
			continue;
		ha_progress_unwatch(inst->progress, &console->clients[i].watch);
		show_out(&console->clients[i]);
	}
	close(console->fd);
	free(console);
	inst->console = NULL;
}
