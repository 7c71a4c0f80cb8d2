/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two numbers that only the two ends of a connection know: who dials a socket says `ask` and waits
 * for `answer`. Never the same bytes in both directions, so that whoever merely repeats what it
 * hears, be it a program at a port that was taken over or a socket connected to itself, proves
 * nothing.
 */
#ifndef HA_TRANSPORT_SECRETS_H
#define HA_TRANSPORT_SECRETS_H

#include "base/random.h"

#include <stdbool.h>
#include <stdint.h>

struct ha_secrets {
	uint64_t ask, answer; /* 0: none are known */
};

static inline struct ha_secrets ha_secrets_new(void)
{
	return (struct ha_secrets){.ask = ha_random(), .answer = ha_random()};
}

static inline bool ha_secrets_known(const struct ha_secrets *secrets)
{
	return secrets->ask != 0 && secrets->answer != 0;
}

#endif
