/* SPDX-License-Identifier: Apache-2.0 */
/* How results and rules are shown: lines, JSON, Markdown. */
#ifndef CHECK_REPORT_H
#define CHECK_REPORT_H

#include "supervise.h"

#include <stdio.h>

bool rule_applies(const struct rule *rule, int api);

/* One line per rule, and below a FAIL what NCCL would do. */
void report_line(const struct check_result *result);
/* The line at the end; returns how many failed. */
int report_summary(const struct check_result *results, size_t count);
/* false with a message on stderr when the file cannot be written. */
bool report_json(const char *path, const char *plugin, const char *name,
		 const struct check_result *results, size_t count);
void report_list(const struct rule_set *set);
/* docs/contract.md */
void report_markdown(FILE *out);

#endif
