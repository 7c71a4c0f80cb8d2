/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making, opening and removing a fabric's file; its lock; claiming endpoints.
 */
#include "simverbs/live/fabric.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LOCK_LIMIT_S 5

const char *const sv_counter_names[SV_CNT_COUNT] = {
    [SV_CNT_TX_PACKETS] = "tx_packets",
    [SV_CNT_TX_BYTES] = "tx_bytes",
    [SV_CNT_RX_PACKETS] = "rx_packets",
    [SV_CNT_RX_BYTES] = "rx_bytes",
    [SV_CNT_DROP_LINK] = "drop_link",
    [SV_CNT_DROP_LEG] = "drop_leg",
    [SV_CNT_DROP_CUT] = "drop_cut",
    [SV_CNT_DROP_NO_PEER] = "drop_no_peer",
    [SV_CNT_DROP_FAULT] = "drop_fault",
    [SV_CNT_DROP_PAYLOAD] = "drop_payload",
    [SV_CNT_RING_FULL] = "ring_full",
    [SV_CNT_COPY_DIRECT] = "copy_direct_bytes",
    [SV_CNT_COPY_SHARED] = "copy_shared_bytes",
    [SV_CNT_CMA_REFUSED] = "cma_refused",
    [SV_CNT_CMA_FAULTS] = "cma_faults",
    [SV_CNT_ENGINE_WAKES] = "engine_wakes",
    [SV_CNT_RETRANSMITS] = "retransmits",
    [SV_CNT_TIMEOUTS] = "timeouts",
    [SV_CNT_RNR_WAITS] = "rnr_waits",
    [SV_CNT_NAKS_SENT] = "naks_sent",
    [SV_CNT_DUPLICATES] = "duplicates",
    [SV_CNT_OUT_OF_SEQUENCE] = "out_of_sequence",
    [SV_CNT_COMPLETIONS] = "completions",
};

const char *const sv_traffic_names[SV_TRAFFIC_KINDS] = {
    [SV_TRAFFIC_BYTES_OUT] = "bytes_out",	  [SV_TRAFFIC_PACKETS_OUT] = "packets_out",
    [SV_TRAFFIC_WORK_REQUESTS] = "work_requests", [SV_TRAFFIC_BYTES_IN] = "bytes_in",
    [SV_TRAFFIC_PACKETS_IN] = "packets_in",	  [SV_TRAFFIC_RECEIVES] = "receives",
    [SV_TRAFFIC_IMMEDIATES] = "immediates",
};

static const char *base_dir(void)
{
	const char *dir = getenv("SIMVERBS_DIR");

	return dir && *dir ? dir : "/dev/shm";
}

/* A name becomes part of a path and of a shell line: keep it plain. */
static bool name_is_plain(const char *name)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				    "0123456789_.-";
	size_t len = strlen(name);

	return len > 0 && len < SV_NAME_MAX && name[0] != '.' && strspn(name, plain) == len;
}

static int make_path(const char *name, const char *suffix, char *buf, size_t len)
{
	int n;

	if (!name_is_plain(name))
		return -EINVAL;
	n = snprintf(buf, len, "%s/simverbs-%u-%s%s", base_dir(), (unsigned)getuid(), name, suffix);
	return n < 0 || (size_t)n >= len ? -ENAMETOOLONG : 0;
}

int sv_fabric_path(const char *name, char *buf, size_t len)
{
	return make_path(name, "", buf, len);
}

int sv_fabric_tree_path(const char *name, char *buf, size_t len)
{
	return make_path(name, ".sys", buf, len);
}

/* --- the lock ------------------------------------------------------------------------------- */

static int lock_init(pthread_mutex_t *lock)
{
	pthread_mutexattr_t attr;
	int rc = pthread_mutexattr_init(&attr);

	if (rc)
		return -rc;
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
	rc = pthread_mutex_init(lock, &attr);
	pthread_mutexattr_destroy(&attr);
	return -rc;
}

int sv_fabric_lock(struct sv_fabric *fab)
{
	struct timespec until;
	int rc;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += LOCK_LIMIT_S;
	rc = pthread_mutex_timedlock(&fab->h->lock, &until);
	if (rc == EOWNERDEAD) {
		/* The holder was killed. Each of its stores left a state that we can go on from. */
		pthread_mutex_consistent(&fab->h->lock);
		return 0;
	}
	if (rc)
		fprintf(
		    stderr,
		    "simverbs: fabric %s: its lock is held for over %d s by a process that does "
		    "not run; bring the fabric down and up again\n",
		    fab->h->name, LOCK_LIMIT_S);
	return -rc;
}

void sv_fabric_unlock(struct sv_fabric *fab)
{
	pthread_mutex_unlock(&fab->h->lock);
}

/* --- create, open, destroy ------------------------------------------------------------------ */

static uint64_t monotonic_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

uint64_t sv_fabric_now_ns(const struct sv_fabric_header *h)
{
	return monotonic_ns() - h->epoch_ns;
}

static void set_gid(struct sv_phys_config *phys, unsigned index, const uint8_t raw[16],
		    enum ibv_gid_type type)
{
	memcpy(phys->gids[index].gid.raw, raw, 16);
	phys->gids[index].type = type;
	if (index >= phys->num_gids)
		phys->num_gids = index + 1;
}

/*
 * Addresses of a port. On Ethernet as drivers list them: the link-local address and the IPv4
 * address, each as RoCE v1 and v2. On InfiniBand: the subnet prefix and the GUID, and a LID.
 */
static void fill_port(struct sv_fabric_header *h, const struct sv_fabric_options *opt,
		      unsigned device, unsigned index)
{
	struct sv_fab_port *port = &h->ports[sv_fab_port_index(h, device, index)];
	unsigned host = device / h->rails, rail = device % h->rails;
	uint8_t link_local[16] = {0xfe, 0x80};
	uint8_t ipv4[16] = {
	    [10] = 0xff, [11] = 0xff, [12] = 10, [13] = (uint8_t)rail, [15] = (uint8_t)(host + 1)};
	/* MAC 02:53:56:PP:HH:RR (locally administered), as EUI-64: */
	uint8_t eui[8] = {0x00, 0x53,		0x56,	       0xff,
			  0xfe, (uint8_t)index, (uint8_t)host, (uint8_t)rail};

	atomic_store_explicit(&port->link_up, 1, memory_order_relaxed);
	sv_pkeys_parse(opt->pkeys, rail * h->num_phys + index, &port->cfg);
	if (h->link_layer == SV_LINK_INFINIBAND) {
		unsigned subnets = opt->subnets ? opt->subnets : 1;
		unsigned lid = index * sv_fabric_devices(h) + host / subnets * h->rails + rail + 1;

		port->cfg.grh_required = opt->grh_required;
		sv_phys_infiniband(&port->cfg, h->devices[device].guid + ((uint64_t)index << 48),
				   lid, opt->subnets ? host % subnets + 1 : 0);
		return;
	}
	ipv4[14] = sv_islands_octet(&h->islands, host, rail, index);
	memcpy(link_local + 8, eui, sizeof(eui));
	set_gid(&port->cfg, 0, link_local, IBV_GID_TYPE_ROCE_V1);
	set_gid(&port->cfg, 1, link_local, IBV_GID_TYPE_ROCE_V2);
	set_gid(&port->cfg, 2, ipv4, IBV_GID_TYPE_ROCE_V1);
	set_gid(&port->cfg, 3, ipv4, IBV_GID_TYPE_ROCE_V2);
}

static void fill_device(struct sv_fabric_header *h, const struct sv_fabric_options *opt,
			unsigned index)
{
	unsigned host = index / h->rails, rail = index % h->rails, i;

	h->devices[index].guid = 0x5356000000000000ull | (uint64_t)(host + 1) << 16 | (rail + 1);
	for (i = 0; i < h->num_phys; i++)
		fill_port(h, opt, index, i);
}

static uint64_t whole_pages(uint64_t bytes)
{
	return (bytes + 4095) & ~(uint64_t)4095;
}

static struct sv_link_plan plan_of(const struct sv_fabric_options *opt)
{
	struct sv_link_plan plan = {
	    .devices = (opt->hosts + opt->aggregators) * opt->rails,
	    .plain_devices = opt->hosts * opt->rails,
	    .rails = opt->rails,
	    .ports = opt->ports ? opt->ports : 1,
	};

	memcpy(plan.rate_mbps, opt->rate_mbps, sizeof(plan.rate_mbps));
	memcpy(plan.latency_ns, opt->latency_ns, sizeof(plan.latency_ns));
	return plan;
}

/* Bytes of the file before the rings. */
static uint64_t bytes_before_rings(const struct sv_fabric_options *opt)
{
	const struct sv_link_plan plan = plan_of(opt);
	uint64_t bytes = whole_pages(sizeof(struct sv_fabric_header));

	if (opt->paced)
		bytes += whole_pages(sv_links_number(&plan) * sizeof(struct sv_link));
	return bytes;
}

static int fill_header(struct sv_fabric_header *h, const struct sv_fabric_options *opt)
{
	unsigned i;
	int rc;

	h->version = SV_FABRIC_VERSION;
	h->header_bytes = sizeof(*h);
	snprintf(h->name, sizeof(h->name), "%s", opt->name);
	h->hosts = opt->hosts + opt->aggregators;
	h->rails = opt->rails;
	h->plan = plan_of(opt);
	h->num_phys = h->plan.ports;
	h->paced = opt->paced;
	h->link_layer = opt->link_layer;
	h->subnets = opt->subnets;
	h->mtu_bytes = opt->mtu_bytes;
	h->dmabuf = opt->dmabuf;
	h->pin = opt->pin;
	h->gpu = opt->gpu;
	h->profile = opt->profile;
	h->limits = opt->limits;
	h->seed = opt->seed;
	h->link_offset = whole_pages(sizeof(*h));
	h->ring_offset = bytes_before_rings(opt);
	rc = -sv_islands_parse(opt->islands, h->hosts, &h->islands);
	if (rc)
		return rc;
	rc = sv_fabric_tree_path(opt->name, h->sysfs, sizeof(h->sysfs));
	if (rc)
		return rc;
	rc = lock_init(&h->lock);
	if (rc)
		return rc;
	for (i = 0; i < sv_fabric_devices(h); i++)
		fill_device(h, opt, i);
	sv_fault_table_init(&h->faults, opt->seed);
	h->epoch_ns = monotonic_ns();
	atomic_store_explicit(&h->state, SV_FABRIC_UP, memory_order_release);
	h->magic = SV_FABRIC_MAGIC;
	return 0;
}

static int map_file(int fd, size_t bytes, struct sv_fabric *out)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED)
		return -errno;
	out->fd = fd;
	out->mapped_bytes = bytes;
	out->h = p;
	return 0;
}

static void find_links(struct sv_fabric *fab)
{
	fab->links = (struct sv_links){.plan = &fab->h->plan, .shared = true};
	if (fab->h->paced)
		fab->links.links = (struct sv_link *)(void *)((char *)fab->h + fab->h->link_offset);
}

/* The header is mapped, and sound: the links, too. */
static int map_links(struct sv_fabric *fab)
{
	size_t bytes = fab->h->ring_offset;
	int rc = 0;

	if (bytes > fab->mapped_bytes) {
		munmap(fab->h, fab->mapped_bytes);
		rc = map_file(fab->fd, bytes, fab);
	}
	if (!rc)
		find_links(fab);
	return rc;
}

static int check_options(const struct sv_fabric_options *opt)
{
	unsigned hosts = opt->hosts + opt->aggregators;

	if (!opt->hosts || opt->hosts > SV_MAX_HOSTS || opt->aggregators > SV_MAX_HOSTS ||
	    hosts > SV_MAX_HOSTS || !opt->rails || opt->rails > SV_MAX_RAILS ||
	    hosts * opt->rails > SV_MAX_DEVICES || opt->ports > SV_MAX_PHYS)
		return -ERANGE;
	return 0;
}

int sv_fabric_create(const struct sv_fabric_options *opt, struct sv_fabric *out)
{
	char path[PATH_MAX], tmp[PATH_MAX + 16];
	int fd, rc = check_options(opt);

	if (!rc)
		rc = sv_fabric_path(opt->name, path, sizeof(path));
	if (rc)
		return rc;
	/* Made under another name, then linked: nobody ever opens a half-made fabric. */
	snprintf(tmp, sizeof(tmp), "%s.%d", path, (int)getpid());
	fd = open(tmp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	/* Really allocated: a full /dev/shm must be an error now, not a SIGBUS later. */
	rc = -posix_fallocate(fd, 0, (off_t)bytes_before_rings(opt));
	if (!rc)
		rc = map_file(fd, bytes_before_rings(opt), out);
	if (rc)
		goto err_file;
	rc = fill_header(out->h, opt);
	if (rc)
		goto err_map;
	find_links(out);
	if (out->h->paced)
		sv_links_init(&out->links);
	if (link(tmp, path)) {
		rc = -errno;
		goto err_map;
	}
	unlink(tmp);
	return 0;

err_map:
	munmap(out->h, out->mapped_bytes);
err_file:
	unlink(tmp);
	close(fd);
	return rc;
}

int sv_fabric_open(const char *name, struct sv_fabric *out)
{
	char path[PATH_MAX];
	struct stat st;
	int fd, rc = sv_fabric_path(name, path, sizeof(path));

	if (rc)
		return rc;
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	rc = fstat(fd, &st) ? -errno : 0;
	if (!rc && (size_t)st.st_size < sizeof(struct sv_fabric_header))
		rc = -EPROTO;
	if (!rc)
		rc = map_file(fd, sizeof(struct sv_fabric_header), out);
	if (rc)
		goto err_fd;
	if (out->h->magic != SV_FABRIC_MAGIC || out->h->version != SV_FABRIC_VERSION ||
	    out->h->header_bytes != sizeof(struct sv_fabric_header)) {
		munmap(out->h, out->mapped_bytes);
		rc = -EPROTO;
		goto err_fd;
	}
	rc = map_links(out);
	if (rc)
		goto err_fd;
	return 0;

err_fd:
	close(fd);
	return rc;
}

void sv_fabric_close(struct sv_fabric *fab)
{
	if (fab->h)
		munmap(fab->h, fab->mapped_bytes);
	if (fab->h && fab->fd >= 0)
		close(fab->fd);
	fab->h = NULL;
	fab->fd = -1;
}

int sv_fabric_destroy(const char *name)
{
	char path[PATH_MAX];
	struct sv_fabric fab;
	int rc = sv_fabric_path(name, path, sizeof(path));

	if (rc)
		return rc;
	/* No lock: this must work whatever became of its holder. */
	if (!sv_fabric_open(name, &fab)) {
		atomic_store(&fab.h->state, SV_FABRIC_DOWN);
		sv_fabric_notify(&fab);
		sv_fabric_close(&fab);
	}
	return unlink(path) ? -errno : 0;
}

/* --- endpoints ------------------------------------------------------------------------------ */

/* Field 22 of /proc/PID/stat: start time in ticks since boot. 0: no such process. */
static uint64_t process_start_time(pid_t pid)
{
	char path[64], buf[1024];
	unsigned long long ticks;
	ssize_t n;
	char *p;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	n = read(fd, buf, sizeof(buf) - 1);
	close(fd);
	if (n <= 0)
		return 0;
	buf[n] = '\0';
	p = strrchr(buf, ')'); /* the command's name may hold anything */
	if (!p || p[1] == '\0' || p[2] == 'Z' || p[2] == 'X')
		return 0;
	/* After the name: state is field 3, start time field 22. */
	if (sscanf(p + 2,
		   "%*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
		   "%*s %*s %llu",
		   &ticks) != 1)
		return 0;
	return ticks;
}

bool sv_slot_alive(const struct sv_slot *slot)
{
	pid_t pid = atomic_load(&slot->pid);
	uint64_t started = atomic_load(&slot->start_time);

	return pid > 0 && started && process_start_time(pid) == started;
}

/* The lock is held. */
static void slot_free(struct sv_fabric_header *h, struct sv_slot *slot)
{
	struct sv_fab_device *dev = &h->devices[atomic_load(&slot->device)];
	unsigned phys;
	int i;

	atomic_store(&slot->state, SV_SLOT_FREE);
	atomic_store(&slot->qps, 0);
	atomic_store(&slot->cqs, 0);
	atomic_store(&slot->mrs, 0);
	for (i = 0; i < SV_CNT_COUNT; i++)
		atomic_fetch_add(&dev->counters[i], atomic_exchange(&slot->counters[i], 0));
	for (phys = 0; phys < h->num_phys; phys++) {
		struct sv_traffic *sum =
		    &h->traffic[sv_fab_port_index(h, atomic_load(&slot->device), phys)];

		for (i = 0; i < SV_TRAFFIC_KINDS; i++)
			sum->n[i] += slot->traffic[phys].n[i];
		memset(&slot->traffic[phys], 0, sizeof(slot->traffic[phys]));
	}
}

unsigned sv_slot_reap(struct sv_fabric *fab)
{
	unsigned i, reaped = 0;

	for (i = 0; i < SV_MAX_SLOTS; i++) {
		struct sv_slot *slot = &fab->h->slots[i];

		if (atomic_load(&slot->state) == SV_SLOT_LIVE && !sv_slot_alive(slot)) {
			slot_free(fab->h, slot);
			reaped++;
		}
	}
	return reaped;
}

static int free_slot(const struct sv_fabric_header *h)
{
	int i;

	/* Slot 0 stays empty, so that queue pair numbers 0 and 1 never arise. */
	for (i = 1; i < SV_MAX_SLOTS; i++)
		if (atomic_load(&h->slots[i].state) == SV_SLOT_FREE)
			return i;
	return -ENOSPC;
}

int sv_slot_claim(struct sv_fabric *fab, unsigned device)
{
	struct sv_slot *slot;
	int i, w, rc = sv_fabric_lock(fab);

	if (rc)
		return rc;
	sv_slot_reap(fab);
	i = free_slot(fab->h);
	if (i < 0)
		goto out;
	slot = &fab->h->slots[i];
	atomic_store(&slot->device, device);
	atomic_store(&slot->pid, getpid());
	atomic_store(&slot->start_time, process_start_time(getpid()));
	atomic_store(&slot->engine, SV_ENGINE_AWAKE);
	atomic_store(&slot->polled_ns, 0);
	for (w = 0; w < SV_SLOT_WORDS; w++)
		atomic_store(&slot->pending[w], 0);
	atomic_fetch_add(&slot->generation, 1);
	atomic_store(&slot->state, SV_SLOT_LIVE);
out:
	sv_fabric_unlock(fab);
	return i;
}

void sv_slot_release(struct sv_fabric *fab, unsigned slot)
{
	/* Without the lock the slot stays claimed until this process is gone and is reaped. */
	if (sv_fabric_lock(fab))
		return;
	slot_free(fab->h, &fab->h->slots[slot]);
	sv_fabric_unlock(fab);
}

void sv_slot_wake(struct sv_slot *slot)
{
	/*
	 * The engine reads wake_seq, works, says that it is not awake and goes to bed for that
	 * value of wake_seq. So it either finds it changed, or has said so before we look.
	 */
	atomic_fetch_add_explicit(&slot->wake_seq, 1, memory_order_seq_cst);
	if (atomic_load_explicit(&slot->engine, memory_order_seq_cst) != SV_ENGINE_AWAKE)
		syscall(SYS_futex, (uint32_t *)&slot->wake_seq, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void sv_fabric_notify(struct sv_fabric *fab)
{
	int i;

	for (i = 1; i < SV_MAX_SLOTS; i++) {
		struct sv_slot *slot = &fab->h->slots[i];

		if (atomic_load(&slot->state) != SV_SLOT_LIVE)
			continue;
		atomic_fetch_add(&slot->control, 1);
		sv_slot_wake(slot);
	}
}

/* --- fault rules ---------------------------------------------------------------------------- */

static uint64_t hash_text(const char *text)
{
	uint64_t hash = 0xcbf29ce484222325ull; /* FNV-1a */

	while (*text)
		hash = (hash ^ (uint8_t)*text++) * 0x100000001b3ull;
	return hash;
}

/* Remembers a text; true when it was here before. The lock is held. */
static bool seen_before(struct sv_fabric_header *h, const char *text)
{
	uint64_t hash = hash_text(text);
	unsigned i;

	for (i = 0; i < h->num_once; i++)
		if (h->once[i] == hash)
			return true;
	if (h->num_once < SV_MAX_ONCE)
		h->once[h->num_once++] = hash;
	return false;
}

int sv_fabric_add_faults(struct sv_fabric *fab, const char *text, bool once, char *err,
			 size_t err_size)
{
	int rc = sv_fabric_lock(fab);

	if (rc)
		return rc;
	/* Whoever says at=2s to a fabric that has been up for a day means two seconds from now. */
	fab->h->faults.origin_ns = sv_fabric_now_ns(fab->h);
	if (!once || !seen_before(fab->h, text))
		rc = sv_fault_add_text(&fab->h->faults, text, err, err_size);
	sv_fabric_unlock(fab);
	if (rc >= 0)
		sv_fabric_notify(fab);
	return rc;
}
