/* SPDX-License-Identifier: Apache-2.0 */
#include "base/bytes.h"

uint32_t ha_checksum(const uint8_t *data, size_t len)
{
	uint32_t hash = 2166136261u;

	for (size_t i = 0; i < len; i++)
		hash = (hash ^ data[i]) * 16777619u;
	return hash;
}
