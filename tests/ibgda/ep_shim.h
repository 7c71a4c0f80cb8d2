/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The three primitives that expert-parallel kernels build upon, as they are over a stream: a put by
 * the lanes of a warp that returns at once, an addition to a counter of the peer behind it, and the
 * wait for both. An example of how such a program is moved here.
 *
 * What is different: a counter is a signal, which its receiver compares with what it has consumed
 * before and does not set to zero; and who receives looks at counters, never at data.
 */
#ifndef TESTS_IBGDA_EP_SHIM_H
#define TESTS_IBGDA_EP_SHIM_H

#include "nccl_ha/ibgda.cuh"

/* One lane posts, the others have nothing to do. What was posted comes to *last. */
HA_DEV bool ep_put_nbi_warp(struct ha_ibgda_stream *stream, uint64_t to, uint64_t from,
			    uint32_t bytes, uint32_t region, uint32_t lane, uint64_t *last)
{
	struct ha_ibgda_work post = {0};

	if (lane != 0)
		return true;
	post.put.local = from;
	post.put.remote = to;
	post.put.local_region = post.put.remote_region = region;
	post.put.size = bytes;
	if (ha_ibgda_post(stream, &post) != HA_IBGDA_OK)
		return false;
	*last = post.first;
	return true;
}

/* Whoever sees it has all that this thread has put before. */
HA_DEV bool ep_amo_nonfetch_add(struct ha_ibgda_stream *stream, uint32_t counter, uint32_t value,
				uint64_t *last)
{
	struct ha_ibgda_work post = {0};

	post.signal.id = counter;
	post.signal.addend = value;
	if (ha_ibgda_post(stream, &post) != HA_IBGDA_OK)
		return false;
	*last = post.first;
	return true;
}

/* Sources of all up to the last one may be written. */
HA_DEV bool ep_quiet(struct ha_ibgda_stream *stream, uint64_t last)
{
	return ha_ibgda_quiet(stream, last) == HA_IBGDA_OK;
}

#endif
