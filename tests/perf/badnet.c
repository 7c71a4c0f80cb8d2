/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plugin that misbehaves in one chosen way, to prove that nccl-net-perf notices.
 *
 * It passes everything through to the plugin that BADNET_BASE names, in API version 8, and spoils
 * what BADNET says: on every BADNET_NTH call of the kind (default 5).
 */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "nccl_ha/nccl_net.h"

#define MAX_BUFFERS 64

static const ncclNet_v8_t *base;
static const char *mode;
static unsigned nth = 5;

/* A receive in flight, by its request; isend to test happen on one thread per process. */
struct receive {
	void *request;
	int n;
	void *data[MAX_BUFFERS];
};
static struct receive receives[1024];

static bool is(const char *name)
{
	return strcmp(mode, name) == 0;
}

/* Counts events of the kind that the mode spoils; true for the one to spoil. */
static bool now(const char *name)
{
	static _Atomic unsigned seen;

	return is(name) && ++seen % nth == 0;
}

static void sleep_for_ever(void)
{
	for (;;)
		pause();
}

/* ---- a rank that leaves --------------------------------------------------------------------- */

static bool is_rank_1(void)
{
	static const char option[] = "--rank\0"
				     "1"; /* and the NUL that ends it */
	char line[4096];
	FILE *f = fopen("/proc/self/cmdline", "re");
	size_t len = f ? fread(line, 1, sizeof(line), f) : 0;

	if (f)
		fclose(f);
	return memmem(line, len, option, sizeof(option)) != NULL;
}

/* A request of this rank is done, and so is the other rank's end of it. */
static void leave_unless_needed(void)
{
	const struct timespec others_wait_for_us = {.tv_sec = 1};

	if (!now("leaves") || !is_rank_1())
		return;
	nanosleep(&others_wait_for_us, NULL);
	raise(SIGKILL);
}

/* ---- late writes --------------------------------------------------------------------------- */

/*
 * A message that comes a second time, with the right bytes to the right place, after its receive is
 * done. As a network card does it: behind the back of the process.
 */
static struct {
	char copy[1 << 16];
	void *to;
	size_t len; /* 0: none is on its way */
} again;

static void keep_for_later(void *data, size_t len)
{
	if (len > sizeof(again.copy))
		len = sizeof(again.copy);
	memcpy(again.copy, data, len);
	again.to = data;
	again.len = len;
}

static void deliver_again(void)
{
	struct iovec from = {again.copy, again.len}, to = {again.to, again.len};

	if (again.len && process_vm_writev(getpid(), &from, 1, &to, 1, 0) != (ssize_t)again.len)
		abort();
	again.len = 0;
}

/* The same, long after the last call that moves data. */
static pthread_t late_thread;
static bool late_started;

static void *write_at_the_end(void *arg)
{
	struct timespec while_it_lingers = {.tv_nsec = 200 * 1000000};

	(void)arg;
	nanosleep(&while_it_lingers, NULL);
	deliver_again();
	return NULL;
}

static ncclResult_t bad_init(ncclDebugLogger_t log)
{
	const char *path = getenv("BADNET_BASE"), *count = getenv("BADNET_NTH");
	void *dl = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;

	mode = getenv("BADNET") ? getenv("BADNET") : "";
	if (count)
		nth = (unsigned)strtoul(count, NULL, 10);
	base = dl ? dlsym(dl, "ncclNetPlugin_v8") : NULL;
	if (!base || is("init-fails"))
		return ncclSystemError;
	return base->init(log);
}

static ncclResult_t bad_devices(int *ndev)
{
	ncclResult_t result = base->devices(ndev);

	if (is("no-device"))
		*ndev = 0;
	return result;
}

static ncclResult_t bad_properties(int dev, ncclNetProperties_v8_t *props)
{
	return base->getProperties(dev, props);
}

static ncclResult_t bad_listen(int dev, void *handle, void **comm)
{
	return base->listen(dev, handle, comm);
}

static void *stay(void *arg)
{
	(void)arg;
	sleep_for_ever();
	return NULL;
}

static void leak_thread(void)
{
	pthread_t thread;

	if (!pthread_create(&thread, NULL, stay, NULL))
		pthread_detach(thread);
}

/* As many threads as a device may have for its commands, all of them needed in a late cycle only.
 */
static void late_pool(void)
{
	static int nconnects;

	if (++nconnects == 10)
		for (int i = 0; i < 8; i++)
			leak_thread();
}

static ncclResult_t bad_connect(int dev, void *handle, void **comm, ncclNetDeviceHandle_v8_t **d)
{
	if (is("connect-never")) {
		*comm = NULL;
		return ncclSuccess;
	}
	if (is("connect-blocks"))
		sleep_for_ever();
	if (is("leak"))
		(void)!dup(0);
	if (is("leak-thread"))
		leak_thread();
	if (is("late-pool"))
		late_pool();
	return base->connect(dev, handle, comm, d);
}

static ncclResult_t bad_accept(void *listen_comm, void **comm, ncclNetDeviceHandle_v8_t **d)
{
	return base->accept(listen_comm, comm, d);
}

static ncclResult_t bad_reg(void *comm, void *data, size_t size, int type, void **mhandle)
{
	return is("reg-fails") ? ncclSystemError : base->regMr(comm, data, size, type, mhandle);
}

static ncclResult_t bad_dereg(void *comm, void *mhandle)
{
	return base->deregMr(comm, mhandle);
}

static ncclResult_t bad_isend(void *comm, void *data, int size, int tag, void *mhandle,
			      void **request)
{
	static char copy[1 << 16];

	/* A send is posted before the next receive: at the latest here nobody awaits it. */
	if (is("twice"))
		deliver_again();
	if (now("isend-fails"))
		return ncclSystemError;
	if (is("isend-never")) {
		*request = NULL;
		return ncclSuccess;
	}
	/* The data of an earlier message under this one's header. */
	if (size > 0 && (size_t)size <= sizeof(copy) && is("stale")) {
		static bool kept;

		if (!kept)
			memcpy(copy, data, (size_t)size);
		kept = true;
		if (now("stale"))
			memcpy(data, copy, (size_t)size);
	}
	if (size > 0 && now("short"))
		size--;
	return base->isend(comm, data, size, tag, mhandle, request);
}

static ncclResult_t bad_irecv(void *comm, int n, void **data, int *sizes, int *tags,
			      void **mhandles, void **request)
{
	ncclResult_t result;

	/* Before this memory waits for something else: that would be wrong data as well. */
	if (is("twice"))
		deliver_again();
	result = base->irecv(comm, n, data, sizes, tags, mhandles, request);
	for (size_t i = 0; *request && i < sizeof(receives) / sizeof(receives[0]); i++) {
		struct receive *r = &receives[i];

		if (r->request)
			continue;
		r->request = *request;
		r->n = n;
		memcpy(r->data, data, (size_t)n * sizeof(*data));
		break;
	}
	return result;
}

static ncclResult_t bad_iflush(void *comm, int n, void **data, int *sizes, void **mhandles,
			       void **request)
{
	return base->iflush(comm, n, data, sizes, mhandles, request);
}

static struct receive *find_receive(const void *request)
{
	for (size_t i = 0; i < sizeof(receives) / sizeof(receives[0]); i++)
		if (receives[i].request == request)
			return &receives[i];
	return NULL;
}

/* A receive has completed with these sizes. */
static void spoil(struct receive *r, int *sizes)
{
	char *first = r->data[0];

	if (sizes[0] > 0 && now("corrupt"))
		first[sizes[0] / 2] = (char)(first[sizes[0] / 2] ^ 0x10);
	if (now("overrun"))
		first[sizes[0] ? sizes[0] : 0] = 0;
	if (now("underrun"))
		first[-1] = 0;
	if (sizes[0] > 0 && (now("twice") || (is("at-the-end") && !late_started)))
		keep_for_later(first, (size_t)sizes[0]);
	if (again.len && is("at-the-end") && !late_started)
		late_started = !pthread_create(&late_thread, NULL, write_at_the_end, NULL);
	if (sizes[0] > 0 && now("size"))
		sizes[0]--;
	if (r->n > 2 && now("swap")) {
		char byte = first[0], *other = r->data[r->n - 1];

		(void)byte;
		if (sizes[r->n - 1] > 1)
			memmove(other, other + 1, (size_t)sizes[r->n - 1] - 1);
	}
}

static ncclResult_t bad_test(void *request, int *done, int *sizes)
{
	struct receive *r = find_receive(request);
	ncclResult_t result;

	if (now("test-blocks"))
		sleep_for_ever();
	if (now("crash"))
		abort();
	if (now("test-fails"))
		return ncclRemoteError;
	if (r && is("test-never")) {
		*done = 0;
		return ncclSuccess;
	}
	if (is("twice"))
		deliver_again();
	result = base->test(request, done, sizes);
	if (result == ncclSuccess && *done && r) {
		if (sizes)
			spoil(r, sizes);
		r->request = NULL;
	}
	if (result == ncclSuccess && *done)
		leave_unless_needed();
	return result;
}

static ncclResult_t bad_close_send(void *comm)
{
	ncclResult_t result = base->closeSend(comm);

	if (is("close-blocks"))
		sleep_for_ever();
	return is("close-fails") ? ncclSystemError : result;
}

static ncclResult_t bad_close_recv(void *comm)
{
	if (late_started)
		pthread_join(late_thread, NULL);
	late_started = false;
	return base->closeRecv(comm);
}

static ncclResult_t bad_close_listen(void *comm)
{
	return base->closeListen(comm);
}

extern const ncclNet_v8_t ncclNetPlugin_v8;
__attribute__((visibility("default"))) const ncclNet_v8_t ncclNetPlugin_v8 = {
    .name = "Bad",
    .init = bad_init,
    .devices = bad_devices,
    .getProperties = bad_properties,
    .listen = bad_listen,
    .connect = bad_connect,
    .accept = bad_accept,
    .regMr = bad_reg,
    .deregMr = bad_dereg,
    .isend = bad_isend,
    .irecv = bad_irecv,
    .iflush = bad_iflush,
    .test = bad_test,
    .closeSend = bad_close_send,
    .closeRecv = bad_close_recv,
    .closeListen = bad_close_listen,
};
