/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha/foreign.h"

#include "base/mount.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/magic.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

/* ---- names ---------------------------------------------------------------------------------- */

/* "/a/b", without "//", "." and "..": then it is what it looks like as long as no link is in it. */
static bool is_straight(const char *path)
{
	if (*path != '/')
		return false;
	while (*path) {
		size_t n = strcspn(++path, "/");

		if (n == 0 || !strncmp(path, ".", n) || (n <= 2 && !strncmp(path, "..", n)))
			return false;
		path += n;
	}
	return true;
}

static bool is_in(const char *path, const char *folder)
{
	size_t n = strlen(folder);

	return !strncmp(path, folder, n) && (path[n] == '/' || !path[n]);
}

static const char *wrong_with_name(const char *path)
{
	if (!is_straight(path))
		return "is no absolute name without . and ..; not opened";
	if (is_in(path, "/dev") || is_in(path, "/proc") || is_in(path, "/sys"))
		return "a process has named it, and it is in /dev, /proc or /sys; not opened";
	return NULL;
}

/* ---- as somebody else ----------------------------------------------------------------------- */

#define MAX_GROUPS 1024
#define NO_GROUP   65534

struct rights {
	uid_t uid;
	gid_t gid;
	int ngroups;
	gid_t groups[MAX_GROUPS];
};

/* Those of a user. One who is not in the user database, as in a container, is in no group. */
static void look_up(struct rights *rights, uid_t uid)
{
	const struct passwd *user = getpwuid(uid);

	rights->uid = uid;
	rights->gid = user ? user->pw_gid : NO_GROUP;
	rights->ngroups = 0;
	if (!user)
		return;
	rights->ngroups = MAX_GROUPS;
	if (getgrouplist(user->pw_name, user->pw_gid, rights->groups, &rights->ngroups) < 0)
		rights->ngroups = 0;
}

/* The kernel looks at rights when something is opened, and the last user is often the next. */
static const struct rights *rights_of(uid_t uid)
{
	static struct rights rights;
	static bool known;

	if (!known || rights.uid != uid)
		look_up(&rights, uid);
	known = true;
	return &rights;
}

static bool take_on(const struct rights *rights)
{
	return setgroups((size_t)rights->ngroups, rights->groups) == 0 &&
	       setegid(rights->gid) == 0 && seteuid(rights->uid) == 0;
}

/* A root that has lost its rights, or kept a user's, must not go on. */
static void take_back(const struct rights *own)
{
	if (seteuid(own->uid) != 0 || !take_on(own))
		abort();
}

/* ---- opening -------------------------------------------------------------------------------- */

#define HOLD (O_PATH | O_NOFOLLOW | O_CLOEXEC)

/*
 * Gets hold of what has that straight name, without opening it. -1 with errno: ELOOP or ENOTDIR for
 * a link on the way, EREMOTE where it would go on to a file system that some user serves. Step by
 * step, as what is asked for the next name is what has been looked at.
 */
static int hold(const char *path)
{
	int at = open("/", HOLD | O_DIRECTORY), mount = 0;

	while (at >= 0 && *path) {
		size_t n = strcspn(++path, "/");
		char name[NAME_MAX + 1];
		int next;

		if (n > NAME_MAX) {
			close(at);
			errno = ENAMETOOLONG;
			return -1;
		}
		memcpy(name, path, n);
		name[n] = '\0';
		path += n;
		next = openat(at, name, HOLD | (*path ? O_DIRECTORY : 0));
		close(at);
		at = next;
		if (at >= 0 && ha_mount_is_anothers(at, &mount)) {
			close(at);
			errno = EREMOTE;
			return -1;
		}
	}
	return at;
}

static const char *why_not_held(void)
{
	if (errno == ELOOP || errno == ENOTDIR)
		return "there is a link, or no folder, in its name; not opened";
	if (errno == EREMOTE)
		return "a user serves its file system (FUSE), which need not answer; not opened";
	return strerror(errno);
}

/* The kernel's own files look like others, and have effects. */
static bool is_kernels(int held)
{
	struct statfs fs;

	if (fstatfs(held, &fs) != 0)
		return true;
	return fs.f_type == PROC_SUPER_MAGIC || fs.f_type == SYSFS_MAGIC ||
	       fs.f_type == DEBUGFS_MAGIC || fs.f_type == TRACEFS_MAGIC;
}

static const char *wrong_with_file(int held, struct stat *st)
{
	if (fstat(held, st) != 0)
		return strerror(errno);
	return S_ISREG(st->st_mode) && !is_kernels(held) ? NULL : "is not a file";
}

/* What is held is what is opened, whatever has its name by now. */
static int open_held(int held)
{
	char name[40];

	snprintf(name, sizeof(name), "/proc/self/fd/%d", held);
	return open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

/* With the owner's rights. *fd is -1 unless it is to be opened. */
static const char *look_at(const char *path, struct stat *st, bool to_open, int *fd)
{
	int held = hold(path);
	const char *why;

	if (held < 0)
		return why_not_held();
	why = wrong_with_file(held, st);
	if (!why && to_open) {
		*fd = open_held(held);
		if (*fd < 0)
			why = strerror(errno);
	}
	close(held);
	return why;
}

static const char *look_as(const char *path, uid_t owner, struct stat *st, bool to_open, int *fd)
{
	struct rights own = {.uid = geteuid(), .gid = getegid()};
	const char *why;

	*fd = -1;
	why = wrong_with_name(path);
	if (why)
		return why;
	if (owner == own.uid)
		return look_at(path, st, to_open, fd);
	own.ngroups = getgroups(MAX_GROUPS, own.groups);
	if (own.uid != 0 || own.ngroups < 0)
		return "another user's process has named it; not opened";
	if (take_on(rights_of(owner)))
		why = look_at(path, st, to_open, fd);
	else
		why = "cannot be opened as the user whose process has named it";
	take_back(&own);
	return why;
}

int nh_foreign_open(const char *path, uid_t owner, const char **why)
{
	struct stat st;
	int fd;

	*why = look_as(path, owner, &st, true, &fd);
	return fd;
}

int nh_foreign_stat(const char *path, uid_t owner, struct stat *st, const char **why)
{
	int fd;

	*why = look_as(path, owner, st, false, &fd);
	return *why ? -1 : 0;
}
