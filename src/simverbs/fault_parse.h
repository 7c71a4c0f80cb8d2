/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of faults, as people write them. */
#ifndef HA_SIMVERBS_FAULT_PARSE_H
#define HA_SIMVERBS_FAULT_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sv_fault_rule;

/* "5us", "20ms", "1.5s": nanoseconds. False: no such time. */
bool sv_time_parse(const char *text, uint64_t *ns);

/*
 * Parses one rule into *rule. 0, or EINVAL with a message in err that names the offending token and
 * what would be accepted.
 */
int sv_fault_parse(const char *text, struct sv_fault_rule *rule, char *err, size_t err_size);

#endif
