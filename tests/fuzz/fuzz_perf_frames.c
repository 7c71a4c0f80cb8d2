/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as what a rank of nccl-net-perf says to the root, and the root to a rank: a hello that
 * is not right is closed and forgotten, a gather ends for everybody or has each rank's bytes in
 * their place, and nothing waits for what does not come.
 *
 * Input: byte 0: who is spoken to, and whether the hello is put right; then for the root the length
 * of what rank 0 says (2 bytes) and that, the rest is rank 1's.
 */
#include "fuzz.h"

#include "tools/nccl-net-perf/bootstrap.c"

#include <fcntl.h>

enum { TO_RANK = 1, RIGHT_HELLO = 2 };

#define RANKS 2
#define TOKEN 77

struct said {
	struct hello hello;
	struct frame frame;
	uint8_t bytes[8];
};

static struct {
	uint8_t how, length[2];
	uint8_t said[2 * sizeof(struct said)];
} gather;

static struct {
	uint8_t how;
	uint8_t said[sizeof(struct frame) + RANKS * 8];
} answer, abort_told;

const struct fuzz_seed fuzz_seeds[] = {
    {&gather, sizeof(gather)},
    {&answer, sizeof(answer)},
    {&abort_told, sizeof(abort_told)},
    {NULL, 0},
};

__attribute__((constructor)) static void make_seeds(void)
{
	gather.how = RIGHT_HELLO;
	gather.length[1] = sizeof(struct said);
	for (uint32_t rank = 0; rank < RANKS; rank++) {
		struct said said = {.hello = {HELLO_MAGIC, TOKEN, rank, RANKS},
				    .frame = {.len = 8, .rank = rank},
				    .bytes = {(uint8_t)(1 + rank)}};

		memcpy(gather.said + rank * sizeof(said), &said, sizeof(said));
	}
	answer.how = abort_told.how = TO_RANK;
	memcpy(answer.said, &(struct frame){.len = 8}, sizeof(struct frame));
	memcpy(abort_told.said, &(struct frame){.len = FRAME_ABORT, .rank = 1},
	       sizeof(struct frame));
}

/* A socket on which this was said, and no more will be. */
static int said_on(const uint8_t *bytes, size_t size, int *other)
{
	int fds[2];

	FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
	FUZZ_CHECK(send(fds[1], bytes, size, MSG_NOSIGNAL) == (ssize_t)size);
	shutdown(fds[1], SHUT_WR);
	*other = fds[1];
	return fds[0];
}

/* ---- the root -------------------------------------------------------------------------------- */

static void check_heard(int fd, const struct np_root *root)
{
	struct frame frame;
	char bytes[4096];
	ssize_t n = recv(fd, &frame, sizeof(frame), MSG_DONTWAIT);

	if (n <= 0)
		return;
	FUZZ_CHECK(n == sizeof(frame));
	if (frame.len == FRAME_ABORT)
		FUZZ_CHECK(frame.rank < RANKS);
	else if (frame.len > 0 && frame.len <= sizeof(bytes) / RANKS) {
		n = recv(fd, bytes, frame.len * RANKS, MSG_DONTWAIT);
		FUZZ_CHECK(n == (ssize_t)frame.len * RANKS);
		FUZZ_CHECK(root->frames != NULL);
	}
}

static void put_right(uint8_t *bytes, size_t size, uint32_t rank)
{
	struct hello hello = {HELLO_MAGIC, TOKEN, rank, RANKS};

	if (size >= sizeof(hello))
		memcpy(bytes, &hello, sizeof(hello));
}

/* All that it says is there already. */
static int admit(struct np_root *root, int fd)
{
	struct guest guest = {.fd = fd};

	while (guest.fd >= 0)
		if (is_rank(root, &guest))
			return 1;
	return 0;
}

static void to_root(uint8_t *bytes, size_t size, bool right)
{
	int fds[RANKS] = {-1, -1}, others[RANKS], present = 0;
	struct np_root root = {.stop_fd = -1, .nranks = RANKS, .token = TOKEN, .fds = fds};
	struct pollfd polls[RANKS + 1];
	size_t length[RANKS];
	bool have[RANKS];

	if (size < 2)
		return;
	length[0] = (size_t)bytes[0] << 8 | bytes[1];
	bytes += 2;
	size -= 2;
	if (length[0] > size)
		length[0] = size;
	length[1] = size - length[0];
	for (uint32_t r = 0; r < RANKS; r++) {
		if (right)
			put_right(bytes, length[r], r);
		present += admit(&root, said_on(bytes, length[r], &others[r]));
		bytes += length[r];
	}
	FUZZ_CHECK(present == (fds[0] >= 0) + (fds[1] >= 0));
	FUZZ_CHECK(!right || length[0] < sizeof(struct hello) || fds[0] >= 0);
	for (int gathers = 0; present == RANKS && gathers < 100; gathers++)
		if (!serve_gather(&root, polls, have))
			break;
	for (int r = 0; r < RANKS; r++) {
		check_heard(others[r], &root);
		close(others[r]);
		if (fds[r] >= 0)
			close(fds[r]);
	}
	free(root.frames);
}

/* ---- a rank ---------------------------------------------------------------------------------- */

static void to_rank(const uint8_t *bytes, size_t size)
{
	char err[200] = "", mine[8] = "mine", all[RANKS * sizeof(mine) + 1];
	struct np_bootstrap rank = {.nranks = RANKS, .timeout_s = 10};
	int other;

	rank.fd = said_on(bytes, size, &other);
	all[sizeof(all) - 1] = 0x5a;
	if (np_bootstrap_gather(&rank, mine, all, sizeof(mine), err, sizeof(err)))
		FUZZ_CHECK(size >= sizeof(struct frame) + sizeof(all) - 1);
	else
		FUZZ_CHECK(err[0] != '\0');
	FUZZ_CHECK(all[sizeof(all) - 1] == 0x5a);
	FUZZ_CHECK(!np_bootstrap_bereaved(&rank) || size >= sizeof(struct frame));
	close(other);
	close(rank.fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *bytes;

	if (size < 1 || size > 65536)
		return 0;
	bytes = malloc(size);
	FUZZ_CHECK(bytes);
	memcpy(bytes, data, size);
	if (data[0] & TO_RANK)
		to_rank(bytes + 1, size - 1);
	else
		to_root(bytes + 1, size - 1, data[0] & RIGHT_HELLO);
	free(bytes);
	return 0;
}
