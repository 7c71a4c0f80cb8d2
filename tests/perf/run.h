/* SPDX-License-Identifier: Apache-2.0 */
/* Running nccl-net-perf from a test: its output, its exit status, and an end to it in any case. */
#ifndef TEST_PERF_RUN_H
#define TEST_PERF_RUN_H

#include <sys/types.h>

/* A run may take this long in all; sanitizers and a busy machine included. */
#define RUN_LIMIT_S 100

struct child {
	pid_t pid; /* leader of its own process group */
	int out;   /* standard output and error of it and its ranks */
	double begun_s;
};

struct outcome {
	int status; /* exit status; -signal if it died of one; -1000 if it did not end */
	double seconds;
	char text[16384]; /* what it printed, cut there */
};

/* `environment` is a list of names and values, NULL at its end; may be NULL. */
void run_start(struct child *child, const char *const *argv, const char *const *environment);

/* Waits for its end; kills the whole group when the limit is over. */
void run_wait(struct child *child, struct outcome *outcome);

/* Both. */
void run(const char *const *argv, const char *const *environment, struct outcome *outcome);

/* Fails the test, with all that was printed: cmocka's own messages end after 1 KiB. */
_Noreturn void run_fail(const struct outcome *outcome, const char *why, ...)
    __attribute__((format(printf, 2, 3)));

double run_now_s(void);

#endif
