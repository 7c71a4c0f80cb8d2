/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The RoCE wire of one port: what its files share. See engine.h for what a wire is.
 *
 *	runtime.c    this process: the interfaces it has as devices, from SIMVERBS_ROCE
 *	wire.c	     the core's packets to datagrams and back; addresses, QP numbers
 *	link.c	     following the interface: state, addresses; what fault rules do to it
 *	thread.c     the engine thread
 *	udp.c	     datagrams by UDP sockets: no privileges needed
 *	afpacket.c   the same as frames by a packet socket; neighbours.c
 *	socket.c     UDP sockets, of both
 *	packet.c     a packet's bytes; icrc.c its check sum; frame.c what stands before it
 *	interface.c  network interfaces
 *	peers.c	     pairs of addresses
 *
 * A descriptor is a packet. What is sent is collected and goes out by one system call when the core
 * has come to the end of what it does (posted(), and each round of progress).
 */
#ifndef SV_ROCE_WIRE_H
#define SV_ROCE_WIRE_H

#include "simverbs/fault.h"
#include "simverbs/hold.h"
#include "simverbs/roce/interface.h"
#include "simverbs/roce/packet.h"
#include "simverbs/roce/peers.h"

#include <poll.h>
#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <sys/types.h>

/* In flight per queue pair. */
#define SV_ROCE_WINDOW_BYTES (128u * 1024)
#define SV_ROCE_BATCH	     64u
/* How soon the engine looks again while an application polls. */
#define SV_ROCE_NAP_NS	  200000u
#define SV_ROCE_HOP_LIMIT 64u /* unless the application says another */
#define SV_ROCE_MAX_FDS	  (SV_MAX_GIDS + 2)

/* A datagram that waits to be sent. */
struct sv_roce_out {
	const struct sv_roce_peer *peer;
	uint16_t sport;
	uint8_t traffic_class, hop_limit;
	uint32_t length; /* ICRC included */
	uint8_t bytes[SV_ROCE_MAX_BYTES];
};

/* One that came. */
struct sv_roce_in {
	struct sv_roce_flow flow;
	bool id_known; /* flow.id is what the packet had */
	const uint8_t *bytes;
	size_t length; /* ICRC included */
};

struct sv_roce_wire;

/* A way to send and receive datagrams. All with the port's lock held. */
struct sv_roce_io {
	bool own_sports; /* a packet's UDP source port is its queue pair's, and not SV_ROCE_PORT */
	/* 0, or -errno after a message that says what to do. */
	int (*open)(struct sv_roce_wire *w);
	void (*close)(struct sv_roce_wire *w);
	/* The address at this index of w->link.gids is new, or gone. False: it cannot be used. */
	bool (*address_changed)(struct sv_roce_wire *w, uint32_t index);
	/* Sends w->out[first_out] to w->out[num_out - 1] and counts first_out up. False: no room
	 * for all of them now. */
	bool (*flush)(struct sv_roce_wire *w);
	/* Calls sv_roce_receive() for what is there, within limits. `everywhere`: also where
	 * nothing has come of late. */
	void (*receive)(struct sv_roce_wire *w, bool everywhere);
	/* Unlocked: may receive() find something? NULL: only it knows. */
	bool (*pending)(const struct sv_roce_wire *w);
	/* What to wait for: at most SV_MAX_GIDS, whose number is returned. */
	nfds_t (*fds)(struct sv_roce_wire *w, struct pollfd *fds, short events);
};
extern const struct sv_roce_io sv_roce_udp, sv_roce_packets;

#define SV_ROCE_COUNTERS(X)                                                                        \
	X(tx_datagrams)                                                                            \
	X(tx_batches)                                                                              \
	X(tx_refused) /* by the kernel: no route, too long */                                      \
	X(tx_no_room)                                                                              \
	X(rx_datagrams)                                                                            \
	X(rx_malformed)                                                                            \
	X(rx_unknown_opcode)                                                                       \
	X(rx_bad_icrc)                                                                             \
	X(rx_cnp)                                                                                  \
	X(lost_link)                                                                               \
	X(lost_fault)

enum sv_roce_counter {
#define SV_ROCE_COUNTER(name) SV_ROCE_##name,
	SV_ROCE_COUNTERS(SV_ROCE_COUNTER)
#undef SV_ROCE_COUNTER
	    SV_ROCE_COUNTER_COUNT
};

/* What fault rules have done to the device (link.c). */
#define SV_ROCE_MAX_UNDO 16u
struct sv_roce_rules {
	bool down, cut;
	uint32_t life;	    /* 1 << enum sv_fault_kind: still to be done */
	uint64_t leave_ns;  /* of that: how long queue pairs go on */
	uint64_t leaves_ns; /* when a device that was taken away ends */
	struct {
		uint32_t kinds;
		uint64_t due_ns;
	} undo[SV_ROCE_MAX_UNDO];
	uint32_t num_undo;
};

struct sv_roce_wire {
	/* Constant. */
	struct sv_port *port;
	const struct sv_roce_io *io;
	struct sv_fault_table *faults;
	struct sv_roce_interface itf;
	bool yields; /* few processors: give way while polling */

	/* Under the port lock. */
	void *io_state;
	struct sv_roce_interface_state link;
	struct sv_roce_peers peers;
	struct sv_hold hold;
	struct sv_roce_rules rules;
	struct sv_roce_out *out;
	uint32_t first_out, num_out;
	uint64_t counters[SV_ROCE_COUNTER_COUNT];

	/* Written under the port lock, read without. */
	atomic_bool blocked; /* the kernel takes no more now */
	atomic_bool unsent;  /* something was collected, or waits until it can be */

	/* Written by polling applications: tells the engine that it is not needed. */
	atomic_uint polls;

	/* The engine. */
	pthread_t thread;
	int wake_fd;
	bool news; /* the kernel has something to tell of the interface */
	atomic_bool stop;
	atomic_ullong sleeps_until_ns; /* under the port lock; what arm_timer compares with */
};

extern const struct sv_wire_ops sv_roce_wire_ops;
extern const struct sv_hold_ops sv_roce_hold_ops;

static inline void sv_roce_count(struct sv_roce_wire *w, enum sv_roce_counter counter)
{
	w->counters[counter]++;
}

/* Writes the ICRC of a datagram, for its addresses and source port. */
void sv_roce_seal(struct sv_roce_out *out);

/* After a system call that was to send the packets from the first on: how many it took, or -1 and
 * errno. False: there is no room now. What it refuses is lost, as on a cable. */
bool sv_roce_sent(struct sv_roce_wire *w, int sent);

/* --- wire.c, locked --- */

/* A datagram came. What is wrong with it is counted, and it goes no further. */
void sv_roce_receive(struct sv_roce_wire *w, const struct sv_roce_in *in);
/* Everything there is to do now: arrivals, held packets, kicks, what is to be sent. */
void sv_roce_progress(struct sv_roce_wire *w);
/* The same until nothing more is there: what has come counts before a retry does. */
void sv_roce_catch_up(struct sv_roce_wire *w);
/* Sends what was collected. */
void sv_roce_flush(struct sv_roce_wire *w);
uint64_t sv_roce_now_ns(void);

/* --- link.c, locked --- */

/* Brings the port in line with the interface. */
void sv_roce_link_sync(struct sv_roce_wire *w);
/* Rules at a time, and what they undo. Returns when to be back. */
uint64_t sv_roce_link_run(struct sv_roce_wire *w, uint64_t now_ns);
/* What a rule does to this device. */
void sv_roce_link_act(struct sv_port *port, const struct sv_fault_verdict *verdict);
bool sv_roce_link_open(const struct sv_roce_wire *w);

/* --- thread.c --- */

int sv_roce_thread_start(struct sv_roce_wire *w);
void sv_roce_thread_stop(struct sv_roce_wire *w);
/* Makes sure that the engine works at this time. Locked. */
void sv_roce_thread_arm(struct sv_port *port, uint64_t deadline_ns);
void sv_roce_thread_wake(struct sv_roce_wire *w);

#endif
