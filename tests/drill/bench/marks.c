/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The report of the marks: percentiles of what a failover of each kind takes, and whether that is
 * what it may take, with what they were measured on. It says all of them or is not written.
 */
#include "bench.h"

#include "base/version.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

static const char *const marks[] = {"port_down_ms", "silent_cut_ms", "qp_error_ms", "peer_death_ms",
				    "all_512_ms"};

#define NMARKS (sizeof(marks) / sizeof(marks[0]))

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static bool is_of(const struct bench_result *r, const char *mark)
{
	return r->scenario->mark && !strcmp(r->scenario->mark, mark);
}

static json_t *percentiles(const double *sorted, size_t n, int events)
{
	return json_pack("{s:f, s:f, s:f, s:f, s:I, s:i}", "p50", bench_quantile(sorted, n, 0.5),
			 "p95", bench_quantile(sorted, n, 0.95), "p99",
			 bench_quantile(sorted, n, 0.99), "max", bench_quantile(sorted, n, 1), "n",
			 (json_int_t)n, "events", events);
}

/* Whether each goal of the mark is met. Said on a line of the output, too. */
static bool judge(json_t *figures, const char *mark, const struct bench_scenario *s,
		  const double *sorted, size_t n, double slack)
{
	json_t *goals = json_array();
	bool all = true;

	printf("%-20s", mark);
	for (int i = 0; i < BENCH_MAX_GOALS && s->goals[i].of; i++) {
		const struct bench_goal *goal = &s->goals[i];
		double is = bench_goal_is_ms(goal, sorted, n);
		double limit = bench_limit_ms(s, goal, slack);
		bool met = is <= limit;

		printf("%s %s %.2f, at most %g: %s", i ? ";" : "", goal->of, is, limit,
		       met ? "met" : "missed");
		json_array_append_new(goals, json_pack("{s:s, s:f, s:f, s:b}", "of", goal->of, "is",
						       is, "limit", limit, "met", (int)met));
		all = all && met;
	}
	printf("\n");
	json_object_set_new(figures, "goals", goals);
	json_object_set_new(figures, "met", json_boolean(all));
	return all;
}

/* NULL after a message. *met stays as it is where the goals are met. */
static json_t *figures_of(const char *mark, const struct bench_result *results, int n, double slack,
			  bool *met)
{
	const struct bench_scenario *s = NULL;
	double *all = NULL;
	size_t samples = 0;
	int events = 0, same_port = 0;
	json_t *figures;

	for (int i = 0; i < n; i++) {
		const struct bench_result *r = &results[i];
		double *grown;

		if (!is_of(r, mark))
			continue;
		if (r->refused || !r->n) {
			fprintf(stderr, "ha-failover-bench: no %s: %s\n", mark, r->why);
			free(all);
			return NULL;
		}
		grown = realloc(all, (samples + r->n) * sizeof(*all));
		if (!grown) {
			free(all);
			return NULL;
		}
		all = grown;
		s = r->scenario;
		memcpy(all + samples, r->samples_ms, r->n * sizeof(*all));
		samples += r->n;
		events += r->repetitions;
		same_port += r->same_port;
	}
	if (!samples) {
		fprintf(stderr, "ha-failover-bench: no %s: its scenario did not run\n", mark);
		return NULL;
	}
	qsort(all, samples, sizeof(*all), compare);
	figures = percentiles(all, samples, events);
	json_object_set_new(figures, "same_port", json_integer(same_port));
	*met = judge(figures, mark, s, all, samples, slack) && *met;
	free(all);
	return figures;
}

/* "model name" of the first processor. */
static void read_processor(char *model, size_t size)
{
	FILE *f = fopen("/proc/cpuinfo", "re");
	char line[300];

	snprintf(model, size, "unknown");
	while (f && fgets(line, sizeof(line), f)) {
		char *value = strchr(line, ':');

		if (strncmp(line, "model name", 10) != 0 || !value)
			continue;
		line[strcspn(line, "\n")] = 0;
		snprintf(model, size, "%s", value + 2);
		break;
	}
	if (f)
		fclose(f);
}

static json_t *machine(double load)
{
	struct utsname system;
	char model[200];

	read_processor(model, sizeof(model));
	uname(&system);
	return json_pack("{s:i, s:s, s:s, s:f}", "processors", (int)sysconf(_SC_NPROCESSORS_ONLN),
			 "model", model, "kernel", system.release, "load", load);
}

/* Of "0.1.0+g0123456789ab.dirty" what begins with the g, without it. */
static const char *commit(void)
{
	const char *details = strrchr(ha_version, 'g');

	return details && strchr(ha_version, '+') ? details + 1 : "unknown";
}

bool bench_write_marks(const char *path, const struct bench_result *results, int n,
		       const struct bench_settings *settings)
{
	const char *profile =
	    getenv("SIMVERBS_PROFILE"); /* which `simverbs up` has refused or taken */
	json_t *root = json_pack("{s:s, s:s, s:s, s:b, s:f, s:o}", "version", ha_version, "commit",
				 commit(), "profile", profile && *profile ? profile : "exact",
				 "quick", (int)settings->quick, "slack", settings->slack, "machine",
				 machine(settings->load));
	bool ok = root != NULL, met = true;

	for (size_t m = 0; ok && m < NMARKS; m++) {
		json_t *figures = figures_of(marks[m], results, n, settings->slack, &met);

		ok = figures && json_object_set_new(root, marks[m], figures) == 0;
	}
	if (ok) {
		errno = 0;
		ok = json_dump_file(root, path, JSON_INDENT(1) | JSON_REAL_PRECISION(6)) == 0;
		if (!ok)
			fprintf(stderr, "ha-failover-bench: cannot write %s: %s\n", path,
				strerror(errno));
	}
	json_decref(root);
	return ok && met;
}
