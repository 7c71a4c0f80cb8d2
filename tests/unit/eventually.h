/* SPDX-License-Identifier: Apache-2.0 */
/* What other threads or processes are to bring about, in real time. */
#ifndef HA_TESTS_EVENTUALLY_H
#define HA_TESTS_EVENTUALLY_H

#include "cmocka_all.h"

#include "base/clock.h"

#include <unistd.h>

/* Fails where it has not come about within 20 s. */
#define EVENTUALLY(condition)                                                                      \
	do {                                                                                       \
		uint64_t until_ns = ha_real_ns() + 20 * HA_NS_PER_S;                               \
		while (!(condition) && ha_real_ns() < until_ns)                                    \
			usleep(1000);                                                              \
		assert_true(condition);                                                            \
	} while (0)

#endif
