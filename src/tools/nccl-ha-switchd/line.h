/* SPDX-License-Identifier: Apache-2.0 */
/* A conversation (inc/net/talk.h) that epoll watches, and who looks after it. */
#ifndef NS_LINE_H
#define NS_LINE_H

#include "inc/net/talk.h"

struct ns_line {
	struct ha_talk talk;
	int watched;   /* the descriptor that epoll has; -1: none */
	uint32_t mask; /* what it is watched for */
	int epoll;     /* that watched it last */
	/* Something has happened on it. Nothing that is watched is freed in here. */
	void (*look)(struct ns_line *line, uint64_t now_ns);
};

/* Of a line whose talk has begun. */
void ns_line_begin(struct ns_line *line, void (*look)(struct ns_line *line, uint64_t now_ns));
/* After whatever may have changed what it waits for. A line that cannot be watched ends. */
void ns_line_watch(struct ns_line *line, int epoll);
/* Before another thread looks after it. */
void ns_line_unwatch(struct ns_line *line);
static inline bool ns_line_is_over(const struct ns_line *line)
{
	return line->talk.phase == HA_TALK_OVER;
}

#endif
