/* SPDX-License-Identifier: Apache-2.0 */
/* Ranking standby ports: see standby.h for the criteria. */
#include "device/rank.h"

#include "device/gid.h"
#include "device/partition.h"

#include <stdlib.h>
#include <string.h>

/* ---- distance in the PCI tree --------------------------------------------------------------- */

/* From the host bridge on: "pci0000:17/0000:17:01.0/…". NULL: not a PCI device. */
static const char *below_devices(const char *path)
{
	static const char marker[] = "/devices/pci";
	const char *found = NULL;

	/* The last one: a tree that only looks like sysfs may lie anywhere. */
	for (const char *next = strstr(path, marker); next; next = strstr(next + 1, marker))
		found = next;
	return found ? found + strlen("/devices/") : NULL;
}

static size_t part_length(const char *path)
{
	return strcspn(path, "/");
}

static const char *next_part(const char *path)
{
	path += part_length(path);
	return *path == '/' ? path + 1 : path;
}

static int count_parts(const char *path)
{
	int n = 0;

	for (; *path; path = next_part(path))
		n++;
	return n;
}

static bool same_part(const char *a, const char *b)
{
	size_t length = part_length(a);

	return length > 0 && part_length(b) == length && memcmp(a, b, length) == 0;
}

static enum ha_distance by_numa(int a, int b)
{
	return a >= 0 && a == b ? HA_DISTANCE_NUMA : HA_DISTANCE_FAR;
}

enum ha_distance ha_pci_distance(const char *path_a, int numa_a, const char *path_b, int numa_b)
{
	/* The parts of a path: host bridge, root port, then per switch its upstream and one of its
	 * downstream ports, and the device. */
	enum { ROOT_PORT = 2, UPSTREAM_PORT = 3, BELOW_SWITCH = 2 };
	const char *a = below_devices(path_a), *b = below_devices(path_b);
	int common = 0, left_a, left_b;

	if (!a || !b)
		return by_numa(numa_a, numa_b);
	while (same_part(a, b)) {
		a = next_part(a);
		b = next_part(b);
		common++;
	}
	left_a = count_parts(a);
	left_b = count_parts(b);
	if (left_a == 0 && left_b == 0)
		return HA_DISTANCE_DEVICE;
	if (common >= UPSTREAM_PORT && left_a == BELOW_SWITCH && left_b == BELOW_SWITCH)
		return HA_DISTANCE_SWITCH;
	if (common >= ROOT_PORT)
		return HA_DISTANCE_ROOT;
	return common > 0 ? HA_DISTANCE_NUMA : by_numa(numa_a, numa_b);
}

/* ---- ranking -------------------------------------------------------------------------------- */

/* A candidate with its criteria; smaller is better in each, compared in this order. */
struct candidate {
	struct ha_port *port;
	int rail, too_slow, same_chip, distance, slower, speed_gap;
};

static bool same_chip(const struct ha_nic *a, const struct ha_nic *b)
{
	return a == b || (a->guid != 0 && a->guid == b->guid);
}

/* Rails of the primary's bundle in their order, then everybody else. */
static int rail_of(const struct ha_port *primary, const struct ha_port *port)
{
	return port->bundle && port->bundle == primary->bundle ? port->rail : HA_RAILS_MAX;
}

static void assess(const struct ha_port *primary, struct ha_port *port, struct candidate *out)
{
	const struct ha_nic *from = primary->nic, *to = port->nic;
	int wanted = atomic_load(&primary->speed_mbps), speed = atomic_load(&port->speed_mbps);

	out->port = port;
	out->rail = rail_of(primary, port);
	/* The speed of a port that was never up is unknown: it comes after its equals. */
	out->too_slow = speed != 0 && speed < wanted / 2;
	out->same_chip = same_chip(from, to);
	out->distance =
	    (int)ha_pci_distance(from->pci_path, from->numa_node, to->pci_path, to->numa_node);
	out->slower = speed < wanted;
	out->speed_gap = abs(speed - wanted);
}

static int compare(const struct candidate *a, const struct candidate *b)
{
	if (a->rail != b->rail)
		return a->rail - b->rail;
	if (a->too_slow != b->too_slow)
		return a->too_slow - b->too_slow;
	if (a->same_chip != b->same_chip)
		return a->same_chip - b->same_chip;
	if (a->distance != b->distance)
		return a->distance - b->distance;
	if (a->slower != b->slower)
		return a->slower - b->slower;
	return a->speed_gap - b->speed_gap;
}

/* Stable, unlike qsort: equals stay in the order of the set. */
static void sort(struct candidate *list, int n)
{
	for (int i = 1; i < n; i++) {
		struct candidate moving = list[i];
		int at = i;

		for (; at > 0 && compare(&moving, &list[at - 1]) < 0; at--)
			list[at] = list[at - 1];
		list[at] = moving;
	}
}

/* Spreads numbers that differ little over all values. */
static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

/* Writes runs of equals to `out`, each starting at another member. Returns how many ports. */
static int rotate_equals(const struct candidate *list, int n, uint64_t spread, struct ha_port **out,
			 int max)
{
	int written = 0;

	for (int start = 0, end; start < n; start = end) {
		for (end = start + 1; end < n && compare(&list[start], &list[end]) == 0; end++)
			;
		for (int i = 0, length = end - start; i < length && written < max; i++) {
			int turn = (int)(mix(spread) % (uint64_t)length);

			out[written++] = list[start + (i + turn) % length].port;
		}
	}
	return written;
}

int ha_standby_rank(struct ha_device_set *set, struct ha_port *primary, uint64_t spread,
		    struct ha_port *out[], int max)
{
	struct candidate list[HA_MAX_PORTS];
	int n = 0;

	if (max <= 0)
		return 0;
	out[0] = primary;
	for (int i = 0; i < set->nports_all; i++) {
		struct ha_port *port = &set->ports[i];

		if (port != primary && port->link_layer == primary->link_layer &&
		    ha_partition_same(port, primary))
			assess(primary, port, &list[n++]);
	}
	sort(list, n);
	return 1 + rotate_equals(list, n, spread, out + 1, max - 1);
}

/* ---- reachability --------------------------------------------------------------------------- */

static enum ha_fabric between_roce(const union ibv_gid *a, const union ibv_gid *b)
{
	enum { IPV4_SUBNET_BYTES = 12 + 3, IPV6_SUBNET_BYTES = 8 };
	bool ipv4 = ha_gid_is_ipv4(a);

	if (ipv4 != ha_gid_is_ipv4(b))
		return HA_FABRIC_NEVER;
	if (ha_gid_is_link_local(a) || ha_gid_is_link_local(b))
		return HA_FABRIC_POSSIBLE;
	return memcmp(a->raw, b->raw, ipv4 ? IPV4_SUBNET_BYTES : IPV6_SUBNET_BYTES) == 0
		   ? HA_FABRIC_SAME
		   : HA_FABRIC_POSSIBLE;
}

enum ha_fabric ha_fabric_between(const struct ha_port_addr *local, uint8_t remote_link_layer,
				 const union ibv_gid *remote)
{
	if (local->link_layer != remote_link_layer)
		return HA_FABRIC_NEVER;
	if (local->link_layer == IBV_LINK_LAYER_ETHERNET)
		return between_roce(&local->gid, remote);
	return ha_gid_same_subnet(&local->gid, remote) ? HA_FABRIC_SAME : HA_FABRIC_POSSIBLE;
}
