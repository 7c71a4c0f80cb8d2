/* SPDX-License-Identifier: Apache-2.0 */
/* What one thread does (kernels.h), a GPU's or the host's. Who includes it has kernel_now_ns(),
 * kernel_now_cycles() and, of KERNEL_KIND 2, kernel_job_of_first() before: the job, in its first
 * thread; else NULL. */
#ifndef TESTS_IBGDA_KERNEL_THREAD_H
#define TESTS_IBGDA_KERNEL_THREAD_H

#include "kernels.h"

#include "nccl_ha/ibgda_memory.h"

#define HA_IBGDA_BACKUP (KERNEL_KIND > 0)
#if KERNEL_KIND == 2
#undef HA_DEV_STEP
#define HA_DEV_STEP(where)                                                                         \
	kernel_step((uint64_t)(where)[0] | (uint64_t)(where)[1] << 8 |                             \
		    (uint64_t)sizeof(where) << 16)

/* Stays there until it is let go. */
HA_DEV void kernel_step(uint64_t step)
{
	struct kernel_job *job = kernel_job_of_first();

	if (!job || ha_dev_load(&job->hold) != step)
		return;
	ha_dev_store(&job->held, step);
	while (ha_dev_load(&job->hold) == step)
		ha_dev_pause();
	ha_dev_store(&job->held, 0);
}
#endif

#include "nccl_ha/ibgda.cuh"

HA_DEV uint64_t kernel_slot(uint64_t slots, const struct kernel_job *job, uint64_t number)
{
	return slots + (number % KERNEL_SLOTS) * job->bytes;
}

/* The first and the last word of a put are its number. */
HA_DEV bool kernel_post(const struct kernel_job *job, const struct kernel_thread *thread,
			uint64_t number, uint64_t *last)
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

/* Who posts until it is stopped looks at that word with each wait. */
HA_DEV bool kernel_ends(struct kernel_job *job, const struct kernel_job *mine, uint64_t number)
{
	return mine->count ? number == mine->count
			   : number % mine->window == 0 && ha_dev_load(&job->stops) != 0;
}

/* A source is not written before the put from it is quiet. What never changes is copied, as each
 * look at the host's memory takes a GPU a microsecond. */
HA_DEV void kernel_posts(struct kernel_job *job, struct kernel_thread *thread)
{
	const struct kernel_job mine = *job;
	const struct kernel_thread me = *thread;
	const uint64_t began_ns = kernel_now_ns(), began = kernel_now_cycles();
	uint64_t number = 0, last = 0, before = began;
	bool ends = false, over = false;

	while (!ends && !over) {
		over = !kernel_post(&mine, &me, me.posted + ++number, &last);
		if (over) {
			number--;
			break;
		}
		if (me.samples)
			me.samples[number - 1][0] = (uint32_t)(kernel_now_cycles() - before);
		ends = kernel_ends(job, &mine, number);
		if (ends || number % mine.window == 0)
			over = ha_ibgda_quiet(me.stream, last) != HA_IBGDA_OK;
		if (me.samples) {
			const uint64_t now = kernel_now_cycles();

			me.samples[number - 1][1] = (uint32_t)(now - before);
			before = now;
		}
	}
	thread->ns = kernel_now_ns() - began_ns;
	thread->cycles = kernel_now_cycles() - began;
	thread->posted = me.posted + number;
	thread->over = over;
	ha_dev_store(&thread->ended, 1);
}

/* Its put, or a later one to the same place. */
HA_DEV bool kernel_is_there(const uint64_t *word, uint64_t value)
{
	const uint64_t number = ha_dev_load(word);

	return number >= value && number % KERNEL_SLOTS == value % KERNEL_SLOTS;
}

HA_DEV void kernel_watches(struct kernel_job *job, struct kernel_watch *watch)
{
	const struct kernel_job mine = *job;
	const struct kernel_watch me = *watch;
	uint64_t seen = me.seen, looks = me.looks, wrong = me.wrong;

	while (!ha_dev_load(&job->leaves)) {
		const uint64_t value = ha_dev_load(me.signal);
		const uint64_t *put = (const uint64_t *)(uintptr_t)kernel_slot(me.to, &mine, value);

		if (value == seen) {
			ha_dev_pause();
			continue;
		}
		wrong += value < seen || !kernel_is_there(put, value) ||
			 !kernel_is_there(put + mine.bytes / 8 - 1, value);
		seen = value;
		watch->wrong = wrong;
		ha_dev_store(&watch->looks, ++looks);
		ha_dev_store(&watch->seen, seen); /* the judge looks at the others behind it */
	}
}

#endif
