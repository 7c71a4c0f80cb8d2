/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of a GPU at an end of a connection. The GPU is a stand-in for which only its driver reads
 * and writes (tests/simverbs/fakecuda): pair.fabric.gpu must be set before the fabric is made.
 */
#ifndef HA_TESTS_TRANSPORT_GPU_H
#define HA_TESTS_TRANSPORT_GPU_H

#include "harness.h"

/* By its address, as with a peer-memory module, or by a descriptor of the driver's. */
enum gpu_by { GPU_BY_POINTER, GPU_BY_DMABUF };

struct gpu {
	uint8_t *at;	/* as the application knows it */
	uint8_t *bytes; /* as the GPU sees it */
	size_t size;
	struct ha_mr *mr;
};

/* Allocates it, full of canaries, and registers it through the connection. */
void gpu_open(struct gpu *gpu, struct ha_comm *comm, size_t size, enum gpu_by by);
/* It may have been deregistered already: mr NULL. */
void gpu_close(struct gpu *gpu, struct ha_comm *comm);

/* Messages of one buffer at an offset, tag 1. The receive must be taken; the send as post_send(),
 * and NULL where it does not match now. */
struct ha_request *gpu_recv(struct ha_comm *comm, const struct gpu *gpu, size_t offset,
			    size_t size);
struct ha_request *gpu_try_send(struct ha_comm *comm, const struct gpu *gpu, size_t offset,
				size_t size);
/* A flush of what was received at that offset: NULL where none is needed. */
struct ha_request *gpu_flush(struct ha_comm *comm, const struct gpu *gpu, size_t offset,
			     size_t size);

#endif
