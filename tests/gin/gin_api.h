/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any version of NCCL's tables for puts and signals, in the form of version 11, as NCCL's own
 * loaders put a newer one in front of an older one: whoever drives version 11 drives them all. Of
 * one version and one communicator at a time.
 */
#ifndef HA_TESTS_GIN_GIN_API_H
#define HA_TESTS_GIN_GIN_API_H

#include "nccl_ha/nccl_gin.h"

#define GIN_API_CONTEXTS 3 /* of a communicator, where there are contexts; used in turn */

enum gin_api { GIN_V11, GIN_V12, GIN_V13, RMA_V13, RMA_V14, GIN_APIS };

extern const char *const gin_api_symbols[GIN_APIS];

/* A version's symbol as version 11. */
const ncclGin_v11_t *gin_api_load(enum gin_api api, const void *table);

/* NULL: the version has none. */
typedef ncclResult_t gin_api_get(uint64_t from_offset, void *from, size_t size, uint64_t to_offset,
				 void *to, uint32_t rank, void **request);
typedef ncclResult_t gin_api_flush(void *mhandle, uint32_t rank, void **request);
gin_api_get *gin_api_iget(void);
gin_api_flush *gin_api_iflush(void);

/* What queryLastError says; -1: the version has none. */
int gin_api_has_error(void);

#endif
