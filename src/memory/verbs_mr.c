/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs calls that register memory, and what to say when they fail. */
#include "memory/cache.h"

#include "base/log.h"
#include "device/newer_verbs.h"
#include "memory/mr.h"

#include <errno.h>
#include <string.h>

static const char *kind_of(const struct ha_mr_range *range)
{
	if (range->fd >= 0)
		return "dmabuf";
	return (range->type & HA_MEM_CUDA) ? "GPU memory" : "host memory";
}

static const char *advice(const struct ha_incarnation *on, const struct ha_mr_range *range, int err)
{
	if (ha_incarnation_is_dead(on))
		return "the device has failed";
	switch (err) {
	case ENOMEM:
		return "raise the limit on locked memory (ulimit -l unlimited; LimitMEMLOCK for "
		       "services; --ulimit memlock=-1 for containers), if the device is not out of "
		       "memory regions (max_mr)";
	case EFAULT:
		return (range->type & HA_MEM_CUDA)
			   ? "the device cannot reach this GPU memory: load nvidia_peermem, or "
			     "set NCCL_NET_GDR_LEVEL=LOC"
			   : "not all of it is mapped and writable";
	case EOPNOTSUPP:
	case EPROTONOSUPPORT:
		return "the driver does not know this kind of memory; NCCL_DMABUF_ENABLE=0 avoids "
		       "dmabufs";
	case EINVAL:
		return "the driver refused the request; with NCCL_IB_PCI_RELAXED_ORDERING=0 it may "
		       "not";
	default:
		return "see the kernel's log (dmesg)";
	}
}

struct ibv_mr *ha_verbs_reg(const struct ha_incarnation *on, struct ibv_pd *pd,
			    const struct ha_mr_range *range)
{
	unsigned int access =
	    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	const struct ha_nic *nic = on->nic;
	struct ibv_mr *mr;
	int err;

	if (nic->relaxed_ordering && !(range->type & HA_MEM_STRICT_ORDER))
		access |= IBV_ACCESS_RELAXED_ORDERING;
	errno = 0;
	if (range->fd >= 0)
		mr = ha_ibv_reg_dmabuf_mr(pd, range->offset, range->length, range->addr, range->fd,
					  (int)access);
	else
		mr = ha_ibv_reg_mr(pd, (void *)range->addr, range->length, access);
	if (mr)
		return mr;
	err = errno;
	HA_WARN("%s: cannot register %zu bytes of %s at %#lx: %s; %s", nic->name, range->length,
		kind_of(range), (unsigned long)range->addr, strerror(err), advice(on, range, err));
	return NULL;
}

void ha_verbs_dereg(const struct ha_incarnation *on, struct ibv_mr *mr)
{
	void *addr = mr->addr;
	size_t length = mr->length;
	int err = ibv_dereg_mr(mr);

	/* A dead device refuses everything; one line said so when it died. */
	if (err && !ha_incarnation_is_dead(on))
		HA_WARN("%s: cannot end the registration of %zu bytes at %p: %s; the memory stays "
			"locked until the process ends",
			on->nic->name, length, addr, strerror(err));
}
