/* SPDX-License-Identifier: Apache-2.0 */
#include "ibgda/sender.h"

#include "base/config.h"

#include <string.h>

#define BAD_NS	  20000000u  /* a NIC that could not be used is not tried again before */
#define HOLD_MOST 64u	     /* times return_ns */
#define DRAIN_NS  100000000u /* a thread that was to ring may sleep, with all others at the gate */
#define LEAVE_NS  100000000u /* others wait no longer with what they prepare */

static struct ha_ibgda_slot *current(struct ha_ibgda_sender *sender)
{
	return &sender->slots[sender->host.queue];
}

uint32_t ha_ibgda_sender_nic(const struct ha_ibgda_sender *sender)
{
	return sender->slots[sender->host.queue].nic;
}

static struct ha_ibgda_slot *next(struct ha_ibgda_sender *sender)
{
	return &sender->slots[sender->next_slot];
}

static bool is_ended(const struct ha_ibgda_sender *sender)
{
	return ha_dev_load(&sender->host.is_ended) != 0;
}

void ha_ibgda_sender_abort(struct ha_ibgda_sender *sender, const char *why)
{
	if (sender->phase == HA_IBGDA_ENDED)
		return;
	sender->fault = is_ended(sender) ? "its program has ended it" : why;
	sender->phase = HA_IBGDA_ENDED;
	ha_ibgda_give_up(&sender->host);
	sender->channel.end(sender->channel.context);
}

static void say(struct ha_ibgda_sender *sender, struct ha_ibgda_message *message)
{
	message->version = HA_IBGDA_VERSION;
	if (!sender->channel.send(sender->channel.context, message))
		ha_ibgda_sender_abort(sender, "the other end does not read what it is told");
}

static void ask_to_close(struct ha_ibgda_sender *sender, uint32_t number)
{
	struct ha_ibgda_message message = {.kind = HA_IBGDA_CLOSE, .pair = number};

	say(sender, &message);
}

void ha_ibgda_sender_open(struct ha_ibgda_sender *sender, const struct ha_ibgda_nic *nics,
			  unsigned int num_nics, struct ha_ibgda_channel channel,
			  const struct ha_ibgda_settings *settings)
{
	memset(sender, 0, sizeof(*sender));
	sender->settings = *settings;
	sender->nics = nics;
	sender->num_nics = num_nics;
	sender->channel = channel;
	sender->wanted = sender->proved = UINT32_MAX;
	sender->stream =
	    (struct ha_ibgda_stream){.queues = sender->queues,
				     .alarm = &sender->alarm,
				     .log = settings->log,
				     .gate = ha_ibgda_gate(sender->queues, HA_IBGDA_CLOSED)};
	sender->host.stream = &sender->stream;
}

/* ---- the next queue pair --------------------------------------------------------------- */

static bool is_usable(const struct ha_ibgda_sender *sender, uint32_t nic, uint64_t now_ns)
{
	return nic < sender->num_nics && now_ns >= sender->bad_ns[nic];
}

/* It is to go to another NIC than the one in use, and no event speaks against it. */
static bool is_time(const struct ha_ibgda_sender *sender, uint64_t now_ns)
{
	return is_usable(sender, sender->wanted, now_ns) && now_ns >= sender->due_ns &&
	       sender->wanted != ha_ibgda_sender_nic(sender);
}

/* ... and may: what was sent there has come through. */
static bool is_due(const struct ha_ibgda_sender *sender, uint64_t now_ns)
{
	return sender->proved == sender->wanted && is_time(sender, now_ns);
}

/* Not the one in use, if there is another one; num_nics: none can be used now. */
static uint32_t choose_nic(const struct ha_ibgda_sender *sender, uint64_t now_ns)
{
	const uint32_t used = ha_ibgda_sender_nic(sender);

	if (is_due(sender, now_ns))
		return sender->wanted;
	for (uint32_t n = 1; n <= sender->num_nics; n++) {
		const uint32_t nic =
		    sender->phase == HA_IBGDA_STARTING ? n - 1 : (used + n) % sender->num_nics;

		if (is_usable(sender, nic, now_ns))
			return nic;
	}
	return sender->num_nics;
}

static void refuses(struct ha_ibgda_sender *sender, uint32_t nic, uint64_t now_ns)
{
	sender->bad_ns[nic] = now_ns + BAD_NS;
}

static bool ask_for_next(struct ha_ibgda_sender *sender, uint64_t now_ns)
{
	const uint32_t queue = ha_ibgda_free_queue(&sender->host);
	const uint32_t nic = choose_nic(sender, now_ns);
	struct ha_ibgda_message message = {.kind = HA_IBGDA_OPEN, .nic = nic};
	struct ha_ibgda_slot *slot;

	if (queue == HA_IBGDA_QUEUES || nic == sender->num_nics)
		return false;
	slot = &sender->slots[queue];
	slot->arena.memory = sender->settings.memory;
	if (!ha_ibgda_pair_close(&slot->pair) ||
	    !ha_ibgda_pair_open_driven(&slot->pair, &sender->nics[nic], &slot->arena,
				       sender->settings.log, &sender->queues[queue])) {
		refuses(sender, nic, now_ns);
		return true;
	}
	slot->nic = nic;
	slot->number = message.pair = ++sender->numbers;
	ha_ibgda_pair_address(&slot->pair, &message.address);
	sender->next_slot = queue;
	sender->next = HA_IBGDA_NEXT_ASKED;
	say(sender, &message);
	return true;
}

/* False: the device refuses it. */
static bool drop_next(struct ha_ibgda_sender *sender)
{
	if (!ha_ibgda_pair_close(&next(sender)->pair))
		return false;
	sender->next = HA_IBGDA_NO_NEXT;
	ask_to_close(sender, next(sender)->number);
	return true;
}

static void connect_next(struct ha_ibgda_sender *sender, uint64_t now_ns)
{
	struct ha_ibgda_queue *queue = &sender->queues[sender->next_slot];
	const struct ha_ibgda_message *opened = &sender->opened;
	struct ha_ibgda_slot *slot = next(sender);

	if (!ha_ibgda_pair_connect(&slot->pair, &opened->address)) {
		refuses(sender, slot->nic, now_ns);
		sender->next = HA_IBGDA_NEXT_SPOILT;
		return;
	}
	queue->cells_addr = opened->cells_addr;
	queue->cells_key = opened->cells_key;
	for (unsigned int region = 0; region < HA_IBGDA_REGIONS; region++)
		queue->keys[region] = (struct ha_ibgda_keys){sender->nics[slot->nic].lkeys[region],
							     opened->keys[region]};
	sender->next = HA_IBGDA_NEXT_READY;
}

/* It would fail with the one in use, or is not where the stream is to go; and there is a NIC for a
 * better one. */
static bool is_next_misplaced(const struct ha_ibgda_sender *sender, uint64_t now_ns)
{
	const uint32_t nic = sender->slots[sender->next_slot].nic;
	const uint32_t better = choose_nic(sender, now_ns);

	return sender->phase == HA_IBGDA_RUNNING && better != nic && better < sender->num_nics &&
	       (nic == ha_ibgda_sender_nic(sender) || is_due(sender, now_ns));
}

static bool prepare_next(struct ha_ibgda_sender *sender, uint64_t now_ns)
{
	if (sender->next == HA_IBGDA_NO_NEXT)
		return ask_for_next(sender, now_ns);
	if (sender->next == HA_IBGDA_NEXT_SPOILT || is_next_misplaced(sender, now_ns))
		return drop_next(sender);
	if (sender->next != HA_IBGDA_NEXT_ANSWERED)
		return false;
	connect_next(sender, now_ns);
	return true;
}

/* Of those that were fenced. */
static bool clear_up(struct ha_ibgda_sender *sender)
{
	for (unsigned int n = 0; n < HA_IBGDA_QUEUES; n++)
		if (ha_ibgda_pair_is_fenced(&sender->slots[n].pair))
			return ha_ibgda_pair_close(&sender->slots[n].pair);
	return false;
}

/* ---- whether the NIC that it is to go to is well ------------------------------------------- */

/* The NIC to go to is not well: it has to be from now on. */
static void put_off(struct ha_ibgda_sender *sender, uint64_t now_ns)
{
	ha_ibgda_probe_abandon(&sender->probe);
	sender->proved = UINT32_MAX;
	sender->due_ns = now_ns + (sender->hold_ns ? sender->hold_ns : BAD_NS);
}

static void begin_probe(struct ha_ibgda_sender *sender, uint64_t now_ns)
{
	struct ha_ibgda_probe *probe = &sender->probe;
	struct ha_ibgda_message message = {.kind = HA_IBGDA_OPEN, .nic = sender->wanted};

	sender->probes++;
	probe->nic = sender->wanted;
	probe->number = message.pair = ++sender->numbers;
	ha_ibgda_probe_begin(probe, &sender->nics[probe->nic], now_ns);
	if (probe->state != HA_IBGDA_PROBE_ASKED)
		return;
	ha_ibgda_pair_address(&probe->pair, &message.address);
	say(sender, &message);
}

/* False: the device refuses it. */
static bool end_probe(struct ha_ibgda_sender *sender)
{
	if (!ha_ibgda_probe_end(&sender->probe))
		return false;
	ask_to_close(sender, sender->probe.number);
	return true;
}

static bool look_at_probe(struct ha_ibgda_sender *sender, uint64_t now_ns)
{
	struct ha_ibgda_probe *probe = &sender->probe;

	ha_ibgda_probe_look(probe, now_ns);
	if (probe->state == HA_IBGDA_PROBE_CAME)
		sender->proved = probe->nic;
	else if (probe->state == HA_IBGDA_PROBE_FAILED)
		put_off(sender, now_ns);
	else
		return false;
	return end_probe(sender);
}

static bool watch_probe(struct ha_ibgda_sender *sender, uint64_t now_ns)
{
	struct ha_ibgda_probe *probe = &sender->probe;
	const bool is_asked_for = sender->phase == HA_IBGDA_RUNNING && is_time(sender, now_ns) &&
				  probe->nic == sender->wanted;

	if (probe->state != HA_IBGDA_NO_PROBE && is_asked_for)
		return look_at_probe(sender, now_ns);
	if (probe->state != HA_IBGDA_NO_PROBE)
		return end_probe(sender);
	probe->nic = sender->wanted;
	if (!is_asked_for || is_due(sender, now_ns))
		return false;
	begin_probe(sender, now_ns);
	return true;
}

/* ---- what it hears --------------------------------------------------------------------------- */

static void hear_verdict(struct ha_ibgda_sender *sender, const struct ha_ibgda_message *message)
{
	if (sender->phase != HA_IBGDA_CLOSING || message->pair != current(sender)->number)
		return; /* of one that was dropped */
	sender->has_verdict = true;
	sender->verdict.is_flushed = message->is_flushed;
	memcpy(sender->verdict.cells, message->cells, sizeof(sender->verdict.cells));
}

static void hear_of_next(struct ha_ibgda_sender *sender, const struct ha_ibgda_message *message,
			 uint64_t now_ns)
{
	if (sender->probe.state != HA_IBGDA_NO_PROBE && message->pair == sender->probe.number) {
		ha_ibgda_probe_hear(&sender->probe, message);
		return;
	}
	if (sender->next != HA_IBGDA_NEXT_ASKED || message->pair != next(sender)->number)
		return;
	if (message->kind == HA_IBGDA_OPENED) {
		sender->opened = *message;
		sender->next = HA_IBGDA_NEXT_ANSWERED;
		return;
	}
	refuses(sender, next(sender)->nic, now_ns);
	sender->next = HA_IBGDA_NEXT_SPOILT;
}

static void hear(struct ha_ibgda_sender *sender, uint64_t now_ns)
{
	struct ha_ibgda_message message;
	const int heard = sender->channel.receive(sender->channel.context, &message);

	if (heard < 0)
		ha_ibgda_sender_abort(sender, "the other end is gone");
	if (heard <= 0)
		return;
	if (message.version != HA_IBGDA_VERSION)
		ha_ibgda_sender_abort(sender, "the other end says what makes no sense");
	else if (message.kind == HA_IBGDA_VERDICT)
		hear_verdict(sender, &message);
	else if (message.kind == HA_IBGDA_OPENED || message.kind == HA_IBGDA_REFUSED)
		hear_of_next(sender, &message, now_ns);
	else if (message.kind == HA_IBGDA_SUSPECT && message.nic < sender->num_nics)
		ha_ibgda_sender_suspect(sender, message.nic);
	else
		ha_ibgda_sender_abort(sender, "the other end says what makes no sense");
}

/* ---- phases ---------------------------------------------------------------------------------- */

void ha_ibgda_sender_suspect(struct ha_ibgda_sender *sender, uint32_t nic)
{
	__atomic_fetch_or(&sender->suspected, 1u << nic, __ATOMIC_RELEASE);
}

void ha_ibgda_sender_move(struct ha_ibgda_sender *sender, uint32_t nic)
{
	sender->wanted = nic;
	sender->proved = UINT32_MAX;
	sender->due_ns = 0;
}

/* It has failed in use. One that failed as soon as it was trusted again has to be well for twice as
 * long: that a probe comes through does not say that all does. */
static void put_off_longer(struct ha_ibgda_sender *sender, uint64_t now_ns)
{
	const uint64_t longest = HOLD_MOST * sender->settings.return_ns;

	if (now_ns - sender->since_ns > 2 * sender->hold_ns)
		sender->hold_ns = sender->settings.return_ns;
	else if (sender->moves > 0)
		sender->hold_ns = 2 * sender->hold_ns < longest ? 2 * sender->hold_ns : longest;
	put_off(sender, now_ns);
}

/* NICs that were said to have failed since: whether the one in use is among them. */
static bool take_suspicions(struct ha_ibgda_sender *sender, uint64_t now_ns)
{
	const uint32_t suspected = __atomic_exchange_n(&sender->suspected, 0, __ATOMIC_ACQUIRE);

	for (uint32_t nic = 0; nic < sender->num_nics; nic++)
		if (suspected >> nic & 1)
			sender->bad_ns[nic] = now_ns + BAD_NS;
	if (sender->wanted < sender->num_nics && suspected >> sender->wanted & 1)
		put_off(sender, now_ns);
	if (sender->next != HA_IBGDA_NO_NEXT && suspected >> next(sender)->nic & 1)
		sender->next = HA_IBGDA_NEXT_SPOILT;
	return suspected >> current(sender)->nic & 1;
}

static void begin_to_close(struct ha_ibgda_sender *sender, uint64_t now_ns)
{
	if (!sender->outage_since_ns)
		sender->outage_since_ns = now_ns; /* the other end may say nothing any more */
	sender->leaves_ns = now_ns;
	sender->phase = HA_IBGDA_CLOSING;
	sender->is_closed = sender->has_verdict = false;
	ask_to_close(sender, current(sender)->number);
}

static void fail_over(struct ha_ibgda_sender *sender, uint64_t now_ns)
{
	ha_ibgda_fail(&sender->host);
	sender->failovers++;
	sender->is_planned = sender->must_leave = false;
	sender->bad_ns[current(sender)->nic] = now_ns + BAD_NS;
	if (current(sender)->nic == sender->wanted)
		put_off_longer(sender, now_ns);
	begin_to_close(sender, now_ns);
	ha_ibgda_probe_abandon(&sender->probe);
}

static void starting(struct ha_ibgda_sender *sender, uint64_t now_ns)
{
	if (sender->next != HA_IBGDA_NEXT_READY)
		return;
	sender->next = HA_IBGDA_NO_NEXT;
	ha_ibgda_host_init(&sender->host, &sender->stream);
	sender->outage_since_ns = 0;
	sender->since_ns = now_ns;
	sender->phase = HA_IBGDA_RUNNING;
	sender->hold_ns = sender->settings.return_ns;
	if (sender->hold_ns && sender->wanted >= sender->num_nics)
		sender->wanted = current(sender)->nic;
}

/* A queue pair may take what is posted and complete none of it, without a word. What its thread has
 * not rung yet does not complete either, which does no harm: the host rings the next queue. */
static bool is_silent(struct ha_ibgda_sender *sender, const struct ha_ibgda_under_way *under_way,
		      uint64_t now_ns)
{
	const uint64_t limit_ns = sender->settings.silence_ns;
	uint64_t stands_ns;

	if (under_way->first >= under_way->last || under_way->first != sender->completed ||
	    sender->stands_ns < sender->since_ns) {
		sender->completed = under_way->first;
		sender->stands_ns = now_ns;
	}
	stands_ns = now_ns - sender->stands_ns;
	return limit_ns != 0 && stands_ns > limit_ns &&
	       stands_ns - limit_ns >
		   HA_SLOW_NS_PER_BYTE * ha_ibgda_bytes_under_way(&sender->host, under_way);
}

static bool has_failed(struct ha_ibgda_sender *sender, uint64_t now_ns)
{
	struct ha_ibgda_under_way under_way;
	const enum ha_ibgda_front front = ha_ibgda_look_at_front(&sender->host, &under_way);

	if (front == HA_IBGDA_MOVES)
		sender->outage_since_ns = 0;
	if (front == HA_IBGDA_FRONT_REFUSED)
		ha_ibgda_sender_abort(sender, "a put names memory that is not registered");
	return front == HA_IBGDA_FRONT_FAILED || ha_dev_load(&sender->alarm) ||
	       is_silent(sender, &under_way, now_ns);
}

static void running(struct ha_ibgda_sender *sender, uint64_t now_ns)
{
	(void)ha_ibgda_retire(&sender->host);
	sender->must_leave |= take_suspicions(sender, now_ns) || has_failed(sender, now_ns);
	if (sender->phase == HA_IBGDA_ENDED)
		return;
	/* Queues become free only while the gate is open: without one it would be closed for ever.
	 */
	if (sender->must_leave && ha_ibgda_free_queue(&sender->host) < HA_IBGDA_QUEUES) {
		fail_over(sender, now_ns);
		return;
	}
	if (!is_due(sender, now_ns) || sender->next != HA_IBGDA_NEXT_READY ||
	    next(sender)->nic != sender->wanted)
		return;
	ha_ibgda_plan(&sender->host);
	sender->is_planned = true;
	sender->drain_until_ns = now_ns + DRAIN_NS;
	sender->phase = HA_IBGDA_DRAINING;
}

/* What takes too long is written again elsewhere, as if its path had failed. */
static void draining(struct ha_ibgda_sender *sender, uint64_t now_ns)
{
	const bool must_leave = take_suspicions(sender, now_ns) || has_failed(sender, now_ns);

	if (sender->phase == HA_IBGDA_ENDED)
		return;
	if (must_leave || now_ns > sender->drain_until_ns)
		fail_over(sender, now_ns);
	else if (ha_ibgda_is_drained(&sender->host))
		begin_to_close(sender, now_ns);
}

/* Nothing is executed any more at either end: whether the stream can go on. */
static bool judge(struct ha_ibgda_sender *sender)
{
	ha_ibgda_fenced(&sender->host);
	switch (ha_ibgda_judge(&sender->host, &sender->verdict)) {
	case HA_IBGDA_LOST:
		ha_ibgda_sender_abort(sender, "a signal was acknowledged and is lost");
		return false;
	case HA_IBGDA_UNKNOWN:
		ha_ibgda_sender_abort(sender, "nobody can tell whether all signals have come");
		return false;
	case HA_IBGDA_UNPROVED:
		sender->unproved++;
		if (sender->settings.accepts_unproved)
			return true;
		ha_ibgda_sender_abort(sender, "puts were acknowledged by a NIC that has died, and "
					      "may not be in memory");
		return false;
	case HA_IBGDA_FINE:
		break;
	}
	return true;
}

static void closing(struct ha_ibgda_sender *sender, uint64_t now_ns)
{
	(void)take_suspicions(sender, now_ns);
	if (!sender->is_closed)
		sender->is_closed = ha_ibgda_pair_fence(&current(sender)->pair);
	if (!sender->is_closed || !sender->has_verdict)
		return;
	if (sender->is_planned && !sender->verdict.is_flushed) {
		/* What came before the last signal that is in its cell is proved, the rest is not.
		 */
		ha_ibgda_fail(&sender->host);
		sender->is_planned = false;
	}
	if (sender->is_planned || judge(sender))
		sender->phase = HA_IBGDA_OPENING;
}

static void opening(struct ha_ibgda_sender *sender, uint64_t now_ns)
{
	(void)take_suspicions(sender, now_ns);
	if (sender->next != HA_IBGDA_NEXT_READY)
		return;
	sender->next = HA_IBGDA_NO_NEXT;
	if (sender->is_planned) {
		ha_ibgda_prepare_planned(&sender->host, sender->next_slot);
		sender->moves++;
	} else {
		ha_ibgda_prepare(&sender->host, sender->next_slot, &sender->verdict);
		ha_ibgda_start(&sender->host);
	}
	ha_ibgda_open(&sender->host);
	sender->since_ns = now_ns;
	sender->phase = HA_IBGDA_RUNNING;
}

static void over(struct ha_ibgda_sender *sender, uint64_t now_ns)
{
	(void)sender;
	(void)now_ns;
}

void ha_ibgda_sender_end(struct ha_ibgda_sender *sender)
{
	ha_ibgda_end_gate(&sender->host);
	sender->channel.end(sender->channel.context); /* so that the peer sees it */
}

void ha_ibgda_sender_notice_end(struct ha_ibgda_sender *sender)
{
	if (is_ended(sender))
		ha_ibgda_sender_abort(sender, NULL);
}

void ha_ibgda_sender_step(struct ha_ibgda_sender *sender, uint64_t now_ns)
{
	static void (*const steps[])(struct ha_ibgda_sender *, uint64_t) = {
	    [HA_IBGDA_STARTING] = starting, [HA_IBGDA_RUNNING] = running,
	    [HA_IBGDA_DRAINING] = draining, [HA_IBGDA_CLOSING] = closing,
	    [HA_IBGDA_OPENING] = opening,   [HA_IBGDA_ENDED] = over};

	ha_ibgda_sender_notice_end(sender);
	if (sender->phase == HA_IBGDA_STARTING && !sender->outage_since_ns)
		sender->outage_since_ns = now_ns;
	if (sender->outage_since_ns &&
	    now_ns > sender->outage_since_ns + sender->settings.outage_ns)
		ha_ibgda_sender_abort(sender, "there was no path for too long");
	if (sender->phase != HA_IBGDA_ENDED)
		hear(sender, now_ns);
	steps[sender->phase](sender, now_ns);
}

bool ha_ibgda_sender_prepare(struct ha_ibgda_sender *sender, uint64_t now_ns)
{
	if (sender->phase == HA_IBGDA_DRAINING || sender->phase == HA_IBGDA_ENDED)
		return false;
	return prepare_next(sender, now_ns) || watch_probe(sender, now_ns) || clear_up(sender);
}

bool ha_ibgda_sender_leaves(const struct ha_ibgda_sender *sender, uint64_t now_ns)
{
	return (sender->phase == HA_IBGDA_CLOSING || sender->phase == HA_IBGDA_OPENING) &&
	       sender->next == HA_IBGDA_NEXT_READY && now_ns < sender->leaves_ns + LEAVE_NS;
}

bool ha_ibgda_sender_is_stranded(const struct ha_ibgda_sender *sender)
{
	return sender->phase != HA_IBGDA_RUNNING && sender->phase != HA_IBGDA_ENDED &&
	       sender->next != HA_IBGDA_NEXT_READY;
}

void ha_ibgda_sender_close(struct ha_ibgda_sender *sender)
{
	(void)ha_ibgda_pair_close(&sender->probe.pair);
	for (unsigned int n = 0; n < HA_IBGDA_QUEUES; n++) {
		(void)ha_ibgda_pair_close(&sender->slots[n].pair);
		ha_ibgda_arena_free(&sender->slots[n].arena);
	}
}
