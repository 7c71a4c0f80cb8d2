/* SPDX-License-Identifier: Apache-2.0 */
/* Small things that several files of the transport need. */
#ifndef HA_TRANSPORT_UTIL_H
#define HA_TRANSPORT_UTIL_H

#include <stddef.h>
#include <stdint.h>

/* Not predictable by a stranger: cookies, packet sequence numbers, attempt numbers. Never 0. */
uint64_t ha_random(void);

/* Copies what fits and terminates. */
void ha_copy_text(char *out, size_t size, const char *text);

#endif
