/* SPDX-License-Identifier: Apache-2.0 */
/* Registration handles: what NCCL holds, with a registration per NIC behind it. */
#include "memory/mr.h"

#include "base/log.h"
#include "memory/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The whole pages that [addr, addr+length) touches. False when there is no such memory. */
static bool whole_pages(uintptr_t addr, size_t length, uintptr_t *first, size_t *bytes)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), last;

	if (__builtin_add_overflow(addr, length ? length - 1 : 0, &last) ||
	    last > UINTPTR_MAX - page)
		return false;
	*first = addr & ~(page - 1);
	*bytes = (last & ~(page - 1)) + page - *first;
	return true;
}

/* Where the first page lies in the dmabuf; see ha_mr_register. False when it cannot be. */
static bool page_offset(const struct ha_mr *mr, uintptr_t first_page, uint64_t *offset)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), into_page = mr->addr - first_page;

	if (mr->dmabuf_offset % page == 0)
		*offset = mr->dmabuf_offset;
	else if (mr->dmabuf_offset % page == into_page)
		*offset = mr->dmabuf_offset - into_page;
	else
		return false;
	return true;
}

static ha_result_t describe(const struct ha_mr *mr, struct ha_mr_range *range)
{
	memset(range, 0, sizeof *range);
	range->type = mr->type;
	range->fd = mr->dmabuf_fd;
	if (!whole_pages(mr->addr, mr->length, &range->addr, &range->length) ||
	    (range->fd >= 0 && !page_offset(mr, range->addr, &range->offset))) {
		HA_WARN("cannot register %zu bytes at %#lx (offset %#llx): no such memory",
			mr->length, (unsigned long)mr->addr, (unsigned long long)mr->dmabuf_offset);
		return HA_ERR_ARGUMENT;
	}
	return HA_OK;
}

static uint64_t keys_of(const struct ibv_mr *mr)
{
	return (uint64_t)mr->lkey << 32 | mr->rkey;
}

/* With mr->lock held and the slot empty. */
static ha_result_t fill_slot(struct ha_mr *mr, struct ha_nic *nic)
{
	struct ha_mr_range range;
	struct ibv_pd *pd;
	ha_result_t result;

	HA_TRY(describe(mr, &range));
	/* The registration holds the PD: a handle may outlive the connection it came from. */
	HA_TRY(ha_nic_pd_get(nic, &pd));
	result = ha_mr_cache_get(nic->mr_cache, &range, &mr->entry[nic->index]);
	if (result != HA_OK) {
		ha_nic_pd_put(nic);
		return result;
	}
	/* Release: who finds the pointer finds the registration and the entry filled in. Pairs with
	 * the acquire in ha_mr_on and ha_mr_deregister. */
	atomic_store_explicit(&mr->on_nic[nic->index], mr->entry[nic->index]->mr,
			      memory_order_release);
	atomic_store_explicit(&mr->keys[nic->index], keys_of(mr->entry[nic->index]->mr),
			      memory_order_release);
	return HA_OK;
}

ha_result_t ha_mr_register_on(struct ha_mr *mr, struct ha_nic *nic, struct ibv_mr **out)
{
	ha_result_t result = HA_OK;

	pthread_mutex_lock(&mr->lock);
	*out = atomic_load_explicit(&mr->on_nic[nic->index], memory_order_acquire);
	if (!*out) {
		result = fill_slot(mr, nic);
		*out = atomic_load_explicit(&mr->on_nic[nic->index], memory_order_relaxed);
	}
	pthread_mutex_unlock(&mr->lock);
	return result;
}

ha_result_t ha_mr_lookup_keys(struct ha_mr *mr, struct ha_nic *nic, uint64_t *keys)
{
	struct ibv_mr *found;

	HA_TRY(ha_mr_on(mr, nic, &found));
	*keys = keys_of(found);
	return HA_OK;
}

ha_result_t ha_mr_register(struct ha_device_set *set, struct ha_nic *nic, void *addr, size_t length,
			   int type, uint64_t offset, int fd, struct ha_mr **out)
{
	struct ha_mr *mr = aligned_alloc(alignof(struct ha_mr), sizeof *mr);
	struct ibv_mr *unused;
	ha_result_t result;

	*out = NULL;
	if (!mr)
		return HA_ERR_SYSTEM;
	memset(mr, 0, sizeof *mr);
	mr->host = fd < 0 && (type & ~HA_MEM_STRICT_ORDER) == HA_MEM_HOST;
	mr->addr = (uintptr_t)addr;
	mr->length = length;
	mr->type = type;
	mr->dmabuf_fd = -1;
	mr->dmabuf_offset = offset;
	mr->set = set;
	pthread_mutex_init(&mr->lock, NULL);
	if (fd >= 0) {
		mr->dmabuf_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
		if (mr->dmabuf_fd < 0) {
			HA_WARN("cannot keep the dmabuf of %zu bytes at %p: %s%s", length, addr,
				strerror(errno), errno == EMFILE ? "; raise ulimit -n" : "");
			ha_mr_deregister(mr);
			return HA_ERR_SYSTEM;
		}
	}
	result = ha_mr_register_on(mr, nic, &unused);
	if (result != HA_OK) {
		ha_mr_deregister(mr);
		return result;
	}
	*out = mr;
	return HA_OK;
}

void ha_mr_deregister(struct ha_mr *mr)
{
	if (!mr)
		return;
	for (int i = 0; i < mr->set->nnics; i++) {
		struct ha_nic *nic = &mr->set->nics[i];

		if (!atomic_load_explicit(&mr->on_nic[i], memory_order_acquire))
			continue;
		ha_mr_cache_put(nic->mr_cache, mr->entry[i]);
		ha_nic_pd_put(nic);
	}
	if (mr->dmabuf_fd >= 0)
		close(mr->dmabuf_fd);
	pthread_mutex_destroy(&mr->lock);
	free(mr);
}
