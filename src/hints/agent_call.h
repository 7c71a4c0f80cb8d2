/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request to the agent, and its answer. An agent is believed if it is root's or this user's.
 * Nothing here waits longer than it is told to, whatever is at the other end.
 */
#ifndef HA_HINTS_AGENT_CALL_H
#define HA_HINTS_AGENT_CALL_H

#include "base/agent_frame.h"

#include <sys/types.h>

enum ha_agent_reply {
	HA_AGENT_ANSWERED,
	HA_AGENT_ABSENT,  /* nobody listens, or takes no more */
	HA_AGENT_FOREIGN, /* another user does */
	HA_AGENT_SILENT,  /* somebody listens, and did not answer in time */
	HA_AGENT_GARBLED, /* what was said is no answer */
};

/* Whether `dir` is short enough for the name of a socket. */
bool ha_agent_dir_fits(const char *dir);

/* Whether an agent is there: ANSWERED, ABSENT or FOREIGN. *pid: its number, 0 where the kernel does
 * not tell; another one means that it was started anew. */
enum ha_agent_reply ha_agent_find(const char *dir, pid_t *pid);

/* Says the request and takes one RESPONSE, each within limit_ms. */
enum ha_agent_reply ha_agent_call(const char *dir, const struct ha_agent_frame *request,
				  unsigned limit_ms, struct ha_agent_frame *response);

#endif
