/* SPDX-License-Identifier: Apache-2.0 */
#include "stepped_rules.h"

#include "unit/cmocka_all.h"

#include "simverbs/simverbs.h"

int add_rule(const char *text)
{
	char err[400] = "";
	int id = sv_stepped_fault_add(text, err, sizeof(err));

	if (id < 0)
		fail_msg("%s: %s", text, err);
	return id;
}

uint64_t matched(int id)
{
	uint64_t m = 0, f = 0;

	assert_true(sv_stepped_fault_stats(id, &m, &f));
	return m;
}

uint64_t fired(int id)
{
	uint64_t m = 0, f = 0;

	assert_true(sv_stepped_fault_stats(id, &m, &f));
	return f;
}
