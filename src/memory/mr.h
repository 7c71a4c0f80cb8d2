/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory registrations.
 *
 * NCCL registers a buffer once and gets one handle: struct ha_mr. Verbs register per protection
 * domain, and a connection may move to a path on another NIC: so an ha_mr remembers what was
 * registered and holds a per-NIC slot, filled for the primary at once and for another NIC the
 * first time a path on it needs the buffer.
 *
 * Below it, each NIC has a page-granular, reference-counted cache shared by all connections, with
 * LRU eviction of unreferenced entries above a cap. regMr and deregMr may race isend and test.
 */
#ifndef HA_MEMORY_MR_H
#define HA_MEMORY_MR_H

#include "base/result.h"
#include "device/device.h"

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum ha_mem_type { HA_MEM_HOST = 1, HA_MEM_CUDA = 2, HA_MEM_DMABUF = 4 };

struct ha_mr {
	uintptr_t addr;
	size_t length;
	enum ha_mem_type type;
	int dmabuf_fd; /* our own dup, -1 when none: NCCL closes its copy at once */
	uint64_t dmabuf_offset;
	struct ha_device_set *set;
	/* One slot per NIC; release-stored once, never changed until deregistration. */
	_Atomic(struct ibv_mr *) on_nic[HA_MAX_NICS];
};

/*
 * Registers [addr, addr+length) on `nic` and returns a handle the caller must give back to
 * ha_mr_deregister. The NIC's PD must be held (ha_nic_pd_get). fd is used for HA_MEM_DMABUF only
 * and stays the caller's. Any thread.
 */
ha_result_t ha_mr_register(struct ha_device_set *set, struct ha_nic *nic, void *addr,
			   size_t length, enum ha_mem_type type, uint64_t offset, int fd,
			   struct ha_mr **out) HA_MUST_CHECK;

/* Registers on another NIC if it is not yet; slow path of ha_mr_on. Any thread. */
ha_result_t ha_mr_register_on(struct ha_mr *mr, struct ha_nic *nic,
			      struct ibv_mr **out) HA_MUST_CHECK;

/* Always succeeds; a verbs failure is logged. Any thread. */
void ha_mr_deregister(struct ha_mr *mr);

/* The verbs registration for a NIC. No lock and no allocation when it exists already. */
static inline ha_result_t HA_MUST_CHECK ha_mr_on(struct ha_mr *mr, struct ha_nic *nic,
						 struct ibv_mr **out)
{
	struct ibv_mr *found =
		atomic_load_explicit(&mr->on_nic[nic->index], memory_order_acquire);

	if (__builtin_expect(found != NULL, 1)) {
		*out = found;
		return HA_OK;
	}
	return ha_mr_register_on(mr, nic, out);
}

/* Cache of one NIC; made and destroyed by ha_nic_pd_get and ha_nic_pd_put. */
struct ha_mr_cache *ha_mr_cache_new(struct ha_nic *nic);
void ha_mr_cache_free(struct ha_mr_cache *cache);
/* Registrations held by verbs right now, for statistics and leak tests. */
int ha_mr_cache_entries(struct ha_mr_cache *cache);

#endif
