/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha/select.h"

#include "base/stats_file.h"
#include "nccl_ha/stats.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_DIR = 0x1000, KEY_DEAD };

static const struct argp_option options[] = {
    {NULL, 0, NULL, 0, "Which processes:", 10},
    {"job", 'J', "ID", 0, "Of this job: the scheduler's id, as SLURM_JOB_ID", 10},
    {"rank", 'r', "N", 0, "Of this rank", 10},
    {"pid", 'p', "PID", 0, "This process; may be repeated", 10},
    {"dead", KEY_DEAD, NULL, 0, "Also what processes that were killed left behind", 10},
    {"dir", KEY_DIR, "DIR", 0,
     "Look in DIR, not in /dev/shm; of a container: /proc/PID/root/dev/shm", 10},
    {0},
};

long nh_number(struct argp_state *state, const char *what, const char *text, long min, long max)
{
	char *end;
	long n;

	errno = 0;
	n = strtol(text, &end, 10);
	if (errno || end == text || *end || n < min || n > max)
		argp_error(state, "%s must be a number from %ld to %ld, not '%s'", what, min, max,
			   text);
	return n;
}

double nh_seconds(struct argp_state *state, const char *what, const char *text, double min,
		  double max)
{
	char *end;
	double s;

	errno = 0;
	s = strtod(text, &end);
	if (errno || end == text || *end || !isfinite(s) || s < min || s > max)
		argp_error(state, "%s must be %g to %g seconds, not '%s'", what, min, max, text);
	return s;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct nh_select *select = state->input;

	switch (key) {
	case 'J':
		select->job = arg;
		return 0;
	case 'r':
		select->rank = (int)nh_number(state, "--rank", arg, 0, INT32_MAX);
		return 0;
	case 'p':
		if (select->npids == NH_MAX_PIDS)
			argp_error(state, "more than %d times --pid", NH_MAX_PIDS);
		select->pids[select->npids++] =
		    (uint32_t)nh_number(state, "--pid", arg, 1, INT32_MAX);
		return 0;
	case KEY_DEAD:
		select->dead = true;
		return 0;
	case KEY_DIR:
		ha_stats_dir = arg;
		return 0;
	case ARGP_KEY_ARG: /* a command that takes any has taken it */
		argp_error(state, "'%s' is one argument too many", arg);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

const struct argp nh_select_argp = {options, parse, NULL, NULL, NULL, NULL, NULL};

bool nh_selected(const struct nh_select *select, const struct nccl_ha_job_stats *job)
{
	bool pid_fits = select->npids == 0;

	for (int i = 0; i < select->npids; i++)
		pid_fits |= select->pids[i] == job->pid;
	return pid_fits && (!select->job || !strcmp(select->job, job->job_id)) &&
	       (select->rank < 0 || select->rank == job->rank);
}

bool nh_select_is_narrow(const struct nh_select *select)
{
	return select->job || select->rank >= 0 || select->npids > 0;
}
