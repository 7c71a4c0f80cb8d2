/* SPDX-License-Identifier: Apache-2.0 */
/* Runs one rule in its own processes and tells what became of it. */
#ifndef CHECK_SUPERVISE_H
#define CHECK_SUPERVISE_H

#include "check.h"

struct check_result {
	const struct rule *rule;
	int api;
	enum check_outcome outcome;
	char text[768]; /* what was seen, why it was skipped, or a note */
	double seconds;
};

void check_run_rule(const struct rule *rule, int api, const struct check_options *opt,
		    struct check_result *result);

#endif
