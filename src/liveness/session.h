/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One liveness session, and the local port it runs on; what sessions share is in liveness.c. Only
 * for that and the files of a session: its address handle, its flow label, what it sends and what
 * comes, its peer over other ports, its report (session_*.c). Everything is under the lock of the
 * ha_liveness but for a session's `state`.
 */
#ifndef HA_LIVENESS_SESSION_H
#define HA_LIVENESS_SESSION_H

#include "liveness/liveness.h"
#include "liveness/ud_qp.h"
#include "progress/command.h"

#include <pthread.h>

/* Sessions of a port by the peer's id. */
#define HA_LIVE_BUCKETS 64

/*
 * Pings that go out at one wake-up. A thread that woke up for each of them would be awake for
 * little else, and so would the peers for what comes back.
 */
struct ha_ping_batch {
	uint64_t due_ns;  /* the next steady ping: it makes one */
	bool on;	  /* at this visit */
	unsigned pinged;  /* how many have, at this visit */
	uint64_t next_ns; /* when those who have pinged last go on together */
	unsigned places;  /* how many more may */
};

struct ha_liveness {
	struct ha_progress *progress;
	void (*doubt)(void *arg, struct ha_port *port); /* constant; NULL: nobody to tell */
	void *doubt_arg;
	const struct ha_job_key *key; /* constant; NULL: heartbeats carry no codes */
	void (*refused)(void *arg);   /* constant; NULL: nobody counts them */
	void *refused_arg;
	uint64_t interval_ns, stall_ns;
	uint64_t process; /* as ha_live_process gives it */
	struct ha_poller poller;
	pthread_mutex_t lock;
	int nports;
	struct ha_live_port *ports[HA_MAX_PORTS]; /* that are open */
	uint64_t visited_ns;			  /* last visit; 0: none yet */
	uint64_t due_ns;			  /* before that no session wants anything */
	struct ha_ping_batch batch;
	uint64_t delayed; /* visits, by a scheduling delay */
	unsigned queries; /* sessions that wait for an address */
	/* By index of the port: those that were ever asked for, open or not. */
	struct ha_live_port *asked[HA_MAX_PORTS];
};

/*
 * A remote endpoint's address handle. It is made and destroyed in the background: either may take
 * seconds. Making it writes ah and took_ns; the rest is constant.
 */
struct ha_live_address {
	struct ha_command command; /* making it, then destroying it */
	struct ha_ud_qp *ud_qp;	   /* held: its protection domain is the handle's */
	struct ha_remote_addr to;
	uint32_t addr_gen; /* of our port when it was asked */
	struct ibv_ah *ah; /* NULL: there is none */
	uint64_t took_ns;
};

/* What is to be sent as soon as there is an address. */
struct ha_held {
	bool ping, pong;
	uint64_t ping_seq, pong_seq;
};

/* The peer's pings that were answered, in a job with a key: none is for a second time. */
struct ha_heard {
	uint64_t newest;
	uint64_t before; /* bit i: newest - 1 - i; older ones are not looked at */
};

struct ha_session {
	struct ha_list in_bucket;
	struct ha_list links;
	struct ha_live_port *port;
	struct ha_live_endpoint remote;
	uint8_t sl, traffic_class;
	struct ha_live_address *query; /* under way; NULL: none */
	struct ha_held held;
	struct ha_live_address *address; /* with a handle; NULL: none */
	uint64_t address_try_ns;	 /* when to try again */
	uint32_t flow_label;		 /* which way its heartbeats go */
	uint64_t label_ns;		 /* since when that is of no use, or its way as it is */
	uint32_t relabels;		 /* since it was UP, or heard the peer again */
	uint64_t pinged_ns;		 /* when the peer's last ping came */
	uint64_t first_seq;		 /* its first ping is the next one */
	struct ha_heard heard;
	struct ha_detector detector;
	atomic_int state; /* the detector's; read without the lock */
	bool of_use;	  /* it has been UP, and not DOWN since */
	uint64_t pings, pongs, ups, downs, suspicions;
	uint64_t warned_ns; /* of suspicion; 0: never */
	uint64_t down_ns;   /* when it went DOWN last; 0: never */
	struct ha_hist round_trips;
};

enum ha_live_port_state {
	HA_LIVE_PORT_OPENING, /* its command writes `ud_qp` */
	HA_LIVE_PORT_OPEN,
	HA_LIVE_PORT_REFUSED, /* it cannot take part */
};

/*
 * A local port that takes part. Made on first use; when it is open, constant but for sessions,
 * counters, a restart, and a queue pair in the place of one whose device died. What is done to its
 * queue pair are commands with its address as the key: in order, so that closing it comes last.
 */
struct ha_live_port {
	struct ha_liveness *live;
	struct ha_port *port;
	struct ha_ud_qp *ud_qp;
	uint64_t id;
	struct ha_watch watch;
	enum ha_live_port_state state;
	struct ha_command command; /* opening it, opening it anew, then closing it */
	struct ha_command restart; /* of its queue pair after an error */
	bool restarting;	   /* that was sent */
	int restart_rc;		   /* what came of it */
	bool dead;		   /* the device failed, and is not open again */
	bool reopening;		   /* its command makes `fresh` */
	bool reopen_due;	   /* the device is open again, and `command` was still out */
	struct ha_ud_qp *fresh;	   /* to take the place of ud_qp, whose device died */
	bool missed;		   /* some connection has gone on without it, and is to be told */
	struct ha_list buckets[HA_LIVE_BUCKETS];
	uint64_t newest_seq; /* of pings of sessions that have ended: no number is used twice */
	struct ha_live_port_report count;
};

/* A number the peer's application cannot have guessed; the top bit has a meaning of its own. */
static inline uint32_t ha_live_qkey(uint64_t id)
{
	return (uint32_t)(id ^ (id >> 32)) & 0x7fffffffu;
}

/* The part of an id that all endpoints of a process have in common. */
#define HA_LIVE_PORT_BITS 24
static inline uint64_t ha_live_process(uint64_t id)
{
	return id >> HA_LIVE_PORT_BITS;
}

/* Its commands are stuck: it is given no new ones. */
static inline bool ha_session_is_sick(const struct ha_session *session)
{
	return atomic_load(&session->port->port->nic->sick);
}

/* The session with a remote endpoint, or NULL. */
struct ha_session *ha_session_find(struct ha_live_port *port, uint64_t id);

/* NULL: no memory. */
struct ha_session *ha_session_new(struct ha_live_port *port, const struct ha_live_endpoint *remote,
				  uint8_t sl, uint8_t traffic_class);
void ha_session_free(struct ha_session *session);

/* Its port has another queue pair: whose handle of the peer's address it had is gone. */
void ha_session_renew(struct ha_session *session);

/* The same endpoint may have got another address. */
void ha_session_follow(struct ha_session *session, const struct ha_live_endpoint *remote);

/* Its detector may have changed: counts that, and tells the links. */
void ha_session_update(struct ha_session *session, uint64_t now_ns);

/* Judges, and pings if it is time. delayed: our thread did not run for more than an interval. */
void ha_session_visit(struct ha_session *session, bool delayed, uint64_t now_ns);

#endif
