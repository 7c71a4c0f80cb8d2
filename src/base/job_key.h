/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The job's key: 32 secret bytes that all processes of a job have and nobody else has.
 *
 * It comes from a file (HA_NCCL_JOB_KEY_FILE) or from a descriptor that the process inherited
 * (HA_NCCL_JOB_KEY_FD); never from the value of a variable, which anybody with the same user id
 * reads in /proc, and which every child gets. Its bytes are never logged, published or returned:
 * a code made with it is all that leaves this file.
 *
 * It lies in a page of its own that core files leave out, that is not swapped as far as `ulimit -l`
 * allows, and that is empty in a child made by fork. (Where the kernel cannot do that, before Linux
 * 4.14, the child has a copy.)
 */
#ifndef HA_BASE_JOB_KEY_H
#define HA_BASE_JOB_KEY_H

#include "base/config.h"
#include "base/hmac.h"
#include "base/result.h"

#include <stdbool.h>

#define HA_JOB_KEY_BYTES 32

struct ha_job_key;

/*
 * The key that config names: *key is NULL with HA_NCCL_AUTH=off, and where neither variable is set
 * and HA_NCCL_AUTH is not `required`. Any thread.
 *
 * Whatever is wrong is an error, after one WARN that names the file, what is wrong with it and what
 * to do: a missing file, a link, another owner than root or the effective user, permissions for
 * others, a length that is not HA_JOB_KEY_BYTES, both variables at once, or a value of one of the
 * three variables that cannot be used. A job that was given a key never goes on without it.
 *
 * A descriptor is read once and closed. In a process that asks again for the same number, *key is
 * the same key. One that holds no key is not read and stays open: it may be somebody else's.
 */
ha_result_t ha_job_key_load(const struct ha_config *config, struct ha_job_key **key) HA_MUST_CHECK;

/*
 * The key in a file, of which the same holds. what: the option that names it, for the WARN. Any
 * thread.
 */
ha_result_t ha_job_key_load_file(const char *what, const char *path,
				 struct ha_job_key **key) HA_MUST_CHECK;

/* Erases it, unless it came from a descriptor: that stays for the life of the process. NULL:
 * nothing. */
void ha_job_key_free(struct ha_job_key *key);

/*
 * Begins a code with this key, as ha_hmac_begin does. Any thread. False, and *mac is erased, in a
 * child of the process that loaded the key, made by fork.
 */
bool ha_job_key_begin(const struct ha_job_key *key, struct ha_hmac *mac) HA_MUST_CHECK;

#endif
