/* SPDX-License-Identifier: Apache-2.0 */
/* A file system that a user serves and that answers nothing: for tests of who does not ask it. */
#ifndef HA_TESTS_SILENT_MOUNT_H
#define HA_TESTS_SILENT_MOUNT_H

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#define SILENT_MOUNT_S 5 /* whoever waits for it for so long waits for ever */

enum { SILENT_OK, SILENT_WRONG, SILENT_CANNOT };

/* In this process's own mount namespace; false: not possible here. It lasts as long as the process.
 */
static inline bool mount_in_silence(const char *at, uid_t user)
{
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	char options[100];

	snprintf(options, sizeof(options),
		 "fd=%d,rootmode=40755,user_id=%u,group_id=%u,allow_other", fd, (unsigned)user,
		 (unsigned)user);
	return fd >= 0 && mount("user_id=0", at, "fuse.silent", MS_NOSUID | MS_NODEV, options) == 0;
}

/*
 * look(arg) in a child with a mount namespace of its own, which returns whether all is as it should
 * be. SILENT_CANNOT: no such file system can be made here. Whoever waits is ended.
 */
static inline int beside_silence(const char *at, uid_t user, bool (*look)(void *arg), void *arg)
{
	int status = 0;
	pid_t child = fork();

	if (child == 0) {
		alarm(SILENT_MOUNT_S);
		if (unshare(CLONE_NEWNS) != 0 ||
		    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
		    !mount_in_silence(at, user))
			_exit(SILENT_CANNOT);
		_exit(look(arg) ? SILENT_OK : SILENT_WRONG);
	}
	if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
		return SILENT_WRONG;
	return WEXITSTATUS(status);
}

#endif
