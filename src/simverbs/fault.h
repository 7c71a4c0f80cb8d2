/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fault rules: one line of text each, {where, what, when, how often}. Parser, matcher and counters
 * for both wires. A table is plain data without pointers, so it can lie in shared memory and be
 * matched by several processes at once: what changes is atomic.
 *
 *	ACTION [key=value …]		separated by spaces or commas, any order
 *
 * Packet actions, taken by the wire where a packet leaves (dir=tx) or arrives (dir=rx):
 *	drop			lost
 *	corrupt			lost to a bad checksum (counted apart)
 *	dropack			drop op=ack
 *	dup[=COPIES]		arrives more than once
 *	delay=TIME		arrives later (what follows overtakes it)
 *	  jitter=TIME		and by a random time more: dist=uniform (the default) up to that
 *	  dist=uniform|exp	much, dist=exp that much in the mean, seldom several times it.
 *				What goes the same way stays in order, as in a queue
 *	hold until=TIME		waits until then, in order: a link that is paused
 *	reorder[=PACKETS]	held back until that many later packets of the link overtook it (tx)
 *	slow=FACTOR		takes FACTOR times as long on the link (tx)
 * Actions inside a device, taken by the core:
 *	errno=NAME verb=NAME	the verb fails with this errno
 *	wait=TIME verb=NAME	the verb, a command to the kernel, takes so long
 *	wc=STATUS		the matching WR completes with this status and its QP errors: after
 *				its data reached the peer, or with sent=0 instead of sending it
 *	unreachable[=silent]	the device fails where it uses memory of another device's, or waits
 *	wedge[=hard]		the QP of the matching packet accepts posts and never does anything
 *				again; hard: does not even flush in ERR
 *	err[=silent]		the QP of the matching packet is in ERR from this packet on, and no
 *				event tells; silent: nothing is flushed before its owner says ERR
 *	event=NAME		an asynchronous event of the port or device
 *	unordered[=TIME]	the matching packets of plain WRITEs that arrive get into memory any
 *				time within TIME (10us by default), each for itself: in any order,
 *				before they are acknowledged, and before what comes after them on
 *				their queue pair and is no plain WRITE
 *	gpu=reorder within=TIME	what the matching packets bring for GPU memory is in it any time
 *				within TIME (10us by default), each for itself, whatever was
 *				completed and acknowledged meanwhile; but before the device reads
 *				memory of GPUs
 * Fabric actions, taken by the wire when a packet matches, or at a time (at= and no packet key):
 *	link=down|off|up cut heal kill[=now|placed|unplaced]
 *	revive[=renamed]	a device that died can be opened again, also under another name
 *				down: the carrier is lost; off: set down at its host. The packet
 *				that sets off link=down|off, cut or kill is lost; with
 *				kill=placed|unplaced it is still acknowledged
 *	disassociate[=TIME]	the kernel takes the device away: commands answer EIO at once, queue
 *				pairs end and the event comes TIME later (1ms)
 *	feign[=TIME]		the driver says of ERR and of destroying that it is done; the
 *				hardware goes on for TIME (1ms)
 *	bond=down|remap|up leg=0|1
 *				a leg of a bond: carries nothing and nobody is told; the other one
 *				carries its queue pairs, too; works again
 *	for=TIME		undoes it after this time
 *	period=TIME		does it again (with at= and count=)
 *
 * Where:  host=H rail=R port=P (the port, a device's first one is 1), peer=H (the other end),
 *	   dir=tx|rx (tx; rx for kill)
 * What:   op=NAME[|NAME…] (send write read readresp atomic atomicack ack nak rnr ud recv any),
 *	   part=first|last|middle, qpn=N (at the port), leg=0|1, minlen=BYTES, maxlen=BYTES.
 *	   qpn=first: the queue pair that the first packet of this kind is of, and no other
 * When:   nth=N (from the N-th match on), every=N (each N-th), prob=P seed=N, at=TIME until=TIME
 *	   (only then), count=N (so often at most; 1 by default with nth= and for actions that last)
 * TIME is a number with ns, us, ms or s, of the fabric's clock.
 *
 * matched counts what fits where, what, at= and until=; fired what nth, every, prob and count let
 *pass.
 */
#ifndef SV_FAULT_H
#define SV_FAULT_H

#include "engine.h"

#include <stdatomic.h>

enum sv_fault_kind {
	SV_FAULT_NONE,
	/* packet */
	SV_FAULT_DROP,
	SV_FAULT_CORRUPT, /* lost as by a bad ICRC, counted apart */
	SV_FAULT_DUP,
	SV_FAULT_DELAY,
	SV_FAULT_REORDER, /* held back until `amount` later packets of the link overtook it */
	SV_FAULT_SLOW,
	SV_FAULT_HOLD, /* until `until_ns` */
	/* core */
	SV_FAULT_ERRNO,
	SV_FAULT_WAIT,
	SV_FAULT_WC,
	SV_FAULT_UNORDERED,
	SV_FAULT_GPU,
	SV_FAULT_UNREACHABLE,
	SV_FAULT_WEDGE,
	SV_FAULT_ERR,
	SV_FAULT_EVENT,
	/* fabric */
	SV_FAULT_LINK_DOWN, /* no carrier */
	SV_FAULT_LINK_OFF,  /* set down by whoever administers the host */
	SV_FAULT_LINK_UP,
	SV_FAULT_LEG_DOWN,
	SV_FAULT_LEG_REMAP,
	SV_FAULT_LEG_UP,
	SV_FAULT_CUT,
	SV_FAULT_HEAL,
	SV_FAULT_KILL,
	SV_FAULT_REVIVE,
	SV_FAULT_DISASSOCIATE,
	SV_FAULT_FEIGN,
	SV_FAULT_KIND_COUNT
};

/* How a random time is distributed. */
enum sv_fault_dist { SV_DIST_UNIFORM, SV_DIST_EXP };

/* Commands to the kernel, which may take their time there (wait=), then the data path. */
enum sv_verb {
	SV_VERB_NONE,
	SV_VERB_OPEN_DEVICE,
	SV_VERB_CLOSE_DEVICE,
	SV_VERB_QUERY_DEVICE,
	SV_VERB_QUERY_PORT,
	SV_VERB_QUERY_GID,
	SV_VERB_ALLOC_PD,
	SV_VERB_DEALLOC_PD,
	SV_VERB_REG_MR,
	SV_VERB_REG_DMABUF_MR,
	SV_VERB_REREG_MR,
	SV_VERB_DEREG_MR,
	SV_VERB_CREATE_COMP_CHANNEL,
	SV_VERB_CREATE_CQ,
	SV_VERB_RESIZE_CQ,
	SV_VERB_DESTROY_CQ,
	SV_VERB_CREATE_SRQ,
	SV_VERB_MODIFY_SRQ,
	SV_VERB_QUERY_SRQ,
	SV_VERB_DESTROY_SRQ,
	SV_VERB_CREATE_AH,
	SV_VERB_DESTROY_AH,
	SV_VERB_CREATE_QP,
	SV_VERB_MODIFY_QP, /* to whatever state, or to none */
	/* modify_qp to one state */
	SV_VERB_RESET,
	SV_VERB_INIT,
	SV_VERB_RTR, /* where an address is resolved */
	SV_VERB_RTS,
	SV_VERB_SQD,
	SV_VERB_ERR,
	SV_VERB_QUERY_QP,
	SV_VERB_DESTROY_QP,
	SV_VERB_POST_SEND, /* the first of the data path */
	SV_VERB_POST_RECV,
	SV_VERB_POST_SRQ_RECV,
	SV_VERB_POLL_CQ,
	SV_VERB_REQ_NOTIFY_CQ,
	/* nor does this leave the process */
	SV_VERB_QUERY_ECE,
	SV_VERB_SET_ECE,
	SV_VERB_COUNT
};

/* How long the kernel takes to destroy a device's queue pairs unless a rule says so. */
#define SV_LEAVE_NS 1000000u

static inline bool sv_fault_is_of_bond(uint32_t kind)
{
	return kind >= SV_FAULT_LEG_DOWN && kind <= SV_FAULT_LEG_UP;
}

#define SV_FAULT_MAX_RULES 64
#define SV_FAULT_TEXT	   192
#define SV_ANY		   UINT32_MAX

/* Bits of what a rule looks at: a table's union tells in one load that nothing can match. */
enum sv_fault_point {
	SV_POINT_TX = 1 << 0,
	SV_POINT_RX = 1 << 1,
	SV_POINT_VERB = 1 << 2,
	SV_POINT_WR = 1 << 3, /* a send WR about to complete (wc=) */
	SV_POINT_TIME = 1 << 4,
	SV_POINT_PLACE = 1 << 5,  /* a packet of a plain WRITE that is to be placed */
	SV_POINT_MEMORY = 1 << 6, /* a device is about to use memory of another device's */
	SV_POINT_GPU = 1 << 7,	  /* a packet's payload goes to a GPU */
};

enum sv_ack_kind { SV_ACK_POSITIVE = 1, SV_ACK_RNR = 2, SV_ACK_NAK = 4 };
#define SV_PART_MIDDLE (1u << 15)
/* In sv_fault_rule.ops: completions of receives. */
#define SV_OP_RECV SV_OP_COUNT

struct sv_fault_rule {
	_Atomic uint32_t active; /* set last, so that a matcher sees a whole rule */
	uint32_t kind;		 /* enum sv_fault_kind */
	uint32_t point;		 /* enum sv_fault_point */
	/* where and what */
	uint32_t host, rail, peer, qpn; /* SV_ANY: any */
	uint32_t phys;			/* the physical port, from 0; SV_ANY: any */
	uint32_t ops;			/* bit per enum sv_op */
	uint32_t parts;			/* SV_PKT_FIRST, SV_PKT_LAST, SV_PART_MIDDLE; 0: any */
	uint32_t ack_kinds;		/* enum sv_ack_kind; which ACKs op bit SV_OP_ACK means */
	uint32_t min_len, max_len;
	uint32_t leg;	 /* of the packet, or what a bond= is about; SV_ANY: any */
	uint32_t one_qp; /* qpn=first: `its_qpn` is set by the first match */
	uint32_t verb;
	uint32_t unsent; /* wc=: instead of sending */
	/* when */
	uint64_t nth, count, every;
	uint64_t at_ns, until_ns, for_ns, period_ns;
	uint64_t prob_q32; /* probability × 2^32; 0: always */
	uint64_t seed;
	/* argument of the action */
	uint64_t jitter_ns; /* on top of a delay, as `dist` says */
	uint32_t dist;	    /* enum sv_fault_dist */
	uint64_t amount;    /* ns of delay, of placing or until a device has left, copies, packets,
			       slow    factor × 1000 */
	int32_t value;	    /* errno, wc status, event type, kill variant, wedge=hard,
			     * err=silent */
	/* how it went: written by whoever matches */
	_Atomic uint64_t rng;
	_Atomic uint32_t its_qpn; /* with one_qp; SV_ANY: nothing has matched yet */
	_Atomic uint64_t matched;
	_Atomic uint64_t fired;
	char text[SV_FAULT_TEXT];
};

struct sv_fault_table {
	_Atomic uint32_t points; /* union of the active rules' points */
	_Atomic uint32_t nrules; /* slots used so far, cleared ones included */
	uint64_t seed;		 /* for rules without seed= */
	uint64_t origin_ns;	 /* what at= and until= of rules to be added count from */
	struct sv_fault_rule rules[SV_FAULT_MAX_RULES];
};

void sv_fault_table_init(struct sv_fault_table *table, uint64_t seed);

/*
 * Parses and adds: one rule a line, '#' begins a comment, empty lines are skipped. "@path" reads a
 * file. All lines or none. Returns the id of the first rule added (≥ 0), or -errno and a message.
 * One writer at a time (the wire's lock).
 */
int sv_fault_add_text(struct sv_fault_table *table, const char *text, char *err, size_t err_size);
/* id -1: all. */
int sv_fault_remove(struct sv_fault_table *table, int id);

/* What to do with a packet. All rules that fire are merged; drop wins over the rest. */
struct sv_fault_verdict {
	uint32_t kinds; /* 1 << enum sv_fault_kind for each rule that fired */
	uint32_t copies;
	uint32_t overtake;
	uint32_t slow_milli; /* 0: normal speed */
	uint64_t delay_ns;
	uint64_t hold_until_ns; /* when HOLD is in kinds */
	bool in_order;		/* a late packet makes those behind it late */
	int32_t kill;		/* enum sv_kill_variant, when KILL is in kinds */
	int32_t event;
	bool wedge_hard;
	bool err_silent;
	bool renamed;	   /* of REVIVE: it has another name then */
	uint64_t for_ns;   /* of the fabric action */
	uint64_t leave_ns; /* of DISASSOCIATE and FEIGN: how long its queue pairs go on */
	/* where a fabric action applies; phys SV_ANY: all ports of the device */
	uint32_t host, rail, phys;
	uint32_t leg; /* of LEG_DOWN and the like */
};

/* Where something happens: a physical port, and the host at the other end (SV_ANY: none). */
struct sv_fault_where {
	uint32_t host, rail, phys, peer;
};

/* True when a rule of these points exists: the only cost where there is none. */
static inline bool sv_fault_armed(const struct sv_fault_table *table, uint32_t points)
{
	return table && (atomic_load_explicit(&table->points, memory_order_acquire) & points);
}

/*
 * Matches a packet at its source port (SV_DIR_TX) or at its destination port (SV_DIR_RX), which is
 * the place; wires go through sv_port_match_faults(). True when some rule fired. Any thread.
 */
bool sv_fault_packet(struct sv_fault_table *table, enum sv_fault_dir dir,
		     const struct sv_fault_where *where, const struct sv_packet *pkt,
		     uint64_t now_ns, struct sv_fault_verdict *verdict);

/* A device's legs after an action of a bond on one of them: see engine.h. */
uint32_t sv_fault_legs(uint32_t legs, uint32_t kind, uint32_t leg);

/* The fabric actions that undo these, when `for=` is over: bits 1 << enum sv_fault_kind. */
uint32_t sv_fault_inverse(uint32_t kinds);

/* Time-triggered rules (at= without a packet to match) that are due, one per call; false: none. */
bool sv_fault_due(struct sv_fault_table *table, uint64_t now_ns, struct sv_fault_verdict *verdict);
/* When the next one is due; UINT64_MAX: none. */
uint64_t sv_fault_next_due(const struct sv_fault_table *table);

/* How long this verb shall wait; 0: it does not. The rule counts as fired: the caller must wait. */
uint64_t sv_fault_verb_wait_ns(struct sv_fault_table *table, enum sv_verb verb, uint32_t host,
			       uint32_t rail, uint64_t now_ns);

/* The errno this verb shall fail with, or 0. */
int sv_fault_verb(struct sv_fault_table *table, enum sv_verb verb, uint32_t host, uint32_t rail,
		  uint64_t now_ns);

/* The completion status (enum ibv_wc_status) that a send WR shall get, or 0. `sent`: about to
 * complete, its data is at the peer; otherwise it is about to be sent. op SV_OP_COUNT: a receive.
 */
uint32_t sv_fault_wr(struct sv_fault_table *table, const struct sv_fault_where *where, uint32_t qpn,
		     uint32_t op, uint32_t length, bool sent, uint64_t now_ns);

/* Whether what a packet brought is to be in memory late, and by how much: SV_POINT_PLACE or
 * SV_POINT_GPU. */
bool sv_fault_late(struct sv_fault_table *table, enum sv_fault_point point,
		   const struct sv_fault_where *where, const struct sv_packet *pkt, uint64_t now_ns,
		   uint64_t *late_ns);

/* Whether the device there cannot reach another device's memory, and if so how that shows. */
enum sv_reach { SV_REACHED, SV_REACH_ERROR, SV_REACH_SILENT };
enum sv_reach sv_fault_memory(struct sv_fault_table *table, const struct sv_fault_where *where,
			      uint64_t now_ns);

#endif
