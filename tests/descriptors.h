/* SPDX-License-Identifier: Apache-2.0 */
/* How many descriptors this process has: for tests that leave none behind. */
#ifndef HA_TESTS_DESCRIPTORS_H
#define HA_TESTS_DESCRIPTORS_H

#include <fcntl.h>

/* Of those below a limit, since each is asked for. */
static inline int open_descriptors_below(int limit)
{
	int n = 0;

	for (int fd = 0; fd < limit; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static inline int open_descriptors(void)
{
	return open_descriptors_below(1024);
}

#endif
