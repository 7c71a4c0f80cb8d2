/* SPDX-License-Identifier: Apache-2.0 */
#include "fakecuda.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* Of CUpointer_attribute. */
enum { MEMORY_TYPE = 2, DEVICE_ORDINAL = 9, RANGE_START = 11, RANGE_SIZE = 12 };
#define DEVICE_MEMORY 2u
#define DEPTH	      8

struct allocation {
	struct allocation *next;
	uint8_t *device, *alias;
	size_t size, mapped, offset; /* into the mappings */
	int fd;
};

/* A copy that waits for its stream to be synchronised. */
struct copy {
	struct copy *next;
	uint8_t *at;  /* alias */
	uint8_t *out; /* where to; NULL: `in` is what goes in */
	size_t length;
	uint8_t in[];
};

struct stream {
	struct copy *first, **last;
};

static const char *const names[] = {
    "cuPointerGetAttribute",	   "cuDeviceGet",
    "cuDevicePrimaryCtxRetain",	   "cuDevicePrimaryCtxRelease_v2",
    "cuCtxPushCurrent_v2",	   "cuCtxPopCurrent_v2",
    "cuCtxGetStreamPriorityRange", "cuStreamCreateWithPriority",
    "cuStreamDestroy_v2",	   "cuStreamSynchronize",
    "cuMemcpyHtoDAsync_v2",	   "cuMemcpyDtoHAsync_v2",
};
#define ENTRIES (sizeof(names) / sizeof(names[0]))

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct allocation *allocations;
static unsigned contexts, streams;
static struct {
	unsigned calls, failed, skip, count;
	int error;
	uint64_t slow_ns;
} rules[ENTRIES];
static char the_context; /* the primary one of the only device */
static _Thread_local void *current[DEPTH];
static _Thread_local unsigned depth;

/* ---- rules ---- */

static size_t entry_of(const char *name)
{
	for (size_t i = 0; i < ENTRIES; i++)
		if (!strcmp(names[i], name))
			return i;
	fprintf(stderr, "fakecuda: no entry %s\n", name);
	abort();
}

/* Begins each entry: the error it is to return, or 0. Locks unless it fails. */
static int enter(const char *name)
{
	size_t i = entry_of(name);
	struct timespec pause;
	int error = 0;

	pthread_mutex_lock(&lock);
	pause = (struct timespec){.tv_sec = (time_t)(rules[i].slow_ns / 1000000000),
				  .tv_nsec = (long)(rules[i].slow_ns % 1000000000)};
	rules[i].calls++;
	if (rules[i].skip) {
		rules[i].skip--;
	} else if (rules[i].count) {
		rules[i].count--;
		rules[i].failed++;
		error = rules[i].error;
	}
	pthread_mutex_unlock(&lock);
	if (pause.tv_sec || pause.tv_nsec)
		nanosleep(&pause, NULL);
	if (!error)
		pthread_mutex_lock(&lock);
	return error;
}

static int leave(int error)
{
	pthread_mutex_unlock(&lock);
	return error;
}

void fakecuda_fail(const char *entry, unsigned skip, unsigned count, int error)
{
	size_t i = entry_of(entry);

	pthread_mutex_lock(&lock);
	rules[i].skip = skip;
	rules[i].count = count;
	rules[i].error = error;
	pthread_mutex_unlock(&lock);
}

void fakecuda_slow(const char *entry, uint64_t ns)
{
	pthread_mutex_lock(&lock);
	rules[entry_of(entry)].slow_ns = ns;
	pthread_mutex_unlock(&lock);
}

static unsigned ask(const unsigned *number)
{
	unsigned value;

	pthread_mutex_lock(&lock);
	value = *number;
	pthread_mutex_unlock(&lock);
	return value;
}

unsigned fakecuda_calls(const char *entry)
{
	return ask(&rules[entry_of(entry)].calls);
}

unsigned fakecuda_failed(const char *entry)
{
	return ask(&rules[entry_of(entry)].failed);
}

void fakecuda_reset(void)
{
	pthread_mutex_lock(&lock);
	memset(rules, 0, sizeof(rules));
	pthread_mutex_unlock(&lock);
}

unsigned fakecuda_contexts(void)
{
	return ask(&contexts);
}

unsigned fakecuda_streams(void)
{
	return ask(&streams);
}

/* ---- memory ---- */

static void free_memory(struct allocation *a)
{
	if (a->device != MAP_FAILED)
		munmap(a->device - a->offset, a->mapped);
	if (a->alias != MAP_FAILED)
		munmap(a->alias - a->offset, a->mapped);
	if (a->fd >= 0)
		close(a->fd);
	free(a);
}

static int allocate(CUdeviceptr *ptr, size_t size, size_t offset)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct allocation *a = calloc(1, sizeof(*a));

	if (!a)
		return CUDA_ERROR_OUT_OF_MEMORY;
	a->size = size;
	a->mapped = (offset + size + page - 1) & ~(page - 1);
	a->device = a->alias = MAP_FAILED;
	a->fd = memfd_create("fakecuda", MFD_CLOEXEC);
	if (size && a->fd >= 0 && ftruncate(a->fd, (off_t)a->mapped) == 0) {
		a->device = mmap(NULL, a->mapped, PROT_NONE, MAP_SHARED, a->fd, 0);
		a->alias = mmap(NULL, a->mapped, PROT_READ | PROT_WRITE, MAP_SHARED, a->fd, 0);
	}
	if (a->device == MAP_FAILED || a->alias == MAP_FAILED) {
		free_memory(a);
		return size ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
	}
	a->offset = offset;
	a->device += offset;
	a->alias += offset;
	*ptr = (uintptr_t)a->device;
	pthread_mutex_lock(&lock);
	a->next = allocations;
	allocations = a;
	return leave(CUDA_SUCCESS);
}

int cuMemAlloc_v2(CUdeviceptr *ptr, size_t size)
{
	return allocate(ptr, size, 0);
}

/* The allocation that has all of it; NULL: none. Locked. */
static struct allocation *find(CUdeviceptr ptr, size_t length)
{
	struct allocation *a = allocations;

	while (a && (ptr < (uintptr_t)a->device || ptr - (uintptr_t)a->device >= a->size ||
		     length > a->size - (ptr - (uintptr_t)a->device)))
		a = a->next;
	return a;
}

int cuMemFree_v2(CUdeviceptr ptr)
{
	struct allocation **pos = &allocations, *a;

	pthread_mutex_lock(&lock);
	while (*pos && (uintptr_t)(*pos)->device != ptr)
		pos = &(*pos)->next;
	a = *pos;
	if (!a)
		return leave(CUDA_ERROR_INVALID_VALUE);
	*pos = a->next;
	free_memory(a);
	return leave(CUDA_SUCCESS);
}

void *fakecuda_alloc(size_t size)
{
	return fakecuda_alloc_inside(size, 0);
}

void *fakecuda_alloc_inside(size_t size, size_t offset)
{
	CUdeviceptr ptr;

	return allocate(&ptr, size, offset) == CUDA_SUCCESS ? (void *)(uintptr_t)ptr : NULL;
}

void fakecuda_free(void *ptr)
{
	if (cuMemFree_v2((uintptr_t)ptr) != CUDA_SUCCESS)
		abort();
}

uint8_t *fakecuda_look(const void *ptr)
{
	const struct allocation *a;
	uint8_t *alias;

	pthread_mutex_lock(&lock);
	a = find((uintptr_t)ptr, 0);
	alias = a ? a->alias + ((uintptr_t)ptr - (uintptr_t)a->device) : NULL;
	pthread_mutex_unlock(&lock);
	return alias;
}

/* An O_PATH descriptor has the file's identity, and no way to its bytes. */
int cuMemGetHandleForAddressRange(void *fd, CUdeviceptr ptr, size_t size, int type,
				  unsigned long long flags)
{
	const struct allocation *a;
	char path[32];

	pthread_mutex_lock(&lock);
	a = find(ptr, size);
	if (!a || type != 1 || flags)
		return leave(CUDA_ERROR_INVALID_VALUE);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", a->fd);
	*(int *)fd = open(path, O_PATH | O_CLOEXEC);
	return leave(*(int *)fd < 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS);
}

/* ---- pointers and contexts ---- */

int cuPointerGetAttribute(void *value, int attribute, CUdeviceptr ptr);
int cuPointerGetAttribute(void *value, int attribute, CUdeviceptr ptr)
{
	const struct allocation *a;
	int error = enter("cuPointerGetAttribute");

	if (error)
		return error;
	a = find(ptr, 0);
	if (!a)
		return leave(CUDA_ERROR_INVALID_VALUE);
	switch (attribute) {
	case MEMORY_TYPE:
		*(unsigned *)value = DEVICE_MEMORY;
		break;
	case DEVICE_ORDINAL:
		*(int *)value = 0;
		break;
	case RANGE_START:
		*(CUdeviceptr *)value = (uintptr_t)a->device;
		break;
	case RANGE_SIZE:
		*(size_t *)value = a->size;
		break;
	default:
		return leave(CUDA_ERROR_INVALID_VALUE);
	}
	return leave(CUDA_SUCCESS);
}

int cuDeviceGet(int *device, int ordinal);
int cuDeviceGet(int *device, int ordinal)
{
	int error = enter("cuDeviceGet");

	if (error)
		return error;
	*device = ordinal;
	return leave(CUDA_SUCCESS);
}

int cuDevicePrimaryCtxRetain(void **ctx, int device);
int cuDevicePrimaryCtxRetain(void **ctx, int device)
{
	int error = enter("cuDevicePrimaryCtxRetain");

	(void)device;
	if (error)
		return error;
	contexts++;
	*ctx = &the_context;
	return leave(CUDA_SUCCESS);
}

int cuDevicePrimaryCtxRelease_v2(int device);
int cuDevicePrimaryCtxRelease_v2(int device)
{
	int error = enter("cuDevicePrimaryCtxRelease_v2");

	(void)device;
	if (error)
		return error;
	if (!contexts)
		return leave(CUDA_ERROR_INVALID_CONTEXT);
	contexts--;
	return leave(CUDA_SUCCESS);
}

int cuCtxPushCurrent_v2(void *ctx);
int cuCtxPushCurrent_v2(void *ctx)
{
	int error = enter("cuCtxPushCurrent_v2");

	if (error)
		return error;
	if (!contexts || ctx != &the_context || depth == DEPTH)
		return leave(CUDA_ERROR_INVALID_CONTEXT);
	current[depth++] = ctx;
	return leave(CUDA_SUCCESS);
}

int cuCtxPopCurrent_v2(void **ctx);
int cuCtxPopCurrent_v2(void **ctx)
{
	int error = enter("cuCtxPopCurrent_v2");

	if (error)
		return error;
	if (!depth)
		return leave(CUDA_ERROR_INVALID_CONTEXT);
	*ctx = current[--depth];
	return leave(CUDA_SUCCESS);
}

/* ---- streams ---- */

int cuCtxGetStreamPriorityRange(int *least, int *greatest);
int cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	int error = enter("cuCtxGetStreamPriorityRange");

	if (error)
		return error;
	*least = 0;
	*greatest = -5;
	return leave(depth ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT);
}

int cuStreamCreateWithPriority(void **stream, unsigned flags, int priority);
int cuStreamCreateWithPriority(void **stream, unsigned flags, int priority)
{
	struct stream *s;
	int error = enter("cuStreamCreateWithPriority");

	(void)flags;
	(void)priority;
	if (error)
		return error;
	s = depth ? calloc(1, sizeof(*s)) : NULL;
	if (!s)
		return leave(depth ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_CONTEXT);
	s->last = &s->first;
	*stream = s;
	streams++;
	return leave(CUDA_SUCCESS);
}

typedef uint64_t word __attribute__((aligned(1), may_alias));

/* A GPU's own: the thread sanitizer knows nothing of what orders it with the program. */
__attribute__((no_sanitize("thread"))) static void copy_bytes(uint8_t *to, const uint8_t *from,
							      size_t length)
{
	for (; length >= sizeof(word);
	     length -= sizeof(word), to += sizeof(word), from += sizeof(word))
		*(volatile word *)to = *(const volatile word *)from;
	for (; length; length--)
		*(volatile uint8_t *)to++ = *(const volatile uint8_t *)from++;
}

static void do_first(struct stream *s, bool done)
{
	struct copy *copy = s->first;

	s->first = copy->next;
	if (!s->first)
		s->last = &s->first;
	if (done && copy->out)
		copy_bytes(copy->out, copy->at, copy->length);
	else if (done)
		copy_bytes(copy->at, copy->in, copy->length);
	free(copy);
}

int cuStreamDestroy_v2(void *stream);
int cuStreamDestroy_v2(void *stream)
{
	struct stream *s = stream;
	int error = enter("cuStreamDestroy_v2");

	if (error)
		return error;
	while (s->first)
		do_first(s, false);
	free(s);
	streams--;
	return leave(CUDA_SUCCESS);
}

int cuStreamSynchronize(void *stream);
int cuStreamSynchronize(void *stream)
{
	struct stream *s = stream;
	int error = enter("cuStreamSynchronize");

	if (error) {
		/* What failed was done in part, or not at all. */
		pthread_mutex_lock(&lock);
		while (s->first)
			do_first(s, false);
		return leave(error);
	}
	while (s->first)
		do_first(s, true);
	return leave(CUDA_SUCCESS);
}

/* Locked. */
static int start(struct stream *s, CUdeviceptr ptr, uint8_t *out, const void *in, size_t length)
{
	struct allocation *a = find(ptr, length);
	struct copy *copy;

	if (!depth)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!a || !length)
		return CUDA_ERROR_INVALID_VALUE;
	copy = malloc(sizeof(*copy) + (in ? length : 0));
	if (!copy)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*copy = (struct copy){
	    .at = a->alias + (ptr - (uintptr_t)a->device), .out = out, .length = length};
	if (in)
		memcpy(copy->in, in, length);
	*s->last = copy;
	s->last = &copy->next;
	return CUDA_SUCCESS;
}

int cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t length, void *stream);
int cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t length, void *stream)
{
	int error = enter("cuMemcpyHtoDAsync_v2");

	return error ? error : leave(start(stream, dst, NULL, src, length));
}

int cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t length, void *stream);
int cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t length, void *stream)
{
	int error = enter("cuMemcpyDtoHAsync_v2");

	return error ? error : leave(start(stream, src, dst, NULL, length));
}

/* ---- what programs use, and simverbs does not ---- */

int cuInit(unsigned flags);
int cuInit(unsigned flags)
{
	return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

int cuDeviceGetCount(int *count);
int cuDeviceGetCount(int *count)
{
	*count = 1;
	return CUDA_SUCCESS;
}

int cuDeviceGetName(char *name, int size, int device);
int cuDeviceGetName(char *name, int size, int device)
{
	(void)device;
	snprintf(name, (size_t)size, "a stand-in for a GPU");
	return CUDA_SUCCESS;
}

int cuCtxSetCurrent(void *ctx);
int cuCtxSetCurrent(void *ctx)
{
	if (depth)
		current[depth - 1] = ctx;
	else
		current[depth++] = ctx;
	return CUDA_SUCCESS;
}

static int copy_now(CUdeviceptr ptr, uint8_t *out, const void *in, size_t length)
{
	struct stream s = {.last = &s.first};
	int error;

	pthread_mutex_lock(&lock);
	error = start(&s, ptr, out, in, length);
	if (!error)
		do_first(&s, true);
	return leave(error);
}

int cuMemcpyHtoD_v2(CUdeviceptr dst, const void *src, size_t length);
int cuMemcpyHtoD_v2(CUdeviceptr dst, const void *src, size_t length)
{
	return copy_now(dst, NULL, src, length);
}

int cuMemcpyDtoH_v2(void *dst, CUdeviceptr src, size_t length);
int cuMemcpyDtoH_v2(void *dst, CUdeviceptr src, size_t length)
{
	return copy_now(src, dst, NULL, length);
}

int cuGetErrorName(int error, const char **name);
int cuGetErrorName(int error, const char **name)
{
	static const struct {
		int error;
		const char *name;
	} all[] = {
	    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
	    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
	    {CUDA_ERROR_DEVICE_UNAVAILABLE, "CUDA_ERROR_DEVICE_UNAVAILABLE"},
	    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"},
	    {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"},
	    {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED"},
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (all[i].error == error) {
			*name = all[i].name;
			return CUDA_SUCCESS;
		}
	return CUDA_ERROR_INVALID_VALUE;
}
