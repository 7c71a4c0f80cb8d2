/* SPDX-License-Identifier: Apache-2.0 */
/* Where a plugin's log goes. */
#ifndef NP_LOGGER_H
#define NP_LOGGER_H

#include "nccl_ha/nccl_net.h"

/*
 * The logger that plugins are given. Prints to stderr what NCCL_DEBUG (VERSION, WARN, INFO, ABORT,
 * TRACE; nothing when unset) and NCCL_DEBUG_SUBSYS (INIT,NET,ENV,ALL, ^ excludes) ask for, in
 * NCCL's form; both are read at the first line.
 */
void np_logger(ncclDebugLogLevel level, unsigned long flags, const char *file, int line,
	       const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/*
 * Also hands every line, whatever its level, to `sink` (NULL: no more). The text has no newline.
 * Any thread; lines of plugin threads come on those threads, one at a time.
 */
void np_logger_set_sink(void (*sink)(void *arg, ncclDebugLogLevel level, unsigned long flags,
				     const char *text),
			void *arg);

/* Put in front of every printed line, e.g. "rank 1"; at most 31 characters. Before np_init. */
void np_logger_set_prefix(const char *prefix);

#endif
