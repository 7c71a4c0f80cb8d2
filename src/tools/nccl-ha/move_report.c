/* SPDX-License-Identifier: Apache-2.0 */
/* What came of a failover or failback, for people and for programs. */
#include "tools/nccl-ha/move.h"

#include "tools/nccl-ha/move_report.h"
#include "tools/nccl-ha/table.h"
#include "tools/nccl-ha/text.h"

#include <inttypes.h>
#include <stdio.h>

static const char *const words[NH_OUTCOME_COUNT] = {
    [NH_OUTCOME_MOVED] = "moved",     [NH_OUTCOME_ALREADY] = "already",
    [NH_OUTCOME_REFUSED] = "refused", [NH_OUTCOME_MOVING] = "moving",
    [NH_OUTCOME_FAILED] = "failed",   [NH_OUTCOME_GONE] = "closed",
};

/* How many connections came out so. */
static size_t count_moves(const struct nh_move *move, enum nh_outcome outcome)
{
	size_t count = 0;

	for (size_t p = 0; p < move->nprocesses; p++)
		for (size_t i = 0; i < move->processes[p].n; i++)
			count += move->processes[p].connections[i].outcome == outcome;
	return count;
}

/* How many processes could not be asked. */
static size_t count_errors(const struct nh_move *move)
{
	size_t errors = 0;

	for (size_t p = 0; p < move->nprocesses; p++)
		errors += move->processes[p].error[0] != '\0';
	return errors;
}

bool nh_move_worked(const struct nh_move *move)
{
	return count_errors(move) == 0 && count_moves(move, NH_OUTCOME_REFUSED) == 0 &&
	       count_moves(move, NH_OUTCOME_MOVING) == 0;
}

static void add_row(struct nh_table *table, const struct nh_process *process,
		    const struct nh_moved *c)
{
	nh_table_add(table, "%s", process->key);
	nh_table_add(table, "%016" PRIx64, c->before.id);
	nh_table_add(table, "%s", c->before.is_send ? "send" : "recv");
	nh_table_add(table, "%s", c->before.at.port);
	nh_table_add(table, "%s", c->now.port);
	nh_table_add(table, "%s%s%s", words[c->outcome], c->before.why[0] ? ": " : "",
		     c->before.why);
}

/* Of many connections only those that somebody has to look at. */
static bool is_worth_a_row(const struct nh_moved *c, bool verbose)
{
	return verbose || c->outcome == NH_OUTCOME_REFUSED || c->outcome == NH_OUTCOME_MOVING ||
	       c->outcome == NH_OUTCOME_FAILED;
}

static void print_rows(const struct nh_move *move, bool verbose)
{
	static const char *const heads[] = {"PROCESS", "CONNECTION", "END", "FROM",
					    "NOW",     "OUTCOME",    NULL};
	struct nh_table *table = nh_table_new(heads);

	if (!table)
		return;
	for (size_t p = 0; p < move->nprocesses; p++)
		for (size_t i = 0; i < move->processes[p].n; i++)
			if (is_worth_a_row(&move->processes[p].connections[i], verbose))
				add_row(table, move->processes[p].process,
					&move->processes[p].connections[i]);
	nh_table_print(table, 0, stdout);
	nh_table_free(table);
}

static const char *target(const struct nh_move *move)
{
	return move->port ? move->port : move->connection ? move->connection : "all";
}

void nh_move_print(const struct nh_move *move, bool verbose)
{
	print_rows(move, verbose);
	printf("%s of %s: %zu moved, %zu %s, %zu refused, %zu still moving",
	       move->back ? "failback" : "failover", target(move),
	       count_moves(move, NH_OUTCOME_MOVED), count_moves(move, NH_OUTCOME_ALREADY),
	       move->back ? "at home already" : "elsewhere already",
	       count_moves(move, NH_OUTCOME_REFUSED), count_moves(move, NH_OUTCOME_MOVING));
	if (count_moves(move, NH_OUTCOME_FAILED))
		printf(", %zu with an error of their own", count_moves(move, NH_OUTCOME_FAILED));
	if (count_moves(move, NH_OUTCOME_GONE))
		printf(", %zu closed", count_moves(move, NH_OUTCOME_GONE));
	printf("; %.0f ms, %zu processes\n", move->waited_ms, move->nprocesses);
	if (!move->back && move->port && count_moves(move, NH_OUTCOME_REFUSED))
		printf("What was refused moves as soon as it has a healthy path in reserve; "
		       "--force moves it at once, at the risk of a pause.\n");
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *place_json(const struct nh_place *place)
{
	return json_pack("{s:o, s:o}", "path", nh_json_text(place->path), "port",
			 nh_json_text(place->port));
}

static json_t *connection_json(const struct nh_moved *c)
{
	char id[20];

	snprintf(id, sizeof(id), "%016" PRIx64, c->before.id);
	return json_pack("{s:s, s:s, s:s, s:o, s:o, s:o}", "connection", id, "end",
			 c->before.is_send ? "send" : "recv", "outcome", words[c->outcome], "why",
			 c->before.why[0] ? nh_json_text(c->before.why) : json_null(), "from",
			 place_json(&c->before.at), "now", place_json(&c->now));
}

static json_t *process_json(const struct nh_moved_process *p)
{
	json_t *connections = json_array();

	for (size_t i = 0; i < p->n; i++)
		json_array_append_new(connections, connection_json(&p->connections[i]));
	return json_pack("{s:I, s:I, s:i, s:o, s:o, s:o}", "pid", (json_int_t)p->process->job.pid,
			 "uid", (json_int_t)p->process->uid, "rank", (int)p->process->job.rank,
			 "job", nh_json_text(p->process->job.job_id), "error",
			 p->error[0] ? nh_json_text(p->error) : json_null(), "connections",
			 connections);
}

json_t *nh_move_json(const struct nh_move *move)
{
	json_t *processes = json_array();
	json_t *document = json_pack(
	    "{s:s, s:o, s:b, s:f, s:b, s:o}", "command", move->back ? "failback" : "failover",
	    "target", nh_json_text(target(move)), "force", move->force, "waited_ms",
	    move->waited_ms, "worked", nh_move_worked(move), "processes", processes);

	for (size_t p = 0; p < move->nprocesses; p++)
		json_array_append_new(processes, process_json(&move->processes[p]));
	for (unsigned i = 0; i < NH_OUTCOME_COUNT; i++)
		json_object_set_new(
		    document, words[i],
		    json_integer((json_int_t)count_moves(move, (enum nh_outcome)i)));
	return document;
}
