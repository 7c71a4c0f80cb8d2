/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The internal interface: what plugin/ calls, one function per entry of NCCL's table, with sizes
 * as size_t and no NCCL types. The vtable files translate and nothing else.
 *
 * An instance is everything a process has of the plugin: configuration, devices, progress thread,
 * connections. The plugin keeps one, reference-counted by init and finalize; tests make one per
 * simulated host.
 *
 * Threads: see include/nccl_ha/nccl_net.h. connect, accept, isend, irecv, iflush and test never
 * wait. close and deregMr always succeed. An error of a connection is latched: every later call
 * on it returns the same code.
 */
#ifndef HA_TRANSPORT_TRANSPORT_H
#define HA_TRANSPORT_TRANSPORT_H

#include "base/config.h"
#include "base/hot.h"
#include "base/result.h"
#include "device/device.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HA_HANDLE_MAX	       128
#define HA_TRAFFIC_CLASS_UNDEF (-1)

struct ha_instance;
struct ha_comm;	  /* one direction of a connection: a send comm or a receive comm */
struct ha_listen; /* a listening endpoint */
struct ha_mr;
struct ha_request;

/* The largest message one isend may carry on this port. */
size_t ha_max_message(const struct ha_port *port);

ha_result_t ha_listen(struct ha_instance *inst, int dev, void *handle,
		      struct ha_listen **out) HA_MUST_CHECK;
/* HA_OK with *out == NULL: not ready, call again with the same handle (state lives in it). */
ha_result_t ha_connect(struct ha_instance *inst, int dev, int traffic_class, void *handle,
		       struct ha_comm **out) HA_MUST_CHECK;
ha_result_t ha_accept(struct ha_listen *listen, struct ha_comm **out) HA_MUST_CHECK;

/* type: enum ha_mem_type; fd and offset for dmabuf only, -1 and 0 otherwise. */
ha_result_t ha_reg_mr(struct ha_comm *comm, void *data, size_t size, int type, uint64_t offset,
		      int fd, struct ha_mr **out) HA_MUST_CHECK;
void ha_dereg_mr(struct ha_comm *comm, struct ha_mr *mr);
/*
 * Memory of the plugin's own that is posted as the application's is: registered on each NIC when it
 * is needed there, without waiting for any. ha_mr_deregister ends it.
 */
ha_result_t ha_reg_later(struct ha_comm *comm, void *data, size_t size,
			 struct ha_mr **out) HA_MUST_CHECK;

/* HA_OK with *out == NULL: cannot start now, call again. *out is always written. */
ha_result_t ha_isend(struct ha_comm *comm, void *data, size_t size, int tag, struct ha_mr *mr,
		     struct ha_request **out) HA_MUST_CHECK HA_CALLED_DIRECTLY;
/*
 * NCCL's hint that it would do without the completion (LL, LL128) changes nothing: what is not
 * tracked cannot be sent again after a failure.
 */
ha_result_t ha_irecv(struct ha_comm *comm, int n, void *const *data, const size_t *sizes,
		     const int *tags, struct ha_mr *const *mrs,
		     struct ha_request **out) HA_MUST_CHECK HA_CALLED_DIRECTLY;
ha_result_t ha_iflush(struct ha_comm *comm, int n, void *const *data, const int *sizes,
		      struct ha_mr *const *mrs, struct ha_request **out) HA_MUST_CHECK;
/* sizes may be NULL; otherwise one value for a send, n for a receive. *done: 0 or 1, as in NCCL. */
ha_result_t ha_test_request(struct ha_request *req, int *done,
			    int *sizes) HA_MUST_CHECK HA_CALLED_DIRECTLY;

static inline ha_result_t HA_MUST_CHECK ha_test(struct ha_request *req, bool *done, int *sizes)
{
	int is_done;
	ha_result_t result = ha_test_request(req, &is_done, sizes);

	*done = is_done != 0;
	return result;
}

void ha_close_send(struct ha_comm *comm);
void ha_close_recv(struct ha_comm *comm);
void ha_close_listen(struct ha_listen *listen);

#endif
