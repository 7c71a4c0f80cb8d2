/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simverbs run --sysfs: a mount namespace in which /sys/class and /sys/devices have the fabric's
 * devices, too.
 *
 * Nobody can make a directory in sysfs. So each of the two becomes a small file system of its own,
 * into which what was there is bound entry by entry, and then what the host's tree has. A name that
 * both have is the tree's. Other processes see nothing of it.
 */
#include "tools/simverbs/tool.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

/* Room for names and symbolic links; nothing is stored. */
#define OWN_FILE_SYSTEM "mode=755,size=1m"

static int failed(const char *what, const char *path)
{
	int err = errno;

	fprintf(stderr, "simverbs run --sysfs: %s %s: %s\n", what, path, strerror(err));
	return -err;
}

/* ---------------------------------------------------------------- what is there, and ours */

/* The entry `name` of directory `from` (a descriptor), seen at `to`. */
static int bind_entry(int from, const char *name, const char *to)
{
	char source[64 + NAME_MAX], target[PATH_MAX];
	struct stat st;
	ssize_t n;
	int fd;

	if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW))
		return failed("cannot look at", name);
	if (S_ISLNK(st.st_mode)) {
		n = readlinkat(from, name, target, sizeof(target) - 1);
		if (n < 0)
			return failed("cannot read the link", name);
		target[n] = '\0';
		return symlink(target, to) ? failed("cannot make", to) : 0;
	}
	if (S_ISDIR(st.st_mode)) {
		if (mkdir(to, 0755))
			return failed("cannot make", to);
	} else {
		fd = open(to, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
		if (fd < 0)
			return failed("cannot make", to);
		close(fd);
	}
	snprintf(source, sizeof(source), "/proc/self/fd/%d/%s", from, name);
	/* With all that is mounted below: the kernel shows nothing that was hidden. */
	return mount(source, to, NULL, MS_BIND | MS_REC, NULL) ? failed("cannot bind", to) : 0;
}

/* All entries of a directory, but for those that are in `at` already. */
static int bind_entries(int from, const char *at)
{
	int rc = 0, fd = openat(from, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;
	char to[PATH_MAX];
	struct stat st;

	if (!dir)
		return failed("cannot read", at);
	while (!rc && (entry = readdir(dir))) {
		snprintf(to, sizeof(to), "%s/%s", at, entry->d_name);
		if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..") &&
		    lstat(to, &st) != 0)
			rc = bind_entry(from, entry->d_name, to);
	}
	closedir(dir);
	return rc;
}

/* `at` has what it had, and what is in `ours`. */
static int merge(const char *at, const char *ours)
{
	int old = open(at, O_PATH | O_DIRECTORY | O_CLOEXEC);
	int own = open(ours, O_PATH | O_DIRECTORY | O_CLOEXEC);
	int rc;

	if (old < 0 || own < 0)
		rc = failed("cannot open", old < 0 ? at : ours);
	else if (mount("simverbs", at, "tmpfs", MS_NOSUID | MS_NODEV, OWN_FILE_SYSTEM))
		rc = failed("cannot mount over", at);
	else
		rc = bind_entries(own, at);
	if (!rc)
		rc = bind_entries(old, at);
	if (old >= 0)
		close(old);
	if (own >= 0)
		close(own);
	return rc;
}

/* ---------------------------------------------------------------- the namespace */

static int write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : write(fd, text, strlen(text));

	if (fd >= 0)
		close(fd);
	return n == (ssize_t)strlen(text) ? 0 : -1;
}

/* Everybody stays who he is. */
static int map_ids(unsigned uid, unsigned gid)
{
	char line[64];

	write_file("/proc/self/setgroups", "deny"); /* an old kernel has no such file */
	snprintf(line, sizeof(line), "%u %u 1", gid, gid);
	if (write_file("/proc/self/gid_map", line))
		return failed("cannot write", "/proc/self/gid_map");
	snprintf(line, sizeof(line), "%u %u 1", uid, uid);
	return write_file("/proc/self/uid_map", line) ? failed("cannot write", "/proc/self/uid_map")
						      : 0;
}

/* What is mounted from now on nobody else sees. In a chroot / is mostly a folder of a file system,
 * which has no such property; what is mounted here is all below /sys. */
static int keep_mounts(void)
{
	static const char *const roots[] = {"/", "/sys"};

	for (size_t i = 0; i < sizeof(roots) / sizeof(roots[0]); i++)
		if (mount(NULL, roots[i], NULL, MS_REC | MS_PRIVATE, NULL) == 0)
			return 0;
		else if (errno != EINVAL)
			return failed("cannot keep to ourselves what is mounted below", roots[i]);
	fputs("simverbs run --sysfs: nothing is mounted at /sys\n", stderr);
	return -EINVAL;
}

/* Who may not have a mount namespace may still have one in a user namespace of his own. */
static int enter(void)
{
	unsigned uid = geteuid(), gid = getegid();
	int rc = 0;

	if (unshare(CLONE_NEWNS)) {
		if (errno != EPERM)
			return failed("cannot have", "a mount namespace");
		if (unshare(CLONE_NEWUSER | CLONE_NEWNS))
			return failed("cannot have", "user and mount namespaces");
		rc = map_ids(uid, gid);
	}
	return rc ? rc : keep_mounts();
}

int np_show_sysfs(const char *tree)
{
	static const char *const parts[] = {"class", "devices"};
	char at[32], ours[PATH_MAX];
	int rc = enter();

	for (size_t i = 0; !rc && i < sizeof(parts) / sizeof(parts[0]); i++) {
		snprintf(at, sizeof(at), "/sys/%s", parts[i]);
		snprintf(ours, sizeof(ours), "%s/%s", tree, parts[i]);
		rc = merge(at, ours);
	}
	return rc;
}
