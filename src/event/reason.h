/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a path failed, or was left. Kept apart from the state of the failover: a reason is for people
 * and for statistics; all that it decides is what the next path must show. The numbers travel in
 * control messages.
 */
#ifndef HA_EVENT_REASON_H
#define HA_EVENT_REASON_H

/* X(name, number, text): the text goes to logs, event log and statistics. */
#define HA_REASONS(X)                                                                              \
	X(NONE, 0, "none")                                                                         \
	X(PORT_DOWN, 1, "local port down")                                                         \
	X(DEVICE_FATAL, 2, "local device failed")                                                  \
	X(QP_FATAL, 3, "queue pair failed")                                                        \
	X(CQ_ERROR, 4, "completion queue failed")                                                  \
	X(ADDRESS_CHANGE, 5, "port address changed")                                               \
	X(PEER, 6, "told by the peer")                                                             \
	X(PEER_PORT, 7, "peer's port down")                                                        \
	X(LIVENESS, 8, "heartbeats lost")                                                          \
	X(COMPLETION, 9, "error completion")                                                       \
	X(POST, 10, "posting failed")                                                              \
	X(SOFT_TIMEOUT, 11, "no completion in time")                                               \
	X(PROBE, 12, "probe failed")                                                               \
	X(OPERATOR, 13, "asked for by the operator")                                               \
	X(FAILBACK, 14, "preferred path is back")                                                  \
	X(SICK, 15, "local device does not answer commands")                                       \
	X(REOPENED, 16, "local device is back and was opened again")                               \
	X(MEMORY, 17, "memory cannot be registered")

#include <stdbool.h>

enum ha_reason {
#define HA_REASON_ENUM(name, number, text) HA_REASON_##name = (number),
	HA_REASONS(HA_REASON_ENUM)
#undef HA_REASON_ENUM
	    HA_REASON_COUNT
};

/* "local port down"; "unknown" for a number of a newer peer. */
const char *ha_reason_text(unsigned reason);

/*
 * Nobody said that something failed: what was waited for did not come. It may be the path, a port,
 * or the switch that other paths go through as well.
 */
bool ha_reason_is_silence(enum ha_reason reason);

#endif
