/* SPDX-License-Identifier: Apache-2.0 */
/* Reading sysfs attributes of RDMA devices. */
#include "device/sysfs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool ha_sysfs_read(const char *root, const char *name, char *buf, size_t size)
{
	char path[PATH_MAX];
	ssize_t got;
	int fd;

	if (snprintf(path, sizeof path, "%s/%s", root, name) >= (int)sizeof path)
		return false;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	do
		got = read(fd, buf, size - 1);
	while (got < 0 && errno == EINTR);
	close(fd);
	if (got < 0)
		return false;
	buf[got] = '\0';
	buf[strcspn(buf, "\n")] = '\0';
	return true;
}

void ha_sysfs_pci_path(const char *ibdev_path, char *buf, size_t size)
{
	char link[PATH_MAX], resolved[PATH_MAX];

	buf[0] = '\0';
	if (snprintf(link, sizeof link, "%s/device", ibdev_path) >= (int)sizeof link)
		return;
	/* A path too long for the caller would be wrong if cut: better none. */
	if (realpath(link, resolved) && strlen(resolved) < size)
		memcpy(buf, resolved, strlen(resolved) + 1);
}

int ha_sysfs_numa_node(const char *ibdev_path)
{
	char text[16], *end;
	long node;

	if (!ha_sysfs_read(ibdev_path, "device/numa_node", text, sizeof text))
		return -1;
	node = strtol(text, &end, 10);
	return end == text || node < 0 || node > INT_MAX ? -1 : (int)node;
}

bool ha_sysfs_peermem(const char *ibdev_path)
{
	static const char *const modules[] = {
	    "kernel/mm/memory_peers/nv_mem/version",
	    "kernel/mm/memory_peers/nv_mem_nc/version",
	    "module/nvidia_peermem/version",
	    /* AMD's, in the places that kernels have had for it. */
	    "kernel/mm/memory_peers/amdkfd/version",
	    "kernel/memory_peers/amdkfd/version",
	    "memory_peers/amdkfd/version",
	};
	static const char class_dir[] = "/class/infiniband/";
	const char *class_part = strstr(ibdev_path, class_dir);
	char root[PATH_MAX], path[PATH_MAX + 64];

	if (!class_part || (size_t)(class_part - ibdev_path) >= sizeof root)
		return false;
	memcpy(root, ibdev_path, (size_t)(class_part - ibdev_path));
	root[class_part - ibdev_path] = '\0';
	for (size_t i = 0; i < sizeof modules / sizeof modules[0]; i++) {
		snprintf(path, sizeof path, "%s/%s", root, modules[i]);
		if (access(path, F_OK) == 0)
			return true;
	}
	return false;
}

int ha_sysfs_roce_version(const char *ibdev_path, int port_num, int gid_index)
{
	char name[64], type[32];

	snprintf(name, sizeof name, "ports/%d/gid_attrs/types/%d", port_num, gid_index);
	if (!ha_sysfs_read(ibdev_path, name, type, sizeof type))
		return 0;
	if (strcmp(type, "RoCE v2") == 0)
		return 2;
	/* The kernel has one name for both: on an Ethernet port it means RoCE v1. */
	if (strcmp(type, "IB/RoCE v1") == 0)
		return 1;
	return 0;
}

bool ha_sysfs_apm_enabled(const char *ibdev_path, int port_num)
{
	char name[64], text[16];

	snprintf(name, sizeof name, "ports/%d/apm_enable", port_num);
	return ha_sysfs_read(ibdev_path, name, text, sizeof text) && strtol(text, NULL, 10) != 0;
}
