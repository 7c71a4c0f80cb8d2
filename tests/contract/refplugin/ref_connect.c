/* SPDX-License-Identifier: Apache-2.0 */
/*
 * listen, connect, accept: none of them waits. The connector says hello with the listener's
 * cookie; the listener answers when accept has seen it. Whoever says anything else, or nothing
 * for a second, is dropped, and many such strangers do not keep the real peer out.
 */
#include "ref.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#define HANDLE_MAGIC   0x52454648u
#define HANDLE_VERSION 1
#define HELLO_MAGIC    0x4f4c4548u
#ifdef REF_BREAK_FLOOD
#define MAX_CANDIDATES 32
#define TAKEN_AT_ONCE  1024 /* whoever is there, before anybody is looked at */
#else
#define MAX_CANDIDATES 256
#define TAKEN_AT_ONCE  64
#endif
#define HELLO_WITHIN_NS 1000000000ull

struct hello {
	uint32_t magic;
	uint32_t reserved;
	uint64_t cookie;
};

enum connect_stage { CONNECTING, SAYING_HELLO, AWAITING_ANSWER };

struct ref_pending {
	int fd;
	enum connect_stage stage;
};

/* A socket that was accepted and has not proved yet that it is the peer. */
struct candidate {
	int fd;
	uint64_t since_ns;
	size_t got;
	struct hello hello;
};

struct ref_listener {
	int fd;
	uint64_t cookie;
	bool has_accepted;
	int candidate_count;
	struct candidate candidates[MAX_CANDIDATES];
};

static uint64_t now_ns(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

ncclResult_t ref_listen(int dev, void *opaque, void **listen_comm)
{
	struct ref_handle handle = {.magic = HANDLE_MAGIC, .version = HANDLE_VERSION};
	struct sockaddr_in addr = {.sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(addr);

	if (dev < 0 || dev >= ref_device_count())
		return ncclInvalidArgument;
#ifdef REF_BREAK_EVERY_DEVICE
	if (dev == 1)
		return ncclSystemError;
#endif
	struct ref_listener *l = calloc(1, sizeof(*l));
	if (!l)
		return ncclSystemError;
	l->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (l->fd < 0 || bind(l->fd, (struct sockaddr *)&addr, len) != 0 ||
	    listen(l->fd, 1024) != 0 || getsockname(l->fd, (struct sockaddr *)&addr, &len) != 0 ||
	    getrandom(&l->cookie, sizeof(l->cookie), 0) != (ssize_t)sizeof(l->cookie)) {
		ref_close_listen(l);
		return ncclSystemError;
	}
	handle.port = addr.sin_port;
	handle.cookie = l->cookie;
#ifdef REF_BREAK_HANDLE_SIZE
	memset(opaque, 0, NCCL_NET_HANDLE_MAXSIZE + 32);
#endif
	memset(opaque, 0, NCCL_NET_HANDLE_MAXSIZE);
	memcpy(opaque, &handle, sizeof(handle));
	*listen_comm = l;
	return ncclSuccess;
}

/* ---- connect ------------------------------------------------------------------------------ */

static ncclResult_t begin_connect(struct ref_handle *handle)
{
	struct sockaddr_in addr = {.sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				   .sin_port = handle->port};
	int one = 1;

	struct ref_pending *p = calloc(1, sizeof(*p));
	if (!p)
		return ncclSystemError;
	p->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (p->fd < 0) {
		free(p);
		return ncclSystemError;
	}
	setsockopt(p->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (connect(p->fd, (struct sockaddr *)&addr, sizeof(addr)) != 0 && errno != EINPROGRESS) {
		close(p->fd);
		free(p);
		return ncclRemoteError;
	}
	handle->pending = p;
	return ncclSuccess;
}

/* One step of the half-open connect; *connected when the listener has answered. */
static ncclResult_t advance_connect(struct ref_pending *p, uint64_t cookie, bool *connected)
{
	struct hello hello = {.magic = HELLO_MAGIC, .cookie = cookie};
	struct sockaddr_in peer;
	socklen_t len = sizeof(int);
	uint32_t answer;
	int error = 0;
	ssize_t n;

	if (p->stage == CONNECTING) {
		if (getsockopt(p->fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0 || error != 0)
			return ncclRemoteError;
		len = sizeof(peer);
		if (getpeername(p->fd, (struct sockaddr *)&peer, &len) != 0)
			return errno == ENOTCONN ? ncclSuccess : ncclSystemError;
		p->stage = SAYING_HELLO;
	}
	if (p->stage == SAYING_HELLO) {
		/* 16 bytes into an empty socket buffer: all of it or none */
		n = send(p->fd, &hello, sizeof(hello), MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0)
			return errno == EAGAIN ? ncclSuccess : ncclRemoteError;
		p->stage = AWAITING_ANSWER;
	}
#ifdef REF_BREAK_CONNECT_RETURNS
	static bool waited;
	if (!waited)
		poll(&(struct pollfd){.fd = p->fd, .events = POLLIN}, 1, 700);
	waited = true;
#endif
	n = recv(p->fd, &answer, sizeof(answer), MSG_DONTWAIT);
	if (n < 0)
		return errno == EAGAIN ? ncclSuccess : ncclRemoteError;
	if (n != (ssize_t)sizeof(answer) || answer != HELLO_MAGIC)
		return ncclRemoteError;
	*connected = true;
	return ncclSuccess;
}

ncclResult_t ref_connect(int dev, void *opaque, void **send_comm)
{
	struct ref_handle *handle = opaque;
	bool connected = false;
	ncclResult_t result;

	*send_comm = NULL;
	if (dev < 0 || dev >= ref_device_count())
		return ncclInvalidArgument;
#ifndef REF_BREAK_HANDLE_GARBAGE
	if (handle->magic != HANDLE_MAGIC || handle->version != HANDLE_VERSION)
		return ncclInvalidArgument;
#endif
#ifdef REF_BREAK_HANDLE_STATE
	/* remembers the latest connect in the plugin instead of in each handle */
	static _Thread_local struct ref_handle latest;
	if (latest.port != handle->port || latest.cookie != handle->cookie) {
		if (latest.pending)
			close(latest.pending->fd);
		latest = *handle;
	}
	handle = &latest;
#endif
	if (!handle->pending) {
		result = begin_connect(handle);
		if (result != ncclSuccess)
			return result;
	}
	struct ref_pending *p = handle->pending;
	result = advance_connect(p, handle->cookie, &connected);
	if (result == ncclSuccess && !connected)
		return ncclSuccess;
	handle->pending = NULL;
	if (result == ncclSuccess) {
		*send_comm = ref_comm_new(p->fd, true);
		result = *send_comm ? ncclSuccess : ncclSystemError;
	}
	if (result != ncclSuccess)
		close(p->fd);
	free(p);
	return result;
}

/* ---- accept ------------------------------------------------------------------------------- */

static void drop_candidate(struct ref_listener *l, int i, bool close_fd)
{
	if (close_fd)
		close(l->candidates[i].fd);
	l->candidate_count--;
	memmove(&l->candidates[i], &l->candidates[i + 1],
		(size_t)(l->candidate_count - i) * sizeof(l->candidates[0]));
}

static void take_candidates(struct ref_listener *l)
{
	for (int i = 0; i < TAKEN_AT_ONCE; i++) {
		int one = 1;
		int fd = accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd < 0)
			return;
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		if (l->candidate_count == MAX_CANDIDATES)
			drop_candidate(l, 0, true); /* the one that kept silent for longest */
		l->candidates[l->candidate_count++] =
		    (struct candidate){.fd = fd, .since_ns = now_ns()};
	}
}

/* 1: it is the peer. 0: not known yet. -1: a stranger. */
static int judge_candidate(const struct ref_listener *l, struct candidate *c)
{
	uint32_t answer = HELLO_MAGIC;

	ssize_t n = recv(c->fd, (char *)&c->hello + c->got, sizeof(c->hello) - c->got, 0);
	if (n == 0 || (n < 0 && errno != EAGAIN))
		return -1;
	if (n > 0)
		c->got += (size_t)n;
	if (c->got < sizeof(c->hello))
#ifdef REF_BREAK_STRANGER
		return 0;
#else
		return now_ns() - c->since_ns > HELLO_WITHIN_NS ? -1 : 0;
#endif
	if (c->hello.magic != HELLO_MAGIC || c->hello.cookie != l->cookie)
		return -1;
	n = send(c->fd, &answer, sizeof(answer), MSG_NOSIGNAL);
	return n == (ssize_t)sizeof(answer) ? 1 : -1;
}

ncclResult_t ref_accept(void *listen_comm, void **recv_comm)
{
	struct ref_listener *l = listen_comm;

	*recv_comm = NULL;
#ifdef REF_BREAK_ACCEPT_RETURNS
	if (l->candidate_count == 0)
		poll(&(struct pollfd){.fd = l->fd, .events = POLLIN}, 1, 700);
#endif
	take_candidates(l);
	for (int i = 0; i < l->candidate_count; i++) {
		int verdict = judge_candidate(l, &l->candidates[i]);
		if (verdict < 0) {
			drop_candidate(l, i--, true);
#ifdef REF_BREAK_STRANGER
		} else if (verdict == 0) {
			break; /* who came first is served first */
#endif
		} else if (verdict > 0) {
			int fd = l->candidates[i].fd;
			drop_candidate(l, i, false);
			l->has_accepted = true;
			*recv_comm = ref_comm_new(fd, false);
			if (!*recv_comm)
				close(fd);
			return *recv_comm ? ncclSuccess : ncclSystemError;
		}
	}
	return ncclSuccess;
}

ncclResult_t ref_close_listen(void *listen_comm)
{
	struct ref_listener *l = listen_comm;

#ifdef REF_BREAK_LISTEN_CLOSE
	if (!l->has_accepted)
		return ncclInvalidUsage;
#endif
	while (l->candidate_count > 0)
		drop_candidate(l, 0, true);
	if (l->fd >= 0)
		close(l->fd);
	free(l);
	return ncclSuccess;
}
