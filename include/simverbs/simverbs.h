/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simverbs in stepped mode: a whole fabric in one process on a virtual clock, for tests that place
 * faults between any two packets and replay a run exactly.
 *
 * Open a fabric, choose with sv_stepped_set_host() whose devices ibv_get_device_list() returns in
 * this thread, use libibverbs as usual. Nothing moves until sv_stepped_step() delivers the next
 * event: one packet at its destination, one retry or RNR timer, or one timed fault. Posting a WR
 * sends its packets as far as the window allows; they are then events to come. There is no thread,
 * nothing sleeps, and a run is a function of the options, the calls and the seed.
 *
 * One fabric per process at a time. Once it is open any thread may call anything, ibv_* verbs while
 * another one steps included: one lock serves the whole fabric. Then a run also depends on the
 * order in which the threads come. Link with libibverbs.so.1 of simverbs.
 */
#ifndef SIMVERBS_SIMVERBS_H
#define SIMVERBS_SIMVERBS_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SV_STEPPED_RAILS 16 /* at most */

/* Zero means the default of each. */
struct sv_stepped_opts {
	uint32_t hosts;	     /* 2 */
	uint32_t rails;	     /* 1; every rail of every host reaches every other unless isolated */
	uint32_t ports;	     /* 1; of each device, on one rail; at most 2 */
	uint64_t seed;	     /* of jitter, QP numbers and probabilistic rules */
	uint64_t latency_ns; /* 1000: from one port to another */
	uint64_t jitter_ns; /* 0: up to this much more, at random; packets of one path keep order */
	uint32_t rate_mbps; /* 400000 */
	enum ibv_mtu mtu;   /* IBV_MTU_4096 */
	uint32_t window_packets; /* 128: in flight per QP */
	bool window_adapts; /* each loss halves what a QP may have in flight, as on the RoCE wire */
	uint32_t burst_bytes;	/* 0: every packet by itself; else up to this much of a message
				   travels    together, as in live mode (65536 at most) */
	uint32_t inbox_packets; /* 0: no limit; else a port with so many on their way to it takes no
				   more, and senders wait */
	bool infiniband;	/* LIDs instead of RoCE */
	/* InfiniBand only: */
	bool grh_required; /* ports take no address without a GRH, as those of virtual functions */
	uint32_t subnets;  /* 0: one. Otherwise host h is in subnet h modulo this, and a router
			      between them knows the GIDs at index 1 */
	const char *pkeys; /* "0xffff,0x8001/0x8001,0xffff": P_Key tables, which a host's ports have
			      in turn, by rail and port. NULL: 0xffff alone */
	/*
	 * Rates and latencies by rail; 0: rate_mbps and latency_ns. A packet takes the way out of
	 * its port and the way into the other one, each with its rail's rate and one thing after
	 * the other; between two rails it has half the latency of each.
	 */
	uint32_t rail_rate_mbps[SV_STEPPED_RAILS];
	uint64_t rail_latency_ns[SV_STEPPED_RAILS];
	/* What a host sends by another rail than the first keeps that one for so many thousandths
	 * of the time that it would take there: two NICs behind one bus. */
	uint32_t rail_drag_milli;
	uint32_t aggregators; /* so many hosts more, behind the others, whose devices have one link
				 for each port of the fabric: switches that are hosts */
	const char *islands;  /* "0-3,4-7": hosts whose second rail reaches only each other, and
				 ENETUNREACH else. Its addresses are 10.1.<island>.<host + 1> */
	bool isolated_rails;  /* packets stay on their rail; a GID of another is unreachable */
	bool late_recvs_stay; /* a receive posted in ERR is flushed when ERR is set again, not
				 before: as the kernel's soft RoCE does it */
	bool qpns_again; /* a queue pair gets the lowest number that is free, also one that was just
			    given back */
	bool pin; /* a region of memory that is mapped shared keeps its pages, whatever is mapped at
		     their address later */
	bool gpu; /* GPU memory can be registered: devices copy it by the libcuda.so.1 that the
		     process has loaded */
	bool memlock; /* RLIMIT_MEMLOCK holds for memory regions, as in the kernel: ENOMEM above it,
			 unless the process has CAP_IPC_LOCK */
	/* When things happen. MLX5: retries, events of lost carriers and commands in the times of a
	 * ConnectX (docs/simverbs.md). */
	enum sv_stepped_profile { SV_STEPPED_EXACT, SV_STEPPED_MLX5 } profile;
	/* Device limits; 0: the default (sv_limits_default() in src/simverbs/device.c). */
	uint32_t max_qp, max_qp_wr, max_sge, max_inline, max_cq, max_cqe, max_mr, max_rd_atomic;
};

/* 0 or -errno (EBUSY: one is open already). NULL options: all defaults. */
int sv_stepped_open(const struct sv_stepped_opts *opts);

/*
 * Removes the fabric. -EBUSY, and nothing happens, while contexts are open. Packets that are still
 * in flight vanish.
 */
int sv_stepped_close(void);

/*
 * Closes every device that is still open, with all that was made on it, and removes the fabric. For
 * the next test after one that failed half way: pointers to verbs objects dangle afterwards.
 */
void sv_stepped_destroy(void);

/* Contexts that are open on all devices: what a leak test asks. */
uint32_t sv_stepped_open_contexts(void);

/* Whose devices ibv_get_device_list() lists in this thread; host 0 at first. */
void sv_stepped_set_host(uint32_t host);

/* ---- time ---- */

/* Delivers the next event and moves the clock to it. False: there is none. */
bool sv_stepped_step(void);

/* Steps until the next event lies after until_ns, then sets the clock to until_ns. Returns how many
 * events that were. */
uint64_t sv_stepped_run(uint64_t until_ns);

/* Steps until there is no event left, or max_events were delivered. Returns how many. */
uint64_t sv_stepped_run_idle(uint64_t max_events);

uint64_t sv_stepped_now(void); /* ns since the fabric was opened */

/* Events delivered so far: the index that the next event will have, counted from 0. */
uint64_t sv_stepped_index(void);

enum sv_event_kind { SV_EVENT_NONE, SV_EVENT_PACKET, SV_EVENT_TIMER, SV_EVENT_FAULT };

/* What sv_stepped_step() would deliver. */
struct sv_event_info {
	enum sv_event_kind kind;
	uint64_t time_ns;
	/* PACKET, and for TIMER the device (src) */
	uint32_t src_host, src_rail, dst_host, dst_rail;
	uint32_t src_port, dst_port; /* PACKET: port_num in verbs */
	/* PACKET */
	const char *op; /* "send", "write", "read", "readresp", "atomic", "atomicack", "ack", "rnr",
			   "nak", "ud" */
	uint32_t src_qpn, dst_qpn, psn, length;
	bool first, last, retry;
};
bool sv_stepped_peek(struct sv_event_info *info);

/* Another burst_bytes from here on, not above the one the fabric was opened with. */
void sv_stepped_set_burst(uint32_t burst_bytes);

/* ---- faults, at once ---- */

/*
 * One port (from 1) of a device with several, where a function takes a rail. The rail alone means
 * all ports of the device; the first one for sv_stepped_set_gid, _set_pkey and _raise.
 */
#define SV_RAIL_PORT(rail, port_num) ((uint32_t)(rail) | (uint32_t)(port_num) << 16)

/* The port's own cable: PORT_ERR or PORT_ACTIVE at its host, silence at the others. On RoCE a port
 * whose link is down has no route to anybody: RTR and address handles fail with ENETUNREACH. With
 * the profile MLX5 PORT_ERR comes up to a second later; ibv_query_port() knows at once. */
void sv_stepped_link(uint32_t host, uint32_t rail, bool up);
/* Its host sets the port down: as without the cable, and the event comes at once. */
void sv_stepped_link_off(uint32_t host, uint32_t rail);
/*
 * A leg, 0 or 1, of a device that is a bond: its port stays up and nobody is told. DOWN: what the
 * queue pairs send whose UDP source port puts them on it goes nowhere; what comes to them comes
 * over the other one. REMAP: the driver moves them to the other leg. UP: the leg works again.
 */
enum sv_leg_state { SV_LEG_DOWN, SV_LEG_REMAP, SV_LEG_UP };
void sv_stepped_leg(uint32_t host, uint32_t rail, uint32_t leg, enum sv_leg_state state);
/* On which leg a connected queue pair sends; -1: no such queue pair. */
int sv_stepped_leg_of(uint32_t host, uint32_t rail, uint32_t qpn);
/* Inside the switch: both ends stay up. */
void sv_stepped_cut(uint32_t rail, bool cut);
/* One direction between two ports. */
void sv_stepped_block(uint32_t src_host, uint32_t src_rail, uint32_t dst_host, uint32_t dst_rail,
		      bool block);
void sv_stepped_kill(uint32_t host, uint32_t rail);
/*
 * The kernel takes the device away, as when its driver is unbound or its slot reset. At once all
 * commands of those that have it open answer EIO, destroy and deregister included, and it cannot be
 * opened any more; queue pairs, posting and polling go on. leave_ns later the queue pairs end and
 * DEVICE_FATAL comes; reading events then answers EIO, and the descriptor stays readable. What is
 * posted from then on is accepted and does nothing. An open context never recovers: close it. A
 * device that is dead or leaving already is left as it is.
 */
void sv_stepped_disassociate(uint32_t host, uint32_t rail, uint64_t leave_ns);
/*
 * The driver gives the firmware up, as ConnectX's in internal error: DEVICE_FATAL at once, and from
 * then on it says of ERR, of destroying and of deregistering that it is done without doing it;
 * other commands answer EIO. The hardware goes on for leave_ns, with what the application takes for
 * destroyed: what arrives is written and acknowledged. Nobody hears of its completions.
 */
void sv_stepped_feign(uint32_t host, uint32_t rail, uint64_t leave_ns);
/* Lets a device that was killed or taken away be opened again; what was open stays as it is. */
void sv_stepped_revive(uint32_t host, uint32_t rail);
/* The QP accepts posts and does nothing any more; hard: does not even flush in ERR. False: no such
 * QP. */
bool sv_stepped_wedge(uint32_t host, uint32_t rail, uint32_t qpn, bool hard);
/* The enhanced connection establishment (ibv_query_ece) of QPs that are made from now on: vendor
 * and options, a bit each; options 0: the device knows none. At first 0x5356 and 0x7. */
void sv_stepped_set_ece(uint32_t host, uint32_t rail, uint32_t vendor_id, uint32_t options);
/* Gives a GID table entry another address; raises GID_CHANGE. QPs and AHs made before keep their
 * way: an address is looked up when a QP goes to RTR. */
void sv_stepped_set_gid(uint32_t host, uint32_t rail, uint32_t index, const union ibv_gid *gid);
/* Gives a P_Key table entry another value, of queue pairs in use too; raises PKEY_CHANGE. */
void sv_stepped_set_pkey(uint32_t host, uint32_t rail, uint32_t index, uint16_t pkey);
/* Raises a port or device event. */
void sv_stepped_raise(uint32_t host, uint32_t rail, enum ibv_event_type type);
/* Raises an event of a queue pair, such as COMM_EST. False: no such queue pair. */
bool sv_stepped_raise_qp(uint32_t host, uint32_t rail, uint32_t qpn, enum ibv_event_type type);

/* ---- faults, as rules (the language is in docs/simverbs.md) ---- */

/* Adds the rules in text, one a line. The id of the first (≥ 0), or -errno with a message in err.
 */
int sv_stepped_fault_add(const char *text, char *err, size_t err_size);
/* How often a rule fitted, and how often it fired; false: no such rule. */
bool sv_stepped_fault_stats(int id, uint64_t *matched, uint64_t *fired);
/* Removes one, or all with -1. */
int sv_stepped_fault_remove(int id);

/* ---- verbs that wait (rules with wait=) ---- */

/*
 * What a wait= rule does to the verb that it hits. No lock is held meanwhile, and afterwards the
 * verb does what it does.
 *
 * ADVANCE (at first): the clock moves on by the wait within the verb, and what is due meanwhile
 * happens, as in sv_stepped_run(). When the device dies, the verb returns at that time.
 *
 * ACCUMULATE: the verb takes effect at once and the clock stays. The caller asks
 * sv_stepped_waited_ns() how long the verbs took and lets that pass before it acts on their
 * results: who runs commands as events in virtual time delivers their completion so much later.
 */
enum sv_wait_mode { SV_WAIT_ADVANCE, SV_WAIT_ACCUMULATE };
void sv_stepped_set_wait(enum sv_wait_mode mode);

/* How long verbs of this thread have waited since it last asked, in any mode; 0 on a new fabric. */
uint64_t sv_stepped_waited_ns(void);

/*
 * Called in the thread of the verb instead of what the mode says; NULL: as the mode says again. The
 * verb takes effect when it returns. It may do anything: step, use verbs, or let another thread or
 * coroutine run until the time has come, which makes commands that wait beside each other exact.
 */
struct sv_wait_info {
	uint32_t host, rail;
	const char *verb; /* as in rules: "rtr" where a rule for rtr made it wait */
	uint64_t wait_ns;
};
typedef void sv_wait_fn(const struct sv_wait_info *info, void *arg);
void sv_stepped_on_wait(sv_wait_fn *fn, void *arg);

/* ---- counters ---- */

struct sv_stepped_stats {
	uint64_t sent, delivered;
	uint64_t lost_link, lost_leg, lost_cut, lost_fault, lost_corrupt, lost_dead;
	uint64_t duplicated, delayed, reordered;
	uint64_t timers;
};
void sv_stepped_get_stats(struct sv_stepped_stats *stats);

/* What the queue pairs had a port carry: bytes of payload, MTU packets, work requests of send
 * queues that were begun, receives completed and the immediates that came with them. */
struct sv_stepped_traffic {
	uint64_t bytes_out, packets_out, work_requests;
	uint64_t bytes_in, packets_in, receives, immediates;
};
void sv_stepped_get_traffic(uint32_t host, uint32_t rail, struct sv_stepped_traffic *traffic);

/* What a device has of everything that applications make, all processes of its host together. */
struct sv_stepped_objects {
	uint32_t contexts, pds, mrs, cqs, qps, ahs;
};
void sv_stepped_get_objects(uint32_t host, uint32_t rail, struct sv_stepped_objects *objects);

/* What the link of a port carried out of it and into it; of an aggregator, the link to this peer.
 */
struct sv_stepped_link_stats {
	uint64_t bytes_out, packets_out, bytes_in, packets_in;
};
void sv_stepped_get_link_stats(uint32_t host, uint32_t rail, uint32_t peer_host, uint32_t peer_rail,
			       struct sv_stepped_link_stats *stats);

#ifdef __cplusplus
}
#endif
#endif
