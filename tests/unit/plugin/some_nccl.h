/* SPDX-License-Identifier: Apache-2.0 */
/* A library that stands in for NCCL's, to be opened beside the plugin. */
#ifndef TEST_SOME_NCCL_H
#define TEST_SOME_NCCL_H

#include "nccl_ha/nccl_net.h"

#define SHOWN __attribute__((visibility("default")))

SHOWN ncclResult_t ncclGetVersion(int *out);

/* Its logger, as of this version; 0: it does not say which. Forgets what was said. */
SHOWN ncclDebugLogger_t some_nccl(int its_version);

/* The last line, and how it was said. */
SHOWN const char *some_nccl_said(int *level, unsigned long *flags);

#endif
