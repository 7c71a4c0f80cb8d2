/* SPDX-License-Identifier: Apache-2.0 */
/* Whose file system something lies on, without asking that file system. */
#include "../cmocka_all.h"

#include "../../silent_mount.h"
#include "base/mount.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SOMEBODY 65533

static char folder[] = "/tmp/nccl-ha-mount-XXXXXX";

static bool is_anothers(const char *path)
{
	int mount = 0, fd = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	bool answer = ha_mount_is_anothers(fd, &mount);

	close(fd);
	return answer;
}

static void the_hosts_own_are_nobodys(void **state)
{
	(void)state;
	assert_false(is_anothers("/"));
	assert_false(is_anothers("/tmp"));
	assert_false(is_anothers("/dev/shm"));
	assert_false(is_anothers("/proc"));
}

static void what_cannot_be_told_is_taken_for_anothers(void **state)
{
	int mount = 0;

	(void)state;
	assert_true(ha_mount_is_anothers(-1, &mount));
	assert_int_equal(mount, 0);
}

static void one_mount_is_looked_up_once(void **state)
{
	int mount = 0, root = open("/", O_PATH | O_CLOEXEC),
	    proc = open("/proc", O_PATH | O_CLOEXEC);
	int of_root;

	(void)state;
	assert_false(ha_mount_is_anothers(root, &mount));
	of_root = mount;
	assert_int_not_equal(of_root, 0);
	assert_false(ha_mount_is_anothers(root, &mount));
	assert_int_equal(mount, of_root);
	assert_false(ha_mount_is_anothers(proc, &mount));
	assert_int_not_equal(mount, of_root);
	close(root);
	close(proc);
}

/* Its source says another user, as its owner may write there what he likes. */
static bool a_strangers(void *arg)
{
	(void)arg;
	return is_anothers(folder) && !is_anothers("/tmp");
}

static bool nobodys(void *arg)
{
	(void)arg;
	return !is_anothers(folder);
}

static void a_file_system_that_a_user_serves_is_his(void **state)
{
	int of_another, of_root;

	(void)state;
	assert_non_null(mkdtemp(folder));
	of_another = beside_silence(folder, SOMEBODY, a_strangers, NULL);
	of_root = beside_silence(folder, 0, nobodys, NULL);
	assert_int_equal(rmdir(folder), 0);
	if (of_another == SILENT_CANNOT) {
		print_message("no FUSE can be mounted here: not tried\n");
		skip();
	}
	assert_int_equal(of_another, SILENT_OK);
	assert_int_equal(of_root, SILENT_OK);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_hosts_own_are_nobodys),
	    cmocka_unit_test(what_cannot_be_told_is_taken_for_anothers),
	    cmocka_unit_test(one_mount_is_looked_up_once),
	    cmocka_unit_test(a_file_system_that_a_user_serves_is_his),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
