/* SPDX-License-Identifier: Apache-2.0 */
#include "breakage.h"

#include "tools/common/clock.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FIRES_NS   (2 * NP_NS_PER_S)
#define NOTICED_NS (5 * NP_NS_PER_S)

/* ---- what the fabric counts ------------------------------------------------------------------ */

static uint64_t count(const struct bench_pair *pair, unsigned device, enum sv_counter which)
{
	const struct sv_fabric_header *h = pair->ports.h;
	uint64_t n = atomic_load(&h->devices[device].counters[which]);

	for (unsigned i = 0; i < SV_MAX_SLOTS; i++)
		if (atomic_load(&h->slots[i].state) == SV_SLOT_LIVE &&
		    atomic_load(&h->slots[i].device) == device)
			n += atomic_load(&h->slots[i].counters[which]);
	return n;
}

static unsigned device_at(const struct bench_breakage *b, int rail)
{
	return (unsigned)(b->host * b->pair->rails + rail);
}

/* Payload that came to the receiver, or left the sender, over another port than the one in use. */
static uint64_t elsewhere(const struct bench_breakage *b)
{
	int rails = b->pair->rails;
	uint64_t bytes = 0;

	for (int rail = 0; rail < rails; rail++)
		if (rail != b->pair->rail)
			bytes += count(b->pair, device_at(b, rail),
				       b->host == BENCH_SENDER ? SV_CNT_TX_BYTES : SV_CNT_RX_BYTES);
	return bytes;
}

/* ---- breaking it ----------------------------------------------------------------------------- */

/* The queue pair of a write with data is put into ERR: the sender's own, or the one it comes to. */
static bool add_rule(struct bench_breakage *b)
{
	char text[SV_FAULT_TEXT], err[200];

	snprintf(text, sizeof(text), "err %s host=%d rail=%d op=write minlen=1000 count=1",
		 b->host == BENCH_SENDER ? "dir=tx" : "dir=rx", b->host, b->pair->rail);
	b->rule = sv_fabric_add_faults(&b->pair->ports, text, false, err, sizeof(err));
	return b->rule >= 0 || bench_fail(b->pair, "the rule '%s': %s", text, err);
}

static bool has_fired(const struct bench_breakage *b)
{
	return b->rule >= 0 && atomic_load(&b->pair->ports.h->faults.rules[b->rule].fired) != 0;
}

static bool wait_for_rule(struct bench_breakage *b)
{
	uint64_t deadline = np_now_ns() + FIRES_NS;

	while (!has_fired(b)) {
		if (!bench_healthy(b->pair))
			return false;
		if (np_now_ns() > deadline)
			return bench_fail(b->pair, "refused: no queue pair was broken");
		sched_yield();
	}
	return true;
}

static void remove_rule(struct bench_breakage *b)
{
	struct sv_fabric *fabric = &b->pair->ports;

	if (b->rule < 0 || sv_fabric_lock(fabric) != 0)
		return;
	sv_fault_remove(&fabric->h->faults, -1); /* there is no other; its slot is free again */
	sv_fabric_unlock(fabric);
	sv_fabric_notify(fabric);
	b->rule = -1;
}

bool bench_breakage_prepare(struct bench_breakage *b)
{
	b->rule = -1;
	b->elsewhere = elsewhere(b);
	return bench_read_standing(b->pair, 0, &b->before[0]) &&
	       bench_read_standing(b->pair, 1, &b->before[1]);
}

bool bench_breakage_begin(struct bench_breakage *b)
{
	if (b->kind == BENCH_QP_ERROR)
		return (b->lie || add_rule(b)) && wait_for_rule(b);
	if (b->lie)
		return true;
	if (b->kind == BENCH_CUT)
		sv_state_cut(&b->pair->ports, SV_ANY, (uint32_t)b->pair->rail, SV_CUT_BOTH);
	else
		bench_set_link(b->pair, b->host, false);
	return true;
}

void bench_breakage_mend(struct bench_breakage *b)
{
	if (b->kind == BENCH_QP_ERROR)
		remove_rule(b);
	else if (b->kind == BENCH_CUT)
		sv_state_cut(&b->pair->ports, SV_ANY, (uint32_t)b->pair->rail, 0);
	else
		bench_set_link(b->pair, b->host, true);
}

/* ---- the proof ------------------------------------------------------------------------------- */

/* Link or switch, by the fabric's own word. */
static bool is_broken(const struct bench_breakage *b)
{
	const struct sv_fabric_header *h = b->pair->ports.h;
	const struct sv_fab_port *port =
	    &h->ports[sv_fab_port_index(h, device_at(b, b->pair->rail), 0)];

	return b->kind == BENCH_CUT ? atomic_load(&port->cut) == SV_CUT_BOTH
				    : !atomic_load(&port->link_up);
}

bool bench_breakage_happened(struct bench_breakage *b)
{
	uint64_t carried = elsewhere(b) - b->elsewhere;
	uint64_t least = (uint64_t)b->pair->conns * b->pair->shared->bytes;

	if (b->kind ==
	    BENCH_QP_ERROR) /* its rule has fired, and nothing passes a queue pair in ERR */
		return true;
	if (!is_broken(b))
		return bench_fail(b->pair, "refused: nothing is broken");
	return carried >= least ||
	       bench_fail(b->pair,
			  "refused: the ports that were left carried %llu bytes, and the first "
			  "messages of all connections have %llu",
			  (unsigned long long)carried, (unsigned long long)least);
}

/* Every connection has begun another epoch at both ends. */
static bool have_switched(const struct bench_breakage *b, const struct bench_standing now[2])
{
	for (int h = 0; h < 2; h++) {
		if (now[h].conns != b->before[h].conns)
			return false;
		for (int c = 0; c < now[h].conns; c++)
			if (now[h].epoch[c] == b->before[h].epoch[c])
				return false;
	}
	return true;
}

/* Of a broken port none is left on it, of a broken queue pair some may be. */
static bool is_where_it_must_be(struct bench_breakage *b, const struct bench_standing *now)
{
	int stayed = 0;

	for (int c = 0; c < now->conns; c++)
		stayed += now->device[c] == b->before[b->host].device[c];
	b->same_port = stayed == now->conns;
	return b->kind == BENCH_QP_ERROR || stayed == 0 ||
	       bench_fail(b->pair,
			  "refused: %d connections say that they are still on the broken port",
			  stayed);
}

bool bench_breakage_was_noticed(struct bench_breakage *b)
{
	uint64_t deadline = np_now_ns() + NOTICED_NS;
	struct bench_standing now[2];

	do {
		if (!bench_healthy(b->pair) || !bench_read_standing(b->pair, 0, &now[0]) ||
		    !bench_read_standing(b->pair, 1, &now[1]))
			return false;
		if (have_switched(b, now))
			return is_where_it_must_be(b, &now[b->host]);
		usleep(20000);
	} while (np_now_ns() < deadline);
	return bench_fail(b->pair, "refused: the plugins know of no switch");
}
