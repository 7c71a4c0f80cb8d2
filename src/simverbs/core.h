/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The core's own structures. Everything here belongs to one port and is read and written under
 * that port's lock, except where a comment says otherwise. Objects begin with (or end with, for the
 * context) the struct that the application sees.
 */
#ifndef SV_CORE_H
#define SV_CORE_H

#include "engine.h"
#include "fault.h"
#include "list.h"
#include "profile.h"

#include <simverbs/mlx5.h>

#include <stdatomic.h>

#define SV_NEVER UINT64_MAX

/* ---------------------------------------------------------------- context, events */

/* Pending asynchronous events; the descriptor counts them (a semaphore), so it can be polled. */
struct sv_event_queue {
	int fd;
	struct ibv_async_event *ring; /* element.cq == NULL && type < 0: withdrawn */
	uint32_t head, tail, mask;
};

/* What is left to whoever has a device open that is gone. */
enum sv_end {
	SV_END_DEATH,	       /* posting answers EIO as well; giving back works */
	SV_END_DISASSOCIATION, /* giving back answers EIO; posting is accepted */
	SV_END_FEIGNED,	       /* giving back answers success and does nothing; the same */
};

struct sv_context {
	struct sv_port *port;
	struct sv_device *dev;
	struct sv_list link; /* sv_port.contexts */
	bool dead;	     /* its device died or is going: commands answer EIO for ever */
	uint8_t end;	     /* enum sv_end, set before `dead` */
	bool ended;	     /* nothing moves any more, and DEVICE_FATAL has been raised */
	struct sv_event_queue events;
	struct sv_list pds, mrs, cqs, qps, srqs, ahs, channels;
	struct sv_doorbell *doorbells; /* that no queue pair has any more (direct_qp.c) */
	struct verbs_context vctx;     /* last: ends with the ibv_context */
};

struct sv_pd {
	struct ibv_pd ibv;
	struct sv_list link;
	struct sv_pd *root; /* itself, or the PD below a parent domain */
	uint32_t refs;
	/* Of a parent domain: where queues that the program drives lie; NULL: wherever. */
	void *(*alloc)(struct ibv_pd *pd, void *pd_context, size_t size, size_t alignment,
		       uint64_t resource_type);
	void (*free)(struct ibv_pd *pd, void *pd_context, void *ptr, uint64_t resource_type);
	void *pd_context;
};

struct sv_td {
	struct ibv_td ibv;
};

struct sv_mr {
	struct ibv_mr ibv;
	struct sv_list link;
	struct sv_pd *pd;
	uint8_t *base; /* local address of iova */
	uint64_t iova;
	uint64_t length;
	unsigned int access;
	bool of_device;	   /* another device's memory: a dmabuf */
	bool unborrowable; /* the kernel lets no other process read it: a driver has mapped it */
	void *map;	   /* of a dmabuf, or of pages that are pinned */
	size_t map_length;
	struct sv_gpu *gpu; /* whose memory it is, at `base`; NULL: a processor can read it */
	int fd;		    /* of a GPU's dmabuf; -1 */
	size_t locked;	    /* bytes that count for the limit on locked memory */
};

/* A completion channel's events: CQs that completed while armed, oldest first. */
struct sv_channel {
	struct ibv_comp_channel ibv;
	struct sv_list link;
	struct sv_list ready; /* sv_cq.ready_link */
	uint32_t refs;
};

/* ---------------------------------------------------------------- completion queue */

struct sv_cqe {
	struct ibv_wc wc;
	uint64_t time_ns;
	bool solicited; /* or failed: who is armed for those alone hears of it */
};

enum sv_cq_arm { SV_CQ_UNARMED, SV_CQ_ARMED_SOLICITED, SV_CQ_ARMED };

struct sv_cq {
	struct ibv_cq_ex ex; /* an ibv_cq is its beginning */
	struct sv_list link;
	struct sv_list ready_link;
	struct sv_cqe *ring;
	uint32_t mask;
	/* Free-running. The port lock protects both; an empty poll reads them without. */
	_Atomic uint32_t head; /* consumer */
	_Atomic uint32_t tail; /* producer */
	enum sv_cq_arm arm;
	uint32_t ready_events; /* on the channel's list, not fetched yet */
	uint32_t comp_reported, async_reported;
	uint32_t refs; /* QPs and SRQs */
	bool overrun;
	bool ignore_overrun;
	bool wants_time;	       /* fill in sv_cqe.time_ns */
	struct sv_direct_ring *direct; /* the program's own: mask is 0 then, so it is always full */
	struct sv_pd *pd;	       /* parent domain that it was made with; NULL */
	uint64_t wall_ns;	       /* wall-clock time when the fabric's clock was at 0 */
	/* Extended polling: held from start_poll to end_poll, protects `polled`. */
	pthread_mutex_t poll_lock;
	struct sv_cqe polled;
};

/* ---------------------------------------------------------------- queue pairs */

/* A receive WR. Rings of them are allocated once, sges beside them. */
struct sv_rwqe {
	uint64_t wr_id;
	uint32_t num_sge;
	uint32_t length;
	struct ibv_sge *sge;
};

struct sv_recv_queue {
	struct sv_rwqe *ring;
	struct ibv_sge *sges;
	uint32_t size, max_sge;
	uint32_t head, tail; /* head: next to post; free-running */
};

struct sv_srq {
	struct ibv_srq ibv;
	struct sv_list link;
	struct sv_pd *pd;
	struct sv_recv_queue rq;
	uint32_t limit; /* 0: not armed */
	uint32_t async_reported;
	uint32_t refs;
	uint32_t num;
};

/* A send WR in the queue, from post to completion. */
struct sv_swqe {
	uint64_t wr_id;
	uint64_t raddr;
	uint64_t compare, swap_add;
	struct ibv_sge *sge;
	uint8_t *inline_data;
	uint32_t rkey;
	uint32_t num_sge;
	uint32_t length;
	uint32_t psn;	/* of its first packet, once sent */
	uint32_t npkts; /* PSNs it takes */
	__be32 imm;
	uint32_t ud_qpn, ud_qkey;
	struct sv_ah_route {
		uint16_t port;
		union ibv_gid dgid;
		uint8_t sgid_index, is_global, sl, traffic_class, hop_limit;
		uint16_t dlid;
		uint16_t sport;
	} route;	/* UD */
	uint8_t opcode; /* enum ibv_wr_opcode */
	uint8_t op;	/* enum sv_op */
	uint8_t flags;	/* enum ibv_send_flags */
	uint8_t status; /* enum ibv_wc_status it fails with when its turn comes; 0: none */
	bool sent;
};

/* A READ or atomic that the responder has still to answer. */
struct sv_rd_resource {
	uint8_t op;
	bool first; /* the response's first packet is yet to be sent */
	bool again; /* it was answered before, and perhaps that answer has come */
	uint32_t psn;
	uint32_t npkts; /* left to send */
	uint32_t length;
	uint32_t rkey;
	uint64_t addr;
	uint64_t result;
	uint32_t msn;
};

/* What an atomic found, for a duplicate of its request: it must not be done twice. */
struct sv_atomic_done {
	uint8_t op;
	uint32_t psn;
	uint64_t result;
};

#define SV_MAX_RD_ATOMIC 16

struct sv_qp {
	union {
		struct ibv_qp ibv;
		struct ibv_qp_ex ex;
	};
	struct sv_port *port;
	struct sv_list link;	 /* sv_context.qps */
	struct sv_qp *hash_next; /* sv_port.qp_hash */
	struct sv_list tx_link;	 /* sv_port.tx_wait: send() said -EAGAIN; or sv_pace.wait */
	struct sv_list ack_link; /* sv_port.ack_wait: owes an ack */
	struct sv_pd *pd;
	struct sv_srq *srq;
	enum ibv_qp_state state;
	bool dead;   /* its device died */
	bool hashed; /* packets reach it */
	bool fatal;  /* lost a completion: see sv_qp_check_fatal() */
	bool wedged; /* fault: accepts posts, does nothing */
	bool wedged_hard;
	bool paced;	 /* it was a link that had no room */
	bool breaking;	 /* fault: wedged until it is in ERR, which is about to be */
	bool err_unsaid; /* fault: wedged, and in ERR if somebody asks */
	bool abandoned;	 /* destroyed, says the driver; the hardware knows nothing of it */
	bool sq_sig_all;
	bool sqd_notify;
	struct ibv_qp_cap cap;
	struct ibv_qp_attr attr; /* as set by modify; what the protocol uses */
	uint32_t async_reported;
	uint16_t own_port;	    /* index of the physical port that it was given at INIT */
	struct sv_traffic *traffic; /* of that port */
	uint16_t dst_port;	    /* resolved at RTR */
	uint16_t pkey;		    /* what its P_Key index stands for */
	uint16_t sport;		    /* what leaves has this UDP source port */
	uint8_t traffic_class, hop_limit;
	uint32_t mtu; /* bytes */
	/* ECE options: the device's; from RTR on what was set and the device has. */
	uint32_t ece, ece_wanted;

	/* Requester. Ring indices run free: tail ≤ next ≤ head. */
	struct sv_swqe *sq;
	struct ibv_sge *sq_sges;
	uint8_t *sq_inline;
	uint32_t sq_size;
	uint32_t sq_head;  /* next to post */
	uint32_t sq_tail;  /* oldest incomplete */
	uint32_t sq_next;  /* next to transmit … */
	uint32_t next_pkt; /* … from this packet of it on */
	uint32_t sqd_stop; /* in SQD: the first WR not begun */
	uint32_t next_psn; /* first PSN never sent */
	uint32_t
	    send_psn;	  /* PSN of the next packet to transmit (behind next_psn on a retransmit) */
	uint32_t una_psn; /* oldest unacknowledged */
	uint32_t unrequested; /* packets sent since the last one that asked for an ack */
	uint32_t window;      /* packets in flight since a loss; 0: as many as the port says */
	uint32_t window_acks; /* since it last grew */
	uint32_t rd_outstanding;
	uint8_t retries_left;
	uint8_t timeouts; /* since the last progress */
	uint8_t rnr_left;
	bool rnr_wait;
	bool rd_gap; /* lost response seen and asked for again; until progress */

	/* Timers: one deadline for the retry timeout or the RNR wait, one for `late`. */
	uint64_t deadline_ns;
	uint64_t place_ns;
	uint64_t heap_key_ns;
	uint32_t heap_slot; /* UINT32_MAX: not in the heap */

	/* Responder. */
	uint32_t epsn;
	uint32_t msn;
	bool nak_sent; /* no further NAK until the expected packet comes */
	bool comm_est;
	bool owes_ack;
	struct sv_direct_qp *direct; /* the program drives the send queue */
	struct sv_late *late;	     /* WRITEs that are not in memory yet (place.c) */
	uint32_t ack_point;	     /* the last ack said that everything before this was taken */
	uint8_t owed_syndrome;	     /* of the ack */
	uint8_t cur_op; /* message in progress: SV_OP_SEND, SV_OP_WRITE; SV_OP_COUNT: none */
	uint32_t rkey;
	uint64_t write_addr;
	uint32_t write_left;
	uint32_t received;
	bool recv_taken; /* cur_recv is valid */
	struct sv_rwqe cur_recv;
	struct sv_recv_queue rq;
	struct ibv_sge *cur_recv_sges; /* copy of an SRQ's */
	struct sv_rd_resource rd[SV_MAX_RD_ATOMIC];
	uint32_t rd_head, rd_tail;			 /* to be answered: tail … head */
	struct sv_atomic_done atomics[SV_MAX_RD_ATOMIC]; /* the latest ones */
	uint32_t num_atomics;

	/* Extended post API: WRs being built (between wr_start and wr_complete). */
	uint32_t build_head;
	int build_error;
};

struct sv_ah {
	struct ibv_ah ibv;
	struct sv_list link;
	struct sv_pd *pd;
	struct sv_ah_route route;
};

/* ---------------------------------------------------------------- the port */

struct sv_mr_slot {
	struct sv_mr *mr;
	uint32_t next_free;
	uint8_t generation;
};

/* Back-pressure of links that have a rate (pace.c). */
struct sv_pace {
	struct sv_list wait;	       /* QPs whose next packet finds no room on a link */
	_Atomic uint64_t resume_ns;    /* when the first of them may go on; read without the lock */
	uint64_t as_of_ns;	       /* what is sent is sent as of then; 0: now */
	uint64_t no_room_ns;	       /* since when the wire has had no room for QPs in tx_wait */
	uint64_t passed;	       /* packets with payload that links were given */
	uint64_t left_ns[SV_MAX_PHYS]; /* when the last of them will have left the port … */
	uint64_t *left_to_ns;	       /* … of an aggregator, to a destination port … */
	uint64_t *there_ns;	       /* … and got through the link of a destination port */
};

struct sv_port {
	pthread_mutex_t *lock;	  /* protects everything below, and the objects */
	pthread_mutex_t own_lock; /* what lock points to unless the wire has its own */
	const struct sv_wire_ops *ops;
	void *wire;
	struct sv_fault_table *faults;
	struct sv_port_config cfg;
	enum ibv_port_state state[SV_MAX_PHYS];
	bool told_active[SV_MAX_PHYS]; /* of what contexts were told by events */
	bool dead;
	bool leaving; /* disassociated: what is there goes on until it is dead */
	/* kill=placed|unplaced: acknowledges and completes nothing until the message ends. */
	bool dying;
	bool dying_done; /* its last packet was taken: dies once the ack is out */
	enum sv_kill_variant dying_variant;
	uint32_t dying_qpn;

	struct sv_list contexts;
	struct sv_list tx_wait, ack_wait;
	struct sv_list directs; /* sv_direct_qp.link */
	struct sv_direct_mistakes mistakes, named;
	struct sv_pace pace;

	struct sv_qp **qp_hash;
	uint32_t qp_mask;
	uint32_t num_qps, num_cqs, num_pds, num_srqs, num_ahs;

	struct sv_posted *posted; /* for GPU memory, and not there yet (posted.c) */
	uint8_t *stage;		  /* payload between a GPU's memory and the wire's */
	size_t stage_size;

	struct sv_mr_slot *mrs; /* keys: salt << 24 | slot << 8 | generation */
	uint32_t mr_cap, num_mrs;
	uint32_t mr_free_head, mr_free_tail; /* first in, first out: a stale key stays stale long */

	struct sv_qp **timers; /* binary heap by heap_key_ns; room for every QP */
	uint32_t num_timers, timer_cap;

	uint32_t next_handle;
	struct sv_port_stats stats;
	struct sv_traffic *traffic; /* own_traffic unless the wire has its own */
	struct sv_traffic own_traffic[SV_MAX_PHYS];
};

/* ---------------------------------------------------------------- helpers */

/* Called locked, after a QP, CQ or MR was made or destroyed. */
static inline void sv_port_objects_changed(struct sv_port *port)
{
	if (port->ops->objects)
		port->ops->objects(port);
}

static inline struct sv_context *sv_ctx(struct ibv_context *context)
{
	return sv_container_of(context, struct sv_context, vctx.context);
}

static inline struct sv_port *sv_ctx_port(struct ibv_context *context)
{
	return sv_ctx(context)->port;
}

/* The physical port with this number in verbs; NULL: the device has no such port. */
static inline struct sv_phys_config *sv_phys(struct sv_port *port, uint32_t port_num)
{
	return port_num >= 1 && port_num <= port->cfg.num_phys ? &port->cfg.phys[port_num - 1]
							       : NULL;
}

static inline struct sv_qp *sv_qp(struct ibv_qp *qp)
{
	return sv_container_of(qp, struct sv_qp, ibv);
}

/* Where what happens to this queue pair happens. */
static inline struct sv_fault_where sv_qp_where(const struct sv_qp *qp)
{
	const struct sv_port_config *cfg = &qp->port->cfg;

	return (struct sv_fault_where){
	    .host = cfg->host,
	    .rail = cfg->rail,
	    .phys = qp->own_port / cfg->devices,
	    .peer = qp->dst_port == SV_NOWHERE ? SV_ANY : sv_index_host(cfg, qp->dst_port)};
}

static inline void sv_qp_on_port(struct sv_qp *qp, uint32_t phys)
{
	qp->own_port = (uint16_t)sv_port_index(&qp->port->cfg, phys);
	qp->traffic = &qp->port->traffic[phys];
}

static inline struct sv_cq *sv_cq(struct ibv_cq *cq)
{
	return (struct sv_cq *)(void *)cq;
}

static inline struct ibv_cq *sv_cq_ibv(struct sv_cq *cq)
{
	return (struct ibv_cq *)(void *)&cq->ex;
}

static inline struct sv_pd *sv_pd(struct ibv_pd *pd)
{
	return sv_container_of(pd, struct sv_pd, ibv);
}

static inline struct sv_srq *sv_srq(struct ibv_srq *srq)
{
	return sv_container_of(srq, struct sv_srq, ibv);
}

/* a - b for 24-bit sequence numbers. */
static inline int32_t sv_psn_diff(uint32_t a, uint32_t b)
{
	return (int32_t)((a - b) << 8) >> 8;
}

static inline uint32_t sv_psn_add(uint32_t psn, uint32_t n)
{
	return (psn + n) & SV_PSN_MASK;
}

static inline uint32_t sv_mtu_bytes(enum ibv_mtu mtu)
{
	return 128u << mtu;
}

/* MTU packets a message takes; an empty one takes one. */
static inline uint32_t sv_packets(uint32_t length, uint32_t mtu)
{
	return length ? (length + mtu - 1) / mtu : 1;
}

static inline uint64_t sv_now(struct sv_port *port)
{
	return port->ops->now_ns(port);
}

/* The device died, or was taken away, while this was open. */
static inline bool sv_ctx_dead(const struct sv_context *ctx)
{
	return __atomic_load_n(&ctx->dead, __ATOMIC_ACQUIRE); /* written by whoever finds it dead */
}

/*
 * The errno with which a verb on this context must fail now (dead device, fault rule), or 0. A
 * command to the kernel waits here if a rule says so: its caller holds no lock.
 */
int sv_verb_gate(struct ibv_context *context, enum sv_verb verb);
/*
 * sv_verb_gate for a verb that gives something back, which works on a dead device, too. But the
 * object stays until the device is closed where the kernel took that away (EIO), and where the
 * driver only says that it is done: SV_FEIGNED, for which sv_answer() is 0.
 */
int sv_release_gate(struct ibv_context *context, enum sv_verb verb);
#define SV_FEIGNED (-1)
static inline int sv_answer(int err)
{
	return err == SV_FEIGNED ? 0 : err;
}

/* event.c, locked */
int sv_events_init(struct sv_event_queue *q);
void sv_events_free(struct sv_event_queue *q);
/* Of a physical port, or (with the first one's number) of the device. */
void sv_raise_port(struct sv_context *ctx, uint32_t phys, enum ibv_event_type type);
/* Behind the last event: reading fails with EIO from then on, and never waits. */
void sv_events_close(struct sv_context *ctx);
void sv_raise_qp(struct sv_qp *qp, enum ibv_event_type type);
void sv_raise_cq(struct sv_cq *cq, enum ibv_event_type type);
void sv_raise_srq(struct sv_srq *srq, enum ibv_event_type type);
/* Takes back what was not fetched yet for an object about to go. */
void sv_events_withdraw(struct sv_context *ctx, const void *object);

/* Waits, unlocked, until every event fetched for an object was acknowledged: what destroy verbs
 * promise. */
void sv_wait_acked(pthread_mutex_t *mutex, pthread_cond_t *cond, const uint32_t *completed,
		   uint32_t reported);

/* mr.c, locked. The region of a key if it holds [addr, addr + length); NULL: unknown key, other PD,
 * out of bounds or missing access. */
const struct sv_mr *sv_mr_find(const struct sv_port *port, const struct sv_pd *pd, uint32_t key,
			       uint64_t addr, uint64_t length, unsigned int access);
/* The local address of one in it, which is a GPU's where the region is. */
static inline uint8_t *sv_mr_at(const struct sv_mr *mr, uint64_t addr)
{
	return mr->base + (addr - mr->iova);
}
/* Whether the queue pair's device reaches the region's memory; a rule may say that it does not. */
enum sv_reach sv_mr_reach(const struct sv_qp *qp, const struct sv_mr *mr);
void sv_mr_table_free(struct sv_port *port);

/* pin.c. The region's pages stay its own, if its memory is mapped shared. */
void sv_mr_pin(struct sv_mr *mr);
/* And whatever else it has mapped. */
void sv_mr_unpin(struct sv_mr *mr);

/* memlock.c. Counts the region's pages. False: the limit does not allow for them, and they are not
 * counted. */
bool sv_mr_lock(struct sv_mr *mr);
/* Also of a region that was not counted. */
void sv_mr_unlock(struct sv_mr *mr);

void sv_free_mr(struct sv_mr *mr);
void sv_free_pd(struct sv_pd *pd);
/* ah.c, not locked */
void sv_free_ah(struct sv_ah *ah);

/* cq.c, locked */
void sv_cq_push(struct sv_cq *cq, const struct ibv_wc *wc, bool solicited, struct sv_qp *qp);
/* Forgets what a QP about to be destroyed or reset left behind. */
void sv_cq_drop_qp(struct sv_cq *cq, uint32_t qpn);
/* Takes one completion, making progress if there is none; false: empty. Not locked. */
bool sv_cq_pop(struct sv_cq *cq, struct sv_cqe *cqe);
void sv_free_cq(struct sv_cq *cq);
void sv_free_channel(struct sv_channel *channel);
/* cq_ex.c */
void sv_cq_ex_init(struct sv_cq *cq, uint64_t wc_flags);

/* recv.c, locked */
uint32_t sv_queue_size(uint32_t wanted);
int sv_rq_init(struct sv_recv_queue *rq, uint32_t size, uint32_t max_sge);
void sv_rq_free(struct sv_recv_queue *rq);
int sv_rq_post(struct sv_recv_queue *rq, const struct ibv_recv_wr *wr);
void sv_free_srq(struct sv_srq *srq);
/* Makes cur_recv valid from the QP's queue or its SRQ; false: nothing posted. */
bool sv_take_recv(struct sv_qp *qp);

/* ece.c, locked: a QP is new, or goes to RTR. */
void sv_ece_reset(struct sv_qp *qp);
void sv_ece_agree(struct sv_qp *qp);

/* qp_state.c */
bool sv_qp_transition_ok(enum ibv_qp_type type, enum ibv_qp_state from, enum ibv_qp_state to,
			 int mask);

/* qp.c, locked */
void sv_qp_reset(struct sv_qp *qp);
/* → ERR (or SQE for a failed UD send), flushing in order. No event is raised. */
void sv_qp_error(struct sv_qp *qp);
void sv_qp_send_error(struct sv_qp *qp);
void sv_flush_sends(struct sv_qp *qp);
void sv_flush_recvs(struct sv_qp *qp);
/*
 * A completion that finds its CQ full breaks the QP. The state must not change below code that is
 * in the middle of the queues, so sv_cq_push() only marks the QP; every way into the protocol ends
 * here.
 */
void sv_qp_check_fatal(struct sv_qp *qp);
void sv_qp_wedge(struct sv_qp *qp, bool hard);
/*
 * The hardware puts it into ERR and raises no event. Also called where one of its packets is under
 * way, so it only stops here; where that is safe sv_qp_check_broken() goes on. silent: nothing is
 * flushed before its owner asks for ERR.
 */
void sv_qp_break(struct sv_qp *qp, bool silent);
/* True: it is in ERR now. */
bool sv_qp_check_broken(struct sv_qp *qp);
/* Send queue, of so many WRs with so many SGEs and inline bytes; 0 or errno. */
int sv_qp_make_sends(struct sv_qp *qp, uint32_t size, uint32_t max_sge, uint32_t max_inline);
void sv_free_qp(struct sv_qp *qp);
int sv_route_from_ah_attr(struct sv_port *port, const struct ibv_ah_attr *attr,
			  struct sv_ah_route *route);

/* qp_ex.c */
void sv_qp_ex_init(struct sv_qp *qp, uint64_t ops);
/* post.c, locked */
/* Slot of a WR: free-running index into the send ring. */
static inline struct sv_swqe *sv_sq_slot(struct sv_qp *qp, uint32_t index)
{
	return &qp->sq[index & (qp->sq_size - 1)];
}
/* 0, or the errno that a post of this kind of WR gets in the QP's state. */
int sv_check_send(const struct sv_qp *qp, enum ibv_wr_opcode opcode, unsigned int flags);
/* Fills the slot's derived fields once opcode, flags and length are known. */
void sv_finish_wqe(struct sv_qp *qp, struct sv_swqe *wqe);
/* New WRs (or a new state): sends, or flushes in an error state. */
void sv_sq_doorbell(struct sv_qp *qp);

/* sge.c, locked. */
/*
 * The bytes of a region that are [done, done + length) of a packet's payload, as a fragment for the
 * wire: where they lie, or a copy of what lies in a GPU, which is good until the packet is sent. 0;
 * -EIO: they cannot be copied.
 */
int sv_piece(struct sv_port *port, const struct sv_mr *mr, uint64_t addr, struct sv_packet *pkt,
	     uint32_t done, uint32_t length, struct sv_frag *frag);
/*
 * The bytes [offset, offset + payload_len) of a list of SGEs, as fragments of a packet. How many;
 * -EINVAL: not registered so; -EIO, -ENOTCONN: the device cannot reach the memory, and says so or
 * does not.
 */
int sv_gather(const struct sv_qp *qp, const struct ibv_sge *sge, uint32_t num_sge, uint32_t offset,
	      struct sv_packet *pkt, struct sv_frag *frags);
enum sv_copy {
	SV_COPY_OK,
	SV_COPY_PROT,
	SV_COPY_LOST,	/* by the wire: it can be sent again */
	SV_COPY_FAILED, /* the memory cannot be written */
};
/* What the work request completes with whose own memory was to be written. */
static inline enum ibv_wc_status sv_copy_status(enum sv_copy copied)
{
	return copied == SV_COPY_PROT ? IBV_WC_LOC_PROT_ERR : IBV_WC_LOC_QP_OP_ERR;
}
/* Writes payload bytes [from, from + length) of a packet into a region. */
enum sv_copy sv_put(struct sv_qp *qp, const struct sv_mr *mr, uint64_t addr,
		    const struct sv_packet *pkt, uint32_t from, uint32_t length);
/* The same into the bytes from `offset` on of a list of SGEs. */
enum sv_copy sv_scatter(struct sv_qp *qp, const struct sv_pd *pd, const struct ibv_sge *sge,
			uint32_t num_sge, uint32_t offset, const struct sv_packet *pkt,
			uint32_t from, uint32_t length);
/* Into the receive that was taken, which is in the PD of the queue that it was posted on. */
static inline enum sv_copy sv_scatter_recv(struct sv_qp *qp, uint32_t offset,
					   const struct sv_packet *pkt, uint32_t from,
					   uint32_t length)
{
	return sv_scatter(qp, qp->srq ? qp->srq->pd : qp->pd, qp->cur_recv.sge,
			  qp->cur_recv.num_sge, offset, pkt, from, length);
}
/* Into one piece of host memory; false: the wire lost it. */
bool sv_copy_payload(struct sv_port *port, const struct sv_packet *pkt, uint32_t from, void *dst,
		     uint32_t length);

/* requester.c, locked */
void sv_requester_run(struct sv_qp *qp);
void sv_requester_receive(struct sv_qp *qp, const struct sv_packet *pkt);
void sv_requester_timeout(struct sv_qp *qp);
/* Writes the completion if there shall be one. Does not move the tail. */
void sv_complete_send(struct sv_qp *qp, const struct sv_swqe *wqe, enum ibv_wc_status status);
/* Raises SQ_DRAINED once when a QP in SQD has nothing under way any more. */
void sv_check_drained(struct sv_qp *qp);
/* The oldest WR fails and takes the send queue with it. */
void sv_fail_send(struct sv_qp *qp, enum ibv_wc_status status);
/* Fault rule wc=: the status this WR shall get, or IBV_WC_SUCCESS. */
enum ibv_wc_status sv_fault_status(struct sv_qp *qp, const struct sv_swqe *wqe, bool sent);

/* responder.c, locked */
void sv_responder_receive(struct sv_qp *qp, const struct sv_packet *pkt);
/* Sends what it owes: read responses, then the ack. False: the wire is full. */
bool sv_responder_run(struct sv_qp *qp);
/* WRITEs that were late are due. */
void sv_responder_place(struct sv_qp *qp);
/* Completes cur_recv. */
void sv_complete_recv(struct sv_qp *qp, struct ibv_wc *wc, bool solicited);

/* ud.c, locked */
void sv_ud_run(struct sv_qp *qp);
void sv_ud_receive(struct sv_qp *qp, const struct sv_packet *pkt);

/*
 * place.c, locked. A packet's bytes [from, from + length), for qp->write_addr, lie aside for a
 * while if a rule says so. False: they are the caller's to place.
 */
bool sv_place_late(struct sv_qp *qp, const struct sv_packet *pkt, uint32_t from, uint32_t length);
/* Places what is due by then; SV_NEVER: all. False: the memory of one is gone. */
bool sv_place(struct sv_qp *qp, uint64_t until_ns);
/* The first PSN that is not in memory: the expected one if nothing is late. */
uint32_t sv_place_oldest(const struct sv_qp *qp);
/* Forgets them: the queue pair touches no memory any more. */
void sv_place_drop(struct sv_qp *qp);

/* timer.c, locked */
void sv_qp_set_timer(struct sv_qp *qp, uint64_t deadline_ns);
void sv_qp_stop_timer(struct sv_qp *qp);
/* When sv_responder_place() is due; SV_NEVER: not. */
void sv_qp_set_place_timer(struct sv_qp *qp, uint64_t place_ns);
/* Out of the heap: the QP goes. */
void sv_timer_forget(struct sv_qp *qp);

/* port.c, locked */
struct sv_qp *sv_port_find_qp(const struct sv_port *port, uint32_t qpn);
int sv_port_add_qp(struct sv_port *port, struct sv_qp *qp);
void sv_port_remove_qp(struct sv_port *port, struct sv_qp *qp);
void sv_port_wait_for_room(struct sv_qp *qp);
int sv_port_send(struct sv_qp *qp, struct sv_packet *pkt, const struct sv_frag *frags,
		 uint32_t nfrags);
/* A QP that waited goes on. */
void sv_port_take_turn(struct sv_qp *qp);

/* pace.c, locked: 0 or errno; and whether the links have room for a packet. */
int sv_pace_init(struct sv_port *port);
bool sv_pace_admits(struct sv_qp *qp, const struct sv_packet *pkt);

/* context.c, not locked */
void sv_context_set_ops(struct sv_context *ctx);
/* With all that was made on it. */
void sv_free_context(struct sv_context *ctx);

/* Verbs that only the operation tables reach. */
struct ibv_pd *sv_alloc_parent_domain(struct ibv_context *context,
				      struct ibv_parent_domain_init_attr *attr);
int sv_get_srq_num(struct ibv_srq *srq, uint32_t *num);

#endif
