/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel says about this process: the things a plugin can leak. */
#ifndef CHECK_PROCESS_H
#define CHECK_PROCESS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

int process_threads(void);
int process_fds(void);
/* 0 under a sanitizer, whose memory is no measure. */
long process_rss_kib(void);
/* Bytes handed out by malloc. */
size_t process_heap(void);
/* 0 under a sanitizer, likewise. */
int process_map_count(void);
/* Is this file mapped? */
bool process_maps(const char *path);
/* For how long a thread, of whatever process, was ready and had no processor; 0 where the kernel
 * does not say. */
uint64_t thread_queued_ns(pid_t tid);
/* For how long a thread of this process was ready and had no processor, the longest; 0 where the
 * kernel does not say. */
uint64_t process_queued_ns(void);
/* Addresses of the TCP sockets this process listens on; returns how many (at most max). */
int process_tcp_listeners(struct sockaddr_storage *addrs, int max);

#endif
