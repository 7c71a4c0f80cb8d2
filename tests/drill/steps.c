/* SPDX-License-Identifier: Apache-2.0 */
/* Carrying out the steps of a script, and what the fabric knows of their effect. */
#include "live.h"

#include "tools/common/clock.h"
#include "tools/common/process.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOOL_LIMIT 20 /* seconds for a command of simverbs */

/* ---- what the fabric knows ------------------------------------------------------------------ */

static uint64_t member(const json_t *object, const char *name)
{
	return (uint64_t)json_integer_value(json_object_get(object, name));
}

json_t *drill_status(struct live *l)
{
	char err[300];
	json_t *status = np_fabric_status(&l->fabric, err, sizeof(err));

	if (!status)
		drill_complain(l->run, "the fabric does not answer: %s", err);
	return status;
}

static uint64_t lost_packets(const json_t *status)
{
	const json_t *device;
	uint64_t lost = 0;
	size_t i;

	json_array_foreach(json_object_get(status, "devices"), i, device)
	{
		const json_t *counters = json_object_get(device, "counters");

		lost += member(counters, "drop_link") + member(counters, "drop_cut") +
			member(counters, "drop_fault") + member(counters, "drop_no_peer");
	}
	return lost;
}

uint64_t drill_received_bytes(const json_t *status, int rail)
{
	const json_t *device;
	uint64_t bytes = 0;
	size_t i;

	json_array_foreach(json_object_get(status, "devices"), i, device)
	{
		if (rail < 0 || member(device, "rail") == (uint64_t)rail)
			bytes += member(json_object_get(device, "counters"), "rx_bytes");
	}
	return bytes;
}

/* ---- steps ---------------------------------------------------------------------------------- */

/* The state that a step on ports leaves behind, as the fabric shows it; NULL: nothing to see. */
static const char *expected_state(const struct drill_step *step, const char **what)
{
	switch (step->action) {
	case DRILL_LINK_DOWN:
		*what = "link";
		return "down";
	case DRILL_LINK_UP:
		*what = "link";
		return "up";
	case DRILL_CUT:
		*what = "cut";
		return "both|from|to";
	case DRILL_HEAL:
		*what = "cut";
		return "none";
	case DRILL_KILL_DEVICE:
		*what = "device";
		return "killed";
	case DRILL_REVIVE_DEVICE:
		*what = "device";
		return "alive";
	default:
		return NULL;
	}
}

/* `cut 0 --host 1`: which host; -1 for all. */
static int host_of(const struct drill_step *step)
{
	for (int i = 0; i + 1 < step->nwords; i++)
		if (!strcmp(step->words[i], "--host"))
			return atoi(step->words[i + 1]);
	return step->host;
}

static void check_state(struct live *l, const struct drill_step *step, const json_t *status)
{
	const char *what, *want = expected_state(step, &what);
	const json_t *device;
	size_t i;

	if (!want)
		return;
	json_array_foreach(json_object_get(status, "devices"), i, device)
	{
		const char *is = json_string_value(json_object_get(device, what));

		if ((int)member(device, "rail") != step->rail ||
		    (host_of(step) >= 0 && (int)member(device, "host") != host_of(step)))
			continue;
		if (!is || !strstr(want, is))
			drill_complain(l->run, "'%s' did not take: host %d rail %d has %s '%s'",
				       step->text, (int)member(device, "host"), step->rail, what,
				       is ? is : "?");
	}
}

#define PIDS_MAX 16

/* The processes that use the fabric from a host. */
static int pids_of(struct live *l, const struct drill_step *step, pid_t pids[PIDS_MAX])
{
	json_t *status = drill_status(l);
	const json_t *process;
	int n = 0;
	size_t i;

	json_array_foreach(json_object_get(status, "processes"), i, process)
	{
		pid_t pid = (pid_t)member(process, "pid");
		bool known = pid <= 1 || (int)member(process, "host") != step->host ||
			     !json_is_true(json_object_get(process, "alive"));

		for (int k = 0; k < n; k++) /* there is one for each of its devices */
			known |= pids[k] == pid;
		if (!known && n < PIDS_MAX)
			pids[n++] = pid;
	}
	json_decref(status);
	if (n == 0)
		drill_complain(l->run, "'%s' found no process", step->text);
	return n;
}

static void signal_host(struct live *l, struct drill_step *step)
{
	int signal = step->action == DRILL_KILL_PROCESS	  ? SIGKILL
		     : step->action == DRILL_STOP_PROCESS ? SIGSTOP
							  : SIGCONT;
	pid_t pids[PIDS_MAX];
	int n = pids_of(l, step, pids);

	step->done_ns = np_now_ns(); /* now, and not when it was asked who is there */
	step->pid = n > 0 ? (int)pids[0] : 0;
	for (int i = 0; i < n; i++)
		if (kill(pids[i], signal) != 0)
			drill_complain(l->run, "'%s' found no process %d", step->text,
				       (int)pids[i]);
}

/* nccl-ha, for the processes of one host; it lies where simverbs does. */
static void run_operator(struct live *l, const struct drill_step *step)
{
	bool refused = !strcmp(step->words[2], "refused");
	const char *argv[DRILL_WORDS + 2 * PIDS_MAX + 2];
	char numbers[PIDS_MAX][12], path[sizeof(l->fabric.tool) + 8], err[300], *slash, *text;
	pid_t pids[PIDS_MAX];
	int count = pids_of(l, step, pids), n = 0;

	snprintf(path, sizeof(path), "%s", l->fabric.tool);
	slash = strrchr(path, '/');
	strcpy(slash ? slash + 1 : path, "nccl-ha");
	argv[n++] = path;
	for (int i = refused ? 3 : 2; i < step->nwords; i++)
		argv[n++] = step->words[i];
	for (int i = 0; i < count; i++) {
		snprintf(numbers[i], sizeof(numbers[i]), "%d", (int)pids[i]);
		argv[n++] = "--pid";
		argv[n++] = numbers[i];
	}
	argv[n] = NULL;
	text = np_run_tool(argv, TOOL_LIMIT, err, sizeof(err));
	if (!text && (!refused || !strstr(err, "with status 1")))
		drill_complain(l->run, "'%s': %s", step->text, err);
	if (text && refused)
		drill_complain(l->run, "'%s' was not: %s", step->text, text);
	free(text);
}

static void run_tool(struct live *l, const struct drill_step *step)
{
	const char *argv[DRILL_WORDS + 3] = {l->fabric.tool, step->words[0], l->fabric.name};
	char err[300];
	char *text;

	for (int i = 1; i < step->nwords; i++)
		argv[i + 2] = step->words[i];
	text = np_run_tool(argv, TOOL_LIMIT, err, sizeof(err));
	if (!text)
		drill_complain(l->run, "'%s' failed: %s", step->text, err);
	free(text);
}

/* Notes how many packets the fabric has swallowed since the steps before this moment. */
void drill_note_losses(struct live *l, int done, const json_t *status)
{
	uint64_t lost = lost_packets(status);

	for (int i = 0; i < done; i++)
		if (!l->run->script.steps[i].lost_after)
			l->run->script.steps[i].lost_after = lost;
}

static bool needs_look(const struct drill_step *step)
{
	const char *what;

	return expected_state(step, &what) != NULL;
}

bool drill_do_step(struct live *l, int index)
{
	struct drill_step *step = &l->run->script.steps[index];
	json_t *status = drill_status(l);

	if (!status)
		return false;
	drill_note_losses(l, index, status);
	step->lost_before = lost_packets(status);
	json_decref(status);
	drill_note(l, step->text);
	step->done_ns = np_now_ns();
	if (step->action == DRILL_KILL_PROCESS || step->action == DRILL_STOP_PROCESS ||
	    step->action == DRILL_CONTINUE_PROCESS)
		signal_host(l, step);
	else if (step->action == DRILL_OPERATOR)
		run_operator(l, step);
	else if (step->action != DRILL_IDLE) /* which whoever listens meanwhile does */
		run_tool(l, step);
	if (needs_look(step)) {
		status = drill_status(l);
		if (status)
			check_state(l, step, status);
		json_decref(status);
	}
	return true;
}
