/* SPDX-License-Identifier: Apache-2.0 */
#include "heal.h"

#include "../descriptors.h"
#include "../stepped_fabric.h"
#include "base/clock.h"
#include "failover/engine.h"
#include "failover/fsm.h"
#include "failover/path_select.h"
#include "failover/port_pair.h"
#include "fault.h"
#include "instance/instance.h"

#include <stdio.h>
#include <string.h>

/* More traffic: so many windows of it. */
#define BATCH_WINDOWS 4
/* What chance may add to it: packets jitter, and a message may just have missed a turn. */
#define BATCH_SLACK_NS (2 * HA_NS_PER_MS)
/* Until a world without faults has given back all that it only needed to begin. */
#define REST_NS (1500 * HA_NS_PER_MS)
/* A world in which time stands still ends all the same. Idle ones take up to 10,000 steps a second,
 * most of them for heartbeats. */
#define STEPS_MAX   400000u
#define STEPS_PER_S 20000u
/* Longer than anything goes on that a fault has begun, such as a device that leaves slowly. */
#define UNDER_WAY_NS (250 * HA_NS_PER_MS)

/* A connect to a process that is gone is tried for 20 s (connect.c), since it may only be late;
 * those that have their turn one after another begin one after another. */
#define GIVES_UP_NS (21 * HA_NS_PER_S)

/* ---- what there is ------------------------------------------------------------------------- */

static struct sv_stepped_objects objects_of(const struct world *world, uint32_t host)
{
	struct sv_stepped_objects sum = {0};

	for (unsigned rail = 0; rail < world->options.scenario->rails; rail++)
		stepped_add_objects(&sum, host, rail);
	return sum;
}

static uint32_t open_connections(const struct world *world)
{
	uint32_t n = 0;

	world_each_end (world, end)
		n += end->traffic.is_send && !end_is_over(end);
	return n;
}

/* Copies of small messages are on the NIC that a connection begins on only when they are needed
 * there. */
static uint32_t copies_on(const struct world *world, uint32_t host)
{
	uint32_t n = 0;

	world_each_end (world, end)
		n += end->host == host && end->traffic.is_send && !end_is_over(end) &&
		     end->comm->send->retained;
	return n;
}

/*
 * As many as there were, but for what stays on purpose and cannot grow: memory stays registered on
 * each NIC that a path in reserve was on, since registering takes long; and the heartbeats of a
 * slot go on until it is used again, since they tell when its ports are back. Connections whose
 * slots have the same ports share an address handle; in the end each slot may need its own.
 */
static bool same_objects(const struct world *world, const struct health *unhurt, char *why,
			 size_t size)
{
	uint32_t rails = world->options.scenario->rails, connections = open_connections(world);
	uint32_t nics = rails > 2 ? connections * (rails - 2) : 0;
	uint32_t slots = connections * HA_MAX_PATHS;
	size_t n = 0;

	for (uint32_t host = 0; host < world->hosts; host++) {
		struct sv_stepped_objects now = objects_of(world, host);
		const struct sv_stepped_objects *was = &unhurt->objects[host];
		const struct {
			const char *name;
			uint32_t now, was, more;
		} kinds[] = {
		    {"device contexts", now.contexts, was->contexts, 0},
		    {"protection domains", now.pds, was->pds, 0},
		    {"completion queues", now.cqs, was->cqs, 0},
		    {"queue pairs", now.qps, was->qps, 0},
		    {"registrations", now.mrs, was->mrs,
		     nics + copies_on(world, host) * (rails - 1)},
		    {"address handles", now.ahs, was->ahs, slots > was->ahs ? slots - was->ahs : 0},
		};

		for (unsigned i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
			if ((kinds[i].now < kinds[i].was ||
			     kinds[i].now > kinds[i].was + kinds[i].more) &&
			    n < size)
				n += (size_t)snprintf(
				    why + n, size - n, "%shost %u has %u %s instead of %u",
				    n ? ", " : "", host, kinds[i].now, kinds[i].name, kinds[i].was);
	}
	return n == 0;
}

/* ---- what is well ---------------------------------------------------------------------------- */

static bool end_is_well(const struct world *world, const struct end *end, char *why, size_t size)
{
	const struct ha_failover *fo = end->comm->failover;
	const char *who = end->traffic.is_send ? "a sender" : "a receiver";

	if (!ha_comm_has_failover(end->comm))
		return true;
	if (fo->state != HA_FO_ACTIVE)
		snprintf(why, size, "%s is in state %s", who, ha_failover_state_name(fo->state));
	else if (fo->socket_broken)
		snprintf(why, size, "%s has no bootstrap socket", who);
	else if (world->options.failback && !end->traffic.is_send &&
		 ha_pair_shared(ha_pair_of(&fo->slots[end->comm->active]), ha_pair_preferred) != 2)
		snprintf(why, size, "%s is not on its preferred path", who);
	else if (!end->traffic.is_send &&
		 ha_pair_crosses_rails(end->comm, ha_pair_of(&fo->slots[end->comm->active])))
		snprintf(why, size, "%s is on a pair that crosses rails", who);
	else if (!end->traffic.is_send && world->options.scenario->rails > 1 &&
		 !ha_path_select_has_standby(end->comm))
		snprintf(why, size, "%s has no path in reserve that shares no port", who);
	else
		return true;
	return false;
}

static bool is_well(const struct world *world, char *why, size_t size)
{
	world_each_end (world, end) {
		world_act_as(end->host);
		if (!end_is_over(end) && !end_is_well(world, end, why, size))
			return false;
	}
	return true;
}

bool heal_began_anew(const struct world *world)
{
	return world->nconnections > world->options.scenario->connections;
}

static bool is_as_it_was(const struct world *world, const struct health *unhurt, char *why,
			 size_t size)
{
	int descriptors;

	if (!is_well(world, why, size))
		return false;
	/* Of a ring that is open now there is no like without faults. */
	if (world->hosts > 2 && heal_began_anew(world))
		return true;
	if (!same_objects(world, unhurt, why, size))
		return false;
	descriptors = open_descriptors();
	if (descriptors != unhurt->descriptors)
		snprintf(why, size, "the process has %d descriptors instead of %d", descriptors,
			 unhurt->descriptors);
	return descriptors == unhurt->descriptors;
}

bool heal_applies(const struct world *world)
{
	for (uint32_t host = 0; host < world->hosts; host++)
		if (world->dead[host])
			return false;
	world_each_end (world, end)
		if (!end_is_over(end) && !end_lost_a_process(end) &&
		    (!end->comm || end->traffic.state != TRAFFIC_DONE ||
		     ha_comm_error(end->comm) != HA_OK))
			return false;
	return true;
}

/* ---- more traffic ---------------------------------------------------------------------------- */

static bool is_over(const struct world *world, uint64_t begun_ns, uint64_t steps, uint64_t limit_ns)
{
	return sv_stepped_now() - begun_ns > limit_ns ||
	       world->steps - steps > STEPS_MAX + limit_ns / HA_NS_PER_S * STEPS_PER_S;
}

/* How long it takes; UINT64_MAX: longer than limit_ns. */
static uint64_t play_batch(struct world *world, uint64_t limit_ns)
{
	uint64_t begun_ns = sv_stepped_now(), steps = world->steps;

	world->lazy = 0; /* no application is late, either */
	world_each_end (world, end)
		if (!end_is_over(end))
			traffic_more(&end->traffic,
				     BATCH_WINDOWS * world->options.scenario->plan.window);
	while (!world_settled(world)) {
		if (is_over(world, begun_ns, steps, limit_ns))
			return UINT64_MAX;
		world_step(world);
	}
	return sv_stepped_now() - begun_ns;
}

/* ---- a world without faults ------------------------------------------------------------------ */

static void run_until(struct world *world, bool (*so)(const struct world *world), uint64_t limit_ns)
{
	uint64_t begun_ns = sv_stepped_now(), steps = world->steps;

	while (!so(world) && !is_over(world, begun_ns, steps, limit_ns))
		world_step(world);
}

static bool never(const struct world *world)
{
	(void)world;
	return false;
}

static void measure(struct world *world, struct health *out, char *wrong, size_t size)
{
	run_until(world, world_settled, HEAL_NS);
	run_until(world, world_protected, HEAL_NS);
	run_until(world, never, REST_NS);
	if (!heal_applies(world) || !is_well(world, wrong, size)) {
		if (wrong[0] == '\0')
			snprintf(wrong, size, "a world without faults does not deliver");
		return;
	}
	out->batch_ns = play_batch(world, HEAL_NS);
	for (uint32_t host = 0; host < world->hosts; host++)
		out->objects[host] = objects_of(world, host);
	out->descriptors = open_descriptors();
}

const struct health *heal_unhurt(struct world *world, const struct world_options *options,
				 char *wrong, size_t size)
{
	static struct known {
		const struct scenario *scenario;
		bool e2e, unordered;
		struct health health;
	} known[128];
	static unsigned nknown;
	struct world_options calm = *options;
	struct known *k;

	for (unsigned i = 0; i < nknown; i++)
		if (known[i].scenario == options->scenario && known[i].e2e == options->e2e &&
		    known[i].unordered == options->unordered)
			return &known[i].health;
	if (nknown == sizeof(known) / sizeof(known[0])) {
		snprintf(wrong, size, "more kinds of worlds than there is room for");
		return NULL;
	}
	calm.seed = 0;
	calm.trace = calm.failback = calm.apart = false;
	k = &known[nknown];
	*k =
	    (struct known){.scenario = calm.scenario, .e2e = calm.e2e, .unordered = calm.unordered};
	world_open(world, &calm);
	measure(world, &k->health, wrong, size);
	world_close(world, wrong, size);
	if (wrong[0] != '\0')
		return NULL;
	nknown++;
	return &k->health;
}

const struct health *heal_unhurt_anew(struct world *world, const struct world_options *options,
				      char *wrong, size_t size)
{
	static struct scenario alone[64];
	static unsigned nalone;
	struct world_options one = *options;
	unsigned i = 0;

	if (options->scenario->hosts > 2)
		return heal_unhurt(world, options, wrong, size);
	while (i < nalone && strcmp(alone[i].name, options->scenario->name) != 0)
		i++;
	if (i == sizeof(alone) / sizeof(alone[0])) {
		snprintf(wrong, size, "more scenarios than there is room for");
		return NULL;
	}
	if (i == nalone) {
		alone[nalone] = *options->scenario;
		alone[nalone].connections = 1;
		alone[nalone++].in_turn = false;
	}
	one.scenario = &alone[i];
	return heal_unhurt(world, &one, wrong, size);
}

/* ---- healing --------------------------------------------------------------------------------- */

static bool drains(const struct world *world, uint32_t host)
{
	for (unsigned rail = 0; rail < world->options.scenario->rails; rail++)
		if (ha_port_drained(world_port(world, host, rail)))
			return true;
	return false;
}

static void revive_devices(struct world *world)
{
	for (unsigned rail = 0; rail < world->options.scenario->rails; rail++)
		for (uint32_t host = 0; host < world->hosts; host++)
			sv_stepped_revive(host, rail);
}

static void take_back(struct world *world)
{
	static const char *const orders[] = {"undrain-s", "undrain-r"};

	for (int id = world->standing_rules; sv_stepped_fault_remove(id) == 0; id++)
		;
	for (unsigned rail = 0; rail < world->options.scenario->rails; rail++) {
		sv_stepped_cut(rail, false);
		for (uint32_t host = 0; host < world->hosts; host++)
			sv_stepped_link(host, rail, true);
	}
	revive_devices(world);
	world_see_strangers_off(world);
	fault_take_back_addresses(world);
	for (uint32_t host = 0; host < sizeof(orders) / sizeof(orders[0]); host++) {
		struct injection order = {.fault = fault_find(orders[host])};

		world->frozen_until_ns[host] = 0;
		if (!drains(world, host))
			continue;
		fault_arm(&order, world);
		(void)fault_poll(&order, world);
	}
}

uint64_t heal(struct world *world, const struct health *unhurt, uint64_t within_ns, char *wrong,
	      size_t size)
{
	uint64_t begun_ns, steps, took_ns;
	char why[256] = "";

	begun_ns = sv_stepped_now();
	run_until(world, world_has_given_up_the_dead, world->nconnections * GIVES_UP_NS);
	within_ns += sv_stepped_now() - begun_ns; /* so much longer was it wrong */
	if (!world_has_given_up_the_dead(world)) {
		snprintf(wrong, size, "not healed: a connect to a process that is gone goes on");
		return within_ns;
	}
	world_bury_the_dead(world);
	take_back(world);
	run_until(world, never, UNDER_WAY_NS);
	revive_devices(world); /* one that was still leaving has left */
	begun_ns = sv_stepped_now();
	steps = world->steps;
	/* What is broken and idle, only traffic meets. */
	if (play_batch(world, within_ns) == UINT64_MAX) {
		snprintf(wrong, size, "not healed: traffic stands still for %llu ms",
			 (unsigned long long)(within_ns / HA_NS_PER_MS));
		return within_ns;
	}
	while (!is_as_it_was(world, unhurt, why, sizeof(why))) {
		if (is_over(world, begun_ns, steps, within_ns)) {
			snprintf(wrong, size, "not healed %llu ms after all is well again: %s",
				 (unsigned long long)((sv_stepped_now() - begun_ns) / HA_NS_PER_MS),
				 why);
			return within_ns;
		}
		world_step(world);
	}
	took_ns = sv_stepped_now() - begun_ns;
	if (play_batch(world, 2 * unhurt->batch_ns + BATCH_SLACK_NS) == UINT64_MAX)
		snprintf(wrong, size, "healed, and traffic takes more than %llu us instead of %llu",
			 (unsigned long long)(2 * unhurt->batch_ns + BATCH_SLACK_NS) / 1000,
			 (unsigned long long)unhurt->batch_ns / 1000);
	else if (world_violation(world))
		snprintf(wrong, size, "%s", world_violation(world));
	return took_ns;
}
