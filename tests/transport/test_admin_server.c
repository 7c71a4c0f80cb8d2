/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operator's socket: whose it is, what it answers, what it makes of callers who send garbage,
 * or nothing, or do not read, and that it goes when the process does. In one thread and on a
 * virtual clock, so that each call of the client and each round of the process is in its place.
 */
#include "harness.h"
#include "instance/instance.h"

#include "base/clock.h"
#include "base/stats.h"
#include "base/stats_file.h"
#include "base/text.h"
#include "nccl_ha/control.h"

#include <errno.h>
#include <libgen.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- a socket that takes little at a time --------------------------------------------------- */

static bool stingy;
static unsigned sends;

ssize_t __real_send(int fd, const void *data, size_t length, int flags);
/* Seen from outside, for shared objects that send, too. */
__attribute__((visibility("default"))) ssize_t __wrap_send(int fd, const void *data, size_t length,
							   int flags);

ssize_t __wrap_send(int fd, const void *data, size_t length, int flags)
{
	if (!stingy)
		return __real_send(fd, data, length, flags);
	if (sends++ % 2 == 0) {
		errno = EAGAIN;
		return -1;
	}
	return __real_send(fd, data, length < 7 ? length : 7, flags);
}

/* ---- a process with the socket --------------------------------------------------------------- */

struct host {
	struct pair pair;
	const char *dir_before;
	char dir[40], file[HA_STATS_PATH_MAX], socket[128];
};

static void host_open(struct host *host)
{
	host->dir_before = ha_stats_dir;
	strcpy(host->dir, "/tmp/ha-test-console-XXXXXX");
	assert_non_null(mkdtemp(host->dir));
	ha_stats_dir = host->dir;
	pair_init(&host->pair);
	host->pair.config.stats = true;
	host->pair.config.enable_backup = true;
	host->pair.fabric.rails = 2;
	pair_up(&host->pair);
	pair_wait_standby(&host->pair);
	transfer(&host->pair, 5000, 1);
	ha_copy_text(host->file, sizeof(host->file), ha_stats_path(host->pair.inst[0]->stats));
	snprintf(host->socket, sizeof(host->socket), "%s" NCCL_HA_CONTROL_SUFFIX, host->file);
}

static void host_close(struct host *host)
{
	transfer(&host->pair, 5000, 2);
	pair_close(&host->pair);
	assert_int_not_equal(access(host->socket, F_OK), 0);
	assert_int_equal(rmdir(host->dir), 0);
	ha_stats_dir = host->dir_before;
}

static int dial(const char *path)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	ha_copy_text(addr.sun_path, sizeof(addr.sun_path), path);
	if (connect(fd, (const struct sockaddr *)&addr, sizeof(addr)) == 0)
		return fd;
	close(fd);
	return -1;
}

static void say(int fd, const char *text)
{
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
}

/* Rounds until it closes; what it said until then. Fails after a second of its time. */
static const char *hear(struct host *host, int fd)
{
	static char heard[65536];
	size_t length = 0;

	for (unsigned round = 0; round < 20000; round++) {
		ssize_t n = read(fd, heard + length, sizeof(heard) - 1 - length);

		if (n == 0) {
			heard[length] = '\0';
			close(fd);
			return heard;
		}
		if (n > 0)
			length += (size_t)n;
		else
			pair_step(&host->pair);
	}
	fail_msg("no end of the answer: %.*s", (int)length, heard);
	return NULL;
}

static const char *ask(struct host *host, const char *request)
{
	int fd = dial(host->socket);

	assert_true(fd >= 0);
	say(fd, request);
	return hear(host, fd);
}

static void assert_answers(struct host *host, const char *request, const char *begins)
{
	const char *answer = ask(host, request);

	if (strncmp(answer, begins, strlen(begins)) != 0)
		fail_msg("'%s' is answered with '%s' and not '%s'", request, answer, begins);
}

#define ALIVE "nccl-ha 1 status all\n"

/* ---- what it says ---------------------------------------------------------------------------- */

static void an_order_is_carried_out_and_each_connection_told_of(void **state)
{
	char expected[256];
	struct host host;
	const char *end;

	(void)state;
	host_open(&host);
	end = strchr(ask(&host, "nccl-ha 1 failover port sim0:1\n"), '\n');
	snprintf(expected, sizeof(expected),
		 "\nconnection %016llx send moving 0.1 sim0:1 1 home\nend 1\n",
		 (unsigned long long)host.pair.send->id);
	assert_string_equal(end, expected);
	pair_idle(&host.pair, 200);
	transfer(&host.pair, 5000, 3);
	end = strchr(ask(&host, "nccl-ha 1 status port sim0:1\n"), '\n');
	snprintf(expected, sizeof(expected),
		 "\nconnection %016llx send away 1.1 sim1:1 2 elsewhere\nend 1\n",
		 (unsigned long long)host.pair.send->id);
	assert_string_equal(end, expected);
	snprintf(expected, sizeof(expected), "the operator (uid %u, pid %d) asks for", getuid(),
		 getpid());
	assert_logged(expected);
	assert_answers(&host, "nccl-ha 1 failover port sim9:1\n",
		       "nccl-ha 1 error this process has no such port\n");
	assert_answers(&host, "nccl-ha 1 failback connection 0\n",
		       "nccl-ha 1 error this process has no such connection\n");
	host_close(&host);
}

static void an_answer_gets_there_in_pieces(void **state)
{
	char whole[4096];
	struct host host;

	(void)state;
	host_open(&host);
	ha_copy_text(whole, sizeof(whole), ask(&host, ALIVE));
	stingy = true;
	assert_string_equal(ask(&host, ALIVE), whole);
	stingy = false;
	assert_true(sends > 20);
	host_close(&host);
}

/* ---- whose it is ----------------------------------------------------------------------------- */

static void it_is_the_users_alone(void **state)
{
	struct host host;
	struct stat st;

	(void)state;
	host_open(&host);
	assert_int_equal(lstat(host.socket, &st), 0);
	assert_true(S_ISSOCK(st.st_mode));
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(st.st_uid, geteuid());
	host_close(&host);
}

/* Whoever may not ask is shown out without being listened to, perhaps before the order is out. */
static void order_and_hear(int fd, unsigned late_ms, char *text, size_t size)
{
	ssize_t ignored;

	usleep(1000 * late_ms);
	ignored = __real_send(fd, "nccl-ha 1 failover port sim0:1\n", 31, MSG_NOSIGNAL);
	(void)ignored;
	for (int i = 0; i < 500 && read(fd, text, size - 1) <= 0; i++)
		usleep(10000);
}

/* As somebody else: what the process has to say, with its end of the lines. */
static void ask_as_nobody(struct host *host, unsigned late_ms, char *out, size_t size)
{
	const struct passwd *nobody = getpwnam("nobody");
	int fds[2], status;
	pid_t pid;
	ssize_t n;

	assert_non_null(nobody);
	assert_int_equal(pipe(fds), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		char text[256] = "";
		int fd;

		if (setgid(nobody->pw_gid) != 0 || setuid(nobody->pw_uid) != 0)
			_exit(1);
		fd = dial(host->socket);
		if (fd < 0)
			snprintf(text, sizeof(text), "%s", strerror(errno));
		else
			order_and_hear(fd, late_ms, text, sizeof(text));
		_exit(write(fds[1], text, strlen(text)) == (ssize_t)strlen(text) ? 0 : 1);
	}
	close(fds[1]);
	while (waitpid(pid, &status, WNOHANG) == 0)
		ha_instance_progress(host->pair.inst[0]);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	n = read(fds[0], out, size - 1);
	out[n > 0 ? n : 0] = '\0';
	close(fds[0]);
}

static void another_user_is_refused(void **state)
{
	struct host host;
	char text[256], folder[128];

	(void)state;
	if (geteuid() != 0) {
		print_message("as root only: becomes another user\n");
		skip();
	}
	host_open(&host);
	assert_int_equal(chmod(host.dir, 0755), 0);
	ask_as_nobody(&host, 0, text, sizeof(text));
	assert_string_equal(text, "Permission denied");
	/* Nor do modes that somebody has changed make it theirs. */
	assert_int_equal(chmod(host.socket, 0666), 0);
	ha_copy_text(folder, sizeof(folder), host.socket);
	assert_int_equal(chmod(dirname(folder), 0755), 0);
	for (unsigned late_ms = 0; late_ms <= 20; late_ms += 20) {
		ask_as_nobody(&host, late_ms, text, sizeof(text));
		assert_string_equal(text, "nccl-ha 1 error only the job's user and root may ask\n");
	}
	pair_idle(&host.pair, 200);
	assert_int_equal(host.pair.send->count.failovers, 0);
	host_close(&host);
}

static void it_can_be_switched_off(void **state)
{
	(void)state;
	for (int stats = 0; stats < 2; stats++) {
		struct pair pair;

		pair_init(&pair);
		pair.config.control = !stats;
		pair.config.stats = stats && pair.config.stats;
		pair_up(&pair);
		assert_null(pair.inst[0]->admin_server);
		assert_null(pair.inst[1]->admin_server);
		pair_close(&pair);
	}
}

/* Here of the second instance, since the first one has the name. */
static void without_a_socket_there_is_one_line_and_the_job_runs(void **state)
{
	struct host host;

	(void)state;
	host_open(&host);
	assert_non_null(host.pair.inst[0]->admin_server);
	assert_null(host.pair.inst[1]->admin_server);
	assert_logged("no socket for the operator: ");
	assert_logged("Address already in use");
	assert_int_equal(captured_warnings, 0);
	host_close(&host);
}

/* ---- bad callers ----------------------------------------------------------------------------- */

static const struct {
	const char *request, *answer;
} bad[] = {
    {"\n", "begins with nccl-ha"},
    {"nccl-ha\n", "begins with nccl-ha"},
    {"GET / HTTP/1.1\r\n", "begins with nccl-ha"},
    {"nccl-ha 1\n", "is failover, failback or status"},
    {"nccl-ha -1 status all\n", "begins with nccl-ha"},
    {"nccl-ha 99999999999999999999 status all\n", "begins with nccl-ha"},
    {"nccl-ha 2 status all\n", "speaks version 1"},
    {"nccl-ha 1  status all\n", "is failover, failback or status"},
    {"nccl-ha 1 Status all\n", "is failover, failback or status"},
    {"nccl-ha 1 status\n", "port, connection or all"},
    {"nccl-ha 1 status all force\n", "nothing but the force"},
    {"nccl-ha 1 failover all\n", "has nowhere to go"},
    {"nccl-ha 1 failover port\n", "named as mlx5_0:1"},
    {"nccl-ha 1 failover port sim0\n", "named as mlx5_0:1"},
    {"nccl-ha 1 failover port :1\n", "named as mlx5_0:1"},
    {"nccl-ha 1 failover port sim0:0\n", "named as mlx5_0:1"},
    {"nccl-ha 1 failover port sim0:256\n", "named as mlx5_0:1"},
    {"nccl-ha 1 failover port sim0:-1\n", "named as mlx5_0:1"},
    {"nccl-ha 1 failover port sim0:1x\n", "named as mlx5_0:1"},
    {"nccl-ha 1 failover port \033[2Jsim0:1\n", "named as mlx5_0:1"},
    {"nccl-ha 1 failover port sim0:1 forced\n", "nothing but the force"},
    {"nccl-ha 1 failover port sim0:1 force \n", "nothing follows the last"},
    {"nccl-ha 1 failover connection\n", "up to 16 hexadecimal"},
    {"nccl-ha 1 failover connection 0x12\n", "up to 16 hexadecimal"},
    {"nccl-ha 1 failover connection 12345678901234567\n", "up to 16 hexadecimal"},
};

static void garbage_is_told_what_is_wrong_with_it(void **state)
{
	char request[2 * NCCL_HA_CONTROL_REQUEST_MAX];
	struct host host;

	(void)state;
	host_open(&host);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		const char *answer = ask(&host, bad[i].request);

		if (strncmp(answer, "nccl-ha 1 error ", 16) != 0 || !strstr(answer, bad[i].answer))
			fail_msg("'%s' is answered with '%s'", bad[i].request, answer);
	}
	memset(request, 'x', sizeof(request));
	request[sizeof(request) - 1] = '\0';
	assert_answers(&host, request, "nccl-ha 1 error ");
	assert_int_equal(host.pair.send->count.failovers, 0);
	assert_answers(&host, ALIVE, "nccl-ha 1 ok\n");
	host_close(&host);
}

static void who_is_silent_or_slow_is_shown_out(void **state)
{
	static const char request[] = ALIVE;
	struct host host;
	int silent, slow;

	(void)state;
	host_open(&host);
	silent = dial(host.socket);
	slow = dial(host.socket);
	for (size_t i = 0; i + 1 < sizeof(request); i++) { /* a byte each 10 ms will do */
		assert_int_equal(write(slow, request + i, 1), 1);
		pair_idle(&host.pair, 10);
	}
	assert_int_equal(strncmp(hear(&host, slow), "nccl-ha 1 ok\n", 13), 0);
	slow = dial(host.socket);
	for (unsigned s = 0; s < 22; s++) { /* a byte each 100 ms will not */
		ssize_t ignored = __real_send(slow, "n", 1, MSG_NOSIGNAL);

		(void)ignored;
		pair_idle(&host.pair, 100);
	}
	assert_string_equal(hear(&host, silent), "");
	close(slow);
	assert_answers(&host, ALIVE, "nccl-ha 1 ok\n");
	host_close(&host);
}

static void who_does_not_read_is_shown_out(void **state)
{
	struct host host;
	int fd;

	(void)state;
	host_open(&host);
	stingy = true;
	sends = 0;
	fd = dial(host.socket);
	say(fd, ALIVE);
	pair_idle(&host.pair, 1);
	stingy = false; /* it reads after all, and gets the rest */
	assert_non_null(strstr(hear(&host, fd), "end 1\n"));
	fd = dial(host.socket);
	say(fd, ALIVE "more than there is to say");
	assert_int_equal(shutdown(fd, SHUT_WR), 0); /* as with nc */
	assert_non_null(strstr(hear(&host, fd), "end 1\n"));
	host_close(&host);
}

/* As when the process was stopped, and comes to it when whoever asked has given up. */
static void what_nobody_waits_for_is_not_done(void **state)
{
	struct host host;
	int fd;

	(void)state;
	host_open(&host);
	fd = dial(host.socket);
	say(fd, "nccl-ha 1 failover port sim0:1\n");
	close(fd);
	pair_idle(&host.pair, 100);
	assert_int_equal(host.pair.send->count.failovers, 0);
	assert_answers(&host, ALIVE, "nccl-ha 1 ok\n");
	host_close(&host);
}

static void a_flood_keeps_nobody_out(void **state)
{
	struct host host;
	int flood[60];

	(void)state;
	host_open(&host);
	for (unsigned i = 0; i < 60; i++) {
		flood[i] = dial(host.socket);
		assert_true(flood[i] >= 0);
	}
	assert_answers(&host, ALIVE, "nccl-ha 1 ok\n");
	transfer(&host.pair, 20000, 4);
	for (unsigned i = 0; i < 60; i++)
		close(flood[i]);
	assert_answers(&host, ALIVE, "nccl-ha 1 ok\n");
	host_close(&host);
}

#define PER_MS 40
#define KEPT   (12 * PER_MS)

/* Programs that ask for nothing, 40 in each millisecond and for as long as it takes. */
struct crowd {
	int fds[KEPT];
	unsigned dialled;
};

static void crowd_comes(struct crowd *crowd, struct host *host)
{
	for (int i = 0; i < PER_MS; i++, crowd->dialled++) {
		int *fd = &crowd->fds[crowd->dialled % KEPT];

		if (crowd->dialled >= KEPT)
			close(*fd);
		*fd = dial(host->socket);
		assert_true(*fd >= 0);
	}
	pair_idle(&host->pair, 1);
}

static void a_crowd_that_keeps_coming_leaves_the_operator_time_to_speak(void **state)
{
	struct crowd crowd = {.dialled = 0};
	struct host host;

	(void)state;
	host_open(&host);
	for (int ms = 0; ms < 10; ms++)
		crowd_comes(&crowd, &host);
	for (int asked = 0; asked < 3; asked++) {
		int fd = dial(host.socket);

		assert_true(fd >= 0);
		for (int ms = 0; ms < 4; ms++)
			crowd_comes(&crowd, &host);
		assert_int_equal(__real_send(fd, ALIVE, strlen(ALIVE), MSG_NOSIGNAL),
				 (ssize_t)strlen(ALIVE));
		crowd_comes(&crowd, &host);
		assert_int_equal(strncmp(hear(&host, fd), "nccl-ha 1 ok\n", 13), 0);
	}
	for (unsigned i = 0; i < KEPT; i++)
		close(crowd.fds[i]);
	assert_answers(&host, ALIVE, "nccl-ha 1 ok\n");
	host_close(&host);
}

/* ---- what a process leaves behind ------------------------------------------------------------ */

static void leaves_nothing(bool without_file)
{
	char file[HA_STATS_PATH_MAX], socket[128];
	struct host host;
	int fds[2], status;
	pid_t pid;

	assert_int_equal(pipe(fds), 0);
	strcpy(host.dir, "/tmp/ha-test-console-XXXXXX");
	assert_non_null(mkdtemp(host.dir));
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct pair pair;

		ha_stats_dir = host.dir;
		pair_init(&pair);
		pair.config.stats = true;
		pair_open(&pair);
		if (write(fds[1], "x", 1) == 1)
			pause();
		_exit(1);
	}
	close(fds[1]);
	assert_int_equal(read(fds[0], file, 1), 1);
	close(fds[0]);
	snprintf(file, sizeof(file), "%s/nccl-ha-%u/nccl-ha.%u.%d", host.dir, geteuid(), getuid(),
		 pid);
	snprintf(socket, sizeof(socket), "%s" NCCL_HA_CONTROL_SUFFIX, file);
	assert_int_equal(access(socket, F_OK), 0);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(access(socket, F_OK), 0);
	assert_int_equal(access(file, F_OK), 0);
	host.dir_before = ha_stats_dir;
	ha_stats_dir = host.dir;
	assert_int_equal(access(socket, F_OK), 0);
	if (without_file)
		assert_int_equal(unlink(file), 0); /* as an older plugin does */
	assert_int_equal(ha_stats_files_remove_stale(), !without_file);
	ha_stats_dir = host.dir_before;
	assert_int_not_equal(access(socket, F_OK), 0);
	assert_int_not_equal(access(file, F_OK), 0);
	assert_int_equal(rmdir(host.dir), 0);
}

/* Each process clears first. */
static void a_killed_process_leaves_nothing_after_the_next_start(void **state)
{
	(void)state;
	leaves_nothing(false);
	leaves_nothing(true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(an_order_is_carried_out_and_each_connection_told_of),
	    cmocka_unit_test(an_answer_gets_there_in_pieces),
	    cmocka_unit_test(it_is_the_users_alone),
	    cmocka_unit_test(another_user_is_refused),
	    cmocka_unit_test(it_can_be_switched_off),
	    cmocka_unit_test(without_a_socket_there_is_one_line_and_the_job_runs),
	    cmocka_unit_test(garbage_is_told_what_is_wrong_with_it),
	    cmocka_unit_test(who_is_silent_or_slow_is_shown_out),
	    cmocka_unit_test(who_does_not_read_is_shown_out),
	    cmocka_unit_test(what_nobody_waits_for_is_not_done),
	    cmocka_unit_test(a_flood_keeps_nobody_out),
	    cmocka_unit_test(a_crowd_that_keeps_coming_leaves_the_operator_time_to_speak),
	    cmocka_unit_test(a_killed_process_leaves_nothing_after_the_next_start),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
