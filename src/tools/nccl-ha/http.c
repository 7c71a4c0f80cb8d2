/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha/http.h"

#include "tools/common/clock.h"

#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_CLIENTS 16	 /* while all are taken, others wait in the kernel's queue */
#define MAX_REQUEST 4096 /* what libmicrohttpd has for a request's head and its answer's */
#define TIME_NS	    (5 * NP_NS_PER_S) /* for a client to ask, and to take the answer */
#define TURN_MS	    200

struct client {
	int fd;
	uint64_t deadline_ns; /* 0: nobody is here */
};

struct server {
	nh_page_fn page;
	void *arg;
	struct client clients[MAX_CLIENTS];
};

/* ---- answers -------------------------------------------------------------------------------- */

/* Takes the body; NULL: no memory, and the connection ends without an answer. */
static enum MHD_Result answer(struct MHD_Connection *connection, unsigned int status,
			      const char *type, char *body, size_t length)
{
	struct MHD_Response *response =
	    body ? MHD_create_response_from_buffer_with_free_callback(length, body, free) : NULL;
	enum MHD_Result done = MHD_NO;

	if (!response)
		return MHD_NO;
	if (MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type) == MHD_YES &&
	    MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close") == MHD_YES &&
	    (status != MHD_HTTP_METHOD_NOT_ALLOWED ||
	     MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD") == MHD_YES))
		done = MHD_queue_response(connection, status, response);
	MHD_destroy_response(response);
	return done;
}

static enum MHD_Result answer_text(struct MHD_Connection *connection, unsigned int status,
				   const char *text)
{
	return answer(connection, status, "text/plain; charset=utf-8", strdup(text), strlen(text));
}

/* A request's head is there; libmicrohttpd leaves the body out where the method is HEAD. */
static enum MHD_Result handle(void *arg, struct MHD_Connection *connection, const char *url,
			      const char *method, const char *version, const char *data,
			      size_t *data_length, void **request)
{
	struct server *server = arg;
	size_t length = 0;
	char *page;

	(void)version, (void)data, (void)data_length, (void)request;
	if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
		return answer_text(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "GET or HEAD\n");
	if (!strcmp(url, "/"))
		return answer_text(connection, MHD_HTTP_OK, "nccl-ha: see /metrics\n");
	if (strcmp(url, "/metrics") != 0)
		return answer_text(connection, MHD_HTTP_NOT_FOUND, "see /metrics\n");
	page = server->page(server->arg, &length);
	if (!page)
		return answer_text(connection, MHD_HTTP_INTERNAL_SERVER_ERROR,
				   "cannot make the page\n");
	return answer(connection, MHD_HTTP_OK, "text/plain; version=0.0.4; charset=utf-8", page,
		      length);
}

/* ---- clients -------------------------------------------------------------------------------- */

static void note_client(void *arg, struct MHD_Connection *connection, void **slot,
			enum MHD_ConnectionNotificationCode code)
{
	struct server *server = arg;
	struct client *c = *slot;

	if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
		c->deadline_ns = 0;
		return;
	}
	/* There is a free one: libmicrohttpd has as many connections at most. */
	for (c = server->clients; c->deadline_ns; c++)
		;
	c->fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
	c->deadline_ns = np_now_ns() + TIME_NS;
	*slot = c;
}

/* libmicrohttpd's own time limit is for silence: who sends a byte now and then would stay. */
static void drop_late_clients(struct server *server)
{
	uint64_t now_ns = np_now_ns();

	for (struct client *c = server->clients; c < server->clients + MAX_CLIENTS; c++)
		if (c->deadline_ns && now_ns >= c->deadline_ns)
			shutdown(c->fd, SHUT_RDWR);
}

bool nh_http_serve(int listener, nh_page_fn page, void *arg, const volatile sig_atomic_t *stop)
{
	struct server server = {.page = page, .arg = arg};
	/* By epoll: by select it would accept who comes while all are taken, and hang up. */
	struct MHD_Daemon *daemon = MHD_start_daemon(
	    MHD_USE_EPOLL, 0, NULL, NULL, handle, &server, MHD_OPTION_LISTEN_SOCKET, listener,
	    MHD_OPTION_CONNECTION_LIMIT, (unsigned int)MAX_CLIENTS,
	    MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)MAX_REQUEST, MHD_OPTION_NOTIFY_CONNECTION,
	    note_client, &server, MHD_OPTION_END);

	if (!daemon)
		return false;
	while (!*stop && MHD_run_wait(daemon, TURN_MS) == MHD_YES)
		drop_late_clients(&server);
	MHD_stop_daemon(daemon);
	return *stop;
}

/* ---- the socket ----------------------------------------------------------------------------- */

/* "1.2.3.4:80", "[::1]:80", "80" */
static void split(const char *where, char *host, size_t size, const char **port)
{
	const char *colon = strrchr(where, ':');

	snprintf(host, size, "127.0.0.1");
	*port = where;
	if (!colon)
		return;
	if (where[0] == '[' && colon > where + 1 && colon[-1] == ']')
		snprintf(host, size, "%.*s", (int)(colon - where - 2), where + 1);
	else if (colon > where)
		snprintf(host, size, "%.*s", (int)(colon - where), where);
	*port = colon + 1;
}

/* getaddrinfo takes 65536 for 0, and nothing as well. */
static bool is_port(const char *text)
{
	size_t digits = strspn(text, "0123456789");

	return digits > 0 && !text[digits] && strtoul(text, NULL, 10) <= UINT16_MAX;
}

static int open_at(const struct addrinfo *a)
{
	int on = 1;
	int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, 64) == 0)
		return fd;
	close(fd);
	return -1;
}

int nh_http_listen(const char *where, char *url, size_t url_size, char *why, size_t why_size)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *found;
	struct sockaddr_storage bound;
	socklen_t length = sizeof(bound);
	char host[128], service[16];
	const char *port;
	int fd, err;

	split(where, host, sizeof(host), &port);
	if (!is_port(port)) {
		snprintf(why, why_size, "'%s' is not [ADDRESS:]PORT: a port is a number up to %u",
			 where, (unsigned)UINT16_MAX);
		return -1;
	}
	err = getaddrinfo(host, port, &hints, &found);
	if (err) {
		snprintf(why, why_size, "'%s' is not [ADDRESS:]PORT: %s", where, gai_strerror(err));
		return -1;
	}
	fd = open_at(found);
	freeaddrinfo(found);
	if (fd < 0) {
		snprintf(why, why_size, "cannot listen on %s: %s", where, strerror(errno));
		return -1;
	}
	if (getsockname(fd, (struct sockaddr *)&bound, &length) != 0 ||
	    getnameinfo((struct sockaddr *)&bound, length, host, sizeof(host), service,
			sizeof(service), NI_NUMERICHOST | NI_NUMERICSERV) != 0)
		snprintf(service, sizeof(service), "%s", port);
	snprintf(url, url_size, strchr(host, ':') ? "http://[%s]:%s" : "http://%s:%s", host,
		 service);
	return fd;
}
