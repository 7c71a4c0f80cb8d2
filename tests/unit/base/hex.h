/* SPDX-License-Identifier: Apache-2.0 */
/* Hexadecimal, as published vectors have it. */
#ifndef HA_TESTS_HEX_H
#define HA_TESTS_HEX_H

#include "../cmocka_all.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Returns how many bytes there are. */
static inline size_t from_hex(const char *text, uint8_t *bytes, size_t size)
{
	size_t length = strlen(text) / 2;

	assert_true(length <= size);
	for (size_t i = 0; i < length; i++) {
		unsigned value;

		assert_int_equal(sscanf(text + 2 * i, "%2x", &value), 1);
		bytes[i] = (uint8_t)value;
	}
	return length;
}

#endif
