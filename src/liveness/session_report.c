/* SPDX-License-Identifier: Apache-2.0 */
#include "liveness/session_report.h"

#include "liveness/session.h"

enum ha_session_state ha_session_state(const struct ha_session *session)
{
	return (enum ha_session_state)atomic_load(&session->state);
}

/* A time of the session's, which changes under the lock. */
static uint64_t read_ns(const struct ha_session *s, const uint64_t *time_ns)
{
	pthread_mutex_t *lock = &s->port->live->lock;
	uint64_t ns;

	pthread_mutex_lock(lock);
	ns = *time_ns;
	pthread_mutex_unlock(lock);
	return ns;
}

uint64_t ha_session_down_ns(const struct ha_session *s)
{
	return read_ns(s, &s->down_ns);
}

uint64_t ha_session_failed_before_ns(const struct ha_session *s)
{
	return read_ns(s, &s->detector.failed_before_ns);
}

uint64_t ha_session_asked_ns(const struct ha_session *s)
{
	return read_ns(s, &s->detector.answers[0].sent_ns);
}

uint64_t ha_session_alone_since_ns(const struct ha_session *s, uint64_t now_ns)
{
	pthread_mutex_t *lock = &s->port->live->lock;
	uint64_t ns;

	pthread_mutex_lock(lock);
	ns = ha_detector_lacks_witness(&s->detector, now_ns) ? s->detector.inquiry.since_ns : 0;
	pthread_mutex_unlock(lock);
	return ns;
}

uint64_t ha_session_heard_ns(const struct ha_session *s)
{
	return read_ns(s, &s->detector.heard_ns);
}

void ha_session_report(const struct ha_session *s, struct ha_session_report *out)
{
	pthread_mutex_t *lock = &s->port->live->lock;

	pthread_mutex_lock(lock);
	out->state = s->detector.state;
	out->pings = s->pings;
	out->pongs = s->pongs;
	out->lost = s->detector.lost;
	out->ups = s->ups;
	out->downs = s->downs;
	out->suspicions = s->suspicions;
	out->round_trip_ns = s->detector.baseline_ns;
	out->round_trips = s->round_trips;
	pthread_mutex_unlock(lock);
}
