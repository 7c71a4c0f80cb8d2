/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank of a job as NCCL's proxy threads drive a collNet: it loads the plugin, takes the table of
 * one version, and has all-reduces of every type and operation under way, some in place. Whoever
 * started the ranks carries their handles: a rank says its own ("handle HEX") and reads those of
 * all.
 *
 * Every byte is compared, where the order of addition does not matter or is known; of others the
 * last line has a digest, which has to be the same at all ranks. Memory is the application's as
 * soon as an operation is done, so it is written over then, and looked at once more in the end.
 *
 * "done N" is said behind each operation, and with --hold=N it waits for a line before operation N.
 *
 * What others see of a rank that connects is whom it dials and what it says: those are its steps,
 * behind one of which it dies, if it is told to.
 */
#include "../reduce/oracle.h"
#include "elements.h"

#include "base/clock.h"
#include "nccl_ha/nccl_coll.h"

#include <argp.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define POISON	0xee
#define SLOTS	8
#define MARGIN	64
#define RANKS	ELEMENTS_RANKS
#define TYPES	10
#define OPS	4
#define SIZE_AT 8 /* of what an element is at most */

enum { ENDED_WELL, FAILED, WRONG_CALL, WRONG_BYTES, REFUSED };

static struct {
	const char *plugin;
	unsigned api, rank, ranks, ops, hold, limit_s;
	unsigned cycles;  /* of init, connect, operations, close */
	unsigned warm;	  /* so many operations do not count into the time */
	unsigned dies_at; /* behind this step of connect; 0: at none */
	size_t bytes;
	bool is_timed;	  /* nothing is compared; one type */
	bool is_in_order; /* every bit is as one switch above all ranks has it */
	unsigned slots;
} a = {.api = 12,
       .ranks = 1,
       .ops = 40,
       .limit_s = 120,
       .bytes = 1 << 18,
       .slots = SLOTS,
       .cycles = 1};

/* The entries that are used, whatever the version. */
static struct {
	ncclResult_t (*init)(void **ctx);
	ncclResult_t (*listen)(void *ctx, int dev, void *handle, void **listener);
	ncclResult_t (*all_reduce)(void *coll, void *send, void *recv, size_t count,
				   ncclDataType_t type, ncclRedOp_t op, void *send_mr,
				   void *recv_mr, void **request);
	const ncclCollNet_v12_t *v12;
	const ncclCollNet_v8_t *v8;
	const ncclCollNet_v9_t *v9;
	const ncclCollNet_v10_t *v10;
	const ncclCollNet_v11_t *v11;
} net;

struct slot {
	uint8_t *send, *recv;
	void *send_mr, *recv_mr;
	void *request; /* NULL: free, or to be asked for */
	bool is_used;
	unsigned op;
};

static struct slot slots[SLOTS];
static void *context, *coll;
static unsigned asked, done;
static uint64_t digest, begun_ns;
static ncclResult_t last_result; /* of operations */

/* ---- steps of connect ----------------------------------------------------------------------- */

static unsigned steps;
static _Thread_local bool is_connecting;

static void take_step(void)
{
	const int saved = errno;

	if (!is_connecting)
		return;
	steps++;
	if (steps == a.dies_at)
		(void)raise(SIGKILL);
	errno = saved;
}

/* The plugin finds these before the C library's. */
#define FOUND __attribute__((visibility("default")))

FOUND int connect(int fd, const struct sockaddr *to, socklen_t length)
{
	const long result = syscall(SYS_connect, fd, to, length);

	take_step();
	return (int)result;
}

FOUND ssize_t send(int fd, const void *bytes, size_t n, int flags)
{
	const ssize_t sent = sendto(fd, bytes, n, flags, NULL, 0);

	if (sent > 0)
		take_step();
	return sent;
}

/* ---- the table ------------------------------------------------------------------------------ */

static void say(ncclDebugLogLevel level, unsigned long flags, const char *file, int line,
		const char *fmt, ...)
{
	va_list args;

	(void)flags, (void)file, (void)line;
	if (level > NCCL_LOG_INFO)
		return;
	va_start(args, fmt);
	(void)fprintf(stderr, "%s ", level == NCCL_LOG_WARN ? "WARN" : "INFO");
	(void)vfprintf(stderr, fmt, args);
	(void)fputc('\n', stderr);
	va_end(args);
}

/* What differs between versions: init, listen, the count. Everything else is in the same place. */
#define OLD(n)                                                                                     \
	static ncclResult_t init_v##n(void **ctx)                                                  \
	{                                                                                          \
		*ctx = NULL;                                                                       \
		return net.v##n->init(say);                                                        \
	}                                                                                          \
	static ncclResult_t listen_v##n(void *ctx, int dev, void *handle, void **listener)         \
	{                                                                                          \
		(void)ctx;                                                                         \
		return net.v##n->listen(dev, handle, listener);                                    \
	}
#define NEW(n)                                                                                     \
	static ncclResult_t init_v##n(void **ctx)                                                  \
	{                                                                                          \
		return net.v##n->init(ctx, 1, say);                                                \
	}                                                                                          \
	static ncclResult_t listen_v##n(void *ctx, int dev, void *handle, void **listener)         \
	{                                                                                          \
		return net.v##n->listen(ctx, dev, handle, listener);                               \
	}
OLD(8)
OLD(9)
OLD(10)
NEW(11)
NEW(12)

static ncclResult_t narrow(void *comm, void *send, void *recv, size_t count, ncclDataType_t type,
			   ncclRedOp_t op, void *send_mr, void *recv_mr, void **request)
{
	return net.v8->iallreduce(comm, send, recv, (int)count, type, op, send_mr, recv_mr,
				  request);
}

static bool load(void)
{
	void *library = dlopen(a.plugin, RTLD_NOW | RTLD_LOCAL);
	char symbol[40];
	const void *table;

	snprintf(symbol, sizeof(symbol), "ncclCollNetPlugin_v%u", a.api);
	table = library ? dlsym(library, symbol) : NULL;
	if (!table) {
		fprintf(stderr, "%s\n", dlerror());
		return false;
	}
	net.v8 = table;
	net.v9 = table;
	net.v10 = table;
	net.v11 = table;
	net.v12 = table;
	net.all_reduce = a.api == 8 ? narrow : net.v12->iallreduce;
	switch (a.api) {
	case 8:
		net.init = init_v8;
		net.listen = listen_v8;
		return true;
	case 9:
		net.init = init_v9;
		net.listen = listen_v9;
		return true;
	case 10:
		net.init = init_v10;
		net.listen = listen_v10;
		return true;
	case 11:
		net.init = init_v11;
		net.listen = listen_v11;
		return true;
	default:
		net.init = init_v12;
		net.listen = listen_v12;
		return true;
	}
}

/* ---- what goes in --------------------------------------------------------------------------- */

static unsigned type_of(unsigned op)
{
	return a.is_timed ? (unsigned)ncclFloat32 : op % TYPES;
}

static unsigned operation_of(unsigned op)
{
	return a.is_timed ? (unsigned)ncclSum : op / TYPES % OPS;
}

static size_t size_of(unsigned op)
{
	return oracle_bytes(type_of(op), operation_of(op), HA_REDUCE_WIRE);
}

static bool is_in_place(unsigned op)
{
	return !a.is_timed && op % 3 == 2;
}

static size_t count_of(unsigned op)
{
	const size_t most = a.bytes / size_of(op);

	if (a.is_timed)
		return most;
	return op % 11 == 4 ? 1 : (op % 13 == 5 ? 0 : most - op % 7 % most);
}

static struct elements elements_of(unsigned op)
{
	return (struct elements){.op = op,
				 .type = (enum ha_reduce_type)type_of(op),
				 .operation = (enum ha_reduce_op)operation_of(op),
				 .count = count_of(op),
				 .is_wild = op % 5 == 1 || a.is_in_order,
				 .is_in_order = a.is_in_order};
}

/* ---- what comes out ------------------------------------------------------------------------- */

static bool finish(struct slot *slot)
{
	const uint8_t *result = is_in_place(slot->op) ? slot->send : slot->recv;
	const struct elements elements = elements_of(slot->op);

	if (!a.is_timed) {
		digest ^= elements_digest(&elements, result); /* in whatever order they are done */
		if (!elements_are_right(&elements, a.ranks, result))
			return false;
		memset(slot->send, POISON, a.bytes);
		memset(slot->recv, POISON, a.bytes);
	}
	slot->is_used = false;
	if (!a.is_timed)
		printf("done %u\n", done);
	if (++done == a.warm)
		begun_ns = ha_real_ns();
	(void)fflush(stdout);
	return true;
}

/* ---- operations ----------------------------------------------------------------------------- */

static ncclResult_t ask(struct slot *slot)
{
	const bool in_place = is_in_place(slot->op);

	return net.all_reduce(coll, slot->send, in_place ? slot->send : slot->recv,
			      count_of(slot->op), (ncclDataType_t)type_of(slot->op),
			      (ncclRedOp_t)operation_of(slot->op), slot->send_mr,
			      in_place ? slot->send_mr : slot->recv_mr, &slot->request);
}

static bool is_told(void)
{
	struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};

	return poll(&p, 1, 0) == 1;
}

static void take_next(struct slot *slot)
{
	const struct elements elements = elements_of(asked);

	slot->op = asked;
	slot->is_used = true;
	if (!a.is_timed)
		elements_contribute(&elements, a.rank, slot->send);
}

/* The next operation is asked for when the one before was taken: NCCL keeps their order. */
static ncclResult_t act(bool *is_wrong)
{
	if (a.hold && asked == a.hold && done == asked && is_told())
		a.hold = 0;
	for (unsigned i = 0; i < a.slots; i++) {
		struct slot *slot = &slots[i];
		ncclResult_t result = ncclSuccess;
		int is_done = 0, size = -1;

		if (slot->request)
			result = net.v12->test(slot->request, &is_done, &size);
		if (result != ncclSuccess)
			return result;
		if (is_done) {
			slot->request = NULL;
			*is_wrong |=
			    size != (int)(count_of(slot->op) * size_of(slot->op)) || !finish(slot);
		}
		if (!slot->is_used && asked < a.ops && !(a.hold && asked == a.hold)) {
			take_next(slot);
			asked++;
		}
	}
	for (unsigned op = done; op < asked; op++) {
		for (unsigned i = 0; i < a.slots; i++) {
			struct slot *slot = &slots[i];
			ncclResult_t result;

			if (!slot->is_used || slot->request || slot->op != op)
				continue;
			result = ask(slot);
			if (result != ncclSuccess || !slot->request)
				return result;
		}
	}
	return ncclSuccess;
}

/* Two processors for all processes of a test: who has nothing to do makes room, but where time is
 * what is asked for. */
static void rest(bool moved)
{
	const struct timespec pause = {.tv_nsec = 50000};

	if (a.is_timed)
		sched_yield();
	else if (!moved)
		nanosleep(&pause, NULL);
}

static int run(void)
{
	const uint64_t until_ns = ha_real_ns() + a.limit_s * HA_NS_PER_S;
	bool is_wrong = false;

	begun_ns = ha_real_ns();
	while (done < a.ops && !is_wrong) {
		const unsigned was = done + asked;

		last_result = act(&is_wrong);
		if (last_result != ncclSuccess)
			return FAILED;
		if (ha_real_ns() > until_ns) {
			fprintf(stderr, "%u of %u operations done, and the time is over\n", done,
				a.ops);
			return FAILED;
		}
		rest(was != done + asked);
	}
	return is_wrong ? WRONG_BYTES : ENDED_WELL;
}

/* ---- set-up --------------------------------------------------------------------------------- */

static bool make_slots(void)
{
	const size_t all = a.bytes + 2 * MARGIN;

	for (unsigned i = 0; i < a.slots; i++) {
		uint8_t *send = malloc(all), *recv = malloc(all);

		if (!send || !recv)
			return false;
		memset(send, POISON, all);
		memset(recv, POISON, all);
		slots[i].send = send + MARGIN;
		slots[i].recv = recv + MARGIN;
		if (net.v12->regMr(coll, send, all, NCCL_PTR_HOST, &slots[i].send_mr) !=
			ncclSuccess ||
		    net.v12->regMr(coll, recv, all, NCCL_PTR_HOST, &slots[i].recv_mr) !=
			ncclSuccess)
			return false;
	}
	return true;
}

static bool is_poison(const uint8_t *at)
{
	for (size_t i = 0; i < a.bytes + 2 * MARGIN; i++)
		if (at[i] != POISON)
			return false;
	return true;
}

static bool free_slots(void)
{
	bool good = true;

	for (unsigned i = 0; i < a.slots && slots[i].send; i++) {
		struct slot *slot = &slots[i];

		good &= slot->is_used || a.is_timed ||
			(is_poison(slot->send - MARGIN) && is_poison(slot->recv - MARGIN));
		good &= net.v12->deregMr(coll, slot->send_mr) == ncclSuccess;
		good &= net.v12->deregMr(coll, slot->recv_mr) == ncclSuccess;
	}
	return good;
}

static void free_memory(void)
{
	for (unsigned i = 0; i < a.slots && slots[i].send; i++) {
		free(slots[i].send - MARGIN);
		free(slots[i].recv - MARGIN);
	}
}

static bool read_handles(uint8_t handles[RANKS][NCCL_NET_HANDLE_MAXSIZE])
{
	static char line[RANKS * (2 * NCCL_NET_HANDLE_MAXSIZE + 1) + 2];
	const char *at = line;

	if (!fgets(line, sizeof(line), stdin))
		return false;
	for (unsigned rank = 0; rank < a.ranks; rank++, at++)
		for (unsigned i = 0; i < NCCL_NET_HANDLE_MAXSIZE; i++, at += 2)
			if (sscanf(at, "%2hhx", &handles[rank][i]) != 1)
				return false;
	return true;
}

static bool exchange(const uint8_t *own, uint8_t handles[RANKS][NCCL_NET_HANDLE_MAXSIZE])
{
	printf("handle ");
	for (unsigned i = 0; i < NCCL_NET_HANDLE_MAXSIZE; i++)
		printf("%02x", own[i]);
	printf("\n");
	(void)fflush(stdout);
	return read_handles(handles);
}

static int connect_all(void)
{
	static uint8_t handles[RANKS][NCCL_NET_HANDLE_MAXSIZE];
	uint8_t own[NCCL_NET_HANDLE_MAXSIZE];
	void *pointers[RANKS], *listener;
	ncclResult_t result;
	int devices = -1;

	if (net.init(&context) != ncclSuccess || net.v12->devices(&devices) != ncclSuccess)
		return FAILED;
	printf("devices %d\n", devices);
	/* NCCL 2.28.3 finalizes what has a context, through a table that it has forgotten by then.
	 */
	if (devices == 0)
		return context ? FAILED : REFUSED;
	if (net.listen(context, 0, own, &listener) != ncclSuccess || !exchange(own, handles))
		return FAILED;
	for (unsigned rank = 0; rank < a.ranks; rank++)
		pointers[rank] = handles[rank];
	is_connecting = true;
	result = net.v12->connect(pointers, (int)a.ranks, (int)a.rank, listener, &coll);
	is_connecting = false;
	if (result != ncclSuccess)
		return coll ? FAILED : REFUSED;
	return net.v12->closeListen(listener) == ncclSuccess ? ENDED_WELL : FAILED;
}

static int work(void)
{
	int status = connect_all();

	if (status == ENDED_WELL)
		status = make_slots() ? run() : FAILED;
	printf("{\"rank\": %u, \"status\": %d, \"done\": %u, \"digest\": %" PRIu64
	       ", \"ns\": %" PRIu64 ", \"steps\": %u, \"result\": %d}\n",
	       a.rank, status, done, digest, begun_ns ? ha_real_ns() - begun_ns : 0, steps,
	       (int)last_result);
	(void)fflush(stdout);
	if (coll && (!free_slots() || net.v12->closeColl(coll) != ncclSuccess))
		status = WRONG_BYTES;
	free_memory();
	if (context && net.v12->finalize(context) != ncclSuccess)
		status = FAILED;
	return status;
}

static unsigned descriptors(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) != -1;
	return n;
}

/* Whether everything has been given back. */
static bool is_whole(int status)
{
	return status == ENDED_WELL || status == REFUSED;
}

/* Again from the beginning; nothing of one time is there in the next one. */
static int work_again_and_again(void)
{
	int status = ENDED_WELL;
	unsigned before = 0;

	for (unsigned i = 0; i < a.cycles && is_whole(status); i++) {
		memset(slots, 0, sizeof(slots));
		coll = NULL;
		asked = done = 0;
		status = work();
		if (i == 0)
			before = descriptors();
	}
	if (is_whole(status) && descriptors() != before) {
		fprintf(stderr, "%u descriptors, and %u after the first time\n", descriptors(),
			before);
		status = FAILED;
	}
	return status;
}

/* ---- the program ---------------------------------------------------------------------------- */

enum {
	OPT_API = 0x100,
	OPT_RANK,
	OPT_RANKS,
	OPT_OPS,
	OPT_BYTES,
	OPT_HOLD,
	OPT_TIMED,
	OPT_SLOTS,
	OPT_WARM,
	OPT_CYCLES,
	OPT_DIES_AT,
	OPT_IN_ORDER
};

static const struct argp_option options[] = {
    {"plugin", 'p', "FILE", 0, "", 0},	     {"api", OPT_API, "N", 0, "", 0},
    {"rank", OPT_RANK, "N", 0, "", 0},	     {"ranks", OPT_RANKS, "N", 0, "", 0},
    {"ops", OPT_OPS, "N", 0, "", 0},	     {"bytes", OPT_BYTES, "N", 0, "", 0},
    {"hold", OPT_HOLD, "N", 0, "", 0},	     {"timed", OPT_TIMED, 0, 0, "", 0},
    {"under-way", OPT_SLOTS, "N", 0, "", 0}, {"warm", OPT_WARM, "N", 0, "", 0},
    {"cycles", OPT_CYCLES, "N", 0, "", 0},   {"dies-at", OPT_DIES_AT, "N", 0, "", 0},
    {"in-order", OPT_IN_ORDER, 0, 0, "", 0}, {0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	const unsigned number = arg ? (unsigned)strtoul(arg, NULL, 10) : 0;

	switch (key) {
	case 'p':
		a.plugin = arg;
		return 0;
	case OPT_API:
		a.api = number;
		return 0;
	case OPT_RANK:
		a.rank = number;
		return 0;
	case OPT_RANKS:
		a.ranks = number;
		return 0;
	case OPT_OPS:
		a.ops = number;
		return 0;
	case OPT_BYTES:
		a.bytes = number;
		return 0;
	case OPT_HOLD:
		a.hold = number;
		return 0;
	case OPT_TIMED:
		a.is_timed = true;
		return 0;
	case OPT_IN_ORDER:
		a.is_in_order = true;
		return 0;
	case OPT_CYCLES:
		a.cycles = number;
		return 0;
	case OPT_DIES_AT:
		a.dies_at = number;
		return 0;
	case OPT_WARM:
		a.warm = number;
		return 0;
	case OPT_SLOTS:
		a.slots = number;
		return 0;
	case ARGP_KEY_END:
		if (!a.plugin || a.ranks > RANKS || a.rank >= a.ranks || a.slots > SLOTS ||
		    a.slots == 0 || a.bytes < SIZE_AT)
			argp_error(state, "say --plugin, --rank and --ranks");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp argp = {options, parse, NULL, "", NULL, NULL, NULL};

int main(int argc, char **argv)
{
	argp_err_exit_status = WRONG_CALL;
	argp_parse(&argp, argc, argv, 0, NULL, NULL);
	return load() ? work_again_and_again() : FAILED;
}
