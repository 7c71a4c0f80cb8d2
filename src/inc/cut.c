/* SPDX-License-Identifier: Apache-2.0 */
#include "inc/cut.h"

struct ha_piece ha_cut_piece(const struct ha_cut *cut, uint64_t unit)
{
	uint64_t offset = (unit - cut->first) * cut->unit_bytes, rest = cut->bytes - offset;

	return (struct ha_piece){
	    .offset = offset,
	    .bytes = rest < cut->unit_bytes ? (uint32_t)rest : cut->unit_bytes,
	};
}
