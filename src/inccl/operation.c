/* SPDX-License-Identifier: Apache-2.0 */
#include "inccl/operation.h"

static unsigned int parts(const struct inccl_request *request)
{
	return request->is_by_rank ? request->ranks : 1;
}

static bool is_owner(const struct inccl_request *request, unsigned int part)
{
	return request->rank == (request->is_by_rank ? part : request->root);
}

/* Whether some part is this rank's. */
static bool owns(const struct inccl_request *request)
{
	return request->is_by_rank || request->rank == request->root;
}

size_t ha_inccl_operation_reads(const struct inccl_request *request)
{
	if (request->one_sends && !owns(request))
		return 0;
	return request->bytes * (request->send_has_parts ? parts(request) : 1);
}

size_t ha_inccl_operation_writes(const struct inccl_request *request)
{
	if (request->one_receives && !owns(request))
		return 0;
	return request->bytes * (request->recv_has_parts ? parts(request) : 1);
}

static size_t begin_of(const struct inccl_request *request, bool has_parts)
{
	return (has_parts ? request->part * request->bytes : 0) + request->asked;
}

bool ha_inccl_operation_next(struct inccl_request *request, size_t most,
			     struct ha_inccl_piece *piece)
{
	const size_t rest = request->bytes - request->asked;
	const bool is_own = is_owner(request, request->part);

	if (request->is_asked)
		return false;
	*piece = (struct ha_inccl_piece){.of = request, .bytes = rest < most ? rest : most};
	piece->is_empty = request->one_sends && !is_own;
	if (!piece->is_empty && request->send)
		piece->send = request->send + begin_of(request, request->send_has_parts);
	if ((!request->one_receives || is_own) && request->recv)
		piece->recv = request->recv + begin_of(request, request->recv_has_parts);
	if (request->one_sends && piece->send == piece->recv) /* it is there already */
		piece->recv = NULL;
	return true;
}

void ha_inccl_operation_begun(const struct ha_inccl_piece *piece)
{
	struct inccl_request *request = piece->of;

	request->pieces++;
	request->asked += piece->bytes;
	if (request->asked < request->bytes)
		return;
	request->asked = 0;
	request->part++;
	request->is_asked = request->part == parts(request);
}

void ha_inccl_operation_done(const struct ha_inccl_piece *piece)
{
	piece->of->pieces--;
}
