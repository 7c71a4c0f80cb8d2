/* SPDX-License-Identifier: Apache-2.0 */
/* Did the --fault rules fire? */
#include "tools/nccl-net-perf/faults.h"

#include <stdio.h>

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
	json_t *faults = NULL;
	bool all_fired = np_fabric_faults_fired(f, o->nfaults, &faults, err, sizeof(err));

	if (err[0])
		fprintf(stderr, "nccl-net-perf: %s\n", err);
	if (faults && o->json)
		add_to_report(o->json, faults);
	json_decref(faults);
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
