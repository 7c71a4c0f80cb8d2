/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as what a rank of nccl-net-perf says to the root, and the root to a rank: a greeting
 * that is not right is closed and forgotten, a gather ends for everybody or has each rank's bytes
 * in their place, and nothing waits for what does not come. In a job with a key too, where frames
 * may get their right codes, so that what is behind the check is reached.
 *
 * Input: byte 0: who is spoken to, whether its greeting is put right, and whether there is a key;
 * then for the root the length of what rank 0 says (2 bytes) and that, the rest is rank 1's: a
 * hello, what answers the welcome, and frames.
 */
#include "../made_key.h"
#include "fuzz.h"

#include "tools/nccl-net-perf/bootstrap.c"
#include "tools/nccl-net-perf/bootstrap_root.c"
#include "tools/nccl-net-perf/bootstrap_wire.c"

enum { TO_RANK = 1, RIGHT_HELLO = 2, KEYED = 4, RIGHT_CODES = 8 };

#define RANKS 2
#define TOKEN 77

struct said {
	struct np_hello hello;
	struct np_frame ready, frame;
	uint8_t bytes[8];
};

static struct gather {
	uint8_t how, length[2];
	uint8_t said[2 * sizeof(struct said)];
} gather, keyed_gather;

static struct {
	uint8_t how;
	uint8_t said[sizeof(struct np_frame) + RANKS * 8];
} answer, keyed_answer, abort_told;

const struct fuzz_seed fuzz_seeds[] = {
    {&gather, sizeof(gather)},	       {&keyed_gather, sizeof(keyed_gather)},
    {&answer, sizeof(answer)},	       {&keyed_answer, sizeof(keyed_answer)},
    {&abort_told, sizeof(abort_told)}, {NULL, 0},
};

static struct ha_job_key *the_key;

__attribute__((constructor)) static void make_seeds(void)
{
	the_key = made_key(7);
	gather.how = RIGHT_HELLO;
	gather.length[1] = sizeof(struct said);
	for (uint32_t rank = 0; rank < RANKS; rank++) {
		struct said said = {.hello = {NP_HELLO_MAGIC, TOKEN, rank, RANKS, 0, {0}, {0}},
				    .ready = {.rank = rank},
				    .frame = {.len = 8, .rank = rank},
				    .bytes = {(uint8_t)(1 + rank)}};

		memcpy(gather.said + rank * sizeof(said), &said, sizeof(said));
	}
	keyed_gather = gather;
	keyed_gather.how |= KEYED | RIGHT_CODES;
	answer.how = abort_told.how = TO_RANK;
	memcpy(answer.said, &(struct np_frame){.len = 8}, sizeof(struct np_frame));
	keyed_answer = answer;
	keyed_answer.how |= KEYED | RIGHT_CODES;
	memcpy(abort_told.said, &(struct np_frame){.len = NP_FRAME_ABORT, .rank = 1},
	       sizeof(struct np_frame));
}

/* ---- saying it ------------------------------------------------------------------------------- */

/* One end of a new socket that never waits; the other is *other. */
static int new_socket(int *other)
{
	int fds[2];

	FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
	*other = fds[1];
	return fds[0];
}

static void say(const struct np_sock *sock, const void *bytes, size_t size)
{
	/* Who heard something wrong has hung up; and many frames without a listener fill a socket.
	 */
	if (send(sock->fd, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)size)
		FUZZ_CHECK(errno == EPIPE || errno == ECONNRESET || errno == EAGAIN);
}

/* As they come, or frame by frame, each with its right code. */
static void say_frames(struct np_sock *sock, const uint8_t *bytes, size_t size, uint8_t how)
{
	while (how & RIGHT_CODES && sock->keyed && size >= sizeof(struct np_frame)) {
		uint8_t code[HA_CODE_BYTES];
		struct np_frame frame;
		struct ha_statement said;
		size_t len;

		memcpy(&frame, bytes, sizeof(frame));
		len = frame.len == NP_FRAME_ABORT ? 0 : frame.len;
		if (len > size - sizeof(frame))
			break;
		said = statement(sock->self, sock->said++, &frame, bytes + sizeof(frame), len);
		ha_statement_code(&sock->key, &said, code);
		say(sock, bytes, sizeof(frame) + len);
		say(sock, code, sizeof(code));
		bytes += sizeof(frame) + len;
		size -= sizeof(frame) + len;
	}
	say(sock, bytes, size);
}

/* ---- the root -------------------------------------------------------------------------------- */

static void check_heard(struct np_sock *rank, const struct np_root *root)
{
	struct np_frame frame;
	char bytes[4096];
	ssize_t n = recv(rank->fd, &frame, sizeof(frame), MSG_DONTWAIT);

	if (n <= 0)
		return;
	FUZZ_CHECK(n == sizeof(frame));
	if (frame.len == NP_FRAME_ABORT) {
		FUZZ_CHECK(frame.rank < RANKS);
		FUZZ_CHECK(np_frame_recv(rank, &frame, NULL, 0, 0));
	} else if (frame.len > 0 && frame.len <= sizeof(bytes) / RANKS) {
		FUZZ_CHECK(np_frame_recv(rank, &frame, bytes, frame.len * RANKS, 0));
		FUZZ_CHECK(root->frames != NULL);
	}
}

/* Greets, and hears what the root makes of it. True: it has its place. */
static bool admit(struct np_root *root, struct guest *guest, struct np_sock *rank,
		  struct np_hello *hello, const struct np_frame *ready, uint8_t how)
{
	struct np_welcome welcome;

	if (how & RIGHT_HELLO) {
		hello->magic = NP_HELLO_MAGIC;
		hello->token = TOKEN;
		hello->nranks = RANKS;
		FUZZ_CHECK(np_hello_seal(root->key, hello));
	}
	say(rank, hello, sizeof(*hello));
	FUZZ_CHECK(!is_rank(root, guest));
	if (recv(rank->fd, &welcome, sizeof(welcome), MSG_DONTWAIT) != sizeof(welcome))
		return false;
	FUZZ_CHECK(np_hello_is_genuine(root->key, hello) || welcome.verdict == NP_REFUSED_KEY);
	if (welcome.verdict != NP_WELCOME)
		return false;
	FUZZ_CHECK(np_welcome_is_genuine(root->key, hello, &welcome));
	FUZZ_CHECK(np_sock_authenticate(rank, root->key, hello, &welcome));
	say_frames(rank, (const uint8_t *)ready, sizeof(*ready), how);
	if (is_rank(root, guest))
		return true;
	if (guest->sock.fd >= 0) /* it waits for more, and there is none */
		show_out(guest);
	return false;
}

/* What one rank says. True: it is in its place. */
static bool talk(struct np_root *root, struct np_sock *rank, const uint8_t *bytes, size_t size,
		 uint32_t number, uint8_t how)
{
	struct guest guest = {.sock = {.stop_fd = -1, .self = NP_SPEAKER_ROOT}};
	struct said said = {0};
	size_t head = offsetof(struct said, frame);
	bool in;

	*rank = (struct np_sock){.stop_fd = -1, .self = NP_SPEAKER_RANK};
	guest.sock.fd = new_socket(&rank->fd);
	memcpy(&said, bytes, size < head ? size : head);
	if (how & RIGHT_HELLO) {
		said.hello.rank = number;
		said.ready = (struct np_frame){.rank = number};
	}
	in = admit(root, &guest, rank, &said.hello, &said.ready, how);
	FUZZ_CHECK(in || guest.sock.fd < 0);
	FUZZ_CHECK(in || !(how & RIGHT_HELLO) || (how & KEYED && !(how & RIGHT_CODES)));
	FUZZ_CHECK(!in || !(how & KEYED) || how & RIGHT_CODES);
	if (in && size > head)
		say_frames(rank, bytes + head, size - head, how);
	shutdown(rank->fd, SHUT_WR);
	return in;
}

static void to_root(uint8_t *bytes, size_t size, uint8_t how)
{
	struct np_sock socks[RANKS] = {{.fd = -1}, {.fd = -1}}, ranks[RANKS];
	struct np_root root = {.stop_fd = -1,
			       .nranks = RANKS,
			       .token = TOKEN,
			       .key = how & KEYED ? the_key : NULL,
			       .key_refused = true, /* and told */
			       .socks = socks};
	struct pollfd polls[RANKS + 1];
	size_t length[RANKS];
	bool have[RANKS];
	int present = 0;

	if (size < 2)
		return;
	length[0] = (size_t)bytes[0] << 8 | bytes[1];
	bytes += 2;
	size -= 2;
	if (length[0] > size)
		length[0] = size;
	length[1] = size - length[0];
	for (uint32_t r = 0; r < RANKS; r++) {
		present += talk(&root, &ranks[r], bytes, length[r], r, how);
		bytes += length[r];
	}
	FUZZ_CHECK(present == (socks[0].fd >= 0) + (socks[1].fd >= 0));
	for (int gathers = 0; present == RANKS && gathers < 100; gathers++)
		if (!serve_gather(&root, polls, have))
			break;
	for (int r = 0; r < RANKS; r++) {
		if (present == RANKS)
			check_heard(&ranks[r], &root);
		np_sock_close(&ranks[r]);
		np_sock_close(&socks[r]);
	}
	free(root.frames);
}

/* ---- a rank ---------------------------------------------------------------------------------- */

static void to_rank(const uint8_t *bytes, size_t size, uint8_t how)
{
	char err[200] = "", mine[8] = "mine", all[RANKS * sizeof(mine) + 1];
	struct np_bootstrap rank = {.nranks = RANKS, .timeout_s = 10};
	struct np_sock root = {.stop_fd = -1, .self = NP_SPEAKER_ROOT};
	const struct ha_job_key *key = how & KEYED ? the_key : NULL;
	struct np_hello hello = {0};
	struct np_welcome welcome = {0};
	bool gathered;

	rank.sock = (struct np_sock){.stop_fd = -1, .self = NP_SPEAKER_RANK};
	rank.sock.fd = new_socket(&root.fd);
	FUZZ_CHECK(np_sock_authenticate(&rank.sock, key, &hello, &welcome));
	FUZZ_CHECK(np_sock_authenticate(&root, key, &hello, &welcome));
	say_frames(&root, bytes, size, how);
	shutdown(root.fd, SHUT_WR);
	all[sizeof(all) - 1] = 0x5a;
	gathered = np_bootstrap_gather(&rank, mine, all, sizeof(mine), err, sizeof(err));
	FUZZ_CHECK(!gathered || size >= sizeof(struct np_frame) + sizeof(all) - 1);
	FUZZ_CHECK(!gathered || !key || how & RIGHT_CODES);
	FUZZ_CHECK(gathered || err[0] != '\0');
	FUZZ_CHECK(all[sizeof(all) - 1] == 0x5a);
	FUZZ_CHECK(!np_bootstrap_bereaved(&rank) || size >= sizeof(struct np_frame));
	np_sock_close(&root);
	np_sock_close(&rank.sock);
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
		to_rank(bytes + 1, size - 1, data[0]);
	else
		to_root(bytes + 1, size - 1, data[0]);
	free(bytes);
	return 0;
}
