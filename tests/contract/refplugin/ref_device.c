/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices. With SYSFS_PATH set and RDMA devices below it, those, described by what sysfs says;
 * otherwise two that stand for the loopback interface. The data moves over loopback in any case.
 */
#include "ref.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEVICES 8

struct device {
	char name[64];
	char pci_path[PATH_MAX];
	uint64_t guid;
	int speed_mbps;
};

static struct device devices[MAX_DEVICES];
static int device_count;

static bool read_line(const char *dir, const char *file, char *line, size_t size)
{
	char path[PATH_MAX];

	if (snprintf(path, sizeof(path), "%s/%s", dir, file) >= (int)sizeof(path))
		return false;
	FILE *f = fopen(path, "re");
	if (!f)
		return false;
	bool ok = fgets(line, (int)size, f) != NULL;
	fclose(f);
	return ok;
}

static void read_device(struct device *d, const char *class_dir, const char *name)
{
	char dir[PATH_MAX], link[PATH_MAX], line[128];
	unsigned g[4];

	snprintf(d->name, sizeof(d->name), "%.63s", name);
	if (snprintf(dir, sizeof(dir), "%s/%s", class_dir, name) >= (int)sizeof(dir))
		return;
	if (snprintf(link, sizeof(link), "%s/device", dir) >= (int)sizeof(link) ||
	    !realpath(link, d->pci_path))
		d->pci_path[0] = 0;
	if (read_line(dir, "sys_image_guid", line, sizeof(line)) &&
	    sscanf(line, "%x:%x:%x:%x", &g[0], &g[1], &g[2], &g[3]) == 4)
		for (int i = 0; i < 4; i++)
			d->guid = d->guid << 16 | g[i];
	d->speed_mbps = read_line(dir, "ports/1/rate", line, sizeof(line))
			    ? (int)(strtod(line, NULL) * 1000)
			    : 10000;
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(((const struct device *)a)->name, ((const struct device *)b)->name);
}

#ifdef REF_READS_SYS
/* The same files as a program sees them that knows no SYSFS_PATH, and for which they lie in /sys.
 */
static void as_in_sys(char *path, const char *sysfs)
{
	char root[PATH_MAX], rest[PATH_MAX];

	if (!realpath(sysfs, root) || strncmp(path, root, strlen(root)) != 0)
		return;
	snprintf(rest, sizeof(rest), "%s", path + strlen(root));
	snprintf(path, PATH_MAX, "/sys%.*s", PATH_MAX - 5, rest);
}
#endif

static void read_sysfs(const char *sysfs)
{
	char class_dir[PATH_MAX];
	struct dirent *e;

	if (snprintf(class_dir, sizeof(class_dir), "%s/class/infiniband", sysfs) >=
	    (int)sizeof(class_dir))
		return;
	DIR *dir = opendir(class_dir);
	if (!dir)
		return;
	while ((e = readdir(dir)) && device_count < MAX_DEVICES)
		if (e->d_name[0] != '.')
			read_device(&devices[device_count++], class_dir, e->d_name);
	closedir(dir);
#ifdef REF_READS_SYS
	for (int i = 0; i < device_count; i++)
		as_in_sys(devices[i].pci_path, sysfs);
#endif
	qsort(devices, (size_t)device_count, sizeof(devices[0]), compare_names);
}

#ifdef REF_BREAK_RELOAD
/* Leaves something in the process that a second load trips over. */
__attribute__((constructor)) static void mark_process(void)
{
	if (getenv("REF_PLUGIN_LOADED"))
		abort();
	setenv("REF_PLUGIN_LOADED", "1", 1);
}
#endif

#ifdef REF_BREAK_UNLOAD
#include <pthread.h>
#include <unistd.h>

static void *background(void *arg)
{
	for (;;)
		sleep(60);
	return arg;
}

/* It sleeps before the library can be unmapped: the defect is a thread that stays, not one that
 * runs.
 */
static void start_background(void)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, background, NULL) != 0)
		return;
	pthread_detach(thread);
	usleep(20000);
}
#endif

void ref_device_forget(void)
{
	device_count = 0;
}

ncclResult_t ref_device_init(void)
{
	const char *sysfs = getenv("SYSFS_PATH");

#ifdef REF_BREAK_UNLOAD
	start_background();
#endif
	if (device_count > 0)
		return ncclSuccess;
	if (sysfs)
		read_sysfs(sysfs);
	for (; device_count == 0 || (!devices[0].pci_path[0] && device_count < 2); device_count++) {
		struct device *d = &devices[device_count];
		*d = (struct device){.guid = 0x7265660000000000u + (uint64_t)device_count,
				     .speed_mbps = 10000};
		snprintf(d->name, sizeof(d->name), "ref%d", device_count);
	}
	return ncclSuccess;
}

int ref_device_count(void)
{
	return device_count;
}

ncclResult_t ref_device_properties(int dev, ncclNetProperties_v8_t *props)
{
	if (dev < 0 || dev >= device_count)
		return ncclInvalidArgument;
	struct device *d = &devices[dev];
	*props = (ncclNetProperties_v8_t){
	    .name = d->name,
	    .pciPath = d->pci_path[0] ? d->pci_path : NULL,
	    .guid = d->guid,
	    .ptrSupport = NCCL_PTR_HOST | NCCL_PTR_DMABUF,
	    .speed = d->speed_mbps,
	    .port = 1,
	    .maxComms = 1024,
	    .maxRecvs = REF_MAX_RECVS,
	    .netDeviceType = NCCL_NET_DEVICE_HOST,
	    .netDeviceVersion = NCCL_NET_DEVICE_INVALID_VERSION,
	};
#ifdef REF_BREAK_DEVICES_STABLE
	static char shared_name[64]; /* one for all devices */
	memcpy(shared_name, d->name, sizeof(shared_name));
	props->name = shared_name;
#endif
#ifdef REF_BREAK_MR_GLOBAL
	props->regIsGlobal = 1; /* each connection looks only in its own list */
#endif
#ifdef REF_BREAK_PROPERTIES
	props->maxComms = 0;
#endif
#ifdef REF_BREAK_PROPERTIES_SYSFS
	props->speed /= 1000; /* Gb/s for Mb/s */
#endif
	return ncclSuccess;
}
