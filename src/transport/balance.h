/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a sender cuts a message so that all rails are through with it together: by how fast each of
 * them carries stripes, and by what is under way on it. Nothing here knows a connection.
 *
 * A rail's rate is what it carried by the time in which something was under way on it. So rate,
 * latency, queues and the far end are all in it, and a rail that waits for the others does not look
 * slow. Where the stripes of all rails are found done in one look the cut that was made is
 * confirmed: who looks seldom learns little, and nothing wrong.
 *
 * Rates alone would not do where several connections use the same rails: each sees the others'
 * queues, and what all of them do by them swings. A message is cut so that what is under way ends
 * together, too; that brings every queue back.
 */
#ifndef HA_TRANSPORT_BALANCE_H
#define HA_TRANSPORT_BALANCE_H

#include "transport/wire.h"

#include <stdbool.h>
#include <stdint.h>

struct ha_rail_load {
	uint64_t pending;  /* bytes under way */
	uint64_t since_ns; /* while there are some: until when busy_ns counts */
	uint64_t carried;  /* bytes, in busy_ns; what is older counts less and less */
	uint64_t busy_ns;
	uint32_t stripes; /* carried since older ones last came to count less */
};

/* Of one sender, by slot. [T] */
struct ha_balance {
	struct ha_rail_load rails[HA_MAX_PATHS];
};

/* Until something was carried there, a rail's rate is what its port announces; at least 1 Mb/s. */
void ha_balance_begin(struct ha_balance *balance, unsigned slot, uint32_t speed_mbps);

/*
 * The parts of 1024 of a message that these slots (a mask, of slots that have begun) should carry,
 * as a word of shares (share.h). A rail on which nothing is under way has a part, since nothing
 * else would say whether it has become better.
 */
uint64_t ha_balance_shares(struct ha_balance *balance, unsigned slots, uint64_t bytes,
			   uint64_t now_ns);

/* The parts of a message when nothing is under way: by rates alone. */
uint64_t ha_balance_by_rates(const struct ha_balance *balance, unsigned slots);

/* Bytes under way, on all of them. */
uint64_t ha_balance_pending(const struct ha_balance *balance);

/* A stripe sets out on that slot, at the time of the shares; it is through. */
void ha_balance_posted(struct ha_balance *balance, unsigned slot, uint32_t bytes, uint64_t now_ns);
void ha_balance_carried(struct ha_balance *balance, unsigned slot, uint32_t bytes, uint64_t now_ns);

#endif
