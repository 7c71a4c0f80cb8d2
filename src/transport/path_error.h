/* SPDX-License-Identifier: Apache-2.0 */
/* What says that a path has failed and is not a completion: verbs that fail. [T] */
#ifndef HA_TRANSPORT_PATH_ERROR_H
#define HA_TRANSPORT_PATH_ERROR_H

#include "base/result.h"
#include "event/reason.h"

struct ha_comm;
struct ha_path;

/*
 * A path has failed: a trigger, or without failover the latched error `code` with the same text.
 * Silent on a path that is being fenced. Under the token, like the one below.
 */
void ha_comm_path_failed(struct ha_comm *comm, struct ha_path *path, enum ha_reason reason,
			 ha_result_t code, const char *fmt, ...)
    __attribute__((format(printf, 5, 6), cold));
/* A verb failed with errno-style `rc`. */
void ha_comm_verb_failed(struct ha_comm *comm, struct ha_path *path, enum ha_reason reason,
			 const char *verb, int rc) __attribute__((cold));

/*
 * Memory could not be registered on the path's device: its failure if the device does not answer,
 * the connection's if it does (no memory, no memory keys), since another path would meet the same.
 */
void ha_comm_registration_failed(struct ha_comm *comm, const struct ha_path *path, const char *what)
    __attribute__((cold));

#endif
