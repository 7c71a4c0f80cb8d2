/* SPDX-License-Identifier: Apache-2.0 */
/* Did the --fault rules fire? */
#include "tools/nccl-net-perf/faults.h"

#include <stdio.h>

static bool print_rule(const json_t *rule)
{
	const char *text = json_string_value(json_object_get(rule, "rule"));
	json_int_t matched = json_integer_value(json_object_get(rule, "matched"));
	json_int_t fired = json_integer_value(json_object_get(rule, "fired"));

	printf("# fault '%s': matched %lld, fired %lld\n", text ? text : "?", (long long)matched,
	       (long long)fired);
	if (fired == 0)
		fprintf(stderr,
			"nccl-net-perf: fault rule '%s' never fired: the run proves nothing about "
			"it\n",
			text ? text : "?");
	return fired > 0;
}

/* Adds the rules' counts to the report that rank 0 has written. */
static void add_to_report(const char *path, json_t *faults)
{
	json_t *report = json_load_file(path, 0, NULL);

	if (!report || json_object_set(report, "faults", faults) != 0 ||
	    json_dump_file(report, path, JSON_INDENT(1)) != 0)
		fprintf(stderr, "nccl-net-perf: cannot add the faults to %s\n", path);
	json_decref(report);
}

bool np_report_faults(const struct np_fabric *f, const struct np_options *o)
{
	char err[300] = "";
	json_t *status = np_fabric_status(f, err, sizeof(err)), *faults, *rule;
	bool all_fired = true;
	size_t i;

	faults = json_object_get(status, "faults");
	if (json_array_size(faults) < (size_t)o->nfaults) {
		fprintf(stderr, "nccl-net-perf: cannot read how often the fault rules fired: %s\n",
			status ? "the fabric does not list them all" : err);
		json_decref(status);
		return false;
	}
	json_array_foreach(faults, i, rule) all_fired = print_rule(rule) && all_fired;
	if (o->json)
		add_to_report(o->json, faults);
	json_decref(status);
	return all_fired;
}

struct np_fabric_options np_fabric_options_of(const struct np_options *o)
{
	return (struct np_fabric_options){.prefix = "perf",
					  .existing = o->fabric,
					  .hosts = o->hosts,
					  .rails = o->rails,
					  .faults = o->faults,
					  .nfaults = o->nfaults};
}
