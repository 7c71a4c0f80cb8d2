/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run of messages from GPU to GPU, four receives ahead: each buffer is flushed, looked at, and
 * written over at once, and so is what was sent.
 */
#ifndef HA_TESTS_TRANSPORT_GPU_RUN_H
#define HA_TESTS_TRANSPORT_GPU_RUN_H

#include "gpu.h"

#define GPU_RUN_MESSAGES 8

/* The receiver's devices write late to GPUs, as PCIe may have it: a receive says that the bytes
 * were sent, and not that they are there. */
#define GPU_LATE "gpu=reorder within=1s host=1"

struct gpu_run {
	struct pair pair;
	struct gpu from, to;
	size_t part; /* bytes of a message */
	struct ha_request *recv[GPU_RUN_MESSAGES], *send[GPU_RUN_MESSAGES],
	    *flush[GPU_RUN_MESSAGES];
	bool received[GPU_RUN_MESSAGES], released[GPU_RUN_MESSAGES], used[GPU_RUN_MESSAGES];
	int asked, sent, taken;
	ha_result_t result; /* of a run that may end with an error */
};

bool gpu_all_are(const uint8_t *bytes, size_t size, uint8_t value);
/* Bytes of a buffer of canaries that nobody wrote. */
size_t gpu_missing(const uint8_t *bytes, size_t size);

/* Of zeros but for its pair, which is up: makes the memory. Ends all of it. */
void gpu_run_begin(struct gpu_run *r, size_t part);
void gpu_run_end(struct gpu_run *r);

/* Until it is through, or fails; `break_it` is done before so many events. False: the run was over
 * before that. */
bool gpu_run_with(struct gpu_run *r, unsigned events, void (*break_it)(void));
bool gpu_run_is_through(const struct gpu_run *r);

/* All that was late has come by then, and to no buffer that is used again. */
void gpu_run_nothing_comes_later(struct gpu_run *r);

#endif
