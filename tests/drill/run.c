/* SPDX-License-Identifier: Apache-2.0 */
/* Running a drill: the fabric, nccl-net-perf, the faults, and what the witnesses have to say. */
#include "live.h"

#include "base/stats_file.h"
#include "tools/common/clock.h"
#include "tools/common/fabric.h"
#include "tools/common/process.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define HOSTS 2

/*
 * Links take as long for a message as a link does: one is always under way, whenever a fault falls,
 * and the processors are left to others for the most part. As fast as memory they would be idle
 * between, and two processors busy.
 */
static const char *const usual_links[] = {"--rate", "0.2", "--pace", NULL};

/* How long a run may take beyond its script; a stuck rank is found by nccl-net-perf before that. */
#define STUCK_S	   "45"
#define NAP_US	   "500" /* of a rank in which nothing moved: less than a message takes on a link */
#define GRACE_NS   (70 * NP_NS_PER_S)
#define TRAFFIC_NS (40 * NP_NS_PER_S)
#define LATE_S	   30 /* steps may come late by that, where everything takes long */
#define SAMPLE_NS  (100 * NP_NS_PER_MS)
#define FLOWING	   (1u << 20) /* bytes that must have arrived before the script begins */

volatile sig_atomic_t drill_interrupted;

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

void drill_note(const struct live *l, const char *text)
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
				       "--timeline-ms", "20", "--nap", NAP_US, NULL};
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

/* One sample each tenth of a second, once traffic flows. */
static void sample_rails(struct live *l)
{
	struct drill_run *run = l->run;
	struct drill_sample *grown;
	json_t *status;

	if (!run->drill->samples_rails || !run->zero_ns || np_now_ns() < l->sample_ns)
		return;
	status = drill_status(l);
	grown = realloc(run->samples, (size_t)(run->nsamples + 1) * sizeof(*grown));
	if (grown)
		run->samples = grown;
	if (status && grown) {
		grown += run->nsamples++;
		grown->at_ns = np_now_ns();
		for (int rail = 0; rail < DRILL_MAX_RAILS; rail++)
			grown->bytes[rail] = drill_received_bytes(status, rail);
	}
	json_decref(status);
	l->sample_ns = np_now_ns() + SAMPLE_NS;
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
		sample_rails(l);
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

/* ---- following the script -------------------------------------------------------------------- */

static bool wait_for_traffic(struct live *l)
{
	uint64_t until = np_now_ns() + TRAFFIC_NS;

	while (np_now_ns() < until) {
		json_t *status = drill_status(l);
		uint64_t bytes = drill_received_bytes(status, -1);

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

/* The part of the tail in which it is measured which rail carries the traffic. */
static void watch_rails(struct live *l, uint64_t last_ns, uint64_t tail_ns)
{
	json_t *before, *after;

	if (!listen_until(l, last_ns + tail_ns / 2))
		return;
	before = drill_status(l);
	if (listen_until(l, last_ns + tail_ns * 9 / 10)) {
		after = drill_status(l);
		for (int rail = 0; before && after && rail < DRILL_MAX_RAILS; rail++)
			l->run->rail_bytes[rail] =
			    drill_received_bytes(after, rail) - drill_received_bytes(before, rail);
		if (after)
			drill_note_losses(l, l->run->script.nsteps, after);
		json_decref(after);
	}
	json_decref(before);
}

static int tail_ms(const struct drill *d)
{
	return d->tail_ms ? d->tail_ms : 1500;
}

#define IDLE_BYTES	  (32u << 10) /* that heartbeats have in a second, many times over */
#define IDLE_WATCH_MAX_NS (5 * NP_NS_PER_S)

/* A rail that somebody wants left alone, while others carry traffic. */
static bool watch_idle(struct live *l, const struct drill_step *step)
{
	json_t *before = drill_status(l), *after = NULL;
	uint64_t bytes = 0, all = 0;
	uint64_t begun_ns = np_now_ns(),
		 wait_ns = strtoull(step->words[2], NULL, 10) * NP_NS_PER_MS;
	bool lives;

	/* Longer where a rank got no processor: an idle rail is to be seen beside busy ones. */
	while ((lives = listen_until(l, np_now_ns() + wait_ns)) && before) {
		json_decref(after);
		after = drill_status(l);
		if (!after)
			break;
		bytes = drill_received_bytes(after, step->rail) -
			drill_received_bytes(before, step->rail);
		all = drill_received_bytes(after, -1) - drill_received_bytes(before, -1);
		if (all >= FLOWING || np_now_ns() - begun_ns > IDLE_WATCH_MAX_NS)
			break;
	}
	if (after && (bytes > IDLE_BYTES || all < FLOWING))
		drill_complain(l->run, "'%s': it carried %llu bytes, and all together %llu",
			       step->text, (unsigned long long)bytes, (unsigned long long)all);
	json_decref(before);
	json_decref(after);
	return lives;
}

/* However late the script was. */
static void tell_perf_to_end(struct live *l)
{
	if (l->pid)
		kill(l->pid, SIGUSR1);
}

static void follow_script(struct live *l)
{
	const uint64_t tail_ns = (uint64_t)tail_ms(l->run->drill) * (uint64_t)NP_NS_PER_MS;
	struct drill_script *s = &l->run->script;
	uint64_t at = l->run->zero_ns;

	for (int i = 0; i < s->nsteps; i++) {
		at = l->run->zero_ns + s->steps[i].at_us * 1000;
		if (!listen_until(l, at) || !drill_do_step(l, i))
			break;
		if (s->steps[i].action == DRILL_IDLE && !watch_idle(l, &s->steps[i]))
			break;
	}
	at = np_now_ns();
	watch_rails(l, at, tail_ns);
	if (listen_until(l, at + tail_ns))
		tell_perf_to_end(l);
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
	if (!start_perf(l, last_s + tail_ms(d) / 1000.0 + LATE_S)) {
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
		drill_note_losses(l, s->nsteps, l->run->fabric);
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
	wanted.up = run->drill->fabric[0] ? run->drill->fabric : usual_links;
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
