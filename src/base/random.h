/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers. */
#ifndef HA_BASE_RANDOM_H
#define HA_BASE_RANDOM_H

#include <stdbool.h>
#include <stdint.h>

/* False, with a WARN, where nothing is to be had that a stranger could not guess. Asked once, at
 * the start. */
bool ha_random_works(void);

/* Not predictable by a stranger: secrets, packet sequence numbers, attempt numbers. Never 0. */
uint64_t ha_random(void);

#endif
