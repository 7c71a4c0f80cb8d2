/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bootstrap star.
 *
 * A rank sends a hello and then one frame per gather; the root answers when it has one frame of
 * each. A rank that leaves in the middle of a gather ends it for everybody, and the root says who
 * it was. Anything that does not start with the right hello is closed and forgotten.
 */
#include "tools/nccl-net-perf/bootstrap.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tools/common/clock.h"
#include "tools/nccl-net-perf/options.h"

#define HELLO_MAGIC 0x4e50424f4f543031ull /* "NPBOOT01" */
#define FRAME_MAX   (256u << 20)
#define FRAME_ABORT UINT32_MAX

struct hello {
	uint64_t magic;
	uint64_t token;
	uint32_t rank;
	uint32_t nranks;
};

/* Root to rank: len bytes follow. FRAME_ABORT: `rank` left, nothing follows. */
struct frame {
	uint32_t len;
	uint32_t rank;
};

static bool fail(char *err, size_t len, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

static bool fail(char *err, size_t len, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(err, len, fmt, ap);
	va_end(ap);
	return false;
}

/* ---- bytes over a socket, until a deadline ------------------------------------------------- */

static bool wait_for(int fd, short events, uint64_t deadline_ns, int stop_fd)
{
	struct pollfd p[2] = {{.fd = fd, .events = events}, {.fd = stop_fd, .events = POLLIN}};
	uint64_t now = np_now_ns();
	int wait_ms;

	if (now >= deadline_ns) {
		errno = ETIMEDOUT;
		return false;
	}
	wait_ms = deadline_ns == UINT64_MAX ? -1 : (int)((deadline_ns - now) / NP_NS_PER_MS) + 1;
	if (poll(p, stop_fd >= 0 ? 2 : 1, wait_ms) < 0)
		return errno == EINTR;
	if (stop_fd >= 0 && p[1].revents) {
		errno = ECANCELED;
		return false;
	}
	return true;
}

static bool send_all(int fd, const void *data, size_t len, uint64_t deadline_ns, int stop_fd)
{
	const char *p = data;

	while (len) {
		ssize_t n = send(fd, p, len, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n > 0) {
			p += n;
			len -= (size_t)n;
		} else if (n < 0 && errno != EAGAIN && errno != EINTR) {
			return false;
		} else if (!wait_for(fd, POLLOUT, deadline_ns, stop_fd)) {
			return false;
		}
	}
	return true;
}

static bool recv_all(int fd, void *data, size_t len, uint64_t deadline_ns, int stop_fd)
{
	char *p = data;

	while (len) {
		ssize_t n = recv(fd, p, len, MSG_DONTWAIT);

		if (n > 0) {
			p += n;
			len -= (size_t)n;
		} else if (n == 0) {
			errno = ECONNRESET;
			return false;
		} else if (errno != EAGAIN && errno != EINTR) {
			return false;
		} else if (!wait_for(fd, POLLIN, deadline_ns, stop_fd)) {
			return false;
		}
	}
	return true;
}

/* HOST:PORT, the host possibly in brackets. The list is the caller's to free. */
static struct addrinfo *resolve(const char *address, bool passive, char *err, size_t err_len)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = passive ? AI_PASSIVE : 0};
	struct addrinfo *list = NULL;
	char host[NP_ADDRESS_LEN];
	const char *colon = strrchr(address, ':');
	size_t len;
	int rc;

	if (!colon || (size_t)(colon - address) >= sizeof(host)) {
		fail(err, err_len, "'%s' is not HOST:PORT", address);
		return NULL;
	}
	len = (size_t)(colon - address);
	memcpy(host, address, len);
	host[len] = '\0';
	if (len > 1 && host[0] == '[' && host[len - 1] == ']') {
		host[len - 1] = '\0';
		memmove(host, host + 1, len - 1);
	}
	rc = getaddrinfo(host, colon + 1, &hints, &list);
	if (rc) {
		fail(err, err_len, "cannot resolve '%s': %s", address, gai_strerror(rc));
		return NULL;
	}
	return list;
}

/* ---- the root ------------------------------------------------------------------------------ */

struct np_root {
	int listen_fd;
	int stop_fd; /* an eventfd: readable means end */
	int nranks;
	uint64_t token;
	int *fds;     /* by rank; the root thread's own */
	char *frames; /* one gather, likewise */
	pthread_t thread;
};

/* A stranger may take this long to say hello before it is closed, or to hear what there is. */
#define HELLO_NS (2 * NP_NS_PER_S)

/* Who has connected and not said who it is yet; of more than these the first one makes way. */
#define GUESTS 64

struct guest {
	int fd; /* -1: nobody */
	uint64_t deadline_ns;
	char hello[sizeof(struct hello)];
	size_t got;
};

static void show_out(struct guest *guest)
{
	close(guest->fd);
	guest->fd = -1;
}

static bool is_awaited(const struct np_root *root, const struct hello *hello)
{
	return hello->magic == HELLO_MAGIC && hello->token == root->token &&
	       hello->nranks == (uint32_t)root->nranks && hello->rank < hello->nranks &&
	       root->fds[hello->rank] < 0;
}

/* Reads on. True: it is a rank that was missing. */
static bool is_rank(struct np_root *root, struct guest *guest)
{
	ssize_t n = recv(guest->fd, guest->hello + guest->got, sizeof(guest->hello) - guest->got,
			 MSG_DONTWAIT);
	struct hello hello;
	int one = 1;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	guest->got += n > 0 ? (size_t)n : 0;
	if (n > 0 && guest->got < sizeof(guest->hello))
		return false;
	memcpy(&hello, guest->hello, sizeof(hello));
	if (n <= 0 || !is_awaited(root, &hello)) {
		show_out(guest);
		return false;
	}
	setsockopt(guest->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	root->fds[hello.rank] = guest->fd;
	guest->fd = -1;
	return true;
}

static void let_in(struct np_root *root, struct guest *guests)
{
	struct guest *place = &guests[0];
	int fd = accept4(root->listen_fd, NULL, NULL, SOCK_CLOEXEC);

	if (fd < 0)
		return;
	for (struct guest *g = guests; g < guests + GUESTS; g++)
		if (place->fd >= 0 && (g->fd < 0 || g->deadline_ns < place->deadline_ns))
			place = g;
	if (place->fd >= 0)
		show_out(place);
	*place = (struct guest){.fd = fd, .deadline_ns = np_now_ns() + HELLO_NS};
}

/* Until something happens, or a guest has been here for too long. False: to stop. */
static bool wait_for_guests(const struct np_root *root, const struct guest *guests,
			    struct pollfd *polls)
{
	uint64_t now_ns = np_now_ns(), first_ns = UINT64_MAX;
	int wait_ms = -1;

	for (int i = 0; i < GUESTS; i++) {
		polls[i] = (struct pollfd){.fd = guests[i].fd, .events = POLLIN};
		if (guests[i].fd >= 0 && guests[i].deadline_ns < first_ns)
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
			if (guests[i].fd >= 0 && np_now_ns() >= guests[i].deadline_ns)
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
		guests[i].fd = -1;
	all = admit_from(root, guests);
	for (int i = 0; i < GUESTS; i++)
		if (guests[i].fd >= 0)
			show_out(&guests[i]);
	return all;
}

static void abort_all(struct np_root *root, int culprit)
{
	struct frame frame = {.len = FRAME_ABORT, .rank = (uint32_t)culprit};

	for (int r = 0; r < root->nranks; r++)
		if (r != culprit)
			send_all(root->fds[r], &frame, sizeof(frame), np_now_ns() + HELLO_NS,
				 root->stop_fd);
}

/*
 * Closing a socket that holds unread data resets it, and a reset makes the peer forget what it has
 * not read: the abort. So read the ranks to their end first.
 */
static void drain(struct np_root *root, int fd)
{
	uint64_t deadline = np_now_ns() + HELLO_NS;
	char unread[4096];

	shutdown(fd, SHUT_WR);
	while (wait_for(fd, POLLIN, deadline, root->stop_fd)) {
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
			polls[r] =
			    (struct pollfd){.fd = have[r] ? -1 : root->fds[r], .events = POLLIN};
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
	struct frame frame;
	char *grown;

	if (!recv_all(root->fds[rank], &frame, sizeof(frame), UINT64_MAX, root->stop_fd))
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
	return recv_all(root->fds[rank], root->frames + (size_t)rank * *len, *len, UINT64_MAX,
			root->stop_fd);
}

/* One all-gather; false when the ranks are done or one has left. */
static bool serve_gather(struct np_root *root, struct pollfd *polls, bool *have)
{
	struct frame frame = {0};

	memset(have, 0, (size_t)root->nranks * sizeof(*have));
	for (int got = 0; got < root->nranks; got++) {
		int rank = next_sender(root, polls, have);

		if (rank < 0)
			return false;
		if (!receive_frame(root, rank, got == 0, &frame.len)) {
			abort_all(root, rank);
			return false;
		}
		have[rank] = true;
	}
	for (int r = 0; r < root->nranks; r++) {
		if (!send_all(root->fds[r], &frame, sizeof(frame), UINT64_MAX, root->stop_fd) ||
		    !send_all(root->fds[r], root->frames, (size_t)frame.len * (size_t)root->nranks,
			      UINT64_MAX, root->stop_fd)) {
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
		if (root->fds[r] >= 0) {
			drain(root, root->fds[r]);
			close(root->fds[r]);
		}
	free(polls);
	free(have);
	return NULL;
}

static int listen_on(const char *bind_to, char *err, size_t err_len)
{
	struct addrinfo *list = resolve(bind_to ? bind_to : "127.0.0.1:0", true, err, err_len);
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
		fail(err, err_len, "cannot listen on %s: %s", bind_to ? bind_to : "127.0.0.1",
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

struct np_root *np_root_start(const char *bind_to, int nranks, uint64_t token, char *address,
			      char *err, size_t err_len)
{
	struct np_root *root = calloc(1, sizeof(*root));
	int rc;

	if (!root)
		goto err_none;
	root->nranks = nranks;
	root->token = token;
	root->fds = malloc((size_t)nranks * sizeof(*root->fds));
	if (!root->fds)
		goto err_root;
	for (int r = 0; r < nranks; r++)
		root->fds[r] = -1;
	root->listen_fd = listen_on(bind_to, err, err_len);
	if (root->listen_fd < 0)
		goto err_fds;
	root->stop_fd = eventfd(0, EFD_CLOEXEC);
	if (root->stop_fd < 0) {
		fail(err, err_len, "eventfd: %s", strerror(errno));
		goto err_listen;
	}
	write_address(root->listen_fd, address);
	rc = pthread_create(&root->thread, NULL, root_main, root);
	if (rc) {
		fail(err, err_len, "cannot start the bootstrap thread: %s", strerror(rc));
		goto err_stop;
	}
	return root;

err_stop:
	close(root->stop_fd);
err_listen:
	close(root->listen_fd);
err_fds:
	free(root->fds);
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
	free(root->fds);
	free(root);
}

/* ---- a rank -------------------------------------------------------------------------------- */

struct np_bootstrap {
	int fd;
	int rank;
	int nranks;
	double timeout_s;
	bool bereaved;
};

/* One round over the addresses; -1 with errno. */
static int try_connect(const struct addrinfo *list)
{
	int fd, saved = ECONNREFUSED;

	for (; list; list = list->ai_next) {
		fd = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (fd < 0)
			continue;
		if (connect(fd, list->ai_addr, list->ai_addrlen) == 0)
			return fd;
		saved = errno;
		close(fd);
	}
	errno = saved;
	return -1;
}

struct np_bootstrap *np_bootstrap_connect(const char *address, int rank, int nranks, uint64_t token,
					  double timeout_s, char *err, size_t err_len)
{
	struct hello hello = {HELLO_MAGIC, token, (uint32_t)rank, (uint32_t)nranks};
	uint64_t deadline = np_now_ns() + (uint64_t)(timeout_s * 1e9);
	struct addrinfo *list = resolve(address, false, err, err_len);
	struct np_bootstrap *b = NULL;
	int fd = -1, one = 1;

	if (!list)
		return NULL;
	while ((fd = try_connect(list)) < 0 && np_now_ns() < deadline)
		usleep(20000);
	freeaddrinfo(list);
	if (fd < 0) {
		fail(err, err_len, "cannot reach the root at %s: %s", address, strerror(errno));
		return NULL;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	b = calloc(1, sizeof(*b));
	if (!b || !send_all(fd, &hello, sizeof(hello), deadline, -1)) {
		fail(err, err_len, "cannot greet the root at %s: %s", address, strerror(errno));
		close(fd);
		free(b);
		return NULL;
	}
	b->fd = fd;
	b->rank = rank;
	b->nranks = nranks;
	b->timeout_s = timeout_s;
	return b;
}

void np_bootstrap_close(struct np_bootstrap *b)
{
	if (!b)
		return;
	close(b->fd);
	free(b);
}

bool np_bootstrap_gather(struct np_bootstrap *b, const void *mine, void *all, size_t len, char *err,
			 size_t err_len)
{
	uint64_t deadline = np_now_ns() + (uint64_t)(b->timeout_s * 1e9);
	struct frame frame = {.len = (uint32_t)len, .rank = (uint32_t)b->rank};
	bool sent;

	/* When the root has gone its last word may still be there to read. */
	sent = send_all(b->fd, &frame, sizeof(frame), deadline, -1) &&
	       send_all(b->fd, mine, len, deadline, -1);
	if ((!sent && errno == ETIMEDOUT) ||
	    !recv_all(b->fd, &frame, sizeof(frame), deadline, -1)) {
		if (errno == ETIMEDOUT)
			return fail(err, err_len, "the other ranks did not answer within %.0f s",
				    b->timeout_s);
		return fail(err, err_len, "lost the root: %s", strerror(errno));
	}
	b->bereaved = frame.len == FRAME_ABORT;
	if (b->bereaved)
		return fail(err, err_len, "rank %u has left", frame.rank);
	if (frame.len != len)
		return fail(err, err_len,
			    "ranks disagree on what they exchange (%zu and %u bytes): "
			    "were they started with different options?",
			    len, frame.len);
	if (!recv_all(b->fd, all, len * (size_t)b->nranks, deadline, -1))
		return fail(err, err_len, "lost the root: %s", strerror(errno));
	return true;
}

bool np_bootstrap_bereaved(const struct np_bootstrap *b)
{
	return b->bereaved;
}
