/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Statistics: from the counters of ports and connections to the shared memory that nccl-ha reads.
 *
 * The data path counts in the connection's own memory under the token; the progress thread copies
 * a few times a second, and right away when a connection fails for good. Of one that moves to
 * another path it copies when traffic flows again: a record takes as long as a message of failover.
 */
#ifndef HA_TRANSPORT_COMM_STATS_H
#define HA_TRANSPORT_COMM_STATS_H

#include "base/hist.h"
#include "base/net.h"
#include "nccl_ha/stats.h"

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct ha_comm;
struct ha_instance;
struct ha_nic;

/* What a connection counts. [T], but for not_ready, which is the application's own. */
struct ha_counters {
	NCCL_HA_CONN_COUNTERS(NCCL_HA_STATS_COUNTER)
};

/* What the rails of our bundle carried together. [T] */
struct ha_striped {
	uint64_t stripes[NCCL_HA_MAX_RAILS], bytes[NCCL_HA_MAX_RAILS];
	uint64_t complete; /* bytes of the messages of which all stripes are through */
	struct nccl_ha_shed_stats sheds[NCCL_HA_MAX_RAILS];
};

/* What a connection remembers of its failovers. [T] */
struct ha_failover_record {
	struct ha_hist detection, blackout; /* ns */
	uint64_t last_ns;		    /* wall clock; 0: none yet */
	uint64_t last_blackout_ns;	    /* 0 unknown */
	uint32_t last_reason;		    /* enum ha_reason */
};

/* Where the connection's record in shared memory is, and when it was written. */
struct ha_comm_report {
	int slot; /* -1: none */
	int port; /* where it is counted: the active path's, as last seen */
	uint32_t qps;
	uint64_t opened_ns;	   /* wall clock */
	uint32_t heartbeats;	   /* of its preferred ports' marks, as last known */
	uint64_t left_ns;	   /* wall clock since when those cannot have it; 0: they can */
	uint64_t written_ns;	   /* progress thread */
	uint64_t messages;	   /* as counted for ports */
	uint64_t bytes;		   /* as counted for ports: what did not go in stripes */
	struct ha_striped striped; /* as counted for ports */
	atomic_bool now;	   /* write at the next visit */
	atomic_bool moved;	   /* write when held_ns is past */
	_Atomic uint64_t held_ns;  /* not before that, but for `now`: it moves, or others do */
	char peer[HA_SOCKADDR_TEXT_MAX];
};

/* A connection's record, from ha_comm_start to ha_comm_stop. */
void ha_comm_stats_open(struct ha_comm *comm);
/* It moves to another path, or has moved: its record is not written before traffic flows again, but
 * for a while at most. Any thread. */
void ha_comm_stats_hold(struct ha_comm *comm);
/*
 * Progress thread, after each visit: publishes when it is time or `comm->report.now` is set.
 * Returns when it will be time, 0: it is done.
 */
uint64_t ha_comm_stats_publish(struct ha_comm *comm);
void ha_comm_stats_close(struct ha_comm *comm);

/* A port's record, for as long as the instance lives. */
void ha_port_stats_open(struct ha_instance *inst);
void ha_port_stats_close(struct ha_instance *inst);
/* Under the instance's lock. */
void ha_port_stats_event(struct ha_instance *inst, const struct ha_nic *nic,
			 const struct ibv_async_event *event);
/* After events were handled: state and address may have changed. Progress thread. */
/* A NIC's device died, is back and was opened again. Under the instance's lock. */
void ha_port_stats_reopened(struct ha_instance *inst, const struct ha_nic *nic);

void ha_port_stats_publish(struct ha_instance *inst, const struct ha_nic *nic);

/* What the NIC refuses to take back has changed: an event, and its ports' records. */
struct ha_leaks;
void ha_port_stats_leak(struct ha_instance *inst, struct ha_nic *nic, const struct ha_leaks *leaks);

#endif
