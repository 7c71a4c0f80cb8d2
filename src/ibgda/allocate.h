/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that threads of a GPU touch: the program's, or the C library's. */
#ifndef HA_IBGDA_ALLOCATE_H
#define HA_IBGDA_ALLOCATE_H

#include "nccl_ha/ibgda.h"

#include <stdbool.h>
#include <stddef.h>

/* `memory` NULL, or without functions: the C library's. NULL: there is none. */
void *ha_ibgda_allocate(const struct ha_ibgda_memory *memory, size_t alignment, size_t bytes);
void ha_ibgda_release(const struct ha_ibgda_memory *memory, void *at);
/* Whether threads can store to it. */
bool ha_ibgda_has_doorbell(const struct ha_ibgda_memory *memory, void *at, size_t bytes);

#endif
