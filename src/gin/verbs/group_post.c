/* SPDX-License-Identifier: Apache-2.0 */
#include "gin/verbs/group_post.h"

#include "gin/verbs/group_put.h"
#include "gin/verbs/reader.h"

ha_result_t ha_gin_put(struct ha_gin_group *group, uint32_t rank, const struct ha_gin_put *put,
		       struct ha_gin_request **out)
{
	return ha_gin_put_inline(group, rank, put, out);
}

static ha_result_t check_get(const struct ha_gin_group *group, uint32_t rank,
			     const struct ha_gin_get *get)
{
	const struct ha_gin_remote *remote;

	if (rank >= group->ranks)
		return ha_gin_refuse_put("there is no such rank", rank);
	if (!get->from || !get->to || !get->to->mr)
		return ha_gin_refuse_put("its memory is not registered", rank);
	if (get->size > group->largest)
		return ha_gin_refuse_put("it is larger than maxP2pBytes of the device's properties",
					 rank);
	remote = &get->from->remotes[rank];
	if (!remote->is_known || !ha_gin_is_inside(get->from_offset, get->size, remote->size))
		return ha_gin_refuse_put("what it is to read does not lie in that rank's memory",
					 rank);
	if (!ha_gin_is_inside(get->to_offset, get->size, get->to->size))
		return ha_gin_refuse_put("it does not lie in the memory that it goes to", rank);
	return HA_OK;
}

static ha_result_t do_read(struct ha_gin_group *group, uint32_t rank, const struct ha_gin_get *get,
			   struct ha_gin_request **out)
{
	struct ha_gin_peer *peer = &group->peers[rank];
	struct ha_gin_request *request = ha_gin_reader_next(&peer->sender);

	if (!request)
		return ha_gin_refuse_more(rank);
	if (peer->sender.is_gone)
		return ha_gin_group_latch(group, peer->why);
	request->to = get ? &get->from->remotes[rank] : NULL;
	request->size = get ? (uint32_t)get->size : 0;
	if (get) {
		request->from_mr = get->to->mr;
		request->from = get->to->base + get->to_offset;
		request->to_offset = get->from_offset;
	}
	ha_gin_reader_begin(&peer->sender, request);
	*out = request;
	return HA_OK;
}

ha_result_t ha_gin_get(struct ha_gin_group *group, uint32_t rank, const struct ha_gin_get *get,
		       struct ha_gin_request **out)
{
	ha_result_t result;

	*out = NULL;
	ha_gin_group_lock(group);
	result = group->error;
	if (result == HA_OK)
		result = check_get(group, rank, get);
	if (result == HA_OK)
		result = do_read(group, rank, get, out);
	ha_gin_group_unlock(group);
	return result;
}

ha_result_t ha_gin_flush(struct ha_gin_group *group, uint32_t rank, struct ha_gin_request **out)
{
	ha_result_t result;

	*out = NULL;
	ha_gin_group_lock(group);
	result = group->error;
	if (result == HA_OK && rank >= group->ranks)
		result = ha_gin_refuse_put("there is no such rank", rank);
	if (result == HA_OK)
		result = do_read(group, rank, NULL, out);
	ha_gin_group_unlock(group);
	return result;
}

HA_NO_CANARY HA_CALLED_DIRECTLY ha_result_t ha_gin_test(struct ha_gin_group *group,
							struct ha_gin_request *request, int *done)
{
	ha_result_t result;
	bool is_out;

	ha_gin_group_lock(group);
	result = group->error;
	is_out = !ha_gin_is_complete(request);
	if (is_out && result == HA_OK) {
		ha_gin_sender_works(request->sender);
		is_out = !ha_gin_is_complete(request);
	}
	request->is_out = is_out;
	ha_gin_group_unlock(group);
	*done = !is_out;
	return is_out ? result : HA_OK;
}
