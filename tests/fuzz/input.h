/* SPDX-License-Identifier: Apache-2.0 */
/* An input that is read as a program: number after number, zeros when it is at its end. */
#ifndef HA_TESTS_FUZZ_INPUT_H
#define HA_TESTS_FUZZ_INPUT_H

#include <stddef.h>
#include <stdint.h>

static const uint8_t *input;
static size_t input_left;

static uint8_t byte(void)
{
	if (input_left == 0)
		return 0;
	input_left--;
	return *input++;
}

static uint64_t number(unsigned bytes)
{
	uint64_t n = 0;

	while (bytes-- > 0)
		n = n << 8 | byte();
	return n;
}

#endif
