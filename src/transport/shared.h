/* SPDX-License-Identifier: Apache-2.0 */
/* What the connections of an instance share. See transport.h for what an instance is. */
#ifndef HA_TRANSPORT_SHARED_H
#define HA_TRANSPORT_SHARED_H

#include "base/config.h"
#include "base/job_key.h"
#include "base/list.h"
#include "base/net.h"
#include "base/net_accept.h"
#include "base/stats.h"
#include "device/device.h"
#include "device/unreachable.h"
#include "progress/progress.h"
#include "transport/comm_stats.h"
#include "transport/kept_path.h"
#include "transport/shared_parking.h"
#include "transport/transport.h"

#include <pthread.h>
#include <stdatomic.h>

struct ha_admin_server;
struct ha_eventlog;
struct ha_failover_ops;
struct ha_failover_shared;
struct ha_hints;
struct ha_islands;
struct ha_liveness;
struct ha_port_watches;
struct ha_ask_again;
struct ha_reopens;
struct ha_stats;

struct ha_nic_watch {
	struct ha_watch watch;
	struct ha_instance *inst;
	struct ha_nic *nic;
};

/* What happened to a port. Under the instance's lock. */
struct ha_port_report {
	int slot;
	NCCL_HA_PORT_COUNTERS(NCCL_HA_STATS_COUNTER)
	NCCL_HA_PORT_MORE_COUNTERS(NCCL_HA_STATS_COUNTER)
	NCCL_HA_PORT_RAIL_COUNTERS(NCCL_HA_STATS_COUNTER)
	NCCL_HA_PORT_SHED_COUNTERS(NCCL_HA_STATS_COUNTER)
};

struct ha_instance {
	struct ha_config config; /* constant */
	bool threads;		 /* constant: time goes on by itself */
	struct ha_device_set *devices;
	struct ha_progress *progress;
	struct ha_poll_thread *poll_thread; /* NULL: NCCL's own calls poll */
	struct ha_liveness *liveness;
	struct ha_islands *islands;		    /* constant; NULL: none are gone by */
	struct ha_hints *hints;			    /* constant; NULL: no agent is asked */
	const struct ha_failover_ops *failover;	    /* constant: what keeps connections alive */
	struct ha_failover_shared *failover_shared; /* constant: theirs */
	struct ha_unreachable unreachable;
	struct ha_nic_watch nic_watches[HA_MAX_NICS];
	struct ha_port_watches *port_watches;
	struct ha_reopens *reopens;	      /* of NICs whose device died */
	struct ha_ask_again *ask_again;	      /* for what NICs refused to take back */
	char host[32];			      /* for the peer's log */
	struct ha_stats *stats;		      /* NULL: none */
	struct ha_eventlog *events;	      /* NULL: none */
	struct ha_admin_server *admin_server; /* NULL: none */
	uint64_t ports_written_ns;	      /* progress thread: when the ports' records were */
	bool ports_moved; /* connections have come and gone since they were looked at; under lock */
	struct ha_port_report port_reports[HA_MAX_PORTS];

	struct ha_job_key *job_key; /* constant: whose codes are believed; NULL: there are none */
	union ha_sockaddr stranger; /* without our key, and told of last. Under the lock */

	/* Where listeners bind. Constant. */
	union ha_sockaddr bootstrap_addr;
	unsigned bootstrap_ifindex;    /* constant: of its interface */
	struct ha_net_reserve reserve; /* for accept */

	atomic_uint_least64_t refused[HA_REFUSED_KINDS]; /* by enum ha_refused */

	/* Protects the two lists. Never held while a verb or a progress call may wait. */
	pthread_mutex_t lock;
	struct ha_list comms;	 /* established connections */
	struct ha_list attempts; /* connects under way */

	struct ha_kept_paths kept;	    /* of connections that are gone */
	struct ha_shared_parkings parkings; /* of connections on bundles */
};

/* Counts something that somebody else said in a peer's name. Any thread. */
static inline void ha_instance_refused(struct ha_instance *inst, enum ha_refused what)
{
	atomic_fetch_add_explicit(&inst->refused[what], 1, memory_order_relaxed);
	ha_stats_refused(inst->stats, what);
}

/* Where a connection of NCCL's device begins; NULL: there is no such device. Any thread. */
static inline struct ha_port *ha_instance_port(struct ha_instance *inst, int dev)
{
	struct ha_port *port;

	pthread_mutex_lock(&inst->lock);
	port = ha_bundle_use(inst->devices, dev);
	pthread_mutex_unlock(&inst->lock);
	return port;
}

#endif
