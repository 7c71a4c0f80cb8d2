/* SPDX-License-Identifier: Apache-2.0 */
/* What a session knows, for who uses it. */
#ifndef HA_LIVENESS_SESSION_REPORT_H
#define HA_LIVENESS_SESSION_REPORT_H

#include "base/hist.h"
#include "liveness/detector.h"

#include <stdint.h>

struct ha_session;

/* Any thread, while a link of it is attached. */
enum ha_session_state ha_session_state(const struct ha_session *session);

/* When it was last known to be good: the newest answer. Any thread, while a link of it is attached.
 */
uint64_t ha_session_heard_ns(const struct ha_session *session);

/* When it went DOWN last; 0: never. Any thread, while a link of it is attached. */
uint64_t ha_session_down_ns(const struct ha_session *session);

/* When it had failed at the latest, as far as it knew when it went DOWN last; 0: never. Any thread,
 * while a link of it is attached. */
uint64_t ha_session_failed_before_ns(const struct ha_session *session);

/* When the newest ping was sent that has an answer: the way worked later than that. Any thread,
 * while a link of it is attached. */
uint64_t ha_session_asked_ns(const struct ha_session *session);

/*
 * Since when an inquiry of it hears nothing, while the peer answers over no other ports either that
 * there is a session for; 0: there is none, or it has not lasted for long enough to tell. Any
 * thread, while a link of it is attached.
 */
uint64_t ha_session_alone_since_ns(const struct ha_session *session, uint64_t now_ns);

struct ha_session_report {
	enum ha_session_state state;
	uint64_t pings, pongs;	    /* sent by us, and answered */
	uint64_t lost;		    /* not answered, or not in time */
	uint64_t ups, downs;	    /* transitions */
	uint64_t suspicions;	    /* times it became SUSPECTED */
	uint64_t round_trip_ns;	    /* smoothed: the baseline; 0: none yet */
	struct ha_hist round_trips; /* ns */
};
void ha_session_report(const struct ha_session *session, struct ha_session_report *out);

#endif
