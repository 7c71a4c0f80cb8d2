/* SPDX-License-Identifier: Apache-2.0 */
/* The state machine of a failover. */
#include "ha/failover.h"

#include "transport/comm.h"

#include <stdarg.h>
#include <stdio.h>

void ha_failover_trigger(struct ha_comm *comm, struct ha_path *path, enum ha_reason reason,
			 const char *fmt, ...)
{
	char text[256];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	ha_comm_fail(comm, HA_ERR_SYSTEM, "%s: %s", ha_reason_text(reason), text);
	ha_path_fence(path);
}
