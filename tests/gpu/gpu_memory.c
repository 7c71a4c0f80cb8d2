/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu-memory [MIB]: memory of a real GPU through simverbs and through the plugin.
 *
 * Two processes on two hosts of a fabric, with so much memory (1024) of the first GPU each:
 *  1. verbs: host 0 writes a pattern into host 1's, and reads another one back;
 *  2. the plugin, memory registered by its address: messages, each flushed, while the link that
 *     carries them goes down and writes to GPUs are late;
 *  3. the same with memory registered as a dmabuf.
 * Every byte is compared in the GPU's memory. Exit status 0: all is right; 77 and a line that says
 * what is missing: there is no GPU here.
 */
#include "cuda.h"
#include "pair.h"
#include "tools/common/netcalls.h"
#include "tools/common/netplugin.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB	  ((size_t)1 << 20)
#define CHUNK	  (4 * MIB)
#define SKIPPED	  77
#define TIMEOUT_S 60.0

static const int everything = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			      IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

/* What a process has of the GPU, and of host memory to compare it with. */
struct memory {
	uint8_t *at;
	size_t size;
	uint8_t *expected, *seen; /* a chunk each */
};

struct plan {
	size_t size;
	bool dmabuf;
};

static void memory_open(struct memory *m, size_t size)
{
	const char *missing = cuda_open();

	if (missing) {
		fprintf(stderr, "%s\n", missing);
		_exit(1);
	}
	*m = (struct memory){
	    .at = cuda_alloc(size), .size = size, .expected = malloc(CHUNK), .seen = malloc(CHUNK)};
	NEED(m->expected && m->seen);
}

static void memory_close(struct memory *m)
{
	cuda_free(m->at);
	free(m->expected);
	free(m->seen);
}

static void expect(struct memory *m, uint32_t seed, size_t chunk)
{
	for (size_t i = 0; i < CHUNK; i++)
		m->expected[i] = pattern(seed + (uint32_t)chunk, i);
}

static void fill(struct memory *m, uint32_t seed, size_t chunk)
{
	expect(m, seed, chunk);
	cuda_write(m->at + chunk * CHUNK, m->expected, CHUNK);
}

static bool is_there(struct memory *m, uint32_t seed, size_t chunk)
{
	expect(m, seed, chunk);
	cuda_read(m->seen, m->at + chunk * CHUNK, CHUNK);
	return memcmp(m->seen, m->expected, CHUNK) == 0;
}

static size_t chunks(const struct memory *m)
{
	return m->size / CHUNK;
}

/* ---- verbs ----------------------------------------------------------------------------------- */

struct remote {
	uint64_t at;
	uint64_t rkey;
};

static void exchange_keys(int fd, const struct memory *m, const struct ibv_mr *mr,
			  struct remote *peer)
{
	struct remote own = {(uintptr_t)m->at, mr->rkey};

	NEED(write(fd, &own, sizeof(own)) == sizeof(own));
	NEED(read(fd, peer, sizeof(*peer)) == sizeof(*peer));
}

static void move_all(struct end *end, const struct memory *m, const struct ibv_mr *mr,
		     const struct remote *peer, enum ibv_wr_opcode op)
{
	for (size_t c = 0; c < chunks(m); c++) {
		struct ibv_sge sge = {(uintptr_t)m->at + c * CHUNK, CHUNK, mr->lkey};
		struct ibv_send_wr wr = {.sg_list = &sge,
					 .num_sge = 1,
					 .opcode = op,
					 .send_flags = IBV_SEND_SIGNALED,
					 .wr.rdma = {.remote_addr = peer->at + c * CHUNK,
						     .rkey = (uint32_t)peer->rkey}},
				   *bad;
		struct ibv_wc wc;

		NEED(!ibv_post_send(end->qp, &wr, &bad));
		NEED(end_wait(end, &wc, TIMEOUT_S) == IBV_WC_SUCCESS);
	}
}

/* An end with its memory registered, which the peer knows. */
struct verbs_end {
	struct end end;
	struct memory m;
	struct ibv_mr *mr;
	struct remote peer;
};

static void verbs_open(struct verbs_end *v, int peer_fd, size_t size)
{
	struct end_options opt = {.len = 4096, .timeout = 18, .retry_cnt = 7};

	memory_open(&v->m, size);
	end_open(&v->end, peer_fd, &opt);
	v->mr = ibv_reg_mr_iova(v->end.pd, v->m.at, size, (uintptr_t)v->m.at, everything);
	NEED(v->mr);
	exchange_keys(peer_fd, &v->m, v->mr, &v->peer);
}

static void verbs_close(struct verbs_end *v, int peer_fd)
{
	meet(peer_fd);
	NEED(!ibv_dereg_mr(v->mr));
	end_close(&v->end);
	memory_close(&v->m);
}

static void fill_all(struct memory *m, uint32_t seed)
{
	for (size_t c = 0; c < chunks(m); c++)
		fill(m, seed, c);
}

static void need_all(struct memory *m, uint32_t seed)
{
	for (size_t c = 0; c < chunks(m); c++)
		NEED(is_there(m, seed, c));
}

static void say_speed(const char *what, const struct memory *m, double began)
{
	printf("verbs: %s %zu MiB of GPU memory, %.2f GB/s\n", what, m->size / MIB,
	       (double)m->size / (now_s() - began) / 1e9);
}

static int writes_and_reads(int peer_fd, int test_fd, void *arg)
{
	const struct plan *plan = arg;
	struct verbs_end v;
	double began;

	(void)test_fd;
	verbs_open(&v, peer_fd, plan->size);
	fill_all(&v.m, 1);
	began = now_s();
	move_all(&v.end, &v.m, v.mr, &v.peer, IBV_WR_RDMA_WRITE);
	say_speed("WRITE of", &v.m, began);
	meet(peer_fd); /* it is there */
	meet(peer_fd); /* and something else is */
	began = now_s();
	move_all(&v.end, &v.m, v.mr, &v.peer, IBV_WR_RDMA_READ);
	say_speed("READ of", &v.m, began);
	need_all(&v.m, 2);
	verbs_close(&v, peer_fd);
	fflush(stdout);
	return 0;
}

static int is_written_and_read(int peer_fd, int test_fd, void *arg)
{
	const struct plan *plan = arg;
	struct verbs_end v;

	(void)test_fd;
	verbs_open(&v, peer_fd, plan->size);
	meet(peer_fd);
	need_all(&v.m, 1);
	fill_all(&v.m, 2);
	meet(peer_fd);
	verbs_close(&v, peer_fd);
	return 0;
}

/* ---- the plugin ------------------------------------------------------------------------------ */

struct net {
	struct np_plugin *plugin;
	struct np_ctx ctx;
	struct memory m;
	void *mhandle;
};

static void net_open(struct net *net, const struct plan *plan)
{
	char err[300];

	memory_open(&net->m, plan->size);
	net->plugin = np_open(NET_PLUGIN, 0, err, sizeof(err));
	if (!net->plugin) {
		fprintf(stderr, "%s\n", err);
		_exit(1);
	}
	NEED(np_init(net->plugin, &net->ctx, 1, -1) == ncclSuccess);
}

static void net_register(struct net *net, void *comm, const struct plan *plan)
{
	int fd;

	if (!plan->dmabuf) {
		NEED(np_reg_mr(net->plugin, comm, net->m.at, net->m.size, NCCL_PTR_CUDA,
			       &net->mhandle) == ncclSuccess);
		return;
	}
	fd = cuda_dmabuf(net->m.at, net->m.size);
	NEED(fd >= 0);
	NEED(np_reg_mr_dmabuf(net->plugin, comm, net->m.at, net->m.size, NCCL_PTR_CUDA, 0, fd,
			      &net->mhandle) == ncclSuccess);
	close(fd);
}

static void net_wait(const struct net *net, void *request, int *size)
{
	double until = now_s() + TIMEOUT_S;
	int done = 0;

	while (!done && now_s() < until)
		NEED(np_test(net->plugin, request, &done, size) == ncclSuccess);
	NEED(done);
}

static int sends(int peer_fd, int test_fd, void *arg)
{
	char handle[NCCL_NET_HANDLE_MAXSIZE];
	void *comm = NULL, *request;
	const struct plan *plan = arg;
	struct net net = {0};

	(void)test_fd;
	net_open(&net, plan);
	NEED(read(peer_fd, handle, sizeof(handle)) == sizeof(handle));
	while (!comm)
		NEED(np_connect(net.plugin, &net.ctx, 0, handle, &comm, NULL) == ncclSuccess);
	net_register(&net, comm, plan);
	for (size_t c = 0; c < chunks(&net.m); c++) {
		fill(&net.m, 3, c);
		for (request = NULL; !request;)
			NEED(np_isend(net.plugin, comm, net.m.at + c * CHUNK, CHUNK, 1, net.mhandle,
				      &request) == ncclSuccess);
		net_wait(&net, request, NULL);
	}
	meet(peer_fd);
	NEED(np_dereg_mr(net.plugin, comm, net.mhandle) == ncclSuccess);
	NEED(np_close_send(net.plugin, comm) == ncclSuccess);
	NEED(np_finalize(net.plugin, &net.ctx) == ncclSuccess);
	memory_close(&net.m);
	return 0;
}

/* One message. Whether it was there before it was flushed. */
static bool receive(struct net *net, void *comm, size_t c)
{
	void *data = net->m.at + c * CHUNK, *request = NULL;
	size_t size = CHUNK;
	int tag = 1, got = 0;
	bool early;

	while (!request)
		NEED(np_irecv(net->plugin, comm, 1, &data, &size, &tag, &net->mhandle, &request) ==
		     ncclSuccess);
	net_wait(net, request, &got);
	NEED(got == (int)CHUNK);
	early = is_there(&net->m, 3, c);
	NEED(np_iflush(net->plugin, comm, 1, &data, &got, &net->mhandle, &request) == ncclSuccess);
	NEED(request);
	net_wait(net, request, NULL);
	NEED(is_there(&net->m, 3, c));
	return early;
}

static int receives(int peer_fd, int test_fd, void *arg)
{
	char handle[NCCL_NET_HANDLE_MAXSIZE] = {0};
	void *listener = NULL, *comm = NULL;
	const struct plan *plan = arg;
	struct net net = {0};
	size_t needed = 0;

	net_open(&net, plan);
	NEED(np_listen(net.plugin, &net.ctx, 0, handle, &listener) == ncclSuccess);
	NEED(write(peer_fd, handle, sizeof(handle)) == sizeof(handle));
	while (!comm)
		NEED(np_accept(net.plugin, listener, &comm, NULL) == ncclSuccess);
	net_register(&net, comm, plan);
	for (size_t c = 0; c < chunks(&net.m); c++) {
		if (c == chunks(&net.m) / 8 + 1)
			NEED(write(test_fd, "x", 1) == 1); /* the link goes down */
		needed += !receive(&net, comm, c);
	}
	printf("plugin, by %s: %zu messages of 4 MiB in %s, %zu of them not there before their "
	       "flush, all after it\n",
	       plan->dmabuf ? "dmabuf" : "address", chunks(&net.m), cuda_name(), needed);
	fflush(stdout);
	NEED(needed > 0);
	meet(peer_fd);
	NEED(np_dereg_mr(net.plugin, comm, net.mhandle) == ncclSuccess);
	NEED(np_close_recv(net.plugin, comm) == ncclSuccess);
	NEED(np_close_listen(net.plugin, listener) == ncclSuccess);
	NEED(np_finalize(net.plugin, &net.ctx) == ncclSuccess);
	memory_close(&net.m);
	return 0;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static bool both_end_well(struct pair *pair)
{
	int first = pair_join(pair, 0, (int)TIMEOUT_S), second = pair_join(pair, 1, 5);

	return first == 0 && second == 0;
}

static bool verbs_move_it(struct plan *plan)
{
	struct pair pair;
	bool good;

	fabric_up("--hosts 2 --rails 1 --gpu");
	pair_start(&pair, writes_and_reads, is_written_and_read, plan);
	good = both_end_well(&pair);
	fabric_down();
	return good;
}

static bool the_plugin_moves_it(struct plan *plan)
{
	struct pair pair;
	bool good;

	fabric_up("--hosts 2 --rails 2 --gpu --dmabuf");
	if (fabric_tool("fault %s 'gpu=reorder within=500ms host=1' >/dev/null", fabric_name()))
		return false;
	pair_start(&pair, sends, receives, plan);
	good =
	    pair_wait_byte(&pair, 1) == 'x' && fabric_tool("link %s 1 0 down", fabric_name()) == 0;
	good &= both_end_well(&pair);
	fabric_down();
	return good;
}

/* In a process of its own, since a context does not survive a fork. */
static int find_gpu(void)
{
	pid_t child;
	int status;

	fflush(NULL);
	child = fork();
	if (child == 0) {
		const char *missing = cuda_open();

		if (missing)
			printf("SKIP: %s; this is for a machine with a GPU\n", missing);
		else
			printf("GPU: %s\n", cuda_name());
		exit(missing ? SKIPPED : 0);
	}
	if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
		return 1;
	return WEXITSTATUS(status);
}

int main(int argc, char **argv)
{
	struct plan plan = {.size = (argc > 1 ? strtoul(argv[1], NULL, 10) : 1024) * MIB};
	int status = find_gpu();
	bool good;

	if (status)
		return status;
	if (plan.size < 4 * CHUNK || plan.size % CHUNK) {
		fprintf(stderr, "usage: gpu-memory [MIB], a multiple of 4, 16 at least\n");
		return 2;
	}
	setenv("NCCL_SOCKET_IFNAME", "=lo", 0);
	good = verbs_move_it(&plan) && the_plugin_moves_it(&plan);
	plan.dmabuf = true;
	good = good && the_plugin_moves_it(&plan);
	printf("%s\n", good ? "all bytes are right" : "FAILED");
	return good ? 0 : 1;
}
