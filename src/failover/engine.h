/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What keeps a connection alive when a path fails: fence, reconcile, replay.
 *
 * The receiver is the source of truth: it allocates epochs and generations and chooses paths; the
 * sender does what it is told. docs/protocol.md explains the protocol, tests/model checks it; names
 * are the same in all three.
 *
 *   engine.c      a connection's life, its socket, and what it says of itself
 *   notes.c       what happens is noted, and taken in the next visit
 *   visit.c       the visits
 *   hear.c        what the peer says
 *   port_exchange.c  what both ends say of their ports
 *   fsm.c         the state machine: two tables, one per end
 *   path_slot.c   the state machine of a path: one table
 *   signaling.c   what an end says, over which channels, and again until it is answered
 *   standby.c     standby paths: which, building them, proving that they work
 *   rails.c       paths that carry beside the active one, and the loss of one of them
 *   repair.c      fresh queue pairs on the same ports, for those that broke
 *   reconnect.c   another bootstrap socket for one that broke
 *   farewell.c    what a receiver that has closed says to a sender that dials again
 *   peer_life.c   whether a peer without a socket still lives
 *   witness.c     asking a peer over other ports when it answers over none of those in use
 *
 * Everything here is [T] (see comm.h) unless it says otherwise. What happens is noted, by whatever
 * thread has the token, and the path in question stopped; the state machine steps in the
 * connection's visits alone, on the progress thread, and never inside another step.
 */
#ifndef HA_FAILOVER_ENGINE_H
#define HA_FAILOVER_ENGINE_H

#include "event/event.h"
#include "event/reason.h"
#include "failover/check.h"
#include "failover/message.h"
#include "failover/path_slot.h"
#include "failover/port_offer.h"
#include "failover/rails.h"
#include "failover/repair.h"
#include "failover/witness.h"
#include "liveness/liveness.h"
#include "progress/progress.h"
#include "transport/replay.h"
#include "transport/window.h"

#include <stdbool.h>
#include <stdint.h>

struct ha_comm;
struct ha_failover_ops;
struct ha_path;
struct ha_port;
struct ha_frame_sock;

enum ha_failover_state {
	HA_FO_ACTIVE,	 /* traffic on one path.generation, in one epoch */
	HA_FO_SUSPECTED, /* sender: it stopped on its own trigger, and says SUSPECT */
	HA_FO_FENCED,	 /* sender: it was told of a new epoch, says FENCED, waits for RESUME */
	HA_FO_FENCING,	 /* receiver: it took the next epoch and says FENCE, until it can resume */
	HA_FO_LATCHED,	 /* gave up: an error is latched, says ABORT */
	HA_FO_CLOSED,	 /* the peer said BYE: nothing is a failure any more */
	HA_FO_STATES
};

/* What is to be said at the next opportunity. */
enum ha_say {
	HA_SAY_STATEMENT = 1 << 0, /* what this end says in its state */
	HA_SAY_RESUMED = 1 << 1,
	HA_SAY_PING = 1 << 2,
	HA_SAY_PONG = 1 << 3,
	HA_SAY_STATE = 1 << 4,
	HA_SAY_ABORT = 1 << 5,
	HA_SAY_MENDED = 1 << 6,	  /* sender */
	HA_SAY_REBUILD = 1 << 8,  /* and the next three: receiver, a bit per path */
	HA_SAY_REBUILT = 1 << 12, /* and the next three: sender, a bit per path */
	HA_SAY_REFUSED = 1 << 16,
	HA_SAY_SUSPECT =
	    1 << 20, /* and the next three: sender, of a path that is not the only one */
};

static inline uint32_t ha_say_of(enum ha_say what, unsigned path)
{
	return (uint32_t)what << path;
}

/* A path to go on with, as told by RESUME. */
struct ha_resume {
	uint32_t epoch; /* 0: none */
	uint32_t generation;
	uint8_t path;
};

struct ha_reconnect;
struct ha_standby;

/* The switch under way, from its first trigger on; for the log and the statistics. */
struct ha_switchover {
	bool pending;
	uint8_t reason;		   /* enum ha_reason: of the first trigger */
	struct ha_event_path from; /* the path that was left first */
	uint64_t alive_ns;	   /* the last sign of life before */
	uint64_t trigger_ns;	   /* when it was noticed here */
};

/* What the next path must show before it is taken: path_select.c. Receiver. */
struct ha_path_select {
	bool wants_proof;   /* a failure that nobody reported may be of more than the active path */
	uint64_t since_ns;  /* that a path worked later than this */
	uint64_t begun_ns;  /* when the active path was left */
	uint64_t agreed_ns; /* since when one could be taken; 0: not yet */
};

/* A slot's link to the heartbeats of its two ports. */
struct ha_slot_link {
	struct ha_live_link live;
	struct ha_comm *comm;
	uint8_t slot;
	/* Progress thread. */
	bool down, up, doomed;
	uint64_t asked_ns;    /* its path is to prove itself, since then; 0: not */
	uint64_t completions; /* of the connection, when it was last asked for life */
};

/* What becomes of asking a peer without a socket whether it lives: peer_life.c. */
struct ha_silence {
	uint64_t asked_ns; /* the first question since its last sign of life; 0: it has answered */
	uint64_t lasts_ns; /* since then, of the time in which this end ran */
	uint64_t tick_ns;  /* when that was counted last */
	uint64_t ask_ns, ping_ns; /* when to ask its NICs again, and itself */
	uint32_t ask_ms, ping_ms; /* how long after the question before; 0: none was asked */
};

struct ha_failover {
	uint8_t state;
	bool resumed;	    /* receiver: RESUMED of this epoch was heard */
	bool socket_broken; /* paths are the only channels, until it is dialled again */
	uint8_t garbled;    /* sockets in a row that were given up soon for what came over them */
	uint64_t joined_ns; /* since when there is this socket */
	bool look;	    /* something happened that a visit has to look at */
	bool stalled;	    /* noted: traffic stands still, and its path is to be asked */
	uint16_t renewed, peer_renewed; /* receiver: offers that may work now, and did not before */
	bool stepping;			/* a step of the machine is under way: fsm.c */
	uint8_t socket_end;		/* enum ha_sock_end: of the one that broke */
	uint8_t leave; /* enum ha_reason: noted, why the active path is to be left */
	bool outage_told;
	uint8_t sl, traffic_class;	  /* [C] of every path of this connection */
	uint8_t nqps;			  /* [C] of a path, unless its rail has another number */
	uint8_t rail_nqps[HA_WIRE_RAILS]; /* [C] as the sender wants them; 0: nqps */
	uint32_t epoch;		/* the protocol's; comm->epoch follows when traffic resumes */
	uint32_t say;		/* enum ha_say */
	uint32_t repeat;	/* enum ha_say: what was said before */
	bool spare_socket;	/* while that is said: not into the socket */
	uint32_t unheard_bytes; /* said over the socket since the peer was heard */
	uint32_t serial, peer_serial;
	uint32_t socket_serial, path_serial; /* of the peer's newest over the socket, over a path */
	uint64_t path_serial_ns;	     /* when that was heard */
	uint64_t path_said, path_heard[HA_MAX_PATHS]; /* with a key: messages over paths */
	uint16_t ports_said;			      /* up, as the peer was told last */
	uint16_t peer_ports_up, peer_ports_drained;
	uint32_t refusing;	  /* by NIC: it refused the connection's memory */
	uint64_t refused_ns;	  /* when one did last */
	uint8_t forgiven;	  /* how often all were tried again, in vain so far */
	uint32_t say_interval_ms; /* of the statement: grows while there is no answer */
	uint64_t say_again_ns;
	uint64_t heard_ns;    /* the peer's last message */
	uint64_t broken_ns;   /* when the socket broke */
	uint32_t reconnected; /* how often it was replaced */
	bool unproven;	      /* the one in use has not carried a message of the peer */
	uint64_t answered_ns; /* when a probe of a path came back last */
	struct ha_silence silence;
	struct ha_witness witness;
	uint64_t tick_ns;     /* last visit while something was wrong */
	uint64_t due_ns;      /* when to be visited again; 0: when something happens */
	uint64_t outage_ns;   /* time without a path in this outage */
	uint32_t suspect_gen; /* sender: what SUSPECT names */
	uint8_t suspect_path;
	uint8_t false_alarms;		   /* in a row */
	struct ha_resume resume;	   /* sender */
	struct ha_window peer_window;	   /* done of the receiver, completed of the sender */
	struct ha_switchover now;	   /* the switch under way */
	struct ha_path_select path_select; /* receiver */
	struct ha_repair repair;	   /* receiver */
	struct ha_replay asked;		   /* receiver: what it asked for again */
	struct ha_slot slots[HA_MAX_PATHS];
	struct ha_slot_link links[HA_MAX_PATHS];
	struct ha_rail rails[HA_MAX_PATHS];
	struct ha_rail_turn turn;
	uint64_t
	    rails_join_end; /* receiver: a path may carry when all before is done; 0: none waits */
	struct ha_port_offers peer_ports;
	struct ha_port *offers[HA_MAX_OFFERS]; /* [C] our ports, as said in PORTS */
	uint8_t noffers;		       /* [C] */
	uint16_t heartbeats;		       /* those of them with an endpoint, by index */
	uint32_t told_qpn[HA_MAX_OFFERS];      /* of the endpoint, as PORTS said it; 0: none */
	uint32_t told_addr_gen[HA_MAX_OFFERS]; /* of the address, likewise */
	struct ha_standby *standby;	       /* receiver */
	struct ha_path *retired;	       /* paths that are fenced, to be closed */
	struct ha_reconnect_at reconnect_at;   /* where our process listens */
	struct ha_reconnect_at peer_reconnect_at;
	struct ha_secrets next_secrets; /* receiver: said for the next time, perhaps not heard */
	struct ha_reconnect *reconnect; /* reconnect.c; NULL until the socket breaks */
#ifdef HA_INVARIANTS
	struct ha_failover_seen seen;
#endif
};

/* What the engine does for a connection: transport/failover_ops.h. */
extern const struct ha_failover_ops ha_failover_engine;

/* Whether the connection has left its path and does not go on yet. [T] */
bool ha_failover_is_moving(const struct ha_comm *comm);
/* Whether nothing is a failure any more: given up, or closed by the peer. [T] */
bool ha_failover_is_over(const struct ha_comm *comm);

/*
 * Another socket has come in its place: takes it over, and says everything that may have been lost
 * with the one before. False: the connection is being closed. Progress thread.
 */
bool ha_failover_reconnected(struct ha_comm *comm, struct ha_frame_sock *sock) HA_MUST_CHECK;

#endif
