/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl-ha failover and nccl-ha failback: connections leave a port that is to be pulled, and come
 * back. Every process that was meant gets the order first, of a single connection one of its two;
 * then all are asked where their connections are until everything has settled or the time is over.
 */
#include "tools/nccl-ha/move.h"

#include "tools/common/clock.h"
#include "tools/nccl-ha/move_report.h"
#include "tools/nccl-ha/text.h"
#include "tools/nccl-ha/tool.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WAIT_MS	     10000
#define LOOK_US	     (10 * 1000)
#define PORT_UNKNOWN "this process has no such port"
#define CONN_UNKNOWN "this process has no such connection"

struct arguments {
	struct nh_select select;
	struct nh_move move;
	long wait_ms;
	bool all, verbose, json;
};

enum { KEY_FORCE = 0x3000, KEY_ALL };

#define TARGETS                                                                                    \
	{"port", 'P', "DEVICE:PORT", 0, "A port of this host, as mlx5_0:1", 0},                    \
	{                                                                                          \
		"connection", 'c', "ID", 0,                                                        \
		    "One connection, by its number or the part of it that log lines have", 0       \
	}
#define COMMON                                                                                     \
	{"wait", 'w', "MS", 0, "Longest time to wait until all have moved (default: 10000)", 0},   \
	    {"verbose", 'v', NULL, 0, "A line for each connection, not for troubles only", 0},     \
	    {"json", 'j', NULL, 0, "A JSON document", 0},                                          \
	{                                                                                          \
		"all", KEY_ALL, NULL, 0,                                                           \
		    "Every process of yours, for root of everybody: the default", 11               \
	}

static const struct argp_option failover_options[] = {
    TARGETS,
    {"force", KEY_FORCE, NULL, 0, "Also connections without a healthy path in reserve", 0},
    COMMON,
    {0},
};

static const struct argp_option failback_options[] = {TARGETS, COMMON, {0}};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct arguments *a = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &a->select;
		return 0;
	case 'P':
		a->move.port = arg;
		return 0;
	case 'c':
		a->move.connection = arg;
		return 0;
	case 'w':
		a->wait_ms = nh_number(state, "--wait", arg, 0, 3600 * 1000);
		return 0;
	case KEY_FORCE:
		a->move.force = true;
		return 0;
	case KEY_ALL:
		a->all = true;
		return 0;
	case 'v':
		a->verbose = true;
		return 0;
	case 'j':
		a->json = true;
		return 0;
	case ARGP_KEY_END:
		if (a->move.port && a->move.connection)
			argp_error(state, "--port and --connection exclude each other");
		if (!a->move.back && !a->move.port && !a->move.connection)
			argp_error(state, "what is to move? --port mlx5_0:1 or --connection ID");
		if (a->all && nh_select_is_narrow(&a->select))
			argp_error(state, "--all excludes --job, --rank and --pid");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* ---- orders ---------------------------------------------------------------------------------- */

static void write_request(const struct nh_move *move, const char *verb, char *out, size_t size)
{
	const char *force = move->force && strcmp(verb, "status") != 0 ? " force" : "";

	if (move->port)
		snprintf(out, size, "nccl-ha 1 %s port %s%s", verb, move->port, force);
	else if (move->connection)
		snprintf(out, size, "nccl-ha 1 %s connection %s%s", verb, move->connection, force);
	else
		snprintf(out, size, "nccl-ha 1 %s all%s", verb, force);
}

static enum nh_outcome first_outcome(enum nh_fate fate)
{
	static const enum nh_outcome outcomes[NH_FATE_COUNT] = {
	    [NH_FATE_ACTIVE] = NH_OUTCOME_MOVING,   [NH_FATE_MOVING] = NH_OUTCOME_MOVING,
	    [NH_FATE_AWAY] = NH_OUTCOME_ALREADY,    [NH_FATE_HOME] = NH_OUTCOME_ALREADY,
	    [NH_FATE_REFUSED] = NH_OUTCOME_REFUSED, [NH_FATE_FAILED] = NH_OUTCOME_FAILED,
	};

	return outcomes[fate];
}

/* What the process says to this is where its connections are before anything has moved. */
static void begin(const struct nh_move *move, struct nh_moved_process *p, const char *verb)
{
	struct nh_answer answer;
	char request[300];

	write_request(move, verb, request, sizeof(request));
	if (nh_ask(p->process->path, p->process->uid, request, &answer, p->error,
		   sizeof(p->error)) &&
	    answer.n > 0) {
		p->connections = calloc(answer.n, sizeof(*p->connections));
		if (!p->connections)
			snprintf(p->error, sizeof(p->error), "out of memory");
	}
	for (size_t i = 0; p->connections && i < answer.n; i++) {
		struct nh_moved *c = &p->connections[p->n++];

		c->before = answer.connections[i];
		c->now = c->before.at;
		c->outcome = first_outcome(c->before.fate);
	}
	nh_answer_free(&answer);
}

static const struct nh_asked *find(const struct nh_answer *answer, const struct nh_asked *of)
{
	for (size_t i = 0; i < answer->n; i++)
		if (answer->connections[i].id == of->id &&
		    answer->connections[i].is_send == of->is_send)
			return &answer->connections[i];
	return NULL;
}

/* Of a process that has answered before. False: it does not any more, or says no. A connection that
 * has been closed meanwhile is not in the answer. */
static bool ask_again(const struct nh_move *move, struct nh_moved_process *p, const char *verb,
		      struct nh_answer *answer)
{
	char request[300], err[256];

	write_request(move, verb, request, sizeof(request));
	if (nh_ask(p->process->path, p->process->uid, request, answer, err, sizeof(err)) ||
	    !strcmp(err, CONN_UNKNOWN))
		return true;
	snprintf(p->error, sizeof(p->error), "%s", err);
	return false;
}

static void order_connection(const struct nh_move *move, struct nh_moved_process *p,
			     struct nh_moved *c)
{
	struct nh_move one = *move;
	const struct nh_asked *said;
	struct nh_answer answer;
	char id[20];

	/* What the operator gave may be a part that fits several. */
	snprintf(id, sizeof(id), "%016" PRIx64, c->before.id);
	one.connection = id;
	if (ask_again(&one, p, "failover", &answer) && (said = find(&answer, &c->before))) {
		c->outcome = first_outcome(said->fate);
		c->obeyed = said->fate == NH_FATE_MOVING;
		memcpy(c->before.why, said->why, sizeof(c->before.why));
	}
	nh_answer_free(&answer);
}

static bool has_been_obeyed(const struct nh_move *move, uint64_t id)
{
	for (size_t p = 0; p < move->nprocesses; p++)
		for (size_t i = 0; i < move->processes[p].n; i++)
			if (move->processes[p].connections[i].obeyed &&
			    move->processes[p].connections[i].before.id == id)
				return true;
	return false;
}

/*
 * Either end moves both. An order to the other one as well may come when that is done, and move
 * the connection back: it goes there only if the first one refused.
 */
static void order_connections(const struct nh_move *move)
{
	for (size_t p = 0; p < move->nprocesses; p++)
		for (size_t i = 0; i < move->processes[p].n; i++) {
			struct nh_moved *c = &move->processes[p].connections[i];

			if (c->outcome == NH_OUTCOME_MOVING && !has_been_obeyed(move, c->before.id))
				order_connection(move, &move->processes[p], c);
		}
}

/* ---- what comes of them ---------------------------------------------------------------------- */

static bool has_arrived(const struct nh_move *move, const struct nh_moved *c,
			const struct nh_asked *is)
{
	if (is->fate == NH_FATE_MOVING)
		return false;
	if (move->back)
		return is->home;
	if (move->port)
		return is->fate == NH_FATE_AWAY;
	return strcmp(is->at.path, c->before.at.path) != 0;
}

static void update(const struct nh_move *move, struct nh_moved *c, const struct nh_asked *is)
{
	if (c->outcome != NH_OUTCOME_MOVING && c->outcome != NH_OUTCOME_REFUSED)
		return;
	if (!is) {
		c->outcome = NH_OUTCOME_GONE;
		return;
	}
	c->now = is->at;
	if (is->fate == NH_FATE_FAILED)
		c->outcome = NH_OUTCOME_FAILED;
	else if (has_arrived(move, c, is))
		c->outcome = NH_OUTCOME_MOVED;
	else if (is->fate == NH_FATE_MOVING)
		c->outcome = NH_OUTCOME_MOVING; /* also what was refused at first */
	if (c->outcome != NH_OUTCOME_REFUSED)
		c->before.why[0] = '\0';
}

static bool has(const struct nh_moved_process *p, enum nh_outcome outcome)
{
	for (size_t i = 0; i < p->n; i++)
		if (p->connections[i].outcome == outcome)
			return true;
	return false;
}

static void look(const struct nh_move *move, struct nh_moved_process *p)
{
	struct nh_answer answer;

	if (ask_again(move, p, "status", &answer))
		for (size_t i = 0; i < p->n; i++)
			update(move, &p->connections[i], find(&answer, &p->connections[i].before));
	nh_answer_free(&answer);
}

static void wait_for_all(struct nh_move *move, long wait_ms)
{
	uint64_t began = np_now_ns(), until = began + (uint64_t)wait_ms * NP_NS_PER_MS;
	bool moving;

	/* What one process had to refuse, the order to another one may have made possible. */
	do {
		moving = false;
		for (size_t i = 0; i < move->nprocesses; i++) {
			struct nh_moved_process *p = &move->processes[i];

			if (p->error[0] ||
			    !(has(p, NH_OUTCOME_MOVING) || has(p, NH_OUTCOME_REFUSED)))
				continue;
			look(move, p);
			moving |= has(p, NH_OUTCOME_MOVING);
		}
		if (moving)
			usleep(LOOK_US);
	} while (moving && np_now_ns() < until);
	move->waited_ms = (double)(np_now_ns() - began) / (double)NP_NS_PER_MS;
}

/* ---- which processes ------------------------------------------------------------------------- */

/* Where some processes have the port, or the connection, the others are not concerned. */
static void forget_unconcerned(struct nh_move *move)
{
	size_t kept = 0;

	for (size_t i = 0; i < move->nprocesses; i++) {
		struct nh_moved_process *p = &move->processes[i];

		if (strcmp(p->error, PORT_UNKNOWN) != 0 && strcmp(p->error, CONN_UNKNOWN) != 0)
			move->processes[kept++] = *p;
	}
	if (kept > 0)
		move->nprocesses = kept;
}

static void give_orders(struct nh_move *move, const struct nh_snapshot *snapshot)
{
	bool one = move->connection && !move->back;
	const char *verb = one ? "status" : move->back ? "failback" : "failover";

	move->processes = calloc(snapshot->nprocesses, sizeof(*move->processes));
	for (size_t i = 0; move->processes && i < snapshot->nprocesses; i++) {
		struct nh_moved_process *p = &move->processes[move->nprocesses++];

		p->process = &snapshot->processes[i];
		begin(move, p, verb);
	}
	forget_unconcerned(move);
	if (one)
		order_connections(move);
}

static void tell_errors(const struct nh_move *move, const char *command)
{
	for (size_t i = 0; i < move->nprocesses; i++)
		if (move->processes[i].error[0])
			fprintf(stderr, "%s: process %s: %s\n", command,
				move->processes[i].process->key, move->processes[i].error);
}

static int run(struct arguments *a, const char *command)
{
	struct nh_snapshot snapshot;
	int status = NH_EXIT_NO_JOB;

	(void)nh_snapshot_take(&snapshot, &a->select, command);
	if (snapshot.nprocesses == 0) {
		nh_say_no_job(&snapshot, &a->select, command);
	} else {
		give_orders(&a->move, &snapshot);
		wait_for_all(&a->move, a->wait_ms);
		tell_errors(&a->move, command);
		if (a->json) {
			json_t *document = nh_move_json(&a->move);

			json_dumpf(document, stdout, NH_JSON_FORM | JSON_INDENT(2));
			putchar('\n');
			json_decref(document);
		} else {
			nh_move_print(&a->move, a->verbose);
		}
		status = nh_move_worked(&a->move) ? NH_EXIT_OK : NH_EXIT_FAILED;
	}
	for (size_t i = 0; i < a->move.nprocesses; i++)
		free(a->move.processes[i].connections);
	free(a->move.processes);
	nh_snapshot_free(&snapshot);
	return status;
}

static int run_command(int argc, char **argv, bool back, const struct argp_option *options,
		       const char *doc)
{
	static const struct argp_child children[] = {{&nh_select_argp, 0, NULL, 0}, {0}};
	const struct argp argp = {options, parse, NULL, doc, children, NULL, NULL};
	struct arguments a = {.select = NH_SELECT_ALL, .move = {.back = back}, .wait_ms = WAIT_MS};

	argp_parse(&argp, argc, argv, 0, NULL, &a);
	return run(&a, argv[0]);
}

int nh_cmd_failover(int argc, char **argv)
{
	return run_command(
	    argc, argv, false, failover_options,
	    "Drains a port before it is pulled: its connections go elsewhere and do not come back "
	    "before failback. Or moves one connection, once. Status 0: everything is where it "
	    "should "
	    "be; 1: something was refused, is still moving or could not be asked; 3: no job.");
}

int nh_cmd_failback(int argc, char **argv)
{
	return run_command(
	    argc, argv, true, failback_options,
	    "Ends the drain of a port, or of all ports, and brings connections back to the ports "
	    "that NCCL asked for. Status as of failover.");
}
