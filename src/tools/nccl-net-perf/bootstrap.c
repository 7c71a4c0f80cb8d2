/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's end of the bootstrap star. */
#include "tools/nccl-net-perf/bootstrap.h"
#include "tools/nccl-net-perf/bootstrap_wire.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tools/common/clock.h"

#define RETRY_US 20000 /* between two tries to reach the root */

struct np_bootstrap {
	struct np_sock sock;
	int rank;
	int nranks;
	double timeout_s;
	bool bereaved;
};

/* ---- meeting the root ----------------------------------------------------------------------- */

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

enum meeting { MET, LOST, REFUSED };

/* What the root makes of us. REFUSED: with a reason. */
static enum meeting judge(const char *address, const struct ha_job_key *key,
			  const struct np_hello *hello, const struct np_welcome *welcome, char *err,
			  size_t err_len)
{
	const char *wrong = NULL;

	if (welcome->magic != NP_HELLO_MAGIC)
		wrong = "answers what no root does: has it another version?";
	else if (welcome->verdict == NP_REFUSED_KEY)
		wrong = key ? "refuses our job key: HA_NCCL_JOB_KEY_FILE must name the same 32 "
			      "bytes on every host"
			    : "has a job key, and this rank has none: set HA_NCCL_JOB_KEY_FILE on "
			      "every host";
	else if (welcome->verdict != NP_WELCOME)
		wrong = "awaits no such rank: were all ranks started with the same number of them, "
			"each with another --rank?";
	else if (!np_welcome_is_genuine(key, hello, welcome))
		wrong = "does not prove that it has our job key: it is not the root of this job, "
			"or HA_NCCL_JOB_KEY_FILE is another file there";
	if (!wrong)
		return MET;
	np_fail(err, err_len, "the root at %s %s", address, wrong);
	return REFUSED;
}

/* Over a socket that has just been connected. LOST: it has ended, or nothing came. */
static enum meeting greet(struct np_bootstrap *b, const char *address, uint64_t token,
			  const struct ha_job_key *key, uint64_t deadline_ns, char *err,
			  size_t err_len)
{
	struct np_hello hello = {.magic = NP_HELLO_MAGIC,
				 .token = token,
				 .rank = (uint32_t)b->rank,
				 .nranks = (uint32_t)b->nranks};
	struct np_frame ready = {.rank = (uint32_t)b->rank};
	struct np_welcome welcome;
	enum meeting meeting;

	np_draw_nonce(hello.nonce);
	if (!np_hello_seal(key, &hello) ||
	    !np_send_all(&b->sock, &hello, sizeof(hello), deadline_ns) ||
	    !np_recv_all(&b->sock, &welcome, sizeof(welcome), deadline_ns))
		return LOST;
	meeting = judge(address, key, &hello, &welcome, err, err_len);
	if (meeting == MET && (!np_sock_authenticate(&b->sock, key, &hello, &welcome) ||
			       !np_frame_send(&b->sock, &ready, NULL, 0, deadline_ns)))
		return LOST;
	return meeting;
}

/* It may come up later, and have many strangers at its door meanwhile. */
static enum meeting meet(struct np_bootstrap *b, const struct addrinfo *list, const char *address,
			 uint64_t token, const struct ha_job_key *key, char *err, size_t err_len)
{
	uint64_t deadline_ns = np_now_ns() + (uint64_t)(b->timeout_s * 1e9);
	enum meeting meeting;
	int one = 1;

	for (;;) {
		b->sock = (struct np_sock){
		    .fd = try_connect(list), .stop_fd = -1, .self = NP_SPEAKER_RANK};
		meeting = LOST;
		if (b->sock.fd >= 0) {
			setsockopt(b->sock.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
			meeting = greet(b, address, token, key, deadline_ns, err, err_len);
		}
		if (meeting == LOST)
			np_fail(err, err_len, "cannot reach the root at %s: %s", address,
				strerror(errno));
		if (meeting == MET)
			return MET;
		np_sock_close(&b->sock);
		if (meeting == REFUSED || np_now_ns() >= deadline_ns)
			return meeting;
		usleep(RETRY_US);
	}
}

struct np_bootstrap *np_bootstrap_connect(const char *address, int rank, int nranks, uint64_t token,
					  const struct ha_job_key *key, double timeout_s, char *err,
					  size_t err_len)
{
	struct addrinfo *list = np_resolve(address, false, err, err_len);
	struct np_bootstrap *b = calloc(1, sizeof(*b));
	enum meeting meeting = LOST;

	if (!b)
		np_fail(err, err_len, "out of memory");
	if (b && list) {
		b->rank = rank;
		b->nranks = nranks;
		b->timeout_s = timeout_s;
		meeting = meet(b, list, address, token, key, err, err_len);
	}
	if (list)
		freeaddrinfo(list);
	if (meeting == MET)
		return b;
	free(b);
	return NULL;
}

void np_bootstrap_close(struct np_bootstrap *b)
{
	if (!b)
		return;
	np_sock_close(&b->sock);
	free(b);
}

/* ---- gathering ------------------------------------------------------------------------------ */

static bool lost(const struct np_bootstrap *b, char *err, size_t err_len)
{
	if (errno == ETIMEDOUT)
		return np_fail(err, err_len, "the other ranks did not answer within %.0f s",
			       b->timeout_s);
	if (errno == EBADMSG)
		return np_fail(err, err_len,
			       "what came in the root's name has no right code by the job's key");
	return np_fail(err, err_len, "lost the root: %s", strerror(errno));
}

bool np_bootstrap_gather(struct np_bootstrap *b, const void *mine, void *all, size_t len, char *err,
			 size_t err_len)
{
	uint64_t deadline = np_now_ns() + (uint64_t)(b->timeout_s * 1e9);
	struct np_frame frame = {.len = (uint32_t)len, .rank = (uint32_t)b->rank};
	bool sent;

	/* When the root has gone its last word may still be there to read. */
	sent = np_frame_send(&b->sock, &frame, mine, len, deadline);
	if ((!sent && errno == ETIMEDOUT) ||
	    !np_recv_all(&b->sock, &frame, sizeof(frame), deadline))
		return lost(b, err, err_len);
	if (frame.len == NP_FRAME_ABORT) {
		if (!np_frame_recv(&b->sock, &frame, NULL, 0, deadline))
			return lost(b, err, err_len);
		b->bereaved = true;
		return np_fail(err, err_len, "rank %u has left", frame.rank);
	}
	if (frame.len != len)
		return np_fail(err, err_len,
			       "ranks disagree on what they exchange (%zu and %u bytes): "
			       "were they started with different options?",
			       len, frame.len);
	if (!np_frame_recv(&b->sock, &frame, all, len * (size_t)b->nranks, deadline))
		return lost(b, err, err_len);
	return true;
}

bool np_bootstrap_bereaved(const struct np_bootstrap *b)
{
	return b->bereaved;
}
