/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz.h"

#include <string.h>

void fuzz_one_of(const fuzz_decoder *decoders, size_t count, const uint8_t *data, size_t size)
{
	uint8_t *copy;

	if (size < 1)
		return;
	copy = malloc(size - 1 ? size - 1 : 1);
	FUZZ_CHECK(copy != NULL);
	memcpy(copy, data + 1, size - 1);
	decoders[data[0] % count](copy, size - 1);
	free(copy);
}
