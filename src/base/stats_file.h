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

/* NCCL_HA_STATS_DIR. Tests set another, so as not to meet the files of other processes; tools, to
 * look into a container. */
extern const char *ha_stats_dir;

struct ha_stats_file {
	char path[HA_STATS_PATH_MAX];
	int fd; /* holds the lock */
	void *mapped;
};

/* Makes, locks, sizes and maps this process's file, zeroed. Returns 0 or an errno value. */
int ha_stats_file_create(struct ha_stats_file *file, size_t size);
/* Takes its name away, and the operator's socket: what is left is the mapping. */
void ha_stats_file_unlink(const struct ha_stats_file *file);
/* Takes its name away, and the operator's socket, and gives the mapping back. */
void ha_stats_file_remove(struct ha_stats_file *file, size_t size);

/* Removes the files of this user that no living process holds, with the sockets next to them.
 * Returns how many. */
int ha_stats_files_remove_stale(void);

/* A statistics file that was found. */
struct ha_stats_found {
	char path[HA_STATS_PATH_MAX + 256];
	const char *name; /* in the path: "nccl-ha.UID.PID", perhaps with a suffix */
	int fd;		  /* open for reading; the visitor's only during the call */
	unsigned int uid;
	bool live; /* a process holds it */
};

#define HA_STATS_ALL_USERS ((unsigned int)-1)

/*
 * Calls visit for each statistics file of a user, or of all: those that can be opened. A file whose
 * name says another user than the one it belongs to is passed over. Returns 0, or the errno value
 * for a folder that cannot be read.
 */
int ha_stats_files_visit(unsigned int uid,
			 void (*visit)(void *arg, const struct ha_stats_found *found), void *arg);

#endif
