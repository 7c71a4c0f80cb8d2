/* SPDX-License-Identifier: Apache-2.0 */
/* Completion channels: what raises an event, once, and what does not. */
#include "probe.h"

#include <errno.h>
#include <poll.h>

/* Events there now, all of them acknowledged. */
static unsigned events(struct end *end, unsigned ms)
{
	struct pollfd fd = {.fd = end->channel->fd, .events = POLLIN};
	struct ibv_cq *cq;
	void *context;
	unsigned n = 0;

	while (poll(&fd, 1, (int)ms) == 1) {
		NEED(!ibv_get_cq_event(end->channel, &cq, &context));
		NEED(cq == end->cq && context == end);
		ibv_ack_cq_events(cq, 1);
		n++;
	}
	return n;
}

static void complete(struct pair *pair)
{
	NEED(!post_write(&pair->a, &pair->b, 8, 1));
	sleep_ms(QUIET_MS);
}

static void take(struct pair *pair)
{
	struct ibv_wc wc;

	while (next_wc(&pair->a, &wc, 1))
		;
}

static void ask_plain(struct pair *pair)
{
	struct ibv_cq *cq;
	void *context;

	errno = 0;
	(void)ibv_get_cq_event(pair->a.channel, &cq, &context);
	answer("notify.none-there", "%s", errno_name(errno));
	complete(pair);
	answer("notify.not-armed", "%u", events(&pair->a, QUIET_MS));
	NEED(!ibv_req_notify_cq(pair->a.cq, 0));
	answer("notify.armed-after-a-completion", "%u", events(&pair->a, QUIET_MS));
	take(pair);
	NEED(!ibv_req_notify_cq(pair->a.cq, 0));
	(void)events(&pair->a, 1);
	take(pair);
	NEED(!ibv_req_notify_cq(pair->a.cq, 0));
	complete(pair);
	complete(pair);
	answer("notify.armed-then-two-completions", "%u", events(&pair->a, QUIET_MS));
	take(pair);
}

static void send_to_b(struct pair *pair, bool solicited)
{
	struct ibv_wc wc;
	struct send send;

	NEED(!post_recv(&pair->b, 64, 1));
	make_send(&send, &pair->a, &pair->b, IBV_WR_SEND, 8);
	if (solicited)
		send.wr.send_flags |= IBV_SEND_SOLICITED;
	NEED(!post(&pair->a, &send) && next_wc(&pair->a, &wc, WAIT_MS));
}

static void ask_solicited(struct pair *pair)
{
	struct ibv_wc wc;

	NEED(!ibv_req_notify_cq(pair->b.cq, 1));
	send_to_b(pair, false);
	answer("notify.solicited-only.plain", "%u", events(&pair->b, QUIET_MS));
	NEED(next_wc(&pair->b, &wc, WAIT_MS));
	send_to_b(pair, true);
	answer("notify.solicited-only.solicited", "%u", events(&pair->b, QUIET_MS));
	NEED(next_wc(&pair->b, &wc, WAIT_MS));
	NEED(!post_recv(&pair->b, 64, 1));
	NEED(!ibv_req_notify_cq(pair->b.cq, 1));
	NEED(!end_to(&pair->b, IBV_QPS_ERR));
	answer("notify.solicited-only.error", "%u", events(&pair->b, QUIET_MS));
}

void ask_notification(struct probe *probe)
{
	struct options options = patient();
	struct pair pair;

	pair_open(&pair, &probe->a, &probe->b, &options);
	ask_plain(&pair);
	ask_solicited(&pair);
	pair_close(&pair);
}
