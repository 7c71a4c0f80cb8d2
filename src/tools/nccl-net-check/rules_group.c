/* SPDX-License-Identifier: Apache-2.0 */
/* Rules about grouped receives: n buffers, n tags, n sends, one request. */
#include "link.h"
#include "rules.h"

#include <stdlib.h>
#include <string.h>

#define MAX_GROUP 8
#define PIECE	  2000

struct group {
	int n;
	void *data[MAX_GROUP];
	size_t sizes[MAX_GROUP];
	int tags[MAX_GROUP];
	void *mhandles[MAX_GROUP];
};

static int group_size(struct check *t)
{
	if (t->props.maxRecvs < 2)
		check_skip(t, "maxRecvs is %d", t->props.maxRecvs);
	return t->props.maxRecvs < MAX_GROUP ? t->props.maxRecvs : MAX_GROUP;
}

static void group_make(struct group *g, int n, struct buffer *b, size_t offset, int first_tag)
{
	g->n = n;
	for (int i = 0; i < n; i++) {
		g->data[i] = b->data + offset + (size_t)i * PIECE;
		g->sizes[i] = PIECE;
		g->tags[i] = first_tag + i;
		g->mhandles[i] = b->mhandle;
	}
}

/* round 0: in order; 1: backwards; 2: rotated; then shuffled. The same on both ranks. */
static void permutation(int *order, int n, int round)
{
	unsigned seed = (unsigned)round;

	for (int i = 0; i < n; i++)
		order[i] = round == 1 ? n - 1 - i : round == 2 ? (i + 1) % n : i;
	for (int i = n - 1; round > 2 && i > 0; i--) {
		int j = rand_r(&seed) % (i + 1), other = order[i];
		order[i] = order[j];
		order[j] = other;
	}
}

void rule_tags(struct check *t)
{
	enum { ROUNDS = 8 };
	bool sender = t->rank == CHECK_SENDER;
	int n = group_size(t), order[MAX_GROUP];
	struct buffer b;
	struct group g;
	void *comm = link_open_pair(t, t->opt->dev);

	buffer_open(t, &b, comm, MAX_GROUP * PIECE);
	for (int round = 0; round < ROUNDS; round++) {
		void *requests[MAX_GROUP];
		group_make(&g, n, &b, 0, round * 100);
		permutation(order, n, round);
		if (!sender) {
			void *request = post_group(t, comm, n, g.data, g.sizes, g.tags, g.mhandles);
			await_done(t, request, NULL, "a grouped receive did not complete");
			for (int i = 0; i < n; i++)
				pattern_check(t, g.data[i], PIECE, (uint64_t)g.tags[i],
					      "a buffer of a group got another tag's data");
		} else {
			for (int i = 0; i < n; i++) {
				int k = order[i];
				pattern_fill(g.data[k], PIECE, (uint64_t)g.tags[k]);
				requests[i] =
				    post_send(t, comm, g.data[k], PIECE, g.tags[k], b.mhandle);
			}
			for (int i = 0; i < n; i++)
				await_done(t, requests[i], NULL,
					   "a send of a group did not complete");
		}
		check_barrier(t);
	}
	check_note(t, "groups of %d", n);
}

void rule_sizes_group(struct check *t)
{
	enum { ROUNDS = 6 };
	bool sender = t->rank == CHECK_SENDER;
	int n = group_size(t);
	struct buffer b;
	struct group g;
	void *comm = link_open_pair(t, t->opt->dev);

	buffer_open(t, &b, comm, MAX_GROUP * PIECE);
	for (int round = 0; round < ROUNDS; round++) {
		size_t sent[MAX_GROUP];
		int sizes[NP_MAX_RECVS];
		void *requests[MAX_GROUP];
		group_make(&g, n, &b, 0, round * 100);
		for (int i = 0; i < n; i++)
			sent[i] = round == 0 && i == 0 ? 0 : (size_t)(1 + i * 137 + round * 31);
		if (sender) {
			for (int i = 0; i < n; i++)
				requests[i] =
				    post_send(t, comm, g.data[i], sent[i], g.tags[i], b.mhandle);
			for (int i = 0; i < n; i++)
				await_done(t, requests[i], NULL,
					   "a send of a group did not complete");
			continue;
		}
		void *request = post_group(t, comm, n, g.data, g.sizes, g.tags, g.mhandles);
		await_done(t, request, sizes, "a grouped receive did not complete");
		for (int i = 0; i < n; i++)
			if (sizes[i] != (int)sent[i])
				check_fail(t,
					   "buffer %d of a group of %d: test reports %d bytes for "
					   "a send of %zu",
					   i, n, sizes[i], sent[i]);
	}
	check_barrier(t);
}

/* NCCL hands test an array of exactly n: one int for a send. */
void rule_sizes_exact(struct check *t)
{
	enum { UNTOUCHED = -424242 };
	bool sender = t->rank == CHECK_SENDER;
	int most = t->props.maxRecvs < MAX_GROUP ? t->props.maxRecvs : MAX_GROUP;
	struct buffer b;
	struct group g;
	void *comm = link_open_pair(t, t->opt->dev);

	buffer_open(t, &b, comm, MAX_GROUP * PIECE);
	for (int n = 1; n <= most; n++) {
		int sizes[NP_MAX_RECVS];
		void *requests[MAX_GROUP];
		int count = sender ? n : 1, owned = sender ? 1 : n;
		group_make(&g, n, &b, 0, n * 100);
		for (int i = 0; i < count; i++)
			requests[i] =
			    sender ? post_send(t, comm, g.data[i], 100, g.tags[i], b.mhandle)
				   : post_group(t, comm, n, g.data, g.sizes, g.tags, g.mhandles);
		for (int i = 0; i < count; i++) {
			for (int k = 0; k < NP_MAX_RECVS; k++)
				sizes[k] = UNTOUCHED;
			await_done(t, requests[i], sizes, "a message did not complete");
			for (int k = owned; k < NP_MAX_RECVS; k++)
				if (sizes[k] != UNTOUCHED)
					check_fail(t, "test of a %s of %d wrote sizes[%d]",
						   sender ? "send" : "receive", owned, k);
		}
	}
	check_barrier(t);
}

/* Channels that share a connection advance at their own pace: a send for a later group is offered
 * while the oldest group still misses one. It has to wait, not to fail and not to jump in. */
void rule_group_interleave(struct check *t)
{
	enum { GROUPS = 3 };
	bool sender = t->rank == CHECK_SENDER;
	int n = group_size(t);
	struct buffer b;
	struct group g[GROUPS];
	void *requests[GROUPS][MAX_GROUP] = {{NULL}};
	void *comm = link_open_pair(t, t->opt->dev);

	link_begin(t, comm, sender);
	buffer_open(t, &b, comm, GROUPS * MAX_GROUP * PIECE);
	for (int k = 0; k < GROUPS; k++) {
		group_make(&g[k], n, &b, (size_t)(k * MAX_GROUP * PIECE), k * 100);
		if (!sender)
			requests[k][0] =
			    post_group(t, comm, n, g[k].data, g[k].sizes, g[k].tags, g[k].mhandles);
		for (int i = 0; sender && i < n; i++)
			pattern_fill(g[k].data[i], PIECE, (uint64_t)g[k].tags[i]);
	}
	check_barrier(t); /* all groups are posted */
	uint64_t deadline = check_deadline(t, CHECK_STEP_MS);
	for (int left = sender ? GROUPS * n : 0; left > 0;) {
		for (int i = 0; i < n; i++) {
			/* the latest group first */
			for (int k = GROUPS - 1; k >= 0; k--) {
				if (requests[k][i])
					continue;
				MUST(t, isend, comm, g[k].data[i], PIECE, g[k].tags[i], b.mhandle,
				     &requests[k][i]);
				left -= requests[k][i] != NULL;
			}
		}
		check_poll(t, deadline, "sends for several groups were not all accepted");
	}
	for (int k = 0; k < GROUPS; k++) {
		for (int i = 0; i < (sender ? n : 1); i++)
			await_done(t, requests[k][i], NULL,
				   "one of several groups did not complete");
		for (int i = 0; !sender && i < n; i++)
			pattern_check(t, g[k].data[i], PIECE, (uint64_t)g[k].tags[i],
				      "a buffer of one of several groups");
	}
	check_barrier(t);
}
