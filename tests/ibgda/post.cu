/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel that posts one put, and one that posts and waits: to count what a backup queue pair adds (HA_IBGDA_BACKUP=0 is
 * without), and to see that the header compiles for a GPU. */
#include "nccl_ha/ibgda.cuh"

extern "C" __global__ void ha_post_one(struct ha_ibgda_stream *stream, struct ha_ibgda_put put,
				       uint64_t *last)
{
	struct ha_ibgda_work post = {};

	post.put = put;
	if (ha_ibgda_post(stream, &post) == HA_IBGDA_OK)
		*last = post.first;
}

extern "C" __global__ void ha_put_signal_quiet(struct ha_ibgda_stream *stream,
					       struct ha_ibgda_put put, struct ha_ibgda_signal signal,
					       int *result)
{
	struct ha_ibgda_work post = {};

	post.put = put;
	post.signal = signal;
	*result = ha_ibgda_post(stream, &post);
	if (*result == HA_IBGDA_OK)
		*result = ha_ibgda_quiet(stream, post.first + 1);
}
