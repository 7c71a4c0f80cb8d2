/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing the sysfs-like tree; see sysfs.h.
 */
#include "simverbs/live/sysfs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A directory being filled: errors stick, so that the caller checks once. */
struct dir {
	char path[PATH_MAX];
	int error;
};

static void make_parents(struct dir *d)
{
	char part[PATH_MAX];
	char *slash;

	snprintf(part, sizeof(part), "%s", d->path);
	for (slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		if (mkdir(part, 0700) && errno != EEXIST && !d->error)
			d->error = -errno;
		*slash = '/';
	}
	if (mkdir(part, 0700) && errno != EEXIST && !d->error)
		d->error = -errno;
}

static void dir_open(struct dir *d, int error, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void dir_open(struct dir *d, int error, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(d->path, sizeof(d->path), fmt, ap);
	va_end(ap);
	d->error = error;
	make_parents(d);
}

static void put(struct dir *d, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void put(struct dir *d, const char *name, const char *fmt, ...)
{
	char path[PATH_MAX + 64], text[256];
	va_list ap;
	int fd, n;

	va_start(ap, fmt);
	n = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	snprintf(path, sizeof(path), "%s/%s", d->path, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, text, (size_t)n) != n)
		d->error = d->error ? d->error : -errno;
	if (fd >= 0)
		close(fd);
}

static void put_link(struct dir *d, const char *name, const char *target)
{
	char path[PATH_MAX + 64];

	snprintf(path, sizeof(path), "%s/%s", d->path, name);
	if (symlink(target, path) && errno != EEXIST && !d->error)
		d->error = -errno;
}

/* --- paths ---------------------------------------------------------------------------------- */

void sv_sysfs_host_path(const struct sv_fabric_header *h, unsigned host, char *buf, size_t len)
{
	snprintf(buf, len, "%s/%u/sys", h->sysfs, host);
}

static void class_path(const struct sv_fabric_header *h, unsigned device, unsigned renamed,
		       char *buf, size_t len)
{
	char name[IBV_SYSFS_NAME_MAX];

	sv_device_name(device % h->rails, renamed, name, sizeof(name));
	snprintf(buf, len, "%s/%u/sys/class/infiniband/%s", h->sysfs, device / h->rails, name);
}

void sv_sysfs_ibdev_path(const struct sv_fabric_header *h, unsigned device, char *buf, size_t len)
{
	class_path(h, device, atomic_load(&h->devices[device].renamed), buf, len);
}

void sv_sysfs_dev_path(const struct sv_fabric_header *h, unsigned device, char *buf, size_t len)
{
	snprintf(buf, len, "%s/%u/sys/class/infiniband_verbs/uverbs%u", h->sysfs, device / h->rails,
		 device % h->rails);
}

/* Below <host>/sys. One PCI root complex per rail: bus 0x10, 0x20, ...; the card is one bus on. */
static void pci_path(unsigned rail, char *buf, size_t len)
{
	unsigned bus = 0x10 * (rail + 1) & 0xff;

	snprintf(buf, len, "devices/pci%04x:%02x/%04x:%02x:01.0/%04x:%02x:00.0", rail / 15, bus,
		 rail / 15, bus, rail / 15, bus + 1);
}

/* --- contents ------------------------------------------------------------------------------- */

static void format_guid(uint64_t guid, char *buf, size_t len)
{
	snprintf(buf, len, "%04x:%04x:%04x:%04x", (unsigned)(guid >> 48) & 0xffff,
		 (unsigned)(guid >> 32) & 0xffff, (unsigned)(guid >> 16) & 0xffff,
		 (unsigned)guid & 0xffff);
}

static void format_gid(const union ibv_gid *gid, char *buf, size_t len)
{
	size_t at = 0;
	int i;

	for (i = 0; i < 16 && at < len; i += 2)
		at += (size_t)snprintf(buf + at, len - at, "%s%02x%02x", i ? ":" : "", gid->raw[i],
				       gid->raw[i + 1]);
}

static void put_link_state(struct dir *port, const struct sv_fabric_header *h, unsigned device,
			   bool up)
{
	put(port, "state", up ? "4: ACTIVE\n" : "1: DOWN\n");
	put(port, "phys_state", up ? "5: LinkUp\n" : "3: Disabled\n");
	put(port, "rate", "%.10g Gb/sec (4X)\n", h->plan.rate_mbps[device % h->rails] / 1000.0);
}

static int make_port(const struct sv_fabric_header *h, unsigned device, unsigned phys,
		     const char *ibdev)
{
	const struct sv_phys_config *cfg = &h->ports[sv_fab_port_index(h, device, phys)].cfg;
	bool ethernet = h->link_layer == SV_LINK_ETHERNET;
	struct dir port, gids, types, ndevs, pkeys;
	uint32_t i;

	dir_open(&port, 0, "%s/ports/%u", ibdev, phys + 1);
	put_link_state(&port, h, device, true);
	put(&port, "lid", "0x%x\n", cfg->lid);
	put(&port, "lid_mask_count", "0\n");
	put(&port, "sm_lid", "0x%x\n", ethernet ? 0 : 1);
	put(&port, "sm_sl", "0\n");
	put(&port, "cap_mask", "0x%08x\n", ethernet ? 0x04010000 : 0x02514868);
	put(&port, "link_layer", "%s\n", ethernet ? "Ethernet" : "InfiniBand");
	dir_open(&gids, port.error, "%s/ports/%u/gids", ibdev, phys + 1);
	dir_open(&types, gids.error, "%s/ports/%u/gid_attrs/types", ibdev, phys + 1);
	dir_open(&ndevs, types.error, "%s/ports/%u/gid_attrs/ndevs", ibdev, phys + 1);
	for (i = 0; i < cfg->num_gids; i++) {
		char name[16], text[64];

		snprintf(name, sizeof(name), "%u", i);
		format_gid(&cfg->gids[i].gid, text, sizeof(text));
		put(&gids, name, "%s\n", text);
		put(&types, name, "%s\n",
		    cfg->gids[i].type == IBV_GID_TYPE_ROCE_V2 ? "RoCE v2" : "IB/RoCE v1");
		if (ethernet)
			put(&ndevs, name, "eth%u\n", device % h->rails);
	}
	dir_open(&pkeys, ndevs.error, "%s/ports/%u/pkeys", ibdev, phys + 1);
	for (i = 0; i < cfg->num_pkeys; i++) {
		char name[16];

		snprintf(name, sizeof(name), "%u", i);
		put(&pkeys, name, "0x%04x\n", cfg->pkeys[i]);
	}
	return pkeys.error ? pkeys.error
			   : (ndevs.error ? ndevs.error : (types.error ? types.error : gids.error));
}

static int make_pci(const struct sv_fabric_header *h, unsigned device, const char *pci)
{
	unsigned rail = device % h->rails;
	struct dir d;

	dir_open(&d, 0, "%s", pci);
	put(&d, "vendor", "0x02c9\n");
	put(&d, "device", "0x5356\n");
	put(&d, "class", "0x020000\n");
	put(&d, "numa_node", "%u\n", rail / 2);
	put(&d, "local_cpulist", "0-%ld\n", sysconf(_SC_NPROCESSORS_CONF) - 1);
	put(&d, "max_link_speed", "32.0 GT/s PCIe\n");
	put(&d, "current_link_speed", "32.0 GT/s PCIe\n");
	put(&d, "max_link_width", "16\n");
	put(&d, "current_link_width", "16\n");
	return d.error;
}

static int make_ibdev(const struct sv_fabric_header *h, unsigned device, const char *ibdev)
{
	const struct sv_fab_device *dev = &h->devices[device];
	char guid[32];
	struct dir d;

	dir_open(&d, 0, "%s", ibdev);
	format_guid(dev->guid, guid, sizeof(guid));
	put(&d, "node_guid", "%s\n", guid);
	put(&d, "sys_image_guid", "%s\n", guid);
	put(&d, "node_type", "1: CA\n");
	put(&d, "node_desc", "host%u sim%u\n", device / h->rails, device % h->rails);
	put(&d, "fw_ver", "%u.0\n", SV_FABRIC_VERSION);
	put(&d, "hca_type", "simverbs\n");
	put(&d, "board_id", "SIMVERBS\n");
	put_link(&d, "device", "../..");
	return d.error;
}

static int make_device(const struct sv_fabric_header *h, unsigned device)
{
	unsigned host = device / h->rails, rail = device % h->rails;
	char sys[PATH_MAX / 4], pci[PATH_MAX / 8], target[PATH_MAX / 2];
	char name[24], verbs[24];
	struct dir d;
	unsigned i;
	int rc;

	sv_sysfs_host_path(h, host, sys, sizeof(sys));
	pci_path(rail, pci, sizeof(pci));
	snprintf(name, sizeof(name), "sim%u", rail);
	snprintf(verbs, sizeof(verbs), "uverbs%u", rail);

	snprintf(target, sizeof(target), "%s/%s", sys, pci);
	rc = make_pci(h, device, target);
	if (rc)
		return rc;
	snprintf(target, sizeof(target), "%s/%s/infiniband/%s", sys, pci, name);
	rc = make_ibdev(h, device, target);
	for (i = 0; i < h->num_phys && !rc; i++)
		rc = make_port(h, device, i, target);
	if (rc)
		return rc;
	dir_open(&d, 0, "%s/%s/infiniband_verbs/%s", sys, pci, verbs);
	put(&d, "ibdev", "%s\n", name);
	put(&d, "abi_version", "1\n");
	put_link(&d, "device", "../..");
	dir_open(&d, d.error, "%s/class/infiniband", sys);
	snprintf(target, sizeof(target), "../../%s/infiniband/%s", pci, name);
	put_link(&d, name, target);
	dir_open(&d, d.error, "%s/class/infiniband_verbs", sys);
	snprintf(target, sizeof(target), "../../%s/infiniband_verbs/%s", pci, verbs);
	put_link(&d, verbs, target);
	put(&d, "abi_version", "6\n");
	return d.error;
}

int sv_sysfs_create(const struct sv_fabric_header *h)
{
	unsigned i;
	int rc = 0;

	for (i = 0; i < sv_fabric_devices(h) && !rc; i++)
		rc = make_device(h, i);
	return rc;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st;
	(void)flag;
	(void)ftw;
	return remove(path) && errno != ENOENT ? -1 : 0;
}

int sv_sysfs_remove(const char *root)
{
	if (nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS) && errno != ENOENT)
		return -errno;
	return 0;
}

/* The folder behind the link keeps its name: nothing looks at that. */
void sv_sysfs_renamed(const struct sv_fabric_header *h, unsigned device)
{
	unsigned renamed = atomic_load(&h->devices[device].renamed);
	char before[PATH_MAX / 2], now[PATH_MAX / 2];

	class_path(h, device, renamed - 1, before, sizeof(before));
	class_path(h, device, renamed, now, sizeof(now));
	(void)!rename(before, now); /* as with links: what cannot be written is seen by who reads */
}

void sv_sysfs_link_changed(const struct sv_fabric_header *h, unsigned device, unsigned phys)
{
	char ibdev[PATH_MAX / 2];
	struct dir port;

	sv_sysfs_ibdev_path(h, device, ibdev, sizeof(ibdev));
	dir_open(&port, 0, "%s/ports/%u", ibdev, phys + 1);
	put_link_state(&port, h, device,
		       atomic_load(&h->ports[sv_fab_port_index(h, device, phys)].link_up));
}
