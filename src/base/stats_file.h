/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files behind the statistics: names, ownership by lock, and clearing away what dead processes
 * left. What is in them is stats.c's and stats_reader.c's business.
 *
 * Ownership is a lock, not a PID: a PID says nothing across containers that share /dev/shm, and is
 * reused. The kernel drops the lock when the process dies, however it dies.
 */
#ifndef HA_BASE_STATS_FILE_H
#define HA_BASE_STATS_FILE_H

#include <stdbool.h>
#include <stddef.h>

#define HA_STATS_PATH_MAX 64

/* NCCL_HA_STATS_DIR. Tests set another, so as not to meet the files of other processes. */
extern const char *ha_stats_dir;

struct ha_stats_file {
	char path[HA_STATS_PATH_MAX];
	int fd; /* holds the lock */
	void *mapped;
};

/* Makes, locks, sizes and maps this process's file, zeroed. Returns 0 or an errno value. */
int ha_stats_file_create(struct ha_stats_file *file, size_t size);
void ha_stats_file_remove(struct ha_stats_file *file, size_t size);

/* Removes the files of this user that no living process holds. Returns how many. */
int ha_stats_files_remove_stale(void);

/* Calls visit for each statistics file of this user; `live`: a process holds it. */
void ha_stats_files_visit(void (*visit)(void *arg, const char *path, bool live), void *arg);

#endif
