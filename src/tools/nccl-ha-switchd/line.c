/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha-switchd/line.h"

#include <poll.h>
#include <sys/epoll.h>

void ns_line_begin(struct ns_line *line, void (*look)(struct ns_line *line, uint64_t now_ns))
{
	line->watched = -1;
	line->mask = 0;
	line->look = look;
}

void ns_line_watch(struct ns_line *line, int epoll)
{
	const bool writes = ha_talk_waits_for(&line->talk) & POLLOUT;
	struct epoll_event event = {.events = EPOLLIN | (writes ? EPOLLOUT : 0u), .data.ptr = line};
	const bool is_new = line->watched != line->talk.fd;

	if (ns_line_is_over(line) || (!is_new && event.events == line->mask))
		return; /* a descriptor that is closed is watched no more */
	if (epoll_ctl(epoll, is_new ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, line->talk.fd, &event) != 0)
		ha_talk_end(&line->talk);
	line->watched = line->talk.fd;
	line->mask = event.events;
	line->epoll = epoll;
}

void ns_line_unwatch(struct ns_line *line)
{
	if (!ns_line_is_over(line) && line->watched == line->talk.fd)
		(void)epoll_ctl(line->epoll, EPOLL_CTL_DEL, line->talk.fd, NULL);
	line->watched = -1;
	line->mask = 0;
}
