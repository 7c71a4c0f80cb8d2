/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha-ctrld/key.h"

struct ha_job_key *nc_key_load(const char *path)
{
	struct ha_job_key *key = NULL;

	return ha_job_key_load_file("--key-file", path, &key) == HA_OK ? key : NULL;
}
