/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-net-perf/key.h"

#include "base/config.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WRITER_MS 10000 /* for who writes the key into a pipe */

/* The others are the plugin's to judge, which says what is wrong with them. */
static char *only_of_the_key(const char *name)
{
	static const char *const ours[] = {"HA_NCCL_AUTH", "HA_NCCL_JOB_KEY_FILE",
					   "HA_NCCL_JOB_KEY_FD"};

	for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
		if (!strcmp(name, ours[i]))
			return getenv(name);
	return NULL;
}

/* Another descriptor from which the same bytes can be read, whatever is read from this one. -1:
 * there is none; why will be seen when it is read. */
static int double_of(int fd)
{
	struct pollfd ready = {.fd = fd, .events = POLLIN};
	struct stat st;
	int pipe_fds[2];

	if (fstat(fd, &st) != 0)
		return -1;
	if (!S_ISFIFO(st.st_mode))
		return fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (pipe2(pipe_fds, O_CLOEXEC) != 0)
		return -1;
	(void)poll(&ready, 1, WRITER_MS);
	(void)tee(fd, pipe_fds[1], 2 * HA_JOB_KEY_BYTES, SPLICE_F_NONBLOCK);
	close(pipe_fds[1]);
	return pipe_fds[0];
}

bool np_key_load(struct ha_job_key **key)
{
	struct ha_config config;
	int kept = -1;
	bool loaded;

	ha_config_load(&config, only_of_the_key);
	if (config.auth != HA_AUTH_OFF && config.job_key_fd >= 0)
		kept = double_of(config.job_key_fd);
	loaded = ha_job_key_load(&config, key) == HA_OK;
	if (kept >= 0) {
		loaded = dup2(kept, config.job_key_fd) >= 0 && loaded;
		close(kept);
	}
	return loaded;
}
