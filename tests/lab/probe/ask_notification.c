/* SPDX-License-Identifier: Apache-2.0 */
/* Completion channels: what raises an event, once, and what does not. */
#include "probe.h"

#include <errno.h>

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
	answer("notify.not-armed", "%u", cq_events(&pair->a, QUIET_MS));
	NEED(!arm(&pair->a, false));
	answer("notify.armed-after-a-completion", "%u", cq_events(&pair->a, QUIET_MS));
	take(pair);
	NEED(!arm(&pair->a, false));
	(void)cq_events(&pair->a, 1);
	take(pair);
	NEED(!arm(&pair->a, false));
	complete(pair);
	complete(pair);
	answer("notify.armed-then-two-completions", "%u", cq_events(&pair->a, QUIET_MS));
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

	NEED(!arm(&pair->b, true));
	send_to_b(pair, false);
	answer("notify.solicited-only.plain", "%u", cq_events(&pair->b, QUIET_MS));
	NEED(next_wc(&pair->b, &wc, WAIT_MS));
	send_to_b(pair, true);
	answer("notify.solicited-only.solicited", "%u", cq_events(&pair->b, QUIET_MS));
	NEED(next_wc(&pair->b, &wc, WAIT_MS));
	NEED(!post_recv(&pair->b, 64, 1));
	NEED(!arm(&pair->b, true));
	NEED(!end_to(&pair->b, IBV_QPS_ERR));
	answer("notify.solicited-only.error", "%u", cq_events(&pair->b, QUIET_MS));
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
