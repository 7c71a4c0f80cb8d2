/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a queue pair does with its work when it is put into ERR, or gets there by itself. A path is
 * fenced with this: every work request comes back, in order, the sentinel last, and after it no
 * packet writes any more.
 */
#include "probe.h"

#include <errno.h>
#include <string.h>

#define SENTINEL 99u

/* In which order completions came. */
static void say_order(const char *name, const struct ibv_wc *wcs, unsigned n)
{
	struct words words = {0};

	for (unsigned i = 0; i < n; i++)
		add_word(&words, "%u:%s", (unsigned)wcs[i].wr_id, status_name(wcs[i].status));
	answer(name, "%s", words_text(&words));
}

static void take_and_say(const char *name, struct end *end)
{
	struct ibv_wc wcs[32];

	say_order(name, wcs, take_all(end, wcs, 32));
}

/* Like the plugin's: no memory, no key. */
static int post_sentinels(struct end *end)
{
	struct send send = {.wr = {.wr_id = SENTINEL,
				   .opcode = IBV_WR_RDMA_WRITE,
				   .send_flags = IBV_SEND_SIGNALED}};
	int rc = post(end, &send);

	return rc ? rc : post_recv(end, 0, SENTINEL);
}

/* Sends that nobody answers, every other one unsignalled, then ERR. */
static void ask_sends(struct probe *probe)
{
	struct options options = patient();
	struct pair pair;
	struct send send;
	int rc;

	options.b_state = IBV_QPS_INIT;
	pair_open(&pair, &probe->a, &probe->b, &options);
	for (unsigned i = 0; i < 6; i++) {
		make_send(&send, &pair.a, &pair.b, IBV_WR_RDMA_WRITE, 5000)->wr.wr_id = i;
		send.wr.send_flags = i % 2 ? 0 : IBV_SEND_SIGNALED;
		NEED(!post(&pair.a, &send));
	}
	rc = end_to(&pair.a, IBV_QPS_ERR);
	answer("flush.to-err", "%s", errno_name(rc));
	answer("flush.to-err-again", "%s", errno_name(end_to(&pair.a, IBV_QPS_ERR)));
	take_and_say("flush.sends", &pair.a);
	answer("flush.sentinels", "%s", errno_name(post_sentinels(&pair.a)));
	take_and_say("flush.sentinels.alone", &pair.a);
	NEED(!end_to(&pair.a, IBV_QPS_ERR));
	take_and_say("flush.sentinels.after-err-again", &pair.a);
	pair_close(&pair);
}

static void ask_receives(struct probe *probe)
{
	struct options options = patient();
	struct pair pair;

	pair_open(&pair, &probe->a, &probe->b, &options);
	for (unsigned i = 0; i < 5; i++)
		NEED(!post_recv(&pair.b, i * 10, i));
	NEED(!end_to(&pair.b, IBV_QPS_ERR));
	take_and_say("flush.receives", &pair.b);
	pair_close(&pair);
	/* From INIT, where receives may already wait. */
	options.a_state = options.b_state = IBV_QPS_INIT;
	pair_open(&pair, &probe->a, &probe->b, &options);
	NEED(!post_recv(&pair.b, 0, 1));
	NEED(!end_to(&pair.b, IBV_QPS_ERR));
	take_and_say("flush.receives-of-init", &pair.b);
	pair_close(&pair);
}

/* Fencing in the middle of traffic, at both ends: each work request once, the sentinel last. */
static void ask_fence(struct probe *probe)
{
	struct options options = patient();
	struct ibv_wc wcs[40];
	struct pair pair;
	unsigned n, sends = 0, last_send = 0;
	bool ordered = true;

	pair_open(&pair, &probe->a, &probe->b, &options);
	for (unsigned i = 0; i < 8; i++)
		NEED(!post_recv(&pair.a, 0, 100 + i));
	for (unsigned i = 0; i < 12; i++)
		NEED(!post_write(&pair.a, &pair.b, BUF_BYTES, i));
	NEED(!end_to(&pair.a, IBV_QPS_ERR));
	NEED(!post_sentinels(&pair.a));
	n = take_all(&pair.a, wcs, 40);
	for (unsigned i = 0; i < n; i++) {
		if (wcs[i].wr_id >= 12)
			continue;
		ordered = ordered && wcs[i].wr_id == sends;
		sends++;
		last_send = i;
	}
	answer("fence.every-send-comes-back", "%s", yes_no(sends == 12));
	answer("fence.in-order", "%s", yes_no(ordered));
	answer("fence.completions", "%u", n);
	answer("fence.sentinels-after-the-sends", "%s",
	       yes_no(n > 0 && wcs[n - 1].wr_id == SENTINEL && last_send < n - 1));
	answer("fence.quiet-afterwards", "%s", next_status(&pair.a, QUIET_MS));
	pair_close(&pair);
}

/* Packets for a receiver that was fenced meanwhile. */
static void ask_late_packets(struct probe *probe)
{
	struct options options = quick();
	static uint8_t before[BUF_BYTES];
	struct ibv_wc wcs[32];
	struct pair pair;

	pair_open(&pair, &probe->a, &probe->b, &options);
	fill(&pair);
	for (unsigned i = 0; i < 12; i++)
		NEED(!post_write(&pair.a, &pair.b, BUF_BYTES, i));
	NEED(!end_to(&pair.b, IBV_QPS_ERR));
	NEED(!post_sentinels(&pair.b));
	(void)take_all(&pair.b, wcs, 32);
	/* From here on the memory belongs to us again. */
	memset(pair.b.buf, 0xa5, BUF_BYTES);
	memcpy(before, pair.b.buf, BUF_BYTES);
	end_put_memory(&pair.b);
	(void)take_all(&pair.a, wcs, 12);
	sleep_ms(QUIET_MS);
	end_get_memory(&pair.b);
	answer("fence.receiver.late-write", "%s",
	       yes_no(memcmp(before, pair.b.buf, BUF_BYTES) != 0));
	pair_close(&pair);
}

/* An error of its own: the one that failed says why, all others are flushed. */
static void ask_own_error(struct probe *probe)
{
	enum ibv_wc_status receive = IBV_WC_SUCCESS;
	struct options options = quick();
	struct ibv_wc wcs[8];
	unsigned n, sends = 0;
	struct pair pair;
	struct send send;

	options.b_state = IBV_QPS_INIT;
	pair_open(&pair, &probe->a, &probe->b, &options);
	NEED(!post_recv(&pair.a, 0, 50));
	for (unsigned i = 0; i < 4; i++) {
		make_send(&send, &pair.a, &pair.b, IBV_WR_RDMA_WRITE, 100)->wr.wr_id = i;
		send.wr.send_flags = i == 3 ? IBV_SEND_SIGNALED : 0;
		NEED(!post(&pair.a, &send));
	}
	(void)end_settled_state(&pair.a, IBV_QPS_ERR);
	for (unsigned i = 0; i < 20 && end_state(&pair.a) != IBV_QPS_ERR; i++)
		sleep_ms(QUIET_MS);
	n = take_all(&pair.a, wcs, 8);
	/* There is no order between the two queues. */
	for (unsigned i = 0; i < n; i++) {
		if (wcs[i].wr_id == 50)
			receive = wcs[i].status;
		else
			wcs[sends++] = wcs[i];
	}
	say_order("error.sends", wcs, sends);
	answer("error.receive", "%s", status_name(receive));
	pair_close(&pair);
}

void ask_flushing(struct probe *probe)
{
	ask_sends(probe);
	ask_receives(probe);
	ask_fence(probe);
	ask_late_packets(probe);
	ask_own_error(probe);
}
