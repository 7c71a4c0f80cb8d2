/* SPDX-License-Identifier: Apache-2.0 */
/* Rules about devices and what the plugin says of them. */
#include "link.h"
#include "rules.h"

#include <dirent.h>
#include <endian.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_DEVICES 64

/* ---- stable ------------------------------------------------------------------------------- */

static char *copy(struct check *t, const char *text)
{
	char *c = text ? strdup(text) : NULL;
	if (text && !c)
		check_skip(t, "out of memory");
	return c;
}

static bool same_text(const char *a, const char *b)
{
	return a == b || (a && b && strcmp(a, b) == 0);
}

void rule_devices_stable(struct check *t)
{
	static ncclNetProperties_v12_t first[MAX_DEVICES];
	char *names[MAX_DEVICES] = {0}, *paths[MAX_DEVICES] = {0};
	int ndev = t->ndev < MAX_DEVICES ? t->ndev : MAX_DEVICES;

	for (int d = 0; d < ndev; d++) {
		MUST(t, get_properties, d, &first[d]);
		names[d] = copy(t, first[d].name);
		paths[d] = copy(t, first[d].pciPath);
	}
	for (int round = 0; round < 3; round++) {
		int again = 0;
		MUST(t, devices, &again);
		if (again != t->ndev)
			check_fail(t, "devices reported %d, then %d", t->ndev, again);
		for (int d = 0; d < ndev; d++) {
			ncclNetProperties_v12_t p;
			/* NCCL keeps the strings of the first call while it makes others. */
			if (!same_text(first[d].name, names[d]) ||
			    !same_text(first[d].pciPath, paths[d]))
				check_fail(t,
					   "the strings of device %d changed when getProperties "
					   "was called for another device",
					   d);
			MUST(t, get_properties, d, &p);
			if (!same_text(p.name, names[d]) || !same_text(p.pciPath, paths[d]) ||
			    p.guid != first[d].guid || p.speed != first[d].speed ||
			    p.port != first[d].port || p.maxRecvs != first[d].maxRecvs)
				check_fail(t, "device %d is described differently by two calls", d);
		}
	}
	check_note(t, "%d devices", t->ndev);
}

/* ---- sane --------------------------------------------------------------------------------- */

/* The parts of devices that the plugin fused itself are no devices of NCCL's. */
static bool some_are_fused(struct check *t)
{
	bool fused = false;

	for (int d = 0; d < t->ndev; d++) {
		ncclNetProperties_v12_t p;

		MUST(t, get_properties, d, &p);
		fused |= p.vProps.ndevs > 1;
	}
	return fused;
}

static void check_parts(struct check *t, int d, const ncclNetProperties_v12_t *p)
{
	for (int i = 0; i < p->vProps.ndevs; i++) {
		if (p->vProps.devs[i] < 0 || (p->vProps.devs[i] >= t->ndev && !some_are_fused(t)))
			check_fail(t, "device %d: vProps.devs[%d] is %d, no such device", d, i,
				   p->vProps.devs[i]);
		for (int j = 0; j < i; j++)
			if (p->vProps.devs[i] == p->vProps.devs[j])
				check_fail(t, "device %d: vProps.devs has %d twice", d,
					   p->vProps.devs[i]);
	}
}

static void check_versioned(struct check *t, int d, const ncclNetProperties_v12_t *p)
{
	if (t->api >= 9) {
		int most =
		    t->api >= 12 ? NCCL_NET_MAX_DEVS_PER_NIC_V12 : NCCL_NET_MAX_DEVS_PER_NIC_V9;
		if (p->vProps.ndevs < 1 || p->vProps.ndevs > most)
			check_fail(t, "device %d: vProps.ndevs is %d, not 1 … %d", d,
				   p->vProps.ndevs, most);
		check_parts(t, d, p);
		if (p->maxP2pBytes == 0 || p->maxP2pBytes > (size_t)NCCL_MAX_NET_SIZE_BYTES)
			check_fail(t, "device %d: maxP2pBytes is %zu, not 1 … 2^40", d,
				   p->maxP2pBytes);
	}
	if (t->api >= 11 && p->maxMultiRequestSize < 1)
		check_fail(t, "device %d: maxMultiRequestSize is %d", d, p->maxMultiRequestSize);
	if (t->api >= 12 && (p->railId < -1 || p->planeId < -1))
		check_fail(t, "device %d: railId %d, planeId %d (-1 is unknown)", d, p->railId,
			   p->planeId);
}

void rule_properties(struct check *t)
{
	for (int d = 0; d < t->ndev; d++) {
		ncclNetProperties_v12_t p;
		MUST(t, get_properties, d, &p);
		if (!p.name || !p.name[0])
			check_fail(t, "device %d has no name", d);
		if (p.speed <= 0)
			check_fail(t, "device %d (%s): speed is %d Mb/s", d, p.name, p.speed);
		if (p.port < 0)
			check_fail(t, "device %d (%s): port is %d", d, p.name, p.port);
		if (!(p.latency >= 0) || isinf(p.latency))
			check_fail(t, "device %d (%s): latency is %f us", d, p.name,
				   (double)p.latency);
		if (p.maxComms < 1 || p.maxRecvs < 1)
			check_fail(t, "device %d (%s): maxComms %d, maxRecvs %d", d, p.name,
				   p.maxComms, p.maxRecvs);
		if (!(p.ptrSupport & NCCL_PTR_HOST))
			check_fail(t, "device %d (%s): ptrSupport 0x%x lacks host memory", d,
				   p.name, (unsigned)p.ptrSupport);
		if (p.netDeviceType == NCCL_NET_DEVICE_HOST &&
		    p.netDeviceVersion != NCCL_NET_DEVICE_INVALID_VERSION)
			check_fail(t, "device %d (%s): host device with offload version %d", d,
				   p.name, p.netDeviceVersion);
		if (p.regIsGlobal != 0 && p.regIsGlobal != 1)
			check_fail(t, "device %d (%s): regIsGlobal is %d", d, p.name,
				   p.regIsGlobal);
		check_versioned(t, d, &p);
	}
}

/* ---- true --------------------------------------------------------------------------------- */

static bool read_line(const char *dir, const char *file, char *line, size_t size)
{
	char path[PATH_MAX];

	if (snprintf(path, sizeof(path), "%s/%s", dir, file) >= (int)sizeof(path))
		return false;
	FILE *f = fopen(path, "re");
	bool ok = f && fgets(line, (int)size, f);
	if (f)
		fclose(f);
	return ok;
}

static bool guid_in(const char *dir, const char *file, uint64_t guid)
{
	char line[64];
	unsigned g[4];
	uint64_t value = 0;

	if (!read_line(dir, file, line, sizeof(line)) ||
	    sscanf(line, "%x:%x:%x:%x", &g[0], &g[1], &g[2], &g[3]) != 4)
		return false;
	for (int i = 0; i < 4; i++)
		value = value << 16 | g[i];
	/* verbs give it in network order, and plugins pass it on as they got it */
	return guid == value || guid == htobe64(value);
}

/* NCCL's own IB transport writes function 0 for every function of a NIC. */
static bool same_pci_path(const char *said, const char *real)
{
	size_t n = strlen(real);
	return strlen(said) == n && n > 2 && strncmp(said, real, n - 1) == 0 &&
	       (said[n - 1] == real[n - 1] || said[n - 1] == '0');
}

/* A plugin that knows no SYSFS_PATH sees in /sys what lies there. */
static bool same_place(const char *said, const char *sysfs, const char *real)
{
	static const char mounted[] = "/sys";
	char root[PATH_MAX];

	if (same_pci_path(said, real))
		return true;
	return realpath(sysfs, root) && strncmp(real, root, strlen(root)) == 0 &&
	       strncmp(said, mounted, strlen(mounted)) == 0 &&
	       same_pci_path(said + strlen(mounted), real + strlen(root));
}

/* dir: of the device, below sysfs. */
static void compare_with_sysfs(struct check *t, int d, const ncclNetProperties_v12_t *p,
			       const char *sysfs, const char *dir)
{
	char file[64], line[128], path[PATH_MAX], real[PATH_MAX];

	snprintf(file, sizeof(file), "ports/%d/rate", p->port);
	if (!read_line(dir, file, line, sizeof(line)))
		check_fail(t, "device %d (%s): port %d does not exist in sysfs", d, p->name,
			   p->port);
	int speed = (int)(strtod(line, NULL) * 1000); /* "400 Gb/sec (4X NDR)" */
	if (abs(p->speed - speed) > speed / 10)
		check_fail(t, "device %d (%s): speed is %d Mb/s, sysfs says %d", d, p->name,
			   p->speed, speed);
	if (!guid_in(dir, "sys_image_guid", p->guid) && !guid_in(dir, "node_guid", p->guid))
		check_fail(t, "device %d (%s): guid 0x%016llx is not the one in sysfs", d, p->name,
			   (unsigned long long)p->guid);
	if (snprintf(path, sizeof(path), "%s/device", dir) < (int)sizeof(path) &&
	    realpath(path, real) && (!p->pciPath || !same_place(p->pciPath, sysfs, real)))
		check_fail(t, "device %d (%s): pciPath is %s, sysfs says %s", d, p->name,
			   p->pciPath ? p->pciPath : "NULL", real);
}

void rule_properties_sysfs(struct check *t)
{
	const char *sysfs = getenv("SYSFS_PATH");
	int compared = 0;

	if (!sysfs)
		sysfs = "/sys";
	for (int d = 0; d < t->ndev; d++) {
		ncclNetProperties_v12_t p;
		char dir[PATH_MAX];
		struct stat st;
		MUST(t, get_properties, d, &p);
		if (!p.name || snprintf(dir, sizeof(dir), "%s/class/infiniband/%s", sysfs,
					p.name) >= (int)sizeof(dir))
			continue;
		if (stat(dir, &st) == 0) {
			compare_with_sysfs(t, d, &p, sysfs, dir);
			compared++;
		}
	}
	if (compared == 0)
		check_skip(t, "no device of the plugin is in %s/class/infiniband", sysfs);
	check_note(t, "%d of %d devices compared", compared, t->ndev);
}

void rule_every_device(struct check *t)
{
	for (int d = 0; d < t->ndev; d++) {
		struct link link;
		link_open_local(t, d, &link);
		link_exchange(t, &link, 65537, (uint64_t)d);
		link_close_local(t, &link);
	}
	check_note(t, "%d devices", t->ndev);
}
