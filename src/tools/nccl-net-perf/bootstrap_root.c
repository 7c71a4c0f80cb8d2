/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The middle of the bootstrap star.
 *
 * A rank greets (bootstrap_wire.h) and then says one frame per gather; the root answers when it has
 * one frame of each. A rank that leaves in the middle of a gather ends it for everybody, and the
 * root says who it was. Anything that does not start with the right hello is closed and forgotten.
 */
#include "tools/nccl-net-perf/bootstrap_root.h"
#include "tools/nccl-net-perf/bootstrap.h"
#include "tools/nccl-net-perf/bootstrap_wire.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tools/common/clock.h"
#include "tools/nccl-net-perf/options.h"

#define FRAME_MAX (256u << 20)

struct np_root {
	int listen_fd;
	int stop_fd; /* an eventfd: readable means end */
	int nranks;
	uint64_t token;
	const struct ha_job_key *key; /* NULL: the job has none */
	bool key_refused;	      /* to somebody, and said so */
	struct np_sock *socks;	      /* by rank; the root thread's own */
	char *frames;		      /* one gather, likewise */
	pthread_t thread;
};

/* ---- guests: who has connected and is not known to be a rank yet --------------------------- */

/* A stranger may take this long to say what it has to, or to hear what there is. */
#define GUEST_NS (2 * NP_NS_PER_S)

/* Of more than these the first one makes way. */
#define GUESTS 64

/* What a rank says when it has been welcomed. */
struct ready {
	struct np_frame frame; /* of nothing */
	uint8_t code[HA_CODE_BYTES];
};

struct guest {
	struct np_sock sock; /* fd -1: nobody */
	uint64_t deadline_ns;
	bool welcomed;
	struct np_hello hello;
	struct ready ready;
	size_t got; /* of what it says now */
};

static void show_out(struct guest *guest)
{
	np_sock_close(&guest->sock);
}

/* Once: who is refused may come again and again. */
static void tell_of_refused_key(struct np_root *root, const struct guest *guest)
{
	char host[256] = "?";
	struct sockaddr_storage from;
	socklen_t len = sizeof(from);
	const char *wrong = !root->key		 ? "it has a job key, and the root has none"
			    : guest->hello.keyed ? "its job key is another than the root's"
						 : "it has no job key, and the root has one";

	if (root->key_refused)
		return;
	root->key_refused = true;
	if (getpeername(guest->sock.fd, (struct sockaddr *)&from, &len) == 0)
		getnameinfo((struct sockaddr *)&from, len, host, sizeof(host), NULL, 0,
			    NI_NUMERICHOST);
	fprintf(stderr,
		"nccl-net-perf: a rank on %s is refused: %s; HA_NCCL_JOB_KEY_FILE must name the "
		"same 32 bytes on every host\n",
		host, wrong);
}

static enum np_verdict verdict_on(struct np_root *root, const struct guest *guest)
{
	const struct np_hello *hello = &guest->hello;

	if (!np_hello_is_genuine(root->key, hello)) {
		tell_of_refused_key(root, guest);
		return NP_REFUSED_KEY;
	}
	return hello->nranks == (uint32_t)root->nranks && hello->rank < hello->nranks &&
		       root->socks[hello->rank].fd < 0
		   ? NP_WELCOME
		   : NP_NOT_AWAITED;
}

/* Its hello is there. False: it has to leave. */
static bool welcome_guest(struct np_root *root, struct guest *guest)
{
	struct np_welcome welcome = {.magic = NP_HELLO_MAGIC};
	bool welcomed;

	if (guest->hello.magic != NP_HELLO_MAGIC || guest->hello.token != root->token)
		return false;
	welcome.verdict = verdict_on(root, guest);
	welcomed = welcome.verdict == NP_WELCOME;
	np_draw_nonce(welcome.nonce);
	if (welcomed && (!np_welcome_seal(root->key, &guest->hello, &welcome) ||
			 !np_sock_authenticate(&guest->sock, root->key, &guest->hello, &welcome)))
		return false;
	/* There is room for it in a socket on which nothing was said. */
	if (send(guest->sock.fd, &welcome, sizeof(welcome), MSG_NOSIGNAL | MSG_DONTWAIT) !=
	    sizeof(welcome))
		return false;
	guest->welcomed = welcomed;
	guest->got = 0;
	return welcomed;
}

/* It says that it was welcomed: its hello was not one that somebody had recorded. */
static bool take_place(struct np_root *root, struct guest *guest)
{
	const struct ready *ready = &guest->ready;
	struct np_sock *place = &root->socks[guest->hello.rank];
	int one = 1;

	if (ready->frame.len != 0 || ready->frame.rank != guest->hello.rank || place->fd >= 0 ||
	    !np_frame_is_genuine(&guest->sock, &ready->frame, ready->code))
		return false;
	setsockopt(guest->sock.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	*place = guest->sock;
	explicit_bzero(&guest->sock.key, sizeof(guest->sock.key));
	guest->sock.keyed = false;
	guest->sock.fd = -1;
	return true;
}

/* More of what it says, if there is. True: that is all of it. */
static bool hear(struct guest *guest)
{
	char *into = guest->welcomed ? (char *)&guest->ready : (char *)&guest->hello;
	size_t whole = !guest->welcomed	   ? sizeof(guest->hello)
		       : guest->sock.keyed ? sizeof(guest->ready)
					   : sizeof(guest->ready.frame);
	ssize_t n = recv(guest->sock.fd, into + guest->got, whole - guest->got, MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (n <= 0) {
		show_out(guest);
		return false;
	}
	guest->got += (size_t)n;
	return guest->got == whole;
}

/* Reads on. True: it is a rank that was missing. */
static bool is_rank(struct np_root *root, struct guest *guest)
{
	if (!hear(guest))
		return false;
	if (guest->welcomed && take_place(root, guest))
		return true;
	if (guest->welcomed || !welcome_guest(root, guest))
		show_out(guest);
	return false;
}

static void let_in(struct np_root *root, struct guest *guests)
{
	struct guest *place = &guests[0];
	int fd = accept4(root->listen_fd, NULL, NULL, SOCK_CLOEXEC);

	if (fd < 0)
		return;
	for (struct guest *g = guests; g < guests + GUESTS; g++)
		if (place->sock.fd >= 0 && (g->sock.fd < 0 || g->deadline_ns < place->deadline_ns))
			place = g;
	if (place->sock.fd >= 0)
		show_out(place);
	*place = (struct guest){
	    .sock = {.fd = fd, .stop_fd = root->stop_fd, .self = NP_SPEAKER_ROOT},
	    .deadline_ns = np_now_ns() + GUEST_NS,
	};
}

/* Until something happens, or a guest has been here for too long. False: to stop. */
static bool wait_for_guests(const struct np_root *root, const struct guest *guests,
			    struct pollfd *polls)
{
	uint64_t now_ns = np_now_ns(), first_ns = UINT64_MAX;
	int wait_ms = -1;

	for (int i = 0; i < GUESTS; i++) {
		polls[i] = (struct pollfd){.fd = guests[i].sock.fd, .events = POLLIN};
		if (guests[i].sock.fd >= 0 && guests[i].deadline_ns < first_ns)
			first_ns = guests[i].deadline_ns;
	}
	polls[GUESTS] = (struct pollfd){.fd = root->listen_fd, .events = POLLIN};
	polls[GUESTS + 1] = (struct pollfd){.fd = root->stop_fd, .events = POLLIN};
	if (first_ns != UINT64_MAX)
		wait_ms = first_ns > now_ns ? (int)((first_ns - now_ns) / NP_NS_PER_MS) + 1 : 0;
	if (poll(polls, GUESTS + 2, wait_ms) < 0)
		return errno == EINTR;
	return !polls[GUESTS + 1].revents;
}

static bool admit_from(struct np_root *root, struct guest *guests)
{
	struct pollfd polls[GUESTS + 2];

	for (int present = 0; present < root->nranks;) {
		if (!wait_for_guests(root, guests, polls))
			return false;
		for (int i = 0; i < GUESTS; i++) {
			if (polls[i].fd >= 0 && polls[i].revents)
				present += is_rank(root, &guests[i]);
			if (guests[i].sock.fd >= 0 && np_now_ns() >= guests[i].deadline_ns)
				show_out(&guests[i]);
		}
		if (polls[GUESTS].revents)
			let_in(root, guests);
	}
	return true;
}

/* All at the same time: a stranger that says nothing holds up nobody. */
static bool admit_all(struct np_root *root)
{
	struct guest guests[GUESTS];
	bool all;

	for (int i = 0; i < GUESTS; i++)
		guests[i].sock = (struct np_sock){.fd = -1};
	all = admit_from(root, guests);
	for (int i = 0; i < GUESTS; i++)
		show_out(&guests[i]);
	return all;
}

/* ---- gathers -------------------------------------------------------------------------------- */

static void abort_all(struct np_root *root, int culprit)
{
	struct np_frame frame = {.len = NP_FRAME_ABORT, .rank = (uint32_t)culprit};

	for (int r = 0; r < root->nranks; r++)
		if (r != culprit)
			(void)np_frame_send(&root->socks[r], &frame, NULL, 0,
					    np_now_ns() + GUEST_NS);
}

/*
 * Closing a socket that holds unread data resets it, and a reset makes the peer forget what it has
 * not read: the abort. So read the ranks to their end first.
 */
static void drain(struct np_root *root, int fd)
{
	uint64_t deadline = np_now_ns() + GUEST_NS;
	char unread[4096];

	shutdown(fd, SHUT_WR);
	while (np_wait(fd, POLLIN, deadline, root->stop_fd)) {
		ssize_t n = recv(fd, unread, sizeof(unread), MSG_DONTWAIT);

		if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
			break;
	}
}

/* The next rank of the gather with something to read; -1 to stop. */
static int next_sender(struct np_root *root, struct pollfd *polls, const bool *have)
{
	for (;;) {
		for (int r = 0; r < root->nranks; r++)
			polls[r] = (struct pollfd){.fd = have[r] ? -1 : root->socks[r].fd,
						   .events = POLLIN};
		polls[root->nranks] = (struct pollfd){.fd = root->stop_fd, .events = POLLIN};
		if (poll(polls, (nfds_t)root->nranks + 1, -1) < 0 && errno != EINTR)
			return -1;
		if (polls[root->nranks].revents)
			return -1;
		for (int r = 0; r < root->nranks; r++)
			if (polls[r].revents)
				return r;
	}
}

static bool receive_frame(struct np_root *root, int rank, bool first, uint32_t *len)
{
	struct np_sock *sock = &root->socks[rank];
	struct np_frame frame;
	char *grown;

	if (!np_recv_all(sock, &frame, sizeof(frame), UINT64_MAX))
		return false;
	if (frame.len > FRAME_MAX / (uint32_t)root->nranks || (!first && frame.len != *len))
		return false;
	if (first) {
		*len = frame.len;
		grown = realloc(root->frames, (size_t)frame.len * (size_t)root->nranks + 1);
		if (!grown)
			return false;
		root->frames = grown;
	}
	return np_frame_recv(sock, &frame, root->frames + (size_t)rank * *len, *len, UINT64_MAX);
}

/* One all-gather; false when the ranks are done or one has left. */
static bool serve_gather(struct np_root *root, struct pollfd *polls, bool *have)
{
	struct np_frame frame = {0};

	memset(have, 0, (size_t)root->nranks * sizeof(*have));
	for (int got = 0; got < root->nranks; got++) {
		int rank = next_sender(root, polls, have);

		if (rank < 0)
			return false;
		if (!receive_frame(root, rank, got == 0, &frame.len)) {
			if (errno == EBADMSG)
				fprintf(stderr,
					"nccl-net-perf: what came in the name of rank %d has no "
					"right code by the job's key: the run ends\n",
					rank);
			abort_all(root, rank);
			return false;
		}
		have[rank] = true;
	}
	for (int r = 0; r < root->nranks; r++) {
		if (!np_frame_send(&root->socks[r], &frame, root->frames,
				   (size_t)frame.len * (size_t)root->nranks, UINT64_MAX)) {
			abort_all(root, r);
			return false;
		}
	}
	return true;
}

static void *root_main(void *arg)
{
	struct np_root *root = arg;
	struct pollfd *polls = calloc((size_t)root->nranks + 1, sizeof(*polls));
	bool *have = calloc((size_t)root->nranks, sizeof(*have));

	if (polls && have && admit_all(root))
		while (serve_gather(root, polls, have))
			;
	for (int r = 0; r < root->nranks; r++)
		if (root->socks[r].fd >= 0) {
			drain(root, root->socks[r].fd);
			np_sock_close(&root->socks[r]);
		}
	free(polls);
	free(have);
	return NULL;
}

/* ---- life ----------------------------------------------------------------------------------- */

static int listen_on(const char *bind_to, char *err, size_t err_len)
{
	struct addrinfo *list = np_resolve(bind_to ? bind_to : "127.0.0.1:0", true, err, err_len);
	int fd = -1, one = 1;

	for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
		fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (fd < 0)
			continue;
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
		if (bind(fd, a->ai_addr, a->ai_addrlen) || listen(fd, NP_MAX_RANKS)) {
			close(fd);
			fd = -1;
		}
	}
	if (list && fd < 0)
		np_fail(err, err_len, "cannot listen on %s: %s", bind_to ? bind_to : "127.0.0.1",
			strerror(errno));
	if (list)
		freeaddrinfo(list);
	return fd;
}

static void write_address(int fd, char *address)
{
	struct sockaddr_storage sa;
	socklen_t len = sizeof(sa);
	char host[256] = "", port[16] = "";

	memset(&sa, 0, sizeof(sa));
	getsockname(fd, (struct sockaddr *)&sa, &len);
	getnameinfo((struct sockaddr *)&sa, len, host, sizeof(host), port, sizeof(port),
		    NI_NUMERICHOST | NI_NUMERICSERV);
	snprintf(address, NP_ADDRESS_LEN, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
}

struct np_root *np_root_start(const char *bind_to, int nranks, uint64_t token,
			      const struct ha_job_key *key, char *address, char *err,
			      size_t err_len)
{
	struct np_root *root = calloc(1, sizeof(*root));
	int rc;

	if (!root)
		goto err_none;
	root->nranks = nranks;
	root->token = token;
	root->key = key;
	root->socks = malloc((size_t)nranks * sizeof(*root->socks));
	if (!root->socks)
		goto err_root;
	for (int r = 0; r < nranks; r++)
		root->socks[r] = (struct np_sock){.fd = -1};
	root->listen_fd = listen_on(bind_to, err, err_len);
	if (root->listen_fd < 0)
		goto err_socks;
	root->stop_fd = eventfd(0, EFD_CLOEXEC);
	if (root->stop_fd < 0) {
		np_fail(err, err_len, "eventfd: %s", strerror(errno));
		goto err_listen;
	}
	write_address(root->listen_fd, address);
	rc = pthread_create(&root->thread, NULL, root_main, root);
	if (rc) {
		np_fail(err, err_len, "cannot start the bootstrap thread: %s", strerror(rc));
		goto err_stop;
	}
	return root;

err_stop:
	close(root->stop_fd);
err_listen:
	close(root->listen_fd);
err_socks:
	free(root->socks);
err_root:
	free(root);
err_none:
	return NULL;
}

void np_root_stop(struct np_root *root)
{
	uint64_t one = 1;

	if (!root)
		return;
	if (write(root->stop_fd, &one, sizeof(one)) != sizeof(one))
		abort(); /* an eventfd of our own: cannot fail */
	pthread_join(root->thread, NULL);
	close(root->stop_fd);
	close(root->listen_fd);
	free(root->frames);
	free(root->socks);
	free(root);
}
