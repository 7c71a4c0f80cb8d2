/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RDMA devices as this process sees them.
 *
 * A *NIC* is one ibv_device, opened once, and anew when it has died and come back: each opening is
 * an *incarnation* (incarnation.h), with one verbs context, one protection domain shared by every
 * connection (so that a registration is valid on all of them), one async-event stream. A *port* is
 * one usable port of a NIC: what a path starts from. Ports that are down when the set is built are
 * in it as well, after the others: they may come up and stand in for a port that fails. What NCCL
 * calls a device is a *bundle* of ports (bundle.h).
 *
 * A device set is built once per plugin instance and does not change afterwards (hot-plugging new
 * NICs is a non-goal); only the state words in it do. Tests build several sets in one process,
 * one per simulated host, so nothing here is global.
 */
#ifndef HA_DEVICE_DEVICE_H
#define HA_DEVICE_DEVICE_H

#include "base/config.h"
#include "base/list.h"
#include "base/result.h"
#include "device/bundle.h"
#include "device/incarnation.h"
#include "device/properties.h"

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define HA_MAX_NICS  32
#define HA_MAX_PORTS 64

struct ha_progress;

struct ha_nic {
	/* Constant after discovery. */
	int index; /* in ha_device_set.nics: also the slot of this NIC in an ha_mr */
	char name[64];
	char pci_path[512];	     /* resolved sysfs path, empty when there is none */
	int numa_node;		     /* -1 unknown */
	struct ibv_device_attr attr; /* of the first incarnation */
	uint64_t guid;		     /* system image GUID in host order: one per chip */
	bool relaxed_ordering;	     /* wanted by the configuration and accepted by the device */
	bool dmabuf;		     /* ibv_reg_dmabuf_mr works here (probed once) */
	bool peermem;		     /* a peer-memory module for GPUs is loaded */

	/* When it had registered something last, or refused to: memory/'s. And when it was
	 * last told that it refused, and that it does not reach a GPU; 0: never. */
	_Atomic uint64_t registered_ns, memory_refused_ns, gpu_unreached_ns;

	/*
	 * The incarnation that new objects are made on; ha_nic_hold gives it to who makes any. Only
	 * the progress thread puts another one in its place, under the lock, and reads it without.
	 */
	pthread_mutex_t lock;
	struct ha_incarnation *_Atomic now;

	/* It is dead, so that its ports are of no use: set with that of its incarnation, and unset
	 * when the next one is complete. Written by the progress thread, read by anyone. */
	atomic_bool fatal;
	/* Its commands take longer than a healthy NIC's; until they are back. instance.c writes it.
	 */
	atomic_bool sick;

	/* Who asks again for what it refuses to take back (give_back.h); NULL: nobody before it is
	 * closed. The owner's. */
	struct ha_asker *_Atomic asker;

	/* When it was last told that the device refused one; 0: never. transport/path_open.c's. */
	_Atomic uint64_t refused_ns[HA_RESOURCES];
};

struct ha_port {
	/* Constant after discovery. */
	int index;   /* in ha_device_set.ports */
	bool was_up; /* when the set was built */
	struct ha_nic *nic;
	const struct ha_config *config; /* the set's */
	uint8_t port_num;
	uint8_t link_layer;    /* IBV_LINK_LAYER_* */
	uint16_t pkey;	       /* whose partition its traffic is in */
	bool adaptive_routing; /* NCCL_IB_ADAPTIVE_ROUTING, or by link layer */
	int max_comms;
	int16_t rail_id, plane_id; /* for NCCL; -1: unknown (rail_id.h) */

	/* The one that it is in; NULL: NCCL was not told of it. NCCL may have it fused with others
	 * (bundle.h), before a connection begins on it. */
	const struct ha_bundle *_Atomic bundle;
	int rail; /* its place there: look at `bundle` first */

	/* Constant if it was up; of another one it is known when it comes up. 0: unknown. */
	atomic_int speed_mbps;

	/* Address. Rewritten by ha_port_refresh after a GID or LID change; guarded by addr_lock. */
	pthread_mutex_t addr_lock;
	enum ibv_mtu mtu;
	uint16_t lid;
	uint8_t sm_sl;
	bool grh_required; /* InfiniBand: no address without a GRH (IBV_QPF_GRH_REQUIRED) */
	int gid_index;	   /* -1: none yet */
	int roce_version;  /* of that entry: 1, 2; 0: InfiniBand or unknown */
	uint32_t ifindex;  /* of that entry's network interface; 0: none or unknown */
	union ibv_gid gid;
	uint32_t addr_gen; /* counts changes of the address */

	/* Written by the async-event reader, read by anyone: enum ibv_port_state. */
	atomic_int state;
	_Atomic uint32_t errors; /* how often the driver said that it is down */
	/* Where `pkey` is in the port's table, and whether it is not: partition.c's. */
	_Atomic uint16_t pkey_index;
	atomic_bool outside;
	bool outside_told;
	/* An event says that state, address or partitions may be others: ha_port_refresh is due. */
	atomic_bool refresh_due;

	/* The operator wants it left alone (admin/drain.c): it is used when nothing else is left.
	 */
	atomic_bool drained;
};

/* Queue pairs that a path on it has, unless the peer says otherwise. */
static inline uint8_t ha_port_nqps(const struct ha_port *port)
{
	const struct ha_bundle *bundle = port->bundle;
	uint8_t nqps = 0;

	if (bundle && bundle->nrails >= HA_RAILS_MIN)
		nqps = port->config->nqps_of_rail[port->rail];
	return nqps ? nqps : (uint8_t)port->config->ib_qps_per_connection;
}

struct ha_device_set {
	/* Constant after discovery. */
	const struct ha_config *config; /* the caller's; outlives the set */
	int nnics;
	int nports;	/* those that were up: the first ones */
	int nports_all; /* with those that were not */
	struct ha_nic nics[HA_MAX_NICS];
	struct ha_port ports[HA_MAX_PORTS];
	uint16_t pkey;			 /* of NCCL_IB_PKEY, on the port that said so */
	const struct ha_port *pkey_from; /* NULL: there is no port */

	/* What NCCL is told of, by its numbers: those of discovery, then what it had fused. Each is
	 * constant once it is counted. */
	atomic_int nbundles;
	struct ha_bundle bundles[HA_MAX_PORTS + HA_MAX_PORTS / HA_RAILS_MIN];

	/* Set by the owner before anyone reads events. */
	void (*on_event)(void *arg, const struct ibv_async_event *event, struct ha_nic *nic);
	void *on_event_arg;

	/* Whose command threads register memory; NULL: who needs it does so. Set by the owner
	 * before memory is registered (memory/mr.h). */
	struct ha_progress *progress;

	/* The handles of registered memory: memory/'s, guarded by mrs_lock. */
	pthread_mutex_t mrs_lock;
	struct ha_list mrs;
};

/* Address of a port as it is now. Any thread. */
struct ha_port_addr {
	uint16_t lid;
	uint8_t sm_sl;
	bool grh_required;
	int gid_index;
	uint32_t ifindex; /* of the GID's network interface; 0: none or unknown */
	union ibv_gid gid;
	uint32_t addr_gen;
	enum ibv_mtu mtu;
	uint8_t link_layer;
};

/*
 * Opens every usable NIC and port, in a stable order, filtered by NCCL_IB_HCA. Calls
 * ibv_fork_init first. No device is not an error: *out has nports == 0 and a log line says why.
 * Ports that are down are kept unless HA_NCCL_ENABLE_BACKUP=0. The caller owns *out.
 */
ha_result_t ha_device_set_open(const struct ha_config *config,
			       struct ha_device_set **out) HA_MUST_CHECK;

/* Closes contexts. PDs must be gone (memory/: ha_memory_close). NULL is fine. */
void ha_device_set_close(struct ha_device_set *set);

/* Sets of ports: a bit each. */
static inline uint64_t ha_port_bit(const struct ha_port *port)
{
	return 1ull << port->index;
}

/* Whether it can carry traffic now, as far as this host knows. Any thread. */
static inline bool ha_port_usable(const struct ha_port *port)
{
	return atomic_load_explicit(&port->state, memory_order_relaxed) == IBV_PORT_ACTIVE &&
	       !atomic_load_explicit(&port->nic->fatal, memory_order_relaxed) &&
	       !atomic_load_explicit(&port->nic->sick, memory_order_relaxed) &&
	       !atomic_load_explicit(&port->outside, memory_order_relaxed);
}

static inline bool ha_port_drained(const struct ha_port *port)
{
	return atomic_load_explicit(&port->drained, memory_order_relaxed);
}

void ha_port_addr(struct ha_port *port, struct ha_port_addr *out);

/*
 * Reads port attributes, GID table and P_Key table again (after GID_CHANGE, LID_CHANGE,
 * PKEY_CHANGE, PORT_ACTIVE). The same GID is kept when it is still there, at whatever index;
 * otherwise one is chosen anew. A port without an address does not become active: the GID comes
 * later, with an event of its own. A state that was read before the port went down is not taken.
 * May wait in the kernel as long as the device's firmware does not answer. Any thread, one at a
 * time.
 */
ha_result_t ha_port_refresh(struct ha_port *port) HA_MUST_CHECK;

/* The driver says so. */
void ha_port_is_down(struct ha_port *port);

/* What ptrSupport consists of; NCCL's values. */
enum ha_ptr_support { HA_PTR_HOST = 1, HA_PTR_CUDA = 2, HA_PTR_DMABUF = 4 };

/* GPU memory: NCCL_PTR_CUDA through peermem, NCCL_PTR_DMABUF; NCCL_PTR_HOST always. */
int ha_nic_ptr_support(const struct ha_nic *nic);

#endif
