/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading a mapped file of somebody else, who may cut it meanwhile: touching what is gone raises
 * SIGBUS. For a program with one thread.
 */
#ifndef NP_UNLESS_CUT_H
#define NP_UNLESS_CUT_H

#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

static sigjmp_buf np_file_was_cut;

static inline void np_on_sigbus(int number)
{
	(void)number;
	siglongjmp(np_file_was_cut, 1);
}

/* Calls read, which is left where it is when the file was cut: then false. */
static inline bool np_unless_cut(void (*read)(void *arg), void *arg)
{
	struct sigaction act = {.sa_handler = np_on_sigbus}, before;
	volatile bool whole = false;

	sigaction(SIGBUS, &act, &before);
	if (sigsetjmp(np_file_was_cut, 1) == 0) {
		read(arg);
		whole = true;
	}
	sigaction(SIGBUS, &before, NULL);
	return whole;
}

#endif
