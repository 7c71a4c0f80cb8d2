/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"
#include "../seeded_random.h"
#include "bootstrap.h"

#include "admin/drain.h"
#include "transport/ctrl_sock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define FREEZE_NS (50 * 1000000ull) /* longer than three heartbeats */

#define SOON_NS 1000000ull

/* One at either end: host 0 sends (its names end in -s), host 1 receives (-r). */
#define BOTH(NAME, ...)                                                                            \
	{.name = NAME "-s", .host = 0, __VA_ARGS__},                                               \
	{                                                                                          \
		.name = NAME "-r", .host = 1, __VA_ARGS__                                          \
	}

/* A completion with this status: of a work request that was sent, of one that was not, of a
 * receive. */
#define STATUS(STATUS_NAME, LOSS)                                                                  \
	BOTH("wc-" STATUS_NAME, .loss = (LOSS),                                                    \
	     .rule = "wc=" STATUS_NAME " host=$host op=write nth=$nth"),                           \
	    BOTH("wc-" STATUS_NAME "-unsent", .loss = (LOSS),                                      \
		 .rule = "wc=" STATUS_NAME " host=$host op=write sent=0 nth=$nth")

#define RECEIVE_STATUS(STATUS_NAME, LOSS)                                                          \
	BOTH("wc-recv-" STATUS_NAME, .loss = (LOSS),                                               \
	     .rule = "wc=" STATUS_NAME " host=$host op=recv nth=$nth")

#define VERB(VERB_NAME)                                                                            \
	BOTH("errno-" VERB_NAME, .loss = LOSS_VERB,                                                \
	     .rule = "errno=ENOMEM verb=" VERB_NAME " host=$host nth=$nth")

/* Longer than a soft timeout. And longer than a command takes of a NIC that is well. */
#define SLOW_NS 60000000ull
#define SICK_NS 1200000000ull

#define SLOW(VERB_NAME)                                                                            \
	BOTH("slow-" VERB_NAME, .loss = LOSS_VERB, .lasts_ns = SLOW_NS,                            \
	     .rule = "wait=60ms verb=" VERB_NAME " host=$host nth=$nth count=1")

#define REFUSED(VERB_NAME)                                                                         \
	BOTH("errno-" VERB_NAME, .loss = LOSS_NOTHING,                                             \
	     .rule = "errno=EBUSY verb=" VERB_NAME " host=$host nth=$nth")

const struct fault faults[] = {
    /* ---- links, switch, directions ---- */
    BOTH("link", .act = ACT_NOW, .loss = LOSS_PORT, .first = true,
	 .rule = "link=down host=$host rail=$rail at=$now"),
    BOTH("flap", .act = ACT_NOW, .loss = LOSS_BRIEF,
	 .rule = "link=down host=$host rail=$rail at=$now for=2ms"),
    BOTH("blink", .act = ACT_NOW, .loss = LOSS_BRIEF,
	 .rule = "link=down host=$host rail=$rail at=$now for=3us"),
    BOTH("link-packet", .loss = LOSS_PORT,
	 .rule = "link=down host=$host rail=$rail op=write nth=$nth"),
    {"cut", ACT_NOW, LOSS_RAIL, 0, .rule = "cut rail=$rail at=$now", .first = true},
    {"cut-brief", ACT_NOW, LOSS_BRIEF, 0, .rule = "cut rail=$rail at=$now for=60ms"},
    BOTH("one-way", .act = ACT_DROP, .loss = LOSS_PORT, .first = true,
	 .rule = "drop host=$host rail=$rail"),
    BOTH("standby", .act = ACT_NOW, .loss = LOSS_BRIEF,
	 .rule = "link=down host=$host rail=$other at=$now for=30ms"),
    /* A switch ends, or all of them are off for a while: what hangs on it goes at once. */
    {"leaf", ACT_NOW, LOSS_RAIL, 0, .first = true,
     .rule = "link=down host=0 rail=$rail at=$now\nlink=down host=1 rail=$rail at=$now"},
    {"switches", ACT_EVERYWHERE, LOSS_NOTHING, 0,
     .rule = "link=down host=0 rail=$rail at=$now for=80ms\n"
	     "link=down host=1 rail=$rail at=$now for=80ms"},
    {"outage", ACT_EVERYWHERE, LOSS_NOTHING, 0, .rule = "cut rail=$rail at=$now for=80ms"},
    {"outage-for-good", ACT_EVERYWHERE, LOSS_ALL, 0, .rule = "cut rail=$rail at=$now"},
    /* Every NIC of a host, as when what it hangs on in the host is reset. */
    BOTH("kill-all", .act = ACT_EVERYWHERE, .loss = LOSS_ALL,
	 .rule = "kill host=$host rail=$rail at=$now"),

    /* ---- devices ---- */
    BOTH("kill", .act = ACT_NOW, .loss = LOSS_PORT, .first = true,
	 .rule = "kill host=$host rail=$rail at=$now"),
    BOTH("kill-packet", .loss = LOSS_PORT, .rule = "kill host=$host rail=$rail dir=rx nth=$nth"),
    BOTH("kill-placed", .loss = LOSS_DEVICE,
	 .rule = "kill=placed host=$host rail=$rail op=write nth=$nth"),
    BOTH("kill-unplaced", .loss = LOSS_DEVICE,
	 .rule = "kill=unplaced host=$host rail=$rail op=write nth=$nth"),
    /* The kernel takes it away; the queue pairs end later than the first EIO. */
    BOTH("removed", .act = ACT_NOW, .loss = LOSS_PORT,
	 .rule = "disassociate=3us host=$host rail=$rail at=$now"),
    BOTH("removed-packet", .loss = LOSS_PORT,
	 .rule = "disassociate=3us host=$host rail=$rail op=write nth=$nth"),
    /* So slowly that only the other end's fence helps. */
    BOTH("removed-slowly", .act = ACT_NOW, .loss = LOSS_PORT, .first = true,
	 .rule = "disassociate=200ms host=$host rail=$rail at=$now"),
    BOTH("standby-removed", .act = ACT_NOW, .loss = LOSS_OTHER_PORT,
	 .rule = "disassociate=200ms host=$host rail=$other at=$now"),
    /* The driver says that it has done what it has not. */
    BOTH("feign", .act = ACT_NOW, .loss = LOSS_UNHEARD,
	 .rule = "feign=3ms host=$host rail=$rail at=$now"),
    BOTH("feign-packet", .loss = LOSS_UNHEARD,
	 .rule = "feign=3ms host=$host rail=$rail op=write nth=$nth"),
    /* A queue pair on a port that is well; the last one is flushed for nobody. */
    BOTH("broken", .loss = LOSS_BRIEF, .rule = "err host=$host op=write nth=$nth", .first = true),
    BOTH("broken-far", .loss = LOSS_BRIEF, .rule = "err dir=rx host=$host op=write nth=$nth"),
    BOTH("broken-silently", .loss = LOSS_BRIEF,
	 .rule = "err=silent dir=rx host=$host op=write nth=$nth"),
    BOTH("wedge", .loss = LOSS_BRIEF, .rule = "wedge host=$host op=write nth=$nth", .first = true),
    BOTH("wedge-hard", .loss = LOSS_BRIEF, .rule = "wedge=hard host=$host op=write nth=$nth"),

    /* ---- packets ---- */
    BOTH("drop", .loss = LOSS_NOTHING, .rule = "drop host=$host nth=$nth"),
    BOTH("corrupt", .loss = LOSS_NOTHING, .rule = "corrupt host=$host op=write nth=$nth"),
    BOTH("dup", .loss = LOSS_NOTHING, .rule = "dup=2 host=$host nth=$nth"),
    BOTH("delay", .loss = LOSS_NOTHING, .rule = "delay=50us host=$host nth=$nth"),
    BOTH("reorder", .loss = LOSS_NOTHING, .rule = "reorder=3 host=$host op=write nth=$nth"),
    BOTH("no-ack", .loss = LOSS_NOTHING, .rule = "dropack host=$host nth=$nth count=1"),
    /* Everything from one point on is delivered and nothing acknowledged. */
    BOTH("no-acks", .loss = LOSS_PORT, .first = true,
	 .rule = "dropack host=$host rail=$rail nth=$nth count=1000000"),
    /* A packet that comes when the path it was sent on has been left for another. */
    BOTH("late", .loss = LOSS_BRIEF, .first = true,
	 .rule = "delay=3ms host=$host op=write nth=$nth",
	 .then = "event=PORT_ERR host=$host rail=$rail at=$now\n"
		 "event=PORT_ACTIVE host=$host rail=$rail at=$soon"),
    BOTH("late-far", .loss = LOSS_BRIEF, .rule = "delay=60ms host=$host op=write nth=$nth",
	 .then = "event=PORT_ERR host=$peer rail=$peerrail at=$now\n"
		 "event=PORT_ACTIVE host=$peer rail=$peerrail at=$soon"),
    BOTH("twice-late", .loss = LOSS_BRIEF, .rule = "dup host=$host op=write nth=$nth",
	 .then = "event=PORT_ERR host=$host rail=$rail at=$now\n"
		 "event=PORT_ACTIVE host=$host rail=$rail at=$soon"),

    /* ---- false alarms ---- */
    BOTH("event-PORT_ERR", .act = ACT_NOW, .loss = LOSS_BRIEF, .first = true,
	 .rule = "event=PORT_ERR host=$host rail=$rail at=$now",
	 .then = "event=PORT_ACTIVE host=$host rail=$rail at=$soon"),
    BOTH("event-PORT_ACTIVE", .act = ACT_NOW, .loss = LOSS_NOTHING,
	 .rule = "event=PORT_ACTIVE host=$host rail=$rail at=$now"),
    BOTH("event-DEVICE_FATAL", .act = ACT_NOW, .loss = LOSS_PORT,
	 .rule = "event=DEVICE_FATAL host=$host rail=$rail at=$now"),
    BOTH("event-GID_CHANGE", .act = ACT_NOW, .loss = LOSS_BRIEF,
	 .rule = "event=GID_CHANGE host=$host rail=$rail at=$now"),
    BOTH("event-LID_CHANGE", .act = ACT_NOW, .loss = LOSS_BRIEF,
	 .rule = "event=LID_CHANGE host=$host rail=$rail at=$now"),
    BOTH("event-CLIENT_REREGISTER", .act = ACT_NOW, .loss = LOSS_NOTHING,
	 .rule = "event=CLIENT_REREGISTER host=$host rail=$rail at=$now"),
    BOTH("gid", .act = ACT_GID, .loss = LOSS_BRIEF),

    /* ---- the ends and their channels ---- */
    BOTH("freeze", .act = ACT_FREEZE, .loss = LOSS_BRIEF),
    BOTH("socket", .act = ACT_SOCKET, .loss = LOSS_NOTHING, .first = true),
    BOTH("die", .act = ACT_DIE, .loss = LOSS_PROCESS),

    /* ---- the operator ---- */
    BOTH("drain", .act = ACT_ORDER, .loss = LOSS_NOTHING, .first = true,
	 .rule = "nccl-ha 1 failover port sim$rail:1"),
    BOTH("drain-forced", .act = ACT_ORDER, .loss = LOSS_NOTHING,
	 .rule = "nccl-ha 1 failover port sim$rail:1 force"),
    BOTH("move", .act = ACT_ORDER, .loss = LOSS_NOTHING, .first = true,
	 .rule = "nccl-ha 1 failover connection $connection force"),
    BOTH("undrain", .act = ACT_ORDER, .loss = LOSS_NOTHING, .frequent = true,
	 .rule = "nccl-ha 1 failback all"),

    /* ---- verbs ---- */
    VERB("post_send"),
    VERB("post_recv"),
    BOTH("errno-poll_cq", .loss = LOSS_RECEIVED, .frequent = true,
	 .rule = "errno=EINVAL verb=poll_cq host=$host nth=$nth"),
    VERB("modify_qp"),
    VERB("create_qp"),
    VERB("create_cq"),
    BOTH("errno-reg_mr", .loss = LOSS_MEMORY,
	 .rule = "errno=ENOMEM verb=reg_mr host=$host nth=$nth"),
    VERB("create_ah"),
    VERB("alloc_pd"),
    VERB("query_port"),
    VERB("query_gid"),
    VERB("query_qp"),
    VERB("open_device"),
    VERB("query_device"),

    /* ---- completions ---- */
    STATUS("RETRY_EXC_ERR", LOSS_BRIEF),
    STATUS("RNR_RETRY_EXC_ERR", LOSS_BRIEF),
    STATUS("REM_OP_ERR", LOSS_REQUEST),
    STATUS("RESP_TIMEOUT_ERR", LOSS_BRIEF),
    STATUS("LOC_QP_OP_ERR", LOSS_BRIEF),
    STATUS("FATAL_ERR", LOSS_BRIEF),
    STATUS("GENERAL_ERR", LOSS_REQUEST),
    STATUS("WR_FLUSH_ERR", LOSS_BRIEF),
    STATUS("REM_ABORT_ERR", LOSS_REQUEST),
    STATUS("BAD_RESP_ERR", LOSS_REFUSED),
    STATUS("REM_ACCESS_ERR", LOSS_REFUSED),
    STATUS("REM_INV_REQ_ERR", LOSS_REFUSED),
    STATUS("LOC_LEN_ERR", LOSS_BUG),
    STATUS("LOC_PROT_ERR", LOSS_BUG),
    STATUS("LOC_ACCESS_ERR", LOSS_BUG),
    STATUS("MW_BIND_ERR", LOSS_BUG),
    STATUS("REM_INV_RD_REQ_ERR", LOSS_BUG),
    STATUS("LOC_EEC_OP_ERR", LOSS_BUG),
    STATUS("LOC_RDD_VIOL_ERR", LOSS_BUG),
    STATUS("INV_EECN_ERR", LOSS_BUG),
    STATUS("INV_EEC_STATE_ERR", LOSS_BUG),
    RECEIVE_STATUS("LOC_QP_OP_ERR", LOSS_RECEIVED),
    RECEIVE_STATUS("WR_FLUSH_ERR", LOSS_RECEIVED),
    RECEIVE_STATUS("GENERAL_ERR", LOSS_RECEIVED),
    RECEIVE_STATUS("REM_INV_REQ_ERR", LOSS_REFUSED_RECEIVE),
    RECEIVE_STATUS("LOC_LEN_ERR", LOSS_BUG),
    RECEIVE_STATUS("LOC_PROT_ERR", LOSS_BUG),

    /* ---- of more worlds: only walks draw them ---- */
    BOTH("restart", .act = ACT_RESTART, .loss = LOSS_PROCESS),
    {"stranger-silent", ACT_STRANGER, LOSS_NOTHING, 0, .rule = ""},
    {"stranger-web", ACT_STRANGER, LOSS_NOTHING, 0,
     .rule = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"},
    {"stranger-garbage", ACT_STRANGER, LOSS_NOTHING, 0, .rule = "*"},
    {"stranger-gone", ACT_STRANGER, LOSS_NOTHING, 0, .rule = NULL},
    SLOW("rtr"),
    SLOW("err"),
    SLOW("modify_qp"),
    SLOW("create_qp"),
    SLOW("create_cq"),
    SLOW("create_ah"),
    SLOW("reg_mr"),
    SLOW("query_port"),
    /* Longer than an outage may last. */
    BOTH("sick", .loss = LOSS_PORT, .lasts_ns = SICK_NS,
	 .rule = "wait=1200ms verb=modify_qp host=$host rail=$rail nth=$nth"),

    /* ---- what is given back, which is something only after another fault ---- */
    REFUSED("destroy_qp"),
    REFUSED("destroy_cq"),
    REFUSED("dereg_mr"),
    REFUSED("destroy_ah"),
    SLOW("destroy_qp"),
    SLOW("dereg_mr"),
};

#define BEHIND_OTHERS 12 /* of those the last */
#define WALKED	      24 /* and before them */

const unsigned nfaults_named = sizeof(faults) / sizeof(faults[0]);
const unsigned nfaults_walked = sizeof(faults) / sizeof(faults[0]) - BEHIND_OTHERS;
const unsigned nfaults = sizeof(faults) / sizeof(faults[0]) - BEHIND_OTHERS - WALKED;

const struct fault *fault_find(const char *name)
{
	for (unsigned i = 0; i < nfaults_named; i++)
		if (!strcmp(faults[i].name, name))
			return &faults[i];
	return NULL;
}

bool fault_ends_device(const struct fault *fault)
{
	static const char *const rules[] = {"kill", "disassociate", "feign", "event=DEVICE_FATAL"};

	for (unsigned i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
		if (fault->rule && strncmp(fault->rule, rules[i], strlen(rules[i])) == 0)
			return true;
	return false;
}

/* ---- rules ----------------------------------------------------------------------------------- */

static bool word(const char **text, const char *name)
{
	size_t n = strlen(name);

	if (strncmp(*text, name, n) != 0)
		return false;
	*text += n;
	return true;
}

static unsigned other_rail(const struct injection *injection, const struct world *world)
{
	return (injection->rail + 1) % world->options.scenario->rails;
}

/* Fills the blanks of a rule. */
static void expand(const struct injection *injection, const struct world *world, const char *text,
		   char *out, size_t size)
{
	uint32_t host = injection->fault->host;
	/* One that is placed at a step goes on where it began: its connection may have moved. */
	unsigned rail =
	    fault_at_step(injection->fault) ? injection->rail : world_active_rail(world, host);
	const struct ha_comm *first = world->connections[0].send.comm;
	size_t n = 0;

	while (*text != '\0' && n + 32 < size) {
		if (word(&text, "$host"))
			n += (size_t)snprintf(out + n, size - n, "%u", host);
		else if (word(&text, "$peerrail"))
			n += (size_t)snprintf(out + n, size - n, "%u",
					      world_active_rail(world, 1 - host));
		else if (word(&text, "$peer"))
			n += (size_t)snprintf(out + n, size - n, "%u", 1 - host);
		else if (word(&text, "$rail"))
			n += (size_t)snprintf(out + n, size - n, "%u", rail);
		else if (word(&text, "$other"))
			n +=
			    (size_t)snprintf(out + n, size - n, "%u", other_rail(injection, world));
		else if (word(&text, "$now"))
			n += (size_t)snprintf(out + n, size - n, "%lluns",
					      (unsigned long long)sv_stepped_now());
		else if (word(&text, "$soon"))
			n += (size_t)snprintf(out + n, size - n, "%lluns",
					      (unsigned long long)sv_stepped_now() + SOON_NS);
		else if (word(&text, "$connection"))
			n += (size_t)snprintf(out + n, size - n, "%016llx",
					      first ? (unsigned long long)first->id : 0);
		else if (word(&text, "$nth"))
			n += (size_t)snprintf(out + n, size - n, "%llu",
					      (unsigned long long)injection->at + 1);
		else
			out[n++] = *text++;
	}
	out[n] = '\0';
}

static int add_rule(const struct injection *injection, const struct world *world, const char *text)
{
	char rule[256], why[256];
	int id;

	expand(injection, world, text, rule, sizeof(rule));
	id = sv_stepped_fault_add(rule, why, sizeof(why));
	if (id < 0) {
		fprintf(stderr, "explore: fault %s: rule \"%s\": %s\n", injection->fault->name,
			rule, why);
		exit(2);
	}
	if (world->options.trace)
		fprintf(stderr, "%12.3f us  %6llu  rule: %s\n", (double)sv_stepped_now() / 1e3,
			(unsigned long long)world->steps, rule);
	return id;
}

static bool rule_fired(int id)
{
	uint64_t matched, fired;

	return sv_stepped_fault_stats(id, &matched, &fired) && fired > 0;
}

/* ---- what no rule can say -------------------------------------------------------------------- */

/* Everybody cuts what is left. False: there is no such thing. */
static bool shut_sockets(struct world *world, uint32_t host)
{
	bool any = false;

	world_each_end (world, end)
		if (end->host == host && !end->gone && end->comm && end->comm->ctrl_sock &&
		    end->comm->ctrl_sock->frames.fd >= 0)
			any |= shutdown(end->comm->ctrl_sock->frames.fd, SHUT_RDWR) == 0;
	return any;
}

static bool change_gid(struct world *world, uint32_t host)
{
	unsigned rail = world_active_rail(world, host);
	struct ha_port *port = world_port(world, host, rail);
	union ibv_gid gid = {
	    .raw = {[10] = 0xff, [11] = 0xff, 10, 99, (uint8_t)rail, (uint8_t)(host + 1)}};
	struct ibv_context *ctx = port->nic->now->ctx;
	union ibv_gid now;

	world->addresses[host][rail].changed = true; /* also of a device that is not there now */
	sv_stepped_set_gid(host, rail, (uint32_t)port->gid_index, &gid);
	return ibv_query_gid(ctx, 1, port->gid_index, &now) == 0 &&
	       !memcmp(now.raw, gid.raw, sizeof(now.raw));
}

void fault_take_back_addresses(struct world *world)
{
	for (uint32_t host = 0; host < world->hosts; host++)
		for (uint32_t rail = 0; rail < world->options.scenario->rails; rail++) {
			struct world_address *first = &world->addresses[host][rail];

			if (first->changed)
				sv_stepped_set_gid(host, rail, first->index, &first->gid);
			first->changed = false;
		}
}

static bool act_everywhere(const struct injection *injection, const struct world *world)
{
	struct injection each = *injection;
	bool all = true;

	for (each.rail = 0; each.rail < world->options.scenario->rails; each.rail++)
		all &= add_rule(&each, world, injection->fault->rule) >= 0;
	return all;
}

static bool kill_process(struct world *world, uint32_t host)
{
	if (world->dead[host])
		return false;
	shut_sockets(world, host);
	world_kill_process(world, host);
	return true;
}

/* False: nobody listens, or there are too many of them already. NULL: he has gone again. */
static bool send_a_stranger(struct world *world, const char *says)
{
	int *fds = world->strangers + world->nstrangers;
	unsigned n = bootstrap_visit(fds, WORLD_STRANGERS - world->nstrangers);
	uint64_t garbage[64];

	for (unsigned i = 0; i < sizeof(garbage) / sizeof(garbage[0]); i++)
		garbage[i] = mix(world->options.seed + i);
	for (unsigned i = 0; i < n && says; i++) {
		bool any = says[0] == '*';
		ssize_t said = send(fds[i], any ? (const char *)garbage : says,
				    any ? sizeof(garbage) : strlen(says), MSG_NOSIGNAL);

		(void)said; /* whoever refuses to listen is right */
	}
	world->nstrangers += n;
	if (!says)
		world_see_strangers_off(world);
	return n > 0;
}

static void tell_nobody(void *arg, const struct ha_admin_result *verdict)
{
	(void)arg, (void)verdict;
}

/* False: there is no connection yet, or none any more. */
static bool give_order(const struct injection *injection, const struct world *world)
{
	char text[NCCL_HA_CONTROL_REQUEST_MAX];
	struct ha_admin_request order;
	const char *why;

	expand(injection, world, injection->fault->rule, text, sizeof(text));
	if (!ha_admin_request_parse(text, strlen(text), &order, &why)) {
		fprintf(stderr, "explore: fault %s: order \"%s\": %s\n", injection->fault->name,
			text, why);
		exit(2);
	}
	world_act_as(injection->fault->host);
	return ha_admin_execute(world->inst[injection->fault->host], &order, tell_nobody, NULL);
}

/* ---- injection ------------------------------------------------------------------------------- */

void fault_arm(struct injection *injection, struct world *world)
{
	injection->armed = true;
	injection->armed_step = world->steps;
	injection->rail = world_active_rail(world, injection->fault->host);
	injection->rule = -1;
	if (!fault_at_step(injection->fault))
		injection->rule = add_rule(injection, world, injection->fault->rule);
}

/* Its step has come. */
static void act(struct injection *injection, struct world *world)
{
	const struct fault *fault = injection->fault;

	injection->rail = world_active_rail(world, fault->host);
	switch (fault->act) {
	case ACT_NOW:
	case ACT_DROP:
		injection->rule = add_rule(injection, world, fault->rule);
		break;
	case ACT_FREEZE:
		world->frozen_until_ns[fault->host] = sv_stepped_now() + FREEZE_NS;
		injection->fired = true;
		break;
	case ACT_SOCKET:
		injection->fired = shut_sockets(world, fault->host);
		break;
	case ACT_DIE:
		injection->fired = kill_process(world, fault->host);
		break;
	case ACT_RESTART:
		injection->fired =
		    world_begin_anew(world, fault->host) && kill_process(world, fault->host);
		break;
	case ACT_STRANGER:
		injection->fired = send_a_stranger(world, fault->rule);
		break;
	case ACT_GID:
		injection->fired = change_gid(world, fault->host);
		break;
	case ACT_EVERYWHERE:
		injection->fired = act_everywhere(injection, world);
		break;
	case ACT_ORDER:
		injection->fired = give_order(injection, world);
		break;
	case ACT_RULE:
		break;
	}
}

void fault_disarm(struct injection *injection)
{
	if (injection->fired)
		return;
	if (injection->rule >= 0)
		(void)sv_stepped_fault_remove(injection->rule);
	injection->armed = false;
}

bool fault_poll(struct injection *injection, struct world *world)
{
	const struct fault *fault = injection->fault;

	if (!injection->armed || injection->fired)
		return injection->fired;
	if (fault_at_step(fault) && world->steps == injection->armed_step + injection->at)
		act(injection, world);
	if (injection->rule >= 0 && rule_fired(injection->rule)) {
		injection->fired = true;
		if (fault->then)
			add_rule(injection, world, fault->then);
	}
	if (injection->fired)
		injection->fired_step = world->steps;
	return injection->fired;
}

/* ---- what is left ---------------------------------------------------------------------------- */

void damage_add(struct damage *damage, const struct injection *injection, const struct world *world)
{
	uint32_t host = injection->fault->host, rail = injection->rail;
	bool receives = false;

	world_each_end (world, end)
		receives |= end->host == host && !end->traffic.is_send;
	switch (injection->fault->loss) {
	case LOSS_NOTHING:
	case LOSS_BRIEF:
		break;
	case LOSS_VERB:
		damage->at_set_up |= !world_connected(world);
		break;
	case LOSS_DEVICE:
		damage->unplaced |= receives;
		damage->acknowledged |= receives;
		damage->lost_ports[host] |= 1u << rail;
		break;
	case LOSS_UNHEARD:
		damage->at_set_up |= !world_connected(world);
		damage->acknowledged |= receives;
		damage->lost_ports[host] |= 1u << rail;
		break;
	case LOSS_OTHER_PORT:
		damage->at_set_up |= !world_connected(world);
		damage->lost_ports[host] |= 1u << other_rail(injection, world);
		break;
	case LOSS_PORT:
		damage->at_set_up |= !world_connected(world);
		damage->lost_ports[host] |= 1u << rail;
		break;
	case LOSS_RAIL:
		for (uint32_t h = 0; h < WORLD_HOSTS; h++)
			damage->lost_ports[h] |= 1u << rail;
		break;
	case LOSS_REQUEST:
		damage->requests++;
		break;
	case LOSS_REFUSED:
		damage->refusals++;
		break;
	case LOSS_REFUSED_RECEIVE:
		damage->refusals++;
		/* fall through */
	case LOSS_RECEIVED: /* a queue that is not polled in a drain has lost what it held */
		damage->at_set_up |= !world_connected(world);
		damage->acknowledged |= receives;
		break;
	case LOSS_BUG:
		damage->bug = true;
		break;
	case LOSS_PROCESS: /* its ends say so */
		break;
	case LOSS_MEMORY:
		damage->at_set_up |= !world_connected(world);
		/* The application's own call met the fault: the end is closed by now. */
		world_each_end (world, end)
			damage->memory |=
			    end->host == host && end->refused_by_step == injection->fired_step;
		break;
	case LOSS_ALL:
		for (uint32_t h = 0; h < WORLD_HOSTS; h++)
			damage->lost_ports[h] = UINT32_MAX;
		break;
	}
}

static bool leaves_port(const struct damage *damage, const struct world *world, uint32_t host)
{
	uint32_t all = (1u << world->options.scenario->rails) - 1;

	return (damage->lost_ports[host] & all) != all;
}

bool damage_leaves_path_between(const struct damage *damage, const struct world *world, uint32_t a,
				uint32_t b)
{
	return leaves_port(damage, world, a) && leaves_port(damage, world, b);
}

bool damage_leaves_path(const struct damage *damage, const struct world *world)
{
	for (uint32_t host = 0; host < world->hosts; host++)
		if (!leaves_port(damage, world, host))
			return false;
	return true;
}
