/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A snapshot in Prometheus' text format. Names, types and help follow from stats.h: what is counted
 * there is a metric here.
 *
 * The number of series is bounded by processes and their ports, unless each connection is asked
 * for.
 */
#ifndef NH_EXPOSITION_H
#define NH_EXPOSITION_H

#include "tools/nccl-ha/snapshot.h"

/* The text, which the caller frees, and its length; NULL: no memory. Every family is there, also
 * where it has no sample. */
char *nh_exposition(const struct nh_snapshot *snapshot, bool connections, size_t *length);

#endif
