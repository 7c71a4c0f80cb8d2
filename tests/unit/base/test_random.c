/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers where the kernel's call is filtered: nobody can guess them, or there are none. */
#include "../captured_log.h"
#include "../cmocka_all.h"

#include "base/clock.h"
#include "base/random.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

static bool no_getrandom, no_urandom;
static unsigned filtered;

ssize_t __real_getrandom(void *buf, size_t length, unsigned flags);
ssize_t __wrap_getrandom(void *buf, size_t length, unsigned flags);
int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);

ssize_t __wrap_getrandom(void *buf, size_t length, unsigned flags)
{
	if (!no_getrandom)
		return __real_getrandom(buf, length, flags);
	filtered++;
	errno = ENOSYS;
	return -1;
}

int __wrap_open(const char *path, int flags, ...)
{
	if (no_urandom && !strcmp(path, "/dev/urandom")) {
		errno = ENOENT;
		return -1;
	}
	return __real_open(path, flags);
}

/* Each in a process of its own, where nothing is known yet; what it returns is its status. */
static int in_a_process(int (*run)(void))
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (pid == 0)
		_exit(run());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static int compare(const void *a, const void *b)
{
	return (*(const uint64_t *)a > *(const uint64_t *)b) -
	       (*(const uint64_t *)a < *(const uint64_t *)b);
}

/* How many of many numbers are equal or zero, or differ from the one before in few bits. */
static unsigned suspicious(void)
{
	static uint64_t numbers[4096];
	unsigned bad = 0;

	for (size_t i = 0; i < 4096; i++) {
		numbers[i] = ha_random();
		bad += numbers[i] == 0;
		bad += i > 0 && __builtin_popcountll(numbers[i] ^ numbers[i - 1]) < 8;
	}
	qsort(numbers, 4096, sizeof(numbers[0]), compare);
	for (size_t i = 1; i < 4096; i++)
		bad += numbers[i] == numbers[i - 1];
	return bad;
}

static int without_getrandom(void)
{
	no_getrandom = true;
	capture_log();
	if (!ha_random_works() || captured_warnings != 0)
		return 1;
	no_urandom = true; /* no descriptor is left: it is not needed any more */
	return suspicious() != 0 || filtered == 0 || captured_warnings != 0 ? 2 : 0;
}

/* The weak ones were the time and the process, multiplied. */
static int a_guesser(void)
{
	const uint64_t inverse = 0xf1de83e19937733dull; /* of 0x9e3779b97f4a7c15 modulo 2^64 */
	uint64_t before_ns, guess;

	no_getrandom = true;
	if (!ha_random_works())
		return 1;
	before_ns = ha_now_ns();
	guess = ha_random() * inverse ^ (uint64_t)getpid() << 32;
	return guess >= before_ns && guess <= ha_now_ns() ? 2 : 0;
}

static int with_nothing(void)
{
	no_getrandom = no_urandom = true;
	capture_log();
	return ha_random_works() || captured_warnings != 1 ||
	       !logged("no random numbers: neither getrandom nor /dev/urandom works");
}

static int lost_later(void)
{
	capture_log();
	if (!ha_random_works() || suspicious())
		return 1;
	no_getrandom = no_urandom = true;
	if (suspicious())
		return 2;
	return captured_warnings != 1 || !logged("any more");
}

static void without_the_kernels_call_numbers_come_from_a_secret_key(void **state)
{
	(void)state;
	assert_int_equal(in_a_process(without_getrandom), 0);
	assert_int_equal(in_a_process(a_guesser), 0);
}

static void without_a_secret_there_is_a_warning_and_no_beginning(void **state)
{
	(void)state;
	assert_int_equal(in_a_process(with_nothing), 0);
}

static void what_is_lost_later_is_a_warning_and_still_not_guessed(void **state)
{
	(void)state;
	assert_int_equal(in_a_process(lost_later), 0);
}

static void two_processes_have_different_numbers(void **state)
{
	uint64_t childs, own;
	int fds[2];

	(void)state;
	no_getrandom = true;
	assert_true(ha_random_works());
	assert_int_equal(pipe(fds), 0);
	if (fork() == 0) {
		childs = ha_random();
		_exit(write(fds[1], &childs, sizeof(childs)) != sizeof(childs));
	}
	own = ha_random();
	assert_int_equal(read(fds[0], &childs, sizeof(childs)), sizeof(childs));
	assert_true(childs != own);
	wait(NULL);
	close(fds[0]);
	close(fds[1]);
	no_getrandom = false;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(without_the_kernels_call_numbers_come_from_a_secret_key),
	    cmocka_unit_test(without_a_secret_there_is_a_warning_and_no_beginning),
	    cmocka_unit_test(what_is_lost_later_is_a_warning_and_still_not_guessed),
	    cmocka_unit_test(two_processes_have_different_numbers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
