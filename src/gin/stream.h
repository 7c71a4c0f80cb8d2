/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stream: puts and signals from one rank to another, in order. Each operation has a number, from
 * 0 on; the sender has a journal of them (journal.h), the receiver an inbox (inbox.h). This is what
 * both ends have in common. docs/gin-protocol.md has the protocol and says why it is sound.
 */
#ifndef HA_GIN_STREAM_H
#define HA_GIN_STREAM_H

#include <stdint.h>

/* Operations that a receiver has room for, at most: twice what NCCL may have open to a peer. */
#define HA_GIN_WINDOW 64

/* One end of the path that the stream's epoch goes over. */
enum ha_gin_end {
	HA_GIN_UP,
	HA_GIN_DRAINING, /* its fence is ordered: nothing is posted any more */
	HA_GIN_FENCED,	 /* ... and confirmed: nothing happens there any more */
};

/* What the receiver says of itself when the path has failed; counts, so all numbers below. */
struct ha_gin_verdict {
	uint64_t counted; /* operations that have arrived */
	uint64_t applied; /* ... whose turn came, and whose signals are in their words */
};

#endif
