/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a connection tells whoever keeps it alive.
 *
 * A connection knows paths, requests and rings. What is to become of it when a path fails is not
 * its business: it stops posting, tells, and goes on where it is told to. This table is all that
 * leads upwards; ha_no_failover is a full implementation that keeps nothing alive: it latches.
 *
 * All of it under the connection's token.
 */
#ifndef HA_TRANSPORT_FAILOVER_OPS_H
#define HA_TRANSPORT_FAILOVER_OPS_H

#include "base/result.h"
#include "event/reason.h"
#include "nccl_ha/stats.h"
#include "transport/wire.h"

#include <stdbool.h>
#include <stdint.h>

struct ha_comm;
struct ha_instance;
struct ha_nic;
struct ha_path;

/* Why a path cannot be used any more. */
struct ha_path_failure {
	enum ha_reason reason;
	ha_result_t code; /* what is latched where nothing keeps the connection alive */
	const char *text; /* for people; the caller's */
};

/* For the statistics. */
struct ha_failover_view {
	bool moving; /* between two paths */
	enum nccl_ha_path_health health[HA_MAX_PATHS];
	bool off_preferred;			  /* the active path is between other ports */
	struct nccl_ha_preferred_stats preferred; /* but left_ns */
};

struct ha_failover_ops {
	/* Constant: what the handshake offers because of it, of HA_FEATURE_*. */
	uint64_t features;

	/* Where a peer dials when the socket breaks, for HELLO: nowhere, if it is as it was. */
	void (*reconnect_at)(struct ha_instance *inst, bool is_send, struct ha_reconnect_at *out);
	/*
	 * A connection's life. open: after the handshake, before anything else can happen; start:
	 * its control socket is up; free: nobody else knows the connection any more.
	 */
	ha_result_t (*open)(struct ha_comm *comm, const struct ha_hello *local,
			    const struct ha_hello *remote);
	void (*start)(struct ha_comm *comm);
	void (*free)(struct ha_comm *comm);

	/*
	 * A path cannot be used any more, or should not be. Stops it and notes why, and has the
	 * connection visited; says nothing about requests, which stay pending. Not for a path that
	 * is stopped. Any thread.
	 */
	void (*path_failed)(struct ha_comm *comm, struct ha_path *path,
			    const struct ha_path_failure *failure);
	/*
	 * A NIC refuses to register memory that the connection needs there. True: it is to be left
	 * for another one, and its paths have failed; false: there is none. Any thread.
	 */
	bool (*memory_refused)(struct ha_comm *comm, const struct ha_nic *nic);
	/* A probe of this path came back. Any thread. */
	void (*probe_done)(struct ha_comm *comm, struct ha_path *path);
	/* A message was left in this path's mailbox. Any thread. */
	void (*msg)(struct ha_comm *comm, struct ha_path *path);
	/* What the peer says over the control socket. In a visit of the connection. */
	void (*frame)(struct ha_comm *comm, const struct ha_frame_header *header,
		      const uint8_t *payload);
	/* The control socket is of no use any more. True: there are other ways to the peer, or
	 * another socket may come. Progress thread. */
	bool (*socket_broken)(struct ha_comm *comm);
	/* State or address of these ports of ours changed (bits). Progress thread. */
	void (*ports_changed)(struct ha_comm *comm, uint64_t ports);

	/*
	 * Requests are outstanding, and for a while none has been completed: is the active path
	 * still there? Any thread, and often that of the application, which does not wait.
	 */
	void (*stalled)(struct ha_comm *comm);

	/*
	 * What is due: fences, messages, timers. Returns when it has to be called again at the
	 * latest, on ha_now_ns's clock; 0: when something happens. Progress thread.
	 */
	uint64_t (*visit)(struct ha_comm *comm);

	/*
	 * Of a path index: the path that was left without the word of its NIC, and that the
	 * connection does not have any more; NULL: there is none.
	 */
	struct ha_path *(*left)(const struct ha_comm *comm, unsigned p);

	/* We close: the last that the peer is told. After an error, what is fenced. */
	void (*goodbye)(struct ha_comm *comm);
	void (*describe)(const struct ha_comm *comm, struct ha_failover_view *out);
};

extern const struct ha_failover_ops ha_no_failover;

#endif
