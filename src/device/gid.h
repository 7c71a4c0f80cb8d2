/* SPDX-License-Identifier: Apache-2.0 */
/* A port's GID table, and which entry to use. */
#ifndef HA_DEVICE_GID_H
#define HA_DEVICE_GID_H

#include "base/config.h"

#include <infiniband/verbs.h>

struct ha_gid {
	union ibv_gid raw;
	int index;	  /* in the port's table */
	int roce_version; /* 1, 2; 0: InfiniBand or unknown */
	uint32_t ifindex; /* of its network interface; 0: none or unknown */
};

#define HA_GID_TEXT_MAX 48

/* "::ffff:10.0.0.1". Returns buf. */
const char *ha_gid_text(const union ibv_gid *gid, char *buf, size_t size);

/*
 * The port's valid entries in ascending order, at most max. Returns how many, or -1 with errno
 * when the table cannot be read.
 */
int ha_gid_table(struct ibv_context *ctx, uint8_t port_num, int table_length, struct ha_gid *gids,
		 int max);

/*
 * The position in gids of the entry for a RoCE port: the one in NCCL_IB_ADDR_RANGE, then of
 * NCCL_IB_ADDR_FAMILY, then of NCCL_IB_ROCE_VERSION_NUM, then not link-local, then the first. The
 * earlier criteria weigh more than all later ones together. Among equals it is `kept`, a position
 * or -1. -1 when there are no entries.
 */
int ha_gid_choose(const struct ha_config *config, const struct ha_gid *gids, int ngids, int kept);

/* An IPv4 address in a GID is ::ffff:a.b.c.d. */
bool ha_gid_is_ipv4(const union ibv_gid *gid);
bool ha_gid_is_link_local(const union ibv_gid *gid);

/*
 * InfiniBand. The low 16 bits of a GID's prefix number the subnet. The 16 bits before them are the
 * FLID in a GID that routers know: the LID that leads to that subnet from any other; 0: none.
 */
bool ha_gid_same_subnet(const union ibv_gid *a, const union ibv_gid *b);
uint16_t ha_gid_flid(const union ibv_gid *gid);

/* Whether an address lies in a range; always true for the empty range. */
bool ha_gid_in_range(const union ibv_gid *gid, const struct ha_cidr *range);

#endif
