/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A slot: a path index that both ends agree on, through all its generations. Its state machine is
 * one table, for what an end has of a path and what the path is good for together; this file and no
 * other writes the state. All of it is [T], and of the connection's visit unless it says otherwise.
 *
 * This is neither the state of a port nor that of a device: those are in device/, come from the
 * driver's events and are the same for all connections, while a path fails and recovers by itself.
 * A peer that restarts makes paths fail and leaves our healthy NIC healthy.
 */
#ifndef HA_FAILOVER_PATH_SLOT_H
#define HA_FAILOVER_PATH_SLOT_H

#include "event/reason.h"
#include "failover/check.h"

#include <stdbool.h>
#include <stdint.h>

struct ha_comm;
struct ha_path;

/* X(NAME, "name"). The receiver goes through all of them; the sender has no REBUILDING. */
#define HA_SLOT_STATES(X)                                                                          \
	X(EMPTY, "empty")	    /* no path, or one on its way out */                           \
	X(OPENING, "opening")	    /* our end is being made */                                    \
	X(REBUILDING, "rebuilding") /* our end is there; the receiver says REBUILD */              \
	X(CONNECTING, "connecting") /* our end is being connected to the peer's */                 \
	X(PROBING, "probing")	    /* connected, and not known to work: no probe came back to */  \
	/* the receiver, or no message of the receiver came over it to the sender */               \
	X(GOOD, "good")		  /* proved since its last failure, nothing speaks against it */   \
	X(SUSPECTED, "suspected") /* a heartbeat is missing or far too slow: in use, be ready */

#define HA_SLOT_EVENTS(X)                                                                          \
	X(OPENS, "opening begun")	/* a new generation of our end */                          \
	X(OPENED, "our end opened")	/* the peer has to make its own */                         \
	X(CONNECTS, "connecting begun") /* the peer's end is known */                              \
	X(CONNECTED, "connected")                                                                  \
	X(PROVED, "proved") /* a probe came back, or a message of the receiver came */             \
	X(MISSED, "heartbeat missed")                                                              \
	X(ANSWERED, "heartbeats back")                                                             \
	X(EXPIRED, "heartbeats expired")                                                           \
	X(FENCED, "fenced") /* for whatever reason: failure, peer, rebuild */

enum ha_slot_state {
#define HA_SLOT_ENUM(name, text) HA_SLOT_##name,
	HA_SLOT_STATES(HA_SLOT_ENUM)
#undef HA_SLOT_ENUM
	    HA_SLOT_COUNT
};

enum ha_slot_event {
#define HA_SLOT_ENUM(name, text) HA_SLOT_ON_##name,
	HA_SLOT_EVENTS(HA_SLOT_ENUM)
#undef HA_SLOT_ENUM
	    HA_SLOT_EVENT_COUNT
};

/* What follows from a step. */
enum ha_slot_action {
	HA_SLOT_NOTHING,
	HA_SLOT_PREREGISTER, /* register the memory in use on the standby's device */
	HA_SLOT_RELAX,	     /* say that it was nothing */
	HA_SLOT_LEAVE,	     /* its heartbeats are lost: a failure */
	HA_SLOT_RETRY,	     /* no need to wait before it is rebuilt */
	HA_SLOT_IMPOSSIBLE,  /* a bug: latch */
};

struct ha_slot_step {
	uint8_t next;	/* enum ha_slot_state */
	uint8_t action; /* enum ha_slot_action */
};

/* What happened and waits for the visit. Written by any thread that has the token. */
struct ha_slot_notes {
	uint32_t failed_gen; /* this generation has failed; 0: none */
	uint8_t reason;	     /* enum ha_reason: why */
	bool msg;	     /* a message lies in its mailbox */
	bool alive;	     /* the probe that was to prove it came back */
	bool proved;	     /* a probe came back, or a message of the receiver came */
	uint64_t proved_ns;  /* when */
};

struct ha_slot {
	uint8_t state;		 /* enum ha_slot_state: path_slot.c alone writes it */
	uint8_t port, peer_port; /* which of our and of the peer's offers it connects */
	struct ha_slot_notes notes;
	uint32_t newest_gen;	  /* the highest generation we know of */
	uint32_t want_gen;	  /* everything up to it must be fenced */
	uint32_t fenced_gen;	  /* everything up to it is, confirmed */
	uint32_t peer_fenced_gen; /* what the peer says of its own; the receiver's is an order */
	/*
	 * Of a NIC that does not answer. Sender: everything up to it has stopped here for good,
	 * unconfirmed; and what the receiver says that it has fenced. Receiver: what the sender
	 * says of that, and everything up to settled_gen is fenced in hardware by one end at least,
	 * for longer than a packet lives.
	 */
	uint32_t yielded_gen;
	uint32_t peer_yielded_gen;
	uint32_t settled_gen;
	uint64_t lone_fence_ns;	 /* receiver: since when one end's fence is known; 0: not */
	uint32_t lone_gen;	 /* of this watermark */
	struct ha_path *yielded; /* sender: not the connection's any more, and not fenced */
	struct ha_path *opening; /* of OPENING: not the connection's yet */
	uint64_t deadline_ns;	 /* of REBUILDING and PROBING */
	uint64_t proved_ns;	 /* when its probe came back last */
	uint64_t up_ns;		 /* since when it is GOOD */
	/* Receiver, of a path in reserve: a message over it is under way since then, and its queue
	 * had come so far. 0: none is. */
	uint64_t msg_ns;
	uint32_t msg_done;
	/* So much of the connection's memory is registered on the NIC of this generation. */
	uint32_t memory_serial, memory_gen;
#ifdef HA_INVARIANTS
	struct ha_slot_seen seen;
#endif
};

/* The table: pure. */
struct ha_slot_step ha_slot_next(enum ha_slot_state state, enum ha_slot_event event);

const char *ha_slot_state_name(unsigned state);
const char *ha_slot_event_name(unsigned event);

/* Proved since its last failure. */
static inline bool ha_slot_is_up(const struct ha_slot *slot)
{
	return slot->state >= HA_SLOT_GOOD;
}

/* Being built, or not proved yet. */
static inline bool ha_slot_is_on_its_way(const struct ha_slot *slot)
{
	return slot->state != HA_SLOT_EMPTY && !ha_slot_is_up(slot);
}

/* The slot of the path that the handshake connected. */
void ha_slot_begin(struct ha_slot *slot, uint32_t generation);

/* Something happened to the path of slot `p`: the step, and what follows from it. */
void ha_slot_on(struct ha_comm *comm, unsigned p, enum ha_slot_event event);

/* Everything up to `generation` on path `p` goes out of use; confirmed by ha_slots_drain. */
void ha_slot_fence(struct ha_comm *comm, unsigned p, uint32_t generation);

/* Asks after the fences that are under way. True: one was confirmed. */
bool ha_slots_drain(struct ha_comm *comm, uint64_t now_ns);

/* Sender: whether each of them is confirmed, or yielded. */
bool ha_slots_stopped(const struct ha_comm *comm);

/*
 * Receiver: whether nothing can arrive any more on what was given up, at either end: each path is
 * fenced at both ends, or in hardware at one of them and settled.
 */
bool ha_slots_agreed(const struct ha_comm *comm);

/* Receiver: whether what has arrived over this path is known for good. */
bool ha_slot_is_final(const struct ha_slot *slot);

/* Whether the fence of this one is waited for: a sender has not stopped, or what comes over it at a
 * receiver is not known for good. */
bool ha_slot_waits(const struct ha_comm *comm, unsigned p);
/* The same of any. */
bool ha_slots_wait(const struct ha_comm *comm);

/*
 * Goes on without the confirmation of a NIC that does not answer: a sender yields, a receiver
 * settles. True: something has changed.
 */
bool ha_slots_go_without(struct ha_comm *comm, uint64_t now_ns);

/* Sender: the receiver goes on, so it takes nothing any more of what it had ordered to be fenced,
 * whatever the NIC still sends. */
void ha_slots_peer_goes_on(struct ha_comm *comm);
/* The same of what the receiver says that its hardware has fenced. */
void ha_slots_peer_fenced(struct ha_comm *comm);

/* Whether a fence has to be asked after: what has drained, or is to be destroyed, nobody says. The
 * connection may have gone on without it. */
bool ha_slots_fencing(const struct ha_comm *comm);

/* One whose fence its NIC refuses to confirm; NULL: none. */
const struct ha_path *ha_slots_unconfirmed(const struct ha_comm *comm);

/* Has paths closed that are out of use, in the background. */
void ha_slots_tidy(struct ha_comm *comm);
/* From when on that would find something to do; 0: when a command is back, if ever. */
uint64_t ha_slots_tidy_ns(const struct ha_comm *comm);

/* The generation of the active path; 0: it is gone. */
uint32_t ha_active_generation(const struct ha_comm *comm);

/* Whether traffic runs on this path index. */
bool ha_is_active(const struct ha_comm *comm, unsigned p);

/* Whether traffic of this epoch runs, or may have run, on this path index: the active path, and
 * what carries beside it. Such a path is not given back or replaced before it is lost (rails.h),
 * or the epoch ends. */
bool ha_carries(const struct ha_comm *comm, unsigned p);

#endif
