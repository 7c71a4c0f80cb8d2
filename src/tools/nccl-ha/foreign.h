/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening files that a process has named, in its statistics: root must not do for a user what that
 * user could not do himself, nor for his sake touch what is no file of his.
 */
#ifndef NH_FOREIGN_H
#define NH_FOREIGN_H

#include <sys/stat.h>

/*
 * Opens a regular file for reading as `owner` would, and never waits for it. Root takes on that
 * user's rights for the time of the call; anybody else opens what he has named himself only. No
 * link is followed on the way; a name that is not absolute and straight, or in /dev, /proc or /sys,
 * is refused, a file system that another user serves is not asked, and what is no file is not
 * opened at all. Nobody else in the process may open files meanwhile. A descriptor, or -1 with what
 * is wrong in *why.
 */
int nh_foreign_open(const char *path, uid_t owner, const char **why);

/* What there is now under that name, with the same precautions. -1 with what is wrong in *why. */
int nh_foreign_stat(const char *path, uid_t owner, struct stat *st, const char **why);

#endif
