/* SPDX-License-Identifier: Apache-2.0 */
#include "run.h"
#include "heal.h"
#include "trace_check.h"

#include "base/clock.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Until every connection has a standby path that works. */
#define SET_UP_NS (500 * HA_NS_PER_MS)
/* From the last fault on: the outage's deadline, and time to get that far. */
#define LIMIT_NS ((4 * WORLD_OUTAGE_MS + 1000) * HA_NS_PER_MS)
/* A run whose clock stands still. */
#define LIMIT_STEPS 400000u
/* After the end, for what comes late. */
#define LINGER_NS (4 * HA_NS_PER_MS)
/* Longer than the latest packet. */
#define LINGER_LATE_NS (70 * HA_NS_PER_MS)

struct running {
	struct world *world;
	const struct run_spec *spec;
	struct run_result *result;
	struct injection injections[RUN_FAULTS];
	struct damage damage;
	uint64_t first_ns;	       /* when the first fault fired; 0: none has */
	uint64_t since_step, since_ns; /* of the last firing */
	bool late;
};

static void wrong(struct run_result *result, const char *fmt, ...)
    __attribute__((format(printf, 2, 3), cold));

static void wrong(struct run_result *result, const char *fmt, ...)
{
	va_list args;

	if (result->wrong[0] != '\0')
		return;
	va_start(args, fmt);
	vsnprintf(result->wrong, sizeof(result->wrong), fmt, args);
	va_end(args);
}

static void allow(struct world *world, unsigned groups)
{
	world_each_end (world, end)
		end->traffic.allowed = groups;
}

static bool step_until(struct running *r, bool (*so)(const struct world *world), const char *what)
{
	struct world *world = r->world;

	while (!so(world)) {
		if (sv_stepped_now() > SET_UP_NS || world->steps > LIMIT_STEPS) {
			wrong(r->result, "no %s %llu ms after connect, without any fault", what,
			      (unsigned long long)(SET_UP_NS / HA_NS_PER_MS));
			return false;
		}
		world_step(world);
	}
	return true;
}

/* Until faults may come: with the first message, or with the first call. Ports of a bundle come to
 * carry with the first large messages. False: it does not get there. */
static bool set_up(struct running *r)
{
	struct world *world = r->world;

	if (world->options.scenario->from_connect)
		return true;
	allow(world, 0);
	if (!step_until(r, world_protected, "standby path"))
		return false;
	if (world->options.scenario->bundled != 0)
		allow(world, world->options.scenario->plan.window);
	if (!world->options.no_failover &&
	    !step_until(r, world_carries, "second rail that carries"))
		return false;
	allow(world, world->options.scenario->plan.groups);
	return true;
}

static void arm(struct running *r, unsigned index)
{
	if (index < r->spec->nfaults)
		fault_arm(&r->injections[index], r->world);
}

/* Before a step: what has to be done, and what was done since the last. */
static void inject(struct running *r)
{
	while (r->result->fired < r->spec->nfaults) {
		struct injection *injection = &r->injections[r->result->fired];

		if (!fault_poll(injection, r->world))
			return;
		r->result->fired++;
		damage_add(&r->damage, injection, r->world);
		r->late |= injection->fault->then != NULL;
		r->since_step = r->world->steps;
		r->since_ns = sv_stepped_now();
		if (r->first_ns == 0)
			r->first_ns = r->since_ns;
		arm(r, r->result->fired);
	}
}

static bool overdue(const struct running *r)
{
	return sv_stepped_now() - r->since_ns > LIMIT_NS ||
	       r->world->steps - r->since_step > LIMIT_STEPS;
}

static void describe_hang(struct running *r)
{
	char text[400];
	int n = 0;

	text[0] = '\0';
	world_each_end (r->world, end)
		n += snprintf(text + n, sizeof(text) - (size_t)n, "; %s %u: %u of %u%s%s",
			      end->traffic.is_send ? "sender on host" : "receiver on host",
			      end->host, end->traffic.reported, end->traffic.wanted,
			      end->comm ? "" : ", not connected",
			      end->traffic.state == TRAFFIC_FAILED ? ", failed" : "");
	wrong(r->result, "it hangs, %llu ms after the last fault%s",
	      (unsigned long long)((sv_stepped_now() - r->since_ns) / HA_NS_PER_MS), text);
}

static void play(struct running *r)
{
	struct world *world = r->world;
	uint64_t until_ns;

	r->since_step = world->steps;
	r->since_ns = sv_stepped_now();
	arm(r, 0);
	for (;;) {
		inject(r);
		if (world_settled(world) || world_violation(world))
			break;
		if (overdue(r)) {
			describe_hang(r);
			return;
		}
		world_step(world);
	}
	r->result->steps = world->steps - r->since_step;
	until_ns = r->late ? r->since_ns + LINGER_LATE_NS : sv_stepped_now() + LINGER_NS;
	while (sv_stepped_now() < until_ns && world->steps - r->since_step < 2 * LIMIT_STEPS)
		world_step(world);
	world_check(world);
}

/* ---- verdict --------------------------------------------------------------------------------- */

/* Why an error of this end is right; NULL: it is not. */
static const char *excuse(const struct running *r, const struct end *end)
{
	const struct damage *damage = &r->damage;

	if (end_lost_a_process(end))
		return "the peer is gone";
	if (damage->bug)
		return "a status that only a bug gives";
	if (!damage_leaves_path_between(damage, r->world, end->host, end_peer(end)->host))
		return "no path is left";
	if (damage->acknowledged && !r->spec->world.e2e)
		return "acknowledged and not delivered";
	if (damage->requests > 1)
		return "a status followed a request to a second path";
	if (damage->refusals > 2)
		return "three paths refused the same";
	if (damage->memory)
		return "the application was refused its memory";
	if (damage->at_set_up)
		return "refused before there was a connection";
	if (r->spec->world.no_failover && r->result->fired > 0)
		return "failover is off";
	return NULL;
}

/* A refusal is a bug's when nothing can be tried elsewhere, or three paths have been. */
static bool internal_is_right(const struct running *r)
{
	return r->damage.bug || r->damage.refusals > (r->spec->world.no_failover ? 0 : 2);
}

static void judge_error(struct running *r, const struct end *end)
{
	struct run_result *result = r->result;
	const ha_result_t error = end->traffic.error;
	const char *why = excuse(r, end);

	if (!why)
		wrong(result, "error %d although a path is left", error);
	else if (error == HA_ERR_INTERNAL && !internal_is_right(r))
		wrong(result, "an internal error (where one is right: %s)", why);
	else if (error == HA_ERR_ARGUMENT || error == HA_ERR_USAGE)
		wrong(result, "error %d: nobody used anything wrongly", error);
}

static void judge(struct running *r)
{
	const char *seen = world_violation(r->world);

	r->result->error = world_error(r->world);
	if (seen)
		wrong(r->result, "%s", seen);
	world_each_end (r->world, end)
		if (end->traffic.state == TRAFFIC_FAILED)
			judge_error(r, end);
}

/* ---- the second half ------------------------------------------------------------------------- */

/* A NIC that refused memory is asked again after this (standby_memory.c). */
#define REFUSED_NS (60 * HA_NS_PER_S)

/*
 * Whatever waits longer after each failure has not waited longer than it has been wrong, or its
 * shortest time, which for a device that died is a second (HA_REOPEN_MIN_NS); what is left of that
 * device is given back a second later. Failback begins with a second, too, and so does a bundle
 * that leaves a pair which crosses its rails.
 */
static uint64_t heal_within_ns(const struct running *r)
{
	uint64_t since_ns = r->first_ns != 0 ? sv_stepped_now() - r->first_ns : 0;
	uint64_t lasts_ns = 0;
	bool died = false, refused = false;

	/* Also one whose effect nobody has met yet. */
	for (unsigned i = 0; i < r->spec->nfaults; i++) {
		const struct fault *fault = r->spec->faults[i].fault;

		died |= r->injections[i].armed && fault_ends_device(fault);
		refused |= r->injections[i].armed && fault->loss == LOSS_MEMORY;
		if (r->injections[i].armed && fault->lasts_ns > lasts_ns)
			lasts_ns = fault->lasts_ns;
	}
	return HEAL_NS + since_ns + lasts_ns + (died ? 2 * HA_NS_PER_S : 0) +
	       (refused ? REFUSED_NS : 0) +
	       (r->spec->world.failback || r->spec->world.scenario->bundled ? HA_NS_PER_S : 0);
}

/* What is connected to a process that is gone is over, and all else goes on. */
static bool only_the_dead_failed(const struct world *world)
{
	world_each_end (world, end)
		if (end->traffic.state == TRAFFIC_FAILED && !end_lost_a_process(end))
			return false;
	return true;
}

/* How a world like this one has to be in the end: as it was, or with what a process that began anew
 * has. */
struct goal {
	const struct health *as_before, *anew;
};

static bool may_begin_anew(const struct run_spec *spec)
{
	for (unsigned i = 0; i < spec->nfaults; i++)
		if (spec->faults[i].fault->act == ACT_RESTART)
			return true;
	return false;
}

/* No world may be open. False: one without faults is not well. */
static bool set_goal(struct world *world, const struct run_spec *spec, struct goal *goal,
		     struct run_result *result)
{
	goal->as_before = heal_unhurt(world, &spec->world, result->wrong, sizeof(result->wrong));
	if (goal->as_before && may_begin_anew(spec))
		goal->anew =
		    heal_unhurt_anew(world, &spec->world, result->wrong, sizeof(result->wrong));
	return result->wrong[0] == '\0';
}

static void heal_and_judge(struct running *r, const struct goal *goal)
{
	struct run_result *result = r->result;
	char why[sizeof(result->wrong)] = "";
	uint64_t until_ns = sv_stepped_now() + LINGER_NS, took_ns;

	while (sv_stepped_now() < until_ns) {
		inject(r); /* what has fired since, and what follows it */
		world_step(r->world);
	}
	inject(r);
	for (unsigned i = 0; i < r->spec->nfaults; i++)
		fault_disarm(&r->injections[i]);
	/* Without a path for longer than an outage may last an error is right. */
	if (!only_the_dead_failed(r->world) || result->wrong[0] != '\0' ||
	    !heal_applies(r->world) || !damage_leaves_path(&r->damage, r->world))
		return;
	took_ns = heal(r->world, heal_began_anew(r->world) ? goal->anew : goal->as_before,
		       heal_within_ns(r), why, sizeof(why));
	if (why[0] != '\0') {
		wrong(result, "%s", why);
		return;
	}
	result->healed = true;
	result->healed_ns = took_ns;
}

/* A sender may only call done what is in the receiver's memory, unless a device lied. */
static void set_strictness(struct running *r)
{
	bool strict = true;

	for (unsigned i = 0; i < r->spec->nfaults; i++)
		strict &= r->spec->world.e2e || r->spec->faults[i].fault->loss != LOSS_DEVICE;
	world_each_end (r->world, end)
		end->traffic.strict = strict;
}

/* What each connection did is what the model does. */
static void judge_traces(struct run_result *result)
{
	struct trace_verdict verdict;

	trace_stop();
	for (unsigned i = 0; i < trace_count(); i++) {
		const struct trace *trace = trace_of(i);

		if (trace->unjudged || trace->cut) {
			result->unjudged++;
			continue;
		}
		trace_check(trace, &verdict);
		result->traces += verdict.accepted;
		result->trace_steps += verdict.steps;
		if (!verdict.accepted)
			wrong(result, "%s", verdict.why);
	}
}

void run(struct world *world, const struct run_spec *spec, struct run_result *result)
{
	struct running r = {.world = world, .spec = spec, .result = result};
	const bool heals =
	    spec->heal && !spec->world.scenario->close_at_once && !spec->world.no_failover;
	struct goal goal = {0};

	memset(result, 0, sizeof(*result));
	if (heals && !set_goal(world, spec, &goal, result)) {
		result->end = RUN_WRONG;
		return;
	}
	for (unsigned i = 0; i < spec->nfaults; i++)
		r.injections[i] = (struct injection){
		    .fault = spec->faults[i].fault, .at = spec->faults[i].at, .rule = -1};
	trace_begin(spec->world.trace);
	world_open(world, &spec->world);
	set_strictness(&r);
	if (set_up(&r)) {
		play(&r);
		judge(&r);
		if (heals)
			heal_and_judge(&r, &goal);
	}
	result->failovers = world_failovers(world);
	result->replays = world_replays(world);
	result->digest = world->digest;
	world_close(world, result->wrong, sizeof(result->wrong));
	judge_traces(result);
	result->end = result->wrong[0] != '\0' ? RUN_WRONG
		      : result->error != HA_OK ? RUN_ERROR
					       : RUN_DELIVERED;
}

const char *run_command(const struct run_spec *spec, char *out, size_t size)
{
	size_t n = (size_t)snprintf(
	    out, size, "explore --scenario %s%s%s%s%s%s%s --seed %llu", spec->world.scenario->name,
	    spec->world.e2e ? " --e2e" : "", spec->world.no_failover ? " --no-failover" : "",
	    spec->world.unordered ? " --unordered" : "", spec->world.failback ? " --failback" : "",
	    spec->world.apart ? " --apart" : "", spec->heal ? " --heal" : "",
	    (unsigned long long)spec->world.seed);

	for (unsigned i = 0; i < spec->nfaults && n < size; i++)
		n += (size_t)snprintf(out + n, size - n, " --fault %s --at %llu",
				      spec->faults[i].fault->name,
				      (unsigned long long)spec->faults[i].at);
	return out;
}
