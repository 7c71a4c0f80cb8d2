/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA driver, by the few entries that this takes; see gpu.h. */
#include "simverbs/gpu.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define LIBRARY "libcuda.so.1"

/* Values and types of the driver's interface. */
enum {
	ATTRIBUTE_MEMORY_TYPE = 2,
	ATTRIBUTE_DEVICE_ORDINAL = 9,
	ATTRIBUTE_RANGE_START = 11,
	ATTRIBUTE_RANGE_SIZE = 12,
	MEMORY_TYPE_DEVICE = 2,
	STREAM_NON_BLOCKING = 1,
	UNKNOWN = 1, /* CUDA_ERROR_INVALID_VALUE: of a pointer, nobody's */
};
typedef uint64_t device_ptr; /* CUdeviceptr */

static struct {
	int (*pointer_attribute)(void *value, int attribute, device_ptr ptr);
	int (*device_get)(int *device, int ordinal);
	int (*primary_retain)(void **ctx, int device);
	int (*primary_release)(int device);
	int (*ctx_push)(void *ctx);
	int (*ctx_pop)(void **ctx);
	int (*priority_range)(int *least, int *greatest);
	int (*stream_create)(void **stream, unsigned int flags, int priority);
	int (*stream_destroy)(void *stream);
	int (*stream_synchronize)(void *stream);
	int (*copy_in)(device_ptr dst, const void *src, size_t length, void *stream);
	int (*copy_out)(void *dst, device_ptr src, size_t length, void *stream);
	int (*error_name)(int error, const char **name);
} cuda;

static const struct {
	const char *name;
	void **entry;
} entries[] = {
    {"cuPointerGetAttribute", (void **)&cuda.pointer_attribute},
    {"cuDeviceGet", (void **)&cuda.device_get},
    {"cuDevicePrimaryCtxRetain", (void **)&cuda.primary_retain},
    {"cuDevicePrimaryCtxRelease_v2", (void **)&cuda.primary_release},
    {"cuCtxPushCurrent_v2", (void **)&cuda.ctx_push},
    {"cuCtxPopCurrent_v2", (void **)&cuda.ctx_pop},
    {"cuCtxGetStreamPriorityRange", (void **)&cuda.priority_range},
    {"cuStreamCreateWithPriority", (void **)&cuda.stream_create},
    {"cuStreamDestroy_v2", (void **)&cuda.stream_destroy},
    {"cuStreamSynchronize", (void **)&cuda.stream_synchronize},
    {"cuMemcpyHtoDAsync_v2", (void **)&cuda.copy_in},
    {"cuMemcpyDtoHAsync_v2", (void **)&cuda.copy_out},
    {"cuGetErrorName", (void **)&cuda.error_name},
};

struct sv_gpu {
	struct sv_gpu *next;
	int ordinal, device;
	unsigned int refs; /* regions */
	void *ctx, *stream;
};

/* Protects the list, the references and the finding of the driver. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sv_gpu *gpus;

/* ---------------------------------------------------------------- what is missing */

enum complaint { NOT_LOADED, ENTRY_MISSING, UNKNOWN_POINTER, NO_CONTEXT, COPY_FAILED, COMPLAINTS };

static void complain(enum complaint what, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static void complain(enum complaint what, const char *fmt, ...)
{
	static bool said[COMPLAINTS];
	va_list args;

	if (__atomic_exchange_n(&said[what], true, __ATOMIC_RELAXED))
		return;
	flockfile(stderr);
	fputs("simverbs: ", stderr);
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fputc('\n', stderr);
	funlockfile(stderr);
}

static const char *name_of(int error)
{
	const char *name = NULL;

	return cuda.error_name(error, &name) == 0 && name ? name : "an unknown error";
}

/* Locked. NOLOAD: a process that has not loaded it has no context, and no memory of a GPU's. */
static bool find_driver(void)
{
	static bool found;
	void *library;

	if (found)
		return true;
	library = dlopen(LIBRARY, RTLD_NOW | RTLD_NOLOAD);
	if (!library) {
		complain(NOT_LOADED,
			 "memory that a processor cannot read was to be registered, and the "
			 "process has not loaded " LIBRARY
			 ", without which it has no GPU memory: is it the program that uses CUDA, "
			 "and is NVIDIA's driver there (nvidia-smi)?");
		return false;
	}
	for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
		*entries[i].entry = dlsym(library, entries[i].name);
		if (!*entries[i].entry) {
			complain(ENTRY_MISSING,
				 LIBRARY " has no %s, so GPU memory cannot be registered: "
					 "a driver for CUDA 11 or later has it",
				 entries[i].name);
			dlclose(library);
			return false;
		}
	}
	found = true; /* and stays loaded */
	return true;
}

/* ---------------------------------------------------------------- whose memory */

/* A processor's, by which programs register, and how allocations are aligned at least. */
#define PAGE_BYTES 4096u
#define ALIGNMENT  256u

struct allocation {
	int ordinal;
	device_ptr end;
};

/* What CUDA knows of the memory at an address: an error of the driver's, or 0. */
static int look_up(device_ptr at, struct allocation *found)
{
	unsigned int type = 0;
	device_ptr start = 0;
	size_t size = 0;
	int err = cuda.pointer_attribute(&type, ATTRIBUTE_MEMORY_TYPE, at);

	*found = (struct allocation){.ordinal = -1};
	if (err || type != MEMORY_TYPE_DEVICE)
		return err;
	err = cuda.pointer_attribute(&found->ordinal, ATTRIBUTE_DEVICE_ORDINAL, at);
	if (!err)
		err = cuda.pointer_attribute(&start, ATTRIBUTE_RANGE_START, at);
	if (!err)
		err = cuda.pointer_attribute(&size, ATTRIBUTE_RANGE_SIZE, at);
	found->end = start + size;
	return err;
}

/* Pages are what is pinned: some allocation lies in this one, wherever it begins there. */
static bool look_up_page(device_ptr at, struct allocation *found)
{
	const device_ptr page_end = (at | (PAGE_BYTES - 1)) + 1;
	int err = UNKNOWN;

	for (device_ptr probe = at; err == UNKNOWN && probe < page_end;
	     probe = (probe | (ALIGNMENT - 1)) + 1) {
		err = look_up(probe, found);
		if (!err)
			return found->ordinal >= 0 && found->end > probe;
	}
	complain(UNKNOWN_POINTER,
		 "CUDA does not know the memory at %#llx (%s), which a processor cannot read "
		 "either: it was freed, or is no memory",
		 (unsigned long long)at, name_of(err));
	return false;
}

/* The GPU that has all pages of [at, end); -1: not all of it is one GPU's. */
static int ordinal_of(device_ptr at, device_ptr end)
{
	struct allocation found;
	int ordinal = -1;

	do {
		if (!look_up_page(at, &found) || (ordinal >= 0 && found.ordinal != ordinal))
			return -1;
		ordinal = found.ordinal;
		at = (found.end + PAGE_BYTES - 1) & ~(device_ptr)(PAGE_BYTES - 1);
	} while (at < end);
	return ordinal;
}

/* ---------------------------------------------------------------- contexts */

/* In the GPU's context; what the calling thread had is its own again afterwards. */
static int make_stream(struct sv_gpu *gpu)
{
	int least = 0, greatest = 0;
	int err = cuda.ctx_push(gpu->ctx);
	void *popped;

	if (err)
		return err;
	/* Before the program's own kernels and copies, and not behind its default stream. */
	err = cuda.priority_range(&least, &greatest);
	if (!err)
		err = cuda.stream_create(&gpu->stream, STREAM_NON_BLOCKING, greatest);
	cuda.ctx_pop(&popped);
	return err;
}

/* The primary context, which is the one that programs of the run-time API use. */
static int open_gpu(struct sv_gpu *gpu)
{
	int err = cuda.device_get(&gpu->device, gpu->ordinal);

	if (!err)
		err = cuda.primary_retain(&gpu->ctx, gpu->device);
	if (err)
		return err;
	err = make_stream(gpu);
	if (err)
		cuda.primary_release(gpu->device);
	return err;
}

static struct sv_gpu *new_gpu(int ordinal)
{
	struct sv_gpu *gpu = calloc(1, sizeof(*gpu));
	int err;

	if (!gpu)
		return NULL;
	gpu->ordinal = ordinal;
	err = open_gpu(gpu);
	if (err) {
		complain(NO_CONTEXT,
			 "no context or stream can be had of GPU %d (%s), so its memory cannot be "
			 "registered: look whether other processes have its memory or use it "
			 "exclusively (nvidia-smi)",
			 ordinal, name_of(err));
		free(gpu);
		return NULL;
	}
	gpu->next = gpus;
	gpus = gpu;
	return gpu;
}

static struct sv_gpu *get_gpu(int ordinal)
{
	struct sv_gpu *gpu = gpus;

	while (gpu && gpu->ordinal != ordinal)
		gpu = gpu->next;
	if (!gpu)
		gpu = new_gpu(ordinal);
	if (gpu)
		gpu->refs++;
	return gpu;
}

struct sv_gpu *sv_gpu_claim(const void *addr, size_t length)
{
	device_ptr at = (uintptr_t)addr;
	struct sv_gpu *gpu = NULL;

	pthread_mutex_lock(&lock);
	if (find_driver()) {
		int ordinal = ordinal_of(at, at + length);

		if (ordinal >= 0)
			gpu = get_gpu(ordinal);
	}
	pthread_mutex_unlock(&lock);
	return gpu;
}

static void close_gpu(struct sv_gpu *gpu)
{
	struct sv_gpu **pos = &gpus;
	void *popped;

	while (*pos != gpu)
		pos = &(*pos)->next;
	*pos = gpu->next;
	if (cuda.ctx_push(gpu->ctx) == 0) {
		cuda.stream_destroy(gpu->stream);
		cuda.ctx_pop(&popped);
	}
	cuda.primary_release(gpu->device);
	free(gpu);
}

void sv_gpu_release(struct sv_gpu *gpu)
{
	if (!gpu)
		return;
	pthread_mutex_lock(&lock);
	if (--gpu->refs == 0)
		close_gpu(gpu);
	pthread_mutex_unlock(&lock);
}

/* ---------------------------------------------------------------- copies */

/* After a copy was started: it is done, also where starting it failed and something is under way.
 */
static int finish(struct sv_gpu *gpu, int err)
{
	int waited = cuda.stream_synchronize(gpu->stream);
	void *popped;

	cuda.ctx_pop(&popped);
	return err ? err : waited;
}

static int answer(const struct sv_gpu *gpu, const char *way, uintptr_t at, int err)
{
	if (!err)
		return 0;
	complain(COPY_FAILED,
		 "a copy %s the memory of GPU %d at %#llx failed (%s): it was freed while it was "
		 "registered, or the GPU has failed",
		 way, gpu->ordinal, (unsigned long long)at, name_of(err));
	return EIO;
}

int sv_gpu_read(struct sv_gpu *gpu, void *dst, const void *gpu_src, size_t length)
{
	int err = cuda.ctx_push(gpu->ctx);

	if (!err)
		err = finish(gpu, cuda.copy_out(dst, (uintptr_t)gpu_src, length, gpu->stream));
	return answer(gpu, "out of", (uintptr_t)gpu_src, err);
}

int sv_gpu_write(struct sv_gpu *gpu, void *gpu_dst, const void *src, size_t length)
{
	int err = cuda.ctx_push(gpu->ctx);

	if (!err)
		err = finish(gpu, cuda.copy_in((uintptr_t)gpu_dst, src, length, gpu->stream));
	return answer(gpu, "into", (uintptr_t)gpu_dst, err);
}
