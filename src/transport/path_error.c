/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What says that a path has failed and is not a completion: verbs that fail. What becomes of it
 * is for whoever keeps the connection alive (failover_ops.h).
 */
#include "transport/path_error.h"
#include "transport/peer_end.h"

#include "base/log.h"
#include "transport/comm.h"
#include "transport/failover_ops.h"
#include "transport/shared.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- reporting ----------------------------------------------------------------------------- */

void ha_comm_path_failed(struct ha_comm *comm, struct ha_path *path, enum ha_reason reason,
			 ha_result_t code, const char *fmt, ...)
{
	char text[512];
	va_list args;

	if (ha_path_stopped(path))
		return; /* our own doing, or known */
	if (atomic_load_explicit(&comm->peer_bye, memory_order_acquire)) {
		if (path->carried)
			ha_comm_settle(comm); /* no failure, but nothing comes of it any more */
		return;
	}
	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	comm->ops->path_failed(
	    comm, path, &(struct ha_path_failure){.reason = reason, .code = code, .text = text});
}

void ha_comm_verb_failed(struct ha_comm *comm, struct ha_path *path, enum ha_reason reason,
			 const char *verb, int rc)
{
	ha_comm_path_failed(comm, path, reason, HA_ERR_SYSTEM, "%s failed on %s:%d: %s (error %d)",
			    verb, path->nic->name, path->port->port_num, strerror(rc), rc);
}

/* As whoever registered found: asking may take as long as the device likes. */
static bool device_answers(const struct ha_path *path)
{
	return !ha_path_device_died(path) && !atomic_load(&path->on->mute);
}

void ha_comm_registration_failed(struct ha_comm *comm, const struct ha_path *path, const char *what)
{
	if (!device_answers(path)) {
		ha_comm_path_failed(
		    comm, comm->paths[path->index], HA_REASON_DEVICE_FATAL, HA_ERR_SYSTEM,
		    "%s cannot be registered on %s, which does not answer", what, path->nic->name);
		return;
	}
	if (!comm->ops->memory_refused(comm, path->nic))
		ha_comm_fail(comm, HA_ERR_SYSTEM,
			     "%s cannot be registered on %s, nor on any other NIC (the log line of "
			     "each says why; locked memory, ulimit -l, is the usual reason)",
			     what, path->nic->name);
}
