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

/* The operator's socket has a longer name, and that must fit into a socket's address. */
#define HA_STATS_PATH_MAX 96

/* NCCL_HA_STATS_DIR. Tests set another, so as not to meet the files of other processes; tools, to
 * look into a container. */
extern const char *ha_stats_dir;

struct ha_stats_file {
	char path[HA_STATS_PATH_MAX];
	int fd; /* holds the lock */
	size_t size;
};

/*
 * Makes, locks and sizes this process's file, zeroed, in the user's folder, which is made if need
 * be: in ha_stats_dir, or where that cannot be in $XDG_RUNTIME_DIR. Returns 0 or an errno value,
 * EFBIG for a size that this process's limit (ulimit -f) does not allow. What somebody else has put
 * in the way is a WARN.
 */
int ha_stats_file_create(struct ha_stats_file *file, size_t size);
/*
 * Whether the process's limit still allows it; asked shortly before writes, since it may have come
 * down, and beyond it they are answered with a signal, also where nothing grows. Any thread.
 */
bool ha_stats_file_may_write(const struct ha_stats_file *file);
/* False: not possible now. Whatever others do to the file, nothing worse happens. Any thread. */
bool ha_stats_file_write(const struct ha_stats_file *file, size_t offset, const void *from,
			 size_t size);
bool ha_stats_file_read(const struct ha_stats_file *file, size_t offset, void *to, size_t size);
/* Takes its name away, and the operator's socket, and the folder if it was the last one there. */
void ha_stats_file_unlink(const struct ha_stats_file *file);
/* The same, and closes it. */
void ha_stats_file_remove(struct ha_stats_file *file);

/* Removes the files of this user that no living process holds, with the sockets next to them.
 * Returns how many. */
int ha_stats_files_remove_stale(void);

/* A statistics file that was found. */
struct ha_stats_found {
	char path[HA_STATS_PATH_MAX + 256];
	const char *name; /* in the path: "nccl-ha.UID.PID", perhaps with a suffix */
	int fd;		  /* open for reading; the visitor's only during the call */
	unsigned int uid; /* of its owner */
	bool live;	  /* a process holds it */
};

#define HA_STATS_ALL_USERS ((unsigned int)-1)

/*
 * Calls visit for each statistics file of a user, or of all: those that can be opened, in users'
 * folders and, as the first plugins wrote them, beside those. There a file whose name says another
 * user than the one it belongs to is passed over; in a folder, one that does not belong to the
 * folder's owner. Returns 0, or the errno value for an ha_stats_dir that cannot be read.
 */
int ha_stats_files_visit(unsigned int uid,
			 void (*visit)(void *arg, const struct ha_stats_found *found), void *arg);

#endif
