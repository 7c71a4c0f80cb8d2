/* SPDX-License-Identifier: Apache-2.0 */
/* What one thread does (kernels.h), a GPU's or the host's: it includes nccl_ha/ibgda.cuh and has
 * kernel_now_ns() before. */
#ifndef TESTS_IBGDA_KERNEL_THREAD_H
#define TESTS_IBGDA_KERNEL_THREAD_H

#include "kernels.h"

HA_DEV uint64_t kernel_slot(uint64_t slots, const struct kernel_job *job, uint64_t number)
{
	return slots + (number % KERNEL_SLOTS) * job->bytes;
}

/* The first and the last word of a put are its number. */
HA_DEV bool kernel_post(struct kernel_job *job, struct kernel_thread *thread, uint64_t number,
			uint64_t *last)
{
	const uint64_t from = kernel_slot(thread->from, job, number);
	struct ha_ibgda_work post;

	ha_dev_store((uint64_t *)(uintptr_t)from, number);
	ha_dev_store((uint64_t *)(uintptr_t)(from + job->bytes - 8), number);
	post.put.local = from;
	post.put.remote = kernel_slot(thread->to, job, number);
	post.put.local_region = job->own_region;
	post.put.remote_region = job->peer_region;
	post.put.size = job->bytes;
	post.signal.id = thread->id;
	post.signal.addend = job->signals ? 1 : 0;
	if (ha_ibgda_post(thread->stream, &post) != HA_IBGDA_OK)
		return false;
	*last = ha_ibgda_end(&post) - 1;
	return true;
}

HA_DEV bool kernel_ends(struct kernel_job *job, uint64_t number)
{
	return job->count ? number == job->count : ha_dev_load(&job->stops) != 0;
}

/* A source is not written before the put from it is quiet. */
HA_DEV void kernel_posts(struct kernel_job *job, struct kernel_thread *thread)
{
	const uint64_t began_ns = kernel_now_ns();
	uint64_t number = 0, last = 0;
	bool ends = false;

	while (!ends && !thread->over) {
		if (!kernel_post(job, thread, ++number, &last)) {
			thread->over = 1;
			return;
		}
		ha_dev_store(&thread->posted, number);
		ends = kernel_ends(job, number);
		if ((ends || number % job->window == 0) &&
		    ha_ibgda_quiet(thread->stream, last) != HA_IBGDA_OK)
			thread->over = 1;
	}
	thread->ns = kernel_now_ns() - began_ns;
}

#endif
