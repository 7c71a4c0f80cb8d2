/* SPDX-License-Identifier: Apache-2.0 */
/* The stepped fabric from outside: opening, its devices, and faults by call. */
#include "stepped.h"

#include <assert.h>
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BURST   65536u
#define MAX_DEVICES 250u /* the salt of memory keys is 8 bits */

static _Thread_local uint32_t current_host;
static uint64_t fabrics_opened;

struct sv_stepped_device *sv_stepped_device_at(uint32_t host, uint32_t rail)
{
	struct sv_stepped *fab = sv_fabric;

	return &fab->devices[host % fab->opts.hosts * fab->opts.rails + rail % fab->opts.rails];
}

/* The two halves of what SV_RAIL_PORT() makes: the rail, and the physical port or SV_ANY. */
static uint32_t rail_of(uint32_t rail)
{
	return rail & 0xffff;
}

static uint32_t phys_of(uint32_t rail)
{
	uint32_t port_num = rail >> 16;

	return port_num ? (port_num - 1) % sv_fabric->opts.ports : SV_ANY;
}

/* ---------------------------------------------------------------- open, close */

static void set_defaults(struct sv_stepped_opts *o)
{
	o->hosts = o->hosts ? o->hosts : 2;
	o->rails = o->rails ? o->rails : 1;
	o->ports = o->ports ? o->ports : 1;
	o->latency_ns = o->latency_ns ? o->latency_ns : 1000;
	o->rate_mbps = o->rate_mbps ? o->rate_mbps : 400000;
	o->mtu = o->mtu ? o->mtu : IBV_MTU_4096;
	o->window_packets = o->window_packets ? o->window_packets : 128;
	o->hosts += o->aggregators; /* these are the last ones */
	for (uint32_t r = 0; r < SV_STEPPED_RAILS; r++) {
		o->rail_rate_mbps[r] = o->rail_rate_mbps[r] ? o->rail_rate_mbps[r] : o->rate_mbps;
		o->rail_latency_ns[r] =
		    o->rail_latency_ns[r] ? o->rail_latency_ns[r] : o->latency_ns;
	}
}

static_assert(SV_STEPPED_RAILS == SV_MAX_RAILS, "rates and latencies by rail");

static bool make_links(struct sv_stepped *fab)
{
	const struct sv_stepped_opts *o = &fab->opts;

	fab->plan = (struct sv_link_plan){
	    .devices = fab->num_devices,
	    .rails = o->rails,
	    .ports = o->ports,
	    .plain_devices = (o->hosts - o->aggregators) * o->rails,
	    .drag_milli = o->rail_drag_milli,
	};
	memcpy(fab->plan.rate_mbps, o->rail_rate_mbps, sizeof(fab->plan.rate_mbps));
	memcpy(fab->plan.latency_ns, o->rail_latency_ns, sizeof(fab->plan.latency_ns));
	fab->links.plan = &fab->plan;
	fab->links.links = aligned_alloc(alignof(struct sv_link),
					 sv_links_number(&fab->plan) * sizeof(struct sv_link));
	if (!fab->links.links)
		return false;
	memset(fab->links.links, 0, sv_links_number(&fab->plan) * sizeof(struct sv_link));
	sv_links_init(&fab->links);
	return true;
}

static void set_limits(struct sv_limits *limits, const struct sv_stepped_opts *o)
{
	const struct sv_limits wanted = {.max_qp = o->max_qp,
					 .max_qp_wr = o->max_qp_wr,
					 .max_sge = o->max_sge,
					 .max_inline = o->max_inline,
					 .max_cq = o->max_cq,
					 .max_cqe = o->max_cqe,
					 .max_mr = o->max_mr,
					 .max_rd_atomic = o->max_rd_atomic};

	sv_limits_default(limits);
	sv_limits_set(limits, &wanted);
}

/*
 * Link-local and IPv4-mapped 10.<rail>.0.<host + 1>, each as RoCE v1 and v2; on InfiniBand a LID. A
 * second port is 10.<rail>.1.<host + 1>, and its GUID the device's and 2^48. Where there are
 * islands: sv_islands_octet().
 */
static void set_addresses(const struct sv_stepped *fab, const struct sv_port_config *cfg,
			  uint32_t index, struct sv_phys_config *phys)
{
	const struct sv_stepped_opts *o = &fab->opts;
	uint64_t guid = be64toh(cfg->node_guid) + ((uint64_t)index << 48);
	union ibv_gid local = {.global = {.subnet_prefix = htobe64(0xfe80000000000000ull),
					  .interface_id = htobe64(guid)}};
	union ibv_gid ipv4 = {
	    .raw = {[10] = 0xff,
		    [11] = 0xff,
		    [12] = 10,
		    [13] = (uint8_t)cfg->rail,
		    [14] = sv_islands_octet(&fab->islands, cfg->host, cfg->rail, index),
		    [15] = (uint8_t)(cfg->host + 1)}};

	phys->state = IBV_PORT_ACTIVE;
	if (cfg->link_layer == IBV_LINK_LAYER_INFINIBAND) {
		uint32_t subnets = o->subnets ? o->subnets : 1;
		uint32_t lid =
		    index * cfg->devices + cfg->host / subnets * cfg->rails + cfg->rail + 1;

		sv_phys_infiniband(phys, guid, lid, o->subnets ? cfg->host % subnets + 1 : 0);
		return;
	}
	phys->num_gids = 4;
	for (uint32_t i = 0; i < 4; i++)
		phys->gids[i] = (struct sv_gid_entry){
		    .gid = i < 2 ? local : ipv4,
		    .type = i % 2 ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1,
		    .ndev_ifindex = cfg->rail + 1,
		};
}

static struct sv_port *make_port(struct sv_stepped *fab, uint32_t index)
{
	const struct sv_stepped_opts *o = &fab->opts;
	struct sv_port_config cfg = {
	    .index = index,
	    .devices = fab->num_devices,
	    .num_phys = o->ports,
	    .host = index / o->rails,
	    .rail = index % o->rails,
	    .rails = o->rails,
	    .link_layer = o->infiniband ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET,
	    .rate_mbps = o->rail_rate_mbps[index % o->rails],
	    .mtu = o->mtu,
	    .window_bursts = o->window_packets,
	    .window_adapts = o->window_adapts,
	    .burst_bytes = o->burst_bytes,
	    .seed = o->seed,
	    .num_comp_vectors = 4,
	    .ece_vendor = SV_ECE_VENDOR,
	    .ece_options = SV_ECE_OPTIONS,
	    .pin = o->pin,
	    .gpu = o->gpu,
	    .memlock = o->memlock,
	    .late_recvs_stay = o->late_recvs_stay,
	    .profile = o->profile == SV_STEPPED_MLX5 ? SV_PROFILE_MLX5 : SV_PROFILE_EXACT,
	    .lock = &fab->lock,
	};

	set_limits(&cfg.limits, o);
	cfg.node_guid = cfg.sys_image_guid =
	    htobe64(0x5356000000000000ull | (uint64_t)(cfg.host + 1) << 16 | (cfg.rail + 1));
	for (uint32_t i = 0; i < o->ports; i++) {
		set_addresses(fab, &cfg, i, &cfg.phys[i]);
		cfg.phys[i].grh_required = o->grh_required;
		sv_pkeys_parse(o->pkeys, cfg.rail * o->ports + i, &cfg.phys[i]);
	}
	sv_device_name(cfg.rail, 0, cfg.name, sizeof(cfg.name));
	/* There is no such device in sysfs, and nothing that looks like one. */
	snprintf(cfg.ibdev_path, sizeof(cfg.ibdev_path), "/nonexistent/simverbs/host%u/%s",
		 cfg.host, cfg.name);
	snprintf(cfg.dev_path, sizeof(cfg.dev_path), "/nonexistent/simverbs/uverbs%u", cfg.rail);
	return sv_port_create(&cfg, &sv_stepped_wire, &fab->devices[index], &fab->faults);
}

static void destroy(struct sv_stepped *fab)
{
	sv_stepped_free_flights(fab);
	for (uint32_t i = 0; fab->devices && i < fab->num_devices; i++)
		if (fab->devices[i].port)
			sv_port_destroy(fab->devices[i].port);
	free(fab->devices);
	free(fab->ports);
	free(fab->last_arrival_ns);
	free(fab->blocked);
	free(fab->rail_cut);
	free(fab->heap);
	free(fab->links.links);
	pthread_mutex_destroy(&fab->lock);
	free(fab);
}

static void init_lock(struct sv_stepped *fab)
{
	pthread_mutexattr_t attr;

	pthread_mutexattr_init(&attr);
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(&fab->lock, &attr);
	pthread_mutexattr_destroy(&attr);
}

/* RoCE has neither partitions nor subnets with routers of this kind. */
static bool infiniband_only(const struct sv_stepped_opts *o)
{
	struct sv_phys_config phys;

	return (o->infiniband || (!o->pkeys && !o->grh_required && !o->subnets)) &&
	       sv_pkeys_parse(o->pkeys, 0, &phys) == 0;
}

int sv_stepped_open(const struct sv_stepped_opts *opts)
{
	struct sv_stepped *fab;
	uint32_t n;

	if (sv_fabric)
		return -EBUSY;
	fab = calloc(1, sizeof(*fab));
	if (!fab)
		return -ENOMEM;
	init_lock(fab);
	if (opts)
		fab->opts = *opts;
	set_defaults(&fab->opts);
	fab->num_devices = fab->opts.hosts * fab->opts.rails;
	n = fab->num_ports = fab->num_devices * fab->opts.ports;
	if (fab->opts.hosts > MAX_DEVICES || fab->opts.rails > SV_MAX_RAILS ||
	    fab->opts.aggregators > MAX_DEVICES || fab->num_devices > MAX_DEVICES ||
	    fab->opts.ports > SV_MAX_PHYS || !infiniband_only(&fab->opts) ||
	    fab->opts.burst_bytes > MAX_BURST || fab->opts.mtu < IBV_MTU_256 ||
	    fab->opts.mtu > IBV_MTU_4096 || fab->opts.profile > SV_STEPPED_MLX5 ||
	    sv_islands_parse(fab->opts.islands, fab->opts.hosts, &fab->islands)) {
		destroy(fab);
		return -EINVAL;
	}
	fab->max_payload = sv_mtu_bytes(fab->opts.mtu);
	if (fab->max_payload < fab->opts.burst_bytes)
		fab->max_payload = fab->opts.burst_bytes;
	fab->rng = fab->opts.seed;
	fab->number = ++fabrics_opened;
	sv_fault_table_init(&fab->faults, fab->opts.seed);
	fab->devices = calloc(fab->num_devices, sizeof(*fab->devices));
	fab->ports = calloc(n, sizeof(*fab->ports));
	fab->last_arrival_ns = calloc((size_t)n * n, sizeof(*fab->last_arrival_ns));
	fab->blocked = calloc((size_t)n * n, sizeof(*fab->blocked));
	fab->rail_cut = calloc(fab->opts.rails, sizeof(*fab->rail_cut));
	if (!make_links(fab) || !fab->devices || !fab->ports || !fab->last_arrival_ns ||
	    !fab->blocked || !fab->rail_cut)
		goto nomem;
	for (uint32_t i = 0; i < n; i++)
		fab->ports[i].link_up = true;
	for (uint32_t i = 0; i < fab->num_devices; i++) {
		fab->devices[i].first_qpn = fab->devices[i].next_qpn =
		    (uint32_t)(fab->opts.seed * 977 + (uint64_t)i * 4099 + 2);
		fab->devices[i].port = make_port(fab, i);
		if (!fab->devices[i].port)
			goto nomem;
	}
	current_host = 0;
	sv_fabric = fab;
	return 0;
nomem:
	destroy(fab);
	return -ENOMEM;
}

uint32_t sv_stepped_open_contexts(void)
{
	uint32_t n = 0;

	for (uint32_t i = 0; sv_fabric && i < sv_fabric->num_devices; i++)
		n += sv_fabric->devices[i].open_contexts;
	return n;
}

int sv_stepped_close(void)
{
	if (!sv_fabric)
		return -ENOENT;
	if (sv_stepped_open_contexts())
		return -EBUSY;
	destroy(sv_fabric);
	sv_fabric = NULL;
	return 0;
}

/* As when a process ends: the devices it has open are closed with all that belongs to them. */
void sv_stepped_destroy(void)
{
	if (!sv_fabric)
		return;
	for (uint32_t i = 0; i < sv_fabric->num_devices; i++) {
		struct sv_list *contexts = &sv_fabric->devices[i].port->contexts;

		while (!sv_list_empty(contexts))
			sv_free_context(sv_container_of(contexts->next, struct sv_context, link));
	}
	sv_stepped_close();
}

/* ---------------------------------------------------------------- devices */

void sv_stepped_set_host(uint32_t host)
{
	current_host = host;
}

static struct sv_port *get_port(struct sv_device *dev)
{
	struct sv_stepped_device *p;

	if (!sv_fabric) {
		errno = ENODEV;
		return NULL;
	}
	p = sv_stepped_device_at(dev->host, dev->rail);
	sv_stepped_lock();
	p->open_contexts++;
	sv_stepped_unlock();
	return p->port;
}

static void put_port(struct sv_device *dev, struct sv_port *port)
{
	(void)port;
	sv_stepped_lock();
	sv_stepped_device_at(dev->host, dev->rail)->open_contexts--;
	sv_stepped_unlock();
}

static void release_device(struct sv_device *dev)
{
	free(dev);
}

/* A device that died or was taken away is gone from the list until it is revived. */
struct sv_device **sv_stepped_devices(int *num)
{
	struct sv_stepped *fab = sv_fabric;
	struct sv_device **list;
	int n = 0;

	if (!fab)
		return NULL;
	list = calloc(fab->opts.rails + 1, sizeof(struct sv_device *));
	for (uint32_t rail = 0; list && rail < fab->opts.rails; rail++) {
		const struct sv_stepped_device *of = sv_stepped_device_at(current_host, rail);
		struct sv_port *port = of->port;
		struct sv_device *dev;

		if (sv_port_dead(port) || sv_port_leaving(port))
			continue;
		dev = calloc(1, sizeof(*dev));
		if (!dev)
			break;
		sv_device_init(dev, sv_port_cfg(port));
		sv_device_name(rail, of->renamed, dev->ibv.name, sizeof(dev->ibv.name));
		dev->get_port = get_port;
		dev->put_port = put_port;
		dev->release = release_device;
		list[n++] = dev;
	}
	*num = n;
	return list;
}

/* ---------------------------------------------------------------- time */

uint64_t sv_stepped_now(void)
{
	return sv_fabric ? sv_fabric->now_ns : 0;
}

uint64_t sv_stepped_index(void)
{
	return sv_fabric->index;
}

uint64_t sv_stepped_run(uint64_t until_ns)
{
	uint64_t n = 0;
	bool due = true;

	while (due) {
		sv_stepped_lock();
		due = sv_stepped_step_until(sv_fabric, until_ns);
		if (due)
			n++;
		else if (until_ns > sv_fabric->now_ns)
			sv_fabric->now_ns = until_ns;
		sv_stepped_unlock();
	}
	return n;
}

uint64_t sv_stepped_run_idle(uint64_t max_events)
{
	uint64_t n = 0;

	while (n < max_events && sv_stepped_step())
		n++;
	return n;
}

void sv_stepped_set_burst(uint32_t burst_bytes)
{
	uint32_t max = sv_fabric->opts.burst_bytes;

	sv_stepped_lock();
	for (uint32_t i = 0; i < sv_fabric->num_devices; i++)
		sv_port_set_burst(sv_fabric->devices[i].port,
				  burst_bytes < max ? burst_bytes : max);
	sv_stepped_unlock();
}

/* ---------------------------------------------------------------- faults */

/* Under the lock: applications that post in threads of their own look at links and cuts. */
static void act(uint32_t kind, uint32_t host, uint32_t rail)
{
	sv_stepped_lock();
	sv_stepped_act(&(struct sv_action){
	    .kind = kind, .host = host, .rail = rail_of(rail), .phys = phys_of(rail)});
	sv_stepped_unlock();
}

void sv_stepped_link(uint32_t host, uint32_t rail, bool up)
{
	act(up ? SV_FAULT_LINK_UP : SV_FAULT_LINK_DOWN, host, rail);
}

void sv_stepped_link_off(uint32_t host, uint32_t rail)
{
	act(SV_FAULT_LINK_OFF, host, rail);
}

void sv_stepped_leg(uint32_t host, uint32_t rail, uint32_t leg, enum sv_leg_state state)
{
	sv_stepped_lock();
	sv_stepped_act(&(struct sv_action){.kind = SV_FAULT_LEG_DOWN + (uint32_t)state,
					   .host = host,
					   .rail = rail,
					   .leg = leg % SV_LEGS});
	sv_stepped_unlock();
}

int sv_stepped_leg_of(uint32_t host, uint32_t rail, uint32_t qpn)
{
	struct sv_port *port = sv_stepped_device_at(host, rail_of(rail))->port;
	const struct sv_qp *qp;
	int leg;

	sv_port_lock(port);
	qp = sv_port_find_qp(port, qpn);
	leg = qp ? (int)sv_leg_of(qp->sport) : -1;
	sv_port_unlock(port);
	return leg;
}

void sv_stepped_cut(uint32_t rail, bool cut)
{
	act(cut ? SV_FAULT_CUT : SV_FAULT_HEAL, 0, rail);
}

void sv_stepped_block(uint32_t src_host, uint32_t src_rail, uint32_t dst_host, uint32_t dst_rail,
		      bool block)
{
	const struct sv_port_config *src =
	    sv_port_cfg(sv_stepped_device_at(src_host, rail_of(src_rail))->port);
	const struct sv_port_config *dst =
	    sv_port_cfg(sv_stepped_device_at(dst_host, rail_of(dst_rail))->port);
	uint32_t from = phys_of(src_rail), to = phys_of(dst_rail);

	sv_stepped_lock();
	for (uint32_t i = 0; i < src->num_phys; i++)
		for (uint32_t j = 0; j < dst->num_phys; j++)
			if ((from == SV_ANY || from == i) && (to == SV_ANY || to == j))
				sv_fabric->blocked[sv_port_index(src, i) * sv_fabric->num_ports +
						   sv_port_index(dst, j)] = block;
	sv_stepped_unlock();
}

void sv_stepped_kill(uint32_t host, uint32_t rail)
{
	act(SV_FAULT_KILL, host, rail);
}

static void begin_to_leave(uint32_t kind, uint32_t host, uint32_t rail, uint64_t leave_ns)
{
	sv_stepped_lock();
	sv_stepped_act(&(struct sv_action){
	    .kind = kind, .host = host, .rail = rail_of(rail), .leave_ns = leave_ns});
	sv_stepped_unlock();
}

void sv_stepped_disassociate(uint32_t host, uint32_t rail, uint64_t leave_ns)
{
	begin_to_leave(SV_FAULT_DISASSOCIATE, host, rail, leave_ns);
}

void sv_stepped_feign(uint32_t host, uint32_t rail, uint64_t leave_ns)
{
	begin_to_leave(SV_FAULT_FEIGN, host, rail, leave_ns);
}

void sv_stepped_revive(uint32_t host, uint32_t rail)
{
	act(SV_FAULT_REVIVE, host, rail);
}

bool sv_stepped_wedge(uint32_t host, uint32_t rail, uint32_t qpn, bool hard)
{
	struct sv_port *port = sv_stepped_device_at(host, rail_of(rail))->port;
	struct sv_qp *qp;

	sv_port_lock(port);
	qp = sv_port_find_qp(port, qpn);
	if (qp)
		sv_qp_wedge(qp, hard);
	sv_port_unlock(port);
	return qp != NULL;
}

void sv_stepped_set_ece(uint32_t host, uint32_t rail, uint32_t vendor_id, uint32_t options)
{
	struct sv_port *port = sv_stepped_device_at(host, rail_of(rail))->port;

	sv_port_lock(port);
	sv_port_set_ece(port, vendor_id, options);
	sv_port_unlock(port);
}

void sv_stepped_set_gid(uint32_t host, uint32_t rail, uint32_t index, const union ibv_gid *gid)
{
	struct sv_port *port = sv_stepped_device_at(host, rail_of(rail))->port;
	uint32_t phys = phys_of(rail) == SV_ANY ? 0 : phys_of(rail);
	struct sv_gid_entry entry;

	if (index >= SV_MAX_GIDS)
		return;
	sv_port_lock(port);
	entry = sv_port_cfg(port)->phys[phys].gids[index];
	entry.gid = *gid;
	sv_port_set_gid(port, phys, index, &entry);
	sv_port_unlock(port);
}

void sv_stepped_set_pkey(uint32_t host, uint32_t rail, uint32_t index, uint16_t pkey)
{
	struct sv_port *port = sv_stepped_device_at(host, rail_of(rail))->port;

	sv_port_lock(port);
	sv_port_set_pkey(port, phys_of(rail) == SV_ANY ? 0 : phys_of(rail), index, pkey);
	sv_port_unlock(port);
}

void sv_stepped_raise(uint32_t host, uint32_t rail, enum ibv_event_type type)
{
	struct sv_port *port = sv_stepped_device_at(host, rail_of(rail))->port;

	sv_port_lock(port);
	sv_port_raise(port, phys_of(rail) == SV_ANY ? 0 : phys_of(rail), type);
	sv_port_unlock(port);
}

bool sv_stepped_raise_qp(uint32_t host, uint32_t rail, uint32_t qpn, enum ibv_event_type type)
{
	struct sv_port *port = sv_stepped_device_at(host, rail_of(rail))->port;
	struct sv_qp *qp;

	sv_port_lock(port);
	qp = sv_port_find_qp(port, qpn);
	if (qp)
		sv_raise_qp(qp, type);
	sv_port_unlock(port);
	return qp != NULL;
}

int sv_stepped_fault_add(const char *text, char *err, size_t err_size)
{
	int id;

	sv_stepped_lock();
	id = sv_fault_add_text(&sv_fabric->faults, text, err, err_size);
	sv_stepped_unlock();
	return id;
}

int sv_stepped_fault_remove(int id)
{
	return sv_fault_remove(&sv_fabric->faults, id);
}

bool sv_stepped_fault_stats(int id, uint64_t *matched, uint64_t *fired)
{
	const struct sv_fault_rule *rule;

	if (id < 0 || (uint32_t)id >= atomic_load(&sv_fabric->faults.nrules))
		return false;
	rule = &sv_fabric->faults.rules[id];
	*matched = atomic_load(&rule->matched);
	*fired = atomic_load(&rule->fired);
	return true;
}

void sv_stepped_get_stats(struct sv_stepped_stats *stats)
{
	sv_stepped_lock();
	*stats = sv_fabric->stats;
	sv_stepped_unlock();
}

/* The port that a rail, or SV_RAIL_PORT(), names: the first one if it names none. */
static uint32_t port_at(uint32_t host, uint32_t rail)
{
	const struct sv_port_config *cfg =
	    sv_port_cfg(sv_stepped_device_at(host, rail_of(rail))->port);

	return sv_port_index(cfg, phys_of(rail) == SV_ANY ? 0 : phys_of(rail));
}

void sv_stepped_get_traffic(uint32_t host, uint32_t rail, struct sv_stepped_traffic *traffic)
{
	const struct sv_traffic *t;

	sv_stepped_lock();
	t = sv_port_traffic(sv_stepped_device_at(host, rail_of(rail))->port,
			    phys_of(rail) == SV_ANY ? 0 : phys_of(rail));
	*traffic = (struct sv_stepped_traffic){
	    .bytes_out = t->n[SV_TRAFFIC_BYTES_OUT],
	    .packets_out = t->n[SV_TRAFFIC_PACKETS_OUT],
	    .work_requests = t->n[SV_TRAFFIC_WORK_REQUESTS],
	    .bytes_in = t->n[SV_TRAFFIC_BYTES_IN],
	    .packets_in = t->n[SV_TRAFFIC_PACKETS_IN],
	    .receives = t->n[SV_TRAFFIC_RECEIVES],
	    .immediates = t->n[SV_TRAFFIC_IMMEDIATES],
	};
	sv_stepped_unlock();
}

void sv_stepped_get_objects(uint32_t host, uint32_t rail, struct sv_stepped_objects *objects)
{
	const struct sv_stepped_device *device = sv_stepped_device_at(host, rail_of(rail));
	struct sv_port *port = device->port;

	sv_port_lock(port);
	*objects = (struct sv_stepped_objects){
	    .contexts = device->open_contexts,
	    .pds = port->num_pds,
	    .mrs = port->num_mrs,
	    .cqs = port->num_cqs,
	    .qps = port->num_qps,
	    .ahs = port->num_ahs,
	};
	sv_port_unlock(port);
}

void sv_stepped_get_link_stats(uint32_t host, uint32_t rail, uint32_t peer_host, uint32_t peer_rail,
			       struct sv_stepped_link_stats *stats)
{
	const struct sv_link *link;

	sv_stepped_lock();
	link = sv_links_of(&sv_fabric->links, port_at(host, rail), port_at(peer_host, peer_rail));
	*stats = (struct sv_stepped_link_stats){
	    .bytes_out = link->way[SV_OUT].bytes,
	    .packets_out = link->way[SV_OUT].packets,
	    .bytes_in = link->way[SV_IN].bytes,
	    .packets_in = link->way[SV_IN].packets,
	};
	sv_stepped_unlock();
}
