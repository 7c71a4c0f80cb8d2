/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha-switchd/loop.h"

#include "base/clock.h"

#include <poll.h>
#include <sys/epoll.h>
#include <time.h>

#define TICK_NS (20 * HA_NS_PER_MS)
#define LOOK_NS (100 * HA_NS_PER_US) /* between two looks at descriptors, while there is work */
#define LOSS_NS (50 * HA_NS_PER_US)  /* between two looks for what was lost */

/* One at a time: what it does may end what others are of. */
static bool take_event(struct ns_loop *loop)
{
	struct epoll_event event;

	if (epoll_wait(loop->groups->epoll, &event, 1, 0) != 1)
		return false;
	loop->look(loop, event.data.ptr);
	return !loop->ends;
}

static uint64_t processor_ns(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * HA_NS_PER_S + (uint64_t)t.tv_nsec;
}

/* Whatever a look at all trees costs, as long as nothing comes it is a small share of a processor.
 */
static uint64_t longest_nap(struct ns_loop *loop)
{
	const uint64_t used_ns = processor_ns(), turn_ns = used_ns - loop->used_ns;

	loop->used_ns = used_ns;
	return turn_ns * NS_NAP_TURNS > NS_NAP_MOST_NS ? turn_ns * NS_NAP_TURNS : NS_NAP_MOST_NS;
}

static void nap(struct ns_loop *loop)
{
	struct pollfd p = {.fd = loop->groups->epoll, .events = POLLIN};
	const uint64_t tick_ns = loop->ticked_ns + TICK_NS;
	const uint64_t idle_ns = (loop->now_ns - loop->moved_ns) / NS_NAP_PART,
		       longest_ns = longest_nap(loop);
	const uint64_t most_ns = idle_ns < longest_ns ? idle_ns : longest_ns;
	uint64_t nap_ns = tick_ns > loop->now_ns ? tick_ns - loop->now_ns : 0;
	struct timespec limit;

	if (loop->groups->n_trees > 0 && most_ns < nap_ns)
		nap_ns = most_ns;
	limit = (struct timespec){.tv_nsec = (long)nap_ns};
	(void)ppoll(&p, 1, &limit, NULL);
}

void ns_loop_turn(struct ns_loop *loop)
{
	struct ns_groups *groups = loop->groups;
	const bool moved = ns_groups_progress(groups);

	loop->now_ns = ha_real_ns();
	if (moved)
		loop->moved_ns = loop->now_ns;
	if (!moved || loop->now_ns - loop->looked_ns >= LOOK_NS) {
		loop->looked_ns = loop->now_ns;
		while (take_event(loop))
			;
	}
	if (loop->now_ns - loop->loss_ns >= LOSS_NS) {
		loop->loss_ns = loop->now_ns;
		ns_groups_look(groups, loop->now_ns);
	}
	if (loop->now_ns - loop->ticked_ns >= TICK_NS) {
		loop->ticked_ns = loop->now_ns;
		loop->tick(loop);
	}
	if (!moved && !loop->ends &&
	    (groups->n_trees == 0 || loop->now_ns - loop->moved_ns > NS_SPIN_NS))
		nap(loop);
}

bool ns_loop_watch(struct ns_loop *loop, int fd, void *source)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = source};

	return epoll_ctl(loop->groups->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}
