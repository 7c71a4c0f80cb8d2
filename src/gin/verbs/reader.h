/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a rank reads out of another one's memory: over the queue pair of its sender, beside the
 * numbered operations, of which the receiver knows; of a read it knows nothing, and need not. What
 * has not come back when a path fails is read again, so a read may be executed twice.
 *
 * Reads come back in order. Beside them, in the same order, are flushes: what was read before is
 * then in memory, where a GPU sees it, as far as its NIC can prove it. One thread.
 */
#ifndef HA_GIN_VERBS_READER_H
#define HA_GIN_VERBS_READER_H

#include "gin/verbs/sender.h"

/* The request that comes next, to be filled: from_mr, from, to, to_offset and size, of which `to`
 * is NULL for a flush. NULL: as many as there is room for were not tested to their end. */
struct ha_gin_request *ha_gin_reader_next(struct ha_gin_sender *sender);
/* Begins it, and posts what can be posted. */
void ha_gin_reader_begin(struct ha_gin_sender *sender, struct ha_gin_request *request);

/* Posts what can be posted, and takes what has come back. The sender runs. */
void ha_gin_reader_works(struct ha_gin_sender *sender);
/* A completion of the sender's queue pair that is a read's. */
void ha_gin_reader_hears(struct ha_gin_sender *sender, uint64_t number);
/* The path was fenced: what has not come back by now never will over that one. */
void ha_gin_reader_again(struct ha_gin_sender *sender);
/* A read was asked for, and not posted, though there is room. */
bool ha_gin_reader_may_post(const struct ha_gin_sender *sender);
/* What comes next is a flush, which waits for its own NIC. */
bool ha_gin_reader_flushes(const struct ha_gin_sender *sender);
/* Bytes that are on their way. */
uint64_t ha_gin_reader_bytes(const struct ha_gin_sender *sender);

#endif
