/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linked to programs that are said to have one thread and that the thread sanitizer therefore does
 * not run: none of them, and no library they use, starts another.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* The program's own definition comes before the C library's. */
__attribute__((visibility("default"))) int pthread_create(pthread_t *thread,
							  const pthread_attr_t *attr,
							  void *(*start)(void *), void *argument)
{
	(void)thread, (void)attr, (void)start, (void)argument;
	fputs("a thread is started by a test that is said to have one (ONE_THREAD in its "
	      "CMakeLists.txt): take that back, so that the thread sanitizer runs it\n",
	      stderr);
	abort();
}
