/* SPDX-License-Identifier: Apache-2.0 */
/* Job keys for tests: one for each number. Where one cannot be made the test aborts. */
#ifndef HA_TESTS_MADE_KEY_H
#define HA_TESTS_MADE_KEY_H

#include "base/job_key.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MADE_KEY_PATH 40

/* A file with it; the caller removes it. number: not 0. */
static inline void make_key_file(uint8_t number, char path[MADE_KEY_PATH])
{
	uint8_t key[HA_JOB_KEY_BYTES];
	int fd;

	snprintf(path, MADE_KEY_PATH, "/tmp/nccl-ha-key-XXXXXX");
	fd = mkstemp(path);
	for (size_t i = 0; i < sizeof(key); i++)
		key[i] = (uint8_t)(number * (i + 1));
	if (fd < 0 || write(fd, key, sizeof(key)) != sizeof(key))
		abort();
	close(fd);
}

/* The same, loaded: for ha_job_key_free. */
static inline struct ha_job_key *made_key(uint8_t number)
{
	struct ha_config named = {.auth = HA_AUTH_IF_KEY, .job_key_fd = -1};
	struct ha_job_key *key;

	make_key_file(number, named.job_key_file);
	if (ha_job_key_load(&named, &key) != HA_OK)
		abort();
	unlink(named.job_key_file);
	return key;
}

#endif
