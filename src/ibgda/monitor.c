/* SPDX-License-Identifier: Apache-2.0 */
#include "ibgda/monitor.h"

#include "base/clock.h"
#include "ibgda/end.h"

#define PREPARE_NS 200000u /* a round, and no thing is begun after that */

static struct ha_ibgda_end *end_of(struct ha_list *at)
{
	return ha_container_of(at, struct ha_ibgda_end, in_context);
}

/* Returns whether it is on its way. */
static bool step(struct ha_ibgda_end *end, uint64_t now_ns)
{
	if (end->receiver) {
		ha_ibgda_receiver_step(end->receiver, now_ns);
		return end->receiver->flushing != 0;
	}
	ha_ibgda_sender_step(end->sender, now_ns);
	return ha_ibgda_sender_leaves(end->sender, now_ns);
}

static bool prepare(struct ha_ibgda_end *end, uint64_t now_ns)
{
	return end->sender ? ha_ibgda_sender_prepare(end->sender, now_ns)
			   : ha_ibgda_receiver_prepare(end->receiver);
}

static bool is_stranded(const struct ha_ibgda_end *end)
{
	return end->sender && ha_ibgda_sender_is_stranded(end->sender);
}

static bool is_begun(const struct ha_ibgda_end *end)
{
	return end->sender && end->sender->next == HA_IBGDA_NEXT_ANSWERED;
}

static bool is_any(const struct ha_ibgda_end *end)
{
	(void)end;
	return true;
}

/* The first of these that has something to do; it is the last one then. */
static bool prepare_one_of(struct ha_list *ends, bool (*is)(const struct ha_ibgda_end *end))
{
	struct ha_list *at;

	ha_list_for_each (at, ends) {
		if (!is(end_of(at)) || !prepare(end_of(at), ha_now_ns()))
			continue;
		ha_list_remove(at);
		ha_list_push_back(ends, at);
		return true;
	}
	return false;
}

/* What was begun is finished before another one begins. */
static bool prepare_one(struct ha_list *ends)
{
	return prepare_one_of(ends, is_stranded) || prepare_one_of(ends, is_begun) ||
	       prepare_one_of(ends, is_any);
}

/* Quick NICs do many things in that time, a slow one does one. */
static void prepare_for_a_while(struct ha_list *ends)
{
	const uint64_t until_ns = ha_now_ns() + PREPARE_NS;

	while (prepare_one(ends) && ha_now_ns() < until_ns)
		;
}

void ha_ibgda_monitor_round(struct ha_list *ends)
{
	bool is_calm = true;
	struct ha_list *at;

	ha_list_for_each (at, ends)
		is_calm &= !step(end_of(at), ha_now_ns());
	if (is_calm)
		prepare_for_a_while(ends);
}

void ha_ibgda_monitor_suspect(struct ha_list *ends, unsigned int nic)
{
	struct ha_list *at;

	ha_list_for_each (at, ends) {
		struct ha_ibgda_end *end = end_of(at);

		if (end->sender)
			ha_ibgda_sender_suspect(end->sender, nic);
		else
			ha_ibgda_receiver_suspect(end->receiver, nic);
	}
}
