/* SPDX-License-Identifier: Apache-2.0 */
/* Statistics files in /dev/shm. */
#include "base/stats_file.h"

#include "nccl_ha/stats.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_SUFFIX   9 /* names to try when processes of equal PIDs share /dev/shm */
#define MAX_ATTEMPTS 10

const char *ha_stats_dir = NCCL_HA_STATS_DIR;

/* True when the open file is still the one its name leads to, and not a removed one. */
static bool still_linked(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && st.st_nlink > 0;
}

static int open_and_lock(const char *path)
{
	for (int attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
		int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);

		if (fd < 0)
			return -errno;
		/* Between the two calls another process may have taken the file, not locked yet,
		 * for a dead one's and removed it. */
		if (flock(fd, LOCK_EX | LOCK_NB) == 0 && still_linked(fd))
			return fd;
		close(fd);
		unlink(path);
	}
	return -EAGAIN;
}

static int open_own(struct ha_stats_file *file)
{
	for (int suffix = 0;; suffix++) {
		int length = snprintf(file->path, sizeof file->path, "%s/%s%u.%d", ha_stats_dir,
				      NCCL_HA_STATS_PREFIX, (unsigned int)getuid(), (int)getpid());

		if (suffix)
			snprintf(file->path + length, sizeof file->path - (size_t)length, ".%d",
				 suffix);
		file->fd = open_and_lock(file->path);
		if (file->fd != -EEXIST || suffix == MAX_SUFFIX)
			return file->fd;
	}
}

int ha_stats_file_create(struct ha_stats_file *file, size_t size)
{
	int err;

	memset(file, 0, sizeof *file);
	if (open_own(file) < 0)
		return -file->fd;
	/* Reserves the memory: a store into a page that /dev/shm has no room for is a SIGBUS. */
	err = posix_fallocate(file->fd, 0, (off_t)size);
	if (err)
		goto err_unlink;
	file->mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file->fd, 0);
	if (file->mapped == MAP_FAILED) {
		err = errno;
		goto err_unlink;
	}
	return 0;

err_unlink:
	unlink(file->path);
	close(file->fd);
	return err;
}

void ha_stats_file_remove(struct ha_stats_file *file, size_t size)
{
	unlink(file->path);
	munmap(file->mapped, size);
	close(file->fd);
}

/* ---- other processes' files ----------------------------------------------------------------- */

/* A statistics file of this user, opened without being led astray by links or pipes; or -1. */
static int open_theirs(int dir_fd, const char *name)
{
	struct stat st;
	int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

	if (fd < 0)
		return -1;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == getuid())
		return fd;
	close(fd);
	return -1;
}

static void for_each(void (*each)(void *arg, int dir_fd, const char *name, int fd), void *arg)
{
	char prefix[32];
	size_t length = (size_t)snprintf(prefix, sizeof prefix, "%s%u.", NCCL_HA_STATS_PREFIX,
					 (unsigned int)getuid());
	DIR *dir = opendir(ha_stats_dir);
	struct dirent *entry;

	if (!dir)
		return;
	while ((entry = readdir(dir))) {
		int fd;

		if (strncmp(entry->d_name, prefix, length) != 0)
			continue;
		fd = open_theirs(dirfd(dir), entry->d_name);
		if (fd < 0)
			continue;
		each(arg, dirfd(dir), entry->d_name, fd);
		close(fd);
	}
	closedir(dir);
}

static void remove_if_stale(void *arg, int dir_fd, const char *name, int fd)
{
	int *removed = arg;

	/* With the lock held nobody else removes this file, nor can a process own it; still linked
	 * means that the name still leads to it. */
	if (flock(fd, LOCK_EX | LOCK_NB) == 0 && still_linked(fd) && unlinkat(dir_fd, name, 0) == 0)
		(*removed)++;
}

int ha_stats_files_remove_stale(void)
{
	int removed = 0;

	for_each(remove_if_stale, &removed);
	return removed;
}

struct visitor {
	void (*visit)(void *arg, const char *path, bool live);
	void *arg;
};

static void visit_one(void *arg, int dir_fd, const char *name, int fd)
{
	const struct visitor *visitor = arg;
	char path[HA_STATS_PATH_MAX + sizeof((struct dirent *)0)->d_name];
	bool live = flock(fd, LOCK_SH | LOCK_NB) != 0;

	(void)dir_fd;
	snprintf(path, sizeof path, "%s/%s", ha_stats_dir, name);
	visitor->visit(visitor->arg, path, live);
}

void ha_stats_files_visit(void (*visit)(void *arg, const char *path, bool live), void *arg)
{
	struct visitor visitor = {visit, arg};

	for_each(visit_one, &visitor);
}
