/* SPDX-License-Identifier: Apache-2.0 */
/* What the two benchmark programs have in common: the host that each is in its children, the
 * signals that end it, its report. */
#ifndef BENCH_PROGRAM_H
#define BENCH_PROGRAM_H

#include <jansson.h>
#include <stdbool.h>

/* This process is host `host` of the memory behind `shared_fd`; returns its exit status, 2 with a
 * word if that is no such memory. */
int bench_be_host(const char *program, int shared_fd, int host);

/* As many open files as the user may have: a connection has a socket at each end. */
void bench_raise_files(void);

/* SIGINT, SIGTERM and SIGHUP set bench_interrupted. */
void bench_catch_signals(void);

/* Writes {program, version, processors, kernel, KEY: list}; the list stays the caller's. False,
 * with a word: it is not there. */
bool bench_write_report(const char *program, const char *path, const char *key, json_t *list);

#endif
