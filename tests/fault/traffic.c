/* SPDX-License-Identifier: Apache-2.0 */
#include "traffic.h"
#include "../seeded_random.h"

#include "memory/mr.h"
#include "transport/comm.h"
#include "transport/send.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define GUARD	    64
#define CANARY	    0xa5
#define OVERWRITTEN 0x5a

static void violation(struct traffic *traffic, const char *fmt, ...)
    __attribute__((format(printf, 2, 3), cold));

static void violation(struct traffic *traffic, const char *fmt, ...)
{
	va_list args;
	int n;

	if (traffic->violation[0] != '\0')
		return; /* the first one explains the others */
	n = snprintf(traffic->violation, sizeof(traffic->violation),
		     "%s: ", traffic->is_send ? "sender" : "receiver");
	va_start(args, fmt);
	vsnprintf(traffic->violation + n, sizeof(traffic->violation) - (size_t)n, fmt, args);
	va_end(args);
}

/* ---- the plan -------------------------------------------------------------------------------- */

static unsigned group_size(const struct plan *plan, unsigned group)
{
	return plan->group != 0 ? plan->group : 1 + (unsigned)(mix(group) % TRAFFIC_GROUP);
}

static unsigned group_max(const struct plan *plan)
{
	return plan->group != 0 ? plan->group : TRAFFIC_GROUP;
}

static uint32_t message_size(const struct plan *plan, unsigned group, unsigned index)
{
	return plan->sizes[(group + 3 * index) % plan->nsizes];
}

static bool tags_differ(const struct plan *plan, unsigned group)
{
	return !plan->same_tags || group % 3 != 0;
}

static int message_tag(const struct plan *plan, unsigned group, unsigned index)
{
	return tags_differ(plan, group) ? (int)(100 + index) : 7;
}

/* The position in its group of the k-th send: not in order where tags tell them apart. */
static unsigned send_order(const struct plan *plan, unsigned group, unsigned k)
{
	unsigned n = group_size(plan, group);

	return tags_differ(plan, group) ? (k + group) % n : k;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static uint64_t message_key(const struct traffic *traffic, unsigned group, unsigned index)
{
	return mix(traffic->key + group * 64u + index);
}

static uint64_t word_at(uint64_t key, size_t word)
{
	return (key + word) * 0x9e3779b97f4a7c15ull ^ key >> 7;
}

static void fill(uint8_t *bytes, size_t size, uint64_t key)
{
	for (size_t i = 0; i < size; i += sizeof(uint64_t)) {
		uint64_t word = word_at(key, i / sizeof(word));

		memcpy(bytes + i, &word, size - i < sizeof(word) ? size - i : sizeof(word));
	}
}

/* Index of the first byte that is not the message's; `size` if there is none. */
static size_t first_wrong(const uint8_t *bytes, size_t size, uint64_t key)
{
	for (size_t i = 0; i < size; i += sizeof(uint64_t)) {
		uint64_t word = word_at(key, i / sizeof(word));
		size_t n = size - i < sizeof(word) ? size - i : sizeof(word);

		if (memcmp(bytes + i, &word, n) != 0)
			for (size_t k = 0; k < n; k++)
				if (bytes[i + k] != ((uint8_t *)&word)[k])
					return i + k;
	}
	return size;
}

static bool all_canary(const uint8_t *bytes, size_t size)
{
	return size == 0 || (bytes[0] == CANARY && memcmp(bytes, bytes + 1, size - 1) == 0);
}

/* ---- buffers --------------------------------------------------------------------------------- */

static uint8_t *buffer_of(const struct traffic *traffic, unsigned group, unsigned index)
{
	unsigned slot = group % traffic->plan->window;

	return traffic->memory + GUARD +
	       (slot * group_max(traffic->plan) + index) * traffic->stride;
}

void traffic_init(struct traffic *traffic, const struct plan *plan, bool is_send, uint64_t key)
{
	uint8_t *memory = traffic->memory;
	size_t had = traffic->memory_size, needed;

	memset(traffic, 0, sizeof(*traffic));
	traffic->plan = plan;
	traffic->is_send = is_send;
	traffic->key = key;
	for (unsigned i = 0; i < plan->nsizes; i++)
		if (plan->sizes[i] > traffic->capacity)
			traffic->capacity = plan->sizes[i];
	traffic->allowed = plan->groups;
	traffic->capacity += 24; /* receives may be larger than what is sent */
	traffic->stride = (traffic->capacity + 2 * GUARD + 63) & ~(size_t)63;
	needed = GUARD + plan->window * group_max(plan) * traffic->stride;
	if (had < needed) {
		if (memory)
			munmap(memory, had);
		had = (needed + 0xffff) & ~(size_t)0xffff;
		memory =
		    mmap(NULL, had, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (memory == MAP_FAILED) {
			perror("mmap of the traffic's buffers");
			abort();
		}
	}
	traffic->memory = memory;
	traffic->memory_size = had;
	memset(memory, CANARY, needed);
	for (unsigned g = 0; g < plan->groups; g++)
		traffic->wanted += is_send ? group_size(plan, g) : 1;
}

void traffic_free(struct traffic *traffic)
{
	if (traffic->memory)
		munmap(traffic->memory, traffic->memory_size);
	traffic->memory = NULL;
	traffic->memory_size = 0;
}

static void failed(struct traffic *traffic, ha_result_t error)
{
	traffic->state = TRAFFIC_FAILED;
	traffic->error = error;
}

ha_result_t traffic_start(struct traffic *traffic, struct ha_comm *comm)
{
	ha_result_t result = ha_reg_mr(comm, traffic->memory, traffic->memory_size, HA_MEM_HOST, 0,
				       -1, &traffic->mr);

	traffic->comm = comm;
	if (result != HA_OK) {
		traffic->mr = NULL;
		failed(traffic, result);
	}
	return result;
}

void traffic_stop(struct traffic *traffic)
{
	if (traffic->mr)
		ha_dereg_mr(traffic->comm, traffic->mr);
	traffic->mr = NULL;
}

/* ---- receiving ------------------------------------------------------------------------------- */

static void check_slot_unused(struct traffic *traffic, unsigned group)
{
	for (unsigned i = 0; i < group_max(traffic->plan); i++)
		if (!all_canary(buffer_of(traffic, group, i) - GUARD, traffic->stride))
			violation(traffic,
				  "a late write in buffer %u of slot %u, which waits for "
				  "nothing (before receive %u)",
				  i, group % traffic->plan->window, group);
}

static void take_message(struct traffic *traffic, unsigned group, unsigned index, int size)
{
	uint32_t wanted = message_size(traffic->plan, group, index);
	uint8_t *buffer = buffer_of(traffic, group, index);
	size_t wrong;

	if (size != (int)wanted)
		violation(traffic, "message %u.%u has size %d, not %u", group, index, size, wanted);
	wrong = first_wrong(buffer, wanted, message_key(traffic, group, index));
	if (wrong < wanted)
		violation(traffic, "message %u.%u is wrong from byte %zu of %u on%s", group, index,
			  wrong, wanted,
			  buffer[wrong] == CANARY ? " (never written)"
			  : buffer[wrong] == OVERWRITTEN
			      ? " (the sender's buffer was released early)"
			      : "");
	if (!all_canary(buffer - GUARD, GUARD) ||
	    !all_canary(buffer + wanted, traffic->stride - GUARD - wanted))
		violation(traffic, "message %u.%u wrote outside its %u bytes", group, index,
			  wanted);
	memset(buffer, CANARY, wanted); /* given back: nothing may come here any more */
}

static bool receive_turn(struct traffic *traffic)
{
	const struct plan *plan = traffic->plan;
	bool moved = false;

	while (traffic->next < traffic->allowed &&
	       !traffic->ops[traffic->next % plan->window][0].req) {
		unsigned group = traffic->next, n = group_size(plan, group);
		void *data[TRAFFIC_GROUP];
		size_t sizes[TRAFFIC_GROUP];
		int tags[TRAFFIC_GROUP];
		struct ha_mr *mrs[TRAFFIC_GROUP];
		struct ha_request *req;
		ha_result_t result;

		check_slot_unused(traffic, group);
		for (unsigned i = 0; i < n; i++) {
			data[i] = buffer_of(traffic, group, i);
			sizes[i] = message_size(plan, group, i) + 8u;
			tags[i] = message_tag(plan, group, i);
			mrs[i] = traffic->mr;
		}
		result = ha_irecv(traffic->comm, (int)n, data, sizes, tags, mrs, &req);
		if (result != HA_OK) {
			failed(traffic, result);
			return true;
		}
		if (!req)
			break;
		traffic->ops[group % plan->window][0] = (struct traffic_op){req, group};
		traffic->next++;
		moved = true;
	}
	for (unsigned slot = 0; slot < plan->window; slot++) {
		struct traffic_op *op = &traffic->ops[slot][0];
		int sizes[TRAFFIC_GROUP];
		ha_result_t result;
		bool done;

		if (!op->req)
			continue;
		result = ha_test(op->req, &done, sizes);
		if (result != HA_OK) {
			failed(traffic, result);
			return true;
		}
		if (!done)
			continue;
		for (unsigned i = 0; i < group_size(plan, op->group); i++)
			take_message(traffic, op->group, i, sizes[i]);
		if (traffic->seen[op->group])
			violation(traffic, "receive %u was reported twice", op->group);
		traffic->seen[op->group] = true;
		op->req = NULL;
		traffic->reported++;
		moved = true;
	}
	return moved;
}

/* ---- sending --------------------------------------------------------------------------------- */

/* The sender has a copy, and sends that again if it is lost. */
static bool is_retained(const struct traffic *traffic, unsigned group)
{
	const struct ha_send_side *s = traffic->comm->send;
	const uint64_t seq = group + 1u;
	const struct ha_send_group *sent = &s->groups[seq & traffic->comm->slot_mask];

	return sent->seq == seq && sent->state != HA_GROUP_FREE &&
	       ha_is_retained(s->retained, sent->reqs[0]);
}

/* A send was called done: its bytes must be at the receiver, or be kept. */
static void check_delivered(struct traffic *traffic, unsigned group, unsigned index)
{
	const struct traffic *peer = traffic->peer;
	uint32_t size = message_size(traffic->plan, group, index);
	const uint8_t *buffer = buffer_of(peer, group, index);
	const struct traffic_op *op = &peer->ops[group % peer->plan->window][0];

	if (!traffic->strict || peer->seen[group] || is_retained(traffic, group))
		return;
	if (!op->req || op->group != group ||
	    first_wrong(buffer, size, message_key(peer, group, index)) < size)
		violation(traffic,
			  "message %u.%u is called done and is not in the receiver's buffer", group,
			  index);
}

static bool post_sends(struct traffic *traffic)
{
	const struct plan *plan = traffic->plan;
	bool moved = false;

	while (traffic->next < traffic->allowed) {
		unsigned group = traffic->next;
		unsigned index = send_order(plan, group, traffic->next_in_group);
		struct traffic_op *op = &traffic->ops[group % plan->window][index];
		uint32_t size = message_size(plan, group, index);
		uint8_t *buffer = buffer_of(traffic, group, index);
		struct ha_request *req;
		ha_result_t result;

		if (op->req)
			break;
		fill(buffer, size, message_key(traffic, group, index));
		result = ha_isend(traffic->comm, buffer, size, message_tag(plan, group, index),
				  traffic->mr, &req);
		if (result != HA_OK) {
			failed(traffic, result);
			return true;
		}
		if (!req)
			break;
		*op = (struct traffic_op){req, group};
		moved = true;
		if (++traffic->next_in_group == group_size(plan, group)) {
			traffic->next_in_group = 0;
			traffic->next++;
		}
	}
	return moved;
}

static bool send_turn(struct traffic *traffic)
{
	const struct plan *plan = traffic->plan;
	bool moved = post_sends(traffic);

	if (traffic->state == TRAFFIC_FAILED)
		return true;
	for (unsigned slot = 0; slot < plan->window; slot++)
		for (unsigned i = 0; i < group_max(plan); i++) {
			struct traffic_op *op = &traffic->ops[slot][i];
			uint32_t size;
			ha_result_t result;
			bool done;
			int sent = -1;

			if (!op->req)
				continue;
			result = ha_test(op->req, &done, &sent);
			if (result != HA_OK) {
				failed(traffic, result);
				return true;
			}
			if (!done)
				continue;
			size = message_size(plan, op->group, i);
			if (sent != (int)size)
				violation(traffic, "message %u.%u was sent with size %d, not %u",
					  op->group, i, sent, size);
			check_delivered(traffic, op->group, i);
			memset(buffer_of(traffic, op->group, i), OVERWRITTEN, size);
			op->req = NULL;
			traffic->reported++;
			moved = true;
		}
	return moved;
}

bool traffic_turn(struct traffic *traffic)
{
	bool moved;

	if (traffic->state != TRAFFIC_RUNNING)
		return false;
	moved = traffic->is_send ? send_turn(traffic) : receive_turn(traffic);
	if (traffic->state == TRAFFIC_RUNNING && traffic->reported == traffic->wanted) {
		traffic->state = TRAFFIC_DONE;
		moved = true;
	}
	return moved;
}

void traffic_more(struct traffic *traffic, unsigned groups)
{
	for (unsigned i = 0; i < groups; i++, traffic->allowed++)
		traffic->wanted +=
		    traffic->is_send ? group_size(traffic->plan, traffic->allowed) : 1;
	if (traffic->state == TRAFFIC_DONE)
		traffic->state = TRAFFIC_RUNNING;
}

bool traffic_idle(const struct traffic *traffic)
{
	if (traffic->next != traffic->allowed || traffic->next_in_group != 0)
		return false;
	for (unsigned slot = 0; slot < traffic->plan->window; slot++)
		for (unsigned i = 0; i < group_max(traffic->plan); i++)
			if (traffic->ops[slot][i].req)
				return false;
	return true;
}

/* ---- checks ---------------------------------------------------------------------------------- */

void traffic_check_latched(struct traffic *traffic)
{
	struct ha_request *req = NULL;
	ha_result_t result;

	for (unsigned slot = 0; slot < traffic->plan->window; slot++)
		for (unsigned i = 0; i < TRAFFIC_GROUP; i++) {
			bool done = false;

			if (!traffic->ops[slot][i].req)
				continue;
			result = ha_test(traffic->ops[slot][i].req, &done, NULL);
			if (result == HA_OK && done)
				traffic->ops[slot][i].req =
				    NULL; /* was through before the failure */
			else if (result != traffic->error)
				violation(traffic, "test says %d after %d", result, traffic->error);
		}
	if (!traffic->mr)
		return;
	if (traffic->is_send) {
		result = ha_isend(traffic->comm, traffic->memory, 1, 1, traffic->mr, &req);
	} else {
		void *data = traffic->memory;
		size_t size = 1;
		int tag = 1;

		result = ha_irecv(traffic->comm, 1, &data, &size, &tag, &traffic->mr, &req);
	}
	if (result != traffic->error || req)
		violation(traffic, "a new request gives %d after %d", result, traffic->error);
}

void traffic_check_memory(struct traffic *traffic)
{
	const struct plan *plan = traffic->plan;

	if (traffic->is_send)
		return;
	for (unsigned slot = 0; slot < plan->window; slot++)
		for (unsigned i = 0; i < group_max(plan); i++) {
			uint8_t *buffer = buffer_of(traffic, slot, i);
			const struct traffic_op *op = &traffic->ops[slot][0];
			size_t size = 0;

			if (op->req && i < group_size(plan, op->group))
				size = message_size(plan, op->group, i);
			if (!all_canary(buffer - GUARD, GUARD) ||
			    !all_canary(buffer + size, traffic->stride - GUARD - size))
				violation(traffic,
					  "something was written into buffer %u of slot %u "
					  "(or behind it), which waits for %zu bytes",
					  i, slot, size);
		}
}
