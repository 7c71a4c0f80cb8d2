/* SPDX-License-Identifier: Apache-2.0 */
#include "device/netdev.h"

#include "device/sysfs.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ARPHRD_INFINIBAND_TEXT "32"

/* A bond of VLANs under a bridge is 3. */
#define STOREYS_MAX 8

/* ---- interfaces and what they stand on ------------------------------------------------------- */

typedef bool (*netdev_is)(const char *class_net, const char *name, const void *arg);

/* Whether it is so of the interface, or of one that it stands on. */
static bool any_below(const char *class_net, const char *name, netdev_is is, const void *arg,
		      int storeys)
{
	static const char prefix[] = "lower_";
	const struct dirent *entry;
	char path[PATH_MAX];
	bool found;
	DIR *dir;

	if (is(class_net, name, arg))
		return true;
	if (storeys == 0 ||
	    snprintf(path, sizeof path, "%s/%s", class_net, name) >= (int)sizeof path)
		return false;
	dir = opendir(path);
	if (!dir)
		return false;
	for (found = false; !found && (entry = readdir(dir)) != NULL;)
		if (strncmp(entry->d_name, prefix, sizeof prefix - 1) == 0)
			found = any_below(class_net, entry->d_name + sizeof prefix - 1, is, arg,
					  storeys - 1);
	closedir(dir);
	return found;
}

/* The PCI function, or another device of the machine. False: it has none. */
static bool device_of(const char *class_net, const char *name, char resolved[PATH_MAX])
{
	char link[PATH_MAX];

	return snprintf(link, sizeof link, "%s/%s/device", class_net, name) < (int)sizeof link &&
	       realpath(link, resolved) != NULL;
}

static bool is_physical(const char *class_net, const char *name, const void *arg)
{
	char resolved[PATH_MAX];

	(void)arg;
	return device_of(class_net, name, resolved);
}

static bool is_ipoib(const char *class_net, const char *name, const void *arg)
{
	char attribute[IF_NAMESIZE + 8], type[16];

	(void)arg;
	snprintf(attribute, sizeof attribute, "%.*s/type", IF_NAMESIZE, name);
	return ha_sysfs_read(class_net, attribute, type, sizeof type) &&
	       strcmp(type, ARPHRD_INFINIBAND_TEXT) == 0;
}

/* ---- those of a NIC -------------------------------------------------------------------------- */

/* Whether an entry of the port's GID table is the interface's. */
static bool has_gid_of(const char *ibdev_path, int port_num, const char *name)
{
	char path[PATH_MAX], netdev[IF_NAMESIZE + 1];
	const struct dirent *entry;
	bool found = false;
	DIR *dir;

	if (snprintf(path, sizeof path, "%s/ports/%d/gid_attrs/ndevs", ibdev_path, port_num) >=
	    (int)sizeof path)
		return false;
	dir = opendir(path);
	while (dir && !found && (entry = readdir(dir)) != NULL)
		found = entry->d_name[0] != '.' &&
			ha_sysfs_read(path, entry->d_name, netdev, sizeof netdev) &&
			strcmp(netdev, name) == 0;
	if (dir)
		closedir(dir);
	return found;
}

static const char *ibdev_path_of(const struct ha_nic *nic)
{
	return atomic_load(&nic->now)->ctx->device->ibdev_path;
}

static bool is_of_nic(const char *class_net, const char *name, const void *arg)
{
	const struct ha_nic *nic = arg;
	char resolved[PATH_MAX];

	if (nic->pci_path[0] && device_of(class_net, name, resolved) &&
	    strcmp(resolved, nic->pci_path) == 0)
		return true;
	for (int port_num = 1; port_num <= nic->attr.phys_port_cnt; port_num++)
		if (has_gid_of(ibdev_path_of(nic), port_num, name))
			return true;
	return false;
}

/* In the sysfs that the device itself is in: the interfaces of one that is not the kernel's are not
 * the kernel's, whatever their names. */
static bool is_over_nic(const struct ha_nic *nic, const char *name)
{
	static const char class_dir[] = "/class/infiniband/";
	const char *ibdev_path = ibdev_path_of(nic);
	const char *class_part = strstr(ibdev_path, class_dir);
	char class_net[PATH_MAX], path[PATH_MAX];

	if (!class_part ||
	    snprintf(class_net, sizeof class_net, "%.*s/class/net", (int)(class_part - ibdev_path),
		     ibdev_path) >= (int)sizeof class_net ||
	    snprintf(path, sizeof path, "%s/%s", class_net, name) >= (int)sizeof path ||
	    access(path, F_OK) != 0)
		return false;
	return any_below(class_net, name, is_of_nic, nic, STOREYS_MAX);
}

/* ---- those of an address --------------------------------------------------------------------- */

static bool is_address_of(const union ibv_gid *gid, const union ha_sockaddr *addr)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

	if (addr->sa.sa_family == AF_INET6)
		return memcmp(gid->raw, &addr->in6.sin6_addr, sizeof gid->raw) == 0;
	return memcmp(gid->raw, mapped, sizeof mapped) == 0 &&
	       memcmp(gid->raw + sizeof mapped, &addr->in.sin_addr, 4) == 0;
}

static bool has_address_of_port(struct ha_port *port, const union ha_sockaddr *addr)
{
	struct ha_port_addr of_port;

	ha_port_addr(port, &of_port);
	return of_port.link_layer == IBV_LINK_LAYER_ETHERNET && of_port.gid_index >= 0 &&
	       is_address_of(&of_port.gid, addr);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static bool is_of_fabric(struct ha_device_set *set, const char *class_net,
			 const struct ha_netif *netif)
{
	if (any_below(class_net, netif->name, is_ipoib, NULL, STOREYS_MAX))
		return true;
	for (int i = 0; i < set->nnics; i++)
		if (is_over_nic(&set->nics[i], netif->name))
			return true;
	for (int i = 0; i < set->nports_all; i++)
		if (has_address_of_port(&set->ports[i], &netif->addr))
			return true;
	return false;
}

void ha_netdev_mark(struct ha_device_set *set, const char *class_net, struct ha_netif *all, int n)
{
	for (int i = 0; i < n; i++) {
		all[i].physical = any_below(class_net, all[i].name, is_physical, NULL, STOREYS_MAX);
		all[i].fabric = is_of_fabric(set, class_net, &all[i]);
	}
}
