/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What keeps a connection alive when a path fails: fence, reconcile, replay.
 *
 * The receiver is the source of truth: it allocates epochs and generations and chooses paths; the
 * sender does what it is told. docs/protocol.md explains the protocol, tests/model checks it; names
 * are the same in all three.
 *
 *   failover.c  the state machine: what an end does when something happens to it
 *   control.c   what an end says, on which lanes, and again until it is answered
 *   shadow.c    paths in reserve: which, building them, proving that they work
 *   redial.c    another bootstrap socket for one that broke
 *
 * Everything here is [T] (see comm.h) unless it says otherwise. Steps of the state machine run on
 * the progress thread; only a trigger may come from the application's, which stops the path at once
 * and leaves the rest to the progress thread.
 */
#ifndef HA_FAILOVER_ENGINE_H
#define HA_FAILOVER_ENGINE_H

#include "event/event.h"
#include "event/reason.h"
#include "failover/message.h"
#include "failover/path_health.h"
#include "failover/port_offer.h"
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
struct ha_stream;

enum ha_failover_state {
	HA_FO_ACTIVE,	 /* traffic on one path.generation, in one epoch */
	HA_FO_SUSPECTED, /* sender: it stopped on its own trigger, and says SUSPECT */
	HA_FO_FENCED,	 /* sender: it was told of a new epoch, says FENCED, waits for RESUME */
	HA_FO_FENCING,	 /* receiver: it took the next epoch and says FENCE, until it can resume */
	HA_FO_LATCHED,	 /* gave up: an error is latched, says ABORT */
	HA_FO_CLOSED,	 /* the peer said BYE: nothing is a failure any more */
	HA_FO_STATES
};

/* What an end has of a path. The receiver goes through all of them, the sender knows three. */
enum ha_slot_state {
	HA_SLOT_EMPTY,	    /* no path, or one on its way out */
	HA_SLOT_REBUILDING, /* receiver: our end is there, says REBUILD */
	HA_SLOT_CONNECTING, /* our end is being connected to the peer's, by an errand */
	HA_SLOT_PROBING,    /* receiver: both ends are there, a probe is under way */
	HA_SLOT_UP, /* receiver: the probe came back since the last failure; sender: built */
};

/* A path index that both ends agree on, through all its generations. */
struct ha_slot {
	uint8_t state;		  /* enum ha_slot_state */
	uint8_t health;		  /* enum ha_health of its present generation */
	uint8_t port, peer_port;  /* which of our and of the peer's offers it connects */
	bool mailed;		  /* sender: the peer has sent mail over this generation */
	uint32_t newest_gen;	  /* the highest generation we know of */
	uint32_t want_gen;	  /* everything up to it must be fenced */
	uint32_t fenced_gen;	  /* everything up to it is, confirmed */
	uint32_t peer_fenced_gen; /* what the peer says of its own */
	uint64_t deadline_ns;	  /* of REBUILDING and PROBING */
	uint64_t proved_ns;	  /* when its probe came back last */
	uint64_t up_ns;		  /* since when it is UP */
};

/* What is to be said at the next opportunity. */
enum ha_say {
	HA_SAY_STATEMENT = 1 << 0, /* what this end says in its state */
	HA_SAY_RESUMED = 1 << 1,
	HA_SAY_PING = 1 << 2,
	HA_SAY_PONG = 1 << 3,
	HA_SAY_STATE = 1 << 4,
	HA_SAY_ABORT = 1 << 5,
	HA_SAY_REBUILD = 1 << 8,  /* and the next three, by path: receiver */
	HA_SAY_REBUILT = 1 << 12, /* likewise: sender */
	HA_SAY_REFUSED = 1 << 16,
	HA_SAY_SUSPECT = 1 << 20, /* likewise: sender, of a standby */
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

struct ha_dial;
struct ha_shadow;

/* The switch under way, from its first trigger on; for the log and the statistics. */
struct ha_switch {
	bool pending;
	uint8_t reason;		   /* enum ha_reason: of the first trigger */
	struct ha_event_path from; /* the path that was left first */
	uint64_t alive_ns;	   /* the last sign of life before */
	uint64_t trigger_ns;	   /* when it was noticed here */
};

/* What the next path must show before it is taken: choice.c. Receiver. */
struct ha_choosing {
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
	bool down, up;
	uint64_t completions; /* of the connection, when it was last asked for life */
};

struct ha_failover {
	uint8_t state;
	bool resumed;	    /* receiver: RESUMED of this epoch was heard */
	bool socket_broken; /* paths are the only lanes, until it is dialled again */
	bool look;	    /* something happened that a visit has to look at */
	bool ports_changed; /* what failed before may work now */
	bool later;	    /* a chore had to wait for its turn */
	bool outage_told;
	uint8_t sl, traffic_class; /* [C] of every path of this connection */
	uint8_t nqps;		   /* [C] likewise */
	uint32_t epoch;		   /* the protocol's; comm->epoch follows when traffic resumes */
	uint32_t say;		   /* enum ha_say */
	uint32_t mail;		   /* bit p: mail on path p has not been read */
	uint32_t serial, peer_serial;
	uint16_t peer_ports_up, peer_ports_drained;
	uint32_t say_interval_ms; /* of the statement: grows while there is no answer */
	uint64_t say_again_ns;
	uint64_t heard_ns;    /* the peer's last message */
	uint64_t broken_ns;   /* when the socket broke */
	uint32_t rejoined;    /* how often it was replaced */
	uint64_t ping_ns;     /* when to ask a peer without a socket again */
	uint64_t tick_ns;     /* last visit while something was wrong */
	uint64_t due_ns;      /* when to be visited again; 0: when something happens */
	uint64_t outage_ns;   /* time without a path in this outage */
	uint32_t suspect_gen; /* sender: what SUSPECT names */
	uint8_t suspect_path;
	uint8_t false_alarms;	      /* in a row */
	struct ha_resume resume;      /* sender */
	struct ha_window peer_window; /* done of the receiver, completed of the sender */
	struct ha_switch now;	      /* the switch under way */
	struct ha_choosing choosing;  /* receiver */
	struct ha_replay asked;	      /* receiver: what it asked for again */
	struct ha_slot slots[HA_MAX_PATHS];
	struct ha_slot_link links[HA_MAX_PATHS];
	struct ha_ports peer_ports;
	struct ha_port *offers[HA_MAX_OFFERS]; /* [C] our ports, as said in PORTS */
	uint8_t noffers;		       /* [C] */
	struct ha_shadow *shadow;	       /* receiver */
	struct ha_path *retired;	       /* paths that are fenced, to be closed */
	struct ha_redial_at door;	       /* [C] receiver: where it may be dialled again */
	struct ha_dial *dial;		       /* sender: redial.c; NULL until its socket breaks */
};

/* What the engine does for a connection: transport/failover_ops.h. */
extern const struct ha_failover_ops ha_failover_engine;

/* Whether the connection has left its path and does not go on yet. [T] */
bool ha_failover_is_moving(const struct ha_comm *comm);
/* Whether nothing is a failure any more: given up, or closed by the peer. [T] */
bool ha_failover_is_over(const struct ha_comm *comm);

/* ---- between the files of failover/ ---- */

/*
 * A path cannot be used any more, or should not be. Stops posting on it and starts what has to be
 * done; never waits. Says nothing about requests: they stay pending.
 * A trigger for a path that is being fenced or was replaced is ignored. Any thread.
 */
void ha_failover_trigger(struct ha_comm *comm, struct ha_path *path, enum ha_reason reason,
			 const char *fmt, ...) __attribute__((format(printf, 4, 5), cold));

/* A message, from any lane. Progress thread. */
void ha_failover_hear(struct ha_comm *comm, const struct ha_message *m);

/*
 * Another socket has come in its place: takes it over, and says everything that may have been lost
 * with the one before. False: the connection is being closed. Progress thread.
 */
bool ha_failover_rejoined(struct ha_comm *comm, struct ha_stream *stream) HA_MUST_CHECK;

/* Everything up to `generation` on path `p` goes out of use; confirmed by ha_failover_visit. */
void ha_slot_fence(struct ha_comm *comm, unsigned p, uint32_t generation);

/* Something is known about the health of path `p`: does what follows from it. Progress thread, but
 * for FENCED and PROBE_OK, which any may report. */
void ha_slot_heed(struct ha_comm *comm, unsigned p, enum ha_health_event event);

/* Has paths closed that are out of use, in the background. Progress thread. */
void ha_slots_tidy(struct ha_comm *comm);
/* Whether that would find something to do. */
bool ha_slots_untidy(const struct ha_comm *comm);

/* Whether every fence that was asked for is confirmed at this end. */
bool ha_slots_fenced(const struct ha_comm *comm);

/* Receiver: a path was proved, or none can be at the moment. */
void ha_failover_try_resume(struct ha_comm *comm);

/* Leaves the active path although it works. */
void ha_failover_leave(struct ha_comm *comm, enum ha_reason reason);

const char *ha_failover_state_name(unsigned state);

#endif
