/* SPDX-License-Identifier: Apache-2.0 */
/* What must always hold of a connection between two steps of whoever has its token: see
 * base/invariant.h. */
#ifndef HA_TRANSPORT_CHECK_H
#define HA_TRANSPORT_CHECK_H

struct ha_comm;
struct ha_path;

#ifdef HA_INVARIANTS
/* All of it but what keeps it alive: paths, queues, rings, windows, requests. [T] */
void ha_comm_check(const struct ha_comm *comm);
/* A path of index p, the connection's or one that it has left. [T] */
void ha_path_check(const struct ha_comm *comm, const struct ha_path *path, unsigned p);
#else
static inline void ha_comm_check(const struct ha_comm *comm)
{
	(void)comm;
}
#endif

#endif
