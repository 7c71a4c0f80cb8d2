/* SPDX-License-Identifier: Apache-2.0 */
/* Fault rules of the stepped fabric, for tests under cmocka. */
#ifndef HA_TESTS_STEPPED_RULES_H
#define HA_TESTS_STEPPED_RULES_H

#include <stdint.h>

/* A rule, which must be one: its id. How often it has matched, and fired. */
int add_rule(const char *text);
uint64_t matched(int id);
uint64_t fired(int id);

#endif
