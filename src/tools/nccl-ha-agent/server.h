/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent as it runs: one thread, which waits for plugins at its socket, for the death of their
 * processes, and for the next step of its policy.
 */
#ifndef NA_SERVER_H
#define NA_SERVER_H

#include "tools/nccl-ha-agent/rules.h"

#include <stdbool.h>

enum na_policy { NA_MANUAL, NA_STATIC, NA_MEASURED };

#define NA_SOCKETS_MAX 64   /* at once; further ones wait in the queue */
#define NA_SILENCE_MS  5000 /* until a request must be there */

struct na_settings {
	const char *dir;
	enum na_policy policy;
	struct na_rules file; /* of NA_STATIC */
};

/* Until SIGINT or SIGTERM, which are to be blocked. Returns an exit status, having said on stderr
 * what is wrong. */
int na_serve(const struct na_settings *settings);

#endif
