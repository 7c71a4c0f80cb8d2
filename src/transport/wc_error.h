/* SPDX-License-Identifier: Apache-2.0 */
/* Completions that report an error. [T] */
#ifndef HA_TRANSPORT_WC_ERROR_H
#define HA_TRANSPORT_WC_ERROR_H

#include <infiniband/verbs.h>
#include <stdint.h>

struct ha_comm;
struct ha_path;

/* The last failure of a request, to tell a bad path from a bad request. */
struct ha_last_error {
	uint64_t seq; /* its message, or the oldest one at the time; 0: none */
	int status;   /* enum ibv_wc_status */
	int paths;    /* it met one after the other, fresh queue pairs in place counted as one */
	const struct ha_port
	    *port; /* of the last of them; NULL: which was repaired in place since */
};

/* A completion that is not a success, of a queue pair that is the path's. */
void ha_comm_completion_failed(struct ha_comm *comm, struct ha_path *path, const struct ibv_wc *wc)
    __attribute__((cold));

#endif
