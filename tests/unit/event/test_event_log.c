/* SPDX-License-Identifier: Apache-2.0 */
/* The event log is JSON whatever is in it, survives sharing, and is never why a job fails. */
#include "../captured_log.h"
#include "../cmocka_all.h"

#include "event/event_log.h"

#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[] = "/tmp/nccl-ha-unit-XXXXXX";
static char path[256];

static int make_dir(void **state)
{
	(void)state;
	unsetenv("RANK");
	return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
	(void)state;
	return rmdir(dir); /* fails when a test left something in it */
}

static int choose_path(void **state)
{
	(void)state;
	snprintf(path, sizeof(path), "%s/events", dir);
	return 0;
}

static int remove_file(void **state)
{
	(void)state;
	unlink(path);
	return 0;
}

static struct ha_event a_switch(void)
{
	struct ha_event event = ha_event_init(HA_EVENT_SWITCH, HA_REASON_LIVENESS);

	event.from = (struct ha_event_path){"mlx5_0", 1, 0, 1};
	event.to = (struct ha_event_path){"mlx5_1", 2, 1, 7};
	event.conn_id = 0x1f;
	event.conn_name = "send 1f a:1/mlx5_0:1 -> b:2/mlx5_0:1";
	event.epoch = 2;
	event.detection_ns = 3249999;
	event.blackout_ns = 1204000001;
	event.completed_without_resend = 3;
	event.replayed_messages = 5;
	event.replayed_bytes = UINT32_MAX + 1ull;
	return event;
}

/* The lines of a file, each parsed. The caller decrefs the array. */
static json_t *read_lines(const char *name)
{
	json_t *lines = json_array();
	FILE *file = fopen(name, "r");
	char line[16384];

	assert_non_null(file);
	while (fgets(line, sizeof(line), file)) {
		json_error_t error;
		json_t *object = json_loads(line, 0, &error);

		if (!object)
			fail_msg("%s at column %d of: %s", error.text, error.column, line);
		assert_int_equal(line[strlen(line) - 1], '\n');
		json_array_append_new(lines, object);
	}
	fclose(file);
	return lines;
}

static json_t *write_one(const struct ha_event *event)
{
	struct ha_eventlog *log = ha_eventlog_open(path, 0);
	json_t *lines, *object;

	assert_non_null(log);
	ha_eventlog_write(log, event);
	ha_eventlog_close(log);
	lines = read_lines(path);
	assert_int_equal(json_array_size(lines), 1);
	object = json_incref(json_array_get(lines, 0));
	json_decref(lines);
	return object;
}

#define text_of(object, name)		 json_string_value(json_object_get(object, name))
#define number_of(object, name)		 json_integer_value(json_object_get(object, name))
#define assert_null_member(object, name) assert_true(json_is_null(json_object_get(object, name)))

static void a_switch_has_every_member(void **state)
{
	struct ha_event event = a_switch();
	char host[256] = "";
	const json_t *from, *to;
	json_t *object;

	(void)state;
	setenv("RANK", "12", 1);
	object = write_one(&event);
	unsetenv("RANK");
	gethostname(host, sizeof(host) - 1);
	host[63] = '\0';
	assert_string_equal(text_of(object, "host"), host);
	assert_int_equal(number_of(object, "pid"), getpid());
	assert_int_equal(number_of(object, "rank"), 12);
	assert_true(number_of(object, "monotonic_ns") > 0);
	assert_string_equal(text_of(object, "kind"), "switch");
	assert_string_equal(text_of(object, "connection"), "000000000000001f");
	assert_string_equal(text_of(object, "name"), event.conn_name);
	assert_string_equal(text_of(object, "reason"), "heartbeats lost");
	assert_null_member(object, "detail");
	from = json_object_get(object, "from");
	assert_int_equal(number_of(from, "path"), 0);
	assert_int_equal(number_of(from, "generation"), 1);
	assert_string_equal(text_of(from, "port"), "mlx5_0:1");
	to = json_object_get(object, "to");
	assert_int_equal(number_of(to, "path"), 1);
	assert_int_equal(number_of(to, "generation"), 7);
	assert_string_equal(text_of(to, "port"), "mlx5_1:2");
	assert_int_equal(number_of(object, "epoch"), 2);
	assert_true(json_real_value(json_object_get(object, "detection_ms")) == 3.249);
	assert_true(json_real_value(json_object_get(object, "blackout_ms")) == 1204.000);
	assert_int_equal(number_of(object, "completed_without_resend"), 3);
	assert_int_equal(number_of(object, "replayed_messages"), 5);
	assert_int_equal(number_of(object, "replayed_bytes"), UINT32_MAX + 1ull);
	json_decref(object);
}

static void what_does_not_apply_is_null(void **state)
{
	struct ha_event event = ha_event_init(HA_EVENT_FAILURE, HA_REASON_NONE);
	struct ha_event full = a_switch();
	json_t *object, *other;
	const char *name;
	json_t *value;

	(void)state;
	event.from = (struct ha_event_path){"mlx5_0", 1, -1, 0};
	object = write_one(&event);
	assert_null_member(json_object_get(object, "from"), "path");
	assert_string_equal(text_of(json_object_get(object, "from"), "port"), "mlx5_0:1");
	for (const char *const *absent =
		 (const char *const[]){"rank", "connection", "name", "reason", "detail", "to",
				       "epoch", "detection_ms", "blackout_ms",
				       "completed_without_resend", "replayed_messages",
				       "replayed_bytes", NULL};
	     *absent; absent++)
		assert_null_member(object, *absent);
	unlink(path);
	other = write_one(&full); /* the same members in all */
	assert_int_equal(json_object_size(object), json_object_size(other));
	json_object_foreach(other, name, value) assert_non_null(json_object_get(object, name));
	json_decref(object);
	json_decref(other);
}

/* time() may be a tick behind. */
static time_t now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return now.tv_sec;
}

static void the_time_is_iso_8601_and_now(void **state)
{
	struct ha_event event = a_switch();
	json_t *object;
	struct tm tm = {0};
	int ms = -1;
	const char *text;
	time_t before = now_s();

	(void)state;
	object = write_one(&event);
	text = text_of(object, "time");
	assert_int_equal(strlen(text), strlen("2026-01-02T03:04:05.678Z"));
	assert_int_equal(sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2d.%3dZ", &tm.tm_year, &tm.tm_mon,
				&tm.tm_mday, &tm.tm_hour, &tm.tm_min, &tm.tm_sec, &ms),
			 7);
	tm.tm_year -= 1900;
	tm.tm_mon--;
	assert_in_range(timegm(&tm), before, now_s());
	assert_in_range(ms, 0, 999);
	json_decref(object);
}

static void any_bytes_are_escaped(void **state)
{
	struct ha_event event = a_switch();
	char every[256];
	json_t *object;
	const char *seen;

	(void)state;
	for (int i = 0; i < 255; i++)
		every[i] = (char)(i + 1);
	every[255] = '\0';
	event.detail = every;
	event.conn_name = "quote \" backslash \\ newline \n";
	object = write_one(&event);
	assert_string_equal(text_of(object, "name"), event.conn_name);
	seen = text_of(object, "detail");
	for (int i = 1; i < 0x80; i++) /* the rest as the characters of those numbers, in UTF-8 */
		assert_int_equal(seen[i - 1], i);
	assert_int_equal(strlen(seen), 127 + 2 * 128);
	assert_int_equal((unsigned char)seen[127], 0xc2);
	json_decref(object);
}

static void texts_of_any_length_leave_a_whole_line(void **state)
{
	struct ha_event event = a_switch();
	char endless[100000];
	json_t *object;

	(void)state;
	memset(endless, 0xff, sizeof(endless) - 1);
	endless[sizeof(endless) - 1] = '\0';
	event.detail = event.conn_name = event.from.nic = event.to.nic = endless;
	object = write_one(&event);
	assert_int_equal(number_of(object, "replayed_bytes"), UINT32_MAX + 1ull);
	assert_int_equal(strlen(text_of(object, "detail")), 2 * 256);
	json_decref(object);
}

/* ---- the file -------------------------------------------------------------------------------- */

static void the_name_may_hold_process_and_host(void **state)
{
	char pattern[256], expected[512], host[64] = "";
	struct ha_event event = a_switch();
	struct ha_eventlog *log;

	(void)state;
	gethostname(host, sizeof(host) - 1);
	snprintf(pattern, sizeof(pattern), "%s/%%h-%%p-%%%%-%%x-%%", dir);
	snprintf(expected, sizeof(expected), "%s/%s-%d-%%-%%x-%%", dir, host, getpid());
	log = ha_eventlog_open(pattern, 0);
	assert_non_null(log);
	ha_eventlog_write(log, &event);
	ha_eventlog_close(log);
	assert_int_equal(access(expected, F_OK), 0);
	unlink(expected);
}

static void an_existing_file_is_continued(void **state)
{
	struct ha_event event = a_switch();
	json_t *lines;

	(void)state;
	json_decref(write_one(&event));
	for (int i = 0; i < 2; i++) {
		struct ha_eventlog *log = ha_eventlog_open(path, 0);

		ha_eventlog_write(log, &event);
		ha_eventlog_close(log);
	}
	lines = read_lines(path);
	assert_int_equal(json_array_size(lines), 3);
	json_decref(lines);
}

enum { WRITERS = 4, EVENTS = 500 };

static void *write_many(void *log)
{
	struct ha_event event = a_switch();

	for (int i = 0; i < EVENTS; i++)
		ha_eventlog_write(log, &event);
	return NULL;
}

static void processes_and_threads_share_a_file(void **state)
{
	pid_t children[WRITERS];
	struct ha_eventlog *log;
	pthread_t threads[WRITERS];
	json_t *lines;

	(void)state;
	for (int i = 0; i < WRITERS; i++) {
		children[i] = fork();
		assert_true(children[i] >= 0);
		if (children[i] == 0) {
			write_many(ha_eventlog_open(path, 0));
			_exit(0);
		}
	}
	log = ha_eventlog_open(path, 0);
	for (int i = 0; i < WRITERS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, write_many, log), 0);
	for (int i = 0; i < WRITERS; i++) {
		int status;

		pthread_join(threads[i], NULL);
		assert_int_equal(waitpid(children[i], &status, 0), children[i]);
		assert_int_equal(status, 0);
	}
	ha_eventlog_close(log);
	lines = read_lines(path);
	assert_int_equal(json_array_size(lines), 2 * WRITERS * EVENTS);
	json_decref(lines);
}

static void expect_refused(const char *name, const char *why)
{
	char expected[512];

	capture_log();
	assert_null(ha_eventlog_open(name, 0));
	assert_int_equal(captured_warnings, 1);
	snprintf(expected, sizeof(expected), "HA_NCCL_EVENT_LOG: %.100s", name);
	assert_true(logged(expected));
	assert_true(logged(why));
}

static void a_file_that_cannot_be_opened_is_one_warning(void **state)
{
	char endless[5000];

	(void)state;
	expect_refused("/nonexistent/events", "No such file or directory; there is no event log");
	expect_refused(dir, "Is a directory");
	memset(endless, 'x', sizeof(endless) - 1);
	endless[sizeof(endless) - 1] = '\0';
	expect_refused(endless, "File name too long");
	ha_log_set_sink(NULL);
}

static void a_pipe_is_refused_with_and_without_a_reader(void **state)
{
	int fd;

	(void)state;
	assert_int_equal(mkfifo(path, 0600), 0);
	expect_refused(path, "neither a file nor a device");
	fd = open(path, O_RDONLY | O_NONBLOCK);
	assert_true(fd >= 0);
	expect_refused(path, "neither a file nor a device");
	close(fd);
	ha_log_set_sink(NULL);
}

static void a_full_disk_is_one_warning_and_no_failure(void **state)
{
	struct ha_event event = a_switch();
	struct ha_eventlog *log;

	(void)state;
	capture_log();
	log = ha_eventlog_open("/dev/full", 0);
	assert_non_null(log);
	for (int i = 0; i < 3; i++)
		ha_eventlog_write(log, &event);
	ha_eventlog_close(log);
	assert_int_equal(captured_warnings, 1);
	assert_true(logged("/dev/full: No space left on device"));
	ha_log_set_sink(NULL);
}

static void a_link_is_not_followed_and_the_file_is_not_everybodys(void **state)
{
	char target[300];
	struct ha_event event = a_switch();
	mode_t before = umask(0);
	struct stat st;

	(void)state;
	json_decref(write_one(&event));
	umask(before);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0640);
	unlink(path);
	snprintf(target, sizeof(target), "%s/elsewhere", dir);
	assert_int_equal(symlink(target, path), 0);
	expect_refused(path, "a link, which is not followed");
	assert_int_not_equal(access(target, F_OK), 0);
	ha_log_set_sink(NULL);
}

static void the_name_may_hold_the_job(void **state)
{
	char pattern[300], expected[300];
	struct ha_eventlog *log;

	(void)state;
	snprintf(pattern, sizeof(pattern), "%s/%%j.x", dir);
	for (int i = 0; i < 2; i++) {
		if (i)
			unsetenv("SLURM_JOB_ID");
		else
			setenv("SLURM_JOB_ID", "../47_1", 1);
		snprintf(expected, sizeof(expected), "%s/%s.x", dir, i ? "unknown" : ".._47_1");
		log = ha_eventlog_open(pattern, 0);
		assert_non_null(log);
		ha_eventlog_close(log);
		assert_int_equal(access(expected, F_OK), 0);
		unlink(expected);
	}
}

static size_t lines_in(const char *name)
{
	json_t *lines = read_lines(name);
	size_t n = json_array_size(lines);

	json_decref(lines);
	return n;
}

/* As logrotate does it. */
static void a_file_that_was_renamed_or_removed_is_made_anew(void **state)
{
	struct ha_eventlog *log = ha_eventlog_open(path, 0);
	struct ha_event event = a_switch();
	char old[300];

	(void)state;
	assert_non_null(log);
	ha_eventlog_write(log, &event);
	snprintf(old, sizeof(old), "%s.1", path);
	assert_int_equal(rename(path, old), 0);
	ha_eventlog_write(log, &event);
	ha_eventlog_write(log, &event);
	assert_int_equal(lines_in(old), 1);
	assert_int_equal(lines_in(path), 2);
	assert_int_equal(unlink(path), 0);
	ha_eventlog_write(log, &event);
	assert_int_equal(lines_in(path), 1);
	/* A link in its place is not followed; what is open goes on. */
	assert_int_equal(rename(path, old), 0);
	assert_int_equal(symlink("/nonexistent/x", path), 0);
	ha_eventlog_write(log, &event);
	assert_int_equal(lines_in(old), 2);
	ha_eventlog_close(log);
	unlink(old);
}

static void it_grows_to_its_limit_and_goes_on_after_rotation(void **state)
{
	struct ha_eventlog *log = ha_eventlog_open(path, 4096);
	struct ha_event event = a_switch();
	struct stat st;

	(void)state;
	capture_log();
	assert_non_null(log);
	for (int i = 0; i < 100; i++)
		ha_eventlog_write(log, &event);
	assert_int_equal(stat(path, &st), 0);
	assert_in_range(st.st_size, 3000, 4096);
	assert_int_equal(captured_warnings, 1);
	assert_true(logged("it is as long as HA_NCCL_EVENT_LOG_MB allows; events are missing"));
	assert_int_equal(truncate(path, 0), 0);
	ha_eventlog_write(log, &event);
	assert_int_equal(lines_in(path), 1);
	assert_int_equal(captured_warnings, 2);
	assert_true(logged("goes on; "));
	ha_eventlog_close(log);
	ha_log_set_sink(NULL);
}

static void a_limit_on_files_is_a_warning_and_no_signal(void **state)
{
	pid_t pid = fork();
	int status;

	(void)state;
	if (pid == 0) {
		struct ha_event event = a_switch();
		struct rlimit limit;
		struct ha_eventlog *log;

		signal(SIGXFSZ, SIG_DFL);
		getrlimit(RLIMIT_FSIZE, &limit);
		limit.rlim_cur = 4096;
		if (setrlimit(RLIMIT_FSIZE, &limit) != 0)
			_exit(2);
		capture_log();
		log = ha_eventlog_open(path, 0);
		for (int i = 0; i < 20; i++)
			ha_eventlog_write(log, &event);
		ha_eventlog_close(log);
		_exit(captured_warnings != 1 || !logged("(ulimit -f)"));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_true(lines_in(path) > 2);
}

#define EVENTS_MORE 3

/* On a file system of its own, which is full for a while, and never at the end of a line. 77: it
 * cannot be made here. */
static void run_on_a_full_disk(void)
{
	char mount_point[300], name[320], filler[320], line[16384];
	struct ha_event event = a_switch();
	struct ha_eventlog *log;
	static char zeros[4096];
	int good = 0, bad = 0, fd;
	FILE *file;

	snprintf(mount_point, sizeof(mount_point), "%s/full", dir);
	if (unshare(CLONE_NEWNS | (geteuid() == 0 ? 0 : CLONE_NEWUSER)) != 0 ||
	    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
	    mkdir(mount_point, 0700) != 0 ||
	    mount("none", mount_point, "tmpfs", 0, "size=64k") != 0)
		_exit(77);
	snprintf(name, sizeof(name), "%s/events", mount_point);
	snprintf(filler, sizeof(filler), "%s/filler", mount_point);
	capture_log();
	log = ha_eventlog_open(name, 0);
	fd = open(filler, O_CREAT | O_WRONLY, 0600);
	for (int i = 0; i < 12; i++)
		if (write(fd, zeros, sizeof(zeros)) != sizeof(zeros))
			_exit(2);
	for (int i = 0; i < 200; i++)
		ha_eventlog_write(log, &event);
	if (captured_warnings != 1 || !logged("events are missing there from now on"))
		_exit(3);
	unlink(filler);
	close(fd);
	for (int i = 0; i < EVENTS_MORE; i++)
		ha_eventlog_write(log, &event);
	if (captured_warnings != 2 || !logged("goes on; "))
		_exit(4);
	ha_eventlog_close(log);
	file = fopen(name, "r");
	while (fgets(line, sizeof(line), file)) {
		json_t *object = json_loads(line, 0, NULL);

		good += object != NULL;
		bad += object == NULL;
		json_decref(object);
	}
	fclose(file);
	umount(mount_point);
	rmdir(mount_point);
	_exit(good < 5 + EVENTS_MORE || bad != 1);
}

static void a_disk_that_was_full_costs_one_line_and_the_rest_is_whole(void **state)
{
	pid_t pid = fork();
	int status;

	(void)state;
	if (pid == 0)
		run_on_a_full_disk();
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
		char mount_point[300];

		snprintf(mount_point, sizeof(mount_point), "%s/full", dir);
		rmdir(mount_point);
		print_message("no file system can be mounted here\n");
		skip();
	}
	assert_int_equal(status, 0);
}

static void without_a_name_there_is_no_log(void **state)
{
	struct ha_event event = a_switch();

	(void)state;
	capture_log();
	assert_null(ha_eventlog_open("", 0));
	ha_eventlog_write(NULL, &event);
	ha_eventlog_close(NULL);
	assert_string_equal(captured_log, "");
	ha_log_set_sink(NULL);
}

int main(void)
{
#define WITH_FILE(test) cmocka_unit_test_setup_teardown(test, choose_path, remove_file)
	const struct CMUnitTest tests[] = {
	    WITH_FILE(a_switch_has_every_member),
	    WITH_FILE(what_does_not_apply_is_null),
	    WITH_FILE(the_time_is_iso_8601_and_now),
	    WITH_FILE(any_bytes_are_escaped),
	    WITH_FILE(texts_of_any_length_leave_a_whole_line),
	    WITH_FILE(the_name_may_hold_process_and_host),
	    WITH_FILE(an_existing_file_is_continued),
	    WITH_FILE(processes_and_threads_share_a_file),
	    WITH_FILE(a_file_that_cannot_be_opened_is_one_warning),
	    WITH_FILE(a_pipe_is_refused_with_and_without_a_reader),
	    WITH_FILE(a_full_disk_is_one_warning_and_no_failure),
	    WITH_FILE(a_link_is_not_followed_and_the_file_is_not_everybodys),
	    WITH_FILE(the_name_may_hold_the_job),
	    WITH_FILE(a_file_that_was_renamed_or_removed_is_made_anew),
	    WITH_FILE(it_grows_to_its_limit_and_goes_on_after_rotation),
	    WITH_FILE(a_limit_on_files_is_a_warning_and_no_signal),
	    WITH_FILE(a_disk_that_was_full_costs_one_line_and_the_rest_is_whole),
	    WITH_FILE(without_a_name_there_is_no_log),
	};

	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
