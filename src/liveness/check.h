/* SPDX-License-Identifier: Apache-2.0 */
/* What must always hold of a session between two visits: see base/invariant.h. */
#ifndef HA_LIVENESS_CHECK_H
#define HA_LIVENESS_CHECK_H

struct ha_session;

#ifdef HA_INVARIANTS
/* Under the lock of the sessions. */
void ha_session_check(const struct ha_session *session);
#else
static inline void ha_session_check(const struct ha_session *session)
{
	(void)session;
}
#endif

#endif
