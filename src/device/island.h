/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Islands: hosts whose second rails reach each other. Whoever has a bundle of which that is not so
 * everywhere says with HA_NCCL_ISLAND which addresses of first rails are together:
 *
 *   20                              the first 20 bits of IPv4 addresses
 *   10.1.0.0/16=a,10.2.0.0/16=a     ranges with the name of their island; the longest one counts
 *   @FILE                           the same, one "RANGE NAME" a line, and # before what is none
 *
 * Nothing: 24 bits of IPv4. Addresses of IPv6, and GIDs of InfiniBand, that no range has are
 * together if 64 bits are alike; where ranges are given, an address of IPv4 that none has is an
 * island of its own: an unknown one is not guessed at.
 */
#ifndef HA_DEVICE_ISLAND_H
#define HA_DEVICE_ISLAND_H

#include <infiniband/verbs.h>
#include <stdbool.h>

#define HA_ISLANDS_MAX	   4096 /* ranges */
#define HA_ISLAND_NAME_MAX 32	/* with the terminating zero */

struct ha_islands;

/*
 * text: HA_NCCL_ISLAND. What cannot be used is one WARN, with the line of a file, and then islands
 * are as by default. NULL: out of memory, with a WARN. May read a file: not for the data path.
 */
struct ha_islands *ha_islands_load(const char *text);
void ha_islands_free(struct ha_islands *islands);

/* Whether two first rails are in one island. Any thread. */
bool ha_islands_same(const struct ha_islands *islands, const union ibv_gid *a,
		     const union ibv_gid *b);

#endif
