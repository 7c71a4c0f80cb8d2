/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Flushing what paths beside the active one brought into GPU memory: stripes (stripe.h).
 *
 * Each NIC pushes its own writes alone, so a flush reads through each of those paths over which
 * stripes came that no read has seen to yet, besides the active one. Which receive they were of
 * nobody counts: a read that is posted after a stripe came sees to it, whatever it reads.
 *
 * A path that is lost is kept for its flushes (flush_old.h) as soon as it is fenced.
 * Until then flushes that it matters to wait.
 *
 * All of it under the token, of receivers.
 */
#ifndef HA_TRANSPORT_FLUSH_BESIDE_H
#define HA_TRANSPORT_FLUSH_BESIDE_H

#include <stdbool.h>
#include <stdint.h>

struct ha_comm;
struct ha_mr;
struct ha_path;
struct ha_request;

/* What a flush reads through besides the active path (ha_recv_side.flush_through): a bit for each
 * path index, and this one while NICs are kept that were left. */
#define HA_FLUSH_THROUGH_OLD 0x80

/* A row of this receive, which is about to be posted, names this path. */
void ha_flush_beside_named(struct ha_path *path, const struct ha_mr *mr);

/* One came into GPU memory over this path, which is not the active one. */
void ha_flush_beside_came(struct ha_comm *comm, struct ha_path *path);

/* Posts the reads of a flush through those paths: sets ha_request.waits for them. False, and
 * nothing was done: a queue has no room. */
bool ha_flush_beside_post(struct ha_comm *comm, struct ha_request *req);

/* A read through `path` is back; whether it is a path beside the active one, and still is. */
bool ha_flush_beside_read(struct ha_comm *comm, struct ha_path *path);

/* Whether some of those paths has failed, and it is not known yet what may be read through it. */
bool ha_flush_beside_unsettled(const struct ha_comm *comm);

/* Whether reads are under way, for which those paths have to be looked at. */
bool ha_flush_beside_reads(const struct ha_comm *comm);

/* The path that is active now was one of them: what is read through it is read through the active
 * one. After ha_flush_old_resume. */
void ha_flush_beside_is_active(struct ha_comm *comm);

/* A path is about to be fenced, and is none of them from here on. Whether something is to be
 * flushed through it: also parts of stripes that never came, and whose bytes come over another
 * path. */
bool ha_flush_beside_leave(struct ha_comm *comm, const struct ha_path *path);

#endif
