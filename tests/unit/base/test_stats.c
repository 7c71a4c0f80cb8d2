/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Statistics in shared memory: what is written is what another process reads, whatever dies or
 * is broken meanwhile, and nothing is left behind.
 */
#include "../../silent_mount.h"
#include "../captured_log.h"
#include "../cmocka_all.h"

#include "base/clock.h"
#include "base/stats.h"
#include "base/stats_file.h"
#include "base/stats_reader.h"
#include "base/version.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct ha_config on = {.stats = true}, off = {.stats = false};

/* In place of /dev/shm: other processes of this user may be starting and clearing it. */
static char own_dir[] = "/tmp/nccl-ha-unit-XXXXXX";

static int make_own_dir(void **state)
{
	(void)state;
	unsetenv("XDG_RUNTIME_DIR"); /* there is no second place unless a test says so */
	ha_stats_dir = mkdtemp(own_dir);
	return ha_stats_dir ? 0 : -1;
}

static int remove_own_dir(void **state)
{
	(void)state;
	ha_stats_files_remove_stale();
	return rmdir(own_dir); /* fails when a test left something else */
}

/* This user's, in own_dir. */
static const char *own_folder(void)
{
	static char folder[64];

	snprintf(folder, sizeof folder, "%s/nccl-ha-%u", own_dir, geteuid());
	return folder;
}

static bool exists(const char *path)
{
	return access(path, F_OK) == 0;
}

static void the_file_is_private_and_goes_with_its_last_user(void **state)
{
	struct ha_stats *a = ha_stats_open(&on), *b = ha_stats_open(&on);
	char path[HA_STATS_PATH_MAX], expected[HA_STATS_PATH_MAX];
	struct stat st;

	(void)state;
	assert_non_null(a);
	assert_ptr_equal(a, b);
	snprintf(path, sizeof path, "%s", ha_stats_path(a));
	snprintf(expected, sizeof expected, "%s/nccl-ha.%u.%d", own_folder(), getuid(), getpid());
	assert_int_equal(strncmp(path, expected, strlen(expected)), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(stat(own_folder(), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	ha_stats_close(a);
	assert_true(exists(path));
	ha_stats_close(b);
	assert_false(exists(path));
	assert_false(exists(own_folder()));
}

static void without_a_place_to_write_there_is_one_line_and_no_statistics(void **state)
{
	(void)state;
	capture_log();
	ha_stats_dir = "/nonexistent";
	assert_null(ha_stats_open(&on));
	ha_stats_dir = own_dir;
	assert_int_equal(captured_warnings, 1);
	assert_true(
	    logged("no statistics in /nonexistent: No such file or directory; the job goes on"));
}

static void turned_off_there_is_nothing_and_every_call_is_harmless(void **state)
{
	struct nccl_ha_conn_stats conn = {0};
	struct nccl_ha_port_stats port = {0};
	struct ha_stats *stats = ha_stats_open(&off);

	(void)state;
	assert_null(stats);
	assert_int_equal(ha_stats_conn_add(stats), -1);
	assert_int_equal(ha_stats_port_add(stats), -1);
	ha_stats_conn_write(stats, -1, &conn);
	ha_stats_port_write(stats, -1, &port);
	ha_stats_conn_remove(stats, -1);
	ha_stats_port_remove(stats, -1);
	ha_stats_conn_failed(stats);
	ha_stats_inc_add(stats, &(struct nccl_ha_inc_stats){.groups = 1});
	ha_stats_close(stats);
	assert_string_equal(ha_stats_path(stats), "");
}

static void what_is_written_is_read(void **state)
{
	struct nccl_ha_port_stats port = {.in_use = 1, .speed_mbps = 400000, .nic = "mlx5_0"};
	struct nccl_ha_conn_stats conn = {.in_use = 1, .messages = 7, .bytes = 1ull << 40}, got;
	struct nccl_ha_port_stats got_port;
	struct nccl_ha_job_stats job;
	struct ha_stats_reader reader;
	struct ha_stats *stats;
	int conn_slot, port_slot;

	(void)state;
	setenv("RANK", "12", 1);
	setenv("SLURM_JOB_ID", "4711", 1);
	stats = ha_stats_open(&on);
	port_slot = ha_stats_port_add(stats);
	conn_slot = ha_stats_conn_add(stats);
	ha_stats_port_write(stats, port_slot, &port);
	ha_stats_conn_write(stats, conn_slot, &conn);
	ha_stats_conn_failed(stats);

	assert_int_equal(ha_stats_reader_open(&reader, ha_stats_path(stats)), 0);
	assert_true(ha_stats_read_job(&reader, &job));
	assert_int_equal(job.pid, getpid());
	assert_int_equal(job.rank, 12);
	assert_string_equal(job.job_id, "4711");
	assert_string_equal(job.plugin_version, ha_version);
	assert_string_equal(job.program, "unit_stats");
	assert_int_equal(job.connections_open, 1);
	assert_int_equal(job.connections_failed, 1);
	assert_true(ha_stats_read_port(&reader, (unsigned int)port_slot, &got_port));
	assert_memory_equal(&got_port, &port, sizeof port);
	assert_true(ha_stats_read_conn(&reader, (unsigned int)conn_slot, &got));
	assert_memory_equal(&got, &conn, sizeof conn);
	assert_false(ha_stats_read_conn(&reader, (unsigned int)conn_slot + 1, &got));
	assert_false(ha_stats_read_conn(&reader, 1u << 31, &got));

	ha_stats_conn_remove(stats, conn_slot);
	assert_false(ha_stats_read_conn(&reader, (unsigned int)conn_slot, &got));
	assert_true(ha_stats_read_job(&reader, &job));
	assert_int_equal(job.connections_open, 0);
	assert_int_equal(job.connections, 1);
	ha_stats_reader_close(&reader);
	ha_stats_port_remove(stats, port_slot);
	ha_stats_close(stats);
	unsetenv("RANK");
	unsetenv("SLURM_JOB_ID");
}

static void closed_connections_count_on_in_the_job(void **state)
{
	struct nccl_ha_conn_stats conn = {.in_use = 1, .messages = 7, .bytes = 100, .failovers = 1};
	struct ha_stats *stats = ha_stats_open(&on);
	struct nccl_ha_job_stats job;
	struct ha_stats_reader reader;

	(void)state;
	conn.blackout.count[20] = 1;
	conn.blackout.sum_ns = 600000;
	conn.blackout.max_ns = 600000;
	for (int i = 0; i < 2; i++) {
		int slot = ha_stats_conn_add(stats);

		ha_stats_conn_write(stats, slot, &conn);
		ha_stats_conn_remove(stats, slot);
	}
	assert_int_equal(ha_stats_reader_open(&reader, ha_stats_path(stats)), 0);
	assert_true(ha_stats_read_job(&reader, &job));
	assert_int_equal(job.closings, 4);
	assert_int_equal(job.closed.messages, 14);
	assert_int_equal(job.closed.bytes, 200);
	assert_int_equal(job.closed.failovers, 2);
	assert_int_equal(job.closed.blackout.count[20], 2);
	assert_int_equal(job.closed.blackout.sum_ns, 1200000);
	assert_int_equal(job.closed.blackout.max_ns, 600000);
	ha_stats_reader_close(&reader);
	ha_stats_close(stats);
}

/* By groups that begin, count and end. */
static void groups_of_all_reduces_are_added_up(void **state)
{
	struct ha_stats *stats = ha_stats_open(&on);
	struct nccl_ha_inc_stats more = {.groups = 1, .groups_joined = 1};
	struct ha_stats_reader reader;
	struct nccl_ha_job_stats job;

	(void)state;
	ha_stats_inc_add(stats, &more);
	ha_stats_inc_add(stats, &more);
	more = (struct nccl_ha_inc_stats){
	    .groups = (uint64_t)-1, .all_reduces = 7, .epochs = 2, .units_again = 3};
	more.pause.count[20] = 1;
	more.pause.sum_ns = more.pause.max_ns = 600000;
	ha_stats_inc_add(stats, &more);
	assert_int_equal(ha_stats_reader_open(&reader, ha_stats_path(stats)), 0);
	assert_true(ha_stats_read_job(&reader, &job));
	assert_true(job.inc.groups == 1 && job.inc.groups_joined == 2);
	assert_true(job.inc.all_reduces == 7 && job.inc.epochs == 2 && job.inc.units_again == 3);
	assert_true(job.inc.pause.count[20] == 1 && job.inc.pause.sum_ns == 600000);
	ha_stats_reader_close(&reader);
	ha_stats_close(stats);
}

static void the_configuration_and_the_event_log_are_published(void **state)
{
	struct nccl_ha_config_stats var;
	struct nccl_ha_job_stats job;
	struct ha_stats_reader reader;
	struct ha_config config;
	struct ha_stats *stats;
	bool seen = false;

	(void)state;
	setenv("HA_NCCL_RTO_MS", "1234", 1);
	setenv("HA_NCCL_POLL_BATCH", "many", 1);
	capture_log();
	ha_config_load(&config, NULL);
	unsetenv("HA_NCCL_RTO_MS");
	unsetenv("HA_NCCL_POLL_BATCH");
	stats = ha_stats_open(&config);
	ha_stats_event_log(stats, "/var/log/events");
	assert_int_equal(ha_stats_reader_open(&reader, ha_stats_path(stats)), 0);
	assert_true(ha_stats_read_job(&reader, &job));
	assert_string_equal(job.event_log, "/var/log/events");
	assert_int_equal(reader.header.config.count, ha_config_nvars);
	for (unsigned int i = 0; i < ha_config_nvars; i++) {
		assert_true(ha_stats_read_config(&reader, i, &var));
		assert_string_equal(var.name, ha_config_vars[i].name);
		if (!strcmp(var.name, "HA_NCCL_RTO_MS")) {
			assert_string_equal(var.value, "1234");
			assert_int_equal(var.origin, NCCL_HA_CONFIG_ENVIRONMENT);
			seen = true;
		} else if (!strcmp(var.name, "HA_NCCL_POLL_BATCH")) {
			assert_string_equal(var.value, "32");
			assert_int_equal(var.origin, NCCL_HA_CONFIG_INVALID);
		} else {
			assert_int_equal(var.origin, NCCL_HA_CONFIG_DEFAULT);
		}
	}
	assert_true(seen);
	assert_false(ha_stats_read_config(&reader, (unsigned int)ha_config_nvars, &var));
	ha_stats_reader_close(&reader);
	ha_stats_close(stats);
}

static void slots_are_reused_and_a_shortage_is_counted(void **state)
{
	struct ha_stats *stats = ha_stats_open(&on);
	struct nccl_ha_job_stats job;
	struct ha_stats_reader reader;
	int n, slots[5000] = {0};

	(void)state;
	for (n = 0; n < 5000; n++) {
		slots[n] = ha_stats_conn_add(stats);
		if (slots[n] < 0)
			break;
	}
	assert_int_equal(n, 1024);
	assert_int_equal(ha_stats_conn_add(stats), -1);
	ha_stats_conn_remove(stats, slots[77]);
	assert_int_equal(ha_stats_conn_add(stats), slots[77]);
	assert_int_equal(ha_stats_reader_open(&reader, ha_stats_path(stats)), 0);
	assert_true(ha_stats_read_job(&reader, &job));
	assert_int_equal(job.records_missed, 2);
	assert_int_equal(job.connections_open, 1024);
	ha_stats_reader_close(&reader);
	ha_stats_close(stats);
}

/* ---- other processes ------------------------------------------------------------------------ */

/* A child that opens statistics, reports its path and then waits for a signal or exits. */
static pid_t child_with_stats(char path[HA_STATS_PATH_MAX], bool waits)
{
	int pipe_fds[2];
	pid_t pid;

	assert_int_equal(pipe(pipe_fds), 0);
	pid = fork();
	if (pid == 0) {
		struct ha_stats *stats = ha_stats_open(&on);
		char own[HA_STATS_PATH_MAX] = "";

		snprintf(own, sizeof own, "%s", ha_stats_path(stats));
		alarm(30); /* should the parent fail before it ends us */
		if (write(pipe_fds[1], own, sizeof own) != sizeof own)
			_exit(1);
		if (waits)
			pause();
		_exit(0); /* without closing, and without exit handlers: a crash */
	}
	close(pipe_fds[1]);
	assert_int_equal(read(pipe_fds[0], path, HA_STATS_PATH_MAX), HA_STATS_PATH_MAX);
	close(pipe_fds[0]);
	return pid;
}

static void files_of_dead_processes_are_removed_at_the_next_start(void **state)
{
	char dead[HA_STATS_PATH_MAX], alive[HA_STATS_PATH_MAX];
	pid_t dead_pid = child_with_stats(dead, false), alive_pid;
	struct ha_stats *stats;

	(void)state;
	waitpid(dead_pid, NULL, 0);
	assert_true(exists(dead));
	alive_pid = child_with_stats(alive, true);
	assert_false(exists(dead)); /* the child's start removed it */
	stats = ha_stats_open(&on);
	assert_true(exists(alive));
	kill(alive_pid, SIGKILL);
	waitpid(alive_pid, NULL, 0);
	assert_true(exists(alive));
	ha_stats_close(stats);
	stats = ha_stats_open(&on);
	assert_false(exists(alive));
	ha_stats_close(stats);
}

static void a_forked_child_has_a_file_of_its_own(void **state)
{
	struct ha_stats *stats = ha_stats_open(&on);
	char childs[HA_STATS_PATH_MAX];
	pid_t pid = child_with_stats(childs, false);

	(void)state;
	waitpid(pid, NULL, 0);
	assert_string_not_equal(childs, ha_stats_path(stats));
	assert_true(exists(ha_stats_path(stats)));
	ha_stats_close(stats);
	assert_int_equal(ha_stats_files_remove_stale(), 1);
	assert_false(exists(childs));
}

static void a_normal_exit_leaves_no_file(void **state)
{
	int pipe_fds[2];
	char path[HA_STATS_PATH_MAX];
	pid_t pid;

	(void)state;
	assert_int_equal(pipe(pipe_fds), 0);
	pid = fork();
	if (pid == 0) {
		struct ha_stats *stats = ha_stats_open(&on);
		char own[HA_STATS_PATH_MAX] = "";

		snprintf(own, sizeof own, "%s", ha_stats_path(stats));
		if (write(pipe_fds[1], own, sizeof own) != sizeof own)
			_exit(1);
		exit(0);
	}
	assert_int_equal(read(pipe_fds[0], path, sizeof path), sizeof path);
	waitpid(pid, NULL, 0);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
	assert_int_equal(path[0], '/');
	assert_false(exists(path));
}

static char visited[8192];
static unsigned int last_uid;

static void note(void *arg, const struct ha_stats_found *found)
{
	(void)arg;
	last_uid = found->uid;
	snprintf(visited + strlen(visited), sizeof visited - strlen(visited), "%s=%d\n",
		 found->path, found->live);
}

static void listing_tells_the_living_from_the_dead(void **state)
{
	char alive[HA_STATS_PATH_MAX], dead[HA_STATS_PATH_MAX], line[HA_STATS_PATH_MAX + 8];
	pid_t alive_pid = child_with_stats(alive, true), dead_pid = child_with_stats(dead, false);

	(void)state;
	waitpid(dead_pid, NULL, 0);
	visited[0] = '\0';
	assert_int_equal(ha_stats_files_visit(getuid(), note, NULL), 0);
	snprintf(line, sizeof line, "%s=1\n", alive);
	assert_non_null(strstr(visited, line));
	snprintf(line, sizeof line, "%s=0\n", dead);
	assert_non_null(strstr(visited, line));
	kill(alive_pid, SIGKILL);
	waitpid(alive_pid, NULL, 0);
	assert_int_equal(ha_stats_files_remove_stale(), 2);
	assert_false(exists(alive));
	assert_false(exists(dead));
}

#define SOMEBODY 65533

/* In users' folders of either kind. */
static bool all_are_visited(void *arg)
{
	ha_stats_dir = arg;
	if (mount("none", "/run", "tmpfs", 0, NULL) != 0 || mkdir("/run/user", 0755) != 0 ||
	    mkdir("/run/user/65533", 0755) != 0 || !mount_in_silence("/run/user/65533", SOMEBODY))
		return false;
	return ha_stats_files_visit(HA_STATS_ALL_USERS, note, NULL) == 0;
}

/* Root looks everywhere, and waits for nobody's file system. */
static void a_file_system_that_a_user_serves_is_not_asked(void **state)
{
	char folder[64];
	int outcome;

	(void)state;
	snprintf(folder, sizeof folder, "%s/nccl-ha-%u", own_dir, (unsigned int)SOMEBODY);
	assert_int_equal(mkdir(folder, 0755), 0);
	outcome = beside_silence(folder, SOMEBODY, all_are_visited, NCCL_HA_STATS_DIR);
	if (outcome == SILENT_OK) {
		visited[0] = '\0';
		outcome = beside_silence(folder, SOMEBODY, all_are_visited, own_dir);
	}
	assert_int_equal(rmdir(folder), 0);
	if (outcome == SILENT_CANNOT) {
		print_message("no FUSE can be mounted here: not tried\n");
		skip();
	}
	assert_int_equal(outcome, SILENT_OK);
}

/* A name that is taken by a living process is left to it: PIDs are equal in two containers. */
static void a_taken_name_is_left_alone(void **state)
{
	char taken[HA_STATS_PATH_MAX], expected[HA_STATS_PATH_MAX + 2];
	int ready[2];
	struct ha_stats *stats;
	pid_t holder;
	char byte;

	(void)state;
	assert_int_equal(mkdir(own_folder(), 0700), 0);
	snprintf(taken, sizeof taken, "%s/nccl-ha.%u.%d", own_folder(), getuid(), getpid());
	assert_int_equal(pipe(ready), 0);
	holder = fork();
	if (holder == 0) {
		int fd = open(taken, O_RDWR | O_CREAT | O_EXCL, 0600);

		alarm(30);
		if (fd < 0 || flock(fd, LOCK_EX) != 0 || write(ready[1], "x", 1) != 1)
			_exit(1);
		pause();
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	stats = ha_stats_open(&on);
	assert_non_null(stats);
	snprintf(expected, sizeof expected, "%s.1", taken);
	assert_string_equal(ha_stats_path(stats), expected);
	assert_true(exists(taken));
	ha_stats_close(stats);
	kill(holder, SIGKILL);
	waitpid(holder, NULL, 0);
	assert_int_equal(ha_stats_files_remove_stale(), 1);
	assert_false(exists(taken));
	close(ready[0]);
	close(ready[1]);
}

/* ---- strangers ------------------------------------------------------------------------------ */

static void names_that_a_stranger_has_taken_are_not_needed(void **state)
{
	char squatted[96];
	struct ha_stats *stats;

	(void)state;
	for (int i = 0; i < 10; i++) {
		int fd, n = snprintf(squatted, sizeof squatted, "%s/nccl-ha.%u.%d", own_dir,
				     getuid(), getpid());

		if (i)
			snprintf(squatted + n, sizeof squatted - (size_t)n, ".%d", i);
		fd = open(squatted, O_CREAT | O_EXCL | O_WRONLY, 0600);
		assert_true(fd >= 0);
		if (geteuid() == 0)
			assert_int_equal(fchown(fd, 65534, 65534), 0);
		flock(fd, LOCK_EX); /* kept: it is not cleared away */
	}
	capture_log();
	stats = ha_stats_open(&on);
	assert_non_null(stats);
	assert_int_equal(captured_warnings, 0);
	ha_stats_close(stats);
	for (int i = 0; i < 10; i++) {
		int n = snprintf(squatted, sizeof squatted, "%s/nccl-ha.%u.%d", own_dir, getuid(),
				 getpid());

		if (i)
			snprintf(squatted + n, sizeof squatted - (size_t)n, ".%d", i);
		unlink(squatted);
	}
}

/* What is there in place of the folder is told; then it is the second place, or none. */
static void is_in_the_way(const char *message)
{
	char second[] = "/tmp/nccl-ha-unit-run-XXXXXX", warning[200];
	struct ha_stats *stats;

	snprintf(warning, sizeof warning, "%s %s", own_folder(), message);
	unsetenv("XDG_RUNTIME_DIR");
	capture_log();
	assert_null(ha_stats_open(&on));
	assert_true(logged(warning));
	assert_true(logged("nccl-ha does not see this process"));
	assert_int_equal(captured_warnings, 2);

	assert_non_null(mkdtemp(second));
	setenv("XDG_RUNTIME_DIR", second, 1);
	capture_log();
	stats = ha_stats_open(&on);
	assert_non_null(stats);
	assert_int_equal(strncmp(ha_stats_path(stats), second, strlen(second)), 0);
	assert_true(logged(warning));
	assert_int_equal(captured_warnings, 1);
	ha_stats_close(stats);
	assert_int_equal(rmdir(second), 0);
	unsetenv("XDG_RUNTIME_DIR");
}

static void a_strangers_thing_in_place_of_the_folder_is_told_and_not_used(void **state)
{
	char content[80];
	int fd;

	(void)state;
	fd = open(own_folder(), O_CREAT | O_EXCL | O_WRONLY, 0600);
	assert_true(fd >= 0);
	close(fd);
	is_in_the_way("is no folder");
	unlink(own_folder());
	assert_int_equal(symlink("/tmp", own_folder()), 0);
	is_in_the_way("is no folder");
	unlink(own_folder());
	if (geteuid() != 0) {
		print_message("not root: no other user's folder can be made\n");
		return;
	}
	assert_int_equal(mkdir(own_folder(), 0777), 0);
	assert_int_equal(chown(own_folder(), 65534, 65534), 0);
	snprintf(content, sizeof content, "%s/x",
		 own_folder()); /* an empty one root just removes */
	assert_int_equal(mkdir(content, 0700), 0);
	is_in_the_way("belongs to another user (65534)");
	rmdir(content);
	rmdir(own_folder());
}

static void a_folder_that_is_open_to_others_is_closed(void **state)
{
	struct ha_stats *stats;
	struct stat st;

	(void)state;
	assert_int_equal(mkdir(own_folder(), 0700), 0);
	assert_int_equal(chmod(own_folder(), 0777), 0);
	stats = ha_stats_open(&on);
	assert_non_null(stats);
	assert_int_equal(stat(own_folder(), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	ha_stats_close(stats);
}

/* As those of a container whose users have other numbers here, which is why a name does not count.
 */
static void in_a_folder_its_owner_says_whose_a_file_is(void **state)
{
	char folder[96], path[160], line[200];
	unsigned int owner = geteuid() == 0 ? 100000 : geteuid();
	int fd;

	(void)state;
	snprintf(folder, sizeof folder, "%s/nccl-ha-12345", own_dir);
	snprintf(path, sizeof path, "%s/nccl-ha.12345.7", folder);
	assert_int_equal(mkdir(folder, 0700), 0);
	fd = open(path, O_CREAT | O_EXCL | O_WRONLY, 0600);
	assert_true(fd >= 0);
	assert_int_equal(fchown(fd, owner, (gid_t)-1), 0);
	close(fd);
	assert_int_equal(chown(folder, owner, (gid_t)-1), 0);
	snprintf(line, sizeof line, "%s=0\n", path);
	visited[0] = '\0';
	assert_int_equal(ha_stats_files_visit(HA_STATS_ALL_USERS, note, NULL), 0);
	assert_non_null(strstr(visited, line));
	assert_int_equal(last_uid, owner);
	/* Where others may write it is nobody's. */
	assert_int_equal(chmod(folder, 0777), 0);
	visited[0] = '\0';
	assert_int_equal(ha_stats_files_visit(HA_STATS_ALL_USERS, note, NULL), 0);
	assert_null(strstr(visited, line));
	unlink(path);
	rmdir(folder);
}

/* ---- what it costs --------------------------------------------------------------------------- */

static unsigned system_calls; /* that a record needs, of this test's thread */

int __real_getrlimit(__rlimit_resource_t resource, struct rlimit *limit);
int __wrap_getrlimit(__rlimit_resource_t resource, struct rlimit *limit);
ssize_t __real_pwrite(int fd, const void *from, size_t size, off_t offset);
ssize_t __wrap_pwrite(int fd, const void *from, size_t size, off_t offset);

int __wrap_getrlimit(__rlimit_resource_t resource, struct rlimit *limit)
{
	system_calls++;
	return __real_getrlimit(resource, limit);
}

static bool writes_fail;

ssize_t __wrap_pwrite(int fd, const void *from, size_t size, off_t offset)
{
	system_calls++;
	return writes_fail ? -1 : __real_pwrite(fd, from, size, offset);
}

static unsigned calls_to_write(struct ha_stats *stats, int slot,
			       const struct nccl_ha_conn_stats *conn)
{
	system_calls = 0;
	ha_stats_conn_write(stats, slot, conn);
	return system_calls;
}

/* A connection moves in less than a millisecond, and a thousand of them are idle. */
static void a_record_costs_four_system_calls_and_none_if_nothing_changed(void **state)
{
	struct nccl_ha_conn_stats conn = {.in_use = 1, .messages = 5}, read;
	struct ha_stats *stats = ha_stats_open(&on);
	int slot = ha_stats_conn_add(stats);
	struct ha_stats_reader reader;

	(void)state;
	assert_int_equal(calls_to_write(stats, slot, &conn), 4);
	assert_int_equal(calls_to_write(stats, slot, &conn), 0);
	for (size_t i = 0; i < sizeof conn / sizeof(uint64_t); i++) { /* each word counts */
		((uint64_t *)&conn)[i] ^= (uint64_t)1 << (i * 5 % 64);
		assert_int_equal(calls_to_write(stats, slot, &conn), 4);
	}
	conn = (struct nccl_ha_conn_stats){.in_use = 1, .messages = 7};
	writes_fail = true;
	ha_stats_conn_write(stats, slot, &conn);
	writes_fail = false;
	assert_int_equal(calls_to_write(stats, slot, &conn), 4); /* it is not there yet */
	assert_int_equal(ha_stats_reader_open(&reader, ha_stats_path(stats)), 0);
	assert_true(ha_stats_read_conn(&reader, (unsigned)slot, &read));
	assert_int_equal(read.messages, 7);
	ha_stats_reader_close(&reader);
	ha_stats_conn_remove(stats, slot);
	ha_stats_close(stats);
}

/* ---- what may befall the file --------------------------------------------------------------- */

static void cutting_the_file_does_no_harm_to_who_writes_it(void **state)
{
	struct nccl_ha_conn_stats conn = {.in_use = 1, .messages = 5};
	struct nccl_ha_port_stats port = {.in_use = 1};
	struct ha_stats *stats = ha_stats_open(&on);
	int slot = ha_stats_conn_add(stats), port_slot = ha_stats_port_add(stats);

	(void)state;
	assert_true(slot >= 0 && port_slot >= 0);
	ha_stats_conn_write(stats, slot, &conn);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(truncate(ha_stats_path(stats), i ? 4096 : 0), 0);
		ha_stats_conn_failed(stats);
		ha_stats_event_log(stats, "/x");
		ha_stats_port_write(stats, port_slot, &port);
	}
	assert_int_equal(truncate(ha_stats_path(stats), 0), 0);
	ha_stats_conn_remove(stats, slot);
	ha_stats_port_remove(stats, port_slot);
	ha_stats_close(stats);
}

/* Exits with 0 if the limit on files is a line and not a signal. */
static void run_with_small_files(bool lower_later)
{
	struct rlimit limit = {.rlim_cur = 100 << 10, .rlim_max = RLIM_INFINITY};
	struct nccl_ha_conn_stats conn = {.in_use = 1};
	struct ha_stats *stats;
	int slot;

	signal(SIGXFSZ, SIG_DFL);
	getrlimit(RLIMIT_FSIZE, &limit);
	limit.rlim_cur = 100 << 10;
	if (!lower_later && setrlimit(RLIMIT_FSIZE, &limit) != 0)
		_exit(2);
	capture_log();
	stats = ha_stats_open(&on);
	if (!lower_later)
		_exit(stats || captured_warnings != 1 || !logged("(ulimit -f)") ||
		      exists(own_folder()));
	if (!stats || setrlimit(RLIMIT_FSIZE, &limit) != 0)
		_exit(3);
	slot = ha_stats_conn_add(stats);
	ha_stats_conn_write(stats, slot, &conn);
	ha_stats_conn_remove(stats, slot);
	ha_stats_close(stats);
	_exit(0);
}

static void a_limit_on_the_size_of_files_is_a_line_and_no_signal(void **state)
{
	(void)state;
	for (int later = 0; later < 2; later++) {
		pid_t pid = fork();
		int status;

		if (pid == 0)
			run_with_small_files(later);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
	}
}

/* In a mount namespace of its own. 77: not possible here. */
static void run_on_a_file_system(const char *options, const char *message)
{
	char dir[] = "/tmp/nccl-ha-unit-tmpfs-XXXXXX";

	if (unshare(CLONE_NEWNS | (geteuid() == 0 ? 0 : CLONE_NEWUSER)) != 0 || !mkdtemp(dir))
		_exit(77);
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
	    mount("none", dir, "tmpfs", 0, "size=64k") != 0 ||
	    (*options && mount(NULL, dir, NULL, MS_REMOUNT | MS_RDONLY, NULL) != 0)) {
		rmdir(dir);
		_exit(77);
	}
	ha_stats_dir = dir;
	capture_log();
	if (ha_stats_open(&on) || captured_warnings != 1 || !logged(message)) {
		fputs(captured_log, stderr);
		_exit(1);
	}
	umount(dir);
	rmdir(dir);
	_exit(0);
}

static void a_full_or_read_only_file_system_is_a_line(void **state)
{
	static const char *const each[][2] = {{"", "no room for 2 MiB"},
					      {"ro", "Read-only file system"}};

	(void)state;
	for (int i = 0; i < 2; i++) {
		pid_t pid = fork();
		int status;

		if (pid == 0)
			run_on_a_file_system(each[i][0], each[i][1]);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
			print_message("no file system can be mounted here\n");
			skip();
		}
		assert_int_equal(status, 0);
	}
}

/* ---- broken files --------------------------------------------------------------------------- */

static void links_and_strangers_are_not_followed_or_removed(void **state)
{
	char link_path[160], target[64];
	int fd;

	(void)state;
	snprintf(target, sizeof target, "/tmp/nccl-ha-unit-stats.%d", getpid());
	snprintf(link_path, sizeof link_path, "%s/nccl-ha.%u.999999999", own_dir, getuid());
	fd = open(target, O_CREAT | O_WRONLY, 0600);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(symlink(target, link_path), 0);
	ha_stats_files_remove_stale();
	assert_true(exists(target));
	unlink(link_path);
	assert_int_equal(mkdir(own_folder(), 0700), 0);
	snprintf(link_path, sizeof link_path, "%s/nccl-ha.%u.999999999", own_folder(), getuid());
	assert_int_equal(symlink(target, link_path), 0);
	ha_stats_files_remove_stale();
	assert_true(exists(target));
	unlink(link_path);
	unlink(target);
}

static void damaged_files_are_refused(void **state)
{
	struct ha_stats *stats = ha_stats_open(&on);
	struct nccl_ha_stats_header good, bad;
	struct ha_stats_reader reader;
	char path[] = "/tmp/nccl-ha-unit-XXXXXX";
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(ha_stats_reader_open(&reader, ha_stats_path(stats)), 0);
	good = reader.header;
	ha_stats_reader_close(&reader);

#define REFUSED_AS(error, change, length)                                                          \
	do {                                                                                       \
		bad = good;                                                                        \
		change;                                                                            \
		assert_int_equal(ftruncate(fd, 0), 0);                                             \
		assert_int_equal(pwrite(fd, &bad, sizeof bad, 0), sizeof bad);                     \
		assert_int_equal(ftruncate(fd, (off_t)(length)), 0);                               \
		assert_int_equal(ha_stats_reader_open(&reader, path), error);                      \
		assert_null(reader.mapped);                                                        \
	} while (0)
#define REFUSED(change, length) REFUSED_AS(EPROTO, change, length)

	REFUSED((void)0, 0);
	REFUSED((void)0, sizeof good - 1);
	REFUSED((void)0, good.file_size - 1);
	REFUSED(bad.magic++, good.file_size);
	REFUSED_AS(EPROTONOSUPPORT, bad.version++, good.file_size);
	assert_int_equal(reader.header.version, NCCL_HA_STATS_VERSION + 1);
	REFUSED(bad.header_size = 8, good.file_size);
	REFUSED(bad.conns.count = UINT32_MAX, good.file_size);
	REFUSED(bad.conns.offset = UINT64_MAX - 7, good.file_size);
	REFUSED(bad.conns.offset += 4, good.file_size);
	REFUSED(bad.ports.record_size = 16, good.file_size);
	REFUSED(bad.ports.record_size = UINT32_MAX - 7, good.file_size);
	REFUSED(bad.job.count = 0, good.file_size);
	REFUSED(bad.config.record_size = 8, good.file_size);
	REFUSED(bad.config.offset = good.file_size, good.file_size);
	assert_int_equal(ha_stats_reader_open(&reader, "/dev/shm"), EPROTO);
	assert_int_equal(ha_stats_reader_open(&reader, "/nonexistent"), ENOENT);
	close(fd);
	unlink(path);
	ha_stats_close(stats);
}

/* As the first plugins with this version of the layout wrote it, before anything was appended. */
static void an_older_file_is_read_and_what_it_lacks_is_zero(void **state)
{
	struct {
		char header[offsetof(struct nccl_ha_stats_header, config)];
		uint64_t job_seq;
		char job[offsetof(struct nccl_ha_job_stats, event_log)];
		uint64_t port_seq;
		char port[offsetof(struct nccl_ha_port_stats, messages)];
		struct nccl_ha_conn_record conn;
	} *file = calloc(1, sizeof *file);
	struct nccl_ha_stats_header header = {
	    .magic = NCCL_HA_STATS_MAGIC,
	    .version = 2,
	    .header_size = sizeof file->header,
	    .file_size = sizeof *file,
	    .job = {offsetof(typeof(*file), job_seq), 8 + sizeof file->job, 1},
	    .ports = {offsetof(typeof(*file), port_seq), 8 + sizeof file->port, 1},
	    .conns = {offsetof(typeof(*file), conn), sizeof file->conn, 1},
	};
	struct nccl_ha_job_stats job = {.pid = 12, .connections_open = 1};
	struct nccl_ha_port_stats port = {.in_use = 1, .nic = "mlx5_0", .messages = 1};
	struct nccl_ha_config_stats config;
	struct nccl_ha_conn_stats conn;
	char path[] = "/tmp/nccl-ha-unit-XXXXXX";
	struct ha_stats_reader reader;
	int fd = mkstemp(path);

	(void)state;
	port.heartbeat_rtt.max_ns = 5;
	memcpy(file->header, &header, sizeof file->header);
	memcpy(file->job, &job, sizeof file->job);
	memcpy(file->port, &port, sizeof file->port);
	file->conn.stats = (struct nccl_ha_conn_stats){.in_use = 1, .messages = 3};
	assert_int_equal(write(fd, file, sizeof *file), sizeof *file);
	assert_int_equal(ha_stats_reader_open(&reader, path), 0);
	assert_int_equal(reader.header.config.count, 0);
	assert_true(ha_stats_read_job(&reader, &job));
	assert_int_equal(job.pid, 12);
	assert_int_equal(job.connections_open, 1);
	assert_string_equal(job.event_log, "");
	assert_int_equal(job.closed.messages, 0);
	assert_true(ha_stats_read_port(&reader, 0, &port));
	assert_string_equal(port.nic, "mlx5_0");
	assert_int_equal(port.heartbeat_rtt.max_ns, 5);
	assert_int_equal(port.messages, 0);
	assert_true(ha_stats_read_conn(&reader, 0, &conn));
	assert_int_equal(conn.messages, 3);
	assert_false(ha_stats_read_config(&reader, 0, &config));
	ha_stats_reader_close(&reader);
	close(fd);
	unlink(path);
	free(file);
}

static void a_write_that_never_ended_is_not_taken_for_a_record(void **state)
{
	struct ha_stats *stats = ha_stats_open(&on);
	struct nccl_ha_conn_stats conn = {.in_use = 1}, got;
	int slot = ha_stats_conn_add(stats);
	struct ha_stats_reader reader;
	uint64_t *seq;
	char *memory;
	int fd;

	(void)state;
	ha_stats_conn_write(stats, slot, &conn);
	assert_int_equal(ha_stats_reader_open(&reader, ha_stats_path(stats)), 0);
	fd = open(ha_stats_path(stats), O_RDWR);
	memory = mmap(NULL, reader.size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(memory, MAP_FAILED);
	seq = (uint64_t *)(memory + reader.header.conns.offset +
			   (size_t)slot * reader.header.conns.record_size);
	(*seq)++;
	assert_false(ha_stats_read_conn(&reader, (unsigned int)slot, &got));
	(*seq)++;
	assert_true(ha_stats_read_conn(&reader, (unsigned int)slot, &got));
	munmap(memory, reader.size);
	close(fd);
	ha_stats_reader_close(&reader);
	ha_stats_conn_remove(stats, slot);
	ha_stats_close(stats);
}

/* ---- threads -------------------------------------------------------------------------------- */

/* Some writes in a row, then room for a reader: of writers that never pause it would get nothing
 * but when the scheduler stops both of them. */
#define WRITES_IN_A_ROW 8

static struct ha_stats *shared_stats;
static atomic_bool stop;

static void *write_conns(void *arg)
{
	struct nccl_ha_conn_stats conn = {.in_use = 1};
	int slot = *(int *)arg;

	while (!atomic_load(&stop)) {
		conn.messages++;
		conn.bytes = conn.messages * 3;
		conn.last_blackout_ns = conn.messages * 5;
		ha_stats_conn_write(shared_stats, slot, &conn);
		if (conn.messages % WRITES_IN_A_ROW == 0)
			sched_yield();
	}
	return NULL;
}

static void readers_see_whole_records_while_writers_write(void **state)
{
	struct ha_stats_reader reader;
	struct nccl_ha_conn_stats conn;
	pthread_t writers[2];
	uint64_t until_ns = ha_now_ns() + 20 * HA_NS_PER_S;
	int slot, reads = 0;

	(void)state;
	shared_stats = ha_stats_open(&on);
	slot = ha_stats_conn_add(shared_stats);
	atomic_store(&stop, false);
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&writers[i], NULL, write_conns, &slot), 0);
	assert_int_equal(ha_stats_reader_open(&reader, ha_stats_path(shared_stats)), 0);
	while (reads < 20000 && ha_now_ns() < until_ns) {
		if (!ha_stats_read_conn(&reader, (unsigned int)slot, &conn))
			continue;
		assert_int_equal(conn.bytes, conn.messages * 3);
		assert_int_equal(conn.last_blackout_ns, conn.messages * 5);
		reads++;
	}
	atomic_store(&stop, true);
	for (int i = 0; i < 2; i++)
		pthread_join(writers[i], NULL);
	assert_true(reads > 100);
	ha_stats_reader_close(&reader);
	ha_stats_conn_remove(shared_stats, slot);
	ha_stats_close(shared_stats);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_file_is_private_and_goes_with_its_last_user),
	    cmocka_unit_test(without_a_place_to_write_there_is_one_line_and_no_statistics),
	    cmocka_unit_test(turned_off_there_is_nothing_and_every_call_is_harmless),
	    cmocka_unit_test(what_is_written_is_read),
	    cmocka_unit_test(closed_connections_count_on_in_the_job),
	    cmocka_unit_test(groups_of_all_reduces_are_added_up),
	    cmocka_unit_test(the_configuration_and_the_event_log_are_published),
	    cmocka_unit_test(an_older_file_is_read_and_what_it_lacks_is_zero),
	    cmocka_unit_test(slots_are_reused_and_a_shortage_is_counted),
	    cmocka_unit_test(files_of_dead_processes_are_removed_at_the_next_start),
	    cmocka_unit_test(a_forked_child_has_a_file_of_its_own),
	    cmocka_unit_test(a_normal_exit_leaves_no_file),
	    cmocka_unit_test(listing_tells_the_living_from_the_dead),
	    cmocka_unit_test(a_file_system_that_a_user_serves_is_not_asked),
	    cmocka_unit_test(a_taken_name_is_left_alone),
	    cmocka_unit_test(names_that_a_stranger_has_taken_are_not_needed),
	    cmocka_unit_test(a_strangers_thing_in_place_of_the_folder_is_told_and_not_used),
	    cmocka_unit_test(a_folder_that_is_open_to_others_is_closed),
	    cmocka_unit_test(in_a_folder_its_owner_says_whose_a_file_is),
	    cmocka_unit_test(a_record_costs_four_system_calls_and_none_if_nothing_changed),
	    cmocka_unit_test(cutting_the_file_does_no_harm_to_who_writes_it),
	    cmocka_unit_test(a_limit_on_the_size_of_files_is_a_line_and_no_signal),
	    cmocka_unit_test(a_full_or_read_only_file_system_is_a_line),
	    cmocka_unit_test(links_and_strangers_are_not_followed_or_removed),
	    cmocka_unit_test(damaged_files_are_refused),
	    cmocka_unit_test(a_write_that_never_ended_is_not_taken_for_a_record),
	    cmocka_unit_test(readers_see_whole_records_while_writers_write),
	};

	capture_log();
	return cmocka_run_group_tests(tests, make_own_dir, remove_own_dir);
}
