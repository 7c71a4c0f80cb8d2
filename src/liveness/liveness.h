/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Liveness sessions: is the way between a local and a remote port still there?
 *
 * There is one session for each (local port, remote port), however many connections use that pair;
 * each connection hangs a *link* on it. Heartbeats are datagrams on one unreliable queue pair per
 * local port, so that a lost one breaks nothing and the cost does not grow with connections.
 *
 * Each end pings at the interval, over all ports at one wake-up, and answers the other's pings at
 * once. Only an answer to a ping of our own is a sign of life: it proves both directions, and gives
 * a round trip. Three answers in a row make a session UP. An UP session that misses one is
 * SUSPECTED and pings eight times as often, so that a few lost datagrams do not look like a dead
 * path. Three intervals without an answer make it DOWN if the same process answered over other
 * ports meanwhile; one that is silent everywhere gets no processor, or there is no better way left:
 * that takes ten intervals, two seconds at least. A session that was never UP is SUSPECTED when it
 * falls silent after a first answer, or when the same process answers over other ports: where
 * nobody answers at all, it may be that heartbeats cannot pass, and they prove nothing. When it is
 * DOWN after that, without ever having been UP, its links are not told to leave: what uses these
 * ports works as it did, but is not counted on. Before that a session's links are asked for traffic
 * that completed meanwhile, without an error: that is life, too. And half an interval before it is
 * DOWN they are told, to prove by other means that the ports still reach each other. Silence during
 * which our own thread did not run proves nothing, and the time starts anew. Nor does an answer
 * over one NIC prove anything about another where one of the two is sick. The device's death makes
 * its sessions DOWN at once.
 *
 * Three intervals are long where traffic waits. So a connection whose traffic stands still has its
 * session make an *inquiry*: pings in quick succession, and where the second is not answered at
 * once either, the same peer is asked over its other ports as well. A peer that is busy, stopped or
 * not scheduled answers nowhere, and that is nothing. The session is DOWN when its pings have had
 * no answer for four parts of time and the peer took a question elsewhere and answered it three
 * times meanwhile, each asked after the answer before: its thread, which takes all ports in turn,
 * came by here in between. Any answer, and any probe that comes back over these ports, ends the
 * inquiry; traffic that completes there begins it anew. A heartbeat that has no answer soon begins
 * one, too, and an UP session is SUSPECTED as soon as the peer has answered elsewhere what was
 * asked there well after the first ping.
 *
 * An *endpoint* is the queue pair of a port in one process. Its id is random and is told to the
 * peer over the connection's bootstrap socket, so that a heartbeat always says from whom it comes
 * and to whom it goes, and its queue pair and address are those that a heartbeat has to come from:
 * strangers, earlier incarnations of a process and replays are told apart and ignored.
 *
 * Opening a port's queue pair, bringing it back after an error, and making and destroying address
 * handles are commands of the NIC (progress/command.h): nobody waits for them here but who asks for
 * an endpoint, and who ends. A heartbeat that cannot be sent meanwhile is a missing one.
 *
 * Threads: any thread may call, the progress thread's callbacks included. Sessions live on the
 * progress thread, which calls their links back under a lock that all functions here take. So a
 * link's callback calls nothing here, and does not wait for what may be held by who does: not for
 * a connection's token. It stores a flag for the connection's next visit, and calls the poller
 * for it.
 */
#ifndef HA_LIVENESS_LIVENESS_H
#define HA_LIVENESS_LIVENESS_H

#include "base/config.h"
#include "base/hist.h"
#include "base/list.h"
#include "device/device.h"
#include "liveness/detector.h"
#include "progress/progress.h"

#include <stdbool.h>
#include <stdint.h>

struct ha_job_key;
struct ha_liveness;
struct ha_session;

/* What a peer must know to exchange heartbeats with a port. */
struct ha_live_endpoint {
	uint64_t id;  /* not 0; the queue key follows from it */
	uint32_t qpn; /* 24 bits, not 0 */
	uint8_t link_layer;
	uint16_t lid;
	uint8_t gid[16];
};

/*
 * A user of a session, embedded in what uses it. Zero it and set the callbacks (each may be
 * NULL) before it is attached; the rest is the session's.
 */
struct ha_live_link {
	/* The session went DOWN. Never called for one that was not UP. */
	void (*down)(struct ha_live_link *link);
	/* It became UP, for the first time or again. */
	void (*up)(struct ha_live_link *link);
	/* It became SUSPECTED, or is UP again after that, or is DOWN without having been UP. */
	void (*suspected)(struct ha_live_link *link);
	/* It is about to be DOWN, though it was of use: what can be proved by other means than
	 * heartbeats, which see one way of several, is to be proved now (ha_liveness_note_life). */
	void (*doomed)(struct ha_live_link *link);
	/* Has anything completed on this pair of ports since the last call? */
	bool (*alive)(struct ha_live_link *link);

	struct ha_session *session; /* NULL: not attached */
	struct ha_list in_session;
};

/*
 * Hangs itself on the progress thread. config->heartbeat_ms is the interval, config->stall_ms a
 * part of the time-out of inquiries. Both arguments must outlive it. NULL: out of memory.
 */
struct ha_liveness *ha_liveness_new(struct ha_progress *progress, const struct ha_config *config);
/*
 * Before the first port. Heartbeats carry codes by this key from now on, unless it is NULL, and
 * `refused` is told of each that is not believed: malformed, a stranger's, without its code, or a
 * ping that was answered before.
 */
void ha_liveness_trust(struct ha_liveness *live, const struct ha_job_key *key,
		       void (*refused)(void *arg), void *arg);

/*
 * Whom to tell that answers to heartbeats over a port are missing: who can ask its device whether
 * it is still up; or that our end of them could not be made, or is there later than somebody could
 * wait for. Called under the lock of the sessions,
 * so it calls nothing here. Before the first endpoint.
 */
void ha_liveness_on_doubt(struct ha_liveness *live, void (*doubt)(void *arg, struct ha_port *port),
			  void *arg);

/* From another thread than the progress thread, before the latter is stopped; all links must be
 * detached. NULL is fine. */
void ha_liveness_free(struct ha_liveness *live);

/* A device has died: looks at its sessions at once. Any thread. */
void ha_liveness_look(struct ha_liveness *live);

/*
 * Our end of heartbeats on a local port, made on first use: by a command of its NIC, for which this
 * waits for ha_command_timeout_ns at most. Not on the progress thread, unless it was true before.
 * False, with one log line per port, when the device has no unreliable datagrams or no resources:
 * such a port has no sessions. False as well while the device takes its time.
 */
bool ha_liveness_endpoint(struct ha_liveness *live, struct ha_port *port,
			  struct ha_live_endpoint *out);

/* The same for whoever must not wait: false as well when it is not there yet. Any thread. */
bool ha_liveness_opened(struct ha_liveness *live, struct ha_port *port,
			struct ha_live_endpoint *out);

/*
 * The port's device died and is open again: our end of heartbeats is made there, with the same id
 * and another queue pair number, which peers have to be told. Its sessions go on by themselves.
 * Does not wait for it: ha_liveness_reopening says how long it takes. Progress thread.
 */
void ha_liveness_reopen(struct ha_liveness *live, struct ha_port *port);
bool ha_liveness_reopening(struct ha_liveness *live, const struct ha_port *port);
/* Our end was asked for and could not be made: ha_liveness_reopen tries it once more. */
bool ha_liveness_refused(struct ha_liveness *live, const struct ha_port *port);
/* It is there, and some connection did not wait for it or heard that there is none. True once. */
bool ha_liveness_came_late(struct ha_liveness *live, const struct ha_port *port);

/*
 * Hangs a link on the session with a remote endpoint, which is made if this is its first. False:
 * there can be none (no endpoint on either side, where ha_liveness_endpoint makes ours; or no
 * memory), and the caller has to find out
 * otherwise. The first link's service level and traffic class are the session's. The state may be
 * UP already; no callback tells of that. An endpoint whose address differs from what the session
 * knows, with the same id, has moved: the session follows.
 */
bool ha_liveness_attach(struct ha_liveness *live, struct ha_port *port,
			const struct ha_live_endpoint *remote, uint8_t sl, uint8_t traffic_class,
			struct ha_live_link *link);

/* On return no callback of the link runs or ever will. Not attached is fine. The session ends with
 * its last link. */
void ha_liveness_detach(struct ha_liveness *live, struct ha_live_link *link);

/* Has its session ping now, for an answer that is younger than what just happened. Not attached is
 * fine. Any thread. */
void ha_liveness_ask(struct ha_liveness *live, struct ha_live_link *link);

/*
 * The link's traffic stands still: its session begins an inquiry, if it has no reason not to. Not
 * attached is fine. Any thread.
 */
void ha_liveness_inquire(struct ha_liveness *live, struct ha_live_link *link);

/* A probe came back over its ports: life, as any traffic. A session that is DOWN stays so until
 * heartbeats are answered. One whose heartbeats are missing all the same sends them another way, by
 * another flow label. Not attached is fine. Any thread. */
void ha_liveness_note_life(struct ha_liveness *live, struct ha_live_link *link);

/* Of a port, ended sessions included. */
struct ha_live_port_report {
	int sessions, sessions_up;   /* SUSPECTED ones count as up */
	uint64_t pings, pongs, lost; /* as in a session's report */
	uint64_t answered;	     /* pings of peers */
	uint64_t malformed;	     /* not a heartbeat, or damaged */
	uint64_t strangers;	     /* from or to whom is not known here, or from elsewhere */
	uint64_t stale;		     /* counted already, or an answer to nothing we asked */
	uint64_t send_errors;
	uint64_t restarts; /* of the queue pair after an error */
	struct ha_hist round_trips;
};
/* False: there is no endpoint. */
bool ha_liveness_port_report(struct ha_liveness *live, const struct ha_port *port,
			     struct ha_live_port_report *out);

/* Scheduling delays of our thread that were longer than an interval: silence proved nothing. */
uint64_t ha_liveness_delayed(struct ha_liveness *live);

#endif
