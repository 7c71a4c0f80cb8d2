/* SPDX-License-Identifier: Apache-2.0 */
/* Completions that report an error. [T] */
#ifndef HA_TRANSPORT_WC_ERROR_H
#define HA_TRANSPORT_WC_ERROR_H

#include <infiniband/verbs.h>

struct ha_comm;
struct ha_path;

/* A completion that is not a success, of a queue pair that is the path's. */
void ha_comm_completion_failed(struct ha_comm *comm, struct ha_path *path, const struct ibv_wc *wc)
    __attribute__((cold));

#endif
