/* SPDX-License-Identifier: Apache-2.0 */
#include "gin/verbs/group_post.h"

#include "base/hot.h"
#include "base/log.h"
#include "gin/verbs/group_own.h"
#include "gin/verbs/reader.h"

static ha_result_t __attribute__((cold, noinline)) refuse(const char *what, uint32_t rank)
{
	HA_WARN("GIN: a put to rank %u is refused: %s", rank, what);
	return HA_ERR_ARGUMENT;
}

static ha_result_t take_data(const struct ha_gin_group *group, uint32_t rank,
			     const struct ha_gin_put *put, uint64_t size,
			     struct ha_gin_request *request)
{
	const struct ha_gin_memory *from = put->from;
	const struct ha_gin_remote *to;

	if (!from || !from->mr || !put->to)
		return refuse("its memory is not registered", rank);
	if (size > group->largest)
		return refuse("it is larger than maxP2pBytes of the device's properties", rank);
	if (!ha_gin_is_inside(put->from_offset, size, from->size))
		return refuse("it does not lie in the memory that it is from", rank);
	to = &put->to->remotes[rank];
	if (!to->is_known)
		return refuse("that rank has not registered the memory that it goes to", rank);
	if (!ha_gin_is_inside(put->to_offset, size, to->size))
		return refuse("it does not lie in that rank's memory", rank);
	request->from_mr = from->mr;
	request->from = from->base + put->from_offset;
	request->to = to;
	request->to_offset = put->to_offset;
	return HA_OK;
}

static ha_result_t take_signal(uint32_t rank, const struct ha_gin_put *put,
			       struct ha_gin_request *request)
{
	const struct ha_gin_remote *remote = &put->signals->remotes[rank];

	if (!remote->is_known || !remote->is_signals)
		return refuse("its signal goes to memory that was not registered for signals "
			      "(NCCL_NET_MR_FLAG_FORCE_SO)",
			      rank);
	if (put->signal_offset % 8 || !ha_gin_is_inside(put->signal_offset, 8, remote->size))
		return refuse("its signal is no word of that rank's memory", rank);
	request->region = (uint16_t)put->signals->number;
	request->signal_offset = put->signal_offset;
	request->addend = put->addend;
	return HA_OK;
}

static ha_result_t __attribute__((cold, noinline)) refuse_more(uint32_t rank)
{
	HA_WARN("GIN: more than %d requests to rank %u were not tested to their end", HA_GIN_WINDOW,
		rank);
	return HA_ERR_INTERNAL;
}

static ha_result_t do_put(struct ha_gin_group *group, uint32_t rank, const struct ha_gin_put *put,
			  struct ha_gin_request **out)
{
	const uint64_t size = put->size;
	struct ha_gin_request *request;

	if (rank >= group->ranks)
		return refuse("there is no such rank", rank);
	request = ha_gin_sender_next(&group->peers[rank].sender);
	if (!request)
		return refuse_more(rank);
	request->to = NULL;
	request->size = (uint32_t)size;
	request->has_signal = put->signals != NULL;
	if (size)
		HA_TRY(take_data(group, rank, put, size, request));
	if (put->signals)
		HA_TRY(take_signal(rank, put, request));
	if (request->sender->is_gone)
		return ha_gin_group_latch(group, group->peers[rank].why);
	ha_gin_sender_begin(request->sender, request);
	*out = request;
	return HA_OK;
}

HA_NO_CANARY HA_CALLED_DIRECTLY ha_result_t ha_gin_put(struct ha_gin_group *group, uint32_t rank,
						       const struct ha_gin_put *put,
						       struct ha_gin_request **out)
{
	ha_result_t result;

	*out = NULL;
	ha_gin_group_lock(group);
	result = group->error;
	if (result == HA_OK)
		result = do_put(group, rank, put, out);
	ha_gin_group_unlock(group);
	return result;
}

static ha_result_t check_get(const struct ha_gin_group *group, uint32_t rank,
			     const struct ha_gin_get *get)
{
	const struct ha_gin_remote *remote;

	if (rank >= group->ranks)
		return refuse("there is no such rank", rank);
	if (!get->from || !get->to || !get->to->mr)
		return refuse("its memory is not registered", rank);
	if (get->size > group->largest)
		return refuse("it is larger than maxP2pBytes of the device's properties", rank);
	remote = &get->from->remotes[rank];
	if (!remote->is_known || !ha_gin_is_inside(get->from_offset, get->size, remote->size))
		return refuse("what it is to read does not lie in that rank's memory", rank);
	if (!ha_gin_is_inside(get->to_offset, get->size, get->to->size))
		return refuse("it does not lie in the memory that it goes to", rank);
	return HA_OK;
}

static ha_result_t do_read(struct ha_gin_group *group, uint32_t rank, const struct ha_gin_get *get,
			   struct ha_gin_request **out)
{
	struct ha_gin_peer *peer = &group->peers[rank];
	struct ha_gin_request *request = ha_gin_reader_next(&peer->sender);

	if (!request)
		return refuse_more(rank);
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
		result = refuse("there is no such rank", rank);
	if (result == HA_OK)
		result = do_read(group, rank, NULL, out);
	ha_gin_group_unlock(group);
	return result;
}

HA_CALLED_DIRECTLY ha_result_t ha_gin_test(struct ha_gin_group *group,
					   struct ha_gin_request *request, bool *done)
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
