/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers. */
#ifndef HA_BASE_RANDOM_H
#define HA_BASE_RANDOM_H

#include <stdint.h>

/* Not predictable by a stranger: secrets, packet sequence numbers, attempt numbers. Never 0. */
uint64_t ha_random(void);

#endif
