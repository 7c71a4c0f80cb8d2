/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which memory is lent, what it was used for last, and comparing the rest with the canary.
 *
 * The canary of a byte depends on its offset only, with a period of 256, so that a block of any
 * offset is one memcmp with a table. What changed is reported once and put right again.
 */
#include "tools/nccl-net-perf/canary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/common/clock.h"

#define PERIOD	   256u
#define BLOCK	   4096u
#define IDLE_BYTES (64u * 1024) /* looked at when nothing moved */
#define PAST	   4096u	/* uses that are remembered, for messages */
#define SHOWN	   8u		/* messages per rank */

struct range {
	enum np_buffer_kind kind;
	size_t at;
	size_t len;
	struct np_use use;
	uint64_t returned_ns;
};

struct np_canary {
	const struct np_rank *rk;
	uint8_t pattern[PERIOD + BLOCK];
	struct range *lent;
	size_t nlent, cap;
	struct range past[PAST]; /* returned: the npast-th at npast % PAST */
	uint64_t npast;
	enum np_buffer_kind kind; /* where np_canary_watch goes on */
	size_t at;
	struct np_late_list seen;
};

static const char *const kind_names[NP_BUF_COUNT] = {
    [NP_BUF_IN] = "send", [NP_BUF_OUT] = "receive", [NP_BUF_SLOTS] = "staging"};

static uint64_t run_ns(const struct np_canary *c)
{
	return np_now_ns() - c->rk->recorder.origin_ns;
}

static void fill(const struct np_canary *c, enum np_buffer_kind kind, size_t at, size_t len)
{
	uint8_t *to = c->rk->buffers[kind].data;

	for (size_t n; len; at += n, len -= n) {
		n = len < BLOCK ? len : BLOCK;
		memcpy(to + at, c->pattern + at % PERIOD, n);
	}
}

struct np_canary *np_canary_new(const struct np_rank *rk)
{
	struct np_canary *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->rk = rk;
	c->kind = NP_BUF_OUT;
	for (size_t i = 0; i < sizeof(c->pattern); i++)
		c->pattern[i] = (uint8_t)(0xc3u ^ (i % PERIOD) * 37u);
	fill(c, NP_BUF_OUT, 0, rk->buffers[NP_BUF_OUT].len);
	fill(c, NP_BUF_SLOTS, 0, rk->buffers[NP_BUF_SLOTS].len);
	return c;
}

void np_canary_free(struct np_canary *c)
{
	if (c)
		free(c->lent);
	free(c);
}

/* ---- what was seen ------------------------------------------------------------------------- */

/* The last use of a byte that has been returned; NULL: none that is remembered. */
static const struct range *last_use(const struct np_canary *c, enum np_buffer_kind kind, size_t at)
{
	for (uint64_t i = c->npast; i > 0 && c->npast - i < PAST; i--) {
		const struct range *r = &c->past[(i - 1) % PAST];

		if (r->kind == kind && at >= r->at && at - r->at < r->len)
			return r;
	}
	return NULL;
}

void np_canary_describe(const struct np_late *late, char *text, size_t len)
{
	char use[120] = "that no receive has had yet", when[60] = "";

	if (late->used)
		snprintf(use, sizeof(use), "of step %u of %s, channel %d from rank %d",
			 late->use.step, np_op_names[late->use.op], late->use.channel,
			 late->use.peer);
	if (late->used && !late->beyond)
		snprintf(when, sizeof(when), ", which had been done since %.3f ms",
			 (double)late->free_ns / 1e6);
	snprintf(text, len,
		 "%s: %llu bytes from offset %llu of the %s buffer, %s%s, were overwritten; seen "
		 "at %.3f ms",
		 late->beyond ? "write beyond a message" : "late write",
		 (unsigned long long)late->bytes, (unsigned long long)late->offset,
		 kind_names[late->kind], use, when, (double)late->seen_ns / 1e6);
}

static void report(struct np_canary *c, const struct np_late *late)
{
	char text[400];

	if (c->seen.seen < NP_LATE_KEPT)
		c->seen.late[c->seen.seen] = *late;
	c->seen.seen++;
	c->seen.bytes += late->bytes;
	if (c->seen.seen > SHOWN)
		return;
	np_canary_describe(late, text, sizeof(text));
	fprintf(stderr, "nccl-net-perf: rank %d: %s\n", c->rk->rank, text);
}

/* Compares with the canary, reports what differs as one stretch, and puts it right. */
static void look(struct np_canary *c, enum np_buffer_kind kind, size_t at, size_t len,
		 const struct range *lent)
{
	const uint8_t *data = c->rk->buffers[kind].data;
	struct np_late late = {.kind = kind, .beyond = lent != NULL};
	const struct range *use;

	for (size_t n; len; at += n, len -= n) {
		const uint8_t *want = c->pattern + at % PERIOD;

		n = len < BLOCK ? len : BLOCK;
		if (memcmp(data + at, want, n) == 0)
			continue;
		for (size_t i = 0; i < n; i++) {
			if (data[at + i] == want[i])
				continue;
			if (!late.bytes++)
				late.offset = at + i;
		}
		fill(c, kind, at, n);
	}
	if (!late.bytes)
		return;
	late.seen_ns = run_ns(c);
	use = lent ? lent : last_use(c, kind, late.offset);
	late.used = use != NULL;
	if (use) {
		late.use = use->use;
		late.free_ns = use->returned_ns;
	}
	report(c, &late);
}

const struct np_late_list *np_canary_seen(const struct np_canary *c)
{
	return &c->seen;
}

/* ---- lending ------------------------------------------------------------------------------- */

bool np_canary_lend(struct np_canary *c, enum np_buffer_kind kind, const void *data, size_t len,
		    const struct np_use *use)
{
	size_t at = (size_t)((const uint8_t *)data - c->rk->buffers[kind].data);

	if (!len)
		return true;
	for (size_t i = 0; i < c->nlent; i++)
		if (c->lent[i].kind == kind && c->lent[i].at == at)
			return true;
	if (c->nlent == c->cap) {
		size_t cap = c->cap ? 2 * c->cap : 64;
		struct range *lent = realloc(c->lent, cap * sizeof(*lent));

		if (!lent)
			return false;
		c->lent = lent;
		c->cap = cap;
	}
	look(c, kind, at, len, NULL);
	c->lent[c->nlent++] = (struct range){.kind = kind, .at = at, .len = len, .use = *use};
	return true;
}

static void take_back(struct np_canary *c, size_t i, size_t written)
{
	struct range r = c->lent[i];

	c->lent[i] = c->lent[--c->nlent];
	if (written < r.len)
		look(c, r.kind, r.at + written, r.len - written, &r);
	fill(c, r.kind, r.at, written < r.len ? written : r.len);
	r.returned_ns = run_ns(c);
	c->past[c->npast++ % PAST] = r;
}

void np_canary_return(struct np_canary *c, enum np_buffer_kind kind, const void *data,
		      size_t written)
{
	size_t at = (size_t)((const uint8_t *)data - c->rk->buffers[kind].data);

	for (size_t i = 0; i < c->nlent; i++) {
		if (c->lent[i].kind == kind && c->lent[i].at == at) {
			take_back(c, i, written);
			return;
		}
	}
}

void np_canary_return_all(struct np_canary *c)
{
	while (c->nlent)
		take_back(c, c->nlent - 1, c->lent[c->nlent - 1].len);
}

/* ---- watching ------------------------------------------------------------------------------ */

/* How far memory from c->at on is lent, 0 if it is not; then *free_len is how far it is not. */
static size_t lent_here(const struct np_canary *c, size_t *free_len)
{
	*free_len = c->rk->buffers[c->kind].len - c->at;
	for (size_t i = 0; i < c->nlent; i++) {
		const struct range *r = &c->lent[i];

		if (r->kind != c->kind)
			continue;
		if (c->at >= r->at && c->at - r->at < r->len)
			return r->at + r->len - c->at;
		if (r->at > c->at && r->at - c->at < *free_len)
			*free_len = r->at - c->at;
	}
	return 0;
}

/* Goes on for at most `budget` bytes or to the end of the buffer; false: that was the last one. */
static bool watch_some(struct np_canary *c, size_t budget)
{
	size_t free_len, n;

	while (budget && c->at < c->rk->buffers[c->kind].len) {
		n = lent_here(c, &free_len);
		if (!n) {
			n = free_len < budget ? free_len : budget;
			look(c, c->kind, c->at, n, NULL);
			budget -= n;
		}
		c->at += n;
	}
	if (c->at < c->rk->buffers[c->kind].len)
		return true;
	c->at = 0;
	c->kind = c->kind == NP_BUF_OUT ? NP_BUF_SLOTS : NP_BUF_OUT;
	return c->kind != NP_BUF_OUT;
}

void np_canary_watch(struct np_canary *c)
{
	watch_some(c, IDLE_BYTES);
}

void np_canary_linger(struct np_canary *c, struct np_worker *worker, double ms)
{
	const struct timespec pause = {.tv_nsec = 1000000};
	uint64_t end = np_now_ns() + (uint64_t)(ms * 1e6);
	bool over;

	do {
		over = np_now_ns() >= end;
		c->kind = NP_BUF_OUT;
		c->at = 0;
		while (watch_some(c, SIZE_MAX))
			;
		np_worker_progress(worker);
		if (!over)
			nanosleep(&pause, NULL);
	} while (!over);
}
