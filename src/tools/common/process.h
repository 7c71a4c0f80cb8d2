/* SPDX-License-Identifier: Apache-2.0 */
/* Starting programs: ranks, and the simverbs tool. */
#ifndef NP_PROCESS_H
#define NP_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/*
 * Starts argv, which dies with this process, with no signal blocked. Its standard output goes to
 * out_fd unless that is -1. Returns the process id, or -1 with errno.
 */
pid_t np_spawn(const char *const *argv, int out_fd);

/*
 * Runs argv to its end, at most timeout_s seconds, and returns what it printed on standard output
 * (the caller frees it), or NULL with a reason in err if it did not exit with status 0.
 */
char *np_run_tool(const char *const *argv, double timeout_s, char *err, size_t err_len);

/* execvp, which does not change the strings though its type says that it may. */
void np_exec(const char *const *argv);

/* The path of the running program. */
bool np_own_path(char *path, size_t len);

#endif
