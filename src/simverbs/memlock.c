/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The limit on locked memory, as the kernel counts it: each region's pages, those of several
 * regions several times, for the process as a whole. Who may lock memory (CAP_IPC_LOCK) has none.
 */
#include "core.h"

#include <linux/capability.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_size_t locked; /* bytes, of all devices of the process */

static bool may_lock(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {{0}};

	return syscall(SYS_capget, &header, data) == 0 && data[0].effective & 1u << CAP_IPC_LOCK;
}

bool sv_mr_lock(struct sv_mr *mr)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)mr->base & ~(page - 1);
	size_t bytes = mr->length == 0
			   ? 0
			   : (((uintptr_t)mr->base + mr->length + page - 1) & ~(page - 1)) - first;
	size_t before = atomic_fetch_add(&locked, bytes);
	struct rlimit limit;

	if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && before + bytes > limit.rlim_cur &&
	    !may_lock()) {
		atomic_fetch_sub(&locked, bytes);
		return false;
	}
	mr->locked = bytes;
	return true;
}

void sv_mr_unlock(struct sv_mr *mr)
{
	atomic_fetch_sub(&locked, mr->locked);
	mr->locked = 0;
}
