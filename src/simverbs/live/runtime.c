/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This process on a live fabric; see runtime.h.
 *
 * Everything hangs off one static struct, so that what an application leaves open at exit is still
 * reachable. After fork the child starts over: what it inherited belongs to the parent.
 */
#include "simverbs/live/runtime.h"

#include "simverbs/live/sysfs.h"
#include "simverbs/live/wire.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <unistd.h>

static struct {
	/* Protects all of this; taken before any port lock, never under one. */
	pthread_mutex_t lock;
	bool attached;
	struct sv_fabric fab;
	unsigned host;
	struct {
		struct sv_wire *wire;
		unsigned refs;
	} ports[SV_MAX_RAILS];
	bool fork_handler;
} self = {.lock = PTHREAD_MUTEX_INITIALIZER, .fab = {.fd = -1}};

/* What a peer reads to find out whether it may read our memory. */
static uint64_t probe_word;

static bool warnings_wanted(void)
{
	return getenv("IBV_SHOW_WARNINGS") != NULL;
}

/* --- attaching ------------------------------------------------------------------------------ */

static void after_fork_in_child(void)
{
	/* The parent's engine threads, slots and rings are not ours. The memory is left alone. */
	memset(&self.ports, 0, sizeof(self.ports));
	self.attached = false;
	self.fab.h = NULL;
	if (self.fab.fd >= 0)
		close(self.fab.fd);
	self.fab.fd = -1;
	pthread_mutex_init(&self.lock, NULL);
}

static int host_from_env(const struct sv_fabric_header *h, unsigned *host)
{
	const char *text = getenv("SIMVERBS_HOST");
	unsigned long n;
	char *end;

	if (!text || !*text)
		text = "0";
	errno = 0;
	n = strtoul(text, &end, 10);
	if (errno || *end || n >= h->hosts) {
		fprintf(stderr, "simverbs: SIMVERBS_HOST=%s: fabric %s has hosts 0 to %u\n", text,
			h->name, h->hosts - 1);
		return -EINVAL;
	}
	*host = (unsigned)n;
	return 0;
}

/* Rules in the environment go into the fabric, once however many processes carry them. */
static int add_rules_from_env(struct sv_fabric *fab)
{
	const char *text = getenv("SIMVERBS_FAULTS");
	char err[256] = "";
	int rc;

	if (!text || !*text)
		return 0;
	rc = sv_fabric_add_faults(fab, text, true, err, sizeof(err));
	if (rc < 0)
		fprintf(stderr, "simverbs: SIMVERBS_FAULTS: %s\n", err[0] ? err : strerror(-rc));
	return rc < 0 ? rc : 0;
}

/* The lock is held. 0, -ENOSYS when no fabric is asked for, or another -errno after a message. */
static int attach(void)
{
	const char *name = getenv("SIMVERBS_FABRIC");
	int rc;

	if (self.attached)
		return 0;
	if (!name || !*name) {
		if (warnings_wanted())
			fprintf(stderr,
				"simverbs: no devices: neither SIMVERBS_FABRIC is set (start "
				"programs with `simverbs run`) nor SIMVERBS_ROCE\n");
		return -ENOSYS;
	}
	rc = sv_fabric_open(name, &self.fab);
	if (rc) {
		fprintf(stderr, "simverbs: fabric %s: %s\n", name,
			rc == -ENOENT ? "not up (simverbs up)"
			: rc == -EPROTO
			    ? "made by another version of simverbs (bring it down and up)"
			    : strerror(-rc));
		return rc;
	}
	rc = host_from_env(self.fab.h, &self.host);
	if (!rc)
		rc = add_rules_from_env(&self.fab);
	if (rc) {
		sv_fabric_close(&self.fab);
		return rc;
	}
	if (!self.fork_handler) {
		pthread_atfork(NULL, NULL, after_fork_in_child);
		self.fork_handler = true;
	}
	/* Let peers read our memory even where only a parent may trace (Yama). */
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
	if (getrandom(&probe_word, sizeof(probe_word), GRND_NONBLOCK) != sizeof(probe_word))
		probe_word = (uint64_t)getpid() << 32 ^ sv_fabric_now_ns(self.fab.h);
	self.attached = true;
	return 0;
}

/* --- ports ---------------------------------------------------------------------------------- */

static enum ibv_mtu mtu_enum(uint32_t bytes)
{
	return bytes >= 4096   ? IBV_MTU_4096
	       : bytes >= 2048 ? IBV_MTU_2048
	       : bytes >= 1024 ? IBV_MTU_1024
	       : bytes >= 512  ? IBV_MTU_512
			       : IBV_MTU_256;
}

/*
 * What a descriptor has at most. On a link that has a rate no more than it carries in a moment:
 * until then nobody else gets in.
 */
static uint32_t burst_bytes(const struct sv_fabric_header *h, unsigned rail)
{
	uint64_t bytes = (uint64_t)h->plan.rate_mbps[rail] * SV_BURST_NS / 8000;

	if (!h->paced || bytes > SV_BURST_BYTES)
		return SV_BURST_BYTES;
	return bytes < SV_BURST_MIN_BYTES ? SV_BURST_MIN_BYTES : (uint32_t)bytes;
}

static void fill_config(const struct sv_fabric_header *h, unsigned device,
			struct sv_port_config *cfg)
{
	const struct sv_fab_device *dev = &h->devices[device];
	unsigned i;

	memset(cfg, 0, sizeof(*cfg));
	cfg->index = device;
	cfg->devices = sv_fabric_devices(h);
	cfg->host = device / h->rails;
	cfg->rail = device % h->rails;
	cfg->rails = h->rails;
	sv_device_name(cfg->rail, atomic_load(&dev->renamed), cfg->name, sizeof(cfg->name));
	sv_sysfs_dev_path(h, device, cfg->dev_path, sizeof(cfg->dev_path));
	sv_sysfs_ibdev_path(h, device, cfg->ibdev_path, sizeof(cfg->ibdev_path));
	cfg->node_guid = htobe64(dev->guid);
	cfg->sys_image_guid = cfg->node_guid;
	cfg->link_layer = h->link_layer == SV_LINK_INFINIBAND ? IBV_LINK_LAYER_INFINIBAND
							      : IBV_LINK_LAYER_ETHERNET;
	cfg->rate_mbps = h->plan.rate_mbps[cfg->rail];
	cfg->mtu = mtu_enum(h->mtu_bytes);
	cfg->num_phys = h->num_phys;
	for (i = 0; i < h->num_phys; i++) {
		const struct sv_fab_port *port = &h->ports[sv_fab_port_index(h, device, i)];

		cfg->phys[i] = port->cfg;
		cfg->phys[i].state = atomic_load(&port->link_up) ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
	}
	sv_limits_default(&cfg->limits);
	sv_limits_set(&cfg->limits, &h->limits);
	if (cfg->limits.max_qp > SV_QPN_INDEX_MAX)
		cfg->limits.max_qp = SV_QPN_INDEX_MAX;
	cfg->burst_bytes = burst_bytes(h, cfg->rail);
	cfg->window_bursts = SV_WINDOW_BYTES / cfg->burst_bytes;
	cfg->seed = h->seed + device;
	cfg->num_comp_vectors = 16;
	cfg->ece_vendor = SV_ECE_VENDOR;
	cfg->ece_options = SV_ECE_OPTIONS;
	cfg->no_dmabuf = !h->dmabuf;
	cfg->pin = h->pin;
	cfg->gpu = h->gpu;
	cfg->profile = h->profile;
}

/* SIMVERBS_SPIN_US: how long an engine watches for more packets before it sleeps. */
static uint64_t spin_from_env(uint64_t default_ns)
{
	const char *text = getenv("SIMVERBS_SPIN_US");
	unsigned long us;
	char *end;

	if (!text || !*text)
		return default_ns;
	us = strtoul(text, &end, 10);
	if (*end || us > 1000000) {
		fprintf(stderr,
			"simverbs: SIMVERBS_SPIN_US=%s: not a number up to 1000000; ignored\n",
			text);
		return default_ns;
	}
	return us * 1000;
}

/* The lock is held. */
static struct sv_wire *wire_new(unsigned device)
{
	struct sv_port_config cfg;
	/* Mostly zeros that are never touched: pages come as they are used. */
	struct sv_wire *w =
	    mmap(NULL, sizeof(*w), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int slot, rc;

	if (w == MAP_FAILED)
		return NULL;
	slot = sv_slot_claim(&self.fab, device);
	if (slot < 0) {
		rc = slot;
		goto err_memory;
	}
	w->fab = &self.fab;
	w->h = self.fab.h;
	w->slot = (unsigned)slot;
	w->me = &w->h->slots[slot];
	w->device = device;
	w->generation = atomic_load(&w->me->generation);
	w->pid = getpid();
	w->yields = sysconf(_SC_NPROCESSORS_ONLN) < SV_MANY_CORES;
	w->spin_ns = spin_from_env(w->yields ? SV_SPIN_YIELD_NS : SV_SPIN_NS);
	w->grace_ns = w->yields ? SV_GRACE_YIELD_NS : SV_GRACE_NS;
	w->no_cma = getenv("SIMVERBS_NO_CMA") && *getenv("SIMVERBS_NO_CMA") == '1';
	atomic_store(&w->me->probe_address, (uintptr_t)&probe_word);
	atomic_store(&w->me->probe_value, probe_word);
	fill_config(w->h, device, &cfg);
	cfg.traffic = w->me->traffic;
	w->paced = w->h->paced;
	cfg.links = w->paced ? &w->fab->links : NULL;
	w->burst_bytes = cfg.burst_bytes;
	atomic_store(&w->due_ns, UINT64_MAX);
	w->port = sv_port_create(&cfg, &sv_live_wire_ops, w, &w->h->faults);
	if (!w->port) {
		rc = errno ? -errno : -ENOMEM;
		goto err_slot;
	}
	sv_hold_init(&w->hold, w->port, &sv_live_hold_ops);
	sv_port_lock(w->port);
	sv_control_sync(w);
	sv_port_unlock(w->port);
	rc = sv_thread_start(w);
	if (rc)
		goto err_port;
	return w;

err_port:
	sv_port_destroy(w->port);
err_slot:
	sv_slot_release(&self.fab, w->slot);
err_memory:
	munmap(w, sizeof(*w));
	errno = -rc;
	return NULL;
}

static void wire_free(struct sv_wire *w)
{
	sv_thread_stop(w);
	sv_hold_drop_all(&w->hold);
	sv_port_destroy(w->port);
	sv_wire_close_rings(w);
	sv_slot_release(w->fab, w->slot);
	munmap(w, sizeof(*w));
}

static struct sv_port *get_port(struct sv_device *dev)
{
	struct sv_port *port = NULL;

	pthread_mutex_lock(&self.lock);
	if (attach()) {
		errno = ENODEV;
	} else {
		if (!self.ports[dev->rail].wire)
			self.ports[dev->rail].wire =
			    wire_new(self.host * self.fab.h->rails + dev->rail);
		if (self.ports[dev->rail].wire) {
			self.ports[dev->rail].refs++;
			port = self.ports[dev->rail].wire->port;
		}
	}
	pthread_mutex_unlock(&self.lock);
	return port;
}

static void put_port(struct sv_device *dev, struct sv_port *port)
{
	struct sv_wire *last = NULL;

	pthread_mutex_lock(&self.lock);
	/* Not ours when the context was inherited over a fork. */
	if (self.ports[dev->rail].wire && self.ports[dev->rail].wire->port == port &&
	    --self.ports[dev->rail].refs == 0) {
		last = self.ports[dev->rail].wire;
		self.ports[dev->rail].wire = NULL;
	}
	if (last)
		wire_free(last);
	pthread_mutex_unlock(&self.lock);
}

/* --- devices -------------------------------------------------------------------------------- */

static void release_device(struct sv_device *dev)
{
	free(dev);
}

struct sv_device **sv_live_devices(int *num)
{
	struct sv_device **list = NULL;
	unsigned i;
	int rc;

	*num = 0;
	pthread_mutex_lock(&self.lock);
	rc = attach();
	if (rc)
		goto out;
	list = calloc(self.fab.h->rails + 1, sizeof(*list));
	for (i = 0; list && i < self.fab.h->rails; i++) {
		struct sv_port_config cfg;

		list[i] = calloc(1, sizeof(**list));
		if (!list[i])
			break;
		fill_config(self.fab.h, self.host * self.fab.h->rails + i, &cfg);
		sv_device_init(list[i], &cfg);
		list[i]->get_port = get_port;
		list[i]->put_port = put_port;
		list[i]->release = release_device;
		(*num)++;
	}
	rc = list ? 0 : -ENOMEM;
out:
	pthread_mutex_unlock(&self.lock);
	if (rc)
		errno = -rc;
	return list;
}
