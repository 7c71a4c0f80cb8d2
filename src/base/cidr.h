/* SPDX-License-Identifier: Apache-2.0 */
/* A range of addresses: ADDRESS/BITS. */
#ifndef HA_BASE_CIDR_H
#define HA_BASE_CIDR_H

#include <stdbool.h>
#include <stdint.h>

/* family is AF_UNSPEC when there is none. */
struct ha_cidr {
	int family;	  /* AF_INET or AF_INET6 */
	uint8_t addr[16]; /* network order, as it was written; 4 bytes used for AF_INET */
	int prefix_len;
};

/* "10.0.0.0/8", "fd00::/16", or an address by itself, which is all of its bits. Whether it is one;
 * else *out is as it was. */
bool ha_cidr_parse(const char *text, struct ha_cidr *out);

#endif
