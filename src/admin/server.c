/* SPDX-License-Identifier: Apache-2.0 */
#include "admin/server.h"

#include "admin/drain.h"
#include "admin/peer.h"
#include "base/clock.h"
#include "base/fork_guard.h"
#include "base/log.h"
#include "base/stats.h"
#include "base/stats_file.h"
#include "base/usdt.h"
#include "progress/acceptor.h"
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

#define BACKLOG	   64
#define SILENCE_NS (2 * HA_NS_PER_S) /* until the request must be there */
#define READING_NS (5 * HA_NS_PER_S) /* until its answer must be read */
#define ADMISSIONS 8		     /* in a round: the thread has other things to do */

#define ANSWER_BEGINS "nccl-ha 1 "
_Static_assert(NCCL_HA_CONTROL_VERSION == 1, "ANSWER_BEGINS says so");

/* An answer as it grows. */
struct answer {
	char *text;
	size_t length, size;
	bool lost; /* for want of memory */
};

/* Made when it is needed, and kept: an event of its last socket may still be under way. */
struct client {
	struct ha_list link; /* of those who are here, or idle */
	struct ha_seat seat;
	struct ha_admin_server *server;
	int fd;		       /* -1: idle */
	struct ha_watch watch; /* until the request is complete */
	struct ucred who;
	uint64_t since_ns; /* that it has been here, or that the answer has been ready */
	char request[NCCL_HA_CONTROL_REQUEST_MAX];
	size_t got;
	struct answer answer; /* text NULL: the request is not complete yet */
	size_t sent;
};

/* The progress thread's, once it is open. */
struct ha_admin_server {
	struct ha_instance *inst;
	char path[HA_STATS_PATH_MAX + sizeof(NCCL_HA_CONTROL_SUFFIX)];
	struct ha_acceptor acceptor;
	struct ha_poller poller;
	struct ha_list clients, idle;
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
	unsigned count[HA_OUTCOME_COUNT], all;
};

static void tell(void *arg, const struct ha_admin_result *v)
{
	struct telling *telling = arg;
	char port[HA_ADMIN_DEVICE_MAX + 8] = "-";

	if (v->device)
		snprintf(port, sizeof(port), "%s:%d", v->device, v->port_num);
	add(telling->answer,
	    "connection %016" PRIx64 " %s %s %u.%" PRIu32 " %s %" PRIu32 " %s%s%s\n", v->id,
	    v->is_send ? "send" : "recv", ha_admin_outcome_text(v->outcome), v->path, v->generation,
	    port, v->epoch, v->home ? "home" : "elsewhere", v->why ? " " : "",
	    v->why ? v->why : "");
	telling->count[v->outcome]++;
	telling->all++;
}

/* ---- requests -------------------------------------------------------------------------------- */

/* Who wants to know later why connections moved finds it here. */
static void log_request(const struct client *client, const struct ha_admin_request *request,
			const struct telling *told)
{
	char what[HA_ADMIN_TEXT_MAX], text[320];

	ha_admin_request_text(request, what);
	HA_USDT5(control, &what[0], client->who.uid, client->who.pid,
		 told->count[HA_OUTCOME_MOVING], told->count[HA_OUTCOME_REFUSED]);
	if (request->verb == HA_ADMIN_STATUS)
		return;
	snprintf(text, sizeof(text),
		 "the operator (uid %u, pid %d) asks for %s: %u connections move, %u stay, %u are "
		 "where they should be",
		 client->who.uid, client->who.pid, what, told->count[HA_OUTCOME_MOVING],
		 told->count[HA_OUTCOME_REFUSED],
		 told->count[HA_OUTCOME_AWAY] + told->count[HA_OUTCOME_HOME]);
	if (request->target == HA_ADMIN_CONNECTION)
		HA_INFO(HA_SUBSYS_NET, "%s", text);
	else
		HA_WARN("%s", text);
}

static const char *missing(const struct ha_admin_request *request)
{
	return request->target == HA_ADMIN_PORT ? "this process has no such port"
						: "this process has no such connection";
}

static void execute(struct client *client, const char *text, size_t length)
{
	struct telling told = {.answer = &client->answer};
	struct ha_admin_request request;
	const char *why;

	if (!ha_admin_request_parse(text, length, &request, &why)) {
		add(&client->answer, ANSWER_BEGINS "error %s\n", why);
		return;
	}
	add(&client->answer, ANSWER_BEGINS "ok\n");
	if (!ha_admin_execute(client->server->inst, &request, tell, &told)) {
		client->answer.length = 0;
		add(&client->answer, ANSWER_BEGINS "error %s\n", missing(&request));
		return;
	}
	add(&client->answer, "end %u\n", told.all);
	log_request(client, &request, &told);
}

/* ---- clients -------------------------------------------------------------------------------- */

static void show_out(struct client *client)
{
	struct ha_admin_server *server = client->server;

	ha_progress_unwatch_self(server->inst->progress, &client->watch);
	ha_fork_close(client->fd);
	client->fd = -1;
	free(client->answer.text);
	client->answer = (struct answer){0};
	client->got = client->sent = 0;
	ha_seats_leave(&server->acceptor.seats, &client->seat);
	ha_list_remove(&client->link);
	ha_list_push_back(&server->idle, &client->link);
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
	ha_progress_unwatch_self(client->server->inst->progress, &client->watch);
	if (has_left(client)) {
		show_out(client);
		return;
	}
	execute(client, client->request, length);
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

static void turn_away(int fd, const struct ucred *who, const char *why)
{
	char text[256];
	int length = snprintf(text, sizeof(text), ANSWER_BEGINS "error %s\n", why);
	ssize_t ignored = send(fd, text, (size_t)length, MSG_NOSIGNAL | MSG_DONTWAIT);

	(void)ignored;
	close(fd);
	HA_TRACE(1, "uid %u, pid %d asked for something: %s", who->uid, (int)who->pid, why);
}

static void make_way(struct ha_acceptor *acceptor, struct ha_seat *seat)
{
	(void)acceptor;
	show_out(ha_container_of(seat, struct client, seat));
}

static struct client *client_of(struct ha_admin_server *server)
{
	struct ha_list *idle = ha_list_pop_front(&server->idle);
	struct client *client;

	if (idle)
		return ha_container_of(idle, struct client, link);
	client = calloc(1, sizeof(*client));
	if (!client)
		return NULL;
	client->server = server;
	client->watch = (struct ha_watch){.fd = -1, .ready = client_ready};
	return client;
}

/* Whom they come from: a process, since it is one user's. */
static void seat(struct ha_acceptor *acceptor, int fd, const union ha_sockaddr *from)
{
	struct ha_admin_server *server =
	    ha_container_of(acceptor, struct ha_admin_server, acceptor);
	struct ucred who = {0};
	struct client *client;
	const char *why;

	(void)from; /* sockets of a machine have no address */
	if (!ha_admin_peer_may_ask(fd, &who, &why)) {
		turn_away(fd, &who, why);
		return;
	}
	client = client_of(server);
	if (!client) {
		close(fd);
		return;
	}
	client->who = who;
	client->since_ns = ha_now_ns();
	client->fd = ha_fork_closes(fd);
	ha_list_push_back(&server->clients, &client->link);
	ha_seats_take(&acceptor->seats, &client->seat, (uint64_t)who.pid);
	read_request(client); /* who has sent it already is answered whoever else waits */
	if (client->fd >= 0 && !client->answer.text) {
		client->watch.fd = fd;
		if (ha_progress_watch(server->inst->progress, &client->watch) != HA_OK) {
			client->watch.fd = -1;
			show_out(client);
		}
	}
	ha_progress_call(server->inst->progress, &server->poller); /* for its deadline */
}

/* ---- deadlines ------------------------------------------------------------------------------- */

static void due(struct ha_admin_server *server, uint64_t at_ns)
{
	if (at_ns != 0 && (server->poller.due_ns == 0 || at_ns < server->poller.due_ns))
		server->poller.due_ns = at_ns;
}

static void look_after(struct client *client, uint64_t now_ns)
{
	uint64_t limit_ns = client->answer.text ? READING_NS : SILENCE_NS;

	if (now_ns - client->since_ns > limit_ns)
		show_out(client);
	if (client->fd >= 0 && client->answer.text)
		send_answer(client);
	if (client->fd >= 0)
		due(client->server,
		    client->answer.text ? now_ns + HA_NS_PER_MS : client->since_ns + limit_ns + 1);
}

static enum ha_poll_result visit(struct ha_poller *poller)
{
	struct ha_admin_server *server = ha_container_of(poller, struct ha_admin_server, poller);
	struct ha_list *pos, *after;
	uint64_t now_ns;

	server->poller.due_ns = 0;
	if (ha_list_empty(&server->clients) && !ha_acceptor_pauses(&server->acceptor))
		return HA_POLL_ASLEEP;
	now_ns = ha_now_ns();
	ha_list_for_each_safe (pos, after, &server->clients)
		look_after(ha_container_of(pos, struct client, link), now_ns);
	due(server, ha_acceptor_visit(&server->acceptor, now_ns));
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

static struct ha_admin_server *server_new(struct ha_instance *inst)
{
	struct ha_admin_server *server = calloc(1, sizeof(*server));

	if (!server)
		return NULL;
	server->inst = inst;
	snprintf(server->path, sizeof(server->path), "%s" NCCL_HA_CONTROL_SUFFIX,
		 ha_stats_path(inst->stats));
	ha_list_init(&server->clients);
	ha_list_init(&server->idle);
	ha_list_init(&server->poller.link);
	server->poller.visit = visit;
	server->acceptor = (struct ha_acceptor){
	    .progress = inst->progress,
	    .poller = &server->poller,
	    .at_a_time = ADMISSIONS,
	    .seat = seat,
	    .make_way = make_way,
	};
	return server;
}

void ha_admin_server_open(struct ha_instance *inst)
{
	struct ha_admin_server *server;
	int fd;

	if (!inst->config.control || !inst->stats)
		return;
	server = server_new(inst);
	if (!server)
		return;
	fd = listen_at(server->path);
	if (fd < 0) {
		HA_INFO(HA_SUBSYS_INIT, "no socket for the operator: %s: %s", server->path,
			strerror(errno));
		free(server);
		return;
	}
	if (ha_acceptor_begin(&server->acceptor, fd) != HA_OK) {
		unlink(server->path);
		close(fd);
		free(server);
		return;
	}
	ha_progress_add(inst->progress, &server->poller);
	inst->admin_server = server;
}

void ha_admin_server_close(struct ha_instance *inst)
{
	struct ha_admin_server *server = inst->admin_server;
	struct ha_list *pos, *after;

	if (!server)
		return;
	unlink(server->path);
	ha_progress_remove(inst->progress, &server->poller);
	ha_acceptor_end(&server->acceptor);
	ha_list_for_each_safe (pos, after, &server->clients) {
		struct client *client = ha_container_of(pos, struct client, link);

		ha_progress_unwatch(inst->progress, &client->watch);
		show_out(client);
	}
	while ((pos = ha_list_pop_front(&server->idle)) != NULL)
		free(ha_container_of(pos, struct client, link));
	free(server);
	inst->admin_server = NULL;
}
