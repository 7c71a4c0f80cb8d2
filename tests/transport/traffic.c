/* SPDX-License-Identifier: Apache-2.0 */
#include "traffic.h"
#include "transport/recv.h"
#include "transport/send.h"

#include <string.h>

static const struct shape shapes[] = {
    {1, {9000}}, {1, {0}}, {3, {5000, 0, 17000}}, {1, {64}}, {2, {1, 8192}}, {1, {20000}},
};

static size_t place(int message, int part)
{
	return ((size_t)message * 3 + (size_t)part) * PART;
}

static uint32_t seed_of(int message, int part)
{
	return (uint32_t)(message * 3 + part + 1);
}

uint32_t roll(struct traffic *t, uint32_t sides)
{
	t->random = t->random * 1664525u + 1013904223u;
	return (t->random >> 8) % sides;
}

void traffic_init(struct traffic *t, struct pair *pair, int count, uint32_t seed)
{
	*t = (struct traffic){.pair = pair, .count = count, .random = seed};
	for (int m = 0; m < count; m++) {
		t->messages[m].shape = &shapes[(unsigned)m % (sizeof(shapes) / sizeof(shapes[0]))];
		for (int i = 0; i < t->messages[m].shape->n; i++)
			fill(pair->from.bytes + place(m, i), t->messages[m].shape->size[i],
			     seed_of(m, i));
	}
}

void ask(struct traffic *t)
{
	struct message *m = &t->messages[t->asked];
	size_t at[3], capacity[3];
	int tag[3];

	for (int i = 0; i < m->shape->n; i++) {
		at[i] = place(t->asked, i);
		capacity[i] = m->shape->size[i] + 100;
		tag[i] = i;
	}
	m->recv = post_recv(t->pair, m->shape->n, at, capacity, tag);
	t->asked += m->recv != NULL;
}

static void offer(struct traffic *t)
{
	struct message *m = &t->messages[t->offset];
	int i = m->shape->n - 1 - m->sent;

	m->send[i] = try_send(t->pair, place(t->offset, i), m->shape->size[i], i);
	if (m->send[i] && ++m->sent == m->shape->n)
		t->offset++;
}

static void look_at_receive(struct traffic *t, int number)
{
	struct message *m = &t->messages[number];
	int got[3];
	bool done;

	if (!m->recv || m->received)
		return;
	assert_int_equal(ha_test(m->recv, &done, got), HA_OK);
	if (!done)
		return;
	m->received = true;
	t->received++;
	for (int i = 0; i < m->shape->n; i++) {
		uint8_t *bytes = t->pair->to.bytes + place(number, i);

		assert_int_equal(got[i], m->shape->size[i]);
		assert_true(filled(bytes, m->shape->size[i], seed_of(number, i)));
		memset(bytes, USED, PART);
	}
}

static void look_at_sends(struct traffic *t, int number)
{
	struct message *m = &t->messages[number];
	bool done;

	for (int i = 0; i < m->shape->n; i++) {
		if (!m->send[i] || m->released[i])
			continue;
		assert_int_equal(ha_test(m->send[i], &done, NULL), HA_OK);
		if (!done)
			continue;
		m->released[i] = true;
		t->released++;
		memset(t->pair->from.bytes + place(number, i), USED, PART);
	}
}

void applications(struct traffic *t)
{
	if (t->asked < t->count)
		ask(t);
	if (t->offset < t->count)
		offer(t);
	for (int m = 0; m < t->asked; m++) {
		look_at_receive(t, m);
		look_at_sends(t, m);
	}
}

bool all_done(const struct traffic *t)
{
	return t->received == t->count && t->offset == t->count &&
	       t->pair->send->send->completed.base == (uint64_t)t->count + 1;
}

static bool all_are(const uint8_t *bytes, size_t size, uint8_t value)
{
	return bytes[0] == value && memcmp(bytes, bytes + 1, size - 1) == 0;
}

void finish(struct traffic *t)
{
	for (int quiet = 0; quiet < 1000 && !all_done(t); quiet++) {
		applications(t);
		if (pair_step(t->pair))
			quiet = 0;
	}
	applications(t);
	if (!all_done(t))
		fail_msg("%d of %d messages arrived, %d were sent; log:\n%s", t->received, t->count,
			 t->offset, captured_log);
	sv_stepped_run_idle(100000);
	for (int m = 0; m < t->count; m++)
		for (int i = 0; i < 3; i++)
			assert_true(all_are(t->pair->to.bytes + place(m, i), PART,
					    i < t->messages[m].shape->n ? USED : CANARY));
	assert_int_equal(t->pair->send->outstanding, 0);
	assert_int_equal(t->pair->recv->outstanding, 0);
	assert_int_equal(ha_comm_error(t->pair->send), HA_OK);
	assert_int_equal(ha_comm_error(t->pair->recv), HA_OK);
}
