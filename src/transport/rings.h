/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the two ends write into each other's memory.
 *
 *  - The *clear-to-send ring* lies in the sender's memory. The receiver writes a row of n elements
 *    for each receive: where the n messages may be put.
 *  - The *sizes ring* lies in the receiver's memory. The sender writes a record into it when the
 *    size of a message cannot be read off its one completion: groups, and messages that were cut
 *    up.
 *
 * Row and record of receive number `seq` are at index seq mod depth in both.
 *
 * An element is one cache line and carries its stamp twice, at its start and at its end. The
 * writer is a DMA engine (or another processor), and an element has arrived when both stamps are
 * there: whichever end is placed first, the middle is then complete, too. Multi-byte fields are
 * little-endian, as all hosts with such NICs and GPUs are (asserted).
 */
#ifndef HA_TRANSPORT_RINGS_H
#define HA_TRANSPORT_RINGS_H

#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the rings are defined little-endian; byte-swap their fields to run on this host"
#endif

#define HA_GROUP_MAX 8	/* receives in one group; rows have this many elements */
#define HA_WINDOW    64 /* rows: twice what NCCL may have outstanding */

/* Receives outstanding on a connection: NCCL's limit. More wait for their turn. */
#define HA_MAX_OUTSTANDING 32

_Static_assert((HA_WINDOW & (HA_WINDOW - 1)) == 0, "slots are found by masking");
_Static_assert(HA_WINDOW >= 2 * HA_MAX_OUTSTANDING, "a row is not reused while it may be read");

/*
 * Sequence number and epoch in one word that is never 0, so that fresh memory matches nothing:
 * sequence numbers start at 1.
 */
static inline uint64_t ha_stamp(uint64_t seq, uint32_t epoch)
{
	return seq << 16 | (epoch & 0xffffu);
}

struct ha_cts {
	alignas(64) uint64_t stamp;
	uint64_t addr;
	uint64_t size; /* capacity of the receive */
	uint32_t rkey; /* on the active path */
	int32_t tag;
	uint8_t n;	/* elements in this row */
	uint8_t index;	/* of this element */
	uint16_t named; /* what may carry stripes of it beside the active path: ha_cts_name */
	uint32_t key_beside;
	uint64_t delivered; /* in element 0: every message before this number is at the receiver */
	uint32_t keys_beside[2];
	uint64_t stamp_end;
};

_Static_assert(sizeof(struct ha_cts) == 64, "one element is one cache line");
_Static_assert(offsetof(struct ha_cts, stamp_end) == 56, "wire layout");

/*
 * A path's generation in 4 bits of `named`, which are 0 of a path that is not named. Of two paths
 * that follow each other in a slot within an epoch there are never so many that they look alike.
 */
static inline uint16_t ha_cts_name(unsigned p, uint32_t generation)
{
	return (uint16_t)((1 + generation % 15) << 4 * p);
}

static inline bool ha_cts_names(const struct ha_cts *cts, unsigned p, uint32_t generation)
{
	return (cts->named & 0xfu << 4 * p) == ha_cts_name(p, generation);
}

/* Where the key on path p is, which is not the active one. */
static inline uint8_t ha_cts_key_offset(unsigned active, unsigned p)
{
	const unsigned i = (p - active - 1) % 4;

	return (uint8_t)(i == 0 ? offsetof(struct ha_cts, key_beside)
				: offsetof(struct ha_cts, keys_beside) + 4 * (i - 1));
}

static inline uint32_t *ha_cts_key_at(struct ha_cts *cts, uint8_t offset)
{
	return (uint32_t *)((char *)cts + offset);
}

static inline uint32_t *ha_cts_key_beside(struct ha_cts *cts, unsigned active, unsigned p)
{
	return ha_cts_key_at(cts, ha_cts_key_offset(active, p));
}

struct ha_sizes {
	alignas(64) uint64_t stamp;
	uint64_t size[HA_GROUP_MAX];
	uint64_t reserved[7];
};

_Static_assert(sizeof(struct ha_sizes) == 128, "wire layout");

/* Bytes of a record that matter for a group of n. */
static inline uint32_t ha_sizes_length(unsigned n)
{
	return (uint32_t)(offsetof(struct ha_sizes, size) + n * sizeof(uint64_t));
}

/* Whether an element is its row's only one. */
static inline bool ha_cts_alone(const struct ha_cts *cts)
{
	return cts->n == 1 && cts->index == 0;
}

/* Whether the element of receive `seq` is there, complete. Pairs with the peer's RDMA write. */
static inline bool ha_cts_arrived(const struct ha_cts *cts, uint64_t stamp)
{
	return __atomic_load_n(&cts->stamp_end, __ATOMIC_ACQUIRE) == stamp &&
	       __atomic_load_n(&cts->stamp, __ATOMIC_ACQUIRE) == stamp;
}

/*
 * End-to-end completion: what the receiver had when it wrote this row; 0: none was ever written.
 * The word is true whatever the stamps are, since what is there stays there, and nothing that is
 * read later depends on it.
 */
static inline uint64_t ha_cts_count(const struct ha_cts *row)
{
	return __atomic_load_n(&row->delivered, __ATOMIC_RELAXED);
}

/*
 * A mailbox per path and direction for control messages (failover/message.h). The peer writes the
 * whole message and then raises an immediate; the next one overwrites it, which is fine, since a
 * message says all that the ones before it said. A checksum tells one that is being overwritten.
 */
#define HA_MAILBOX_BYTES    384
#define HA_MAILBOXES	    4
#define HA_MAILBOX_EXPECTED 312 /* as long as a message can be */
/* With a key: behind it a count, and a code over both (auth.h). */
#define HA_MAILBOX_CODE_OFFS (HA_MAILBOX_EXPECTED + 8)
#define HA_MAILBOX_SEALED    (HA_MAILBOX_CODE_OFFS + 16)
_Static_assert(HA_MAILBOX_SEALED <= HA_MAILBOX_BYTES, "wire layout");

struct ha_mailbox {
	alignas(64) uint8_t bytes[HA_MAILBOX_BYTES];
};

/* The memory the peer writes to, and what we send from: one block, registered as one. */
struct ha_send_ring {
	struct ha_cts cts[HA_WINDOW][HA_GROUP_MAX]; /* written by the peer */
	struct ha_sizes sizes[HA_WINDOW];	    /* source of our records */
	struct ha_mailbox msg_in[HA_MAILBOXES];	    /* written by the peer */
	struct ha_mailbox msg_out[HA_MAILBOXES];
	alignas(64) uint64_t count;		  /* where a read of the peer's ends up (e2e) */
	uint64_t read_landing;			  /* where a read of our own memory does */
	struct ha_mailbox last_out[HA_MAILBOXES]; /* while the hardware may still read the other */
};

struct ha_recv_ring {
	struct ha_sizes sizes[HA_WINDOW];	    /* written by the peer */
	struct ha_cts cts[HA_WINDOW][HA_GROUP_MAX]; /* source of our elements */
	uint64_t read_landing;			    /* where a read of our own memory ends up */
	struct ha_mailbox msg_in[HA_MAILBOXES];	    /* written by the peer */
	struct ha_mailbox msg_out[HA_MAILBOXES];
	alignas(64) uint64_t count;		  /* as `delivered`, now; read by the peer (e2e) */
	struct ha_mailbox last_out[HA_MAILBOXES]; /* while the hardware may still read the other */
};

#endif
