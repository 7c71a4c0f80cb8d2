/* SPDX-License-Identifier: Apache-2.0 */
/* What another process of this user takes, and what is taken from all: from /proc and CPU clocks.
 */
#ifndef BENCH_USAGE_H
#define BENCH_USAGE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct bench_usage {
	uint64_t at_ns;	    /* when this was read */
	uint64_t cpu_ns;    /* user and system, of all threads */
	uint64_t plugin_ns; /* of these, the plugin's background thread */
	long fds;	    /* open descriptors */
	long memory_kib;    /* pages that are this process's alone */
};

/* False with errno: it has ended, or /proc cannot be read. */
bool bench_usage_read(pid_t pid, struct bench_usage *out);

/* Since the start, of all processors: the time for which a virtual machine wanted one and its host
 * had given it to another. 0 if nobody says. */
uint64_t bench_stolen_ns(void);

#endif
