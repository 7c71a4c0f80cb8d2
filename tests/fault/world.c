/* SPDX-License-Identifier: Apache-2.0 */
#include "world.h"
#include "../seeded_random.h"

#include "base/clock.h"
#include "base/log.h"
#include "bootstrap.h"
#include "failover/engine.h"
#include "instance/instance.h"
#include "progress/command.h"
#include "transport/connect.h"
#include "transport/recv.h"
#include "transport/retain.h"

#include <errno.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TICK_NS	     HA_NS_PER_MS /* the progress thread looks in at least this often */
#define IDLE_TICKS   16		  /* so many without anything: from then on a few at a time */
#define IDLE_TICK_NS (4 * TICK_NS)
#define CLOSE_MAX    100000 /* steps */

/* ---- log: the last lines, or all of them to stderr ------------------------------------------- */

#define LOG_MAX (64u << 10)

static char log_text[LOG_MAX + 1];
static size_t log_length;
static char first_warning[256];
static bool log_trace;

static void log_line(enum ha_log_level level, unsigned long subsys, const char *file, int line,
		     const char *text)
{
	static const char letters[] = {'W', 'I', 'T'};
	size_t size = strlen(text) + 32;

	(void)subsys, (void)file, (void)line;
	if (log_trace)
		fprintf(stderr, "%12.3f us  %c %s\n", (double)sv_stepped_now() / 1e3,
			letters[level], text);
	if (level == HA_LOG_WARN && first_warning[0] == '\0')
		snprintf(first_warning, sizeof(first_warning), "%s", text);
	if (size > LOG_MAX / 2)
		return;
	if (log_length + size > LOG_MAX) { /* forget the older half */
		memmove(log_text, log_text + LOG_MAX / 2, log_length - LOG_MAX / 2);
		log_length -= LOG_MAX / 2;
	}
	log_length += (size_t)snprintf(log_text + log_length, size, "%12.3f us %c %s\n",
				       (double)sv_stepped_now() / 1e3, letters[level], text);
}

const char *world_log(void)
{
	log_text[log_length] = '\0';
	return log_text;
}

const char *world_first_warning(void)
{
	return first_warning;
}

static void fatal(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

/* Something that no fault has touched failed: the exploration itself cannot go on. */
static void fatal(const char *fmt, ...)
{
	va_list args;

	fputs("explore: ", stderr);
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fprintf(stderr, "; log:\n%s", world_log());
	exit(2);
}

/* ---- clocks ---------------------------------------------------------------------------------- */

/* How far a host's clock is ahead, and what it gains, in parts per million: no two that are alike.
 */
static const struct {
	int64_t ahead_s, gains_ppm;
} clocks[WORLD_HOSTS] = {{0, -150}, {4620, 200}, {1234567, 40}};

static bool apart;
static uint32_t acting;

static uint64_t clock_of_host(void)
{
	int64_t now_ns = (int64_t)sv_stepped_now();

	if (!apart)
		return (uint64_t)now_ns;
	return (uint64_t)(now_ns + clocks[acting].ahead_s * (int64_t)HA_NS_PER_S +
			  now_ns / 1000000 * clocks[acting].gains_ppm);
}

void world_act_as(uint32_t host)
{
	sv_stepped_set_host(host);
	acting = host;
}

/* ---- opening --------------------------------------------------------------------------------- */

static char *no_environment(const char *name)
{
	(void)name;
	return NULL;
}

static void set_timers(struct ha_config *config, const struct world_timers *timers)
{
	config->heartbeat_ms = timers->heartbeat_ms;
	config->rto_ms = timers->rto_ms;
	config->outage_ms = config->give_up_ms = timers->outage_ms;
	config->rc_timeout = timers->qp_timeout;
	config->rc_retry_cnt = timers->qp_retry_cnt;
}

static void configure(struct world *world)
{
	const struct scenario *scenario = world->options.scenario;
	struct ha_config *config = &world->config;

	ha_config_load(config, no_environment);
	strcpy(config->socket_ifname, "=lo");
	config->stats = false;
	config->debug = world->options.trace ? 1 : 0;
	config->enable_backup = !world->options.no_failover;
	config->enable_failback = world->options.failback;
	config->completion = world->options.e2e ? HA_COMPLETION_E2E : HA_COMPLETION_RC;
	config->heartbeat_ms = WORLD_HEARTBEAT_MS;
	config->rto_ms = WORLD_RTO_MS;
	config->outage_ms = config->give_up_ms = WORLD_OUTAGE_MS;
	/* 8 ms of retries, or half a second: longer than three heartbeats and an RTO. */
	config->rc_timeout = scenario->slow_hardware ? 14 : 8;
	config->rc_retry_cnt = 7;
	config->lone_timeout_min = config->lone_rto_min_ms = 0;
	if (scenario->bundled)
		strcpy(config->rails, "sim0+sim1");
	memcpy(config->nqps_of_rail, scenario->rail_qps, sizeof(scenario->rail_qps));
	if (scenario->qps)
		config->ib_qps_per_connection = scenario->qps;
	config->ib_split_data_on_qps = scenario->split;
	if (world->options.timers)
		set_timers(config, world->options.timers);
}

struct ha_port *world_port(const struct world *world, uint32_t host, unsigned rail)
{
	return &world->inst[host]->devices->ports[rail];
}

static void note_addresses(struct world *world, uint32_t host)
{
	for (unsigned rail = 0; rail < world->options.scenario->rails; rail++) {
		const struct ha_port *port = world_port(world, host, rail);
		struct world_address *first = &world->addresses[host][rail];

		first->index = (uint32_t)port->gid_index;
		if (ibv_query_gid(port->nic->now->ctx, 1, port->gid_index, &first->gid) != 0)
			fatal("host %u, rail %u has no address", host, rail);
	}
}

static void open_instance(struct world *world, uint32_t host)
{
	struct ha_instance_options options = {.config = &world->config, .no_threads = true};

	world_act_as(host);
	if (ha_instance_open(&options, &world->inst[host]) != HA_OK)
		fatal("cannot open the instance of host %u", host);
}

static void open_fabric(struct world *world)
{
	struct sv_stepped_opts opts = {
	    .hosts = world->hosts,
	    .rails = world->options.scenario->rails,
	    .seed = world->options.seed + 1,
	    .mtu = world->options.scenario->bundled ? IBV_MTU_4096 : IBV_MTU_1024,
	    .jitter_ns = world->options.seed ? mix(world->options.seed) % 3000 : 0,
	};
	char refusal[256];

	sv_stepped_destroy(); /* what a test that failed left behind */
	if (sv_stepped_open(&opts) != 0)
		fatal("cannot open the fabric");
	if (world->options.unordered) {
		if (sv_stepped_fault_add("unordered", refusal, sizeof(refusal)) < 0)
			fatal("%s", refusal);
		world->standing_rules++;
	}
	/* A command that waits is back so much later, and a call that does returns so. */
	sv_stepped_set_wait(SV_WAIT_ACCUMULATE);
	ha_command_took_ns = sv_stepped_waited_ns;
	apart = world->options.apart;
	ha_clock_set_source(clock_of_host);
	for (uint32_t host = 0; host < world->hosts; host++) {
		open_instance(world, host);
		note_addresses(world, host);
	}
}

/* Of two hosts the first sends, or every other connection goes back; more are a ring. */
static uint32_t sender_of(const struct world *world, unsigned index)
{
	if (world->hosts > 2)
		return index % world->hosts;
	return world->options.scenario->both_directions ? index % 2 : 0;
}

static void close_listen(struct connection *connection)
{
	ha_close_listen(connection->listen);
	connection->listen = NULL;
}

/* A process that is gone listens no more, though its handle is still about. */
static void open_connection(struct world *world, unsigned index, uint32_t from)
{
	const struct scenario *scenario = world->options.scenario;
	struct connection *connection = &world->connections[index];
	uint64_t key = mix(world->options.seed * 64 + index);

	connection->send.host = from;
	connection->recv.host = (from + 1) % world->hosts;
	connection->send.gone = world->dead[connection->send.host];
	connection->recv.gone = world->dead[connection->recv.host];
	traffic_init(&connection->send.traffic, &scenario->plan, true, key);
	traffic_init(&connection->recv.traffic, &scenario->plan, false, key);
	connection->send.traffic.peer = &connection->recv.traffic;
	connection->recv.traffic.peer = &connection->send.traffic;
	world_act_as(connection->recv.host);
	if (ha_listen(world->inst[connection->recv.host], 0, connection->handle,
		      &connection->listen) != HA_OK)
		fatal("cannot listen");
	if (connection->recv.gone)
		close_listen(connection);
}

void world_open(struct world *world, const struct world_options *options)
{
	uint8_t *memory[WORLD_CONNECTIONS][2];
	size_t sizes[WORLD_CONNECTIONS][2];

	/* The buffers are kept: mapping them anew would take longer than the run. */
	for (unsigned i = 0; i < WORLD_CONNECTIONS; i++)
		for (unsigned k = 0; k < 2; k++) {
			struct connection *c = &world->connections[i];
			struct traffic *traffic = k ? &c->recv.traffic : &c->send.traffic;

			memory[i][k] = traffic->memory;
			sizes[i][k] = traffic->memory_size;
		}
	memset(world, 0, sizeof(*world));
	for (unsigned i = 0; i < WORLD_CONNECTIONS; i++)
		for (unsigned k = 0; k < 2; k++) {
			struct connection *c = &world->connections[i];
			struct traffic *traffic = k ? &c->recv.traffic : &c->send.traffic;

			traffic->memory = memory[i][k];
			traffic->memory_size = sizes[i][k];
		}
	/* Many thousand worlds: keep their memory instead of mapping it anew each time. */
	mallopt(M_MMAP_THRESHOLD, 64 << 20);
	mallopt(M_TRIM_THRESHOLD, 512 << 20);
	world->options = *options;
	world->chance = mix(options->seed);
	world->lazy = options->seed ? (unsigned)(world->chance % 6) : 0;
	world->nconnections = options->scenario->connections;
	world->hosts = options->scenario->hosts ? options->scenario->hosts : 2;
	bootstrap_seed(options->seed);
	log_length = 0;
	first_warning[0] = '\0';
	log_trace = options->trace;
	ha_log_set_sink(log_line);
	ha_log_set_debug(options->trace ? 1 : 0);
	configure(world);
	open_fabric(world);
	for (unsigned i = 0; i < world->nconnections; i++)
		open_connection(world, i, sender_of(world, i));
}

/* ---- processes that go and come -------------------------------------------------------------- */

/* Until one that is started again is there. */
#define BEGINS_ANEW_NS (20 * HA_NS_PER_MS)

void world_kill_process(struct world *world, uint32_t host)
{
	world_act_as(host);
	world->dead[host] = true;
	world_each_end (world, end)
		end->gone |= end->host == host;
	ha_connect_abandon_all(world->inst[host]);
	for (unsigned i = 0; i < world->nconnections; i++) {
		struct connection *connection = &world->connections[i];

		if (connection->recv.gone)
			close_listen(connection);
	}
	for (unsigned rail = 0; rail < world->options.scenario->rails; rail++)
		sv_stepped_kill(host, rail);
}

/* Connections that there are, or will be when those begin that are to. */
static unsigned connections_to_be(const struct world *world)
{
	unsigned n = world->nconnections;

	for (uint32_t host = 0; host < world->hosts; host++)
		n += world->begins_ns[host] != 0;
	return n;
}

bool world_begin_anew(struct world *world, uint32_t host)
{
	if (world->before[host] || world->begins_ns[host] != 0 ||
	    connections_to_be(world) == WORLD_CONNECTIONS)
		return false;
	world->begins_ns[host] = sv_stepped_now() + BEGINS_ANEW_NS;
	return true;
}

/* The devices are as they were at first, and know nothing of the process before. */
static void begin_anew(struct world *world, uint32_t host)
{
	bool strict = world->connections[0].send.traffic.strict;
	struct connection *connection = &world->connections[world->nconnections];

	world->begins_ns[host] = 0;
	for (unsigned rail = 0; rail < world->options.scenario->rails; rail++) {
		sv_stepped_revive(host, rail);
		sv_stepped_link(host, rail, true);
	}
	world->before[host] = world->inst[host];
	open_instance(world, host);
	world->dead[host] = false;
	open_connection(world, world->nconnections, 0);
	connection->send.traffic.strict = connection->recv.traffic.strict = strict;
	world->nconnections++;
}

static void begin_those_due(struct world *world)
{
	for (uint32_t host = 0; host < world->hosts; host++)
		if (world->begins_ns[host] != 0 && sv_stepped_now() >= world->begins_ns[host])
			begin_anew(world, host);
}

static void end_close(struct end *end);
static bool turn_has_come(const struct world *world, const struct connection *connection);

bool world_has_given_up_the_dead(const struct world *world)
{
	for (unsigned i = 0; i < world->nconnections; i++) {
		const struct end *send = &world->connections[i].send;

		if (send->traffic.state == TRAFFIC_RUNNING && !send->comm && !send->gone &&
		    end_lost_a_process(send) && turn_has_come(world, &world->connections[i]))
			return false;
	}
	return true;
}

void world_bury_the_dead(struct world *world)
{
	world_each_end (world, end) {
		if (!end_lost_a_process(end))
			continue;
		world_act_as(end->host);
		end_close(end);
	}
	for (unsigned i = 0; i < world->nconnections; i++) {
		struct connection *connection = &world->connections[i];

		if (!end_lost_a_process(&connection->recv) || !connection->listen)
			continue;
		world_act_as(connection->recv.host);
		close_listen(connection);
	}
	for (uint32_t host = 0; host < world->hosts; host++) {
		world_act_as(host);
		ha_instance_close(world->before[host]);
		world->before[host] = NULL;
	}
}

void world_see_strangers_off(struct world *world)
{
	while (world->nstrangers > 0) {
		int fd = world->strangers[--world->nstrangers];
		char said;
		ssize_t n = recv(fd, &said, 1, MSG_DONTWAIT);

		world->turned_away += n == 0 || (n < 0 && errno != EAGAIN);
		close(fd);
	}
}

/* ---- turns ----------------------------------------------------------------------------------- */

static void end_close(struct end *end)
{
	if (end->closed)
		return;
	end->closed = true;
	traffic_stop(&end->traffic);
	if (!end->comm)
		return;
	end->replays = end->comm->count.replayed_messages;
	end->failovers = end->comm->count.failovers;
	if (end->traffic.is_send)
		ha_close_send(end->comm);
	else
		ha_close_recv(end->comm);
	end->comm = NULL;
}

static bool end_connect(struct world *world, struct connection *connection, struct end *end)
{
	struct traffic *traffic = &end->traffic;
	ha_result_t result;

	if (traffic->is_send)
		result = ha_connect(world->inst[end->host], 0, HA_TRAFFIC_CLASS_UNDEF,
				    connection->handle, &end->comm);
	else
		result = ha_accept(connection->listen, &end->comm);
	if (result != HA_OK) {
		traffic->state = TRAFFIC_FAILED;
		traffic->error = result;
		return true;
	}
	if (!end->comm)
		return false;
	if (!traffic->is_send)
		close_listen(connection);
	if (traffic_start(traffic, end->comm) != HA_OK) {
		end->refused_by_step = world->steps + 1;
		end_close(end); /* as NCCL would, so that the peer learns of it */
	}
	return true;
}

/* The connection before it is half way through, or has ended. */
static bool turn_has_come(const struct world *world, const struct connection *connection)
{
	const struct traffic *sent, *received;

	if (!world->options.scenario->in_turn || connection == world->connections ||
	    connection >= world->connections + world->options.scenario->connections)
		return true;
	sent = &connection[-1].send.traffic;
	received = &connection[-1].recv.traffic;
	return sent->state != TRAFFIC_RUNNING || received->state != TRAFFIC_RUNNING ||
	       received->reported >= received->wanted / 2;
}

static bool closes_when_through(const struct world *world, const struct connection *connection)
{
	const struct scenario *scenario = world->options.scenario;

	return scenario->close_at_once ||
	       (scenario->in_turn && connection != &world->connections[world->nconnections - 1]);
}

/* As a close waits. The world goes on meanwhile, which it does not within a call. */
static bool waits_for_count(struct end *end)
{
	if (ha_retain_awaited(end->comm) == 0)
		return false;
	if (end->through_ns == 0)
		end->through_ns = ha_now_ns();
	return ha_now_ns() < end->through_ns + HA_RETAIN_CLOSE_NS;
}

static bool end_turn(struct world *world, struct connection *connection, struct end *end)
{
	bool moved;

	if (end->closed || end->gone || end->traffic.state == TRAFFIC_FAILED)
		return false;
	if (!end->comm)
		return turn_has_come(world, connection) && end_connect(world, connection, end);
	moved = traffic_turn(&end->traffic);
	if (end->traffic.state == TRAFFIC_DONE && closes_when_through(world, connection) &&
	    !waits_for_count(end))
		end_close(end);
	return moved;
}

/* By chance, in runs with a seed: an application that is late. */
static bool misses_turn(struct world *world)
{
	if (world->lazy == 0)
		return false;
	world->chance = mix(world->chance);
	return world->chance % 8 < world->lazy;
}

/* False: it is in a call that waits. */
static bool application_turn(struct world *world, uint32_t host)
{
	bool moved = false;

	if (sv_stepped_now() < world->blocked_until_ns[host])
		return false;
	for (unsigned i = 0; i < world->nconnections; i++) {
		struct connection *c = &world->connections[i];

		if (c->send.host == host)
			moved |= end_turn(world, c, &c->send);
		if (c->recv.host == host)
			moved |= end_turn(world, c, &c->recv);
	}
	world->blocked_until_ns[host] = sv_stepped_now() + sv_stepped_waited_ns();
	return moved;
}

static bool host_turn(struct world *world, uint32_t host)
{
	bool moved = false;

	if (world->dead[host])
		return false;
	world_act_as(host);
	if (sv_stepped_now() < world->frozen_until_ns[host]) {
		world->frozen_turns[host]++;
		return false;
	}
	if (!misses_turn(world))
		moved = application_turn(world, host);
	else
		moved = true; /* it has still to look */
	return (ha_instance_progress(world->inst[host]) > 0) | moved;
}

static void note_event(struct world *world, const struct sv_event_info *e)
{
	uint64_t d = world->digest;

	d = mix(d ^ e->time_ns ^ (uint64_t)e->kind << 60);
	d = mix(d ^ ((uint64_t)e->src_qpn << 32 | e->dst_qpn));
	world->digest = mix(d ^ ((uint64_t)e->psn << 32 | e->length));
	if (!world->options.trace)
		return;
	switch (e->kind) {
	case SV_EVENT_PACKET:
		fprintf(
		    stderr,
		    "%12.3f us  %6llu  %u.%u qp 0x%x -> %u.%u qp 0x%x %s%s%s psn %u, %u bytes%s\n",
		    (double)e->time_ns / 1e3, (unsigned long long)world->steps, e->src_host,
		    e->src_rail, e->src_qpn, e->dst_host, e->dst_rail, e->dst_qpn, e->op,
		    e->first ? " first" : "", e->last ? " last" : "", e->psn, e->length,
		    e->retry ? ", again" : "");
		break;
	case SV_EVENT_TIMER:
		fprintf(stderr, "%12.3f us  %6llu  %u.%u timer\n", (double)e->time_ns / 1e3,
			(unsigned long long)world->steps, e->src_host, e->src_rail);
		break;
	default:
		fprintf(stderr, "%12.3f us  %6llu  fault\n", (double)e->time_ns / 1e3,
			(unsigned long long)world->steps);
		break;
	}
}

void world_step(struct world *world)
{
	uint64_t now_ns = sv_stepped_now(), tick_ns;
	struct sv_event_info event;
	bool moved = false;

	begin_those_due(world);
	for (uint32_t k = 0; k < world->hosts; k++)
		moved |= host_turn(world, (uint32_t)((k + world->options.seed) % world->hosts));
	tick_ns = world->idle_ticks > IDLE_TICKS ? IDLE_TICK_NS : TICK_NS;
	if (sv_stepped_peek(&event) && event.time_ns <= now_ns + tick_ns) {
		note_event(world, &event);
		sv_stepped_step();
	} else if (!moved) {
		sv_stepped_run(now_ns + tick_ns);
		world->idle_ticks++;
	}
	if (moved)
		world->idle_ticks = 0;
	world->steps++;
}

/* ---- what can be said of it ------------------------------------------------------------------ */

bool world_connected(const struct world *world)
{
	world_each_end (world, end)
		if (!end->comm && !end->closed && end->traffic.state == TRAFFIC_RUNNING)
			return false;
	return true;
}

/* The receiver is who knows. With one port per host there is nothing to fall back to. */
static bool end_protected(const struct end *end)
{
	const struct ha_failover *failover = end->comm->failover;

	if (!ha_comm_has_failover(end->comm) || end->traffic.is_send)
		return true;
	if (failover->state != HA_FO_ACTIVE)
		return false;
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (p != end->comm->active && ha_slot_is_up(&failover->slots[p]))
			return true;
	return end->comm->inst->devices->nports == 1;
}

bool world_protected(const struct world *world)
{
	if (!world_connected(world))
		return false;
	world_each_end (world, end)
		if (end->comm && !end_protected(end))
			return false;
	return true;
}

bool world_carries(const struct world *world)
{
	const unsigned bundled = world->options.scenario->bundled;

	world_each_end (world, end)
		if (bundled != 0 && end->comm && !end->traffic.is_send &&
		    1 + (unsigned)__builtin_popcount(end->comm->recv->members) != bundled)
			return false;
	return true;
}

bool world_settled(const struct world *world)
{
	for (uint32_t host = 0; host < world->hosts; host++)
		if (world->begins_ns[host] != 0)
			return false;
	world_each_end (world, end) {
		bool peer_gone =
		    end_peer(end)->gone ||
		    (end->traffic.peer->state == TRAFFIC_FAILED && !end->traffic.peer->comm);

		if (end->traffic.state != TRAFFIC_RUNNING || end->gone)
			continue;
		if (end->comm || !peer_gone)
			return false;
	}
	return true;
}

ha_result_t world_error(const struct world *world)
{
	world_each_end (world, end)
		if (end->traffic.state == TRAFFIC_FAILED)
			return end->traffic.error;
	return HA_OK;
}

const char *world_violation(const struct world *world)
{
	world_each_end (world, end)
		if (end->traffic.violation[0] != '\0')
			return end->traffic.violation;
	return NULL;
}

void world_check(struct world *world)
{
	world_each_end (world, end) {
		world_act_as(end->host);
		traffic_check_memory(&end->traffic);
		if (end->traffic.state == TRAFFIC_FAILED && end->comm)
			traffic_check_latched(&end->traffic);
	}
}

unsigned world_active_rail(const struct world *world, uint32_t host)
{
	world_each_end (world, end) {
		const struct ha_path *path = end->comm ? end->comm->paths[end->comm->active] : NULL;
		const char *name;

		if (end->host != host || !path)
			continue;
		name = path->nic->name; /* sim0, sim1, … */
		return (unsigned)(name[strlen(name) - 1] - '0');
	}
	return 0;
}

uint64_t world_failovers(const struct world *world)
{
	uint64_t sum = 0;

	world_each_end (world, end)
		sum += end->comm ? end->comm->count.failovers : end->failovers;
	return sum;
}

uint64_t world_replays(const struct world *world)
{
	uint64_t sum = 0;

	world_each_end (world, end)
		sum += end->comm ? end->comm->count.replayed_messages : end->replays;
	return sum;
}

/* ---- closing --------------------------------------------------------------------------------- */

void world_close(struct world *world, char *violation, size_t size)
{
	world_see_strangers_off(world);
	world_each_end (world, end) {
		world_act_as(end->host);
		end_close(end);
	}
	for (unsigned i = 0; i < world->nconnections; i++)
		ha_close_listen(world->connections[i].listen);
	for (uint32_t host = 0; host < world->hosts; host++) {
		world_act_as(host);
		ha_instance_close(world->before[host]);
		ha_instance_close(world->inst[host]);
	}
	ha_clock_set_source(NULL);
	ha_command_took_ns = NULL;
	if (violation[0] == '\0' && world_violation(world))
		snprintf(violation, size, "%s", world_violation(world));
	if (violation[0] == '\0' && sv_stepped_open_contexts() != 0)
		snprintf(violation, size, "%u device contexts are left open",
			 sv_stepped_open_contexts());
	sv_stepped_destroy();
	ha_log_set_sink(NULL);
}

void world_free(struct world *world)
{
	for (unsigned i = 0; i < WORLD_CONNECTIONS; i++) {
		traffic_free(&world->connections[i].send.traffic);
		traffic_free(&world->connections[i].recv.traffic);
	}
}
