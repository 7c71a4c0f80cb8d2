/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How ranks find each other: a star of TCP sockets around a root, with all-gather as the one
 * operation. It carries handles and results, never the traffic that is measured.
 */
#ifndef NP_BOOTSTRAP_H
#define NP_BOOTSTRAP_H

#include "tools/common/address.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ha_job_key;
struct np_bootstrap; /* a rank's end; used by one thread */
struct np_root;	     /* the middle; a thread of its own */

/* Meets the root, retrying for timeout_s: it may come up later. One that has another key, or none,
 * is tried once. The key outlives the result. */
struct np_bootstrap *np_bootstrap_connect(const char *address, int rank, int nranks, uint64_t token,
					  const struct ha_job_key *key, double timeout_s, char *err,
					  size_t err_len);
void np_bootstrap_close(struct np_bootstrap *b);

/*
 * `all` gets `len` bytes of each rank, in rank order. False with a reason that names the rank at
 * fault where it is known.
 */
bool np_bootstrap_gather(struct np_bootstrap *b, const void *mine, void *all, size_t len, char *err,
			 size_t err_len);

/* After a gather that failed: because a rank had left, which all others are told alike. */
bool np_bootstrap_bereaved(const struct np_bootstrap *b);

#endif
