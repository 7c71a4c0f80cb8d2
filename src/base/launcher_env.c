/* SPDX-License-Identifier: Apache-2.0 */
/* Rank and job, from the variables that launchers and schedulers set. */
#include "base/launcher_env.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

static const char *first_set(const char *const *names)
{
	for (; *names; names++) {
		const char *value = getenv(*names);

		if (value && *value)
			return value;
	}
	return NULL;
}

int ha_launcher_rank(void)
{
	static const char *const names[] = {"RANK",	"OMPI_COMM_WORLD_RANK", "PMIX_RANK",
					    "PMI_RANK", "SLURM_PROCID",		NULL};
	const char *text = first_set(names);
	char *end;
	long rank;

	if (!text)
		return -1;
	rank = strtol(text, &end, 10);
	return *end || rank < 0 || rank > INT32_MAX ? -1 : (int)rank;
}

const char *ha_launcher_job_id(void)
{
	static const char *const names[] = {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID",
					    "TORCHELASTIC_RUN_ID", NULL};
	const char *id = first_set(names);

	return id ? id : "";
}
