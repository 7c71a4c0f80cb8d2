/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a put and its test cost, for put_cost.py, which runs this under callgrind: a group of one
 * rank that puts into its own memory, each time after the fabric has come to rest. It calls what
 * NCCL 2.28 calls, the entries of the plugin's table. The verbs
 * lie behind functions whose names begin with provider_, by which they are left out of the count.
 */
#include "../transport/harness.h"

#include "base/clock.h"
#include "gin/verbs/group.h"
#include "gin/verbs/group_memory.h"
#include "gin/verbs/group_peers.h"
#include "memory/mr.h"
#include "nccl_ha/nccl_gin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOT_INLINE __attribute__((noinline))
#define ROUNDS	   64
#define WARM	   80 /* more than there are rows */
#define SIZE	   8u
#define TO	   64u /* offset */

static struct ibv_context_ops real_ops;

int provider_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int provider_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);

NOT_INLINE int provider_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
				  struct ibv_send_wr **bad)
{
	return real_ops.post_send(qp, wr, bad);
}

NOT_INLINE int provider_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	return real_ops.poll_cq(cq, n, wc);
}

/* Only for the calls that are counted: what is called elsewhere would turn collecting on. */
static void watch_verbs(const struct ha_device_set *set, bool on)
{
	for (int nic = 0; nic < set->nnics; nic++) {
		struct ibv_context_ops *ops = &set->nics[nic].now->ctx->ops;

		if (on)
			real_ops = *ops;
		ops->post_send = on ? provider_post_send : real_ops.post_send;
		ops->poll_cq = on ? provider_poll_cq : real_ops.poll_cq;
	}
}

static void need(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "bench_put: %s; log:\n%s\n", what, captured_log);
	exit(1);
}

/* ---- what callgrind collects: the calls below these -------------------------------------- */

extern const ncclGin_v11_t ncclGinPlugin_v11;

struct put {
	struct ha_gin_memory *from, *to, *signals; /* NULL: no signal */
};

void *counted_iput(void *coll, const struct put *put);
void counted_test(void *coll, void *request);
void case_ends(void);

NOT_INLINE void *counted_iput(void *coll, const struct put *put)
{
	void *request = NULL;
	ncclResult_t result =
	    put->signals
		? ncclGinPlugin_v11.iputSignal(coll, 0, put->from, SIZE, TO, put->to, 0, 0,
					       put->signals, 1, NCCL_NET_SIGNAL_OP_ADD, &request)
		: ncclGinPlugin_v11.iput(coll, 0, put->from, SIZE, TO, put->to, 0, &request);

	need(result == ncclSuccess && request, "a put was refused");
	return request;
}

NOT_INLINE void counted_test(void *coll, void *request)
{
	int done = 0;

	need(ncclGinPlugin_v11.test(coll, request, &done) == ncclSuccess && done,
	     "a put was not done");
}

/* callgrind writes down what it has counted, and begins anew. */
NOT_INLINE void case_ends(void)
{
	__asm__ volatile("" ::: "memory");
}

/* ---- the group ------------------------------------------------------------ */

static struct pair pair;
static struct ha_listen *listener;
static uint8_t handle[HA_HANDLE_MAX];
static struct ha_gin_group *group;
static uint64_t words[512] __attribute__((aligned(4096)));
static uint8_t data[4096] __attribute__((aligned(4096)));

static void go_on(void)
{
	need(ha_gin_group_progress(group) == HA_OK, "the group has an error");
	pair_advance(&pair);
}

static void open_group(void)
{
	const void *handles[] = {handle};
	struct ha_gin_shape shape = {.rank = 0, .ranks = 1, .handles = handles};

	pair_init(&pair);
	pair.config.enable_backup = true;
	pair.fabric.rails = 2;
	pair_open(&pair);
	sv_stepped_set_host(0);
	need(ha_listen(pair.inst[0], 0, handle, &listener) == HA_OK, "listen");
	shape.inst = pair.inst[0];
	shape.listen = listener;
	need(ha_gin_group_open(&shape, &group) == HA_OK, "open");
	for (int i = 0; i < 100000 && !ha_gin_group_is_connected(group); i++)
		go_on();
	need(ha_gin_group_is_connected(group), "not connected");
}

static struct ha_gin_memory *memory(void *at, size_t size, bool is_strict)
{
	struct ha_gin_memory *out;

	need(ha_gin_register(group, at, size, HA_MEM_HOST, 0, -1, is_strict, &out) == HA_OK,
	     "register");
	for (int i = 0; i < 10000 && !ha_gin_is_known(group, out); i++)
		go_on();
	need(ha_gin_is_known(group, out), "not known");
	return out;
}

static void put_and_test(const struct put *put)
{
	const struct ha_device_set *set = pair.inst[0]->devices;
	void *request;

	watch_verbs(set, true);
	request = counted_iput(group, put);
	watch_verbs(set, false);
	for (int i = 0; i < 40; i++) {
		sv_stepped_run(sv_stepped_now() + 10 * HA_NS_PER_US);
		if (i == 0) {
			watch_verbs(set, true);
			counted_test(group, request);
			watch_verbs(set, false);
		}
		need(ha_gin_group_progress(group) == HA_OK, "the group has an error");
	}
}

static void run(const char *name, const struct put *put)
{
	for (int i = 0; i < WARM; i++)
		put_and_test(put);
	case_ends(); /* what came before is dropped */
	printf("%s\n", name);
	fflush(stdout);
	for (int i = 0; i < ROUNDS; i++)
		put_and_test(put);
	case_ends();
}

int main(void)
{
	struct put put = {.signals = NULL};

	open_group();
	put.from = put.to = memory(data, sizeof(data), false);
	run("put", &put);
	put.signals = memory(words, sizeof(words), true);
	run("put and signal", &put);
	need(words[0] == WARM + ROUNDS, "signals are missing");
	ha_gin_group_close(group);
	ha_close_listen(listener);
	pair_close(&pair);
	return 0;
}
