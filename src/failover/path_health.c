/* SPDX-License-Identifier: Apache-2.0 */
#include "failover/path_health.h"

#define ROW(state)   [HA_HEALTH_##state]
#define EVENT(event) [HA_HEALTH_EVENT_##event]
#define TO(next, action)                                                                           \
	{                                                                                          \
		HA_HEALTH_##next, HA_HEALTH_##action                                               \
	}

static const struct ha_health_step table[HA_HEALTH_COUNT][HA_HEALTH_EVENT_COUNT] =
    {
	ROW(GOOD) =
	    {
		EVENT(MISSED) = TO(SUSPECTED, PREPARE),
		EVENT(ANSWERED) = TO(GOOD, NOTHING),
		EVENT(EXPIRED) = TO(FAILED, LEAVE),
		EVENT(FENCED) = TO(FAILED, NOTHING),
		EVENT(REBUILT) = TO(RECOVERING, PROBE),
		EVENT(PROBE_OK) = TO(GOOD, NOTHING),
		EVENT(PROBE_FAILED) = TO(FAILED, LEAVE),
	    },
	ROW(SUSPECTED) =
	    {
		EVENT(MISSED) = TO(SUSPECTED, NOTHING),
		EVENT(ANSWERED) = TO(GOOD, RELAX),
		EVENT(EXPIRED) = TO(FAILED, LEAVE),
		EVENT(FENCED) = TO(FAILED, NOTHING),
		EVENT(REBUILT) = TO(RECOVERING, PROBE),
		/* The queue pair works; the heartbeats are still missing. */
		EVENT(PROBE_OK) = TO(SUSPECTED, NOTHING),
		EVENT(PROBE_FAILED) = TO(FAILED, LEAVE),
	    },
	ROW(FAILED) =
	    {
		EVENT(MISSED) = TO(FAILED, NOTHING),
		/* The ports reach each other again: build, do not wait. */
		EVENT(ANSWERED) = TO(FAILED, RETRY),
		EVENT(EXPIRED) = TO(FAILED, NOTHING),
		EVENT(FENCED) = TO(FAILED, NOTHING),
		EVENT(REBUILT) = TO(RECOVERING, PROBE),
		/* Late news of a generation that is fenced. */
		EVENT(PROBE_OK) = TO(FAILED, NOTHING),
		EVENT(PROBE_FAILED) = TO(FAILED, NOTHING),
	    },
	ROW(RECOVERING) =
	    {
		/* The probe decides. */
		EVENT(MISSED) = TO(RECOVERING, NOTHING),
		EVENT(ANSWERED) = TO(RECOVERING, NOTHING),
		EVENT(EXPIRED) = TO(FAILED, LEAVE),
		EVENT(FENCED) = TO(FAILED, NOTHING),
		EVENT(REBUILT) = TO(RECOVERING, PROBE),
		EVENT(PROBE_OK) = TO(GOOD, NOTHING),
		EVENT(PROBE_FAILED) = TO(FAILED, LEAVE),
	    },
};

struct ha_health_step ha_health_step(enum ha_health state, enum ha_health_event event)
{
	return table[state][event];
}

const char *ha_health_name(unsigned state)
{
	static const char *const names[] = {
#define NAME(name, text) text,
	    HA_HEALTH_STATES(NAME)
#undef NAME
	};

	return state < HA_HEALTH_COUNT ? names[state] : "unknown";
}

const char *ha_health_event_name(unsigned event)
{
	static const char *const names[] = {
#define NAME(name, text) text,
	    HA_HEALTH_EVENTS(NAME)
#undef NAME
	};

	return event < HA_HEALTH_EVENT_COUNT ? names[event] : "unknown";
}
