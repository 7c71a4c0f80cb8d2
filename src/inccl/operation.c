/* SPDX-License-Identifier: Apache-2.0 */
#include "inccl/operation.h"

bool ha_inccl_operation_next(struct inccl_request *request, size_t most,
			     struct ha_inccl_piece *piece)
{
	const size_t rest = request->bytes - request->asked;

	if (request->is_asked)
		return false;
	*piece = (struct ha_inccl_piece){
	    .of = request,
	    .at = request->asked,
	    .bytes = rest < most ? rest : most,
	};
	return true;
}

void ha_inccl_operation_begun(const struct ha_inccl_piece *piece)
{
	struct inccl_request *request = piece->of;

	request->asked += piece->bytes;
	request->is_asked = request->asked == request->bytes;
	request->pieces++;
}

void ha_inccl_operation_done(const struct ha_inccl_piece *piece)
{
	piece->of->pieces--;
}
