/* SPDX-License-Identifier: Apache-2.0 */
/* Running a drill: the fabric, nccl-net-perf, the faults, and what the witnesses have to say. */
#include "drill.h"

#include "base/stats_file.h"
#include "tools/common/clock.h"
#include "tools/common/fabric.h"
#include "tools/common/process.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define HOSTS	   2
#define TOOL_LIMIT 20 /* seconds for a command of simverbs */

/* How long a run may take beyond its script; a stuck rank is found by nccl-net-perf before that. */
#define STUCK_S	   "45"
#define GRACE_NS   (70 * NP_NS_PER_S)
#define TRAFFIC_NS (40 * NP_NS_PER_S)
#define FLOWING	   (1u << 20) /* bytes that must have arrived before the script begins */

volatile int drill_interrupted;

/* A drill while it runs. */
struct live {
	struct drill_run *run;
	struct np_fabric fabric;
	char work[64], json[80], log[80];
	pid_t pid; /* of the launcher; 0: ended */
	int fd;	   /* its output */
	char partial[4096];
	size_t partial_len;
	uint64_t deadline_ns;
};

/* ---- output -------------------------------------------------------------------------------- */

/* A warning without who logged it and where: that is for the whole output. */
static void show(const struct drill_run *run, const char *text)
{
	const char *warning = strstr(text, " NCCL WARN ");

	if (run->verbose > 1)
		printf("  | %s\n", text);
	else if (run->verbose && warning)
		printf("  |           %s\n", warning + strlen(" NCCL WARN "));
	fflush(stdout);
}

static void add_line(struct live *l, const char *text)
{
	struct drill_run *run = l->run;
	struct drill_line *lines =
	    realloc(run->lines, (size_t)(run->nlines + 1) * sizeof(struct drill_line));

	if (!lines)
		return;
	run->lines = lines;
	lines[run->nlines] = (struct drill_line){.at_ns = np_now_ns(), .text = strdup(text)};
	show(run, text);
	run->nlines += lines[run->nlines].text != NULL;
}

static void note(struct live *l, const char *text)
{
	char line[200];

	if (!l->run->verbose)
		return;
	snprintf(line, sizeof(line), "%7.3f s  %s",
		 l->run->zero_ns ? (double)(np_now_ns() - l->run->zero_ns) / 1e9 : 0.0, text);
	printf("  > %s\n", line);
	fflush(stdout);
}

/* Cuts what has been read into lines. */
static void take_output(struct live *l, const char *data, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (data[i] != '\n' && l->partial_len < sizeof(l->partial) - 1) {
			l->partial[l->partial_len++] = data[i];
			continue;
		}
		l->partial[l->partial_len] = '\0';
		add_line(l, l->partial);
		l->partial_len = 0;
	}
}

/* ---- nccl-net-perf ------------------------------------------------------------------------- */

static bool start_perf(struct live *l, double seconds)
{
	const struct drill *d = l->run->drill;
	const char *argv[48] = {"/bin/sh", "-c", "exec \"$@\" 2>&1", "sh"};
	char self[3000], perf[3100], duration[24];
	int fds[2], n = 4;

	if (!np_own_path(self, sizeof(self)) || pipe2(fds, O_CLOEXEC))
		return false;
	snprintf(perf, sizeof(perf), "%s/nccl-net-perf", dirname(self));
	snprintf(duration, sizeof(duration), "%.1f", seconds);
	argv[n++] = perf;
	for (const char *const *usual =
		 (const char *const[]){"--fabric", l->fabric.name, "--json", l->json, "--seconds",
				       duration, "--timeout", STUCK_S, "--stall-ms", "20",
				       "--timeline-ms", "20", NULL};
	     *usual; usual++)
		argv[n++] = *usual;
	for (int i = 0; d->args[i]; i++)
		argv[n++] = d->args[i];
	l->pid = np_spawn(argv, fds[1]);
	close(fds[1]);
	l->fd = fds[0];
	if (l->pid < 0)
		l->pid = 0;
	return l->pid != 0;
}

static void reap(struct live *l, bool wait)
{
	int status;

	if (!l->pid || waitpid(l->pid, &status, wait ? 0 : WNOHANG) != l->pid)
		return;
	l->pid = 0;
	l->run->ended_ns = np_now_ns();
	if (WIFEXITED(status) && l->run->status != -1000)
		l->run->status = WEXITSTATUS(status);
	else if (l->run->status != -1000)
		l->run->status = -WTERMSIG(status);
}

/*
 * Listens until a moment, or until the run has ended and everything it printed is read. True as
 * long as it lives.
 */
static bool listen_until(struct live *l, uint64_t until_ns)
{
	for (;;) {
		uint64_t now = np_now_ns();
		struct pollfd p = {.fd = l->fd, .events = POLLIN};
		char data[4096];
		ssize_t n = 0;

		if (drill_interrupted || now >= l->deadline_ns)
			return false;
		if (now >= until_ns && l->pid)
			return true;
		/* Even where the moment has passed: what an ended run has printed is read. */
		if (poll(&p, 1,
			 now >= until_ns ? 0
					 : (int)((until_ns - now) / NP_NS_PER_MS > 20
						     ? 20
						     : (until_ns - now) / NP_NS_PER_MS + 1)) > 0)
			n = read(l->fd, data, sizeof(data));
		if (n > 0)
			take_output(l, data, (size_t)n);
		else
			reap(l, false);
		if (!l->pid && n <= 0)
			return false;
	}
}

static void end_perf(struct live *l)
{
	if (!l->pid)
		return;
	l->run->status = -1000;
	kill(l->pid, SIGTERM); /* it ends its ranks */
	for (int i = 0; i < 50 && l->pid; i++) {
		usleep(100000);
		reap(l, false);
	}
	if (!l->pid)
		return;
	kill(l->pid, SIGKILL); /* the ranks die with it */
	reap(l, true);
}

/* ---- what the fabric knows ------------------------------------------------------------------ */

static uint64_t member(const json_t *object, const char *name)
{
	return (uint64_t)json_integer_value(json_object_get(object, name));
}

static json_t *status_of(struct live *l)
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

static uint64_t received_bytes(const json_t *status, int rail)
{
	const json_t *device;
	uint64_t bytes = 0;
	size_t i;

	json_array_foreach(json_object_get(status, "devices"), i,
			   device) if (rail < 0 || member(device, "rail") == (uint64_t)rail)
	    bytes += member(json_object_get(device, "counters"), "rx_bytes");
	return bytes;
}

static bool wait_for_traffic(struct live *l)
{
	uint64_t until = np_now_ns() + TRAFFIC_NS;

	while (np_now_ns() < until) {
		json_t *status = status_of(l);
		uint64_t bytes = received_bytes(status, -1);

		json_decref(status);
		if (!status)
			return false;
		if (bytes >= FLOWING) {
			l->run->zero_ns = np_now_ns();
			return true;
		}
		if (!listen_until(l, np_now_ns() + 20 * NP_NS_PER_MS))
			break;
	}
	drill_complain(l->run, "no traffic before the first fault");
	return false;
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

/* Every process that uses the fabric from a host. */
static void signal_host(struct live *l, const struct drill_step *step)
{
	int signal = step->action == DRILL_KILL_PROCESS	  ? SIGKILL
		     : step->action == DRILL_STOP_PROCESS ? SIGSTOP
							  : SIGCONT;
	json_t *status = status_of(l);
	const json_t *process;
	int signalled = 0;
	size_t i;

	json_array_foreach(json_object_get(status, "processes"), i, process)
	{
		pid_t pid = (pid_t)member(process, "pid");

		if ((int)member(process, "host") != step->host || pid <= 1 ||
		    !json_is_true(json_object_get(process, "alive")))
			continue;
		signalled += kill(pid, signal) == 0; /* once per device: no harm in that */
	}
	if (!signalled)
		drill_complain(l->run, "'%s' found no process", step->text);
	json_decref(status);
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
static void note_losses(struct live *l, int done, const json_t *status)
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

static bool do_step(struct live *l, int index)
{
	struct drill_step *step = &l->run->script.steps[index];
	json_t *status = status_of(l);

	if (!status)
		return false;
	note_losses(l, index, status);
	step->lost_before = lost_packets(status);
	json_decref(status);
	note(l, step->text);
	step->done_ns = np_now_ns();
	if (step->action == DRILL_KILL_PROCESS || step->action == DRILL_STOP_PROCESS ||
	    step->action == DRILL_CONTINUE_PROCESS)
		signal_host(l, step);
	else
		run_tool(l, step);
	if (needs_look(step)) {
		status = status_of(l);
		if (status)
			check_state(l, step, status);
		json_decref(status);
	}
	return true;
}

/* The part of the tail in which it is measured which rail carries the traffic. */
static void watch_rails(struct live *l, uint64_t last_ns, uint64_t tail_ns)
{
	json_t *before, *after;

	if (!listen_until(l, last_ns + tail_ns / 2))
		return;
	before = status_of(l);
	if (listen_until(l, last_ns + tail_ns * 9 / 10)) {
		after = status_of(l);
		for (int rail = 0; before && after && rail < 16; rail++)
			l->run->rail_bytes[rail] =
			    received_bytes(after, rail) - received_bytes(before, rail);
		if (after)
			note_losses(l, l->run->script.nsteps, after);
		json_decref(after);
	}
	json_decref(before);
}

static int tail_ms(const struct drill *d)
{
	return d->tail_ms ? d->tail_ms : 1500;
}

static void follow_script(struct live *l)
{
	struct drill_script *s = &l->run->script;
	uint64_t at = l->run->zero_ns;

	for (int i = 0; i < s->nsteps; i++) {
		at = l->run->zero_ns + s->steps[i].at_us * 1000;
		if (!listen_until(l, at) || !do_step(l, i))
			break;
	}
	watch_rails(l, at, (uint64_t)tail_ms(l->run->drill) * (uint64_t)NP_NS_PER_MS);
	while (listen_until(l, UINT64_MAX))
		;
}

/* ---- all of it ------------------------------------------------------------------------------ */

static void read_events(struct live *l)
{
	FILE *f = fopen(l->log, "re");
	json_error_t problem;
	char *line = NULL;
	size_t cap = 0;

	while (f && getline(&line, &cap, f) > 0) {
		json_t *event = json_loads(line, 0, &problem);

		if (event)
			json_array_append_new(l->run->events, event);
		else
			drill_complain(l->run, "the event log has a line that is no JSON: %s",
				       line);
	}
	free(line);
	if (f)
		fclose(f);
}

static void set_environment(const struct drill *d, const char *log, bool on)
{
	char name[100];

	if (on) {
		setenv("NCCL_DEBUG", "WARN", 0); /* more is welcome */
		setenv("HA_NCCL_EVENT_LOG", log, 1);
	}
	for (int i = 0; d->env[i]; i++) {
		const char *equals = strchr(d->env[i], '=');

		snprintf(name, sizeof(name), "%.*s", (int)(equals - d->env[i]), d->env[i]);
		if (on)
			setenv(name, equals + 1, 1);
		else
			unsetenv(name);
	}
}

static void run_on_fabric(struct live *l)
{
	const struct drill *d = l->run->drill;
	const struct drill_script *s = &l->run->script;
	double last_s = s->nsteps ? (double)s->steps[s->nsteps - 1].at_us / 1e6 : 0;
	char err[300];

	l->deadline_ns = np_now_ns() + (uint64_t)(last_s * 1e9) + GRACE_NS;
	set_environment(d, l->log, true);
	if (!start_perf(l, last_s + tail_ms(d) / 1000.0 + 0.5)) {
		drill_complain(l->run, "cannot start nccl-net-perf: %s", strerror(errno));
		set_environment(d, l->log, false);
		return;
	}
	set_environment(d, l->log, false);
	if (wait_for_traffic(l))
		follow_script(l);
	end_perf(l);
	close(l->fd);
	l->run->fabric = np_fabric_status(&l->fabric, err, sizeof(err));
	if (l->run->fabric)
		note_losses(l, s->nsteps, l->run->fabric);
	l->run->report = json_load_file(l->json, 0, NULL);
	read_events(l);
}

void drill_run(struct drill_run *run)
{
	struct live l = {.run = run};
	const char *tmp = getenv("TMPDIR");
	struct np_fabric_options wanted = {.prefix = "drill", .hosts = HOSTS};
	char err[300];

	wanted.rails = run->drill->rails ? run->drill->rails : 2;
	run->events = json_array();
	snprintf(l.work, sizeof(l.work), "%.40s/ha-drill.XXXXXX", tmp ? tmp : "/tmp");
	if (!drill_script_parse(&run->script, run->drill->script, err, sizeof(err))) {
		drill_complain(run, "%s", err);
	} else if (!mkdtemp(l.work)) {
		drill_complain(run, "cannot make %s: %s", l.work, strerror(errno));
	} else {
		snprintf(l.json, sizeof(l.json), "%s/report.json", l.work);
		snprintf(l.log, sizeof(l.log), "%s/events", l.work);
		if (np_fabric_open(&l.fabric, &wanted, err, sizeof(err)))
			run_on_fabric(&l);
		else
			drill_complain(run, "no fabric: %s", err);
		np_fabric_close(&l.fabric);
		(void)ha_stats_files_remove_stale(); /* of ranks that were killed */
		unlink(l.json);
		unlink(l.log);
		rmdir(l.work);
	}
	if (drill_interrupted)
		drill_complain(run, "interrupted");
	else if (!run->ncomplaints)
		drill_judge(run);
}
