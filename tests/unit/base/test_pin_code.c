/* SPDX-License-Identifier: Apache-2.0 */
/* Code that a failure needs is in memory before, and stays there. */
#include "../cmocka_all.h"

#include "base/pin_code.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE (1 << 20)

/* Nobody looks at it: it lies in the file. */
__attribute__((used)) static const char constants[SIZE] = {1};

/* What smaps says of the mapping in which the address is, KiB. */
static long smaps_kib(const void *address, const char *what)
{
	FILE *file = fopen("/proc/self/smaps", "r");
	unsigned long from, to;
	bool inside = false;
	char line[512];
	long kib = -1;

	assert_non_null(file);
	while (kib < 0 && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			inside = (uintptr_t)address >= from && (uintptr_t)address < to;
		else if (inside && strncmp(line, what, strlen(what)) == 0)
			(void)sscanf(line + strlen(what), ": %ld", &kib);
	}
	fclose(file);
	return kib;
}

static void constants_and_code_are_locked(void **state)
{
	size_t locked = ha_keep_resident();

	(void)state;
	assert_true(locked >= SIZE);
	assert_true(smaps_kib(constants, "Locked") >= SIZE / 1024);
	assert_true(smaps_kib((const void *)(uintptr_t)ha_keep_resident, "Locked") > 0);
	assert_int_equal(smaps_kib(&locked, "Locked"), 0);
	assert_int_equal(ha_keep_resident(), locked);
}

/* In a child: limits that are lowered stay so. */
static void without_the_right_to_lock_they_are_read(void **state)
{
	struct rlimit none = {0, 0};
	long before_kib;
	int status;
	pid_t pid;

	(void)state;
	pid = fork();
	if (pid == 0) {
		if (setrlimit(RLIMIT_MEMLOCK, &none) != 0 || (geteuid() == 0 && setuid(65534) != 0))
			_exit(2);
		before_kib = smaps_kib(constants, "Rss");
		_exit(before_kib < SIZE / 1024 && ha_keep_resident() == 0 &&
			      smaps_kib(constants, "Locked") == 0 &&
			      smaps_kib(constants, "Rss") >= SIZE / 1024
			  ? 0
			  : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(without_the_right_to_lock_they_are_read),
	    cmocka_unit_test(constants_and_code_are_locked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
