/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Environment variables of one side of a comparison.
 *
 * Plugins read their variables when they are initialised and when they connect; during these, and
 * only then, the variables of that side are set. The service thread does both, and no other thread
 * reads the environment meanwhile.
 */
#ifndef NP_SETTINGS_H
#define NP_SETTINGS_H

#include <stdbool.h>

#define NP_MAX_SETTINGS 16

struct np_settings {
	const char *pairs[NP_MAX_SETTINGS]; /* NAME=VALUE */
	int count;
};

/* What they hid, to be put back. */
struct np_hidden {
	char *values[NP_MAX_SETTINGS]; /* NULL: was not set */
};

/* False when it is no NAME=VALUE, or one too many. */
bool np_settings_add(struct np_settings *s, const char *pair);
/* In a value {rank} stands for the rank's number. False when memory is out; nothing is changed
 * then. */
bool np_settings_apply(const struct np_settings *s, int rank, struct np_hidden *hidden);
void np_settings_restore(const struct np_settings *s, struct np_hidden *hidden);

#endif
