/* SPDX-License-Identifier: Apache-2.0 */
/* Flushing GPU memory: a read of our own through the device that the data came in by. [T] */
#ifndef HA_TRANSPORT_FLUSH_H
#define HA_TRANSPORT_FLUSH_H

#include <stdbool.h>
#include <stdint.h>

struct ha_comm;
struct ha_path;
struct ha_request;

/* Its completion; the queue it came from is known to be current. */
void ha_flush_complete(struct ha_comm *comm, struct ha_path *path, uint32_t request_id);

/* Has the queue pair made that a path that is ready reads its own memory through. False: not yet,
 * or the path has failed. */
bool ha_flush_has_qp(struct ha_comm *comm, struct ha_path *path);

/* Has it made ahead of need, for the active path of a receiver with GPU memory: where the link is
 * down it cannot be made any more. */
void ha_flush_prepare(struct ha_comm *comm);

/* Posts the read of a flush through one path's NIC, whose queue pair has room: errno. request_id:
 * of the flush pool, or its count: a read that no request waits for. */
int ha_flush_read(struct ha_comm *comm, struct ha_path *path, uint32_t request_id, uint64_t addr,
		  uint64_t keys);

/* Posts a flush that could not be posted when it was asked for. */
void ha_flush_post(struct ha_comm *comm, struct ha_request *req);

/* In a new epoch: issues the flushes again that were lost with their path. Receiver. */
void ha_flush_resume(struct ha_comm *comm);
/* The same in an epoch, of what was lost with the path that was active before (turn.h). */
void ha_flush_turn(struct ha_comm *comm);

#endif
