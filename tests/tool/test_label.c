/* SPDX-License-Identifier: Apache-2.0 */
/* Labels of metrics: whatever is in them and however many there are, nothing goes behind their end
 * and each is whole. */
#include "../unit/cmocka_all.h"

#include "tools/nccl-ha/label.h"

#include <stdio.h>
#include <string.h>

static void values_are_escaped(void **state)
{
	char labels[100] = "";

	(void)state;
	nh_label_append(labels, sizeof(labels), "a", "x\"y\\z\n\x1b");
	nh_label_append(labels, sizeof(labels), "b", "");
	assert_string_equal(labels, "a=\"x\\\"y\\\\z??\",b=\"\"");
}

/* For each room that there may be, behind which a guard lies. */
static void what_does_not_fit_is_left_out_whole(void **state)
{
	static const char long_value[] =
	    "\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"";

	(void)state;
	for (size_t size = 1; size < 300; size++) {
		char labels[320], before[320];

		memset(labels, '#', sizeof(labels));
		labels[0] = '\0';
		for (int i = 0; i < 5; i++) {
			size_t length;

			strcpy(before, labels);
			nh_label_append(labels, size, "name", i % 2 ? "v" : long_value);
			length = strlen(labels);
			assert_true(length < size);
			if (strcmp(before, labels) != 0)
				assert_int_equal(labels[length - 1], '"');
			for (size_t at = size; at < sizeof(labels); at++)
				assert_int_equal(labels[at], '#');
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(values_are_escaped),
	    cmocka_unit_test(what_does_not_fit_is_left_out_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
