/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This process's RoCE devices; see runtime.h.
 *
 * Everything hangs off one static struct, so that what an application leaves open at exit is still
 * reachable. After fork the child starts over: what it inherited belongs to the parent.
 */
#include "simverbs/roce/runtime.h"

#include "simverbs/profile.h"
#include "simverbs/roce/wire.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_RAILS	  16u
#define DEFAULT_RATE_MBPS 10000u
#define MANY_CORES	  8

static struct {
	/* Protects all of this; taken before any port lock, never under one. */
	pthread_mutex_t lock;
	bool attached;
	uint32_t rails;
	struct sv_roce_interface itfs[MAX_RAILS];
	struct sv_fault_table *faults; /* NULL: no rules */
	enum sv_profile profile;
	const struct sv_roce_io *io;
	struct {
		struct sv_roce_wire *wire;
		unsigned refs;
	} ports[MAX_RAILS];
	bool fork_handler;
} self = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---------------------------------------------------------------- attaching */

static void after_fork_in_child(void)
{
	/* The parent's engine threads are not ours, and its sockets must not outlive it with us. */
	for (uint32_t i = 0; i < MAX_RAILS; i++) {
		struct sv_roce_wire *w = self.ports[i].wire;

		if (w) {
			w->io->close(w);
			sv_roce_interface_close(&w->itf);
			close(w->wake_fd);
		}
	}
	memset(&self.ports, 0, sizeof(self.ports));
	self.attached = false;
	pthread_mutex_init(&self.lock, NULL);
}

static int add_rules_from_env(void)
{
	const char *text = getenv("SIMVERBS_FAULTS");
	char err[256] = "";
	int rc;

	if (!text || !*text)
		return 0;
	if (!self.faults)
		self.faults = calloc(1, sizeof(*self.faults));
	if (!self.faults)
		return -ENOMEM;
	sv_fault_table_init(self.faults, 1);
	self.faults->origin_ns = sv_roce_now_ns();
	rc = sv_fault_add_text(self.faults, text, err, sizeof(err));
	if (rc >= 0)
		return 0;
	fprintf(stderr, "simverbs: SIMVERBS_FAULTS: %s\n", err[0] ? err : strerror(-rc));
	return rc;
}

static int profile_from_env(void)
{
	const char *text = getenv("SIMVERBS_PROFILE");
	int profile;

	self.profile = SV_PROFILE_EXACT;
	if (!text || !*text)
		return 0;
	profile = sv_profile_by_name(text);
	if (profile < 0) {
		fprintf(stderr, "simverbs: SIMVERBS_PROFILE=%s: there are exact and mlx5\n", text);
		return -EINVAL;
	}
	self.profile = (enum sv_profile)profile;
	return 0;
}

static int mode_from_env(void)
{
	const char *text = getenv("SIMVERBS_ROCE_MODE");

	if (!text || !*text || !strcmp(text, "udp")) {
		self.io = &sv_roce_udp;
	} else if (!strcmp(text, "packet")) {
		self.io = &sv_roce_packets;
	} else {
		fprintf(stderr, "simverbs: SIMVERBS_ROCE_MODE=%s: there are udp and packet\n",
			text);
		return -EINVAL;
	}
	return 0;
}

static int interfaces_from(const char *names)
{
	char *text = strdup(names), *rest = text, *name;
	int rc = text ? 0 : -ENOMEM;

	self.rails = 0;
	while (!rc && (name = strsep(&rest, ","))) {
		if (self.rails == MAX_RAILS) {
			fprintf(stderr, "simverbs: SIMVERBS_ROCE: more than %u interfaces\n",
				MAX_RAILS);
			rc = -E2BIG;
		} else {
			rc = sv_roce_interface_init(&self.itfs[self.rails], name);
			self.rails += !rc;
		}
	}
	free(text);
	return rc;
}

/* The lock is held. 0, -ENOSYS when no interface is asked for, or another -errno after a message.
 */
static int attach(void)
{
	const char *names = getenv("SIMVERBS_ROCE");
	int rc;

	if (self.attached)
		return 0;
	if (!names || !*names)
		return -ENOSYS;
	rc = interfaces_from(names);
	if (!rc)
		rc = mode_from_env();
	if (!rc)
		rc = profile_from_env();
	if (!rc)
		rc = add_rules_from_env();
	if (rc)
		return rc;
	if (!self.fork_handler) {
		pthread_atfork(NULL, NULL, after_fork_in_child);
		self.fork_handler = true;
	}
	self.attached = true;
	return 0;
}

/* ---------------------------------------------------------------- what a device is */

/* As an interface's own identifier; of one that has no address, as the loopback's, of its IP. */
static uint64_t guid_of(const struct sv_roce_interface_state *state, uint32_t rail)
{
	static const uint8_t none[6];
	const uint8_t *m = state->mac;
	uint8_t made[6] = {0x02,	 0x53, 0x56, state->gids[1].raw[14], state->gids[1].raw[15],
			   (uint8_t)rail};

	if (!memcmp(m, none, sizeof(none)))
		m = made;
	return (uint64_t)(m[0] ^ 2) << 56 | (uint64_t)m[1] << 48 | (uint64_t)m[2] << 40 |
	       0xfffeull << 24 | (uint64_t)m[3] << 16 | (uint64_t)m[4] << 8 | m[5];
}

static uint32_t rate_of(const char *name)
{
	char path[64];
	long mbps = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/sys/class/net/%s/speed", name);
	file = fopen(path, "re");
	if (file) {
		if (fscanf(file, "%9ld", &mbps) != 1)
			mbps = 0;
		fclose(file);
	}
	return mbps > 0 ? (uint32_t)mbps : DEFAULT_RATE_MBPS;
}

/* An interface may be there several times, with an address each. */
static void name_device(uint32_t rail, char *name, size_t size)
{
	uint32_t before = 0;

	for (uint32_t i = 0; i < rail; i++)
		before += !strcmp(self.itfs[i].name, self.itfs[rail].name);
	if (before)
		snprintf(name, size, "sv_%s_%u", self.itfs[rail].name, before);
	else
		snprintf(name, size, "sv_%s", self.itfs[rail].name);
}

static void fill_config(uint32_t rail, const struct sv_roce_interface_state *state,
			struct sv_port_config *cfg)
{
	const char *gpu = getenv("SIMVERBS_GPU");
	uint32_t packets;

	*cfg = (struct sv_port_config){
	    .index = rail,
	    .devices = SV_NOWHERE,
	    .rail = rail,
	    .rails = self.rails,
	    .link_layer = IBV_LINK_LAYER_ETHERNET,
	    .rate_mbps = rate_of(self.itfs[rail].name),
	    .mtu = sv_roce_path_mtu(state->mtu_bytes),
	    .num_phys = 1,
	    .num_comp_vectors = 16,
	    .no_dmabuf = true,
	    .gpu = gpu && *gpu == '1',
	    .profile = self.profile,
	};
	name_device(rail, cfg->name, sizeof(cfg->name));
	snprintf(cfg->dev_path, sizeof(cfg->dev_path), "/dev/infiniband/uverbs%u", rail);
	snprintf(cfg->ibdev_path, sizeof(cfg->ibdev_path), "/sys/class/infiniband/%.200s",
		 cfg->name);
	cfg->node_guid = cfg->sys_image_guid = htobe64(guid_of(state, rail));
	cfg->phys[0].pkeys[0] = SV_DEFAULT_PKEY;
	cfg->phys[0].num_pkeys = 1;
	cfg->phys[0].state = state->up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
	sv_limits_default(&cfg->limits);
	packets = SV_ROCE_WINDOW_BYTES / (128u << cfg->mtu);
	cfg->window_bursts = packets;
	cfg->window_adapts = true;
}

/* ---------------------------------------------------------------- statistics */

/* SIMVERBS_ROCE_STATS names a file that gets a line of JSON when a device is closed. */
static void write_stats(const struct sv_roce_wire *w)
{
	const char *path = getenv("SIMVERBS_ROCE_STATS");
	struct sv_port_stats st;
	FILE *file = path && *path ? fopen(path, "ae") : NULL;

	if (!file)
		return;
	sv_port_get_stats(w->port, &st);
	fprintf(file, "{\"device\":\"%s\",\"pid\":%d", sv_port_cfg(w->port)->name, (int)getpid());
#define X(name)                                                                                    \
	fprintf(file, ",\"" #name "\":%llu", (unsigned long long)w->counters[SV_ROCE_##name]);
	SV_ROCE_COUNTERS(X)
#undef X
#define X(name) fprintf(file, ",\"" #name "\":%llu", (unsigned long long)st.name);
	X(acks)
	X(naks_seq)
	X(naks_rnr)
	X(naks_other)
	X(retransmits)
	X(timeouts)
	X(rnr_waits)
	X(duplicates)
	X(out_of_sequence)
	X(rx_no_qp)
	X(rx_bad_state)
	X(rx_bad_qkey)
	X(rx_bad_pkey)
	X(rx_ud_no_buffer)
#undef X
	fprintf(file, "}\n");
	fclose(file);
}

/* ---------------------------------------------------------------- ports */

static void free_parts(struct sv_roce_wire *w)
{
	sv_hold_drop_all(&w->hold);
	if (w->port)
		sv_port_destroy(w->port);
	if (w->io_state)
		w->io->close(w);
	sv_roce_interface_close(&w->itf);
	sv_roce_peers_free(&w->peers);
	free(w->out);
	free(w);
}

static int open_port(struct sv_roce_wire *w, uint32_t rail)
{
	struct sv_port_config cfg;
	int rc = sv_roce_interface_watch(&w->itf);

	if (rc)
		return rc;
	sv_roce_interface_read(&w->itf, &w->link);
	rc = w->io->open(w);
	if (rc)
		return rc;
	fill_config(rail, &w->link, &cfg);
	w->port = sv_port_create(&cfg, &sv_roce_wire_ops, w, w->faults);
	if (!w->port)
		return -ENOMEM;
	sv_hold_init(&w->hold, w->port, &sv_roce_hold_ops);
	for (uint32_t i = 0; i < SV_MAX_GIDS; i++)
		sv_port_set_gid(w->port, 0, i,
				&(struct sv_gid_entry){.gid = w->link.gids[i],
						       .type = IBV_GID_TYPE_ROCE_V2,
						       .ndev_ifindex = w->itf.index});
	return sv_roce_thread_start(w);
}

/* The lock is held. NULL with errno. */
static struct sv_roce_wire *wire_new(uint32_t rail)
{
	struct sv_roce_wire *w = calloc(1, sizeof(*w));
	int rc;

	if (!w)
		return NULL;
	w->io = self.io;
	w->itf = self.itfs[rail];
	w->faults = self.faults;
	w->yields = sysconf(_SC_NPROCESSORS_ONLN) < MANY_CORES;
	w->out = calloc(SV_ROCE_BATCH, sizeof(*w->out));
	rc = w->out ? open_port(w, rail) : -ENOMEM;
	if (!rc)
		return w;
	free_parts(w);
	errno = -rc;
	return NULL;
}

static void wire_free(struct sv_roce_wire *w)
{
	sv_roce_thread_stop(w);
	write_stats(w);
	free_parts(w);
}

static struct sv_port *get_port(struct sv_device *dev)
{
	struct sv_port *port = NULL;

	pthread_mutex_lock(&self.lock);
	if (attach()) {
		errno = ENODEV;
	} else {
		if (!self.ports[dev->rail].wire)
			self.ports[dev->rail].wire = wire_new(dev->rail);
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
	struct sv_roce_wire *last = NULL;

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

/* A process that ends without a word has acknowledged what it received all the same. */
__attribute__((destructor)) static void say_the_last(void)
{
	for (uint32_t i = 0; i < self.rails; i++) {
		struct sv_roce_wire *w = self.ports[i].wire;

		if (!w || !sv_port_trylock(w->port))
			continue;
		sv_roce_flush(w);
		sv_port_unlock(w->port);
	}
}

/* ---------------------------------------------------------------- devices */

static void release_device(struct sv_device *dev)
{
	free(dev);
}

static struct sv_device *device_new(uint32_t rail)
{
	struct sv_device *dev = calloc(1, sizeof(*dev));
	struct sv_roce_interface_state state = {0};
	struct sv_port_config cfg;

	if (!dev)
		return NULL;
	sv_roce_interface_read(&self.itfs[rail], &state);
	fill_config(rail, &state, &cfg);
	sv_device_init(dev, &cfg);
	dev->get_port = get_port;
	dev->put_port = put_port;
	dev->release = release_device;
	return dev;
}

struct sv_device **sv_roce_devices(int *num)
{
	struct sv_device **list = NULL;
	int rc;

	*num = 0;
	pthread_mutex_lock(&self.lock);
	rc = attach();
	if (!rc) {
		list = calloc(self.rails + 1, sizeof(*list));
		rc = list ? 0 : -ENOMEM;
	}
	for (uint32_t i = 0; list && i < self.rails; i++) {
		list[i] = device_new(i);
		if (!list[i])
			break;
		(*num)++;
	}
	pthread_mutex_unlock(&self.lock);
	if (rc)
		errno = -rc;
	return list;
}
