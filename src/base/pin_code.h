/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Code that must be there when the network is not.
 *
 * What moves a connection to another path runs for the first time when a path fails. Until then the
 * kernel has not read it from its file, which may lie behind that very network; and it may drop
 * what it has read, in a node short of memory.
 */
#ifndef HA_BASE_PIN_CODE_H
#define HA_BASE_PIN_CODE_H

#include <stddef.h>

/*
 * Reads the code and constants of this library, of libibverbs and of its providers that are loaded,
 * and locks them in memory where RLIMIT_MEMLOCK permits. Returns how many bytes were locked.
 * Calling it again does no harm. Any thread.
 */
size_t ha_keep_resident(void);

#endif
