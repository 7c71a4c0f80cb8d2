/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A put, inline: the entries of the plugin's tables are each one function with it, and what they
 * are called with stays in registers on the way.
 */
#ifndef HA_GIN_VERBS_GROUP_PUT_H
#define HA_GIN_VERBS_GROUP_PUT_H

#include "gin/verbs/group_own.h"
#include "gin/verbs/group_post.h"
#include "gin/verbs/sender_post.h"

ha_result_t ha_gin_refuse_put(const char *what, uint32_t rank) __attribute__((cold, noinline));
ha_result_t ha_gin_refuse_more(uint32_t rank) __attribute__((cold, noinline));

HA_GIN_INLINE ha_result_t ha_gin_put_data(const struct ha_gin_group *group, uint32_t rank,
					  const struct ha_gin_put *put, uint64_t size,
					  struct ha_gin_request *request)
{
	const struct ha_gin_memory *from = put->from;
	const struct ha_gin_remote *to;

	if (!from || !from->mr || !put->to)
		return ha_gin_refuse_put("its memory is not registered", rank);
	if (size > group->largest)
		return ha_gin_refuse_put("it is larger than maxP2pBytes of the device's properties",
					 rank);
	if (!ha_gin_is_inside(put->from_offset, size, from->size))
		return ha_gin_refuse_put("it does not lie in the memory that it is from", rank);
	to = &put->to->remotes[rank];
	if (!to->is_known)
		return ha_gin_refuse_put("that rank has not registered the memory that it goes to",
					 rank);
	if (!ha_gin_is_inside(put->to_offset, size, to->size))
		return ha_gin_refuse_put("it does not lie in that rank's memory", rank);
	request->from_mr = from->mr;
	request->from = from->base + put->from_offset;
	request->to = to;
	request->to_offset = put->to_offset;
	return HA_OK;
}

HA_GIN_INLINE ha_result_t ha_gin_put_signal(uint32_t rank, const struct ha_gin_put *put,
					    struct ha_gin_request *request)
{
	const struct ha_gin_remote *remote = &put->signals->remotes[rank];

	if (!remote->is_signals)
		return ha_gin_refuse_put(
		    "its signal goes to memory that was not registered for signals "
		    "(NCCL_NET_MR_FLAG_FORCE_SO)",
		    rank);
	if (put->signal_offset % 8 || !ha_gin_is_inside(put->signal_offset, 8, remote->size))
		return ha_gin_refuse_put("its signal is no word of that rank's memory", rank);
	request->region = (uint16_t)put->signals->number;
	request->signal_offset = put->signal_offset;
	request->addend = put->addend;
	return HA_OK;
}

HA_GIN_INLINE ha_result_t ha_gin_put_locked(struct ha_gin_group *group, uint32_t rank,
					    const struct ha_gin_put *put,
					    struct ha_gin_request **out)
{
	const uint64_t size = put->size;
	struct ha_gin_request *request;
	struct ha_gin_sender *sender;

	if (rank >= group->ranks)
		return ha_gin_refuse_put("there is no such rank", rank);
	sender = &group->peers[rank].sender;
	HA_KEEP(sender);
	request = ha_gin_sender_next(sender);
	if (!request)
		return ha_gin_refuse_more(rank);
	request->size = (uint32_t)size;
	request->has_signal = put->signals != NULL;
	if (size)
		HA_TRY(ha_gin_put_data(group, rank, put, size, request));
	else
		request->to = NULL;
	if (put->signals)
		HA_TRY(ha_gin_put_signal(rank, put, request));
	if (sender->is_gone)
		return ha_gin_group_latch(group, group->peers[rank].why);
	ha_gin_sender_begin(sender, request);
	*out = request;
	return HA_OK;
}

/* ha_gin_put(). */
HA_GIN_INLINE ha_result_t ha_gin_put_inline(struct ha_gin_group *group, uint32_t rank,
					    const struct ha_gin_put *put,
					    struct ha_gin_request **out)
{
	ha_result_t result;

	*out = NULL;
	ha_gin_group_lock(group);
	result = group->error;
	if (result == HA_OK)
		result = ha_gin_put_locked(group, rank, put, out);
	ha_gin_group_unlock(group);
	return result;
}

#endif
