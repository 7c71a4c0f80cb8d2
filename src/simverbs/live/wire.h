/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The live wire of one port: what its files share. See engine.h for what a wire is.
 *
 *	wire.c	   send and receive: path state, rings, back-pressure, addresses, QP numbers
 *	payload.c  how payload bytes get across: inline, one copy, or through shared memory
 *	control.c  following link, cut and life state (state.c changes it)
 *	thread.c   the engine thread
 *	runtime.c  this process: the fabric it is on, its devices and ports
 */
#ifndef SV_LIVE_WIRE_H
#define SV_LIVE_WIRE_H

#include "simverbs/hold.h"
#include "simverbs/live/fabric.h"
#include "simverbs/live/ring.h"
#include "simverbs/live/state.h"

#include <pthread.h>

#define SV_BURST_BYTES	   (256u * 1024)
#define SV_BURST_MIN_BYTES (16u * 1024)
#define SV_BURST_NS	   50000u /* of a link that has a rate */
#define SV_WINDOW_BYTES	   (32 * SV_BURST_BYTES)
/* Up to here two copies through the ring are cheaper than a system call. */
#define SV_INLINE_BYTES	  4096u
#define SV_MAX_BAD_RANGES 64
/* How often the engine tries again what found a ring full. */
#define SV_KICK_RETRY_NS 200000u
/* With fewer processors than this a poller gives way now and then, and engines hardly spin. */
#define SV_MANY_CORES	  8
#define SV_YIELD_POLLS	  64u
#define SV_GRACE_NS	  5000u
#define SV_GRACE_YIELD_NS 50000u
#define SV_SPIN_NS	  100000u
#define SV_SPIN_YIELD_NS  10000u

/* Memory of ours that a peer failed to read: sent through shared memory from then on. */
struct sv_bad_range {
	uint64_t addr, len;
};

struct sv_wire {
	/* Constant. */
	struct sv_fabric *fab;
	struct sv_fabric_header *h;
	struct sv_port *port;
	struct sv_slot *me;
	unsigned slot, device;
	uint32_t generation; /* of our slot */
	pid_t pid;
	bool no_cma;	   /* SIMVERBS_NO_CMA: never read a peer's memory */
	bool yields;	   /* few processors: give way while polling */
	uint64_t spin_ns;  /* how long the engine watches after the last packet */
	uint64_t grace_ns; /* a poller that looked so lately will look again */
	uint32_t burst_bytes;
	bool paced; /* links have a rate */

	/* Under the port lock. */
	struct sv_ring *out[SV_MAX_SLOTS], *in[SV_MAX_SLOTS];
	uint32_t probed_generation[SV_MAX_SLOTS]; /* incarnation of a peer whose memory we tried */
	struct sv_bad_range bad[SV_MAX_BAD_RANGES];
	unsigned nbad, next_bad;
	struct sv_hold hold;
	uint64_t qpn_used[SV_QPN_INDEX_MAX / 64];
	unsigned nqpn;
	bool warned_full;
	uint64_t tell_ns[SV_MAX_PHYS];	 /* when users are told of a port's link */
	uint64_t not_due[SV_SLOT_WORDS]; /* bit = source slot: what it sent is still on its way */

	/* Written under the port lock, read without by sv_wire_pending. */
	atomic_uint control_seen;
	atomic_bool want_kick;
	atomic_ullong due_ns; /* when the first of `not_due` is there; UINT64_MAX: none */

	/* Written by polling applications: tells the engine that it is not needed. */
	alignas(SV_CACHE_LINE) atomic_uint polls;

	/* The engine. */
	alignas(SV_CACHE_LINE) pthread_t thread;
	atomic_bool stop;
	atomic_ullong sleeps_until_ns; /* under the port lock; what arm_timer compares with */
};

/* In a loop that waits for another processor. */
static inline void sv_cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

extern const struct sv_wire_ops sv_live_wire_ops;
extern const struct sv_hold_ops sv_live_hold_ops;

/* --- wire.c --- */

/* Everything there is to do now: control, arrivals, held packets, kicks. Locked. */
void sv_wire_progress(struct sv_port *port);
/* Has anything come from outside for sv_wire_progress? Unlocked. */
bool sv_wire_has_work(const struct sv_wire *w);
void sv_wire_close_rings(struct sv_wire *w);

/* --- payload.c --- */

/* How a packet's payload will travel, and the bytes its record needs behind the header. */
enum sv_payload_mode sv_payload_choose(struct sv_wire *w, struct sv_ring *ring,
				       const struct sv_packet *pkt, const struct sv_frag *frags,
				       uint32_t nfrags, size_t *bytes_behind);
/* Writes it. False: no room in the bulk area. */
bool sv_payload_store(struct sv_wire *w, struct sv_ring *ring, struct sv_record *rec,
		      const struct sv_frag *frags, uint32_t nfrags);
/* Receiving: where the payload is, if it is in one piece in memory of ours. */
const void *sv_payload_pointer(const struct sv_ring *ring, const struct sv_record *rec);
int sv_payload_copy(struct sv_port *port, const struct sv_packet *pkt, uint32_t offset, void *dst,
		    uint32_t length);
/* Receiving the first packet of a peer: may we read its memory? The answer goes into the ring. */
void sv_payload_probe(struct sv_wire *w, struct sv_ring *ring);
/* Gathers fragments into one piece. */
void sv_payload_gather(void *dst, const struct sv_frag *frags, uint32_t nfrags);

/* --- control.c --- */

/* Can a packet get from one port to the other? If not, counts why. */
bool sv_path_open(struct sv_wire *w, unsigned src_port, unsigned dst_port);
/* Brings the port in line with the fabric: link, life, fault rules. Locked. */
void sv_control_sync(struct sv_wire *w);
/* Ends what a port has left whose device was taken away, when it is time; else says when. Locked.
 */
uint64_t sv_control_run(struct sv_wire *w, uint64_t now_ns);
/* Tells users of the port how its link is, if it is time to. Returns when it is; locked. */
uint64_t sv_control_tell(struct sv_wire *w, uint64_t now_ns);
/* The core carried out a kill rule on our port: tell the other processes. */
void sv_control_died(struct sv_port *port);
/* --- thread.c --- */

int sv_thread_start(struct sv_wire *w);
void sv_thread_stop(struct sv_wire *w);
/* Makes sure that the engine works at this time. Locked. */
void sv_thread_arm(struct sv_port *port, uint64_t deadline_ns);

#endif
