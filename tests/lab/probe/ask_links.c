/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A path that falls silent, and a link that goes down and comes back: who is told, what fails how,
 * and what works again. The driver does it (see probe.h):
 *
 *	silence on|off	nothing gets across between the two ports, which stay up
 *	link down|up	the first device's own link
 */
#include "probe.h"

#include <errno.h>
#include <string.h>

#define EVENT_MS 200u

/* One whose time-outs last longer than the silence: nothing is lost and nothing is done twice. */
static void post_patiently(struct pair *pair)
{
	fill(pair);
	for (unsigned i = 0; i < 4; i++)
		NEED(!post_recv(&pair->b, 0, i) && !post_write_imm(&pair->a, &pair->b, 10000, i));
}

static void say_patient(struct pair *pair)
{
	struct ibv_wc wcs[4];
	bool in_order = true;
	unsigned n = 0;

	while (n < 4 && next_wc(&pair->b, &wcs[n], WAIT_MS))
		n++;
	for (unsigned i = 0; i < n; i++)
		in_order = in_order && wcs[i].wr_id == i && wcs[i].status == IBV_WC_SUCCESS;
	answer("silence.over.receives", "%u", n);
	answer("silence.over.in-order", "%s", yes_no(in_order));
	answer("silence.over.data", "%s", yes_no(arrived(pair, 10000)));
	answer("silence.over.more", "%s", next_status(&pair->b, QUIET_MS));
}

/* One that gives up. */
static void ask_hasty(struct probe *probe, struct pair *pair)
{
	struct words words;

	NEED(!post_recv(&pair->a, 0, 50));
	fill(pair);
	NEED(!post_write(&pair->a, &pair->b, 100, 1));
	NEED(!post_write(&pair->a, &pair->b, 100, 2));
	answer("silence.write", "%s", next_status(&pair->a, WAIT_MS));
	answer("silence.next", "%s", next_status(&pair->a, WAIT_MS));
	answer("silence.and-next", "%s", next_status(&pair->a, WAIT_MS));
	answer("silence.wrote", "%s", yes_no(arrived(pair, 100)));
	answer("silence.receiver-state", "%s",
	       state_name(end_settled_state(&pair->b, IBV_QPS_ERR)));
	answer("silence.events", "%s", events_within(&probe->a, &words, QUIET_MS));
	answer("silence.peer-events", "%s", events_within(&probe->b, &words, 1));
	port_refresh(&probe->a);
	answer("silence.port-state", "%s", port_state_name(probe->a.attr.state));
}

static void ask_silence(struct probe *probe)
{
	struct options hasty_options = quick(), options = patient();
	struct pair hasty, lasting, new;

	pair_open(&hasty, &probe->a, &probe->b, &hasty_options);
	pair_open(&lasting, &probe->a, &probe->b, &options);
	drop_events(&probe->a);
	drop_events(&probe->b);
	ask_driver("silence on");
	post_patiently(&lasting);
	ask_hasty(probe, &hasty);
	ask_driver("silence off");
	say_patient(&lasting);
	pair_close(&lasting);
	pair_close(&hasty);
	pair_open(&new, &probe->a, &probe->b, &options);
	NEED(!post_write(&new.a, &new.b, 100, 1));
	answer("silence.over.new-queue-pair", "%s", next_status(&new.a, WAIT_MS));
	pair_close(&new);
}

static void say_port(struct probe *probe, const char *state, const char *physical)
{
	struct ibv_port_attr attr;

	NEED(!ibv_query_port(probe->a.ctx, 1, &attr));
	answer(state, "%s", port_state_name(attr.state));
	answer(physical, "%u", attr.phys_state);
}

/* Work on a queue pair that was connected before the link went. */
static void ask_connected(struct pair *pair)
{
	unsigned n;
	struct ibv_wc wcs[8];

	answer("link-down.queue-pair-state", "%s",
	       state_name(end_settled_state(&pair->a, IBV_QPS_ERR)));
	answer("link-down.post", "%s", errno_name(post_write(&pair->a, &pair->b, 100, 1)));
	answer("link-down.write", "%s", next_status(&pair->a, 1000));
	NEED(!end_to(&pair->a, IBV_QPS_ERR));
	NEED(!post_write(&pair->a, &pair->b, 100, 2));
	n = take_all(&pair->a, wcs, 8);
	answer("link-down.err-flushes", "%s",
	       yes_no(n > 0 && wcs[n - 1].wr_id == 2 && wcs[n - 1].status == IBV_WC_WR_FLUSH_ERR));
}

/* What can be made while the link is down. */
static void ask_new(struct probe *probe)
{
	struct options options = quick();
	struct ibv_ah_attr attr;
	struct ibv_ah *ah;
	struct pair pair;
	int rc;

	options.a_state = options.b_state = IBV_QPS_INIT;
	pair_open(&pair, &probe->a, &probe->b, &options);
	rc = end_modify(&pair.a, &pair.b, IBV_QPS_RTR, &options);
	answer("link-down.rtr", "%s", errno_name(rc));
	answer("link-down.rtr.state", "%s", state_name(end_state(&pair.a)));
	attr = address_of(&pair.a, &pair.b);
	errno = 0;
	ah = ibv_create_ah(probe->a.pd, &attr);
	answer("link-down.address", "%s", ah ? "0" : errno_name(errno));
	if (ah)
		NEED(!ibv_destroy_ah(ah));
	pair_close(&pair);
}

static void ask_down_and_up(struct probe *probe)
{
	struct options options = quick();
	struct pair pair, idle;
	struct words words;

	pair_open(&pair, &probe->a, &probe->b, &options);
	options.timeout = 16; /* 0.27 s, twice: one packet may be lost when the link is back */
	options.retry_cnt = 1;
	pair_open(&idle, &probe->a, &probe->b, &options);
	drop_events(&probe->a);
	drop_events(&probe->b);
	ask_driver("link down");
	answer("link-down.events", "%s", events_within(&probe->a, &words, EVENT_MS));
	answer("link-down.peer-events", "%s", events_within(&probe->b, &words, 1));
	say_port(probe, "link-down.port-state", "link-down.phys-state");
	ask_connected(&pair);
	ask_new(probe);
	ask_driver("link up");
	answer("link-up.events", "%s", events_within(&probe->a, &words, EVENT_MS));
	answer("link-up.peer-events", "%s", events_within(&probe->b, &words, 1));
	say_port(probe, "link-up.port-state", "link-up.phys-state");
	port_refresh(&probe->a);
	port_refresh(&probe->b);
	answer("link-up.idle-queue-pair-state", "%s", state_name(end_state(&idle.a)));
	NEED(!post_write(&idle.a, &idle.b, 100, 1));
	answer("link-up.idle-queue-pair-works", "%s", next_status(&idle.a, WAIT_MS));
	pair_close(&pair);
	pair_close(&idle);
	options = patient();
	pair_open(&pair, &probe->a, &probe->b, &options);
	NEED(!post_write(&pair.a, &pair.b, 100, 1));
	answer("link-up.new-queue-pair", "%s", next_status(&pair.a, WAIT_MS));
	pair_close(&pair);
}

void ask_links(struct probe *probe)
{
	ask_silence(probe);
	ask_down_and_up(probe);
}
