/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading sysfs attributes, below SYSFS_PATH when that is set (as `simverbs run` does).
 */
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *ibv_get_sysfs_path(void);
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);
int ibv_read_ibdev_sysfs_file(void);

const char *ibv_get_sysfs_path(void)
{
	static char path[PATH_MAX];
	const char *env;
	size_t len;

	if (path[0])
		return path;
	/* A program that runs with more rights than its user does not look where the user says. */
	env = getuid() == geteuid() ? getenv("SYSFS_PATH") : NULL;
	snprintf(path, sizeof(path), "%s", env && *env ? env : "/sys");
	len = strlen(path);
	while (len > 1 && path[len - 1] == '/')
		path[--len] = '\0';
	return path;
}

/* The attribute without its newline. Its length, or -1. */
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size)
{
	char path[PATH_MAX];
	ssize_t n;
	int fd;

	if (!size)
		return -1;
	if (snprintf(path, sizeof(path), "%s/%s", dir, file) >= (int)sizeof(path))
		return -1;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	n = read(fd, buf, size);
	close(fd);
	if (n <= 0)
		return -1;
	if (buf[n - 1] == '\n')
		buf[--n] = '\0';
	else if ((size_t)n < size)
		buf[n] = '\0';
	else
		return -1;
	return (int)n;
}

/* For drivers only: its device argument is a structure of theirs. */
int ibv_read_ibdev_sysfs_file(void)
{
	errno = EOPNOTSUPP;
	return -1;
}
