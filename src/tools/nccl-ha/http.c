/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha/http.h"

#include "tools/common/clock.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_CLIENTS 16
#define MAX_REQUEST 4096
#define TIME_NS	    (5 * NP_NS_PER_S) /* for a client to ask, and to take the answer */

enum stage { FREE, READING, WRITING, LINGERING };

struct client {
	enum stage stage;
	int fd;
	uint64_t deadline_ns;
	char request[MAX_REQUEST];
	size_t length;
	char head[256];
	char *body; /* NULL: none */
	size_t head_length, body_length, sent;
};

struct server {
	int listener;
	nh_page_fn page;
	void *arg;
	struct client clients[MAX_CLIENTS];
};

/* ---- answers -------------------------------------------------------------------------------- */

static void answer(struct client *c, const char *status, const char *type, char *body,
		   size_t length, bool with_body)
{
	c->head_length = (size_t)snprintf(
	    c->head, sizeof(c->head),
	    "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nConnection: close\r\n%s\r\n",
	    status, type, length, !strncmp(status, "405", 3) ? "Allow: GET, HEAD\r\n" : "");
	if (with_body) {
		c->body = body;
		c->body_length = length;
	} else {
		free(body);
	}
	c->sent = 0;
	c->stage = WRITING;
}

static void answer_text(struct client *c, const char *status, const char *text, bool with_body)
{
	char *body = strdup(text);

	answer(c, status, "text/plain; charset=utf-8", body, body ? strlen(text) : 0, with_body);
}

static void answer_metrics(struct server *server, struct client *c, bool with_body)
{
	size_t length = 0;
	char *page = server->page(server->arg, &length);

	if (page)
		answer(c, "200 OK", "text/plain; version=0.0.4; charset=utf-8", page, length,
		       with_body);
	else
		answer_text(c, "500 Internal Server Error", "cannot make the page\n", with_body);
}

/* A complete head is there. */
static void handle(struct server *server, struct client *c)
{
	char method[16], target[256], version[16];
	bool head;

	if (memchr(c->request, '\0', c->length) ||
	    sscanf(c->request, "%15s %255s %15s", method, target, version) != 3 ||
	    strncmp(version, "HTTP/1.", 7) != 0) {
		answer_text(c, "400 Bad Request", "not a request\n", true);
		return;
	}
	head = !strcmp(method, "HEAD");
	target[strcspn(target, "?")] = '\0';
	if (!head && strcmp(method, "GET") != 0)
		answer_text(c, "405 Method Not Allowed", "GET or HEAD\n", true);
	else if (!strcmp(target, "/metrics"))
		answer_metrics(server, c, !head);
	else if (!strcmp(target, "/"))
		answer_text(c, "200 OK", "nccl-ha: see /metrics\n", !head);
	else
		answer_text(c, "404 Not Found", "see /metrics\n", !head);
}

/* ---- clients -------------------------------------------------------------------------------- */

static void drop(struct client *c)
{
	close(c->fd);
	free(c->body);
	c->body = NULL;
	c->stage = FREE;
}

static bool would_wait(void)
{
	return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

static void read_some(struct server *server, struct client *c)
{
	ssize_t n = recv(c->fd, c->request + c->length, MAX_REQUEST - 1 - c->length, 0);

	if (n < 0 && would_wait())
		return;
	if (n <= 0) {
		drop(c);
		return;
	}
	c->length += (size_t)n;
	c->request[c->length] = '\0';
	if (memmem(c->request, c->length, "\r\n\r\n", 4) ||
	    memmem(c->request, c->length, "\n\n", 2))
		handle(server, c);
	else if (c->length == MAX_REQUEST - 1)
		answer_text(c, "431 Request Header Fields Too Large", "too long\n", true);
}

static void write_some(struct client *c)
{
	while (c->sent < c->head_length + c->body_length) {
		bool in_head = c->sent < c->head_length;
		const char *from =
		    in_head ? c->head + c->sent : c->body + (c->sent - c->head_length);
		size_t left =
		    (in_head ? c->head_length : c->head_length + c->body_length) - c->sent;
		ssize_t n = send(c->fd, from, left, MSG_NOSIGNAL);

		if (n < 0 && would_wait())
			return;
		if (n < 0) {
			drop(c);
			return;
		}
		c->sent += (size_t)n;
	}
	/* Closing now would reset the connection if there is something unread, and the answer might
	 * be lost with it: the client closes first. */
	shutdown(c->fd, SHUT_WR);
	c->stage = LINGERING;
}

static void linger(struct client *c)
{
	char surplus[4096];
	ssize_t n = recv(c->fd, surplus, sizeof(surplus), 0);

	if (n == 0 || (n < 0 && !would_wait()))
		drop(c);
}

static void take_client(struct server *server)
{
	int fd = accept4(server->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (fd < 0)
		return;
	for (int i = 0; i < MAX_CLIENTS; i++) {
		struct client *c = &server->clients[i];

		if (c->stage != FREE)
			continue;
		*c = (struct client){
		    .stage = READING, .fd = fd, .deadline_ns = np_now_ns() + TIME_NS};
		return;
	}
	close(fd); /* not reached: nobody is accepted while all are taken */
}

/* ---- the loop ------------------------------------------------------------------------------- */

static void turn(struct server *server)
{
	struct pollfd polled[MAX_CLIENTS + 1] = {{.fd = -1, .events = POLLIN}};
	uint64_t now_ns = np_now_ns();

	for (int i = 0; i < MAX_CLIENTS; i++) {
		struct client *c = &server->clients[i];

		if (c->stage != FREE && now_ns >= c->deadline_ns)
			drop(c);
		/* As long as all are taken, others wait in the kernel's queue. */
		if (c->stage == FREE)
			polled[0].fd = server->listener;
		polled[i + 1] = (struct pollfd){
		    .fd = c->stage == FREE ? -1 : c->fd,
		    .events = c->stage == WRITING ? POLLOUT : POLLIN,
		};
	}
	if (poll(polled, MAX_CLIENTS + 1, 200) <= 0)
		return;
	for (int i = 0; i < MAX_CLIENTS; i++) {
		struct client *c = &server->clients[i];

		if (!polled[i + 1].revents)
			continue;
		if (c->stage == READING)
			read_some(server, c);
		else if (c->stage == LINGERING)
			linger(c);
		if (c->stage == WRITING)
			write_some(c);
	}
	if (polled[0].revents)
		take_client(server);
}

void nh_http_serve(int listener, nh_page_fn page, void *arg, const volatile sig_atomic_t *stop)
{
	struct server *server = calloc(1, sizeof(*server));

	if (!server)
		return;
	server->listener = listener;
	server->page = page;
	server->arg = arg;
	while (!*stop)
		turn(server);
	for (int i = 0; i < MAX_CLIENTS; i++)
		if (server->clients[i].stage != FREE)
			drop(&server->clients[i]);
	free(server);
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
