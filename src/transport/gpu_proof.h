/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a path's device reaches the GPU memory that is registered on it. [T]
 *
 * A registration is no proof: what lies between a NIC and a GPU in the PCIe tree may let nothing
 * through, and then the first message fails. So a path in reserve reads a byte of that memory, on
 * the queue pair to itself that flushes use. A read changes nothing, whatever the application does
 * with the memory meanwhile; it is a request to the GPU and an answer from it, so both directions
 * work; and it needs nothing of the peer, whose own memory is its own concern.
 */
#ifndef HA_TRANSPORT_GPU_PROOF_H
#define HA_TRANSPORT_GPU_PROOF_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

struct ha_comm;
struct ha_mr;
struct ha_path;

enum ha_gpu_proof {
	HA_GPU_PROOF_NONE,
	HA_GPU_PROOF_POSTED,
	HA_GPU_PROOF_GOOD,
	HA_GPU_PROOF_FAILED,
};

/* Whether a path beside the active one can carry what is in this memory, or is to be: memory of the
 * host, or it was proved. */
bool ha_gpu_proof_reaches(const struct ha_path *path, const struct ha_mr *mr);

/* Some memory of a GPU that was registered through the connection; NULL: there is none. */
struct ha_mr *ha_gpu_memory(const struct ha_comm *comm);

/*
 * Takes the proof of a path that is ready a step further, whose device has the memory registered.
 * Never waits. The connection is visited when something has come of it; a device that fails is
 * reported as one that refuses the memory.
 */
void ha_gpu_proof_go_on(struct ha_comm *comm, struct ha_path *path);

/* The memory is being deregistered: a read of it that is under way proves nothing. */
void ha_gpu_proof_forget(struct ha_comm *comm, const struct ha_mr *mr);

/* Its completion. */
void ha_gpu_proof_done(struct ha_comm *comm, struct ha_path *path, enum ibv_wc_status status);

#endif
