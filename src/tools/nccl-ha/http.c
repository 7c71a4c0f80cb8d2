/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha/http.h"

#include "tools/common/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_CLIENTS 64	 /* while all have asked, others wait in the kernel's queue */
#define MAX_REQUEST 4096 /* what libmicrohttpd has for a request's head and its answer's */
#define ASKING_NS   (1 * NP_NS_PER_S)  /* for a client to ask */
#define READING_NS  (5 * NP_NS_PER_S)  /* and to take the answer */
#define PAGE_NS	    (1 * NP_NS_PER_S)  /* for which a page is good */
#define SHORTAGE_NS (NP_NS_PER_S / 10) /* until another try, without descriptors */
#define TURN_MS	    100		       /* between two looks at the clock */
#define AT_A_TIME   16		       /* admissions: then the others are served */

struct client {
	int fd;
	uint64_t since_ns; /* 0: nobody is here */
	uint64_t deadline_ns;
	bool has_asked;
};

struct server {
	nh_page_fn make_page;
	void *arg;
	const char *const *hosts;
	struct client clients[MAX_CLIENTS];
	struct MHD_Response *page; /* NULL: none yet */
	uint64_t page_ns;	   /* when it was made */
};

/* ---- answers -------------------------------------------------------------------------------- */

/* Takes the body; NULL: no memory. */
static struct MHD_Response *response_of(const char *type, char *body, size_t length)
{
	struct MHD_Response *response =
	    body ? MHD_create_response_from_buffer_with_free_callback(length, body, free) : NULL;

	if (!response)
		return NULL;
	if (MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type) == MHD_YES &&
	    MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close") == MHD_YES)
		return response;
	MHD_destroy_response(response);
	return NULL;
}

/* Without memory the connection ends without an answer. */
static enum MHD_Result answer_text(struct MHD_Connection *connection, unsigned int status,
				   const char *text)
{
	struct MHD_Response *response =
	    response_of("text/plain; charset=utf-8", strdup(text), strlen(text));
	enum MHD_Result done = MHD_NO;

	if (!response)
		return MHD_NO;
	if (status != MHD_HTTP_METHOD_NOT_ALLOWED ||
	    MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD") == MHD_YES)
		done = MHD_queue_response(connection, status, response);
	MHD_destroy_response(response);
	return done;
}

/* ---- the page ------------------------------------------------------------------------------- */

/* However many ask, it is made once a second. */
static enum MHD_Result answer_page(struct server *server, struct MHD_Connection *connection)
{
	uint64_t now_ns = np_now_ns();

	if (!server->page || now_ns - server->page_ns >= PAGE_NS) {
		size_t length = 0;
		char *text = server->make_page(server->arg, &length);

		if (server->page)
			MHD_destroy_response(server->page);
		server->page =
		    response_of("text/plain; version=0.0.4; charset=utf-8", text, length);
		server->page_ns = now_ns;
	}
	if (!server->page)
		return answer_text(connection, MHD_HTTP_INTERNAL_SERVER_ERROR,
				   "cannot make the page\n");
	return MHD_queue_response(connection, MHD_HTTP_OK, server->page);
}

/* ---- whom it was asked as ------------------------------------------------------------------- */

/* "name", "name:80", "1.2.3.4:80", "[::1]:80" without the port and the brackets. */
static void host_of(const char *header, char *host, size_t size)
{
	const char *begin = header + (*header == '[');
	size_t length = *header == '[' ? strcspn(begin, "]") : strcspn(begin, ":");

	snprintf(host, size, "%.*s", (int)length, begin);
}

static bool is_number(const char *host)
{
	struct in6_addr address;

	return inet_pton(AF_INET, host, &address) == 1 || inet_pton(AF_INET6, host, &address) == 1;
}

/*
 * A page in somebody's browser may ask us under a name of its own that leads here, and would read
 * the answer. It cannot do so under a number, nor under names that are ours.
 */
static bool is_our_name(const struct server *server, const char *header)
{
	char host[256], own[256] = "";

	if (!header)
		return true;
	host_of(header, host, sizeof(host));
	if (is_number(host) || !strcasecmp(host, "localhost"))
		return true;
	if (gethostname(own, sizeof(own) - 1) == 0 && !strcasecmp(host, own))
		return true;
	for (const char *const *each = server->hosts; *each; each++)
		if (!strcmp(*each, "*") || !strcasecmp(host, *each))
			return true;
	return false;
}

/* ---- requests ------------------------------------------------------------------------------- */

static struct client *client_of(struct MHD_Connection *connection)
{
	const union MHD_ConnectionInfo *info =
	    MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

	return info ? info->socket_context : NULL;
}

/* A request's head is there; libmicrohttpd leaves the body out where the method is HEAD. */
static enum MHD_Result handle(void *arg, struct MHD_Connection *connection, const char *url,
			      const char *method, const char *version, const char *data,
			      size_t *data_length, void **request)
{
	struct client *client = client_of(connection);
	struct server *server = arg;

	(void)version, (void)data, (void)data_length, (void)request;
	if (client) {
		client->has_asked = true;
		client->deadline_ns = np_now_ns() + READING_NS;
	}
	if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
		return answer_text(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "GET or HEAD\n");
	if (!is_our_name(server, MHD_lookup_connection_value(connection, MHD_HEADER_KIND,
							     MHD_HTTP_HEADER_HOST)))
		return answer_text(connection, MHD_HTTP_MISDIRECTED_REQUEST,
				   "this host is not known by that name here: see --host\n");
	if (!strcmp(url, "/"))
		return answer_text(connection, MHD_HTTP_OK, "nccl-ha: see /metrics\n");
	if (strcmp(url, "/metrics") != 0)
		return answer_text(connection, MHD_HTTP_NOT_FOUND, "see /metrics\n");
	return answer_page(server, connection);
}

/* ---- clients -------------------------------------------------------------------------------- */

static void note_client(void *arg, struct MHD_Connection *connection, void **slot,
			enum MHD_ConnectionNotificationCode code)
{
	struct server *server = arg;
	struct client *c = *slot;

	if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
		*c = (struct client){.since_ns = 0};
		return;
	}
	/* There is a free one: nobody is let in otherwise. */
	for (c = server->clients; c->since_ns; c++)
		;
	c->fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
	c->since_ns = np_now_ns();
	c->deadline_ns = c->since_ns + ASKING_NS;
	*slot = c;
}

/* libmicrohttpd's own time limit is for silence: who sends a byte now and then would stay. It frees
 * the place when it comes to see this. */
static void drop(struct client *c)
{
	shutdown(c->fd, SHUT_RDWR);
}

static void drop_late_clients(struct server *server)
{
	uint64_t now_ns = np_now_ns();

	for (struct client *c = server->clients; c < server->clients + MAX_CLIENTS; c++)
		if (c->since_ns && now_ns >= c->deadline_ns)
			drop(c);
}

static bool has_place(const struct server *server)
{
	for (const struct client *c = server->clients; c < server->clients + MAX_CLIENTS; c++)
		if (!c->since_ns)
			return true;
	return false;
}

/* Of those who have not asked, the one who has had most time to makes way. */
static void make_place(struct server *server)
{
	struct client *oldest = NULL;

	for (struct client *c = server->clients; c < server->clients + MAX_CLIENTS; c++)
		if (!c->has_asked && (!oldest || c->since_ns < oldest->since_ns))
			oldest = c;
	if (oldest)
		drop(oldest);
}

/* ---- serving -------------------------------------------------------------------------------- */

/* Not by libmicrohttpd: without descriptors it would try all the time. False: there are none. */
static bool admit(struct MHD_Daemon *daemon, int listener)
{
	struct sockaddr_storage from;
	socklen_t length = sizeof(from);
	int fd = accept4(listener, (struct sockaddr *)&from, &length, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd >= 0)
		return MHD_add_connection(daemon, fd, (struct sockaddr *)&from, length) == MHD_YES;
	return errno != EMFILE && errno != ENFILE && errno != ENOMEM && errno != ENOBUFS;
}

static bool is_readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, 0) == 1;
}

/* Lets those in who knock; false: not now, for want of descriptors. */
static bool admit_all(struct server *server, struct MHD_Daemon *daemon, int listener)
{
	for (int i = 0; i < AT_A_TIME && is_readable(listener); i++) {
		if (!has_place(server)) {
			make_place(server);
			MHD_run(daemon);
		}
		if (!has_place(server)) /* all have asked: they are being served */
			return true;
		if (!admit(daemon, listener))
			return false;
		MHD_run(daemon);
	}
	return true;
}

/* Until something happens, or time is up. */
static void wait_for_clients(struct MHD_Daemon *daemon, int listener, bool admits)
{
	struct pollfd fds[2] = {
	    {.fd = MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd,
	     .events = POLLIN},
	    {.fd = admits ? listener : -1, .events = POLLIN},
	};
	MHD_UNSIGNED_LONG_LONG least = TURN_MS;

	if (MHD_get_timeout(daemon, &least) != MHD_YES || least > TURN_MS)
		least = TURN_MS;
	(void)poll(fds, 2, (int)least);
}

static void serve(struct server *server, struct MHD_Daemon *daemon, int listener,
		  const volatile sig_atomic_t *stop)
{
	uint64_t shortage_ends_ns = 0;

	while (!*stop) {
		bool admits = np_now_ns() >= shortage_ends_ns;

		wait_for_clients(daemon, listener, admits && has_place(server));
		if (admits && !admit_all(server, daemon, listener))
			shortage_ends_ns = np_now_ns() + SHORTAGE_NS;
		MHD_run(daemon);
		drop_late_clients(server);
	}
}

bool nh_http_serve(int listener, nh_page_fn page, void *arg, const char *const *hosts,
		   const volatile sig_atomic_t *stop)
{
	struct server server = {.make_page = page, .arg = arg, .hosts = hosts};
	struct MHD_Daemon *daemon =
	    MHD_start_daemon(MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET, 0, NULL, NULL, handle,
			     &server, MHD_OPTION_CONNECTION_LIMIT, (unsigned int)MAX_CLIENTS,
			     MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)MAX_REQUEST,
			     MHD_OPTION_NOTIFY_CONNECTION, note_client, &server, MHD_OPTION_END);

	if (daemon) {
		serve(&server, daemon, listener, stop);
		MHD_stop_daemon(daemon);
	}
	if (server.page)
		MHD_destroy_response(server.page);
	close(listener);
	return daemon != NULL;
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
