/* SPDX-License-Identifier: Apache-2.0 */
/* Where this process is in its job, as the launcher's environment says. */
#ifndef HA_BASE_LAUNCHER_ENV_H
#define HA_BASE_LAUNCHER_ENV_H

/* The rank, -1 unknown. */
int ha_launcher_rank(void);

/* The scheduler's name of the job, "" unknown. */
const char *ha_launcher_job_id(void);

#endif
