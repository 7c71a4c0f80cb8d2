/* SPDX-License-Identifier: Apache-2.0 */
/* Statistics files in /dev/shm. */
#include "base/stats_file.h"

#include "nccl_ha/control.h"
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

/*
 * The operator's socket goes with the file that it is named after, and before it: one without a
 * file would belong to nobody.
 */
static int unlink_with_socket(int dir_fd, const char *name)
{
	char socket[HA_STATS_PATH_MAX + sizeof((struct dirent *)0)->d_name];

	snprintf(socket, sizeof socket, "%s%s", name, NCCL_HA_CONTROL_SUFFIX);
	unlinkat(dir_fd, socket, 0);
	return unlinkat(dir_fd, name, 0);
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

void ha_stats_file_unlink(const struct ha_stats_file *file)
{
	unlink_with_socket(AT_FDCWD, file->path);
}

void ha_stats_file_remove(struct ha_stats_file *file, size_t size)
{
	ha_stats_file_unlink(file);
	munmap(file->mapped, size);
	close(file->fd);
}

/* ---- other processes' files ----------------------------------------------------------------- */

/* Whose it is by its name, "nccl-ha.UID.PID" with or without a suffix; false: another name. */
static bool parse_name(const char *name, unsigned int *uid)
{
	unsigned int pid, suffix;
	int end = 0;

	if (strncmp(name, NCCL_HA_STATS_PREFIX, strlen(NCCL_HA_STATS_PREFIX)) != 0)
		return false;
	name += strlen(NCCL_HA_STATS_PREFIX);
	if (strspn(name, "0123456789.") != strlen(name) || strlen(name) > 24)
		return false;
	if (sscanf(name, "%u.%u%n", uid, &pid, &end) == 2 && !name[end])
		return true;
	return sscanf(name, "%u.%u.%u%n", uid, &pid, &suffix, &end) == 3 && !name[end];
}

/* A statistics file of that user, opened without being led astray by links or pipes; or -1. */
static int open_theirs(int dir_fd, const char *name, unsigned int uid)
{
	struct stat st;
	int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

	if (fd < 0)
		return -1;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == uid)
		return fd;
	close(fd);
	return -1;
}

static int for_each(unsigned int uid,
		    void (*each)(void *arg, int dir_fd, const struct ha_stats_found *found),
		    void *arg)
{
	DIR *dir = opendir(ha_stats_dir);
	struct dirent *entry;

	if (!dir)
		return errno;
	while ((entry = readdir(dir))) {
		struct ha_stats_found found = {.name = NULL};
		int length;

		if (!parse_name(entry->d_name, &found.uid) ||
		    (uid != HA_STATS_ALL_USERS && found.uid != uid))
			continue;
		length =
		    snprintf(found.path, sizeof found.path, "%s/%s", ha_stats_dir, entry->d_name);
		if (length >= (int)sizeof found.path)
			continue;
		found.name = found.path + length - strlen(entry->d_name);
		found.fd = open_theirs(dirfd(dir), entry->d_name, found.uid);
		if (found.fd < 0)
			continue;
		each(arg, dirfd(dir), &found);
		close(found.fd);
	}
	closedir(dir);
	return 0;
}

static void remove_if_stale(void *arg, int dir_fd, const struct ha_stats_found *found)
{
	int *removed = arg;

	/* With the lock held nobody else removes this file, nor can a process own it; still linked
	 * means that the name still leads to it. */
	if (flock(found->fd, LOCK_EX | LOCK_NB) == 0 && still_linked(found->fd) &&
	    unlink_with_socket(dir_fd, found->name) == 0)
		(*removed)++;
}

/*
 * A socket of this user whose statistics file is gone: something that does not know of sockets has
 * removed that, as an older plugin would. A process makes its socket after its file, and removes it
 * before.
 */
static bool is_orphan(int dir_fd, const char *socket)
{
	size_t length = strlen(socket), suffix = strlen(NCCL_HA_CONTROL_SUFFIX);
	char name[sizeof((struct dirent *)0)->d_name];
	unsigned int uid;
	struct stat st;

	if (length <= suffix || strcmp(socket + length - suffix, NCCL_HA_CONTROL_SUFFIX) != 0)
		return false;
	snprintf(name, sizeof name, "%.*s", (int)(length - suffix), socket);
	if (!parse_name(name, &uid) || uid != getuid() ||
	    fstatat(dir_fd, socket, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISSOCK(st.st_mode))
		return false;
	return fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0 && errno == ENOENT;
}

static void remove_orphans(void)
{
	DIR *dir = opendir(ha_stats_dir);
	struct dirent *entry;

	if (!dir)
		return;
	while ((entry = readdir(dir)))
		if (is_orphan(dirfd(dir), entry->d_name))
			unlinkat(dirfd(dir), entry->d_name, 0);
	closedir(dir);
}

int ha_stats_files_remove_stale(void)
{
	int removed = 0;

	for_each((unsigned int)getuid(), remove_if_stale, &removed);
	remove_orphans();
	return removed;
}

struct visitor {
	void (*visit)(void *arg, const struct ha_stats_found *found);
	void *arg;
};

static void visit_one(void *arg, int dir_fd, const struct ha_stats_found *found)
{
	const struct visitor *visitor = arg;
	struct ha_stats_found seen = *found;

	(void)dir_fd;
	seen.name = seen.path + (found->name - found->path);
	/* Not held for longer than it takes to see: a starting process may want to clear it away.
	 */
	seen.live = flock(found->fd, LOCK_SH | LOCK_NB) != 0;
	if (!seen.live)
		flock(found->fd, LOCK_UN);
	visitor->visit(visitor->arg, &seen);
}

int ha_stats_files_visit(unsigned int uid,
			 void (*visit)(void *arg, const struct ha_stats_found *found), void *arg)
{
	struct visitor visitor = {visit, arg};

	return for_each(uid, visit_one, &visitor);
}
