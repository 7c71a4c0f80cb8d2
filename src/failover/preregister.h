/* SPDX-License-Identifier: Apache-2.0 */
/* Getting ready to leave a path that may be failing. */
#ifndef HA_FAILOVER_PREREGISTER_H
#define HA_FAILOVER_PREREGISTER_H

struct ha_comm;

/*
 * Path `p` is suspected. If traffic is on it: warns, and registers the memory of what is under way
 * on the devices of the paths in reserve, so that a switch does not have to. [T]
 */
void ha_preregister(struct ha_comm *comm, unsigned p);

#endif
