/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When things happen on a kind of device: what a retry waits for, what a command takes, how late
 * an event is. EXACT is the specification's formulas and no delays. MLX5 is what was measured on
 * ConnectX-6, where a measurement is published; docs/simverbs.md says which these are, and what
 * lies between them.
 */
#ifndef SV_PROFILE_H
#define SV_PROFILE_H

#include "fault.h"

#include <stdbool.h>
#include <stdint.h>

enum sv_profile { SV_PROFILE_EXACT, SV_PROFILE_MLX5 };

/* By its name; -1: there is no such profile. */
int sv_profile_by_name(const char *name);
const char *sv_profile_name(enum sv_profile profile);

/* How long a queue pair with this timeout (1 to 31) waits for an acknowledgement when it has timed
 * out `times` times since the last one. */
uint64_t sv_profile_retry_ns(enum sv_profile profile, uint8_t timeout, uint32_t times);

/* What becomes of the queue pair when that time is over, with this many retries left. */
enum sv_retry { SV_RETRY_FREE, SV_RETRY_SPEND, SV_RETRY_EXCEEDED };
enum sv_retry sv_profile_retry(enum sv_profile profile, uint8_t timeout, uint32_t times,
			       uint32_t retries_left);

/* What a command takes where no rule says anything. */
uint64_t sv_profile_command_ns(enum sv_profile profile, enum sv_verb verb);

/* How much later than the port's state its event is when the carrier is lost; `random` decides
 * where there is a range. */
uint64_t sv_profile_carrier_event_ns(enum sv_profile profile, uint64_t random);

#endif
