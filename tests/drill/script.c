/* SPDX-License-Identifier: Apache-2.0 */
/* Parsing scripts. */
#include "script.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- one line ------------------------------------------------------------------------------ */

static const struct verb {
	const char *name;
	const char *last; /* the word that tells actions of a verb apart; NULL: none needed */
	enum drill_action action;
	int host_at, rail_at; /* which words; 0: none */
} verbs[] = {
    {"link", "down", DRILL_LINK_DOWN, 1, 2},
    {"link", "up", DRILL_LINK_UP, 1, 2},
    {"cut", "--heal", DRILL_HEAL, 0, 1},
    {"cut", NULL, DRILL_CUT, 0, 1},
    {"device", "kill", DRILL_KILL_DEVICE, 1, 2},
    {"device", "revive", DRILL_REVIVE_DEVICE, 1, 2},
    {"process", "kill", DRILL_KILL_PROCESS, 1, 0},
    {"process", "stop", DRILL_STOP_PROCESS, 1, 0},
    {"process", "continue", DRILL_CONTINUE_PROCESS, 1, 0},
    {"operator", NULL, DRILL_OPERATOR, 1, 0},
    {"idle", NULL, DRILL_IDLE, 0, 1},
};

static void split(struct drill_step *step)
{
	char copy[sizeof(step->text)], *save = NULL;

	memcpy(copy, step->text, sizeof(copy));
	for (char *word = strtok_r(copy, " ", &save); word && step->nwords < DRILL_WORDS;
	     word = strtok_r(NULL, " ", &save))
		snprintf(step->words[step->nwords++], sizeof(step->words[0]), "%s", word);
}

/* The rule of `fault` is one word for the tool, spaces and all. */
static bool parse_rule(struct drill_step *step)
{
	if (strncmp(step->text, "fault ", 6) != 0)
		return false;
	step->action = DRILL_RULE;
	step->host = step->rail = -1;
	step->nwords = 2;
	snprintf(step->words[0], sizeof(step->words[0]), "fault");
	snprintf(step->words[1], sizeof(step->words[1]), "%.99s", step->text + 6);
	return true;
}

static bool parse_action(struct drill_step *step)
{
	if (parse_rule(step))
		return true;
	split(step);
	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
		const struct verb *v = &verbs[i];

		if (step->nwords < 2 || strcmp(step->words[0], v->name) != 0 ||
		    (v->last && strcmp(step->words[step->nwords - 1], v->last) != 0))
			continue;
		step->action = v->action;
		step->host = v->host_at ? atoi(step->words[v->host_at]) : -1;
		step->rail = v->rail_at ? atoi(step->words[v->rail_at]) : -1;
		return true;
	}
	return false;
}

static bool add_step(struct drill_script *s, const struct drill_step *step)
{
	struct drill_step *steps =
	    realloc(s->steps, (size_t)(s->nsteps + 1) * sizeof(struct drill_step));

	if (!steps)
		return false;
	s->steps = steps;
	s->steps[s->nsteps++] = *step;
	return true;
}

static bool parse_line(struct drill_script *s, const char *line)
{
	struct drill_step step = {0};
	double at_ms, every_ms = 0;
	unsigned times = 1;
	int used = 0;

	if (sscanf(line, "%lf+%lfx%u %n", &at_ms, &every_ms, &times, &used) != 3 || !used) {
		every_ms = 0;
		times = 1;
		if (sscanf(line, "%lf %n", &at_ms, &used) != 1)
			return false;
	}
	snprintf(step.text, sizeof(step.text), "%s", line + used);
	if (!parse_action(&step))
		return false;
	for (unsigned i = 0; i < times; i++) {
		step.at_us = (uint64_t)((at_ms + i * every_ms) * 1000);
		if (!add_step(s, &step))
			return false;
	}
	return true;
}

/* ---- all of it ----------------------------------------------------------------------------- */

/* Equal times stay in the order in which they were written: it is an insertion sort. */
static void sort_steps(struct drill_script *s)
{
	for (int i = 1; i < s->nsteps; i++) {
		struct drill_step step = s->steps[i];
		int j = i;

		for (; j > 0 && s->steps[j - 1].at_us > step.at_us; j--)
			s->steps[j] = s->steps[j - 1];
		s->steps[j] = step;
	}
}

bool drill_script_parse(struct drill_script *s, const char *text, char *err, size_t err_len)
{
	char *copy = strdup(text), *save = NULL;
	bool ok = copy != NULL;

	memset(s, 0, sizeof(*s));
	for (char *line = ok ? strtok_r(copy, "\n", &save) : NULL; line && ok;
	     line = strtok_r(NULL, "\n", &save)) {
		ok = parse_line(s, line);
		if (!ok)
			snprintf(err, err_len, "this line of the script makes no sense: '%s'",
				 line);
	}
	free(copy);
	if (ok)
		sort_steps(s);
	else
		drill_script_free(s);
	return ok;
}

void drill_script_free(struct drill_script *s)
{
	free(s->steps);
	s->steps = NULL;
	s->nsteps = 0;
}

bool drill_step_breaks(const struct drill_step *step)
{
	switch (step->action) {
	case DRILL_LINK_UP:
	case DRILL_HEAL:
	case DRILL_REVIVE_DEVICE:
	case DRILL_CONTINUE_PROCESS:
	case DRILL_OPERATOR:
	case DRILL_IDLE:
		return false;
	default:
		return true;
	}
}

bool drill_step_loses(const struct drill_step *step)
{
	return step->action == DRILL_LINK_DOWN || step->action == DRILL_CUT ||
	       step->action == DRILL_KILL_DEVICE;
}
