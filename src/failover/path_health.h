/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The health of a path, as a table: what a path is good for, given what heartbeats, probes and
 * fences say. Traffic may use a path that is GOOD or SUSPECTED.
 *
 * This is neither the state of a port nor that of a device: those are in device/, come from the
 * driver's events and are the same for all connections, while a path fails and recovers by itself.
 * A peer that restarts makes paths fail and leaves our healthy NIC healthy.
 */
#ifndef HA_FAILOVER_PATH_HEALTH_H
#define HA_FAILOVER_PATH_HEALTH_H

#include <stdbool.h>
#include <stdint.h>

/* X(NAME, "name") */
#define HA_HEALTH_STATES(X)                                                                        \
	X(GOOD, "good") /* proved, and nothing speaks against it */                                \
	X(SUSPECTED,                                                                               \
	  "suspected")	    /* a heartbeat is missing or far too slow: in use, be prepared */      \
	X(FAILED, "failed") /* of no use until it is rebuilt */                                    \
	X(RECOVERING, "recovering") /* rebuilt and not proved yet */

#define HA_HEALTH_EVENTS(X)                                                                        \
	X(MISSED, "heartbeat missed")                                                              \
	X(ANSWERED, "heartbeats back")                                                             \
	X(EXPIRED, "heartbeats expired")                                                           \
	X(FENCED, "fenced")   /* for whatever reason: trigger, peer, rebuild */                    \
	X(REBUILT, "rebuilt") /* a new generation, connected */                                    \
	X(PROBE_OK, "probe came back")                                                             \
	X(PROBE_FAILED, "probe failed")

enum ha_health {
#define HA_HEALTH_ENUM(name, text) HA_HEALTH_##name,
	HA_HEALTH_STATES(HA_HEALTH_ENUM)
#undef HA_HEALTH_ENUM
	    HA_HEALTH_COUNT
};

enum ha_health_event {
#define HA_HEALTH_ENUM(name, text) HA_HEALTH_EVENT_##name,
	HA_HEALTH_EVENTS(HA_HEALTH_ENUM)
#undef HA_HEALTH_ENUM
	    HA_HEALTH_EVENT_COUNT
};

/* What the owner of the path has to do about a step. */
enum ha_health_action {
	HA_HEALTH_NOTHING,
	HA_HEALTH_PREPARE, /* warn; register the memory in use on the standby's device */
	HA_HEALTH_RELAX,   /* say that it was nothing */
	HA_HEALTH_LEAVE,   /* fence it; if traffic is on it, fail over */
	HA_HEALTH_PROBE,   /* prove that it works */
	HA_HEALTH_RETRY,   /* no need to wait before it is rebuilt */
};

struct ha_health_step {
	uint8_t next;	/* enum ha_health */
	uint8_t action; /* enum ha_health_action */
};

struct ha_health_step ha_health_step(enum ha_health state, enum ha_health_event event);

static inline bool ha_health_usable(enum ha_health state)
{
	return state == HA_HEALTH_GOOD || state == HA_HEALTH_SUSPECTED;
}

const char *ha_health_name(unsigned state);
const char *ha_health_event_name(unsigned event);

#endif
