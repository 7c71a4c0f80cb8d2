/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#define DMA_BUF_FD 1 /* CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD */

static struct {
	int (*init)(unsigned int flags);
	int (*device_count)(int *count);
	int (*device_get)(int *device, int ordinal);
	int (*device_name)(char *name, int size, int device);
	int (*primary_retain)(void **ctx, int device);
	int (*ctx_set)(void *ctx);
	int (*alloc)(uint64_t *at, size_t size);
	int (*free)(uint64_t at);
	int (*write)(uint64_t at, const void *bytes, size_t length);
	int (*read)(void *bytes, uint64_t at, size_t length);
	int (*handle)(void *handle, uint64_t at, size_t size, int type, unsigned long long flags);
} cu;

static const struct {
	const char *name;
	void **entry;
} entries[] = {
    {"cuInit", (void **)&cu.init},
    {"cuDeviceGetCount", (void **)&cu.device_count},
    {"cuDeviceGet", (void **)&cu.device_get},
    {"cuDeviceGetName", (void **)&cu.device_name},
    {"cuDevicePrimaryCtxRetain", (void **)&cu.primary_retain},
    {"cuCtxSetCurrent", (void **)&cu.ctx_set},
    {"cuMemAlloc_v2", (void **)&cu.alloc},
    {"cuMemFree_v2", (void **)&cu.free},
    {"cuMemcpyHtoD_v2", (void **)&cu.write},
    {"cuMemcpyDtoH_v2", (void **)&cu.read},
    {"cuMemGetHandleForAddressRange", (void **)&cu.handle},
};

static char gpu_name[100];

const char *cuda_open(void)
{
	static char missing[200];
	void *library = dlopen("libcuda.so.1", RTLD_NOW), *ctx;
	int count = 0, device, err;

	if (!library) {
		snprintf(missing, sizeof(missing), "no CUDA driver: %s", dlerror());
		return missing;
	}
	for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
		*entries[i].entry = dlsym(library, entries[i].name);
		if (!*entries[i].entry) {
			snprintf(missing, sizeof(missing), "libcuda.so.1 has no %s: too old",
				 entries[i].name);
			return missing;
		}
	}
	err = cu.init(0);
	if (!err)
		err = cu.device_count(&count);
	if (!err && count == 0)
		return "the CUDA driver sees no GPU";
	if (!err)
		err = cu.device_get(&device, 0);
	if (!err)
		err = cu.device_name(gpu_name, sizeof(gpu_name), device);
	if (!err)
		err = cu.primary_retain(&ctx, device);
	if (!err)
		err = cu.ctx_set(ctx);
	if (!err)
		return NULL;
	snprintf(missing, sizeof(missing), "the CUDA driver answers with error %d", err);
	return missing;
}

const char *cuda_name(void)
{
	return gpu_name;
}

static void need(const char *what, int err)
{
	if (!err)
		return;
	fprintf(stderr, "%s: CUDA error %d\n", what, err);
	exit(1);
}

void *cuda_alloc(size_t size)
{
	uint64_t at = 0;

	need("cuMemAlloc", cu.alloc(&at, size));
	return (void *)(uintptr_t)at;
}

void cuda_free(void *at)
{
	need("cuMemFree", cu.free((uintptr_t)at));
}

void cuda_write(void *at, const void *bytes, size_t length)
{
	need("cuMemcpyHtoD", cu.write((uintptr_t)at, bytes, length));
}

void cuda_read(void *bytes, const void *at, size_t length)
{
	need("cuMemcpyDtoH", cu.read(bytes, (uintptr_t)at, length));
}

int cuda_dmabuf(void *at, size_t size)
{
	int fd = -1;

	return cu.handle(&fd, (uintptr_t)at, size, DMA_BUF_FD, 0) ? -1 : fd;
}
