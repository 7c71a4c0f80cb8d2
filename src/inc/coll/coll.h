/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A collective group as NCCL has one, or a program by itself: a member of a group (inc/host/host.h)
 * with a thread that moves it when nobody calls, registered memory, and requests that are asked for
 * and tested.
 *
 * Any thread, the ones that NCCL calls from at once; nobody waits for the lock where a message's
 * time counts: who does not get it is told "not now" or "not yet", as its holder moves everything.
 * Every failure while it is opened is told in one WARN, and so is each switch that is lost, and the
 * end of a group with an error; each is an event, too.
 */
#ifndef HA_INC_COLL_COLL_H
#define HA_INC_COLL_COLL_H

#include "base/config.h"
#include "base/stats.h"
#include "device/device.h"
#include "event/event_log.h"
#include "inc/host/host.h"
#include "memory/mr.h"

#include <stdbool.h>
#include <stddef.h>

struct ha_coll;
struct ha_coll_request;

struct ha_coll_wish {
	const struct ha_config *config;
	struct ha_stats *stats;	    /* NULL: none */
	struct ha_eventlog *events; /* NULL: none */
	struct ha_device_set *set;
	struct ha_port *port;
	const char *group; /* its name, the same at all ranks; NULL: rank 0's cannot be read */
	unsigned int rank, ranks;
	bool reads_events; /* of the NICs: nobody else does */
	bool is_nccl; /* HA_NCCL_INC_MIN_RANKS holds, and memory is a GPU's where the NIC can */
	char *why;    /* HA_HOST_WHY bytes: why it is refused; NULL: nobody asks */
};

/*
 * Waits for all ranks, at most HA_NCCL_INC_CONNECT_MS, and fails at all of them or at none:
 * what any of them lacks, or does not agree about, all are refused for. Not HA_OK: as
 * ha_host_open(), or HA_ERR_ARGUMENT: of the configuration; *out is NULL, and nothing is left.
 */
ha_result_t ha_coll_open(const struct ha_coll_wish *wish, struct ha_coll **out) HA_MUST_CHECK;

/* Of a unit, the same at all ranks. */
size_t ha_coll_unit_bytes(const struct ha_coll *coll);
/* As ha_host_why. Waits for the lock. */
void ha_coll_why(struct ha_coll *coll, char why[HA_HOST_WHY]);

/* Memory of hosts alone, which stays until ha_mr_deregister. May wait for the device. */
ha_result_t ha_coll_register(struct ha_coll *coll, void *data, size_t size, int type,
			     struct ha_mr **out) HA_MUST_CHECK;

struct ha_coll_all_reduce {
	enum ha_reduce_type type;
	enum ha_reduce_op op;
	size_t count; /* elements */
	const void *send;
	void *recv;
	struct ha_mr *send_mr, *recv_mr;
	bool is_empty; /* as of struct ha_all_reduce */
};

/* All ranks ask for the same in the same order. HA_OK with *request NULL: not now. */
ha_result_t ha_coll_all_reduce(struct ha_coll *coll, const struct ha_coll_all_reduce *ask,
			       struct ha_coll_request **request) HA_MUST_CHECK;

/* *done, or an error: the request is free and its memory the caller's. *bytes: of the result. */
ha_result_t ha_coll_test(struct ha_coll_request *request, bool *done, size_t *bytes) HA_MUST_CHECK;

/* Waits until all ranks have what this one has asked for, at most HA_NCCL_OUTAGE_MS; with requests
 * that are not done it waits for nobody, and the others hear that this one is gone. NULL is fine.
 */
void ha_coll_close(struct ha_coll *coll);

#endif
