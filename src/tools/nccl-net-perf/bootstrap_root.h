/* SPDX-License-Identifier: Apache-2.0 */
/* The middle of how ranks find each other. */
#ifndef NP_BOOTSTRAP_ROOT_H
#define NP_BOOTSTRAP_ROOT_H

#include <stddef.h>
#include <stdint.h>

struct ha_job_key;
struct np_root;

/*
 * Serves `nranks` ranks that know the token and have the job's key (NULL: which have none).
 * `bind_to` is HOST:PORT, or NULL for an ephemeral port on loopback; `address` (NP_ADDRESS_LEN
 * bytes) gets what ranks connect to. It ends when all ranks have closed. The first who has the
 * token and not the key gets a line on stderr that names his host. NULL with a reason in err.
 */
struct np_root *np_root_start(const char *bind_to, int nranks, uint64_t token,
			      const struct ha_job_key *key, char *address, char *err,
			      size_t err_len);
/* Ends it at once and frees it. NULL is fine. */
void np_root_stop(struct np_root *root);

#endif
