/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables for puts and signals of the plugin, of each version, as NCCL's proxy drives them: two
 * processes on a live fabric load the library, look the table up, and put into each other's memory
 * and their own, with a signal behind each put, while a port dies. Every byte is compared when its
 * signal has come, is overwritten then, and looked at again at the end, when each signal has to
 * have counted once.
 */
#include "../unit/cmocka_all.h"
#include "gin_api.h"
#include "pair.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define RANKS	 2
#define OPS	 400u
#define ROOM	 32u /* what NCCL has under way to a rank */
#define DATA	 3000u
#define STRIDE	 4096u
#define WINDOW	 (RANKS * OPS * STRIDE)
#define CONSUMED 0xc0
#define LIMIT_S	 60

static enum gin_api api;

/* Streams of this process that have gone on elsewhere; any thread may log. */
static atomic_uint moved;

static void logger(ncclDebugLogLevel level, unsigned long flags, const char *file, int line,
		   const char *fmt, ...)
{
	char text[1024];
	va_list args;

	(void)flags, (void)file, (void)line;
	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	if (strstr(text, "goes on over"))
		atomic_fetch_add(&moved, 1);
	if (level == NCCL_LOG_WARN)
		fprintf(stderr, "process %d: %s\n", (int)getpid(), text);
}

struct rank {
	const ncclGin_v11_t *gin;
	uint32_t me;
	void *ctx, *listen, *coll;
	uint8_t *to, *from;
	uint64_t *words; /* one for each rank */
	void *to_mr, *from_mr, *words_mr;
	atomic_bool has_memory;
	unsigned int begun[RANKS], done[RANKS]; /* to each */
	unsigned int told[RANKS];		/* from each */
	void *requests[RANKS][OPS];
};

static const ncclGin_v11_t *load(void)
{
	void *library = dlopen(HA_PLUGIN, RTLD_NOW | RTLD_LOCAL);
	const void *table;

	if (!library)
		fprintf(stderr, "%s\n", dlerror());
	NEED(library);
	table = dlsym(library, gin_api_symbols[api]);
	NEED(table);
	return gin_api_load(api, table);
}

/* As NCCL's proxy thread does, which all that wait here would be. */
static void nothing_is_lent_where_it_is_off(const ncclGin_v11_t *gin)
{
	uint8_t handle[NCCL_NET_HANDLE_MAXSIZE] = {0};
	void *ctx = NULL, *listen = NULL;
	int n = -1;

	unsetenv("HA_NCCL_GIN");
	NEED(gin->init(&ctx, 1, logger) == ncclSuccess && ctx);
	NEED(gin->devices(&n) == ncclSuccess && n == 0);
	NEED(gin->listen(ctx, 0, handle, &listen) == ncclInvalidUsage && !listen);
	NEED(gin->finalize(ctx) == ncclSuccess);
}

static void connect_ranks(struct rank *r, int peer_fd)
{
	uint8_t own[NCCL_NET_HANDLE_MAXSIZE] = {0}, other[NCCL_NET_HANDLE_MAXSIZE];
	void *handles[RANKS] = {own, other};
	ncclNetProperties_v11_t props;
	int n = 0;

	setenv("HA_NCCL_GIN", "1", 1);
	NEED(r->gin->init(&r->ctx, 1, logger) == ncclSuccess);
	NEED(r->gin->devices(&n) == ncclSuccess && n == 2);
	NEED(r->gin->getProperties(0, &props) == ncclSuccess);
	NEED(props.netDeviceType == NCCL_NET_DEVICE_GIN_PROXY && props.maxRecvs == 1);
	NEED(r->gin->listen(r->ctx, 0, own, &r->listen) == ncclSuccess);
	NEED(write(peer_fd, own, sizeof(own)) == sizeof(own));
	NEED(recv(peer_fd, other, sizeof(other), MSG_WAITALL) == sizeof(other));
	handles[r->me] = own;
	handles[1 - r->me] = other;
	NEED(r->gin->connect(r->ctx, handles, RANKS, (int)r->me, r->listen, &r->coll) ==
	     ncclSuccess);
}

static void *memory(size_t size)
{
	void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	NEED(at != MAP_FAILED);
	return at;
}

static void *register_one(const struct rank *r, void *data, size_t size, uint64_t flags)
{
	void *mr = NULL, *for_kernels = NULL;

	NEED(r->gin->regMrSym(r->coll, data, size, NCCL_PTR_HOST, flags, &mr, &for_kernels) ==
	     ncclSuccess);
	NEED(mr && mr == for_kernels); /* a kernel hands it back to NCCL's thread */
	return mr;
}

static uint32_t seed_of(uint32_t from, uint32_t to, unsigned int k)
{
	return from * 100000 + to * 10000 + k + 1;
}

static uint8_t *place(uint8_t *block, uint32_t rank, unsigned int k)
{
	return block + (size_t)(rank * OPS + k) * STRIDE;
}

/* NCCL's thread goes on while another one registers. */
static void *proxy(void *arg)
{
	const struct rank *r = arg;

	while (!atomic_load(&r->has_memory))
		NEED(r->gin->ginProgress(r->coll) == ncclSuccess);
	return NULL;
}

static void register_memory(struct rank *r)
{
	pthread_t thread;

	r->to = memory(WINDOW);
	r->from = memory(WINDOW);
	r->words = memory(4096);
	for (uint32_t to = 0; to < RANKS; to++)
		for (unsigned int k = 0; k < OPS; k++)
			for (size_t i = 0; i < DATA; i++)
				place(r->from, to, k)[i] = pattern(seed_of(r->me, to, k), i);
	NEED(pthread_create(&thread, NULL, proxy, r) == 0);
	r->to_mr = register_one(r, r->to, WINDOW, 0);
	r->from_mr = register_one(r, r->from, WINDOW, 0);
	r->words_mr = register_one(r, r->words, 4096, NCCL_NET_MR_FLAG_FORCE_SO);
	atomic_store(&r->has_memory, true);
	NEED(pthread_join(thread, NULL) == 0);
}

/* ---- operations ----------------------------------------------------------------------------- */

static void refused(const struct rank *r)
{
	void *request = r->coll;

	NEED(r->gin->iput(r->coll, 0, r->from_mr, DATA, 0, r->to_mr, RANKS, &request) ==
	     ncclInvalidArgument);
	NEED(!request);
	NEED(r->gin->iput(r->coll, 0, r->from_mr, WINDOW, 1, r->to_mr, 0, &request) ==
	     ncclInvalidArgument);
	NEED(r->gin->iputSignal(r->coll, 0, NULL, 0, 0, NULL, 0, 0, r->to_mr, 1,
				NCCL_NET_SIGNAL_OP_ADD, &request) == ncclInvalidArgument);
	NEED(r->gin->iputSignal(r->coll, 0, NULL, 0, 0, NULL, 0, 0, r->words_mr, 1, 7, &request) ==
	     ncclInvalidArgument);
}

/* Each other one by INC, whatever the value says. */
static void begin(struct rank *r, uint32_t to)
{
	const unsigned int k = r->begun[to]++;
	const size_t from_offset = (size_t)(place(r->from, to, k) - r->from);
	const size_t to_offset = (size_t)(place(r->to, r->me, k) - r->to);

	NEED(r->gin->iputSignal(r->coll, from_offset, r->from_mr, DATA, to_offset, r->to_mr, to,
				8 * r->me, r->words_mr, k % 2 ? 1 : 77,
				k % 2 ? NCCL_NET_SIGNAL_OP_ADD : NCCL_NET_SIGNAL_OP_INC,
				&r->requests[to][k]) == ncclSuccess);
	NEED(r->requests[to][k]);
}

static void test_oldest(struct rank *r, uint32_t to)
{
	int done = 1;

	while (done && r->done[to] < r->begun[to]) {
		NEED(r->gin->test(r->coll, r->requests[to][r->done[to]], &done) == ncclSuccess);
		if (done)
			memset(place(r->from, to, r->done[to]++), 0xde, DATA);
	}
}

/* By a NIC, not by this thread. */
static uint64_t word(const struct rank *r, uint32_t from)
{
	return __atomic_load_n(&r->words[from], __ATOMIC_ACQUIRE);
}

static void look(struct rank *r, uint32_t from)
{
	const uint64_t now = word(r, from);

	NEED(now <= OPS);
	for (; r->told[from] < now; r->told[from]++) {
		uint8_t *at = place(r->to, from, r->told[from]);

		for (size_t i = 0; i < DATA; i++)
			NEED(end_sees(at + i) == pattern(seed_of(from, r->me, r->told[from]), i));
		memset(at, CONSUMED, DATA);
	}
}

static bool is_finished(const struct rank *r)
{
	bool is = true;

	for (uint32_t i = 0; i < RANKS; i++)
		is &= r->done[i] == OPS && r->told[i] == OPS;
	return is;
}

/* The port dies when rank 0 has said that a quarter is through. */
static void exchange(struct rank *r, int test_fd)
{
	const double since = now_s();
	bool is_said = false;

	while (!is_finished(r)) {
		NEED(now_s() - since < LIMIT_S);
		NEED(r->gin->ginProgress(r->coll) == ncclSuccess);
		usleep(10); /* others are to run, too */
		for (uint32_t i = 0; i < RANKS; i++) {
			if (r->begun[i] < OPS && r->begun[i] - r->done[i] < ROOM)
				begin(r, i);
			test_oldest(r, i);
			look(r, i);
		}
		if (r->begun[1 - r->me] > OPS / 4) {
			if (r->me == 0 && !is_said)
				NEED(write(test_fd, "q", 1) == 1);
			is_said = true;
			usleep(1000);
		}
	}
}

static void nothing_comes_late(const struct rank *r)
{
	for (uint32_t from = 0; from < RANKS; from++) {
		NEED(word(r, from) == OPS);
		for (unsigned int k = 0; k < OPS; k++) {
			const uint8_t *at = place(r->to, from, k);

			for (size_t i = 0; i < STRIDE; i++)
				NEED(end_sees(at + i) == (i < DATA ? CONSUMED : 0));
		}
	}
}

static void wait_for(const struct rank *r, void *request)
{
	const double since = now_s();
	int done = 0;

	while (!done) {
		NEED(now_s() - since < LIMIT_S);
		NEED(r->gin->ginProgress(r->coll) == ncclSuccess);
		NEED(r->gin->test(r->coll, request, &done) == ncclSuccess);
	}
}

/* Where the version has them: what the other rank has in its window, and what cannot be. */
static void reads(const struct rank *r)
{
	const uint32_t peer = 1 - r->me;
	void *request;

	if (!gin_api_iget())
		return;
	for (unsigned int k = 0; k < 8; k++) {
		const size_t at = (size_t)(place(r->to, r->me, k) - r->to);

		NEED(gin_api_iget()(at, r->to_mr, DATA, at, r->from_mr, peer, &request) ==
		     ncclSuccess);
		wait_for(r, request);
		NEED(gin_api_iflush()(r->from_mr, peer, &request) == ncclSuccess);
		wait_for(r, request);
		for (size_t i = 0; i < DATA; i++)
			NEED(end_sees(r->from + at + i) == CONSUMED);
	}
	NEED(gin_api_iget()(WINDOW, r->to_mr, 1, 0, r->from_mr, peer, &request) ==
	     ncclInvalidArgument);
	NEED(!request);
}

static void give_all_back(const struct rank *r, int peer_fd)
{
	NEED(r->gin->deregMrSym(r->coll, r->to_mr) == ncclSuccess);
	NEED(r->gin->deregMrSym(r->coll, r->from_mr) == ncclSuccess);
	NEED(r->gin->deregMrSym(r->coll, r->words_mr) == ncclSuccess);
	meet(peer_fd);
	NEED(r->gin->closeColl(r->coll) == ncclSuccess);
	NEED(r->gin->closeListen(r->listen) == ncclSuccess);
	NEED(r->gin->finalize(r->ctx) == ncclSuccess);
}

/* A rank that ends while another one still waits for it must go on until that is through. */
static void close_rank(struct rank *r, int peer_fd)
{
	char byte = 0;

	reads(r);
	NEED(write(peer_fd, "e", 1) == 1);
	while (recv(peer_fd, &byte, 1, MSG_DONTWAIT) != 1)
		NEED(r->gin->ginProgress(r->coll) == ncclSuccess);
	nothing_comes_late(r);
	give_all_back(r, peer_fd);
}

static int run(uint32_t me, int peer_fd, int test_fd)
{
	struct rank *r = memory(sizeof(*r));

	setenv("NCCL_SOCKET_IFNAME", "=lo", 1);
	setenv("HA_NCCL_STATS", "0", 1);
	r->gin = load();
	r->me = me;
	nothing_is_lent_where_it_is_off(r->gin);
	connect_ranks(r, peer_fd);
	register_memory(r);
	refused(r);
	exchange(r, test_fd);
	close_rank(r, peer_fd);
	NEED(atomic_load(&moved) > 0);
	return 0;
}

/* ---- without a path ------------------------------------------------------------------------- */

/* Ranks wait for each other so long at most, too, while they begin: longer where they are slower.
 */
#define OUTAGE_MS (500 * SLACK)
#define RTO_MS	  1000 /* within which a cut in silence is noticed, and only then it counts */

static ncclResult_t signal_alone(const struct rank *r, void **request)
{
	return r->gin->iputSignal(r->coll, 0, NULL, 0, 0, NULL, 1 - r->me, 8 * r->me, r->words_mr,
				  1, NCCL_NET_SIGNAL_OP_ADD, request);
}

/* What the version has to say it with: the request, what comes next, and where there is one the
 * last error, which was none before. */
static void the_table_says_so(const struct rank *r, void *request)
{
	void *next = r->coll;
	int done = 1;

	NEED(r->gin->test(r->coll, request, &done) != ncclSuccess && !done);
	NEED(signal_alone(r, &next) != ncclSuccess && !next);
	NEED(gin_api_has_error() != 0);
	NEED(r->gin->ginProgress(r->coll) != ncclSuccess);
}

static int runs_out(uint32_t me, int peer_fd, int test_fd)
{
	struct rank *r = memory(sizeof(*r));
	void *request = NULL;
	double before, since; /* it was cut between them */
	char outage[16], byte;

	setenv("NCCL_SOCKET_IFNAME", "=lo", 1);
	setenv("HA_NCCL_STATS", "0", 1);
	snprintf(outage, sizeof(outage), "%d", OUTAGE_MS);
	setenv("HA_NCCL_OUTAGE_MS", outage, 1);
	r->gin = load();
	r->me = me;
	connect_ranks(r, peer_fd);
	register_memory(r);
	NEED(gin_api_has_error() <= 0);
	before = now_s();
	NEED(write(test_fd, "c", 1) == 1);
	while (recv(test_fd, &byte, 1, MSG_DONTWAIT) != 1)
		NEED(r->gin->ginProgress(r->coll) == ncclSuccess);
	since = now_s();
	NEED(signal_alone(r, &request) == ncclSuccess && request);
	while (r->gin->ginProgress(r->coll) == ncclSuccess) {
		NEED(now_s() - since < SLACK * (RTO_MS + OUTAGE_MS * 1.1) / 1e3);
		usleep(1000);
	}
	NEED(now_s() - before >= OUTAGE_MS / 1e3);
	the_table_says_so(r, request);
	give_all_back(r, peer_fd);
	return 0;
}

static int out_0(int peer_fd, int test_fd, void *arg)
{
	(void)arg;
	return runs_out(0, peer_fd, test_fd);
}

static int out_1(int peer_fd, int test_fd, void *arg)
{
	(void)arg;
	return runs_out(1, peer_fd, test_fd);
}

static void without_a_path_the_next_put_the_test_and_the_last_error_say_so(void **state)
{
	struct pair pair;

	(void)state;
	fabric_up("--hosts 2 --rails 2");
	pair_start(&pair, out_0, out_1, NULL);
	assert_int_equal(pair_wait_byte(&pair, 0), 'c');
	assert_int_equal(pair_wait_byte(&pair, 1), 'c');
	assert_int_equal(fabric_tool("cut %s 0", fabric_name()), 0);
	assert_int_equal(fabric_tool("cut %s 1", fabric_name()), 0);
	pair_send_byte(&pair, 0, 'c');
	pair_send_byte(&pair, 1, 'c');
	assert_int_equal(pair_join(&pair, 0, LIMIT_S), 0);
	assert_int_equal(pair_join(&pair, 1, LIMIT_S), 0);
	fabric_down();
}

static int rank_0(int peer_fd, int test_fd, void *arg)
{
	(void)arg;
	return run(0, peer_fd, test_fd);
}

static int rank_1(int peer_fd, int test_fd, void *arg)
{
	(void)arg;
	return run(1, peer_fd, test_fd);
}

static void a_port_dies_during_puts_and_each_signal_counts_once(void **state)
{
	struct pair pair;

	(void)state;
	fabric_up("--hosts 2 --rails 2");
	pair_start(&pair, rank_0, rank_1, NULL);
	assert_int_equal(pair_wait_byte(&pair, 0), 'q');
	assert_int_equal(fabric_tool("link %s 1 0 down", fabric_name()), 0);
	assert_int_equal(pair_join(&pair, 0, LIMIT_S), 0);
	assert_int_equal(pair_join(&pair, 1, LIMIT_S), 0);
	fabric_down();
}

/* An argument: which of the tables, by its symbol. */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_port_dies_during_puts_and_each_signal_counts_once),
	    cmocka_unit_test(without_a_path_the_next_put_the_test_and_the_last_error_say_so),
	};

	while (argc > 1 && api < GIN_APIS && strcmp(argv[1], gin_api_symbols[api]))
		api++;
	if (api == GIN_APIS) {
		fprintf(stderr, "%s: no such table\n", argv[1]);
		return 2;
	}
	return cmocka_run_group_tests_name("gin_plugin", tests, NULL, NULL);
}
