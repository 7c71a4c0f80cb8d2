/* SPDX-License-Identifier: Apache-2.0 */
/* cmocka and the headers it wants first. */
#ifndef HA_TESTS_CMOCKA_ALL_H
#define HA_TESTS_CMOCKA_ALL_H

/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

#include <stdlib.h>

/* HA_TEST_FILTER=name, or a pattern, runs these tests of a program only, HA_TEST_SKIP all others.
 */
__attribute__((constructor)) static void ha_select_tests(void)
{
	const char *filter = getenv("HA_TEST_FILTER"), *skip = getenv("HA_TEST_SKIP");

	if (filter)
		cmocka_set_test_filter(filter);
	if (skip)
		cmocka_set_skip_filter(skip);
}

#endif
