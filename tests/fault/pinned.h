/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs that have once been found wrong, held to what they are today by their cause. Where a fault
 * lands is a number of events, and any change of the code shifts that; so a pin is a neighbourhood
 * of places, and what the log must say for a run to be the one that is meant. A pin of a run that
 * is still wrong fails as soon as it is mended, or wrong in another way; one of a run that was
 * mended fails as soon as it is wrong again, or is not met any more.
 */
#ifndef HA_TESTS_FAULT_PINNED_H
#define HA_TESTS_FAULT_PINNED_H

#include "run.h"

#include <stdio.h>

/* Who plays the runs. What it returns is the run's log, until the next one. */
struct pin_player {
	const char *(*play)(void *arg, const struct run_spec *spec, struct run_result *result);
	void *arg;
};

/*
 * Reads pins from `in`, which messages call `path`, has all their runs played and says on `out`
 * what each has come to. Returns how many pins fail; a line that is no pin is one.
 */
unsigned pinned_check(const struct pin_player *player, const char *path, FILE *in, FILE *out);

#endif
