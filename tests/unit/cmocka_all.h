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

#endif
