/* SPDX-License-Identifier: Apache-2.0 */
/* The application's memory on a path's device, where it is not registered there yet. [T] */
#ifndef HA_TRANSPORT_USER_MR_H
#define HA_TRANSPORT_USER_MR_H

#include "base/list.h"
#include "memory/mr.h"

#include <stdbool.h>
#include <stdint.h>

struct ha_comm;
struct ha_path;

/* What was registered through a connection. Under its token. */
struct ha_comm_memory {
	struct ha_list handles; /* struct ha_mr.in_owner */
	uint32_t serial;	/* counts them; 0: there was none */
	bool has_dmabufs;
};

/*
 * Slow path of the one below. What is not registered is sent for, with all else that is under way,
 * and the connection is visited when it is there.
 */
uint64_t ha_comm_find_keys(struct ha_comm *comm, const struct ha_path *path, struct ha_mr *mr,
			   const char *what) __attribute__((cold, noinline));

/*
 * The memory's keys on a path's device; nic_index is the path's. 0: not yet, so what needs them is
 * held back until the next pump; or they cannot be had, which was reported. `what` it is, for
 * people.
 */
static inline uint64_t ha_comm_keys(struct ha_comm *comm, const struct ha_path *path,
				    unsigned nic_index, struct ha_mr *mr, const char *what)
{
	uint64_t keys = ha_mr_keys(mr, nic_index);

	return __builtin_expect(keys != 0, 1) ? keys : ha_comm_find_keys(comm, path, mr, what);
}

/*
 * Has all memory that was registered through the connection registered on a device, and the
 * connection visited when it is through. READY: all of it is. FAILED: the device refuses some.
 * Never waits.
 */
enum ha_mr_request ha_comm_register_all(struct ha_comm *comm, struct ha_nic *nic) HA_MUST_CHECK;

/* Has memory registered on a device ahead of need: what fails is tried again, and told, when it is
 * really needed. NULL is fine. Never waits. Any thread. */
void ha_user_mr_ahead(struct ha_mr *mr, struct ha_nic *nic);

/* Has the memory of all requests under way registered on a device. Never waits. */
void ha_comm_register_ahead(struct ha_comm *comm, struct ha_nic *nic);

#endif
