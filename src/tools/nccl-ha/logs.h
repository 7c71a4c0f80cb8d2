/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Following log files: lines as they come, while files grow, are cut, are replaced and appear. A
 * line counts when its end is there.
 */
#ifndef NH_LOGS_H
#define NH_LOGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A longer line is passed over. */
#define NH_LINE_MAX 65536

struct nh_logs;

struct nh_logs *nh_logs_new(void); /* NULL: no memory */
void nh_logs_free(struct nh_logs *logs);

/*
 * A file or a pattern of the shell's (*, ?, []); "-" is standard input. Files that match later
 * count from their beginning. The same one twice is one. False: no memory.
 */
bool nh_logs_add(struct nh_logs *logs, const char *pattern);

/*
 * The file that a process of `owner` says it writes: opened as that user (tools/nccl-ha/foreign.h),
 * and never taken for a pattern. The same one twice is one. False: no memory.
 */
bool nh_logs_add_named(struct nh_logs *logs, const char *path, unsigned int owner);

struct nh_logs_reader {
	void (*line)(void *arg, const char *path, char *line);
	/* Something is wrong with a file; told once. */
	void (*problem)(void *arg, const char *path, const char *what);
	void *arg;
};

/* Reads what there is, and looks for files that have come. */
void nh_logs_read(struct nh_logs *logs, const struct nh_logs_reader *reader);

/* How many files were ever opened. */
size_t nh_logs_opened(const struct nh_logs *logs);

#endif
