/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The filter language of NCCL_IB_HCA and NCCL_SOCKET_IFNAME:
 *
 *	[^][=]ITEM[,ITEM]…	ITEM: NAME[:PORT[:RAIL[:PLANE]]]
 *
 * A name matches what starts with it, or with = only the very name; with ^ what matches is left
 * out instead of taken. Without a port every port matches. No name at all means no filter. Rail and
 * plane, which NCCL reads from 2.30 on, are numbers of the operator's. Each number may be empty.
 */
#ifndef HA_BASE_NAME_FILTER_H
#define HA_BASE_NAME_FILTER_H

#include <stdbool.h>

#define HA_FILTER_MAX_ITEMS 64
#define HA_FILTER_NAME_MAX  64 /* with the terminating zero */
#define HA_FILTER_ANY_PORT  (-1)
#define HA_FILTER_UNSAID    (-1) /* a rail, a plane */

struct ha_name_filter {
	bool exclude, exact;
	int nitems;  /* 0: everything passes, or nothing does when `invalid` */
	int invalid; /* items left out of the list because they make no sense */
	struct {
		char name[HA_FILTER_NAME_MAX];
		int port, rail, plane;
	} items[HA_FILTER_MAX_ITEMS];
};

/* variable: what to name in the WARN about an item that makes no sense. */
void ha_name_filter_parse(struct ha_name_filter *filter, const char *variable, const char *spec);

/* The first item that matches name (and port, or HA_FILTER_ANY_PORT); -1: none does. */
int ha_name_filter_find(const struct ha_name_filter *filter, const char *name, int port);

/* Whether name (and port, or HA_FILTER_ANY_PORT) passes. */
bool ha_name_filter_passes(const struct ha_name_filter *filter, const char *name, int port);

#endif
