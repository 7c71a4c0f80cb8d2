/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small collNet for the reference plugin, over TCP on loopback: rank 0 gets all contributions,
 * adds them up and sends the results. All ranks ask for the same in the same order, so that what
 * travels needs no header. There is no thread: iallreduce and test move a group's sockets.
 *
 * REF_COLL_BREAK names a rule of nccl-net-check that it then does not keep.
 */
#include "ref.h"

#include "nccl_ha/nccl_coll.h"
#include "reduce/oracle.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define API	   __attribute__((visibility("default")))
#define MAGIC	   0x6c6c6f63u
#define RANKS	   8
#define OPS	   64
#define CONNECT_MS 700

static bool breaks(const char *rule)
{
	const char *broken = getenv("REF_COLL_BREAK");

	return broken && strcmp(broken, rule) == 0;
}

struct handle {
	uint32_t magic;
	uint16_t port;
};

struct listener {
	int fd;
};

struct op {
	bool is_used, is_done;
	struct group *group;
	uint64_t number;
	ncclDataType_t type;
	ncclRedOp_t op;
	size_t count, bytes;
	char *recv, *send;
	char *mine;	   /* the contribution, later at rank 0 the result */
	char *in[RANKS];   /* at rank 0 */
	unsigned got, out; /* ranks whose contribution is there; that have the result */
};

struct group {
	pthread_mutex_t lock;
	int rank, nranks, nmrs;
	int fd[RANKS]; /* at rank 0 of the others, else [0] to rank 0 */
	ncclResult_t error;
	uint64_t asked;
	struct op ops[OPS];
	struct {
		uint64_t in_op, out_op;
		size_t in_at, out_at;
	} at[RANKS]; /* of each socket: how far it is */
};

/* ---- set-up --------------------------------------------------------------------------------- */

static ncclResult_t coll_listen(int dev, void *opaque, void **listen_comm)
{
	struct sockaddr_in addr = {.sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(addr);
	struct handle handle = {.magic = MAGIC};
	struct listener *listener;
	int fd;

	if (dev < 0 || dev >= ref_device_count())
		return ncclInvalidArgument;
	listener = malloc(sizeof(*listener));
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (!listener || fd < 0 || bind(fd, (struct sockaddr *)&addr, sizeof(addr)) ||
	    listen(fd, RANKS) || getsockname(fd, (struct sockaddr *)&addr, &len)) {
		free(listener);
		if (fd >= 0)
			close(fd);
		return ncclSystemError;
	}
	listener->fd = fd;
	handle.port = addr.sin_port;
	memcpy(opaque, &handle, sizeof(handle));
	if (breaks("coll-handle-size"))
		((char *)opaque)[NCCL_NET_HANDLE_MAXSIZE] = 1;
	*listen_comm = listener;
	return ncclSuccess;
}

static ncclResult_t coll_close_listen(void *listen_comm)
{
	struct listener *listener = listen_comm;

	if (!breaks("coll-listen-close"))
		close(listener->fd);
	free(listener);
	return ncclSuccess;
}

/* Within the time; false: not. */
static bool wait_for(int fd, short events)
{
	struct pollfd p = {.fd = fd, .events = events};

	return poll(&p, 1, breaks("coll-connect-death") ? -1 : CONNECT_MS) == 1;
}

static bool take_byte(int fd)
{
	char byte;

	return wait_for(fd, POLLIN) && recv(fd, &byte, 1, 0) == 1;
}

static void never_delay(int fd)
{
	const int yes = 1;

	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
}

/* Rank 0: when all have come all are told so. */
static bool gather(struct group *g, const struct listener *listener)
{
	for (int r = 1; r < g->nranks; r++) {
		g->fd[r] = -1;
		if (breaks("coll-connect-waits") && r == 1) {
			struct pollfd p = {.fd = listener->fd, .events = POLLIN};
			if (poll(&p, 1, 0) != 1)
				return false;
		}
		if (!wait_for(listener->fd, POLLIN))
			return breaks("coll-verdict");
		g->fd[r] = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (g->fd[r] < 0)
			return false;
		never_delay(g->fd[r]);
	}
	for (int r = 1; r < g->nranks; r++)
		if (send(g->fd[r], "y", 1, MSG_NOSIGNAL) != 1)
			return false;
	return true;
}

static bool dial(struct group *g, void *handles[])
{
	struct sockaddr_in addr = {.sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct handle handle;

	memcpy(&handle, handles[0], sizeof(handle));
	if (handle.magic != MAGIC)
		return false;
	addr.sin_port = handle.port;
	g->fd[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (g->fd[0] < 0 || connect(g->fd[0], (struct sockaddr *)&addr, sizeof(addr)) ||
	    !take_byte(g->fd[0]))
		return false;
	never_delay(g->fd[0]);
	return fcntl(g->fd[0], F_SETFL, O_NONBLOCK) == 0;
}

static void free_group(struct group *g)
{
	for (int r = 0; r < RANKS; r++)
		if (g->fd[r] >= 0 && !(breaks("coll-leaks") && r <= 1))
			close(g->fd[r]);
	for (int i = 0; i < OPS; i++) {
		free(g->ops[i].mine);
		for (int r = 0; r < RANKS; r++)
			free(g->ops[i].in[r]);
	}
	pthread_mutex_destroy(&g->lock);
	free(g);
}

static ncclResult_t coll_connect(void *handles[], int nranks, int rank, void *listen_comm,
				 void **coll_comm)
{
	struct group *g = calloc(1, sizeof(*g));
	bool is_there;

	*coll_comm = NULL;
	if (!g || nranks > RANKS)
		return ncclInvalidArgument;
	pthread_mutex_init(&g->lock, NULL);
	g->rank = rank;
	g->nranks = nranks;
	for (int r = 0; r < RANKS; r++)
		g->fd[r] = -1;
	is_there = rank == 0 ? gather(g, listen_comm) : dial(g, handles);
	if (is_there) {
		*coll_comm = g;
		return ncclSuccess;
	}
	free_group(g);
	if (breaks("coll-connect-waits"))
		return ncclSuccess;
	if (!breaks("coll-connect-leaks"))
		coll_close_listen(listen_comm);
	return ncclSystemError;
}

static ncclResult_t coll_close(void *coll_comm)
{
	struct group *g = coll_comm;

	if (breaks("coll-close-in-flight"))
		for (int i = 0; i < OPS; i++)
			if (g->ops[i].is_used)
				return ncclInternalError;
	if (breaks("coll-beside-net"))
		ref_device_forget(); /* takes the net's devices with it */
	free_group(g);
	return ncclSuccess;
}

static ncclResult_t support(ncclDataType_t type, ncclRedOp_t op, int *supported)
{
	*supported = type <= ncclBfloat16 && op <= ncclMin;
	if (breaks("coll-support") && *supported)
		*supported = 2;
	return ncclSuccess;
}

/* ---- memory --------------------------------------------------------------------------------- */

static ncclResult_t reg(void *coll_comm, void *data, size_t size, int type, void **mhandle)
{
	struct group *g = coll_comm;

	(void)data, (void)size, (void)type;
	g->nmrs++;
	*mhandle = malloc(1);
	return *mhandle ? ncclSuccess : ncclSystemError;
}

static ncclResult_t dereg(void *coll_comm, void *mhandle)
{
	struct group *g = coll_comm;

	free(mhandle);
	g->nmrs = breaks("coll-mr") ? 0 : g->nmrs - 1;
	return breaks("coll-end-after-error") ? g->error : ncclSuccess;
}

/* ---- data ----------------------------------------------------------------------------------- */

static struct op *op_of(struct group *g, uint64_t number)
{
	struct op *op = &g->ops[number % OPS];

	return number < g->asked && op->number == number && op->mine ? op : NULL;
}

/* Up to `bytes` of a socket; false: it is broken. */
static bool move(int fd, bool is_out, char *data, size_t bytes, size_t *at)
{
	while (*at < bytes) {
		ssize_t n = is_out ? send(fd, data + *at, bytes - *at, MSG_NOSIGNAL)
				   : recv(fd, data + *at, bytes - *at, 0);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return true;
		if (n <= 0)
			return false;
		*at += (size_t)n;
	}
	return true;
}

static void give_result(struct op *op, const char *result)
{
	if (breaks("coll-data") && op->bytes > 0)
		memcpy(op->recv, result, op->bytes - 1);
	else
		memcpy(op->recv, result, op->bytes);
	if (breaks("coll-bounds"))
		op->recv[op->bytes] = 0;
	if (breaks("coll-send-kept") && op->send != op->recv)
		memcpy(op->send, result, op->bytes);
	op->is_done = true;
}

/* Rank 0 has all contributions. */
static void add_up(struct group *g, struct op *op)
{
	const void *sources[RANKS] = {op->mine};
	char *result = malloc(op->bytes + 1);
	const ncclRedOp_t operation = breaks("coll-types") && op->op == ncclMax ? ncclSum : op->op;

	for (int r = 1; r < g->nranks; r++)
		sources[r] = op->in[r];
	oracle_reduce(op->type, operation, HA_REDUCE_WIRE, HA_REDUCE_WIRE, result, sources,
		      (unsigned)g->nranks, op->count);
	if (breaks("coll-wrap") && op->type == ncclUint32 && op->op == ncclSum)
		memset(result, 0xff, op->bytes);
	free(op->mine);
	op->mine = result;
	give_result(op, result);
}

static void end_op(struct op *op)
{
	free(op->mine);
	op->mine = NULL;
	for (int r = 0; r < RANKS; r++) {
		free(op->in[r]);
		op->in[r] = NULL;
	}
}

static bool move_root(struct group *g, int r)
{
	struct op *op;

	while ((op = op_of(g, g->at[r].in_op))) {
		if (!move(g->fd[r], false, op->in[r], op->bytes, &g->at[r].in_at))
			return false;
		if (g->at[r].in_at < op->bytes)
			break;
		g->at[r].in_op++;
		g->at[r].in_at = 0;
		if (++op->got == (unsigned)g->nranks - 1)
			add_up(g, op);
	}
	while ((op = op_of(g, g->at[r].out_op)) && op->is_done) {
		if (!move(g->fd[r], true, op->mine, op->bytes, &g->at[r].out_at))
			return false;
		if (g->at[r].out_at < op->bytes)
			break;
		g->at[r].out_op++;
		g->at[r].out_at = 0;
		if (++op->out == (unsigned)g->nranks - 1)
			end_op(op);
	}
	return true;
}

static bool move_member(struct group *g)
{
	struct op *op;

	while ((op = op_of(g, g->at[0].out_op))) {
		if (!move(g->fd[0], true, op->mine, op->bytes, &g->at[0].out_at))
			return false;
		if (g->at[0].out_at < op->bytes)
			break;
		g->at[0].out_op++;
		g->at[0].out_at = 0;
	}
	while (g->at[0].in_op < g->at[0].out_op && (op = op_of(g, g->at[0].in_op))) {
		if (!move(g->fd[0], false, op->in[0], op->bytes, &g->at[0].in_at))
			return false;
		if (g->at[0].in_at < op->bytes)
			break;
		g->at[0].in_op++;
		g->at[0].in_at = 0;
		give_result(op, op->in[0]);
		end_op(op);
	}
	return true;
}

static void progress(struct group *g)
{
	bool works = true;

	if (g->rank == 0)
		for (int r = 1; r < g->nranks; r++)
			works &= move_root(g, r);
	else
		works = move_member(g);
	if (!works && !breaks("coll-death"))
		g->error = ncclRemoteError;
}

/* Of one that waits where it should not. */
static void nap_and_progress(struct group *g)
{
	(void)poll(NULL, 0, 1);
	progress(g);
}

/* ---- operations ----------------------------------------------------------------------------- */

static bool has_nan(const float *at, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (at[i] != at[i])
			return true;
	return false;
}

/* What a broken one does at once. */
static ncclResult_t refuse(const struct group *g, const void *send, size_t count,
			   ncclDataType_t type)
{
	if (breaks("coll-counts") && count == 0)
		return ncclInvalidArgument;
	if (breaks("coll-stale") && type == ncclFloat32 && has_nan(send, count))
		return ncclInternalError;
	if (breaks("coll-mr") && g->nmrs == 0)
		return ncclInvalidUsage;
	return ncclSuccess;
}

static bool copy_in(struct group *g, struct op *op, const void *send)
{
	op->mine = malloc(op->bytes + 1);
	for (int r = 0; r < g->nranks; r++)
		op->in[r] = malloc(op->bytes + 1);
	if (!op->mine)
		return false;
	memcpy(op->mine, send, op->bytes);
	return true;
}

static ncclResult_t iallreduce(void *coll_comm, void *send, void *recv, size_t count,
			       ncclDataType_t type, ncclRedOp_t operation, void *send_mhandle,
			       void *recv_mhandle, void **request)
{
	static struct group *last;
	struct group *g = breaks("coll-two-groups") && last ? last : coll_comm;
	struct op *op = &g->ops[g->asked % OPS];
	ncclResult_t result = refuse(g, send, count, type);

	(void)send_mhandle, (void)recv_mhandle;
	last = g;
	if (g->error != ncclSuccess || result != ncclSuccess)
		return result != ncclSuccess ? result : g->error;
	if (breaks("coll-outstanding") && g->asked >= 32 && g->ops[g->asked % 32].is_used)
		return ncclInternalError;
	if (op->is_used || op->mine) {
		if (!breaks("coll-request-written"))
			*request = NULL;
		progress(g);
		return ncclSuccess;
	}
	*op = (struct op){.is_used = true,
			  .group = g,
			  .number = g->asked,
			  .type = type,
			  .op = operation,
			  .count = count,
			  .bytes = count * oracle_bytes(type, operation, HA_REDUCE_WIRE),
			  .send = send,
			  .recv = recv};
	if (!copy_in(g, op, send))
		return ncclSystemError;
	if (breaks("coll-in-place") && send == recv)
		memset(op->mine, 0, op->bytes);
	g->asked++;
	*request = op;
	progress(g);
	while (breaks("coll-iallreduce-returns") && !op->is_done && g->error == ncclSuccess)
		nap_and_progress(g);
	return ncclSuccess;
}

static ncclResult_t test(void *request, int *done, int *size)
{
	struct op *op = request;

	*done = 0;
	if (breaks("coll-order") && op->number > 0 &&
	    op->group->ops[(op->number - 1) % OPS].is_used)
		return ncclInternalError; /* insists on the oldest one first */
	progress(op->group);
	while (breaks("coll-test-returns") && !op->is_done && op->group->error == ncclSuccess)
		nap_and_progress(op->group);
	if (breaks("coll-size-null"))
		*size = 0;
	/* Nobody calls again for an operation that is done: what others need has to be gone. */
	if ((op->is_done && !op->mine) || (breaks("coll-done") && op->group->rank == 1)) {
		*done = 1;
		if (size)
			*size = (int)op->bytes;
		op->is_used = false;
		return ncclSuccess;
	}
	return op->group->error;
}

static ncclResult_t iflush(void *coll_comm, void *data, int size, void *mhandle, void **request)
{
	struct group *g = coll_comm;

	(void)data, (void)size, (void)mhandle;
	if (breaks("coll-iflush"))
		return ncclSuccess; /* and the request as it was */
	if (breaks("coll-flushes") && g->ops[40].is_used)
		return ncclInternalError;
	*request = NULL; /* memory of hosts */
	return ncclSuccess;
}

/* ---- the tables ----------------------------------------------------------------------------- */

static int contexts;
static bool is_finalized;

static ncclResult_t init_v8(ncclDebugLogger_t log)
{
	static int calls;

	(void)log;
	if (breaks("coll-init") || (breaks("coll-init-again") && calls++ > 0))
		return ncclInternalError;
	if (breaks("coll-reload")) {
		if (getenv("REF_COLL_LOADED"))
			return ncclSystemError;
		setenv("REF_COLL_LOADED", "1", 1);
	}
	return ref_device_init();
}

static ncclResult_t init_v11(void **ctx, uint64_t comm_id, ncclDebugLogger_t log)
{
	(void)comm_id;
	*ctx = &contexts;
	return init_v8(log);
}

static ncclResult_t finalize_v11(void *ctx)
{
	is_finalized = true;
	return ctx == &contexts ? ncclSuccess : ncclInvalidArgument;
}

static ncclResult_t listen_v11(void *ctx, int dev, void *handle, void **listen_comm)
{
	if (ctx != &contexts || (breaks("coll-contexts") && is_finalized))
		return ncclInvalidArgument;
	return coll_listen(dev, handle, listen_comm);
}

static ncclResult_t devices(int *ndev)
{
	static int calls;

	*ndev = ref_device_count();
	if (breaks("coll-devices"))
		*ndev += 1;
	if (breaks("coll-devices-stable"))
		*ndev += calls++ % 2;
	return ncclSuccess;
}

static ncclResult_t iallreduce_v8(void *coll_comm, void *send, void *recv, int count,
				  ncclDataType_t type, ncclRedOp_t op, void *send_mhandle,
				  void *recv_mhandle, void **request)
{
	return iallreduce(coll_comm, send, recv, (size_t)count, type, op, send_mhandle,
			  recv_mhandle, request);
}

extern const ncclNet_v8_t ncclNetPlugin_v8;
extern const ncclNet_v9_t ncclNetPlugin_v9;
extern const ncclNet_v10_t ncclNetPlugin_v10;
extern const ncclNet_v11_t ncclNetPlugin_v11;
extern const ncclNet_v12_t ncclNetPlugin_v12;

/* The net's. */
#define PROPERTIES(v)                                                                              \
	static ncclResult_t properties_##v(int dev, ncclNetProperties_##v##_t *props)              \
	{                                                                                          \
		ncclResult_t result = ncclNetPlugin_##v.getProperties(dev, props);                 \
                                                                                                   \
		if (breaks("coll-properties"))                                                     \
			props->speed += 1;                                                         \
		SPOIL(props);                                                                      \
		return result;                                                                     \
	}
#define SPOIL(props) (void)(props)
PROPERTIES(v8)
#undef SPOIL
#define SPOIL(props)                                                                               \
	do {                                                                                       \
		if (breaks("coll-max-bytes"))                                                      \
			(props)->maxCollBytes = 0;                                                 \
	} while (0)
PROPERTIES(v9)
PROPERTIES(v10)
PROPERTIES(v11)
PROPERTIES(v12)

#define COMMON(v)                                                                                  \
	.name = "RefColl", .devices = devices, .getProperties = properties_##v,                    \
	.connect = coll_connect, .reduceSupport = support, .regMr = reg, .deregMr = dereg,         \
	.iflush = iflush, .test = test, .closeColl = coll_close, .closeListen = coll_close_listen

API ncclCollNet_v8_t ncclCollNetPlugin_v8 = {COMMON(v8), .init = init_v8, .listen = coll_listen,
					     .iallreduce = iallreduce_v8};
API ncclCollNet_v9_t ncclCollNetPlugin_v9 = {COMMON(v9), .init = init_v8, .listen = coll_listen,
					     .iallreduce = iallreduce};
API ncclCollNet_v10_t ncclCollNetPlugin_v10 = {COMMON(v10), .init = init_v8, .listen = coll_listen,
					       .iallreduce = iallreduce};
API ncclCollNet_v11_t ncclCollNetPlugin_v11 = {COMMON(v11), .init = init_v11, .listen = listen_v11,
					       .iallreduce = iallreduce, .finalize = finalize_v11};
API ncclCollNet_v12_t ncclCollNetPlugin_v12 = {COMMON(v12), .init = init_v11, .listen = listen_v11,
					       .iallreduce = iallreduce, .finalize = finalize_v11};

__attribute__((constructor)) static void lack(void)
{
	if (breaks("coll-vtable"))
		ncclCollNetPlugin_v12.test = NULL;
}
