/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Flushing through the NIC that data came on when its path has been left since.
 *
 * Only that NIC can push its own writes to GPU memory ahead of a read. Its queue pair to itself
 * needs no link, so it outlives the fence of its path: while an old NIC is kept, each flush reads
 * through it, and through the active path's NIC as ever. A NIC that is dead, or does not answer, is
 * let go, and the read through the active one is all there is.
 *
 * All of it under the token.
 */
#ifndef HA_TRANSPORT_FLUSH_OLD_H
#define HA_TRANSPORT_FLUSH_OLD_H

#include "transport/path.h"

#include <stdbool.h>
#include <stdint.h>

struct ha_comm;
struct ha_request;

/* What a flush through several NICs waits for (ha_request.waits): bits, those below are the reads
 * through old NICs by their place. */
enum ha_flush_wait {
	HA_FLUSH_WAIT_ACTIVE = 1 << 6, /* for its read through the active path's NIC */
	HA_FLUSH_WANT_ACTIVE = 1 << 7, /* for that to be posted */
	HA_FLUSH_WAIT_BESIDE = 1 << 8, /* shifted by a path's index: for that beside it */
	HA_FLUSH_WANT_OLD = 1 << 12,   /* for a path that is lost to be kept, to read through it */
};

/* A path that has been left is about to be fenced: its flush queue pair is kept if there may be
 * data to flush through it. Failover. */
void ha_flush_old_keep(struct ha_comm *comm, struct ha_path *path);

/* Traffic goes on over another path: receives posted from here on have nothing to do with old
 * ones. */
void ha_flush_old_resume(struct ha_comm *comm);

/* Whether one is that nothing can be read through yet. */
bool ha_flush_old_is_left(const struct ha_comm *comm);

/* Posts a flush through each old NIC that it does not wait for already; the read through the active
 * one is to follow. */
void ha_flush_old_post(struct ha_comm *comm, struct ha_request *req);

/* The same for one that waited until they are kept; what is left to wait for may be wanted only. */
void ha_flush_old_post_rest(struct ha_comm *comm, struct ha_request *req);

/* A read through a path has come back, of a request that waits for more than one; bits that are
 * left. */
uint16_t ha_flush_old_read(struct ha_comm *comm, struct ha_path *path, struct ha_request *req);

/* A read through an old NIC has failed. */
void ha_flush_old_failed(struct ha_comm *comm, struct ha_path *path);

/* Takes what has completed, lets go of NICs that are not needed or do not work, and goes on
 * destroying their queue pairs. */
void ha_flush_old_go_on(struct ha_comm *comm);

/* The same in the background, which comes again in time. */
void ha_flush_old_visit(struct ha_comm *comm);

/* No more flushes: the queue pairs that are kept are destroyed, and none is kept from now on. */
void ha_flush_old_end(struct ha_comm *comm);

/* Waits for the commands of those that end: where there are no threads, and no time passes. */
void ha_flush_old_wait(struct ha_comm *comm);

/* Whether some old NIC that was let go may still read memory; and its name, if not NULL. */
bool ha_flush_old_reads(const struct ha_comm *comm, const char **nic);

/* At the end: the paths whose NICs may still read are `exposed`. */
void ha_flush_old_expose(struct ha_comm *comm);

void ha_flush_old_free(struct ha_comm *comm);

#endif
