/* SPDX-License-Identifier: Apache-2.0 */
/* Making one end of a path. */
#ifndef HA_TRANSPORT_PATH_OPEN_H
#define HA_TRANSPORT_PATH_OPEN_H

#include "base/result.h"

#include <stdint.h>

struct ha_comm;
struct ha_path;
struct ha_port;
struct ha_wire_endpoint;

struct ha_path_options {
	struct ha_port *port;
	uint8_t index;
	uint32_t generation;
	uint8_t nqps;
	/* The peer's end, if it is known, with sl and traffic class: what is opened by a command is
	 * connected to it by the same. NULL: not. */
	const struct ha_wire_endpoint *remote;
};

/* Queue pairs in INIT with full receive queues, completion queue, ring registration. */
ha_result_t ha_path_open(struct ha_comm *comm, const struct ha_path_options *options,
			 struct ha_path **out) HA_MUST_CHECK;

/*
 * The same without waiting, by a command of the NIC: until it is back (ha_path_away) the path is
 * nobody else's; then `outcome` says what came of it. NULL: no memory.
 */
struct ha_path *ha_path_start_opening(struct ha_comm *comm, const struct ha_path_options *options);

#endif
