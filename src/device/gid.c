/* SPDX-License-Identifier: Apache-2.0 */
/* Reading GID tables and choosing from them. */
#include "device/gid.h"

#include "device/newer_verbs.h"
#include "device/sysfs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *ha_gid_text(const union ibv_gid *gid, char *buf, size_t size)
{
	if (!inet_ntop(AF_INET6, gid->raw, buf, (socklen_t)size))
		buf[0] = '\0';
	return buf;
}

bool ha_gid_is_ipv4(const union ibv_gid *gid)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

	return memcmp(gid->raw, mapped, sizeof mapped) == 0;
}

bool ha_gid_is_link_local(const union ibv_gid *gid)
{
	return gid->raw[0] == 0xfe && (gid->raw[1] & 0xc0) == 0x80;
}

bool ha_gid_same_subnet(const union ibv_gid *a, const union ibv_gid *b)
{
	return memcmp(a->raw + 6, b->raw + 6, 2) == 0;
}

uint16_t ha_gid_flid(const union ibv_gid *gid)
{
	return (uint16_t)(gid->raw[4] << 8 | gid->raw[5]);
}

/* All zeros below the subnet prefix: an empty entry, with or without the default prefix. */
static bool is_empty(const union ibv_gid *gid)
{
	return gid->global.interface_id == 0 &&
	       (gid->global.subnet_prefix == 0 || ha_gid_is_link_local(gid));
}

/* ---- the table ------------------------------------------------------------------------------ */

static int version_of(uint32_t gid_type)
{
	switch (gid_type) {
	case IBV_GID_TYPE_ROCE_V1:
		return 1;
	case IBV_GID_TYPE_ROCE_V2:
		return 2;
	default:
		return 0;
	}
}

/* One call for the table of all ports: 256 entries would be 256 system calls otherwise. */
static int table_at_once(struct ibv_context *ctx, uint8_t port_num, struct ibv_gid_entry *entries,
			 size_t max_entries, struct ha_gid *gids, int max)
{
	ssize_t got = ha_ibv_query_gid_table(ctx, entries, max_entries);
	int n = 0;

	if (got < 0)
		return -1;
	for (ssize_t i = 0; i < got && n < max; i++) {
		if (entries[i].port_num != port_num || is_empty(&entries[i].gid))
			continue;
		gids[n++] = (struct ha_gid){
		    .raw = entries[i].gid,
		    .index = (int)entries[i].gid_index,
		    .roce_version = version_of(entries[i].gid_type),
		    .ifindex = entries[i].ndev_ifindex,
		};
	}
	return n;
}

/* For libraries and drivers without the call above: entry by entry, the type from sysfs. */
static int table_by_index(struct ibv_context *ctx, uint8_t port_num, int table_length,
			  struct ha_gid *gids, int max)
{
	int n = 0, readable = 0;

	for (int i = 0; i < table_length && n < max; i++) {
		struct ha_gid gid = {.index = i};

		if (ibv_query_gid(ctx, port_num, i, &gid.raw) != 0)
			continue;
		readable++;
		if (is_empty(&gid.raw))
			continue;
		gid.roce_version = ha_sysfs_roce_version(ctx->device->ibdev_path, port_num, i);
		gids[n++] = gid;
	}
	return table_length > 0 && readable == 0 ? -1 : n;
}

static int by_index(const void *a, const void *b)
{
	return ((const struct ha_gid *)a)->index - ((const struct ha_gid *)b)->index;
}

int ha_gid_table(struct ibv_context *ctx, uint8_t port_num, int table_length, struct ha_gid *gids,
		 int max)
{
	/* The call fills in all ports' entries; no device has more than a handful of ports. */
	size_t max_entries = (size_t)(table_length > 0 ? table_length : 1) * 8;
	struct ibv_gid_entry *entries = calloc(max_entries, sizeof *entries);
	int n = -1;

	if (entries)
		n = table_at_once(ctx, port_num, entries, max_entries, gids, max);
	free(entries);
	if (n < 0)
		n = table_by_index(ctx, port_num, table_length, gids, max);
	if (n > 0)
		qsort(gids, (size_t)n, sizeof *gids, by_index);
	return n;
}

/* ---- the choice ----------------------------------------------------------------------------- */

bool ha_gid_in_range(const union ibv_gid *gid, const struct ha_cidr *range)
{
	const uint8_t *address = gid->raw;
	int whole = range->prefix_len / 8, rest = range->prefix_len % 8;
	uint8_t mask = (uint8_t)(0xff00 >> rest);

	if (range->family == AF_UNSPEC)
		return true;
	if ((range->family == AF_INET) != ha_gid_is_ipv4(gid))
		return false;
	if (range->family == AF_INET)
		address += 12;
	if (memcmp(address, range->addr, (size_t)whole) != 0)
		return false;
	return rest == 0 || (address[whole] & mask) == (range->addr[whole] & mask);
}

static int score(const struct ha_config *config, const struct ha_gid *gid)
{
	bool right_range = ha_gid_in_range(&gid->raw, &config->ib_addr_range);
	bool right_family = ha_gid_is_ipv4(&gid->raw) == (config->ib_addr_family == AF_INET);
	bool right_version = gid->roce_version == config->ib_roce_version_num;

	return right_range * 8 + right_family * 4 + right_version * 2 +
	       !ha_gid_is_link_local(&gid->raw);
}

int ha_gid_choose(const struct ha_config *config, const struct ha_gid *gids, int ngids, int kept)
{
	int best = kept, best_score = kept < 0 ? -1 : score(config, &gids[kept]);

	for (int i = 0; i < ngids; i++) {
		int s = score(config, &gids[i]);

		if (s > best_score) {
			best = i;
			best_score = s;
		}
	}
	return best;
}
