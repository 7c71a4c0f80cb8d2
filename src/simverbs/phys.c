/* SPDX-License-Identifier: Apache-2.0 */
/* What is a physical port's: partitions, and who takes what is sent to an address. */
#include "engine.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- partitions */

/* "0xffff,0x8001" up to a '/' or the end. The number of entries, or -EINVAL. */
static int parse_table(const char *text, uint16_t pkeys[SV_MAX_PKEYS])
{
	int n = 0;

	for (;; n++) {
		unsigned long value;
		char *end;

		if (*text < '0' || *text > '9' || n == SV_MAX_PKEYS)
			return -EINVAL;
		value = strtoul(text, &end, 0);
		if (value > 0xffff)
			return -EINVAL;
		pkeys[n] = (uint16_t)value;
		if (*end == '\0' || *end == '/')
			return n + 1;
		if (*end != ',')
			return -EINVAL;
		text = end + 1;
	}
}

int sv_pkeys_parse(const char *text, uint32_t nth, struct sv_phys_config *phys)
{
	uint32_t tables = 1;
	const char *next;
	int n = 0;

	phys->num_pkeys = 1;
	phys->pkeys[0] = SV_DEFAULT_PKEY;
	if (!text || !*text)
		return 0;
	for (next = strchr(text, '/'); next; next = strchr(next + 1, '/'))
		tables++;
	/* All of them, so that a mistake in any is found; the last one read is the port's. */
	for (uint32_t i = 0; i < tables + nth % tables + 1; i++) {
		const char *table = text;

		for (uint32_t skip = i % tables; skip; skip--)
			table = strchr(table, '/') + 1;
		n = parse_table(table, phys->pkeys);
		if (n < 0)
			return EINVAL;
	}
	phys->num_pkeys = (uint32_t)n;
	return 0;
}

/* ---------------------------------------------------------------- InfiniBand addresses */

/* "fec0:0:FLID:SUBNET" is the prefix of an address that routers know. */
#define LINK_LOCAL_PREFIX 0xfe80000000000000ull
#define ROUTABLE_PREFIX	  0xfec0000000000000ull

/* Every unicast LID is below it but for those of routers. */
#define FIRST_FLID 0xa000u

static void set_gid(struct sv_phys_config *phys, uint64_t prefix, uint64_t guid)
{
	phys->gids[phys->num_gids++] = (struct sv_gid_entry){
	    .gid = {.global = {.subnet_prefix = htobe64(prefix), .interface_id = htobe64(guid)}},
	    .type = IBV_GID_TYPE_IB,
	};
}

void sv_phys_infiniband(struct sv_phys_config *phys, uint64_t guid, uint32_t lid, uint32_t subnet)
{
	phys->lid = (uint16_t)lid;
	phys->num_gids = 0;
	set_gid(phys, LINK_LOCAL_PREFIX | subnet, guid);
	if (subnet)
		set_gid(phys, ROUTABLE_PREFIX | (uint64_t)(FIRST_FLID + subnet) << 16 | subnet,
			guid);
}

static bool has_gid(const struct sv_phys_config *phys, const union ibv_gid *gid)
{
	for (uint32_t i = 0; i < phys->num_gids; i++)
		if (!memcmp(&phys->gids[i].gid, gid, sizeof(*gid)))
			return true;
	return false;
}

static uint16_t subnet_of(const struct sv_phys_config *phys)
{
	return (uint16_t)be64toh(phys->gids[0].gid.global.subnet_prefix);
}

/* The LID under which each subnet knows the way to another one: a part of the address. */
static uint16_t flid_of(const union ibv_gid *gid)
{
	return (uint16_t)(be64toh(gid->global.subnet_prefix) >> 16);
}

bool sv_phys_takes(const struct sv_phys_config *phys, const struct sv_phys_config *from,
		   const struct ibv_ah_attr *attr, bool ethernet)
{
	const union ibv_gid *dgid = &attr->grh.dgid;

	if (ethernet)
		return attr->is_global && has_gid(phys, dgid);
	if (attr->is_global && !has_gid(phys, dgid))
		return false;
	if (subnet_of(phys) == subnet_of(from))
		return attr->dlid == phys->lid;
	/* By the router: it looks at the GRH, and whoever sends finds it by the FLID. */
	return attr->is_global && flid_of(dgid) && attr->dlid == flid_of(dgid);
}
