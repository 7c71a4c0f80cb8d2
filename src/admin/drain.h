/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an operator's request does to the connections of a process: drains a port before it is
 * pulled, moves a connection, brings them back.
 *
 * A drain is a mark at the port, not an act: whoever chooses a path takes one with such a port only
 * when nothing else is left. The receiver chooses, so it is told of the marks of both ends; what
 * runs over a drained port moves when it has somewhere to go, now or later. The mark goes with the
 * process, or with failback.
 */
#ifndef HA_ADMIN_DRAIN_H
#define HA_ADMIN_DRAIN_H

#include "admin/request.h"

#include <stdbool.h>
#include <stdint.h>

struct ha_comm;
struct ha_instance;

enum ha_admin_outcome {
#define HA_OUTCOME_ENUM(name, word) HA_OUTCOME_##name,
	NCCL_HA_FATES(HA_OUTCOME_ENUM)
#undef HA_OUTCOME_ENUM
	    HA_OUTCOME_COUNT
};

const char *ha_admin_outcome_text(enum ha_admin_outcome outcome);

/* What becomes of a connection, and where it is at the moment. */
struct ha_admin_result {
	uint64_t id; /* the same at both ends */
	bool is_send;
	enum ha_admin_outcome outcome;
	const char *why;    /* a constant; NULL: nothing to add */
	const char *device; /* of the active path; NULL: there is none */
	int port_num;
	unsigned path;
	uint32_t generation, epoch;
	bool home; /* the active path connects the preferred ports */
};

/*
 * Carries it out, and calls `tell` for each connection that the request is about, under the
 * instance's lock and the connection's token. False: there is no such port or connection; nothing
 * was done. Never waits. Progress thread.
 */
bool ha_admin_execute(struct ha_instance *inst, const struct ha_admin_request *request,
		      void (*tell)(void *arg, const struct ha_admin_result *result), void *arg);

#endif
