/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies that a sender with end-to-end completion keeps, so that the application need not wait for
 * the receiver's count: the send is done when the hardware has acknowledged it, and the copy is
 * what is posted again should a NIC take with it what it had acknowledged.
 *
 * Nothing that is said to the peer changes: the group stays posted, and counts as complete for the
 * protocol, when it is counted. Only its request is another one, that nobody tests. Copied is only
 * what is acknowledged before it is counted, of ordinary memory, while there is room; everything
 * else waits for the count. [T]
 */
#ifndef HA_TRANSPORT_RETAIN_H
#define HA_TRANSPORT_RETAIN_H

#include "base/clock.h"
#include "transport/request.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ha_comm;
struct ha_mr;
struct ha_send_group;

/* Longer messages wait: the copy would take the processor longer than the count takes to come. */
#define HA_RETAIN_MAX	65536u
#define HA_RETAIN_BYTES (2 * HA_RETAIN_MAX)
#define HA_RETAIN_COUNT 16u

struct ha_retained {
	/* By number of the copy. ACTIVE: it may be needed. */
	struct ha_request reqs[HA_RETAIN_COUNT];
	uint64_t begin[HA_RETAIN_COUNT]; /* where it lies, as a position that only grows */
	uint64_t first, next;		 /* copies that may be needed are from first on */
	uint64_t end;			 /* of the copy before next: a position */
	uint8_t *bytes;			 /* HA_RETAIN_BYTES, used round and round */
	struct ha_mr *mr;		 /* of bytes; registered on a NIC when it is needed there */
};

/*
 * Sender, before the application has the connection: memory for copies. Waits for no device.
 * Without it, which is said, sends wait for their count. Takes the token.
 */
void ha_retain_open(struct ha_comm *comm);

/* When no queue pair of the connection is used any more. */
void ha_retain_close(struct ha_comm *comm);

/* The hardware is through with this group and the peer has not counted it: its request is done if
 * a copy is kept. */
void ha_retain(struct ha_comm *comm, struct ha_send_group *group);

/* Whether this request, of a group, is such a copy's. */
static inline bool ha_is_retained(const struct ha_retained *kept, const struct ha_request *req)
{
	return kept && req >= kept->reqs && req < kept->reqs + HA_RETAIN_COUNT;
}

/* Copies that the peer has not counted yet, as far as is known. */
unsigned ha_retained_left(const struct ha_comm *comm);

/*
 * One look of a close: how many copies it has to wait for. 0: none may be needed any more, or
 * nobody counts. It waits for so long at most: a failover takes less, as a rule, and NCCL closes
 * one connection after the other. Takes the token.
 */
#define HA_RETAIN_CLOSE_NS (2 * HA_NS_PER_S)
unsigned ha_retain_awaited(struct ha_comm *comm);

#endif
