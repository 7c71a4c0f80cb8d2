/* SPDX-License-Identifier: Apache-2.0 */
/* Statistics files in /dev/shm. */
#include "base/stats_file.h"

#include "base/fork_guard.h"
#include "base/log.h"
#include "base/mount.h"
#include "base/text.h"
#include "nccl_ha/control.h"
#include "nccl_ha/stats.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAX_SUFFIX   9 /* names to try when processes of equal PIDs share /dev/shm */
#define MAX_ATTEMPTS 10

const char *ha_stats_dir = NCCL_HA_STATS_DIR;

/* ---- the user's folder ---------------------------------------------------------------------- */

/*
 * Names in a folder for everybody can be taken by anybody beforehand. So a user has a folder of his
 * own there, which nobody else writes into.
 */

static void say_in_the_way(const char *path, const struct stat *st)
{
	if (S_ISDIR(st->st_mode))
		HA_WARN("%s belongs to another user (%u): nccl-ha would not see this process "
			"there; remove it as root",
			path, (unsigned int)st->st_uid);
	else
		HA_WARN("%s is no folder (of user %u): nccl-ha would not see this process there; "
			"remove it as root",
			path, (unsigned int)st->st_uid);
}

/* That what is open there is this user's alone, or made so. An errno value. */
static int make_private(int fd, const struct stat *st)
{
	if (st->st_uid != geteuid())
		return EPERM;
	return (st->st_mode & 077) == 0 || fchmod(fd, 0700) == 0 ? 0 : errno;
}

/* Makes the folder if need be. 0 or an errno value; what is in the way is told. */
static int make_folder(const char *path)
{
	struct stat st;
	int fd, err;

	if (mkdir(path, 0700) != 0 && errno != EEXIST)
		return errno;
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	err = fd < 0 ? errno : fstat(fd, &st) != 0 ? errno : make_private(fd, &st);
	if (fd >= 0)
		close(fd);
	if ((err == EPERM || err == EACCES || err == ENOTDIR || err == ELOOP) &&
	    lstat(path, &st) == 0 && (st.st_uid != geteuid() || !S_ISDIR(st.st_mode)))
		say_in_the_way(path, &st);
	return err;
}

static int folder_in(const char *parent, char *path, size_t size)
{
	int n =
	    snprintf(path, size, "%s/%s%u", parent, NCCL_HA_STATS_FOLDER, (unsigned int)geteuid());

	return n < 0 || (size_t)n >= size ? ENAMETOOLONG : 0;
}

/* The second best place; NULL: there is none. */
static const char *runtime_dir(void)
{
	const char *dir = secure_getenv("XDG_RUNTIME_DIR");

	return dir && *dir == '/' ? dir : NULL;
}

/* ---- this process's file -------------------------------------------------------------------- */

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

/* Of the names that this process may have in a folder the first that is free. 0 or an errno value.
 */
static int open_free_name(struct ha_stats_file *file, const char *folder)
{
	for (int suffix = 0;; suffix++) {
		int length = snprintf(file->path, sizeof file->path, "%s/%s%u.%d", folder,
				      NCCL_HA_STATS_PREFIX, (unsigned int)getuid(), (int)getpid());

		if (length + 2 >= (int)sizeof file->path)
			return ENAMETOOLONG;
		if (suffix)
			snprintf(file->path + length, sizeof file->path - (size_t)length, ".%d",
				 suffix);
		file->fd = open_and_lock(file->path);
		if (file->fd >= 0) {
			ha_fork_closes(file->fd); /* with its lock */
			return 0;
		}
		if (file->fd != -EEXIST || suffix == MAX_SUFFIX)
			return -file->fd;
	}
}

/* A file in which `size` bytes have room. Beyond the limit of a process, growing it would be
 * answered with a signal that ends the job. */
static int reserve(int fd, size_t size)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < size)
		return EFBIG;
	return posix_fallocate(fd, 0, (off_t)size);
}

static int create_in(struct ha_stats_file *file, const char *parent, size_t size)
{
	char folder[HA_STATS_PATH_MAX];
	int err = folder_in(parent, folder, sizeof folder);

	if (err)
		return err;
	/* Who ends takes the folder with him, if it is empty. */
	for (int attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
		err = make_folder(folder);
		if (!err)
			err = open_free_name(file, folder);
		if (err != ENOENT)
			break;
	}
	if (err)
		return err;
	err = reserve(file->fd, size);
	if (err) {
		ha_stats_file_unlink(file);
		ha_fork_close(file->fd);
	}
	return err;
}

int ha_stats_file_create(struct ha_stats_file *file, size_t size)
{
	const char *second = runtime_dir();
	int err;

	memset(file, 0, sizeof *file);
	file->size = size;
	err = create_in(file, ha_stats_dir, size);
	if (err && second && create_in(file, second, size) == 0)
		err = 0;
	return err;
}

bool ha_stats_file_may_write(const struct ha_stats_file *file)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur >= file->size;
}

/* By a system call, for a store into the mapping of a file that somebody has cut is a SIGBUS. */
bool ha_stats_file_write(const struct ha_stats_file *file, size_t offset, const void *from,
			 size_t size)
{
	return pwrite(file->fd, from, size, (off_t)offset) == (ssize_t)size;
}

bool ha_stats_file_read(const struct ha_stats_file *file, size_t offset, void *to, size_t size)
{
	return pread(file->fd, to, size, (off_t)offset) == (ssize_t)size;
}

void ha_stats_file_unlink(const struct ha_stats_file *file)
{
	char folder[HA_STATS_PATH_MAX];
	char *slash;

	unlink_with_socket(AT_FDCWD, file->path);
	ha_copy_text(folder, sizeof folder, file->path);
	slash = strrchr(folder, '/');
	if (slash)
		*slash = '\0';
	(void)rmdir(folder); /* unless others of the user are there */
}

void ha_stats_file_remove(struct ha_stats_file *file)
{
	ha_stats_file_unlink(file);
	ha_fork_close(file->fd);
}

/* ---- other processes' files ----------------------------------------------------------------- */

/* A whole number, which the text begins with; what follows it, or NULL. */
static const char *take_number(const char *text, unsigned int *number)
{
	unsigned long long value;
	char *end;

	if (*text < '0' || *text > '9')
		return NULL;
	value = strtoull(text, &end, 10);
	*number = (unsigned int)value;
	return value <= UINT_MAX ? end : NULL;
}

/* Whose it is by its name, "nccl-ha.UID.PID" with or without a suffix; false: another name. */
static bool parse_name(const char *name, unsigned int *uid)
{
	unsigned int ignored;

	if (strncmp(name, NCCL_HA_STATS_PREFIX, strlen(NCCL_HA_STATS_PREFIX)) != 0)
		return false;
	name += strlen(NCCL_HA_STATS_PREFIX);
	if (strlen(name) > 24) /* with zeros before its numbers */
		return false;
	name = take_number(name, uid);
	if (!name || *name != '.')
		return false;
	name = take_number(name + 1, &ignored);
	if (name && *name == '.')
		name = take_number(name + 1, &ignored);
	return name && *name == '\0';
}

/* Without being led astray by links, pipes, or to another file system, which may never answer. */
static int open_at(int dir_fd, const char *name, int flags)
{
	struct open_how how = {.flags = (unsigned int)(flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK),
			       .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV};
	long fd = syscall(SYS_openat2, dir_fd, name, &how, sizeof how);

	if (fd < 0 && (errno == ENOSYS || errno == EPERM)) /* before Linux 5.6; a filter's answer */
		fd = openat(dir_fd, name, (int)how.flags);
	return (int)fd;
}

/* A statistics file of that user; or -1. */
static int open_theirs(int dir_fd, const char *name, unsigned int uid)
{
	struct stat st;
	int fd = open_at(dir_fd, name, O_RDONLY);

	if (fd < 0)
		return -1;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == uid)
		return fd;
	close(fd);
	return -1;
}

struct search {
	unsigned int uid; /* or HA_STATS_ALL_USERS */
	void (*each)(void *arg, int dir_fd, const struct ha_stats_found *found);
	void *arg;
};

static void search_file(const struct search *search, int dir_fd, const char *folder,
			const char *name, unsigned int uid)
{
	struct ha_stats_found found = {.uid = uid};
	int length = snprintf(found.path, sizeof found.path, "%s/%s", folder, name);

	if ((search->uid != HA_STATS_ALL_USERS && search->uid != uid) ||
	    length >= (int)sizeof found.path)
		return;
	found.name = found.path + length - strlen(name);
	found.fd = open_theirs(dir_fd, name, uid);
	if (found.fd < 0)
		return;
	search->each(search->arg, dir_fd, &found);
	close(found.fd);
}

/* An open folder of one user; takes the descriptor. Whose it is says its owner: a container may
 * know him by another number. */
static void search_folder(const struct search *search, int fd, const char *path)
{
	DIR *dir = NULL;
	struct dirent *entry;
	unsigned int named;
	struct stat st;

	if (fstat(fd, &st) == 0 && (st.st_mode & 022) == 0)
		dir = fdopendir(fd);
	if (!dir) {
		close(fd);
		return;
	}
	while ((entry = readdir(dir)))
		if (parse_name(entry->d_name, &named))
			search_file(search, dirfd(dir), path, entry->d_name,
				    (unsigned int)st.st_uid);
	closedir(dir);
}

/* "nccl-ha-UID" */
static bool is_folder_name(const char *name)
{
	size_t n = strlen(NCCL_HA_STATS_FOLDER);

	return !strncmp(name, NCCL_HA_STATS_FOLDER, n) && name[n] &&
	       strspn(name + n, "0123456789") == strlen(name + n);
}

static void search_subfolder(const struct search *search, int dir_fd, const char *parent,
			     const char *name)
{
	char path[HA_STATS_PATH_MAX + 256];
	int fd;

	if (snprintf(path, sizeof path, "%s/%s", parent, name) >= (int)sizeof path)
		return;
	fd = open_at(dir_fd, name, O_RDONLY | O_DIRECTORY);
	if (fd >= 0)
		search_folder(search, fd, path);
}

/* A folder for everybody: users' folders, and files as the first plugins put them there, whose
 * names say whose they are. 0 or an errno value; errno where there is none. */
static int search_parent(const struct search *search, const char *parent, DIR *dir)
{
	struct dirent *entry;
	unsigned int uid;

	if (!dir)
		return errno;
	while ((entry = readdir(dir)))
		if (is_folder_name(entry->d_name))
			search_subfolder(search, dirfd(dir), parent, entry->d_name);
		else if (parse_name(entry->d_name, &uid))
			search_file(search, dirfd(dir), parent, entry->d_name, uid);
	closedir(dir);
	return 0;
}

#define RUNTIME_DIRS "/run/user"

/* One that is another user's, who may have put a file system of his own there. */
static DIR *open_runtime_dir(const char *path)
{
	int held = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), fd = -1, mount = 0;
	DIR *dir;

	if (held < 0)
		return NULL;
	if (!ha_mount_is_anothers(held, &mount))
		fd = openat(held, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	close(held);
	dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir && fd >= 0)
		close(fd);
	return dir;
}

/* The second best places: this user's, or everybody's. */
static void search_runtime_dirs(const struct search *search)
{
	DIR *dir = search->uid == HA_STATS_ALL_USERS ? opendir(RUNTIME_DIRS) : NULL;
	const char *own = runtime_dir();
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		char path[sizeof RUNTIME_DIRS + sizeof entry->d_name];

		snprintf(path, sizeof path, RUNTIME_DIRS "/%s", entry->d_name);
		if (entry->d_name[0] != '.' && (!own || strcmp(path, own) != 0))
			(void)search_parent(search, path, open_runtime_dir(path));
	}
	if (dir)
		closedir(dir);
	if (own)
		(void)search_parent(search, own, opendir(own));
}

static int for_each(unsigned int uid,
		    void (*each)(void *arg, int dir_fd, const struct ha_stats_found *found),
		    void *arg)
{
	const struct search search = {uid, each, arg};
	int err = search_parent(&search, ha_stats_dir, opendir(ha_stats_dir));

	if (!strcmp(ha_stats_dir, NCCL_HA_STATS_DIR))
		search_runtime_dirs(&search);
	return err;
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
static bool is_stale(int dir_fd, const char *socket)
{
	size_t length = strlen(socket), suffix = strlen(NCCL_HA_CONTROL_SUFFIX);
	char name[sizeof((struct dirent *)0)->d_name];
	unsigned int uid;
	struct stat st;

	if (length <= suffix || strcmp(socket + length - suffix, NCCL_HA_CONTROL_SUFFIX) != 0)
		return false;
	snprintf(name, sizeof name, "%.*s", (int)(length - suffix), socket);
	if (!parse_name(name, &uid) || uid != geteuid() ||
	    fstatat(dir_fd, socket, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISSOCK(st.st_mode))
		return false;
	return fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0 && errno == ENOENT;
}

static void remove_orphans(const char *folder)
{
	DIR *dir = opendir(folder);
	struct dirent *entry;

	if (!dir)
		return;
	while ((entry = readdir(dir)))
		if (is_stale(dirfd(dir), entry->d_name))
			unlinkat(dirfd(dir), entry->d_name, 0);
	closedir(dir);
}

int ha_stats_files_remove_stale(void)
{
	char folder[HA_STATS_PATH_MAX];
	int removed = 0;

	for_each((unsigned int)geteuid(), remove_if_stale, &removed);
	remove_orphans(ha_stats_dir);
	if (folder_in(ha_stats_dir, folder, sizeof folder) == 0) {
		remove_orphans(folder);
		(void)rmdir(folder); /* unless it is in use */
	}
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
