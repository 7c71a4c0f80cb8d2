/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu.h"

#include "memory/mr.h"

#include "fakecuda.h"

#include <string.h>
#include <unistd.h>

#define TAG 1

void gpu_open(struct gpu *gpu, struct ha_comm *comm, size_t size, enum gpu_by by)
{
	int fd = -1;

	/* CUDA's small allocations begin anywhere in a page; descriptors are of pages. */
	*gpu = (struct gpu){.at = fakecuda_alloc_inside(size, by == GPU_BY_POINTER ? 512 : 0),
			    .size = size};
	assert_non_null(gpu->at);
	gpu->bytes = fakecuda_look(gpu->at);
	memset(gpu->bytes, CANARY, size);
	if (by == GPU_BY_DMABUF)
		assert_int_equal(cuMemGetHandleForAddressRange(&fd, (uintptr_t)gpu->at, size, 1, 0),
				 0);
	assert_int_equal(ha_reg_mr(comm, gpu->at, size, HA_MEM_CUDA, 0, fd, &gpu->mr), HA_OK);
	if (fd >= 0)
		close(fd); /* as NCCL does */
}

void gpu_close(struct gpu *gpu, struct ha_comm *comm)
{
	if (gpu->mr)
		ha_dereg_mr(comm, gpu->mr);
	fakecuda_free(gpu->at);
}

struct ha_request *gpu_recv(struct ha_comm *comm, const struct gpu *gpu, size_t offset, size_t size)
{
	struct ha_mr *mr = gpu->mr;
	void *data = gpu->at + offset;
	struct ha_request *req;
	int tag = TAG;

	assert_int_equal(ha_irecv(comm, 1, &data, &size, &tag, &mr, &req), HA_OK);
	assert_non_null(req);
	return req;
}

struct ha_request *gpu_try_send(struct ha_comm *comm, const struct gpu *gpu, size_t offset,
				size_t size)
{
	struct ha_request *req;

	assert_int_equal(ha_isend(comm, gpu->at + offset, size, TAG, gpu->mr, &req), HA_OK);
	return req;
}

struct ha_request *gpu_flush(struct ha_comm *comm, const struct gpu *gpu, size_t offset,
			     size_t size)
{
	const int got = (int)size;
	struct ha_mr *mr = gpu->mr;
	void *data = gpu->at + offset;
	struct ha_request *req;

	assert_int_equal(ha_iflush(comm, 1, &data, &got, &mr, &req), HA_OK);
	return req;
}
