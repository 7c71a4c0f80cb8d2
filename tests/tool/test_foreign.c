/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a process names in its statistics: of links, pipes, devices and the kernel's files nothing
 * is opened, a user's files are opened as that user, and a file system of his own is not asked.
 */
#include "../unit/cmocka_all.h"

#include "../silent_mount.h"
#include "tools/nccl-ha/foreign.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define NOBODY 65534

/* A folder in which everything is opened at most by who should. */
struct place {
	char dir[64], path[128];
	int watch;
};

static const char *in(struct place *place, const char *name)
{
	snprintf(place->path, sizeof(place->path), "%s/%s", place->dir, name);
	return place->path;
}

static void put(struct place *place, const char *name, mode_t mode)
{
	int fd = open(in(place, name), O_WRONLY | O_CREAT | O_EXCL, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, "x\n", 2), 2);
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
}

static void make_place(struct place *place)
{
	char target[128];

	snprintf(place->dir, sizeof(place->dir), "/tmp/nccl-ha-foreign-XXXXXX");
	assert_non_null(mkdtemp(place->dir));
	assert_int_equal(chmod(place->dir, 0755), 0);
	put(place, "file", 0644);
	put(place, "a*[b]?", 0644);
	put(place, "private", 0600);
	snprintf(target, sizeof(target), "%s", in(place, "file"));
	assert_int_equal(symlink(target, in(place, "link")), 0);
	assert_int_equal(symlink(place->dir, in(place, "folder")), 0);
	assert_int_equal(mkfifo(in(place, "pipe"), 0666), 0);
	place->watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	assert_true(inotify_add_watch(place->watch, place->dir, IN_OPEN | IN_ONLYDIR) >= 0);
}

static void remove_place(struct place *place)
{
	static const char *const names[] = {"file",   "a*[b]?", "private", "link",
					    "folder", "pipe",	"device"};

	close(place->watch);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		unlink(in(place, names[i]));
	assert_int_equal(rmdir(place->dir), 0);
}

/* How many things in it were opened since the last call. To look at something by O_PATH is not to
 * open it. */
static unsigned opened(struct place *place)
{
	char buf[4096] __attribute__((aligned(8)));
	ssize_t n = read(place->watch, buf, sizeof(buf));
	unsigned count = 0;

	for (char *at = buf; n > 0 && at < buf + n;) {
		const struct inotify_event *event = (const struct inotify_event *)at;

		count += event->len > 0; /* what is in it, and not the folder itself */
		at += sizeof(*event) + event->len;
	}
	return count;
}

static void is_refused(struct place *place, const char *path, uid_t owner, const char *message)
{
	const char *why = NULL;
	struct stat st;

	assert_int_equal(nh_foreign_open(path, owner, &why), -1);
	assert_non_null(why);
	if (!strstr(why, message))
		fail_msg("%s: %s", path, why);
	assert_int_equal(opened(place), 0);
	if (strcmp(message, "Permission denied") != 0)
		assert_int_equal(nh_foreign_stat(path, owner, &st, &why), -1);
}

static void is_opened(struct place *place, const char *path, uid_t owner)
{
	const char *why;
	struct stat st;
	int fd = nh_foreign_open(path, owner, &why);

	if (fd < 0)
		fail_msg("%s: %s", path, why);
	assert_null(why);
	assert_int_equal(opened(place), 1);
	assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	close(fd);
	assert_int_equal(nh_foreign_stat(path, owner, &st, &why), 0);
	assert_true(S_ISREG(st.st_mode));
	assert_int_equal(opened(place), 0);
}

static void only_files_are_opened_and_only_under_their_own_name(void **state)
{
	struct place place;
	char odd[300];
	uid_t me = geteuid();

	(void)state;
	make_place(&place);
	is_opened(&place, in(&place, "file"), me);
	is_opened(&place, in(&place, "a*[b]?"), me);
	is_refused(&place, in(&place, "link"), me, "not a file");
	is_refused(&place, in(&place, "folder/file"), me, "link");
	is_refused(&place, in(&place, "pipe"), me, "not a file");
	is_refused(&place, place.dir, me, "not a file");
	is_refused(&place, in(&place, "*"), me, "No such file");
	is_refused(&place, in(&place, "file/x"), me, "no folder");
	snprintf(odd, sizeof(odd), "%s/../%s/file", place.dir, place.dir + 5);
	is_refused(&place, odd, me, "absolute");
	snprintf(odd, sizeof(odd), "%s/./file", place.dir);
	is_refused(&place, odd, me, "absolute");
	snprintf(odd, sizeof(odd), "%s//file", place.dir);
	is_refused(&place, odd, me, "absolute");
	is_refused(&place, place.dir + 1, me, "absolute");
	is_refused(&place, "", me, "absolute");
	is_refused(&place, "/dev/null", me, "/dev");
	is_refused(&place, "/dev/shm/x", me, "/dev");
	is_refused(&place, "/proc/self/status", me, "/proc");
	is_refused(&place, "/sys/kernel/mm/transparent_hugepage/enabled", me, "/sys");
	remove_place(&place);
}

static void root_opens_as_the_user_and_stays_root(void **state)
{
	struct place place;
	uid_t me = geteuid();

	(void)state;
	make_place(&place);
	if (me != 0) {
		is_refused(&place, in(&place, "file"), me + 1, "another user");
		remove_place(&place);
		return;
	}
	is_opened(&place, in(&place, "file"), NOBODY);
	is_refused(&place, in(&place, "private"), NOBODY, "Permission denied");
	/* A group of root's is no group of the user's. */
	assert_int_equal(chmod(in(&place, "private"), 0040), 0);
	is_refused(&place, in(&place, "private"), NOBODY, "Permission denied");
	assert_int_equal(chmod(in(&place, "private"), 0600), 0);
	is_opened(&place, in(&place, "private"), 0);
	assert_int_equal(geteuid(), 0);
	assert_int_equal(getegid(), 0);
	remove_place(&place);
}

static void a_device_is_not_opened_wherever_it_is(void **state)
{
	struct place place;

	(void)state;
	make_place(&place);
	if (mknod(in(&place, "device"), S_IFCHR | 0666, makedev(1, 3)) != 0) {
		print_message("%s: cannot make one here: not tried\n", strerror(errno));
		remove_place(&place);
		skip();
	}
	is_refused(&place, in(&place, "device"), geteuid(), "not a file");
	if (geteuid() == 0)
		is_refused(&place, in(&place, "device"), NOBODY, "not a file");
	remove_place(&place);
}

struct named {
	char below[128], itself[128];
};

static bool is_not_asked(const char *path)
{
	const char *why = NULL;
	struct stat st;

	return nh_foreign_open(path, NOBODY, &why) == -1 && why && strstr(why, "(FUSE)") &&
	       nh_foreign_stat(path, NOBODY, &st, &why) == -1 && strstr(why, "(FUSE)") &&
	       geteuid() == 0;
}

static bool neither_is_asked(void *arg)
{
	const struct named *named = arg;

	return is_not_asked(named->below) && is_not_asked(named->itself);
}

/* It takes questions and answers none, as somebody's may who wants root to wait. */
static void a_file_system_that_a_user_serves_is_not_asked(void **state)
{
	struct named named;
	struct place place;
	int outcome;

	(void)state;
	make_place(&place);
	assert_int_equal(mkdir(in(&place, "silent"), 0755), 0);
	strcpy(named.itself, in(&place, "silent"));
	strcpy(named.below, in(&place, "silent/log"));
	outcome = geteuid() == 0 ? beside_silence(named.itself, NOBODY, neither_is_asked, &named)
				 : SILENT_CANNOT;
	assert_int_equal(rmdir(in(&place, "silent")), 0);
	remove_place(&place);
	if (outcome == SILENT_CANNOT) {
		print_message("no FUSE can be mounted here: not tried\n");
		skip();
	}
	assert_int_equal(outcome, SILENT_OK);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(only_files_are_opened_and_only_under_their_own_name),
	    cmocka_unit_test(root_opens_as_the_user_and_stays_root),
	    cmocka_unit_test(a_device_is_not_opened_wherever_it_is),
	    cmocka_unit_test(a_file_system_that_a_user_serves_is_not_asked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
