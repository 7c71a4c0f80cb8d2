/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules about strangers on the listening port: port scanners, health checks of a site, a peer
 * of another job, and who means harm. The ports are found as a stranger on this machine would see
 * them.
 */
#include "link.h"
#include "process.h"
#include "rules.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_LISTENERS 16
#define SILENT	      12
#define TALKATIVE     12
#define FLOOD	      100

static socklen_t address_length(const struct sockaddr_storage *a)
{
	return a->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

/* What listens on every address is reached through loopback. */
static void aim_at_loopback(struct sockaddr_storage *a)
{
	if (a->ss_family == AF_INET6) {
		struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)a;
		if (IN6_IS_ADDR_UNSPECIFIED(&in6->sin6_addr))
			in6->sin6_addr = in6addr_loopback;
	} else {
		struct sockaddr_in *in = (struct sockaddr_in *)a;
		if (in->sin_addr.s_addr == htonl(INADDR_ANY))
			in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	}
}

/* A connection to the port, or -1. Does not wait: the handshake is the kernel's. */
static int knock(const struct sockaddr_storage *a)
{
	int fd = socket(a->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	if (connect(fd, (const struct sockaddr *)a, address_length(a)) != 0 &&
	    errno != EINPROGRESS) {
		close(fd);
		return -1;
	}
	return fd;
}

/* Silent ones, and they stay: the descriptors are left open on purpose. */
static void keep_silent(const struct sockaddr_storage *a)
{
	for (int i = 0; i < SILENT; i++)
		knock(a);
}

static void disturb(const struct sockaddr_storage *a)
{
	char garbage[4096];
	unsigned seed = 7;

	for (size_t i = 0; i < sizeof(garbage); i++)
		garbage[i] = (char)rand_r(&seed);
	keep_silent(a);
	/* some talk nonsense, from one byte to more than any hello, and stay too */
	for (int i = 0; i < TALKATIVE; i++) {
		size_t size = (size_t)1 << i;
		int fd = knock(a);
		if (fd >= 0 && send(fd, garbage, size, MSG_NOSIGNAL) < 0)
			close(fd);
	}
	/* and a flood that hangs up at once, half of it with a reset */
	for (int i = 0; i < FLOOD; i++) {
		struct linger reset = {1, 0};
		int fd = knock(a);
		if (fd < 0)
			continue;
		if (i % 2)
			setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
		close(fd);
	}
}

/* One connection made while strangers are at the port; returns how many ports there are. */
static int connect_among(struct check *t, void (*strangers)(const struct sockaddr_storage *))
{
	struct sockaddr_storage listeners[MAX_LISTENERS];
	struct link_handle handle;
	struct link link;
	void *comm = NULL;

	void *listen_comm = link_listen(t, t->opt->dev, &handle);
	int count = process_tcp_listeners(listeners, MAX_LISTENERS);
	for (int i = 0; i < count; i++) {
		aim_at_loopback(&listeners[i]);
		strangers(&listeners[i]);
	}
	for (int i = 0; i < 20; i++) {
		MUST(t, accept, listen_comm, &comm, NULL);
		if (comm)
			check_fail(t, "accept made a comm out of a stranger");
		check_sleep_ms(1);
	}
	for (int i = 0; i < count; i++)
		strangers(&listeners[i]);
	link_join(t, t->opt->dev, listen_comm, &handle, &link);
	link_exchange(t, &link, 5000, 9);
	MUST(t, close_listen, listen_comm);
	return count;
}

void rule_stranger(struct check *t)
{
	int count = connect_among(t, keep_silent);

	if (count == 0)
		check_skip(t, "the plugin listens on no TCP port");
	connect_among(t, disturb);
	check_note(t, "%d listening port%s, %d strangers each", count, count > 1 ? "s" : "",
		   2 * (SILENT + TALKATIVE + FLOOD));
}

/* ---- strangers who keep coming --------------------------------------------------------------- */

#define FLOOD_EACH_CALL	  40
#define FLOOD_STAY	  200 /* of all of them, the last ones */
#define FLOOD_CONNECTIONS 10
#define FLOOD_SLACK_MS	  500 /* of a busy machine */
#define FLOOD_ROUNDS	  3

struct flood {
	struct sockaddr_storage port;
	int stay[FLOOD_STAY];
	unsigned long came;
	uint64_t spent_ns; /* by them, not by the plugin */
};

/* Half of them say something. Who was there longest leaves without a word. */
static void keep_coming(void *arg)
{
	struct linger reset = {1, 0};
	uint64_t began_ns = check_now_ns();
	struct flood *f = arg;

	for (int i = 0; i < FLOOD_EACH_CALL; i++) {
		int *place = &f->stay[f->came++ % FLOOD_STAY];

		if (*place >= 0) {
			setsockopt(*place, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
			close(*place);
		}
		*place = knock(&f->port);
		if (*place >= 0 && i % 2)
			(void)!send(*place, "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL);
	}
	f->spent_ns += check_now_ns() - began_ns;
}

/* So many connections, one after the other; the longest that one took, in ms, without the time of
 * the flood itself and that in which a busy machine had no processor for us. */
static uint64_t longest_join_ms(struct check *t, struct flood *flood)
{
	uint64_t longest_ns = 0;

	for (int i = 0; i < FLOOD_CONNECTIONS; i++) {
		struct link_handle handle;
		struct link link;
		void *listen_comm = link_listen(t, t->opt->dev, &handle);
		uint64_t began_ns, queued_ns, took_ns, waited_ns;

		if (flood) {
			if (process_tcp_listeners(&flood->port, 1) == 0)
				check_skip(t, "the plugin listens on no TCP port");
			aim_at_loopback(&flood->port);
			flood->spent_ns = 0;
			keep_coming(flood);
			flood->spent_ns = 0;
		}
		queued_ns = process_queued_ns();
		began_ns = check_now_ns();
		link_join_among(t, t->opt->dev, listen_comm, &handle, &link,
				flood ? keep_coming : NULL, flood);
		took_ns = check_now_ns() - began_ns - (flood ? flood->spent_ns : 0);
		waited_ns = process_queued_ns() - queued_ns;
		took_ns -= waited_ns < took_ns ? waited_ns : took_ns;
		if (took_ns > longest_ns)
			longest_ns = took_ns;
		link_exchange(t, &link, 5000, (uint64_t)i);
		link_close_local(t, &link);
		MUST(t, close_listen, listen_comm);
	}
	return longest_ns / 1000000;
}

void rule_flood(struct check *t)
{
	struct flood flood = {.came = 0};
	uint64_t alone_ms = 0, among_ms = 0;
	bool is_slow = true;

	for (int i = 0; i < FLOOD_STAY; i++)
		flood.stay[i] = -1;
	/* Strangers who are in the way are so each time; a machine that stops us for long is not.
	 */
	for (int i = 0; i < FLOOD_ROUNDS && is_slow; i++) {
		alone_ms = longest_join_ms(t, NULL);
		among_ms = longest_join_ms(t, &flood);
		is_slow = among_ms > 2 * alone_ms + FLOOD_SLACK_MS * (uint64_t)t->opt->time_scale;
	}
	if (is_slow)
		check_fail(t, "a connection took %llu ms among %lu strangers, and %llu ms alone",
			   (unsigned long long)among_ms, flood.came, (unsigned long long)alone_ms);
	check_note(t, "%lu strangers, %d connections: %llu ms the longest, %llu ms alone",
		   flood.came, FLOOD_CONNECTIONS, (unsigned long long)among_ms,
		   (unsigned long long)alone_ms);
}
