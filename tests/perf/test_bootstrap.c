/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How ranks of nccl-net-perf find each other: in spite of strangers, and in a job with a key only
 * who has it.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "../made_key.h"
#include "tools/common/clock.h"
#include "tools/nccl-net-perf/bootstrap.h"
#include "tools/nccl-net-perf/bootstrap_root.h"
#include "tools/nccl-net-perf/bootstrap_wire.h"

#define TOKEN 0x1234567890abcdefull

struct member {
	const char *address;
	const struct ha_job_key *key;
	int rank;
	int rounds; /* then it leaves */
	int completed;
	char err[200];
};

static void *member_main(void *arg)
{
	struct member *m = arg;
	struct np_bootstrap *b;
	int all[3];

	b = np_bootstrap_connect(m->address, m->rank, 3, TOKEN, m->key, 10, m->err, sizeof(m->err));
	for (int i = 0; b && i < m->rounds; i++) {
		int mine = 100 * i + m->rank;

		if (!np_bootstrap_gather(b, &mine, all, sizeof(mine), m->err, sizeof(m->err)))
			break;
		for (int r = 0; r < 3; r++)
			if (all[r] != 100 * i + r)
				snprintf(m->err, sizeof(m->err), "round %d is wrong", i);
		m->completed++;
	}
	np_bootstrap_close(b);
	return NULL;
}

static void run_members(const char *address, struct member *members)
{
	pthread_t threads[3];

	for (int r = 0; r < 3; r++) {
		members[r].address = address;
		members[r].rank = r;
		assert_int_equal(pthread_create(&threads[r], NULL, member_main, &members[r]), 0);
	}
	for (int r = 0; r < 3; r++)
		pthread_join(threads[r], NULL);
}

static int connect_to(const char *address)
{
	struct sockaddr_in to = {.sin_family = AF_INET};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	to.sin_port = htons((uint16_t)atoi(strrchr(address, ':') + 1));
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	return fd;
}

static void ranks_meet_in_spite_of_strangers(void **state)
{
	struct member members[3] = {{.rounds = 50}, {.rounds = 50}, {.rounds = 50}};
	char address[NP_ADDRESS_LEN], err[200], junk[64];
	struct np_root *root = np_root_start(NULL, 3, TOKEN, NULL, address, err, sizeof(err));
	int strangers[3];

	(void)state;
	assert_non_null(root);
	memset(junk, 'x', sizeof(junk));
	for (int i = 0; i < 3; i++)
		strangers[i] = connect_to(address);
	/* Nonsense, an early end, and silence. */
	assert_int_equal(send(strangers[0], junk, sizeof(junk), MSG_NOSIGNAL), sizeof(junk));
	close(strangers[1]);
	run_members(address, members);
	for (int r = 0; r < 3; r++) {
		assert_string_equal(members[r].err, "");
		assert_int_equal(members[r].completed, 50);
	}
	close(strangers[0]);
	close(strangers[2]);
	np_root_stop(root);
}

/* One after the other they would take more than two minutes. */
static void strangers_who_say_nothing_hold_up_nobody(void **state)
{
	struct member members[3] = {{.rounds = 1}, {.rounds = 1}, {.rounds = 1}};
	char address[NP_ADDRESS_LEN], err[200];
	struct np_root *root = np_root_start(NULL, 3, TOKEN, NULL, address, err, sizeof(err));
	uint64_t began_ns;
	int strangers[80];

	(void)state;
	assert_non_null(root);
	for (int i = 0; i < 80; i++) {
		strangers[i] = connect_to(address);
		if (i % 2)
			assert_int_equal(send(strangers[i], "x", 1, MSG_NOSIGNAL), 1);
	}
	began_ns = np_now_ns();
	run_members(address, members);
	assert_in_range(np_now_ns() - began_ns, 0, 1500 * NP_NS_PER_MS);
	for (int r = 0; r < 3; r++) {
		assert_string_equal(members[r].err, "");
		assert_int_equal(members[r].completed, 1);
	}
	for (int i = 0; i < 80; i++)
		close(strangers[i]);
	np_root_stop(root);
}

static void a_rank_that_leaves_is_named_to_the_others(void **state)
{
	struct member members[3] = {{.rounds = 50}, {.rounds = 3}, {.rounds = 50}};
	char address[NP_ADDRESS_LEN], err[200];
	struct np_root *root = np_root_start(NULL, 3, TOKEN, NULL, address, err, sizeof(err));

	(void)state;
	assert_non_null(root);
	run_members(address, members);
	assert_string_equal(members[0].err, "rank 1 has left");
	assert_string_equal(members[2].err, "rank 1 has left");
	assert_int_equal(members[0].completed, 3);
	np_root_stop(root);
}

static void a_root_whose_ranks_never_come_can_be_stopped(void **state)
{
	char address[NP_ADDRESS_LEN], err[200];
	uint64_t begun = np_now_ns();
	struct np_root *root = np_root_start(NULL, 3, TOKEN, NULL, address, err, sizeof(err));

	(void)state;
	assert_non_null(root);
	np_root_stop(root);
	assert_true(np_now_ns() - begun < 5 * NP_NS_PER_S);
}

/* ---- bootstrap of a job with a key ----------------------------------------------------------- */

/* What somebody says who has the key, or has heard it said. */
struct talk {
	struct np_sock sock;
	struct np_hello hello;
	struct np_welcome welcome;
};

static void say_hello(const char *address, const struct ha_job_key *key, uint32_t rank,
		      struct talk *t)
{
	uint64_t deadline_ns = np_now_ns() + 10 * NP_NS_PER_S;

	t->sock =
	    (struct np_sock){.fd = connect_to(address), .stop_fd = -1, .self = NP_SPEAKER_RANK};
	if (t->hello.magic == 0) {
		t->hello = (struct np_hello){
		    .magic = NP_HELLO_MAGIC, .token = TOKEN, .rank = rank, .nranks = 3};
		np_draw_nonce(t->hello.nonce);
		assert_true(np_hello_seal(key, &t->hello));
	}
	assert_true(np_send_all(&t->sock, &t->hello, sizeof(t->hello), deadline_ns));
	assert_true(np_recv_all(&t->sock, &t->welcome, sizeof(t->welcome), deadline_ns));
}

static bool was_hung_up(struct talk *t)
{
	char byte;
	bool ended = !np_recv_all(&t->sock, &byte, 1, np_now_ns() + 10 * NP_NS_PER_S);

	ended = ended && errno == ECONNRESET;
	np_sock_close(&t->sock);
	return ended;
}

/* The ranks that are missing come, and nobody has their places. */
static void expect_that_ranks_meet(const char *address, const struct ha_job_key *key)
{
	struct member members[3] = {{.rounds = 5}, {.rounds = 5}, {.rounds = 5}};

	for (int r = 0; r < 3; r++)
		members[r].key = key;
	run_members(address, members);
	for (int r = 0; r < 3; r++) {
		assert_string_equal(members[r].err, "");
		assert_int_equal(members[r].completed, 5);
	}
}

static void ranks_with_the_key_meet_and_a_hello_without_it_takes_no_place(void **state)
{
	struct ha_job_key *key = made_key(7), *other = made_key(8);
	const struct ha_job_key *strangers[] = {NULL, other};
	char address[NP_ADDRESS_LEN], err[200];
	struct np_root *root = np_root_start(NULL, 3, TOKEN, key, address, err, sizeof(err));

	(void)state;
	assert_non_null(root);
	for (unsigned i = 0; i < 2; i++) {
		struct talk talk = {0};

		say_hello(address, strangers[i], 1, &talk);
		assert_int_equal(talk.welcome.verdict, NP_REFUSED_KEY);
		assert_true(was_hung_up(&talk));
	}
	expect_that_ranks_meet(address, key);
	np_root_stop(root);
	ha_job_key_free(key);
	ha_job_key_free(other);
}

static void a_hello_that_was_recorded_takes_no_place(void **state)
{
	struct ha_job_key *key = made_key(7);
	char address[NP_ADDRESS_LEN], err[200];
	struct np_root *root = np_root_start(NULL, 3, TOKEN, key, address, err, sizeof(err));
	struct np_root *again;
	struct np_frame ready = {.rank = 1};
	struct talk talk = {0};
	uint8_t recorded[HA_CODE_BYTES];
	struct ha_statement said = {
	    .speaker = NP_SPEAKER_RANK, .head = &ready, .head_length = sizeof(ready)};

	(void)state;
	assert_non_null(root);
	say_hello(address, key, 1, &talk);
	assert_int_equal(talk.welcome.verdict, NP_WELCOME);
	assert_true(np_sock_authenticate(&talk.sock, key, &talk.hello, &talk.welcome));
	ha_statement_code(&talk.sock.key, &said, recorded);
	np_sock_close(&talk.sock);
	np_root_stop(root);

	/* All of it, word by word, at another root of the job. */
	again = np_root_start(NULL, 3, TOKEN, key, address, err, sizeof(err));
	assert_non_null(again);
	say_hello(address, key, 1, &talk);
	assert_int_equal(talk.welcome.verdict, NP_WELCOME); /* to be proved yet */
	assert_true(np_send_all(&talk.sock, &ready, sizeof(ready), UINT64_MAX));
	assert_true(np_send_all(&talk.sock, recorded, sizeof(recorded), UINT64_MAX));
	assert_true(was_hung_up(&talk));
	expect_that_ranks_meet(address, key);
	np_root_stop(again);
	ha_job_key_free(key);
}

/* A root of whoever was faster, at the address where ranks look for theirs. */
static void who_has_not_the_key_is_not_taken_for_the_root(void **state)
{
	struct ha_job_key *key = made_key(7), *other = made_key(8);
	const struct ha_job_key *roots[] = {NULL, other};

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		char address[NP_ADDRESS_LEN], err[200];
		struct np_root *root =
		    np_root_start(NULL, 3, TOKEN, roots[i], address, err, sizeof(err));
		uint64_t began_ns = np_now_ns();

		assert_non_null(root);
		assert_null(np_bootstrap_connect(address, 0, 3, TOKEN, key, 60, err, sizeof(err)));
		assert_non_null(strstr(err, "refuses our job key"));
		assert_non_null(strstr(err, address));
		assert_in_range(np_now_ns() - began_ns, 0, 10 * NP_NS_PER_S); /* once */
		np_root_stop(root);
	}
	ha_job_key_free(key);
	ha_job_key_free(other);
}

/* It welcomes everybody and proves nothing. */
static void *impostor_main(void *arg)
{
	int listen_fd = *(const int *)arg, fd = accept(listen_fd, NULL, NULL);
	struct np_sock sock = {.fd = fd, .stop_fd = -1, .self = NP_SPEAKER_ROOT};
	struct np_welcome welcome = {.magic = NP_HELLO_MAGIC, .verdict = NP_WELCOME};
	struct np_hello hello;

	if (np_recv_all(&sock, &hello, sizeof(hello), UINT64_MAX))
		(void)np_send_all(&sock, &welcome, sizeof(welcome), UINT64_MAX);
	(void)np_recv_all(&sock, &hello, sizeof(hello), UINT64_MAX); /* until it leaves */
	np_sock_close(&sock);
	return NULL;
}

static void nor_is_who_welcomes_everybody(void **state)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at);
	struct ha_job_key *key = made_key(7);
	char address[NP_ADDRESS_LEN], err[200];
	int listen_fd = socket(AF_INET, SOCK_STREAM, 0);
	pthread_t impostor;

	(void)state;
	assert_int_equal(bind(listen_fd, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(listen_fd, 1), 0);
	assert_int_equal(getsockname(listen_fd, (struct sockaddr *)&at, &len), 0);
	snprintf(address, sizeof(address), "127.0.0.1:%u", ntohs(at.sin_port));
	assert_int_equal(pthread_create(&impostor, NULL, impostor_main, &listen_fd), 0);
	assert_null(np_bootstrap_connect(address, 0, 3, TOKEN, key, 60, err, sizeof(err)));
	assert_non_null(strstr(err, "does not prove that it has our job key"));
	pthread_join(impostor, NULL);
	close(listen_fd);
	ha_job_key_free(key);
}

/* ---- frames ---------------------------------------------------------------------------------- */

/* Both ends of a socket on which nothing was said. */
struct ends {
	struct np_sock rank, root;
};

static struct ends two_ends(const struct ha_job_key *key)
{
	struct np_hello hello = {.rank = 1};
	struct np_welcome welcome = {0};
	struct ends ends;
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	ends.rank = (struct np_sock){.fd = fds[0], .stop_fd = -1, .self = NP_SPEAKER_RANK};
	ends.root = (struct np_sock){.fd = fds[1], .stop_fd = -1, .self = NP_SPEAKER_ROOT};
	assert_true(np_sock_authenticate(&ends.rank, key, &hello, &welcome));
	assert_true(np_sock_authenticate(&ends.root, key, &hello, &welcome));
	return ends;
}

static void close_ends(struct ends *ends)
{
	np_sock_close(&ends->rank);
	np_sock_close(&ends->root);
}

#define BODY 5

struct bytes_said {
	struct np_frame frame;
	char body[BODY];
	uint8_t code[HA_CODE_BYTES];
} __attribute__((packed));

static struct bytes_said recorded(struct np_sock *from, struct np_sock *to, const char *body)
{
	struct np_frame frame = {.len = BODY, .rank = 1};
	struct bytes_said said;

	assert_true(np_frame_send(from, &frame, body, BODY, UINT64_MAX));
	assert_true(np_recv_all(to, &said, sizeof(said), UINT64_MAX));
	return said;
}

static bool is_believed(struct np_sock *from, struct np_sock *to, const struct bytes_said *said)
{
	struct np_frame head;
	char body[BODY];
	bool believed;

	assert_true(np_send_all(from, said, sizeof(*said), UINT64_MAX));
	assert_true(np_recv_all(to, &head, sizeof(head), UINT64_MAX));
	believed = np_frame_recv(to, &head, body, BODY, UINT64_MAX);
	assert_true(believed || errno == EBADMSG);
	return believed;
}

static void frames_are_believed_once_each_and_in_their_order(void **state)
{
	static const struct {
		unsigned first, second;
		bool first_is, second_is;
	} cases[] = {
	    {0, 1, true, true}, {0, 0, true, false}, {1, 0, false, false}, {0, 2, true, false}};
	struct ha_job_key *key = made_key(7);

	(void)state;
	for (unsigned c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
		struct ends ends = two_ends(key);
		struct bytes_said said[] = {recorded(&ends.rank, &ends.root, "first"),
					    recorded(&ends.rank, &ends.root, "other"),
					    recorded(&ends.rank, &ends.root, "third")};

		assert_int_equal(is_believed(&ends.rank, &ends.root, &said[cases[c].first]),
				 cases[c].first_is);
		assert_int_equal(is_believed(&ends.rank, &ends.root, &said[cases[c].second]),
				 cases[c].second_is);
		close_ends(&ends);
	}
	ha_job_key_free(key);
}

static void an_altered_frame_is_not_believed_nor_are_ones_own_words(void **state)
{
	struct ha_job_key *key = made_key(7);

	(void)state;
	for (size_t at = offsetof(struct np_frame, rank); at < sizeof(struct bytes_said); at++) {
		struct ends ends = two_ends(key);
		struct bytes_said said = recorded(&ends.rank, &ends.root, "first");

		((uint8_t *)&said)[at] ^= 1;
		assert_false(is_believed(&ends.rank, &ends.root, &said));
		said = recorded(&ends.root, &ends.rank, "first");
		ends.root.heard = 0;
		assert_false(is_believed(&ends.rank, &ends.root, &said));
		close_ends(&ends);
	}
	ha_job_key_free(key);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(ranks_with_the_key_meet_and_a_hello_without_it_takes_no_place),
	    cmocka_unit_test(a_hello_that_was_recorded_takes_no_place),
	    cmocka_unit_test(who_has_not_the_key_is_not_taken_for_the_root),
	    cmocka_unit_test(nor_is_who_welcomes_everybody),
	    cmocka_unit_test(frames_are_believed_once_each_and_in_their_order),
	    cmocka_unit_test(an_altered_frame_is_not_believed_nor_are_ones_own_words),
	    cmocka_unit_test(ranks_meet_in_spite_of_strangers),
	    cmocka_unit_test(strangers_who_say_nothing_hold_up_nobody),
	    cmocka_unit_test(a_rank_that_leaves_is_named_to_the_others),
	    cmocka_unit_test(a_root_whose_ranks_never_come_can_be_stopped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
