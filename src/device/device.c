/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Discovery: which NICs and ports this process uses, and what they are.
 *
 * The order is that of the devices' names, numbers compared as numbers, so that it is the same in
 * every process of a host and, on like hosts, in every process of the job.
 */
#include "device/device.h"

#include "base/log.h"
#include "base/name_filter.h"
#include "device/gid.h"
#include "device/newer_verbs.h"
#include "device/partition.h"
#include "device/probe.h"
#include "device/queue_depth.h"
#include "device/rail_id.h"
#include "device/sysfs.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_GIDS 1024
#define TRIES	 3 /* of what a device may refuse for want of memory, before it is believed */

static const char *link_layer_name(uint8_t link_layer)
{
	return link_layer == IBV_LINK_LAYER_ETHERNET ? "RoCE" : "InfiniBand";
}

/* ---- addresses ------------------------------------------------------------------------------ */

static const struct ha_gid *find_gid(const struct ha_gid *gids, int n, const union ibv_gid *wanted,
				     int roce_version)
{
	for (int i = 0; i < n; i++)
		if (memcmp(&gids[i].raw, wanted, sizeof *wanted) == 0 &&
		    gids[i].roce_version == roce_version)
			return &gids[i];
	return NULL;
}

static const struct ha_gid *find_index(const struct ha_gid *gids, int n, int index)
{
	for (int i = 0; i < n; i++)
		if (gids[i].index == index)
			return &gids[i];
	return NULL;
}

/*
 * InfiniBand: the first entry, which is the port's own, unless there is one that routers know. It
 * serves in the own subnet as well.
 */
static const struct ha_gid *pick_infiniband_gid(const struct ha_config *config,
						const struct ha_gid *gids, int n)
{
	const struct ha_gid *routable = find_index(gids, n, config->ib_routable_flid_gid_index);

	return routable && ha_gid_flid(&routable->raw) ? routable : &gids[0];
}

/*
 * The entry to use. On RoCE the configured index if the port has it; else the one that the
 * preferences choose, and of several that are as good the one in use, wherever it moved to. What
 * had to do while an address was being changed is left again.
 */
static const struct ha_gid *pick_gid(const struct ha_config *config, const struct ha_port *port,
				     const struct ha_gid *gids, int n)
{
	const struct ha_gid *found = NULL;

	if (n <= 0)
		return NULL;
	if (port->link_layer != IBV_LINK_LAYER_ETHERNET)
		return pick_infiniband_gid(config, gids, n);
	if (config->ib_gid_index >= 0) {
		found = find_index(gids, n, config->ib_gid_index);
		if (found)
			return found;
		HA_WARN("%s:%d has no GID at NCCL_IB_GID_INDEX=%d; choosing one", port->nic->name,
			port->port_num, config->ib_gid_index);
	}
	if (port->gid_index >= 0)
		found = find_gid(gids, n, &port->gid, port->roce_version);
	return &gids[ha_gid_choose(config, gids, n, found ? (int)(found - gids) : -1)];
}

/* Stores a freshly read address. gid NULL: the table is empty; the old GID stays. */
static void store_address(struct ha_port *port, const struct ibv_port_attr *attr,
			  const struct ha_gid *gid)
{
	pthread_mutex_lock(&port->addr_lock);
	port->mtu = attr->active_mtu;
	if (port->lid != attr->lid || port->sm_sl != attr->sm_sl ||
	    (gid && (port->gid_index != gid->index ||
		     memcmp(&port->gid, &gid->raw, sizeof port->gid) != 0)))
		port->addr_gen++;
	port->lid = attr->lid;
	port->sm_sl = attr->sm_sl;
	port->grh_required = attr->flags & IBV_QPF_GRH_REQUIRED;
	if (gid) {
		port->gid = gid->raw;
		port->gid_index = gid->index;
		port->roce_version = gid->roce_version;
		port->ifindex = gid->ifindex;
	}
	pthread_mutex_unlock(&port->addr_lock);
}

static ha_result_t read_address(struct ibv_context *ctx, struct ha_port *port,
				const struct ibv_port_attr *attr)
{
	const struct ha_config *config = port->config;
	struct ha_gid *gids = calloc(MAX_GIDS, sizeof *gids);
	const struct ha_gid *gid;
	int n;

	if (!gids)
		return HA_ERR_SYSTEM;
	n = ha_gid_table(ctx, port->port_num, attr->gid_tbl_len, gids, MAX_GIDS);
	gid = pick_gid(config, port, gids, n);
	if (gid && config->ib_addr_range.family != AF_UNSPEC && config->ib_gid_index < 0 &&
	    port->link_layer == IBV_LINK_LAYER_ETHERNET &&
	    !ha_gid_in_range(&gid->raw, &config->ib_addr_range))
		HA_WARN("%s:%d has no GID in NCCL_IB_ADDR_RANGE; using index %d", port->nic->name,
			port->port_num, gid->index);
	store_address(port, attr, gid);
	free(gids);
	if (!gid && port->link_layer == IBV_LINK_LAYER_ETHERNET) {
		/* An interface that is down has lost its addresses: nothing to warn about. */
		if (attr->state == IBV_PORT_ACTIVE)
			HA_WARN("%s:%d: no GID (does its network interface have an address?)",
				port->nic->name, port->port_num);
		return HA_ERR_SYSTEM;
	}
	return HA_OK;
}

void ha_port_is_down(struct ha_port *port)
{
	pthread_mutex_lock(&port->addr_lock);
	atomic_store(&port->state, IBV_PORT_DOWN);
	atomic_fetch_add(&port->errors, 1);
	pthread_mutex_unlock(&port->addr_lock);
}

/* Unless it has gone down since the state was read. */
static void store_state(struct ha_port *port, const struct ibv_port_attr *attr, uint32_t errors)
{
	pthread_mutex_lock(&port->addr_lock);
	if (atomic_load(&port->errors) == errors)
		atomic_store(&port->state, (int)attr->state);
	pthread_mutex_unlock(&port->addr_lock);
}

/* Old drivers leave it unspecified; they are InfiniBand's. */
static uint8_t link_layer_of(const struct ibv_port_attr *attr)
{
	return attr->link_layer == IBV_LINK_LAYER_UNSPECIFIED ? IBV_LINK_LAYER_INFINIBAND
							      : attr->link_layer;
}

/* 0, or why not. An event of the port, with which it would be read again, may never come. */
static int query_port(struct ibv_context *ctx, const struct ha_nic *nic, uint8_t port_num,
		      struct ibv_port_attr *attr)
{
	int err = ibv_query_port(ctx, port_num, attr);

	for (int i = 1; i < TRIES && err; i++) {
		HA_INFO_LIMITED(HA_SUBSYS_NET,
				"%s:%d: ibv_query_port is refused: %s; the device is asked again",
				nic->name, port_num, strerror(err));
		err = ibv_query_port(ctx, port_num, attr);
	}
	if (err)
		HA_WARN("%s:%d: cannot read the port's state: %s (ibv_query_port; has the device "
			"fewer ports than it had?)",
			nic->name, port_num, strerror(err));
	return err;
}

/* What was read is of no use, and neither is the port. */
static ha_result_t is_another(struct ha_port *port, struct ibv_port_attr *attr, uint32_t errors)
{
	HA_WARN("%s:%d: the port speaks %s now, and spoke %s when the plugin started: the port is "
		"not used "
		"until it does again (was it configured anew?)",
		port->nic->name, port->port_num, link_layer_name(link_layer_of(attr)),
		link_layer_name(port->link_layer));
	attr->state = IBV_PORT_DOWN;
	store_state(port, attr, errors);
	return HA_ERR_SYSTEM;
}

static ha_result_t refresh(struct ibv_context *ctx, struct ha_port *port)
{
	uint32_t errors = atomic_load(&port->errors);
	struct ibv_port_attr attr;

	if (query_port(ctx, port->nic, port->port_num, &attr) != 0)
		return HA_ERR_SYSTEM;
	if (link_layer_of(&attr) != port->link_layer)
		return is_another(port, &attr, errors);
	if (read_address(ctx, port, &attr) != HA_OK) {
		if (attr.state != IBV_PORT_ACTIVE)
			store_state(port, &attr, errors);
		return HA_ERR_SYSTEM;
	}
	ha_partition_refresh(port, ctx, &attr);
	if (!port->was_up)
		atomic_store(&port->speed_mbps, ha_port_speed_mbps(&attr));
	store_state(port, &attr, errors);
	return HA_OK;
}

ha_result_t ha_port_refresh(struct ha_port *port)
{
	struct ha_incarnation *incarnation = ha_nic_hold(port->nic);
	ha_result_t result = refresh(incarnation->ctx, port);

	ha_incarnation_let_go(incarnation);
	return result;
}

void ha_port_addr(struct ha_port *port, struct ha_port_addr *out)
{
	memset(out, 0, sizeof *out);
	pthread_mutex_lock(&port->addr_lock);
	out->lid = port->lid;
	out->sm_sl = port->sm_sl;
	out->grh_required = port->grh_required;
	out->gid_index = port->gid_index;
	out->gid = port->gid;
	out->ifindex = port->ifindex;
	out->addr_gen = port->addr_gen;
	out->mtu = port->mtu;
	pthread_mutex_unlock(&port->addr_lock);
	out->link_layer = port->link_layer;
}

/* ---- ports ---------------------------------------------------------------------------------- */

static bool reaches_gpus(const struct ha_nic *nic)
{
	return ha_nic_ptr_support(nic) != HA_PTR_HOST;
}

#define ALLOWANCE_MAX 96

/* " 227 by 131071 queue pairs at 4", into `text`, which it returns. */
static const char *allowance(const struct ha_budget *budget, enum ha_resource resource,
			     char text[ALLOWANCE_MAX])
{
	snprintf(text, ALLOWANCE_MAX, "%s %d by %lld %s at %lld", resource == 0 ? "" : ",",
		 budget->of[resource].allows, (long long)budget->of[resource].available,
		 ha_resource_name(resource), (long long)budget->of[resource].per_comm);
	return text;
}

static void log_port(const struct ha_config *config, const struct ha_port *port)
{
	char text[HA_RESOURCES][ALLOWANCE_MAX];
	const struct ha_nic *nic = port->nic;
	char gid[HA_GID_TEXT_MAX];
	struct ha_budget budget;

	ha_budget(config, &nic->attr, reaches_gpus(nic), &budget);
	HA_INFO(HA_SUBSYS_INIT | HA_SUBSYS_NET,
		"[%d] %s:%d %s %d Mb/s, LID %u, GID %d %s%s, NUMA node %d, %s", port->index,
		nic->name, port->port_num, link_layer_name(port->link_layer),
		atomic_load(&port->speed_mbps), port->lid, port->gid_index,
		ha_gid_text(&port->gid, gid, sizeof gid),
		port->roce_version == 2	  ? " (RoCE v2)"
		: port->roce_version == 1 ? " (RoCE v1)"
					  : "",
		nic->numa_node, nic->pci_path[0] ? nic->pci_path : "no PCI device");
	HA_INFO(
	    HA_SUBSYS_INIT | HA_SUBSYS_NET,
	    "[%d] maxComms %d: of %d channels each, with up to %d receives in a group; the device "
	    "allows for%s%s%s%s; %s are the scarcest",
	    port->index, budget.max_comms, config->expected_channels, config->max_recvs,
	    allowance(&budget, HA_RES_QP, text[0]), allowance(&budget, HA_RES_CQ, text[1]),
	    allowance(&budget, HA_RES_CQE, text[2]), allowance(&budget, HA_RES_MR, text[3]),
	    ha_resource_name(budget.scarcest));
}

/* Why a port is not used, or NULL when it is. */
static const char *unusable(const struct ha_device_set *set, const struct ha_nic *nic,
			    const struct ibv_port_attr *attr)
{
	unsigned nqps = (unsigned)ha_config_most_qps(set->config);
	struct ha_queue_depth depth = ha_queue_depth(&nic->attr, nqps, HA_SEND_SQ_DEPTH);

	if (attr->link_layer != IBV_LINK_LAYER_INFINIBAND &&
	    attr->link_layer != IBV_LINK_LAYER_ETHERNET &&
	    attr->link_layer != IBV_LINK_LAYER_UNSPECIFIED)
		return "link layer that is neither InfiniBand nor Ethernet";
	if (set->nports_all == HA_MAX_PORTS)
		return "more ports than this plugin handles";
	return ha_queue_depth_lacks(&nic->attr, &depth);
}

static void warn_about_apm(const struct ha_config *config, const struct ha_port *port)
{
	const char *path = port->nic->now->ctx->device->ibdev_path;

	if (config->enable_backup && ha_sysfs_apm_enabled(path, port->port_num))
		HA_WARN("%s:%d: the adapter migrates paths by itself, which gets in the way of "
			"failover here; turn it off (echo 0 > %s/ports/%d/apm_enable)",
			port->nic->name, port->port_num, path, port->port_num);
}

/* Appends a port whose attributes were read and are good enough. */
static void add_port(struct ha_device_set *set, struct ha_nic *nic, uint8_t port_num,
		     const struct ibv_port_attr *attr)
{
	struct ha_port *port = &set->ports[set->nports_all];
	const struct ha_config *config = set->config;
	struct ha_budget budget;

	memset(port, 0, sizeof *port);
	port->index = set->nports_all;
	port->was_up = attr->state == IBV_PORT_ACTIVE;
	port->nic = nic;
	port->config = config;
	port->port_num = port_num;
	port->link_layer = link_layer_of(attr);
	port->adaptive_routing = config->ib_adaptive_routing >= 0
				     ? config->ib_adaptive_routing == 1
				     : port->link_layer == IBV_LINK_LAYER_INFINIBAND;
	ha_budget(config, &nic->attr, reaches_gpus(nic), &budget);
	port->max_comms = budget.max_comms;
	port->gid_index = -1;
	pthread_mutex_init(&port->addr_lock, NULL);
	atomic_init(&port->speed_mbps, port->was_up ? ha_port_speed_mbps(attr) : 0);
	atomic_init(&port->state, (int)attr->state);
	if (read_address(nic->now->ctx, port, attr) != HA_OK && port->was_up) {
		pthread_mutex_destroy(&port->addr_lock);
		return;
	}
	/* InfiniBand without a GID table: addressed by LID. */
	if (port->gid_index < 0 && port->link_layer != IBV_LINK_LAYER_ETHERNET)
		port->gid_index = 0;
	ha_partition_choose(set, port, nic->now->ctx, attr);
	set->nports_all++;
	warn_about_apm(config, port);
	if (port->was_up) {
		set->nports = set->nports_all;
		log_port(config, port);
	} else {
		HA_INFO(HA_SUBSYS_INIT | HA_SUBSYS_NET,
			"%s:%d is down: not used, but it may stand in for another port later",
			nic->name, port_num);
	}
}

/* What discovery has found so far. */
struct discovery {
	struct ha_device_set *set;
	struct ha_name_filter filter;
	/* Ports that are down: they are added last, so that they take no device number. */
	struct {
		struct ha_nic *nic;
		struct ibv_port_attr attr;
		uint8_t port_num;
	} down[HA_MAX_PORTS];
	int ndown;
};

/* True when there is something to do with the port, now or later. */
static bool consider_port(struct discovery *found, struct ha_nic *nic, uint8_t port_num)
{
	struct ha_device_set *set = found->set;
	struct ibv_port_attr attr;
	int err = query_port(nic->now->ctx, nic, port_num, &attr), before = set->nports_all;
	const char *why = err ? strerror(err) : unusable(set, nic, &attr);
	bool down = !why && attr.state != IBV_PORT_ACTIVE;

	if (down && (!set->config->enable_backup || found->ndown == HA_MAX_PORTS))
		why = "the port is not active";
	if (why) {
		HA_INFO(HA_SUBSYS_INIT | HA_SUBSYS_NET, "%s:%d is not used: %s", nic->name,
			port_num, why);
		return false;
	}
	if (down) {
		found->down[found->ndown].nic = nic;
		found->down[found->ndown].attr = attr;
		found->down[found->ndown++].port_num = port_num;
		return true;
	}
	add_port(set, nic, port_num, &attr);
	return set->nports_all > before;
}

static void add_ports_that_are_down(struct discovery *found)
{
	for (int i = 0; i < found->ndown && found->set->nports_all < HA_MAX_PORTS; i++)
		add_port(found->set, found->down[i].nic, found->down[i].port_num,
			 &found->down[i].attr);
}

/* ---- NICs ----------------------------------------------------------------------------------- */

/* What is not opened at start stays out for as long as the process lives. */
static ha_result_t open_device(struct ha_nic *nic, struct ibv_device *device,
			       struct ha_incarnation **out, struct ha_verb_failure *why)
{
	ha_result_t result = ha_incarnation_open(nic, device, &nic->attr, out, why);

	for (int i = 1; i < TRIES && result != HA_OK; i++) {
		HA_INFO_LIMITED(HA_SUBSYS_NET, "%s: %s is refused: %s; the device is asked again",
				nic->name, why->verb, strerror(why->error));
		result = ha_incarnation_open(nic, device, &nic->attr, out, why);
	}
	return result;
}

static ha_result_t open_nic(struct ha_device_set *set, struct ha_nic *nic,
			    struct ibv_device *device)
{
	struct ha_incarnation *incarnation;
	struct ha_verb_failure why;

	memset(nic, 0, sizeof *nic);
	snprintf(nic->name, sizeof nic->name, "%s", ibv_get_device_name(device));
	nic->index = set->nnics;
	if (open_device(nic, device, &incarnation, &why) != HA_OK) {
		HA_WARN("%s: cannot be opened: %s (%s; are /dev/infiniband/uverbs* readable and "
			"writable here?)",
			nic->name, strerror(why.error), why.verb);
		return HA_ERR_SYSTEM;
	}
	pthread_mutex_init(&nic->lock, NULL);
	ha_nic_replace(nic, incarnation);
	return HA_OK;
}

static void close_nic(struct ha_nic *nic)
{
	struct ha_incarnation *incarnation = nic->now, *older;

	for (; incarnation; incarnation = older) {
		older = incarnation->older;
		ha_incarnation_close(incarnation);
	}
	pthread_mutex_destroy(&nic->lock);
}

/* What takes trying and reading, only for a NIC that has a usable port. */
static void describe_nic(const struct ha_config *config, struct ha_nic *nic)
{
	const char *path = nic->now->ctx->device->ibdev_path;
	struct ha_abilities abilities;

	nic->guid = be64toh(nic->attr.sys_image_guid);
	nic->numa_node = ha_sysfs_numa_node(path);
	nic->peermem = ha_sysfs_peermem(path);
	ha_sysfs_pci_path(path, nic->pci_path, sizeof nic->pci_path);
	ha_probe(config, nic->now, nic->name, &abilities);
	nic->relaxed_ordering = abilities.relaxed_ordering;
	nic->dmabuf = abilities.dmabuf;
}

static bool any_port_wanted(const struct ha_name_filter *filter, const struct ha_nic *nic)
{
	for (int port = 1; port <= nic->attr.phys_port_cnt; port++)
		if (ha_name_filter_passes(filter, nic->name, port))
			return true;
	return false;
}

static void add_nic(struct discovery *found, struct ibv_device *device)
{
	struct ha_device_set *set = found->set;
	struct ha_nic *nic = &set->nics[set->nnics];
	bool wanted = false;

	if (open_nic(set, nic, device) != HA_OK)
		return;
	if (any_port_wanted(&found->filter, nic))
		describe_nic(set->config, nic);
	for (int port = 1; port <= nic->attr.phys_port_cnt; port++)
		if (ha_name_filter_passes(&found->filter, nic->name, port))
			wanted |= consider_port(found, nic, (uint8_t)port);
	if (wanted)
		set->nnics++;
	else
		close_nic(nic);
}

/* RC with RDMA WRITE WITH IMMEDIATE is what the data path needs: no iWARP, no unreliable NICs. */
static bool speaks_infiniband(const struct ibv_device *device)
{
	return device->transport_type == IBV_TRANSPORT_IB;
}

static int by_name(const void *a, const void *b)
{
	return strverscmp(ibv_get_device_name(*(struct ibv_device *const *)a),
			  ibv_get_device_name(*(struct ibv_device *const *)b));
}

static void note_missing_verbs(void)
{
	char missing[128];

	if (ha_missing_verbs(missing, sizeof missing)[0] != '\0')
		HA_INFO(HA_SUBSYS_INIT | HA_SUBSYS_NET,
			"this libibverbs lacks %s: doing without; rdma-core 34 has all of them",
			missing);
}

static void discover(struct discovery *found)
{
	struct ha_device_set *set = found->set;
	struct ibv_device **list;
	int n = 0;

	list = ibv_get_device_list(&n);
	if (!list) {
		HA_ATTN(HA_SUBSYS_INIT | HA_SUBSYS_NET, "no RDMA devices: %s", strerror(errno));
		return;
	}
	note_missing_verbs();
	ha_name_filter_parse(&found->filter, "NCCL_IB_HCA", set->config->ib_hca);
	qsort(list, (size_t)n, sizeof(struct ibv_device *), by_name);
	for (int i = 0; i < n; i++) {
		if (!speaks_infiniband(list[i])) {
			HA_INFO(HA_SUBSYS_INIT | HA_SUBSYS_NET,
				"%s is not used: neither InfiniBand nor RoCE",
				ibv_get_device_name(list[i]));
		} else if (set->nnics == HA_MAX_NICS) {
			HA_WARN("%s and later devices are not used: more than %d (choose with "
				"NCCL_IB_HCA)",
				ibv_get_device_name(list[i]), HA_MAX_NICS);
			break;
		} else {
			add_nic(found, list[i]);
		}
	}
	ibv_free_device_list(list);
	add_ports_that_are_down(found);
	ha_rail_ids_choose(set, &found->filter);
	ha_bundles_make(set);
	if (set->nports == 0)
		HA_ATTN(HA_SUBSYS_INIT | HA_SUBSYS_NET,
			"no usable RDMA port among %d devices%s%.200s", n,
			set->config->ib_hca[0] ? " with NCCL_IB_HCA=" : "", set->config->ib_hca);
}

/* ---- the set -------------------------------------------------------------------------------- */

ha_result_t ha_device_set_open(const struct ha_config *config, struct ha_device_set **out)
{
	struct ha_device_set *set = calloc(1, sizeof *set);
	struct discovery *found = calloc(1, sizeof *found);
	int err;

	*out = NULL;
	if (!set || !found) {
		free(found);
		free(set);
		return HA_ERR_SYSTEM;
	}
	found->set = set;
	set->config = config;
	pthread_mutex_init(&set->mrs_lock, NULL);
	ha_list_init(&set->mrs);
	*out = set;
	if (config->ib_disable) {
		HA_ATTN(HA_SUBSYS_INIT | HA_SUBSYS_NET, "NCCL_IB_DISABLE=1: no device is used");
		free(found);
		return HA_OK;
	}
	/* Without it a fork of the process could take pages away from under a registration. */
	err = ibv_fork_init();
	if (err)
		HA_WARN("ibv_fork_init failed (%s): if this process forks, the child or the "
			"transfers may see wrong memory",
			strerror(err));
	discover(found);
	free(found);
	return HA_OK;
}

void ha_device_set_close(struct ha_device_set *set)
{
	if (!set)
		return;
	for (int i = 0; i < set->nports_all; i++)
		pthread_mutex_destroy(&set->ports[i].addr_lock);
	for (int i = 0; i < set->nnics; i++)
		close_nic(&set->nics[i]);
	pthread_mutex_destroy(&set->mrs_lock);
	free(set);
}

int ha_nic_ptr_support(const struct ha_nic *nic)
{
	return HA_PTR_HOST | (nic->peermem ? HA_PTR_CUDA : 0) | (nic->dmabuf ? HA_PTR_DMABUF : 0);
}
