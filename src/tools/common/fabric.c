/* SPDX-License-Identifier: Apache-2.0 */
/* Bringing a simverbs fabric up and down, and asking it how it is. */
#include "tools/common/fabric.h"

#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/common/process.h"

#define TOOL_TIMEOUT_S 60
#define MAX_WORDS      24

/* The tool beside this program, else the one on PATH. */
static void find_tool(struct np_fabric *f)
{
	char self[3000];

	snprintf(f->tool, sizeof(f->tool), "simverbs");
	if (!np_own_path(self, sizeof(self)))
		return;
	snprintf(f->tool, sizeof(f->tool), "%s/simverbs", dirname(self));
	if (access(f->tool, X_OK) != 0)
		snprintf(f->tool, sizeof(f->tool), "simverbs");
}

/* `simverbs VERB NAME WORD…`; what it printed, or NULL. */
static char *tool(const struct np_fabric *f, const char *verb, const char *const *more, char *err,
		  size_t err_len)
{
	const char *argv[MAX_WORDS + 4] = {f->tool, verb, f->name};
	int n = 3;

	while (more && *more && n < MAX_WORDS + 3)
		argv[n++] = *more++;
	return np_run_tool(argv, TOOL_TIMEOUT_S, err, err_len);
}

json_t *np_fabric_status(const struct np_fabric *f, char *err, size_t err_len)
{
	const char *const json[] = {"--json", NULL};
	char *text = tool(f, "status", json, err, err_len);
	json_error_t problem;
	json_t *status;

	if (!text)
		return NULL;
	status = json_loads(text, 0, &problem);
	if (!status)
		snprintf(err, err_len, "'simverbs status %s --json' printed no JSON: %s", f->name,
			 problem.text);
	free(text);
	return status;
}

static bool count_hosts(struct np_fabric *f, char *err, size_t err_len)
{
	json_t *status = np_fabric_status(f, err, err_len), *hosts;

	if (!status)
		return false;
	hosts = json_object_get(status, "hosts");
	f->hosts =
	    json_is_array(hosts) ? (int)json_array_size(hosts) : (int)json_integer_value(hosts);
	json_decref(status);
	if (f->hosts < 1)
		snprintf(err, err_len, "fabric %s has no hosts", f->name);
	return f->hosts >= 1;
}

static bool bring_up(struct np_fabric *f, const struct np_fabric_options *o, char *err,
		     size_t err_len)
{
	char hosts[16], rails[16];
	const char *words[MAX_WORDS + 1] = {"--hosts", hosts, "--rails", rails};
	char *text;
	int n = 4;

	if (o->dmabuf)
		words[n++] = "--dmabuf";
	for (const char *const *word = o->up; word && *word && n < MAX_WORDS; word++)
		words[n++] = *word;

	snprintf(f->name, sizeof(f->name), "%s-%d", o->prefix, (int)getpid());
	snprintf(hosts, sizeof(hosts), "%d", o->hosts);
	snprintf(rails, sizeof(rails), "%d", o->rails);
	f->hosts = o->hosts;
	text = tool(f, "up", words, err, err_len);
	free(text);
	if (!text) {
		f->name[0] = '\0';
		return false;
	}
	f->ours = true;
	for (int i = 0; i < o->nfaults; i++) {
		const char *const rule[] = {o->faults[i], NULL};

		text = tool(f, "fault", rule, err, err_len);
		free(text);
		if (!text) {
			snprintf(err, err_len, "the fabric refused the fault rule '%s'",
				 o->faults[i]);
			np_fabric_close(f);
			return false;
		}
	}
	return true;
}

bool np_fabric_open(struct np_fabric *f, const struct np_fabric_options *o, char *err,
		    size_t err_len)
{
	memset(f, 0, sizeof(*f));
	find_tool(f);
	if (o->existing) {
		if (strlen(o->existing) >= sizeof(f->name)) {
			snprintf(err, err_len, "'%s' is too long for a fabric's name", o->existing);
			return false;
		}
		snprintf(f->name, sizeof(f->name), "%s", o->existing);
		return count_hosts(f, err, err_len);
	}
	return !o->hosts || bring_up(f, o, err, err_len);
}

void np_fabric_close(struct np_fabric *f)
{
	char err[200];
	char *text;

	if (!f->ours)
		return;
	f->ours = false;
	text = tool(f, "down", NULL, err, sizeof(err));
	if (!text)
		fprintf(stderr, "fabric %s may still be up: %s\n", f->name, err);
	free(text);
}

/* ---- faults ------------------------------------------------------------------------------- */

static bool print_rule(const json_t *rule, char *err, size_t err_len)
{
	const char *text = json_string_value(json_object_get(rule, "rule"));
	json_int_t matched = json_integer_value(json_object_get(rule, "matched"));
	json_int_t fired = json_integer_value(json_object_get(rule, "fired"));

	printf("# fault '%s': matched %lld, fired %lld\n", text ? text : "?", (long long)matched,
	       (long long)fired);
	if (fired == 0)
		snprintf(err, err_len,
			 "fault rule '%s' never fired: the run proves nothing about it",
			 text ? text : "?");
	return fired > 0;
}

bool np_fabric_faults_fired(const struct np_fabric *f, int expected, json_t **faults, char *err,
			    size_t err_len)
{
	json_t *status = np_fabric_status(f, err, err_len);
	json_t *list = json_object_get(status, "faults"), *rule;
	bool all_fired = json_array_size(list) >= (size_t)expected;
	size_t i;

	if (status && !all_fired)
		snprintf(err, err_len, "the fabric does not list all fault rules");
	json_array_foreach(list, i, rule) all_fired = print_rule(rule, err, err_len) && all_fired;
	if (faults)
		*faults = json_incref(list);
	json_decref(status);
	return all_fired;
}
