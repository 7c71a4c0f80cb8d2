/* SPDX-License-Identifier: Apache-2.0 */
/* Shares that people have said: for one flow, until they say otherwise, or in a file for many. */
#ifndef NA_RULES_H
#define NA_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NA_RULES_MAX 1024u

/* Addresses and masks in network byte order. */
struct na_rule {
	uint32_t src_ip, src_mask, dst_ip, dst_mask;
	uint32_t share;
};

struct na_rules {
	struct na_rule rule[NA_RULES_MAX];
	unsigned n;
};

/* The share of the first rule for the flow. False: none is. */
bool na_rules_find(const struct na_rules *rules, uint32_t src_ip, uint32_t dst_ip, uint32_t *share);

/* A flow's own rule, in the place of what was said of it before. False: there are too many. */
bool na_rules_set(struct na_rules *rules, uint32_t src_ip, uint32_t dst_ip, uint32_t share);
/* Without one, nothing. */
void na_rules_clear(struct na_rules *rules, uint32_t src_ip, uint32_t dst_ip);

/* A line "CIDR CIDR SHARE" for each, and # before what is none. False with a reason that names the
 * line. */
bool na_rules_read(struct na_rules *rules, const char *path, char *err, size_t err_len);

/* "10.0.0.0/8" or "10.0.0.1"; a share as digits, 0 to 1024. */
bool na_parse_cidr(const char *text, uint32_t *ip, uint32_t *mask);
bool na_parse_share(const char *text, uint32_t *share);

#endif
