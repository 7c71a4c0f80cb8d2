/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Grouped receives around the ring: one irecv posts up to maxRecvs buffers with their tags, and
 * the sender sends as many messages in an order of its own.
 *
 * What a plugin may get wrong is what varies here: groups of every size, messages of very uneven
 * sizes with an empty one among them, more room than is sent, tags that have nothing to do with
 * the position, the order of the sends shuffled per group, and every fourth group with equal tags,
 * which match in the order they come. Both ends compute the same schedule.
 */
#include <stdlib.h>

#include "tools/nccl-net-perf/flow.h"
#include "tools/nccl-net-perf/grouped.h"
#include "tools/nccl-net-perf/memory.h"
#include "tools/nccl-net-perf/pattern.h"

#define SLACK	   32 /* room of a receive beyond what is sent */
#define SLACK_BYTE 0x5a

struct group {
	uint32_t first; /* its members are [first, first + n) */
	int n;
};

/* One message of one group, on one channel. */
struct member {
	size_t offset; /* in the sender's data */
	size_t len;
	size_t landing; /* in the receiver's buffer */
};

/* Groups, tags and order are those of every channel; lengths differ by a byte or so. */
struct schedule {
	uint32_t ngroups;
	uint32_t nmembers;	/* of one channel */
	struct group *groups;	/* [ngroups] */
	int *tags;		/* [nmembers] */
	uint32_t *order;	/* [nmembers]: the s-th send is of member order[s] */
	struct member *members; /* [channel * nmembers + position in the receives] */
};

static size_t part(size_t count, size_t i, size_t n)
{
	return count / n * i + count % n * i / n;
}

/* ---- the shape of the schedule --------------------------------------------------------------- */

/* Buffers in the g-th group: mostly as many as allowed, every third one something else. */
static int group_size(uint32_t g, int most)
{
	return g % 3 == 1 ? 1 + (int)(g / 3 % (uint32_t)most) : most;
}

static size_t largest_share(const struct np_options *o, size_t size)
{
	return (size + (size_t)o->channels - 1) / (size_t)o->channels;
}

/* At least 4 groups, so that each kind occurs. */
static uint32_t count_groups(const struct np_options *o, int most, size_t size)
{
	size_t per_group = o->chunk * (size_t)most;
	size_t n = (largest_share(o, size) + per_group - 1) / per_group;

	return n < 4 ? 4 : (uint32_t)n;
}

static uint32_t count_members(uint32_t ngroups, int most)
{
	uint32_t n = 0;

	for (uint32_t g = 0; g < ngroups; g++)
		n += (uint32_t)group_size(g, most);
	return n;
}

/* Bytes of the receiver's buffer for one channel. */
static size_t channel_room(const struct np_options *o, int most, size_t size)
{
	return largest_share(o, size) +
	       (size_t)count_members(count_groups(o, most, size), most) * SLACK;
}

size_t np_grouped_out_bytes(const struct np_options *o, int max_recvs, size_t size)
{
	return channel_room(o, max_recvs, size) * (size_t)o->channels;
}

/* ---- making it ------------------------------------------------------------------------------- */

static uint32_t next_random(uint32_t *state)
{
	*state = *state * 1664525u + 1013904223u;
	return *state >> 8;
}

static void shuffle(uint32_t *order, int n, uint32_t seed)
{
	for (int i = n - 1; i > 0; i--) {
		uint32_t j = next_random(&seed) % (uint32_t)(i + 1), swap = order[i];

		order[i] = order[j];
		order[j] = swap;
	}
}

static void make_group(struct schedule *s, uint32_t g, uint32_t first, int n)
{
	bool equal_tags = g % 4 == 3;

	s->groups[g] = (struct group){.first = first, .n = n};
	for (int j = 0; j < n; j++) {
		s->tags[first + (uint32_t)j] =
		    equal_tags ? 77 : 100000 + (n - j) * 1000 + (int)(g % 1000);
		s->order[first + (uint32_t)j] = first + (uint32_t)j;
	}
	if (!equal_tags)
		shuffle(s->order + first, n, g + 1);
}

/* Where member j of n starts: each is as long as its number says, the first is empty. */
static size_t member_start(size_t len, size_t j, size_t n)
{
	if (j == n)
		return len;
	return j ? part(len, j * (j - 1) / 2, n * (n - 1) / 2) : 0;
}

static void place_members(struct schedule *s, struct member *members, size_t share_start,
			  size_t share, size_t room_start)
{
	for (uint32_t g = 0; g < s->ngroups; g++) {
		size_t start = part(share, g, s->ngroups);
		size_t len = part(share, g + 1, s->ngroups) - start, n = (size_t)s->groups[g].n;

		for (size_t j = 0; j < n; j++) {
			uint32_t index = s->groups[g].first + (uint32_t)j;
			size_t from = start + member_start(len, j, n);

			members[index] = (struct member){
			    .offset = share_start + from,
			    .len = start + member_start(len, j + 1, n) - from,
			    .landing = room_start + from + (size_t)index * SLACK,
			};
		}
	}
}

/* One allocation, so that the plan frees it with its state. */
static struct schedule *make_schedule(const struct np_options *o, int most, size_t size)
{
	size_t channels = (size_t)o->channels, room = channel_room(o, most, size);
	uint32_t ngroups = count_groups(o, most, size), nmembers = count_members(ngroups, most);
	uint32_t first = 0;
	struct schedule *s =
	    malloc(sizeof(*s) + nmembers * channels * sizeof(struct member) +
		   ngroups * sizeof(struct group) + nmembers * (sizeof(int) + sizeof(uint32_t)));

	if (!s)
		return NULL;
	s->ngroups = ngroups;
	s->nmembers = nmembers;
	s->members = (struct member *)(s + 1);
	s->groups = (struct group *)(s->members + nmembers * channels);
	s->tags = (int *)(s->groups + ngroups);
	s->order = (uint32_t *)(s->tags + nmembers);
	for (uint32_t g = 0; g < ngroups; g++) {
		make_group(s, g, first, group_size(g, most));
		first += (uint32_t)s->groups[g].n;
	}
	for (size_t c = 0; c < channels; c++) {
		size_t start = part(size, c, channels);

		place_members(s, s->members + c * nmembers, start,
			      part(size, c + 1, channels) - start, c * room);
	}
	return s;
}

/* ---- the operation --------------------------------------------------------------------------- */

static const struct member *member_of(const struct np_plan *plan, const struct np_link *link,
				      uint32_t index)
{
	const struct schedule *s = plan->state;

	return &s->members[(size_t)link->channel * s->nmembers + index];
}

static void describe_send(struct np_plan *plan, const struct np_flow *flow, uint32_t step,
			  struct np_message *msg)
{
	const struct schedule *s = plan->state;
	uint32_t index = s->order[step];
	const struct member *m = member_of(plan, flow->link, index);

	msg->n = 1;
	msg->buffer = NP_BUF_IN;
	msg->data[0] = plan->rk->buffers[NP_BUF_IN].data + m->offset;
	msg->size[0] = m->len;
	msg->tag[0] = s->tags[index] + plan->rk->rank;
}

static void describe_receive(struct np_plan *plan, const struct np_flow *flow, uint32_t step,
			     struct np_message *msg)
{
	const struct schedule *s = plan->state;

	msg->n = s->groups[step].n;
	msg->buffer = NP_BUF_OUT;
	for (int j = 0; j < msg->n; j++) {
		uint32_t index = s->groups[step].first + (uint32_t)j;
		const struct member *m = member_of(plan, flow->link, index);

		msg->data[j] = plan->rk->buffers[NP_BUF_OUT].data + m->landing;
		msg->size[j] = m->len + SLACK;
		msg->expect[j] = m->len;
		msg->tag[j] = s->tags[index] + flow->link->peer;
	}
}

static bool describe(struct np_plan *plan, struct np_flow *flow, uint32_t step,
		     struct np_message *msg)
{
	if (flow->link->send)
		describe_send(plan, flow, step, msg);
	else
		describe_receive(plan, flow, step, msg);
	return true;
}

static void fill(struct np_plan *plan)
{
	const struct schedule *s = plan->state;
	uint32_t n = s->nmembers * (uint32_t)plan->rk->o->channels;

	np_pattern_fill(plan->rk->buffers[NP_BUF_IN].data, plan->size, plan->rk->rank,
			plan->iteration, 0);
	for (uint32_t i = 0; i < n && !plan->rk->canary; i++) {
		const struct member *m = &s->members[i];
		uint8_t *slack = plan->rk->buffers[NP_BUF_OUT].data + m->landing + m->len;

		for (int k = 0; k < SLACK; k++)
			slack[k] = SLACK_BYTE;
	}
}

static uint64_t check(struct np_plan *plan)
{
	const struct schedule *s = plan->state;
	uint32_t n = s->nmembers * (uint32_t)plan->rk->o->channels;
	int peer = (plan->rk->rank + plan->rk->nranks - 1) % plan->rk->nranks;
	uint64_t wrong = 0;

	for (uint32_t i = 0; i < n; i++) {
		const struct member *m = &s->members[i];
		const uint8_t *got = plan->rk->buffers[NP_BUF_OUT].data + m->landing;

		wrong += np_pattern_check(got, m->len, peer, plan->iteration, m->offset);
		for (int k = 0; k < SLACK; k++)
			wrong += got[m->len + (size_t)k] != SLACK_BYTE;
	}
	return wrong;
}

/* What lies behind a message the canary sees to. */
static void consume(struct np_plan *plan, struct np_flow *flow, uint32_t step,
		    const struct np_message *msg)
{
	const struct schedule *s = plan->state;

	for (int j = 0; j < msg->n && plan->checking; j++) {
		const struct member *m =
		    member_of(plan, flow->link, s->groups[step].first + (uint32_t)j);

		plan->consumed_wrong += np_pattern_check(msg->data[j], m->len, flow->link->peer,
							 plan->iteration, m->offset);
	}
}

bool np_plan_grouped(struct np_plan *plan)
{
	const struct np_options *o = plan->rk->o;
	int most = plan->side->max_recvs, self = plan->rk->rank, n = plan->rk->nranks;
	struct schedule *s = make_schedule(o, most, plan->size);

	plan->state = s;
	if (!s)
		return np_error_set(&plan->rk->error, NP_EXIT_ERROR, "out of memory");
	plan->describe = describe;
	plan->fill = fill;
	plan->check = check;
	plan->consume = consume;
	for (int c = 0; c < o->channels; c++)
		if (!np_plan_add_flow(plan, true, (self + 1) % n, c, s->nmembers,
				      (uint32_t)(o->depth * most)) ||
		    !np_plan_add_flow(plan, false, (self + n - 1) % n, c, s->ngroups,
				      (uint32_t)o->depth))
			return false;
	return true;
}
