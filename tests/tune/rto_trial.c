/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Episodes of trouble under given timers, for scripts/rto-calibrate. Each line of standard input is
 * one:
 *
 *	LENGTH_MS RULE [; RULE]...
 *
 * fault rules ($rail: the one in use, $+MS: so many milliseconds later), put in force while
 *messages are under way. The plugin is the real one; the fabric, and with it every clock, is
 *virtual, so that what is measured is timers and not the machine. Each episode is a connection of
 *its own, since one that has learned that its timeout was too short would say nothing of the
 *timeout. A line of JSON comes out for each.
 */
#include "../fault/world.h"
#include "../seeded_random.h"

#include "base/clock.h"
#include "event/reason.h"

#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW	   8
#define WARM_UP	   16  /* messages before anything happens */
#define MESSAGE_MS 20  /* one more every so often: the connection is never idle */
#define IDLE_MS	   400 /* at most, before the trouble: it comes at any time of a heartbeat */
#define LIMIT_NS   (120 * HA_NS_PER_S)
#define STEPS_MAX  2000000u

/* A path that is healthy so soon after it was left had not failed: failover/standby.c. */
#define FALSE_ALARM_MS 500

static const struct scenario scenario = {
    .name = "rto",
    .about = "a connection that is never idle",
    .rails = 2,
    .connections = 1,
    .plan =
	{.groups = TRAFFIC_MAX_GROUPS, .window = WINDOW, .group = 1, .nsizes = 1, .sizes = {4096}},
};

struct settings {
	struct world_timers timers;
	uint64_t seed;
	bool trace;
};

struct episode {
	unsigned number;
	uint64_t length_ns;
	char rules[512];
	/* What came of it. */
	bool switched;
	enum ha_reason reason;
	uint64_t recovered_ns; /* after the beginning; 0: nobody switched */
	uint64_t false_alarms, fired;
	char wrong[256];
};

static struct world world;

static bool wrong(struct episode *e, const char *why)
{
	if (!e->wrong[0])
		snprintf(e->wrong, sizeof(e->wrong), "%s", why);
	return false;
}

/* ---- time ------------------------------------------------------------------------------------ */

/* False when it cannot go on. */
static bool step(struct episode *e)
{
	if (world_violation(&world))
		return wrong(e, world_violation(&world));
	if (world_error(&world) != HA_OK)
		return wrong(e, "the connection failed");
	if (sv_stepped_now() > LIMIT_NS || world.steps > STEPS_MAX)
		return wrong(e, "it hangs");
	world_step(&world);
	return true;
}

static bool idle(struct episode *e, uint64_t ns)
{
	uint64_t until_ns = sv_stepped_now() + ns;

	while (sv_stepped_now() < until_ns)
		if (!step(e))
			return false;
	return true;
}

static void allow(unsigned more)
{
	world_each_end (&world, end)
		if (end->traffic.allowed + more <= TRAFFIC_MAX_GROUPS)
			end->traffic.allowed += more;
}

static bool finish(struct episode *e)
{
	const struct connection *c = &world.connections[0];

	while (!traffic_idle(&c->send.traffic) || !traffic_idle(&c->recv.traffic))
		if (!step(e))
			return false;
	return true;
}

/* ---- an episode ----------------------------------------------------------------------------- */

static bool begin(struct episode *e, const struct settings *settings)
{
	const struct world_options options = {
	    .scenario = &scenario, .trace = settings->trace, .timers = &settings->timers};
	uint64_t chance = mix(settings->seed * 1000003 + e->number);

	world_open(&world, &options);
	world_each_end (&world, end)
		end->traffic.allowed = 0;
	while (!world_protected(&world))
		if (!step(e))
			return false;
	allow(WARM_UP);
	return finish(e) && idle(e, chance % IDLE_MS * HA_NS_PER_MS);
}

/* "$rail" becomes the number of the one in use, "$+MS" the time so many milliseconds from now. */
static bool add_rules(struct episode *e)
{
	char text[sizeof(e->rules)], err[250];
	size_t n = 0;

	for (char *c = e->rules; *c && n + 32 < sizeof(text);) {
		if (!strncmp(c, "$rail", 5)) {
			n += (size_t)snprintf(text + n, 32, "%u", world_active_rail(&world, 0));
			c += 5;
		} else if (!strncmp(c, "$+", 2)) {
			double after_ns = strtod(c + 2, &c) * 1e6;

			n += (size_t)snprintf(text + n, 32, "%lluns",
					      (unsigned long long)sv_stepped_now() +
						  (unsigned long long)after_ns);
		} else {
			text[n++] = *c++;
		}
	}
	text[n] = '\0';
	return sv_stepped_fault_add(text, err, sizeof(err)) >= 0 || wrong(e, err);
}

static void count_fired(struct episode *e)
{
	uint64_t matched, fired;

	for (int rule = 0; sv_stepped_fault_stats(rule, &matched, &fired); rule++)
		e->fired += fired;
}

static bool has_switched(const struct ha_comm *comm)
{
	return comm->count.failovers != 0;
}

/* Who noticed says why; the other one was told. */
static enum ha_reason reason_of(const struct ha_comm *send, const struct ha_comm *recv)
{
	return recv->failovers.last_reason != HA_REASON_PEER ? recv->failovers.last_reason
							     : send->failovers.last_reason;
}

static bool suffer(struct episode *e)
{
	const struct connection *c = &world.connections[0];
	const uint64_t began_ns = sv_stepped_now();
	uint64_t next_ns = began_ns + MESSAGE_MS * HA_NS_PER_MS;
	unsigned reported = 0;

	allow(WINDOW);
	while (sv_stepped_now() < began_ns + e->length_ns) {
		if (!step(e))
			return false;
		if (sv_stepped_now() >= next_ns) {
			allow(1);
			next_ns += MESSAGE_MS * HA_NS_PER_MS;
		}
		if (!has_switched(c->send.comm) || !has_switched(c->recv.comm)) {
			reported = c->recv.traffic.reported;
		} else if (c->recv.traffic.reported != reported && e->recovered_ns == 0) {
			e->recovered_ns = sv_stepped_now() - began_ns;
			e->reason = reason_of(c->send.comm, c->recv.comm);
		}
	}
	return true;
}

static void play(struct episode *e, const struct settings *settings)
{
	const struct connection *c = &world.connections[0];

	if (begin(e, settings) && add_rules(e) && suffer(e) && finish(e) &&
	    (!has_switched(c->recv.comm) || idle(e, FALSE_ALARM_MS * HA_NS_PER_MS))) {
		e->switched = has_switched(c->recv.comm);
		e->false_alarms = c->recv.comm->count.false_alarms;
		world_check(&world);
	}
	count_fired(e);
	world_close(&world, e->wrong, sizeof(e->wrong));
	if (!e->wrong[0] && e->fired == 0)
		wrong(e, "no rule ever fired");
}

static void print(const struct episode *e)
{
	printf("{\"switched\": %s, \"reason\": \"%s\", \"recovered_ms\": ",
	       e->switched ? "true" : "false", ha_reason_text(e->reason));
	if (e->recovered_ns)
		printf("%.3f", (double)e->recovered_ns / 1e6);
	else
		printf("null");
	printf(", \"false_alarms\": %llu}\n", (unsigned long long)e->false_alarms);
}

/* ---- main ----------------------------------------------------------------------------------- */

static void parse_number(const struct argp_state *state, const char *arg, int least, int most,
			 int *to)
{
	char *end;
	long number = strtol(arg, &end, 10);

	if (!*arg || *end || number < least || number > most)
		argp_error(state, "'%s' is not a number from %d to %d", arg, least, most);
	*to = (int)number;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct settings *settings = state->input;
	int number;

	switch (key) {
	case 't':
		parse_number(state, arg, 1, 31, &settings->timers.qp_timeout);
		return 0;
	case 'r':
		parse_number(state, arg, 0, 7, &settings->timers.qp_retry_cnt);
		return 0;
	case 'R':
		parse_number(state, arg, 1, 600000, &settings->timers.rto_ms);
		return 0;
	case 'H':
		parse_number(state, arg, 1, 60000, &settings->timers.heartbeat_ms);
		return 0;
	case 's':
		parse_number(state, arg, 0, 1 << 30, &number);
		settings->seed = (uint64_t)number;
		return 0;
	case 'T':
		settings->trace = true;
		return 0;
	case ARGP_KEY_ARG:
		argp_usage(state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static bool read_episode(const char *line, struct episode *e)
{
	char *end;

	e->length_ns = strtoul(line, &end, 10) * HA_NS_PER_MS;
	snprintf(e->rules, sizeof(e->rules), "%s", end);
	e->rules[strcspn(e->rules, "\n")] = '\0';
	return e->length_ns != 0;
}

int main(int argc, char **argv)
{
	static const struct argp_option options[] = {
	    {"qp-timeout", 't', "N", 0, "HA_NCCL_QP_TIMEOUT (14)", 0},
	    {"retry-cnt", 'r', "N", 0, "HA_NCCL_QP_RETRY_CNT (7)", 0},
	    {"rto-ms", 'R', "MS", 0, "HA_NCCL_RTO_MS (1000)", 0},
	    {"heartbeat-ms", 'H', "MS", 0, "HA_NCCL_HEARTBEAT_MS (200)", 0},
	    {"seed", 's', "N", 0, "of when trouble begins (1)", 0},
	    {"trace", 'T', NULL, 0, "every event and the log to stderr", 0},
	    {0},
	};
	static const struct argp argp = {
	    options,
	    parse,
	    NULL,
	    "Reads episodes, LENGTH_MS RULE [; RULE]... a line, and says what "
	    "came of each.",
	    NULL,
	    NULL,
	    NULL};
	struct settings settings = {.timers = {200, 1000, 0, 14, 7}, .seed = 1};
	char line[600];
	unsigned n = 0;

	argp_parse(&argp, argc, argv, 0, NULL, &settings);
	settings.timers.outage_ms = 10 * settings.timers.rto_ms;
	while (fgets(line, sizeof(line), stdin)) {
		struct episode e = {.number = n++};

		if (!read_episode(line, &e))
			wrong(&e, "not LENGTH_MS RULE [; RULE]...");
		else
			play(&e, &settings);
		if (e.wrong[0]) {
			fprintf(stderr, "ha-rto-trial: episode %u, '%.*s': %s\n", n,
				(int)strcspn(line, "\n"), line, e.wrong);
			world_free(&world);
			return 1;
		}
		print(&e);
	}
	world_free(&world);
	return 0;
}
