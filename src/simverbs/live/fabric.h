/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The live fabric: what is in the shared-memory file, and who may touch it.
 *
 * A fabric is one file, /dev/shm/simverbs-<uid>-<name> (SIMVERBS_DIR replaces /dev/shm), and a
 * directory beside it with the sysfs-like tree. There is no daemon: the file *is* the fabric, and
 * everything in it survives kill -9 of any process that has it mapped.
 *
 *	header   geometry, constant once the fabric is up; the lock; the fault rules
 *	devices  one per (host, rail), and their ports: link, cut and life state, written by the
 *		 control tool
 *	slots    one endpoint per (process, device) that has the device open
 *	links    behind the header, where they have a rate: which of them is busy until when
 *	rings    made on demand: one per ordered pair of endpoints, see ring.h
 *
 * An endpoint's slot number is the high part of its queue pair numbers, so that a packet finds its
 * process without a directory: qpn = slot << SV_QPN_BITS | index.
 *
 * A ring belongs to its pair of *slots* for as long as the fabric lives. It is never given to
 * another pair, because a process that has just been declared dead might still be writing to it.
 * Slots are reused lowest first, so the number of rings stays small.
 */
#ifndef SV_LIVE_FABRIC_H
#define SV_LIVE_FABRIC_H

#include "simverbs/fault.h"
#include "simverbs/islands.h"
#include "simverbs/link.h"
#include "simverbs/profile.h"

#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SV_FABRIC_MAGIC	  0x53425245564d4953ull /* "SIMVERBS" in the file */
#define SV_FABRIC_VERSION 6u

#define SV_NAME_MAX	 48 /* of a fabric, with the final NUL */
#define SV_MAX_HOSTS	 64
#define SV_MAX_DEVICES	 256
#define SV_MAX_PORTS	 (SV_MAX_DEVICES * SV_MAX_PHYS)
#define SV_MAX_SLOTS	 512
#define SV_QPN_BITS	 15 /* 24 less 9 bits of slot */
#define SV_QPN_INDEX_MAX (1u << SV_QPN_BITS)
#define SV_SLOT_WORDS	 (SV_MAX_SLOTS / 64)
#define SV_MAX_ONCE	 16
#define SV_MAX_UNDO	 16 /* fabric actions with for= that wait to be undone */

#define SV_REVOKE_SLOTS 256

#define SV_CACHE_LINE 64

enum sv_fabric_state { SV_FABRIC_UP = 1, SV_FABRIC_DOWN = 2 };

enum sv_device_life {
	SV_DEVICE_ALIVE = 0,
	SV_DEVICE_KILLED = 1,
	SV_DEVICE_DISASSOCIATED = 2,
	SV_DEVICE_FEIGNS = 3
};

enum sv_link_layer { SV_LINK_ETHERNET = 0, SV_LINK_INFINIBAND = 1 };

/* Bits of sv_fab_port.cut: what the switch swallows at this device's port. */
enum { SV_CUT_FROM_DEVICE = 1, SV_CUT_TO_DEVICE = 2, SV_CUT_BOTH = 3 };

/* Counters of an endpoint; of a device, the sum over endpoints that are gone. */
enum sv_counter {
	SV_CNT_TX_PACKETS, /* MTU-sized packets, not descriptors */
	SV_CNT_TX_BYTES,
	SV_CNT_RX_PACKETS,
	SV_CNT_RX_BYTES,
	SV_CNT_DROP_LINK,    /* own or peer port down, or device dead */
	SV_CNT_DROP_LEG,     /* on a leg that carries nothing */
	SV_CNT_DROP_CUT,     /* swallowed by the switch */
	SV_CNT_DROP_NO_PEER, /* nobody has the destination queue pair */
	SV_CNT_DROP_FAULT,   /* a fault rule said so */
	SV_CNT_DROP_PAYLOAD, /* the sender's memory could not be read */
	SV_CNT_RING_FULL,    /* a push that had to wait for the receiver */
	SV_CNT_COPY_DIRECT,  /* bytes moved with one copy: process_vm_readv, or within a process */
	SV_CNT_COPY_SHARED,  /* bytes moved through the shared-memory fallback */
	SV_CNT_CMA_REFUSED,  /* peers whose memory may not be read */
	SV_CNT_CMA_FAULTS,   /* ranges that process_vm_readv could not read */
	SV_CNT_ENGINE_WAKES,
	/* What the protocol did (sv_port_stats), brought up to date when the engine works. */
	SV_CNT_RETRANSMITS,
	SV_CNT_TIMEOUTS,
	SV_CNT_RNR_WAITS,
	SV_CNT_NAKS_SENT,
	SV_CNT_DUPLICATES,
	SV_CNT_OUT_OF_SEQUENCE,
	SV_CNT_COMPLETIONS,
	SV_CNT_COUNT
};

extern const char *const sv_counter_names[SV_CNT_COUNT];

/* A physical port. */
struct sv_fab_port {
	/* Written by the control tool and by fault rules, under the fabric lock; read by all. */
	alignas(SV_CACHE_LINE) atomic_uint link_up;
	atomic_uint cut;
	atomic_uint legs; /* SV_LEG_DEAD and SV_LEG_REMAPPED */
	/* Of its device, beside what else every packet looks at. */
	atomic_uint life;	 /* enum sv_device_life */
	atomic_ullong leaves_ns; /* when the queue pairs end; set before `life` */
	atomic_ullong tell_ns;	 /* when users are told of the link (fabric clock) */
	/* Constant once the fabric is up. */
	struct sv_phys_config cfg;
};

extern const char *const sv_traffic_names[SV_TRAFFIC_KINDS];

struct sv_fab_device {
	/* Constant once the fabric is up. */
	uint64_t guid; /* host order */
	/* How often it came back under another name. Written as a port's state. */
	atomic_uint renamed;
	/* Sum over endpoints that have been released. Under the fabric lock. */
	alignas(SV_CACHE_LINE) atomic_ullong counters[SV_CNT_COUNT];
};

/* NAPPING ends by itself after a fraction of a millisecond, ASLEEP only by a wake or a timer. */
enum sv_engine_state { SV_ENGINE_AWAKE = 0, SV_ENGINE_NAPPING = 1, SV_ENGINE_ASLEEP = 2 };

enum sv_slot_state { SV_SLOT_FREE = 0, SV_SLOT_LIVE = 1 };

/*
 * An endpoint: one process's engine for one device. Lines are grouped by writer.
 */
struct sv_slot {
	/* Claimed and released under the fabric lock; read by all. */
	alignas(SV_CACHE_LINE) atomic_uint state;
	atomic_uint generation; /* bumped at each claim: stale packets are told apart */
	atomic_uint device;
	atomic_int pid;
	atomic_ullong start_time;    /* of the process, against reuse of the pid */
	atomic_ullong probe_address; /* where peers try process_vm_readv ... */
	atomic_ullong probe_value;   /* ... and what they must find there */
	atomic_uint next_qpn;	     /* next index to hand out; kept over reuse of the slot */

	/* Set by senders after they publish in a ring: bit = source slot. Taken by the owner. */
	alignas(SV_CACHE_LINE) atomic_ullong pending[SV_SLOT_WORDS];

	/* The engine's bed. wake_seq: bumped to wake it, which is needed while it is not awake. */
	alignas(SV_CACHE_LINE) atomic_uint wake_seq;
	atomic_uint engine;  /* enum sv_engine_state */
	atomic_uint control; /* bumped when device state, faults or the fabric changed */

	/*
	 * Written by pollers while the engine is not awake: when an application last looked (fabric
	 * clock). Senders do not disturb a nap while that is recent.
	 */
	alignas(SV_CACHE_LINE) atomic_ullong polled_ns;

	/* Written by the owner only. */
	alignas(SV_CACHE_LINE) atomic_ullong counters[SV_CNT_COUNT];
	struct sv_traffic traffic[SV_MAX_PHYS];
	atomic_uint qps, cqs, mrs; /* that exist now */
	/* Bumped when a queue pair (by the low bits of its number) stops: descriptors that refer to
	 * our memory and carry an older value are void. */
	alignas(SV_CACHE_LINE) atomic_uint revoked[SV_REVOKE_SLOTS];
};

/* A fabric action with for=: what to do when, by whichever engine comes first. */
struct sv_undo {
	atomic_ullong claimed;	/* 0: free. Set first and cleared last. */
	atomic_ullong due_ns;	/* 0: not to be done (yet). Taken by exchanging it for 0. */
	atomic_uint host, rail; /* SV_ANY: all */
	atomic_uint phys;	/* the same */
	atomic_uint leg;	/* of a bond */
	atomic_uint kinds;	/* 1 << enum sv_fault_kind */
};

struct sv_fabric_header {
	uint64_t magic;
	uint32_t version;
	uint32_t header_bytes; /* sizeof(struct sv_fabric_header): a second version check */
	char name[SV_NAME_MAX];
	uint32_t hosts, rails;
	uint32_t num_phys;   /* physical ports of each device */
	uint32_t link_layer; /* enum sv_link_layer */
	uint32_t subnets;    /* InfiniBand; 0: one, and no router */
	uint32_t mtu_bytes;
	uint32_t paced;		  /* links carry no more than their rate */
	struct sv_link_plan plan; /* the ports' rates, also where they are only names */
	struct sv_islands islands;
	uint32_t dmabuf;	 /* ibv_reg_dmabuf_mr is supported */
	uint32_t pin;		 /* regions of shared memory keep their pages */
	uint32_t gpu;		 /* GPU memory can be registered */
	struct sv_limits limits; /* of each device and process; 0: the default */
	uint32_t profile;	 /* enum sv_profile */
	uint64_t seed;
	uint64_t epoch_ns;    /* CLOCK_MONOTONIC when the fabric came up: its clock's zero */
	uint64_t link_offset; /* of the links in the file */
	uint64_t ring_offset; /* of ring 1; see ring.h for the stride */
	char sysfs[192];      /* root of the sysfs-like tree */

	atomic_uint state; /* enum sv_fabric_state */

	/*
	 * Robust and process-shared. Protects: claim and release of slots, making of rings, changes
	 * of device state and of the fault text. Every critical section leaves a consistent state
	 * after each store, so that the next owner can go on when a holder is killed.
	 */
	pthread_mutex_t lock;
	atomic_uint rings; /* made so far */

	/* Rules are added and removed under the lock; matching and counting is atomic. */
	struct sv_fault_table faults;
	uint64_t once[SV_MAX_ONCE]; /* hashes of the texts that processes brought along */
	uint32_t num_once;
	struct sv_undo undo[SV_MAX_UNDO];

	struct sv_fab_device devices[SV_MAX_DEVICES]; /* [host * rails + rail] */
	struct sv_fab_port ports[SV_MAX_PORTS];	      /* by sv_fab_port_index() */
	/* Sums over endpoints that have been released, by the same index. Under the fabric lock. */
	struct sv_traffic traffic[SV_MAX_PORTS];
	struct sv_slot slots[SV_MAX_SLOTS];
	/* Ring number of an ordered pair, 0: none yet. ring_of[src][dst]. */
	atomic_uint ring_of[SV_MAX_SLOTS][SV_MAX_SLOTS];
};

/* A process's view of a fabric. */
struct sv_fabric {
	int fd;
	size_t mapped_bytes;
	struct sv_fabric_header *h;
	struct sv_links links; /* if it is paced */
};

struct sv_fabric_options {
	const char *name;
	unsigned hosts, rails;
	unsigned aggregators; /* hosts behind the others, with a link for each port of the fabric */
	unsigned ports;	      /* of each device */
	enum sv_link_layer link_layer;
	/* InfiniBand; as in struct sv_stepped_opts */
	bool grh_required;
	unsigned subnets;
	const char *pkeys;
	unsigned mtu_bytes;
	/* By rail. Paced: the links carry that much, and take that long. */
	uint32_t rate_mbps[SV_MAX_RAILS];
	uint64_t latency_ns[SV_MAX_RAILS];
	bool paced;
	const char *islands; /* sv_islands_parse() */
	uint64_t seed;
	bool dmabuf, pin, gpu;
	enum sv_profile profile;
	struct sv_limits limits; /* 0: the default of each */
};

/* All return 0 or -errno. */
int sv_fabric_create(const struct sv_fabric_options *opt, struct sv_fabric *out);
int sv_fabric_open(const char *name, struct sv_fabric *out);
void sv_fabric_close(struct sv_fabric *fab);

/*
 * Declares the fabric down, wakes every endpoint and removes the file and the tree. Processes that
 * still use it see their devices die. Works whatever state the file is in.
 */
int sv_fabric_destroy(const char *name);

/* The file of a fabric, and the directory of its tree. Returns 0, or -ENAMETOOLONG or -EINVAL. */
int sv_fabric_path(const char *name, char *buf, size_t len);
int sv_fabric_tree_path(const char *name, char *buf, size_t len);

/* 0, or -ETIMEDOUT after five seconds (a stopped holder), with a line on stderr. */
int sv_fabric_lock(struct sv_fabric *fab);
void sv_fabric_unlock(struct sv_fabric *fab);

/* Nanoseconds since the fabric came up. */
uint64_t sv_fabric_now_ns(const struct sv_fabric_header *h);

static inline unsigned sv_fabric_devices(const struct sv_fabric_header *h)
{
	return h->hosts * h->rails;
}

/* As sv_port_index(): first those of all devices' first ports. */
static inline unsigned sv_fab_port_index(const struct sv_fabric_header *h, unsigned device,
					 unsigned phys)
{
	return phys * sv_fabric_devices(h) + device;
}

static inline unsigned sv_fab_device_of(const struct sv_fabric_header *h, unsigned port_index)
{
	return sv_index_device(port_index, sv_fabric_devices(h));
}

/* Claims an endpoint for this process. Returns the slot number, or -errno. */
int sv_slot_claim(struct sv_fabric *fab, unsigned device);
void sv_slot_release(struct sv_fabric *fab, unsigned slot);
/* Frees the slots of processes that are gone. The fabric lock must be held. */
unsigned sv_slot_reap(struct sv_fabric *fab);
/* Is the process that claimed the slot still there? */
bool sv_slot_alive(const struct sv_slot *slot);

/* Wakes the engine of a slot. */
void sv_slot_wake(struct sv_slot *slot);
/* Tells every live endpoint that something in the fabric changed. */
void sv_fabric_notify(struct sv_fabric *fab);

/*
 * Adds fault rules and tells all engines. `once`: only if this text was not added with `once`
 * before. Returns the first rule's id, or -errno with a message in err.
 */
int sv_fabric_add_faults(struct sv_fabric *fab, const char *text, bool once, char *err,
			 size_t err_size);

static inline void sv_set_count(struct sv_slot *slot, enum sv_counter which, uint64_t value)
{
	atomic_store_explicit(&slot->counters[which], value, memory_order_relaxed);
}

static inline void sv_count(struct sv_slot *slot, enum sv_counter which, uint64_t n)
{
	/* One writer: no read-modify-write instruction needed. */
	atomic_store_explicit(&slot->counters[which],
			      atomic_load_explicit(&slot->counters[which], memory_order_relaxed) +
				  n,
			      memory_order_relaxed);
}

#endif
