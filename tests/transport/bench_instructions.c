/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Traffic for counting what a message costs, one case after the other: see instructions.py, which
 * runs this under callgrind. Every poll hits: the fabric is stepped until nothing moves before each
 * call, as in the figures of others that these are compared with.
 *
 * It calls what NCCL calls, the entries of the plugin's vtable. The verbs lie behind functions
 * whose names begin with provider_, by which they are left out of the count; they count what is
 * asked of the hardware, which is printed for each case.
 */
#include "harness.h"
#include "instance/instance.h"

#include "base/clock.h"
#include "failover/engine.h"
#include "plugin/plugin.h"
#include "transport/latency.h"
#include "transport/recv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __clang__
#define COMPILER "clang", __clang_major__
#else
#define COMPILER "gcc", __GNUC__
#endif

#define NOT_INLINE __attribute__((noinline))

#define ROUNDS 64 /* a multiple of whatever is done every so many messages: rings, batches */
#define WARM   16

/* ---- the hardware's side --------------------------------------------------------------------- */

/* What was asked of the hardware of an end. */
struct asked {
	unsigned long doorbells, writes;  /* ibv_post_send, and its work requests */
	unsigned long refills, receives;  /* ibv_post_recv, and its work requests */
	unsigned long polls, completions; /* ibv_poll_cq, and what it gave */
};

static struct asked asked[2]; /* 0: the sender's, 1: the receiver's */
static struct ibv_context_ops real_ops;
static const struct ha_device_set *devices[2];

static struct asked *end_of(const struct ibv_context *context)
{
	for (int nic = 0; nic < devices[1]->nnics; nic++)
		if (devices[1]->nics[nic].now->ctx == context)
			return &asked[1];
	return &asked[0];
}

int provider_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int provider_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int provider_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);

NOT_INLINE int provider_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
				  struct ibv_send_wr **bad)
{
	struct asked *end = end_of(qp->context);

	end->doorbells++;
	for (const struct ibv_send_wr *each = wr; each; each = each->next)
		end->writes++;
	return real_ops.post_send(qp, wr, bad);
}

NOT_INLINE int provider_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
				  struct ibv_recv_wr **bad)
{
	struct asked *end = end_of(qp->context);

	end->refills++;
	for (const struct ibv_recv_wr *each = wr; each; each = each->next)
		end->receives++;
	return real_ops.post_recv(qp, wr, bad);
}

NOT_INLINE int provider_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	struct asked *end = end_of(cq->context);
	int got = real_ops.poll_cq(cq, n, wc);

	end->polls++;
	end->completions += (unsigned long)(got > 0 ? got : 0);
	return got;
}

static void watch_verbs(const struct pair *pair)
{
	for (int i = 0; i < 2; i++) {
		struct ha_device_set *set = ha_instance_devices(pair->inst[i]);

		for (int nic = 0; nic < set->nnics; nic++) {
			struct ibv_context_ops *ops = &set->nics[nic].now->ctx->ops;

			if (ops->post_send != provider_post_send)
				real_ops = *ops;
			ops->post_send = provider_post_send;
			ops->post_recv = provider_post_recv;
			ops->poll_cq = provider_poll_cq;
		}
		devices[i] = set;
	}
}

/* ---- what callgrind collects: the calls below these ------------------------------------------ */

void *counted_isend(struct pair *pair, size_t size, int tag);
void *counted_irecv(struct pair *pair, int n, void **data, size_t *sizes, int *tags, void **mrs);
void counted_test_send(void *request, int *sizes);
void counted_test_waiting(void *request);
void counted_test_recv(void *request, int *sizes);
void counted_timing(struct ha_comm *comm);
void case_ends(void);

static void need(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "bench_instructions: %s\n", what);
	exit(1);
}

NOT_INLINE void *counted_isend(struct pair *pair, size_t size, int tag)
{
	void *request = NULL;
	ncclResult_t result = ha_plugin_isend_v10(pair->send, pair->from.bytes, size, tag,
						  pair->from.mr, NULL, &request);

	need(result == ncclSuccess && request, "isend gave no request");
	return request;
}

NOT_INLINE void *counted_irecv(struct pair *pair, int n, void **data, size_t *sizes, int *tags,
			       void **mrs)
{
	void *request = NULL;
	ncclResult_t result =
	    ha_plugin_irecv_v10(pair->recv, n, data, sizes, tags, mrs, NULL, &request);

	need(result == ncclSuccess && request, "irecv gave no request");
	return request;
}

NOT_INLINE void counted_test_send(void *request, int *sizes)
{
	int done = 0;
	ncclResult_t result = ha_plugin_test(request, &done, sizes);

	need(result == ncclSuccess && done, "a send was not done");
}

NOT_INLINE void counted_test_recv(void *request, int *sizes)
{
	int done = 0;
	ncclResult_t result = ha_plugin_test(request, &done, sizes);

	need(result == ncclSuccess && done, "a receive was not done");
}

/* What the background thread does for a comm that is due. */
NOT_INLINE void counted_timing(struct ha_comm *comm)
{
	(void)ha_latency_visit(comm, ha_now_ns());
}

/* callgrind writes down what it has counted, and begins anew. */
NOT_INLINE void case_ends(void)
{
	__asm__ volatile("" ::: "memory");
}

/* ---- traffic --------------------------------------------------------------------------------- */

struct bench {
	const char *name;
	int n;
	size_t size;
	bool failover, e2e;
	int window; /* groups in flight; 0: one, and no receive is asked for before its send is done
		     */
	bool bundle;   /* both ports are one device, */
	bool over_all; /* and both carry: a part of each message, if it is large */
	enum timing {
		TIMED_NEVER,
		TIMED_ELSEWHEN, /* HA_NCCL_LATENCY_MS is set, and nothing is due */
		TIMED_EACH,	/* at both ends, once for each message */
	} timing;
};

#define WINDOW 8 /* as NCCL's steps */
#define LARGE  262144

/* What is in flight, by number modulo WINDOW, and the first that was not asked for, or sent. */
struct flight {
	struct pair *pair;
	const struct bench *bench;
	size_t size; /* of those that are sent from now on */
	size_t sizes[WINDOW];
	void *recv[WINDOW], *send[WINDOW][HA_GROUP_MAX];
	unsigned asked, sent;
};

static void settle(void)
{
	sv_stepped_run_idle(1000000);
}

static void ask(struct flight *f)
{
	const int n = f->bench->n;
	size_t sizes[HA_GROUP_MAX];
	void *data[HA_GROUP_MAX], *mrs[HA_GROUP_MAX];
	int tags[HA_GROUP_MAX];

	for (int i = 0; i < n; i++) {
		data[i] = f->pair->to.bytes + (size_t)i * 65536;
		sizes[i] = f->size > 65536 ? f->size : 65536;
		mrs[i] = f->pair->to.mr;
		tags[i] = i;
	}
	f->recv[f->asked++ % WINDOW] = counted_irecv(f->pair, n, data, sizes, tags, mrs);
	settle();
}

static void offer(struct flight *f)
{
	for (int i = 0; i < f->bench->n; i++)
		f->send[f->sent % WINDOW][i] = counted_isend(f->pair, f->size, i);
	f->sizes[f->sent++ % WINDOW] = f->size;
	settle();
}

static void receive(const struct flight *f, unsigned number)
{
	int got[HA_GROUP_MAX];

	counted_test_recv(f->recv[number % WINDOW], got);
	for (int i = 0; i < f->bench->n; i++)
		need((size_t)got[i] == f->sizes[number % WINDOW], "a receive has another size");
}

static void complete(const struct flight *f, unsigned number)
{
	int got[HA_GROUP_MAX];

	for (int i = 0; i < f->bench->n; i++)
		counted_test_send(f->send[number % WINDOW][i], got);
}

static struct ha_latency_of_qp *timed_qp(struct ha_comm *comm)
{
	return &ha_comm_path(comm)->latency->qps[0];
}

static void time_both(const struct pair *pair)
{
	struct ha_comm *const ends[2] = {pair->send, pair->recv};

	for (int i = 0; i < 2; i++) {
		ha_comm_path(ends[i])->latency->due_ns = 0;
		need(ha_token_try(ends[i]), "somebody has the connection");
		counted_timing(ends[i]);
		ha_token_release(ends[i]);
		need(ha_latency_waits(ends[i]), "nothing is timed");
	}
	settle();
}

/* As NCCL's proxies do: the buffer of what was received, or sent, is the next one's. */
static void round_trip(struct flight *f)
{
	const unsigned window = (unsigned)f->bench->window;

	if (window == 0) {
		ask(f);
		offer(f);
		receive(f, f->sent - 1);
		complete(f, f->sent - 1); /* with end-to-end completion a copy is kept */
		return;
	}
	receive(f, f->asked - window);
	ask(f);
	complete(f, f->sent - window);
	offer(f);
	if (f->bench->timing == TIMED_EACH)
		time_both(f->pair);
}

/* The last one is under way yet. */
static void need_samples(const struct pair *pair, enum timing timing)
{
	const uint64_t want = timing == TIMED_EACH ? WARM + ROUNDS - 1 : 0;

	if (timing == TIMED_NEVER)
		return;
	need(ha_hist_samples(&timed_qp(pair->send)->ns) == want, "other samples at the sender");
	need(ha_hist_samples(&timed_qp(pair->recv)->ns) == want, "other samples at the receiver");
}

static bool protected(const struct ha_comm *comm)
{
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (p != comm->active && comm->failover && ha_slot_is_up(&comm->failover->slots[p]))
			return true;
	return false;
}

static bool is_cut(const struct ha_comm *recv)
{
	return recv->recv->members != 0;
}

/* Until each large message goes over both rails and, where those are what counts, senders have
 * tried what each is worth. Both carry on after that: nobody looks whether messages are large while
 * no time goes by. */
static void cut_messages(struct flight *f)
{
	f->size = LARGE;
	for (int i = 0; i < 400 && !(is_cut(f->pair->recv) && f->bench->size < LARGE); i++) {
		round_trip(f);
		pair_idle(f->pair, 1);
	}
	need(is_cut(f->pair->recv), "one rail alone carries");
	f->size = f->bench->size;
}

static void print_asked(const char *end, const struct asked *sum, int n)
{
	const double messages = (double)ROUNDS * n;

	printf("\"%s\": {\"doorbells\": %.4f, \"work_requests\": %.4f, \"refills\": %.4f, "
	       "\"receives\": %.4f, \"polls\": %.4f, \"completions\": %.4f}",
	       end, (double)sum->doorbells / messages, (double)sum->writes / messages,
	       (double)sum->refills / messages, (double)sum->receives / messages,
	       (double)sum->polls / messages, (double)sum->completions / messages);
}

static void run(const struct bench *bench)
{
	struct pair pair;
	struct flight flight = {.pair = &pair, .bench = bench, .size = bench->size};

	pair_init(&pair);
	pair.config.enable_backup = bench->failover;
	pair.config.completion = bench->e2e ? HA_COMPLETION_E2E : HA_COMPLETION_RC;
	pair.fabric.rails = 2;
	pair.config.latency_ms = bench->timing == TIMED_NEVER ? 0 : 100;
	if (bench->bundle)
		strcpy(pair.config.rails, "sim0+sim1");
	pair_up(&pair);
	for (int i = 0; bench->failover && i < 1000; i++) {
		if (protected(pair.send) && protected(pair.recv))
			break;
		pair_idle(&pair, 5);
	}
	need(protected(pair.send) == bench->failover, "no path in reserve");
	for (int i = 0; i < bench->window; i++)
		ask(&flight);
	for (int i = 0; i < bench->window; i++)
		offer(&flight);
	if (bench->over_all)
		cut_messages(&flight);
	for (int i = 0; i < WARM; i++)
		round_trip(&flight);
	watch_verbs(&pair);
	memset(asked, 0, sizeof(asked));
	case_ends(); /* forget the warm-up */
	for (int i = 0; i < ROUNDS; i++)
		round_trip(&flight);
	case_ends();
	need(is_cut(pair.recv) == bench->over_all, "other rails carry than ought to");
	need_samples(&pair, bench->timing);
	printf("{\"case\": \"%s\", \"messages\": %d, ", bench->name, ROUNDS * bench->n);
	print_asked("send", &asked[0], bench->n);
	printf(", ");
	print_asked("recv", &asked[1], bench->n);
	printf("}\n");
	fflush(stdout);
	for (int i = bench->window; i > 0; i--) {
		(void)pair_finish(&pair, flight.recv[(flight.asked - (unsigned)i) % WINDOW], NULL);
		for (int part = 0; part < bench->n; part++)
			(void)pair_finish(
			    &pair, flight.send[(flight.sent - (unsigned)i) % WINDOW][part], NULL);
	}
	pair_close(&pair);
}

int main(int argc, char **argv)
{
	static const struct bench benches[] = {
	    {"n=1 8B", 1, 8, false, false, 1, false, false, TIMED_NEVER},
	    {"n=1 8B HA", 1, 8, true, false, 1, false, false, TIMED_NEVER},
	    {"n=1 8B HA e2e", 1, 8, true, true, 1, false, false, TIMED_NEVER},
	    {"n=1 8B HA e2e last", 1, 8, true, true, 0, false, false, TIMED_NEVER},
	    {"n=1 8B HA, 8 in flight", 1, 8, true, false, WINDOW, false, false, TIMED_NEVER},
	    {"n=1 8B HA, 8 in flight e2e", 1, 8, true, true, WINDOW, false, false, TIMED_NEVER},
	    {"n=1 8B HA last", 1, 8, true, false, 0, false, false, TIMED_NEVER},
	    {.name = "n=1 8B HA timed",
	     .n = 1,
	     .size = 8,
	     .failover = true,
	     .window = 1,
	     .timing = TIMED_ELSEWHEN},
	    {.name = "n=1 8B HA timed each",
	     .n = 1,
	     .size = 8,
	     .failover = true,
	     .window = 1,
	     .timing = TIMED_EACH},
	    {"n=1 64KB", 1, 65536, false, false, 1, false, false, TIMED_NEVER},
	    {"n=1 64KB HA", 1, 65536, true, false, 1, false, false, TIMED_NEVER},
	    {"n=1 64KB HA e2e", 1, 65536, true, true, 1, false, false, TIMED_NEVER},
	    {"n=8 8B", 8, 8, false, false, 1, false, false, TIMED_NEVER},
	    {"n=8 8B HA", 8, 8, true, false, 1, false, false, TIMED_NEVER},
	    {"n=8 8B HA e2e", 8, 8, true, true, 1, false, false, TIMED_NEVER},
	    {"n=8 64KB", 8, 65536, false, false, 1, false, false, TIMED_NEVER},
	    {"n=8 64KB HA", 8, 65536, true, false, 1, false, false, TIMED_NEVER},
	    {"n=8 64KB HA e2e", 8, 65536, true, true, 1, false, false, TIMED_NEVER},
	    {"n=1 8B HA bundle", 1, 8, true, false, 1, true, false, TIMED_NEVER},
	    {"n=1 64KB HA bundle", 1, 65536, true, false, 1, true, false, TIMED_NEVER},
	    {"n=1 8B HA, rails carry", 1, 8, true, false, 1, true, true, TIMED_NEVER},
	    {"n=1 4KB HA, rails carry", 1, 4096, true, false, 1, true, true, TIMED_NEVER},
	    {"n=1 256KB HA over two rails", 1, LARGE, true, false, 1, true, true, TIMED_NEVER},
	};
	const char *only = argc > 1 ? argv[1] : NULL;

	printf("{\"compiler\": \"%s %d\"}\n", COMPILER);
	for (size_t i = 0; i < sizeof(benches) / sizeof(benches[0]); i++)
		if (!only || strcmp(only, benches[i].name) == 0)
			run(&benches[i]);
	return 0;
}
