/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fork_guard.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <unistd.h>

/* As many descriptors as a process may have by default limits of the kernel; pages that are not
 * touched cost nothing. */
#define FDS_MAX	 (1 << 20)
#define PER_WORD 64

/* A bit each. Atomic, so that no lock can be held by another thread in the moment of a fork. */
static _Atomic uint64_t noted[FDS_MAX / PER_WORD];
static atomic_int highest = -1;
atomic_bool ha_fork_child;

/* In the child's only thread: no lock, no memory from the heap. */
static void leave_all(void)
{
	int words = atomic_load(&highest) / PER_WORD + 1;

	for (int w = 0; w < words; w++) {
		uint64_t bits = atomic_exchange(&noted[w], 0);

		if (bits != 0)
			atomic_store(&ha_fork_child, true);
		for (; bits != 0; bits &= bits - 1)
			close(w * PER_WORD + __builtin_ctzll(bits));
	}
}

static void install(void)
{
	(void)pthread_atfork(NULL, NULL, leave_all);
}

static bool is_notable(int fd)
{
	return fd > STDERR_FILENO && fd < FDS_MAX;
}

static uint64_t bit_of(int fd)
{
	return 1ull << fd % PER_WORD;
}

int ha_fork_closes(int fd)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	int before = atomic_load(&highest);

	if (!is_notable(fd))
		return fd;
	pthread_once(&once, install);
	while (before < fd && !atomic_compare_exchange_weak(&highest, &before, fd))
		;
	atomic_fetch_or(&noted[fd / PER_WORD], bit_of(fd));
	return fd;
}

static bool forget(int fd)
{
	return is_notable(fd) && atomic_fetch_and(&noted[fd / PER_WORD], ~bit_of(fd)) & bit_of(fd);
}

void ha_fork_forgets(int fd)
{
	(void)forget(fd);
}

/* Forgotten before it is closed: its number may be somebody else's at once. */
void ha_fork_close(int fd)
{
	if (forget(fd) || (fd >= 0 && !is_notable(fd) && !ha_fork_is_child()))
		close(fd);
}
