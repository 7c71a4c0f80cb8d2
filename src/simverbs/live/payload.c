/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How payload gets from one process's memory into another's.
 *
 * The fast way is one copy: the record refers to the sender's memory and the receiver reads it with
 * process_vm_readv straight into the target. That needs the right to trace the sender, which
 * containers and hardened kernels may refuse, and pages that the kernel can pin, which memory
 * mapped by a device driver may not be. So:
 *
 *  - a receiver tries the first packet of each peer and writes the answer into the ring; until
 *    then, and after a refusal, the sender uses the shared-memory bulk area (two copies);
 *  - a memory region that others cannot read is known as such when it is registered, and goes
 *    through shared memory from the first packet on;
 *  - a range that turns out to be unreadable later is reported through the ring. The receiver asks
 *    for the packet again (sequence NAK) and the sender sends that range through shared memory.
 *
 * Small payload always travels inside the record: two short copies cost less than a system call.
 */
#include "simverbs/dma.h"
#include "simverbs/live/wire.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define LAST_BYTES 64u

static void *ptr(uint64_t addr)
{
	return (void *)(uintptr_t)addr;
}

/* --- sending -------------------------------------------------------------------------------- */

static void learn_bad_range(struct sv_wire *w, struct sv_ring *ring)
{
	uint32_t seq = atomic_load_explicit(&ring->head->bad_seq, memory_order_acquire);
	struct sv_bad_range *slot;

	if (seq == ring->bad_seq_seen)
		return;
	ring->bad_seq_seen = seq;
	/* When the table is full the oldest goes: it will be found again if it is still used. */
	slot = &w->bad[w->next_bad];
	w->next_bad = (w->next_bad + 1) % SV_MAX_BAD_RANGES;
	if (w->nbad < SV_MAX_BAD_RANGES)
		w->nbad++;
	slot->addr = atomic_load_explicit(&ring->head->bad_addr, memory_order_relaxed);
	slot->len = atomic_load_explicit(&ring->head->bad_len, memory_order_relaxed);
	sv_count(w->me, SV_CNT_CMA_FAULTS, 1);
}

static bool cannot_be_read(const struct sv_wire *w, const struct sv_frag *frags, uint32_t nfrags)
{
	uint32_t f;
	unsigned b;

	for (f = 0; f < nfrags; f++)
		if (frags[f].unborrowable)
			return true;

	for (b = 0; b < w->nbad; b++)
		for (f = 0; f < nfrags; f++)
			if (frags[f].addr < w->bad[b].addr + w->bad[b].len &&
			    w->bad[b].addr < frags[f].addr + frags[f].length)
				return true;
	return false;
}

/* Does the destination read our memory? Its answer is only good for this incarnation of ours. */
static bool peer_reads_us(const struct sv_wire *w, const struct sv_ring *ring)
{
	return atomic_load_explicit(&ring->head->cma_generation, memory_order_acquire) ==
		   w->generation &&
	       atomic_load_explicit(&ring->head->cma, memory_order_acquire) == SV_CMA_ALLOWED;
}

enum sv_payload_mode sv_payload_choose(struct sv_wire *w, struct sv_ring *ring,
				       const struct sv_packet *pkt, const struct sv_frag *frags,
				       uint32_t nfrags, size_t *bytes_behind)
{
	*bytes_behind = 0;
	if (!pkt->payload_len)
		return SV_PAYLOAD_NONE;
	if (pkt->payload_len <= SV_INLINE_BYTES) {
		*bytes_behind = pkt->payload_len;
		return SV_PAYLOAD_INLINE;
	}
	learn_bad_range(w, ring);
	if ((pkt->flags & SV_PKT_VOLATILE) || !peer_reads_us(w, ring) ||
	    cannot_be_read(w, frags, nfrags))
		return SV_PAYLOAD_IN_BULK;
	*bytes_behind = nfrags * sizeof(struct sv_frag);
	return SV_PAYLOAD_REFERS;
}

void sv_payload_gather(void *dst, const struct sv_frag *frags, uint32_t nfrags)
{
	uint8_t *to = dst;
	uint32_t f;

	for (f = 0; f < nfrags; f++) {
		sv_dma_copy(to, ptr(frags[f].addr), frags[f].length);
		to += frags[f].length;
	}
}

bool sv_payload_store(struct sv_wire *w, struct sv_ring *ring, struct sv_record *rec,
		      const struct sv_frag *frags, uint32_t nfrags)
{
	void *behind = rec + 1;

	rec->nfrags = 0;
	switch ((enum sv_payload_mode)rec->mode) {
	case SV_PAYLOAD_NONE:
		return true;
	case SV_PAYLOAD_INLINE:
		sv_payload_gather(behind, frags, nfrags);
		return true;
	case SV_PAYLOAD_REFERS:
		rec->nfrags = nfrags;
		rec->revoked = atomic_load_explicit(
		    &w->me->revoked[rec->pkt.src_qpn % SV_REVOKE_SLOTS], memory_order_relaxed);
		memcpy(behind, frags, nfrags * sizeof(*frags));
		return true;
	case SV_PAYLOAD_IN_BULK:
		behind = sv_ring_bulk_reserve(ring, rec, rec->pkt.payload_len);
		if (!behind)
			return false;
		sv_payload_gather(behind, frags, nfrags);
		sv_count(w->me, SV_CNT_COPY_SHARED, rec->pkt.payload_len);
		return true;
	}
	return false;
}

/* --- receiving ------------------------------------------------------------------------------ */

const void *sv_payload_pointer(const struct sv_ring *ring, const struct sv_record *rec)
{
	switch ((enum sv_payload_mode)rec->mode) {
	case SV_PAYLOAD_INLINE:
		return rec + 1;
	case SV_PAYLOAD_IN_BULK:
		return ring->bulk + (rec->bulk_at & (SV_BULK_BYTES - 1));
	case SV_PAYLOAD_NONE:
	case SV_PAYLOAD_REFERS:
		break;
	}
	return NULL;
}

/* Tells the sender that a fragment must be sent another way. */
static void report_bad_range(struct sv_ring *ring, const struct sv_frag *frag)
{
	atomic_store_explicit(&ring->head->bad_addr, frag->addr, memory_order_relaxed);
	atomic_store_explicit(&ring->head->bad_len, frag->length, memory_order_relaxed);
	atomic_fetch_add_explicit(&ring->head->bad_seq, 1, memory_order_release);
}

/* What a device writes no thread does: the order between that and the application may go by way of
 * the peer's process and another port, where the thread sanitizer cannot see it. */
static ssize_t read_process(pid_t pid, const struct iovec here[2], const struct iovec *there)
{
#ifdef __SANITIZE_THREAD__
	return syscall(SYS_process_vm_readv, pid, here, 2ul, there, 1ul, 0ul);
#else
	return process_vm_readv(pid, here, 2, there, 1, 0);
#endif
}

/*
 * Reads `length` bytes of one fragment. One fragment at a time: when it fails we know which one.
 */
static int read_fragment(pid_t pid, const struct sv_frag *frag, uint32_t skip, uint8_t *dst,
			 uint32_t length)
{
	while (length) {
		/* The end apart from the rest: it is written last, for those who poll on it. */
		uint32_t end = length > LAST_BYTES ? LAST_BYTES : 0;
		struct iovec here[2] = {{dst, length - end}, {dst + (length - end), end}};
		struct iovec there = {ptr(frag->addr + skip), length};
		ssize_t n = read_process(pid, here, &there);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? errno : EFAULT;
		dst += n;
		skip += (uint32_t)n;
		length -= (uint32_t)n;
	}
	return 0;
}

/* Has the sender's queue pair stopped, so that its memory may hold anything by now? */
static bool is_revoked(const struct sv_slot *peer, const struct sv_record *rec)
{
	return atomic_load_explicit(&peer->revoked[rec->pkt.src_qpn % SV_REVOKE_SLOTS],
				    memory_order_acquire) != rec->revoked;
}

int sv_payload_copy(struct sv_port *port, const struct sv_packet *pkt, uint32_t offset, void *dst,
		    uint32_t length)
{
	struct sv_wire *w = sv_port_wire(port);
	const struct sv_record *rec = pkt->wire_ref;
	const struct sv_frag *frags = sv_record_behind(rec);
	unsigned src = pkt->src_qpn >> SV_QPN_BITS;
	struct sv_slot *peer = &w->h->slots[src];
	uint32_t f, done = 0;

	/* The process that owns this memory is gone, and its slot may be another's by now. */
	if (atomic_load_explicit(&peer->generation, memory_order_acquire) != rec->src_generation ||
	    is_revoked(peer, rec))
		goto lost;
	for (f = 0; f < rec->nfrags && done < length; f++) {
		uint32_t n, rc;

		if (offset >= frags[f].length) {
			offset -= frags[f].length;
			continue;
		}
		n = frags[f].length - offset;
		if (n > length - done)
			n = length - done;
		rc = (uint32_t)read_fragment(atomic_load(&peer->pid), &frags[f], offset,
					     (uint8_t *)dst + done, n);
		if (rc == EFAULT)
			report_bad_range(w->in[src], &frags[f]);
		if (rc)
			goto lost;
		done += n;
		offset = 0;
	}
	/* What we read may have been overwritten meanwhile: then nobody must rely on it. */
	if (done != length || is_revoked(peer, rec))
		goto lost;
	sv_count(w->me, SV_CNT_COPY_DIRECT, done);
	return 0;
lost:
	sv_count(w->me, SV_CNT_DROP_PAYLOAD, pkt->npkts);
	return EFAULT;
}

void sv_payload_probe(struct sv_wire *w, struct sv_ring *ring)
{
	struct sv_slot *peer = &w->h->slots[ring->src];
	uint32_t generation = atomic_load_explicit(&peer->generation, memory_order_acquire);
	uint64_t seen = 0;
	struct sv_frag word = {.addr = atomic_load(&peer->probe_address), .length = sizeof(seen)};
	bool allowed;

	if (w->probed_generation[ring->src] == generation)
		return;
	w->probed_generation[ring->src] = generation;
	/* The value guards against a process of the same number in another pid namespace. */
	allowed =
	    !w->no_cma &&
	    !read_fragment(atomic_load(&peer->pid), &word, 0, (uint8_t *)&seen, sizeof(seen)) &&
	    seen == atomic_load(&peer->probe_value);
	if (!allowed)
		sv_count(w->me, SV_CNT_CMA_REFUSED, 1);
	atomic_store_explicit(&ring->head->cma, allowed ? SV_CMA_ALLOWED : SV_CMA_REFUSED,
			      memory_order_release);
	atomic_store_explicit(&ring->head->cma_generation, generation, memory_order_release);
}
