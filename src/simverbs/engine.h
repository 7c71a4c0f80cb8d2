/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract inside simverbs: what the core (verbs objects and the RC and UD protocol) gives to
 * and wants from a wire, and what the ABI layer calls.
 *
 *	 ibv_* symbols (abi/)    sv_stepped_* (stepped.c)   shared memory (live/), packets (roce/)
 *	        │ sv_<verb>()                  │                          │
 *	┌───────▼──────────────────────────────▼──────────────────────────▼────────┐
 *	│ core: PD MR CQ QP SRQ AH, requester, responder, timers, completions,      │
 *	│       async events, fault matching. One struct sv_port per device.        │
 *	└───────┬──────────────────────────────▲───────────────────────────────────┘
 *	        │ struct sv_wire_ops           │ sv_port_receive(), sv_port_run_timers(), …
 *	┌───────▼──────────────────────────────┴───────────────────────────────────┐
 *	│ wire: stepped (event heap, virtual clock), live (inboxes, engine thread)   │
 *	│	or RoCE (datagrams, engine thread)				    │
 *	└───────────────────────────────────────────────────────────────────────────┘
 *
 * A port (sv_port) is the run-time of one simulated device in this process. Each process that opens
 * the device has a sv_port of its own; what they share (link state, QP numbers, fault rules) is the
 * wire's business. A device has one or two physical ports (sv_phys_config), each with a link,
 * addresses and partitions of its own: what verbs call port_num counts them from 1, `phys` from 0.
 *
 * LOCKING. One mutex per port (or one for several: sv_port_config.lock) protects every object that
 * belongs to it. "Locked" below means: the
 * caller holds it. The sv_<verb> functions take it themselves. Wire operations are called locked
 * unless said otherwise, must not block and must not take another port's lock.
 */
#ifndef SV_ENGINE_H
#define SV_ENGINE_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* ibverbs makes these inline or macros; here they are only names. */
#undef ibv_reg_mr
#undef ibv_reg_mr_iova
#undef ibv_query_port

struct sv_port;
struct sv_links;
struct sv_fault_table;

#define SV_PSN_MASK	0xffffffu
#define SV_QPN_MASK	0xffffffu
#define SV_MAX_SGE	32
#define SV_MAX_GIDS	16
#define SV_ECE_VENDOR	0x5356u
#define SV_ECE_OPTIONS	0x7u
#define SV_MAX_PHYS	2 /* physical ports of a device */
#define SV_MAX_PKEYS	8
#define SV_DEFAULT_PKEY 0xffffu
/* A port index that no port has: what is sent there is lost. */
#define SV_NOWHERE	UINT16_MAX
#define SV_MAX_MSG_SIZE (1u << 30)
/* A burst never has more source fragments than one WR has SGEs. */
#define SV_MAX_FRAGS SV_MAX_SGE

/* ---------------------------------------------------------------- packets */

enum sv_op {
	SV_OP_SEND,	 /* RC send; FIRST, LAST, IMM, INVALIDATE, SOLICITED apply */
	SV_OP_WRITE,	 /* RC RDMA write; RETH on FIRST, IMM on LAST */
	SV_OP_READ_REQ,	 /* RETH; psn .. psn + npkts - 1 are the PSNs of the responses */
	SV_OP_READ_RESP, /* AETH on FIRST and LAST */
	SV_OP_CMP_SWAP,
	SV_OP_FETCH_ADD,
	SV_OP_ATOMIC_ACK,
	SV_OP_ACK, /* AETH: positive, RNR NAK or NAK */
	SV_OP_UD,  /* DETH */
	SV_OP_COUNT
};

enum sv_packet_flags {
	SV_PKT_FIRST = 1 << 0,
	SV_PKT_LAST = 1 << 1,
	SV_PKT_IMM = 1 << 2,
	SV_PKT_ACKREQ = 1 << 3,
	SV_PKT_SOLICITED = 1 << 4,
	SV_PKT_GRH = 1 << 5,
	/* The source fragments may change as soon as send() returns (inline data): copy them. */
	SV_PKT_VOLATILE = 1 << 6,
	/* Was sent before (for statistics and traces; a responder must not look at it). */
	SV_PKT_RETRY = 1 << 7,
	SV_PKT_INVALIDATE = 1 << 8, /* on LAST of a SEND, instead of IMM */
	SV_PKT_MIGRATED = 1 << 9,   /* the BTH's M bit: only the RoCE wire has it */
};

/* AETH syndromes, as on the wire: the top three bits say which kind. */
enum sv_syndrome {
	SV_AETH_KIND_MASK = 0xe0,
	SV_AETH_ACK = 0x00,
	SV_AETH_RNR_NAK = 0x20, /* low five bits: RNR timer code */
	SV_NAK_SEQ_ERR = 0x60,
	SV_NAK_INV_REQ = 0x61,
	SV_NAK_REM_ACCESS = 0x62,
	SV_NAK_REM_OP = 0x63,
};

/*
 * One descriptor on the wire: the headers of `npkts` consecutive MTU packets of one message (PSNs
 * psn .. psn + npkts - 1; all but the message's last are full). npkts is 1 unless the port's burst
 * is larger. Plain data: a wire may copy it between processes; then `payload` and `wire_ref` are
 * for the receiving side's wire to set.
 */
struct sv_packet {
	uint8_t op;	  /* enum sv_op */
	uint8_t syndrome; /* AETH */
	uint16_t flags;	  /* enum sv_packet_flags */
	/* Fabric-wide port index and P_Key, filled in by the core (sv_port_index()). */
	uint16_t src_port, pkey;
	uint16_t dst_port;
	uint32_t src_qpn;
	uint32_t dst_qpn;
	uint32_t psn;
	uint32_t npkts;
	uint32_t payload_len;
	uint16_t sport; /* UDP source port, by which bonds and switches spread what they carry */
	uint8_t traffic_class, hop_limit;
	union {
		__be32 imm;
		uint32_t invalidate_rkey;
	};
	uint32_t msn; /* AETH */
	union {
		struct { /* READ_REQ, FIRST of WRITE, atomics */
			uint64_t addr;
			uint64_t swap_add;
			uint64_t compare;
			uint32_t rkey;
			uint32_t length; /* of the whole message */
		} reth;
		uint64_t atomic_result; /* ATOMIC_ACK */
		struct {
			union ibv_gid sgid;
			union ibv_gid dgid;
			uint32_t qkey;
			uint16_t slid;
			uint8_t sl;
		} ud;
	};
	/* Receiving side: the payload when it lies in this process's memory in one piece, else NULL
	 * and the core calls copy_payload(). */
	const void *payload;
	void *wire_ref; /* the receiving wire's own */
};

/* MTU packets that a descriptor stands for: a request for n responses is one itself. */
static inline uint32_t sv_packet_count(const struct sv_packet *pkt)
{
	return pkt->op == SV_OP_READ_REQ ? 1 : pkt->npkts;
}

/*
 * A device may be a bond, of two legs that are two cables, and a switch may have as many ways to
 * the next one. A packet's source port decides: by a hash, so who wants the other way varies it.
 */
#define SV_LEGS 2

static inline uint32_t sv_leg_of(uint16_t sport)
{
	return (sport * 0x9e3779b1u >> 16) % SV_LEGS;
}

/* What has become of a device's legs, a bit of each: it carries nothing; the other one carries what
 * was its. */
#define SV_LEG_DEAD(leg)     (1u << (leg))
#define SV_LEG_REMAPPED(leg) (1u << (SV_LEGS + (leg)))

static inline bool sv_leg_carries(uint32_t legs, uint16_t sport)
{
	uint32_t leg = sv_leg_of(sport);

	return !(legs & SV_LEG_DEAD(leg)) ||
	       (legs & SV_LEG_REMAPPED(leg) && !(legs & SV_LEG_DEAD(1 - leg)));
}

/* A piece of the sender's memory. */
struct sv_frag {
	uint64_t addr;
	uint32_t length;
	uint32_t unborrowable; /* no other process can read it (sv_mr) */
};

/* ---------------------------------------------------------------- the wire */

struct sv_wire_ops {
	/*
	 * Sends one descriptor whose payload is the concatenation of `frags` (payload_len bytes in
	 * all). 0: taken, which includes "lost". -EAGAIN: no room now; the core keeps its place and
	 * tries again in sv_port_kick(), which the wire must call when there is room again.
	 *
	 * Unless SV_PKT_VOLATILE is set the fragments stay as they are until the message was
	 * acknowledged, so a wire may refer to them; but a descriptor that is held back (delayed,
	 * duplicated, reordered) outlives that and needs a copy.
	 */
	int (*send)(struct sv_port *port, const struct sv_packet *pkt, const struct sv_frag *frags,
		    uint32_t nfrags);

	/*
	 * The application has posted, and send() was called for all of it that may go now: a wire
	 * that collects packets sends them. NULL: it does not.
	 */
	void (*posted)(struct sv_port *port);

	/*
	 * Copies payload bytes [offset, offset + length) of a packet being received to dst.
	 * Called from within sv_port_receive() only, for packets with payload == NULL. Non-zero:
	 * the bytes cannot be had (peer died, or must be sent another way): the core treats the
	 * packet as lost and asks for it again with a sequence NAK.
	 */
	int (*copy_payload)(struct sv_port *port, const struct sv_packet *pkt, uint32_t offset,
			    void *dst, uint32_t length);

	/* Nanoseconds of this fabric's clock: virtual, or CLOCK_MONOTONIC. Any thread. */
	uint64_t (*now_ns)(struct sv_port *port);

	/* The port's earliest deadline became `deadline_ns`, earlier than before: make sure
	 * sv_port_run_timers() runs then. */
	void (*arm_timer)(struct sv_port *port, uint64_t deadline_ns);

	/*
	 * The fabric-wide port index behind an address (dgid or dlid), into *dst_port. Called by
	 * modify QP → RTR and by create AH; the result is kept in the QP or AH. 0, or an errno that
	 * the verb then returns (ENETUNREACH, ETIMEDOUT for an address nobody has). On InfiniBand
	 * nothing is asked: what nobody takes is lost (SV_NOWHERE).
	 */
	int (*resolve)(struct sv_port *port, const struct ibv_ah_attr *attr, uint16_t *dst_port);

	/* A QP number that is unique on the device (over all processes) and was not used lately;
	 * 0 or errno (ENOMEM: max_qp). From now on packets to it must reach this port. */
	int (*qpn_alloc)(struct sv_port *port, uint32_t *qpn);
	void (*qpn_free)(struct sv_port *port, uint32_t qpn);

	/*
	 * Progress by a polling application. pending(): unlocked, cheap, true when progress() might
	 * find something. progress(): locked; delivers what has arrived (sv_port_receive() for
	 * each, then sv_port_flush()). Both may be NULL (stepped: only sv_stepped_step() moves
	 * time).
	 */
	bool (*pending)(struct sv_port *port);
	void (*progress)(struct sv_port *port);

	/*
	 * Hints, each may be NULL.
	 *
	 * peer(): a connected queue pair now knows its other end.
	 * revoke(): a queue pair stopped (error, reset, destroyed): the fragments handed to send()
	 * for it are the application's again. What was not received yet may count as lost.
	 * may_block(): unlocked; the application armed a completion queue and may not poll again.
	 * objects(): the numbers of QPs, CQs or MRs (sv_port_get_stats()) changed.
	 */
	void (*peer)(struct sv_port *port, uint32_t dst_port, uint32_t dst_qpn);
	void (*revoke)(struct sv_port *port, uint32_t qpn);
	void (*may_block)(struct sv_port *port);
	void (*objects)(struct sv_port *port);

	/*
	 * A fault rule makes a verb (enum sv_verb) of the calling thread take this long; return
	 * when that has passed, or when *dead became true (read it atomically). Not locked. NULL:
	 * the core sleeps.
	 */
	void (*verb_waits)(struct sv_port *port, uint32_t verb, uint64_t ns, const bool *dead);

	/*
	 * The device died by a kill rule that the core carried out itself (placed, unplaced): this
	 * process's sv_port is dead already; tell the others that have the device open.
	 */
	void (*died)(struct sv_port *port);
};

/* ---------------------------------------------------------------- the port */

struct sv_limits {
	uint32_t max_qp, max_qp_wr, max_sge, max_inline;
	uint32_t max_cq, max_cqe;
	uint32_t max_mr, max_pd, max_ah;
	uint32_t max_srq, max_srq_wr;
	uint32_t max_rd_atomic; /* per QP, as initiator and as responder */
	uint64_t max_mr_size;
};
void sv_limits_default(struct sv_limits *limits);
/* What is not 0 in `wanted` replaces what `limits` has. */
void sv_limits_set(struct sv_limits *limits, const struct sv_limits *wanted);

struct sv_gid_entry {
	union ibv_gid gid; /* all zero: an empty slot */
	enum ibv_gid_type type;
	uint32_t ndev_ifindex;
};

/*
 * What queue pairs had a port carry. Bytes are payload, packets MTU packets, those sent again
 * included. Written under the port's lock, and plain, since that is done for every packet; it may
 * lie where other processes look at it, who then see a word as it is or was.
 */
enum sv_traffic_kind {
	SV_TRAFFIC_BYTES_OUT,
	SV_TRAFFIC_PACKETS_OUT,
	SV_TRAFFIC_WORK_REQUESTS, /* of send queues, begun */
	SV_TRAFFIC_BYTES_IN,
	SV_TRAFFIC_PACKETS_IN,
	SV_TRAFFIC_RECEIVES,   /* completed */
	SV_TRAFFIC_IMMEDIATES, /* that came with these */
	SV_TRAFFIC_KINDS
};
struct sv_traffic {
	uint64_t n[SV_TRAFFIC_KINDS];
};

/* A physical port of a device. */
struct sv_phys_config {
	uint16_t lid;
	struct sv_gid_entry gids[SV_MAX_GIDS];
	uint32_t num_gids; /* up to the last one; the table has SV_MAX_GIDS entries */
	uint16_t pkeys[SV_MAX_PKEYS];
	uint32_t num_pkeys;
	bool grh_required;	   /* InfiniBand: no address without a GRH */
	enum ibv_port_state state; /* initial */
};

/*
 * The P_Key table of a host's nth port (counted over its devices): text is one table or several,
 * "0xffff,0x8001/0x8001,0xffff", which the ports have in turn. NULL or empty: the default P_Key
 * alone. 0, or EINVAL.
 */
int sv_pkeys_parse(const char *text, uint32_t nth, struct sv_phys_config *phys);

/*
 * LID and GIDs of an InfiniBand port. Where there are several subnets (they count from 1; 0: there
 * is one) it has a second GID, which routers know: with the FLID of its subnet.
 */
void sv_phys_infiniband(struct sv_phys_config *phys, uint64_t guid, uint32_t lid, uint32_t subnet);

/* Whether this port takes what another one sends to an address. */
bool sv_phys_takes(const struct sv_phys_config *phys, const struct sv_phys_config *from,
		   const struct ibv_ah_attr *attr, bool ethernet);

/* What a device is. Fixed when the port is made, except gids (sv_port_set_gid) and lid. */
struct sv_port_config {
	uint32_t index;	  /* fabric-wide: host * rails + rail */
	uint32_t devices; /* of the whole fabric */
	uint32_t host, rail, rails;
	char name[IBV_SYSFS_NAME_MAX]; /* "sim0" */
	char dev_path[IBV_SYSFS_PATH_MAX];
	char ibdev_path[IBV_SYSFS_PATH_MAX];
	__be64 node_guid, sys_image_guid;
	uint8_t link_layer; /* IBV_LINK_LAYER_ETHERNET or _INFINIBAND */
	uint32_t rate_mbps;
	enum ibv_mtu mtu;
	uint32_t num_phys;
	struct sv_phys_config phys[SV_MAX_PHYS];
	struct sv_limits limits;
	uint32_t burst_bytes;	/* payload of one descriptor at most; 0: one MTU packet each */
	uint32_t window_bursts; /* descriptors in flight per QP before the sender waits for acks */
	bool window_adapts;	/* fewer of them after a loss, as nobody else tells of congestion */
	uint64_t seed;		/* for what hardware picks at random */
	int num_comp_vectors;
	uint32_t ece_vendor, ece_options; /* what a QP may agree on with its peer; 0: no ECE */
	bool no_dmabuf;			  /* ibv_reg_dmabuf_mr answers EOPNOTSUPP */
	bool pin;			  /* regions of shared memory keep their pages */
	bool gpu;			  /* regions may be of GPU memory, by the CUDA driver */
	bool memlock;			  /* RLIMIT_MEMLOCK holds for regions */
	bool late_recvs_stay;		  /* those posted in ERR, until it is set again */
	uint32_t profile;		  /* enum sv_profile: when things happen */
	bool bond;			  /* one device of two legs */
	pthread_mutex_t *lock; /* instead of one of its own: several ports under one lock */
	/*
	 * Links that hold back what they have no room for, by port index. The port keeps the
	 * pointer; NULL: it sends as fast as the wire takes it. A wire that has them calls
	 * sv_port_pass() for each packet that leaves, and sv_port_resume().
	 */
	const struct sv_links *links;
	struct sv_traffic
	    *traffic; /* where to count, num_phys of them; NULL: the port has its own */
};

/* Fabric-wide index of a physical port: first those of all devices' first ports. */
static inline uint32_t sv_port_index(const struct sv_port_config *cfg, uint32_t phys)
{
	return phys * cfg->devices + cfg->index;
}

/* Of the device that a port index belongs to. */
static inline uint32_t sv_index_device(uint32_t port_index, uint32_t devices)
{
	return port_index < devices ? port_index : port_index % devices;
}

static inline uint32_t sv_index_host(const struct sv_port_config *cfg, uint32_t port_index)
{
	return sv_index_device(port_index, cfg->devices) / cfg->rails;
}

/* The table may lie in shared memory; NULL: no rules. The port does not own it. */
struct sv_port *sv_port_create(const struct sv_port_config *cfg, const struct sv_wire_ops *ops,
			       void *wire, struct sv_fault_table *faults);
/* All contexts must be closed. Not locked. */
void sv_port_destroy(struct sv_port *port);

void *sv_port_wire(const struct sv_port *port);
const struct sv_port_config *sv_port_cfg(const struct sv_port *port);
struct sv_fault_table *sv_port_faults(const struct sv_port *port);

void sv_port_lock(struct sv_port *port);
bool sv_port_trylock(struct sv_port *port);
void sv_port_unlock(struct sv_port *port);

/* ---- wire → core, all locked ---- */

/* One descriptor arrived. Acks it provokes may be held back until sv_port_flush(). */
void sv_port_receive(struct sv_port *port, const struct sv_packet *pkt);

/*
 * Fault rules. A wire calls this for each packet that leaves (SV_DIR_TX, in send()) and that
 * arrives (SV_DIR_RX, before sv_port_receive()), unless sv_fault_armed() says that there is nothing
 * to match. What concerns the core (wedge, event) is done here; the rest comes back in *verdict for
 * the wire: packet actions, and fabric actions (link, cut, heal, kill, revive). A KILL verdict:
 * call sv_port_begin_death() with it and the packet, and sv_port_receive() no more for this packet.
 * False: nothing fired.
 */
enum sv_fault_dir { SV_DIR_TX, SV_DIR_RX };
struct sv_fault_verdict;
bool sv_port_match_faults(struct sv_port *port, enum sv_fault_dir dir, const struct sv_packet *pkt,
			  struct sv_fault_verdict *verdict);

/*
 * kill=now: dies at once, pkt (may be NULL) is lost. kill=placed|unplaced: acknowledges pkt and
 * what follows of its message, with or without writing it to memory, never completes it, and dies
 * with the message's last acknowledgement (wire operation died() is called then).
 */
enum sv_kill_variant {
	SV_KILL_NOW,	  /* as if unplugged */
	SV_KILL_PLACED,	  /* data written to memory and acknowledged, its completion lost */
	SV_KILL_UNPLACED, /* acknowledged, never written to memory */
};
void sv_port_begin_death(struct sv_port *port, enum sv_kill_variant variant,
			 const struct sv_packet *pkt);

/* Sends the acks that sv_port_receive() collected: call it after each batch. */
void sv_port_flush(struct sv_port *port);

/* There is room on the wire again: goes on with what send() answered -EAGAIN to.
 * True when something is still waiting. */
bool sv_port_kick(struct sv_port *port);
bool sv_port_wants_kick(const struct sv_port *port);

/*
 * This packet leaves now: takes its ways (link.h). Returns when it is there; 0: at once, as without
 * links, or inside a device.
 */
uint64_t sv_port_pass(struct sv_port *port, const struct sv_packet *pkt);
/* What is sent from here on is an answer to what was there at `ns`, and could have been sent then;
 * 0: it is sent when it is sent. */
void sv_port_as_of(struct sv_port *port, uint64_t ns);
/* Goes on with what waited for a link, if that has room by now. sv_port_run_timers() does so, too;
 * who polls shall not wait for that. */
void sv_port_resume(struct sv_port *port);
/* When that is; UINT64_MAX: nothing waits. Unlocked. */
uint64_t sv_port_resume_ns(const struct sv_port *port);

/* Runs what is due. Returns the next deadline, UINT64_MAX for none. */
uint64_t sv_port_run_timers(struct sv_port *port, uint64_t now_ns);
/* Only the first that is due; false: none was. */
bool sv_port_run_timer(struct sv_port *port, uint64_t now_ns);
uint64_t sv_port_next_deadline(struct sv_port *port);

/* Locked. Looks at the doorbells of queue pairs that the program drives (direct_qp.c), and goes on
 * with them. False: there are none. */
bool sv_port_look_direct(struct sv_port *port);

/* Link state as the port sees it, and as ibv_query_port() says it. Nobody is told. */
void sv_port_set_state(struct sv_port *port, uint32_t phys, enum ibv_port_state state);
/* Raises PORT_ACTIVE or PORT_ERR on every context if the link is not as they were last told. */
void sv_port_tell_state(struct sv_port *port, uint32_t phys);
enum ibv_port_state sv_port_state(const struct sv_port *port, uint32_t phys);

/* Changes a GID table entry; raises GID_CHANGE. */
void sv_port_set_gid(struct sv_port *port, uint32_t phys, uint32_t index,
		     const struct sv_gid_entry *entry);

/* Changes a P_Key table entry; raises PKEY_CHANGE. */
void sv_port_set_pkey(struct sv_port *port, uint32_t phys, uint32_t index, uint16_t pkey);

/* The ECE of queue pairs made from now on. */
void sv_port_set_ece(struct sv_port *port, uint32_t vendor_id, uint32_t options);

/* Changes the burst size (to 0 while a link has packet-level fault rules). */
void sv_port_set_burst(struct sv_port *port, uint32_t burst_bytes);

/*
 * The device dies: every open context gets DEVICE_FATAL and answers EIO from now on, their QPs stop
 * without a completion, packets to them are lost. Destroy verbs still work. After revive, devices
 * can be opened again; old contexts stay dead, as after a PCI reset.
 */
void sv_port_kill(struct sv_port *port);
/*
 * The kernel takes the device away from those that have it open, as when its driver is unbound. At
 * once every command of theirs answers EIO, those that give something back included, and the device
 * cannot be opened; the hardware goes on: what was posted is sent, what arrives is written, and
 * posting works. With sv_port_leave() the queue pairs are destroyed; only then comes DEVICE_FATAL,
 * and behind it reading events answers EIO. What is posted from then on does nothing, without an
 * error.
 */
void sv_port_disassociate(struct sv_port *port);
/*
 * The device's driver gives up its firmware, as ConnectX's in internal error: DEVICE_FATAL comes at
 * once, and to put a queue pair into ERR or to give something back succeeds without being done. The
 * other commands answer EIO, and the device cannot be opened. The hardware goes on, with queue
 * pairs and memory regions that the application takes for destroyed, until sv_port_leave().
 */
void sv_port_feign(struct sv_port *port);
/* Nothing if it is not leaving. */
void sv_port_leave(struct sv_port *port);
bool sv_port_leaving(const struct sv_port *port);
void sv_port_revive(struct sv_port *port);

/* What a device is called that has come back under another name so many times: sim0, sim0_1, … */
static inline void sv_device_name(uint32_t rail, uint32_t renamed, char *buf, size_t size)
{
	if (renamed)
		snprintf(buf, size, "sim%u_%u", rail, renamed);
	else
		snprintf(buf, size, "sim%u", rail);
}
bool sv_port_dead(const struct sv_port *port);
/* Locked. Whether it has a queue pair of this number. */
bool sv_port_has_qp(const struct sv_port *port, uint32_t qpn);

/* Raises an event of a physical port or of the device on every context (fault rule event=…). */
void sv_port_raise(struct sv_port *port, uint32_t phys, enum ibv_event_type type);

/* Statistics. */
struct sv_port_stats {
	uint64_t acks, naks_seq, naks_rnr, naks_other; /* sent */
	uint64_t retransmits, timeouts, rnr_waits, duplicates, out_of_sequence;
	uint64_t rx_no_qp, rx_bad_state, rx_bad_qkey, rx_bad_pkey, rx_ud_no_buffer, payload_lost;
	uint64_t cqes, cq_overruns, qps, mrs, cqs;
};
/* Locked. */
void sv_port_get_stats(const struct sv_port *port, struct sv_port_stats *stats);
const struct sv_traffic *sv_port_traffic(const struct sv_port *port, uint32_t phys);

/* ---------------------------------------------------------------- ABI layer → core */

/* What a verb returns that is a command, and sets errno as well: programs print it. */
static inline int sv_told(int err)
{
	if (err > 0)
		errno = err;
	return err;
}

/*
 * Devices. `struct sv_device` starts with the ibv_device the application sees; whoever makes the
 * list (stepped.c or live/) owns it and says how to get its port.
 */
struct sv_device {
	struct ibv_device ibv;
	__be64 node_guid;
	uint32_t host, rail;
	/* The port of this process, made or looked up; NULL with errno. */
	struct sv_port *(*get_port)(struct sv_device *dev);
	/* Takes back get_port; called after the context is gone. */
	void (*put_port)(struct sv_device *dev, struct sv_port *port);
	/* ibv_free_device_list() and open contexts share a device: see sv_device_get/put. */
	void (*release)(struct sv_device *dev);
	_Atomic int refs;
};
void sv_device_get(struct sv_device *dev);
void sv_device_put(struct sv_device *dev);
/* Fills name, dev_name, paths, node_type, transport_type and guid from a config. */
void sv_device_init(struct sv_device *dev, const struct sv_port_config *cfg);

/* The stepped fabric's devices of the calling thread's host: a NULL-terminated array from malloc
 * with one reference on each, or NULL when no stepped fabric is open (then ask live). */
struct sv_device **sv_stepped_devices(int *num) __attribute__((visibility("hidden")));

/* An opened device with every operation of the context and of verbs_context set. NULL, errno. */
struct ibv_context *sv_open_device(struct ibv_device *device);
int sv_close_device(struct ibv_context *context);

/* The verbs themselves, same arguments, results and errno as libibverbs documents. */
int sv_query_device(struct ibv_context *context, struct ibv_device_attr *attr);
int sv_query_port(struct ibv_context *context, uint8_t port_num, struct ibv_port_attr *attr);
int sv_query_gid(struct ibv_context *context, uint8_t port_num, int index, union ibv_gid *gid);
int sv_query_gid_ex(struct ibv_context *context, uint32_t port_num, uint32_t gid_index,
		    struct ibv_gid_entry *entry, uint32_t flags, size_t entry_size);
ssize_t sv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
			   size_t max_entries, uint32_t flags, size_t entry_size);
/* The sysfs attribute ("IB/RoCE v1" or "RoCE v2") some ibv_query_gid_type users want. */
int sv_query_gid_type(struct ibv_context *context, uint8_t port_num, unsigned int index,
		      enum ibv_gid_type *type);
int sv_query_pkey(struct ibv_context *context, uint8_t port_num, int index, __be16 *pkey);
int sv_get_pkey_index(struct ibv_context *context, uint8_t port_num, __be16 pkey);

struct ibv_pd *sv_alloc_pd(struct ibv_context *context);
int sv_dealloc_pd(struct ibv_pd *pd);
struct ibv_mr *sv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access);
struct ibv_mr *sv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
			      int access);
struct ibv_mr *sv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
			       unsigned int access);
struct ibv_mr *sv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova,
				int fd, int access);
int sv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length,
		int access);
int sv_dereg_mr(struct ibv_mr *mr);

struct ibv_comp_channel *sv_create_comp_channel(struct ibv_context *context);
int sv_destroy_comp_channel(struct ibv_comp_channel *channel);
struct ibv_cq *sv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
			    struct ibv_comp_channel *channel, int comp_vector);
struct ibv_cq_ex *sv_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr);
int sv_resize_cq(struct ibv_cq *cq, int cqe);
int sv_destroy_cq(struct ibv_cq *cq);
int sv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context);
void sv_ack_cq_events(struct ibv_cq *cq, unsigned int nevents);
int sv_poll_cq(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc);
int sv_req_notify_cq(struct ibv_cq *cq, int solicited_only);

struct ibv_srq *sv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr);
struct ibv_srq *sv_create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr);
int sv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask);
int sv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr);
int sv_destroy_srq(struct ibv_srq *srq);
int sv_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);

struct ibv_qp *sv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
struct ibv_qp *sv_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
struct ibv_qp_ex *sv_qp_to_qp_ex(struct ibv_qp *qp);
int sv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int sv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		struct ibv_qp_init_attr *init);
int sv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags);
int sv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece);
int sv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece);
int sv_destroy_qp(struct ibv_qp *qp);
int sv_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);
int sv_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);

struct ibv_ah *sv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr);
int sv_init_ah_from_wc(struct ibv_context *context, uint8_t port_num, struct ibv_wc *wc,
		       struct ibv_grh *grh, struct ibv_ah_attr *attr);
struct ibv_ah *sv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh,
				    uint8_t port_num);
int sv_destroy_ah(struct ibv_ah *ah);

int sv_get_async_event(struct ibv_context *context, struct ibv_async_event *event);
void sv_ack_async_event(struct ibv_async_event *event);

#endif
