/* SPDX-License-Identifier: Apache-2.0 */
/* The site's key, of which every host, every switch and the controller have the same file. */
#ifndef NC_KEY_H
#define NC_KEY_H

#include "base/job_key.h"

/* NULL, after a line on stderr. The caller's: ha_job_key_free. */
struct ha_job_key *nc_key_load(const char *path);

#endif
