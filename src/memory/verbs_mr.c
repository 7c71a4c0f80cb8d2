/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs calls that register memory, and what to say when they fail. */
#include "memory/verbs_mr.h"

#include "base/clock.h"
#include "base/log.h"
#include "device/newer_verbs.h"
#include "memory/cache.h"
#include "memory/mr.h"

#include <errno.h>
#include <string.h>

/* A refusal of memory in reserve is a warning at most so often for each device. */
#define TOLD_AGAIN_NS (60 * HA_NS_PER_S)

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
		return HA_RAISE_MEMLOCK ", if the device is not out of memory regions (max_mr)";
	case EFAULT:
		return (range->type & HA_MEM_CUDA)
			   ? "the device cannot reach this GPU memory: load nvidia_peermem, or "
			     "set NCCL_NET_GDR_LEVEL=LOC"
			   : "not all of it is mapped and writable";
	case EOPNOTSUPP:
	case EPROTONOSUPPORT:
		return "the driver does not know this kind of memory; NCCL_DMABUF_ENABLE=0 avoids "
		       "dmabufs";
	case EREMOTEIO:
		return "the PCIe tree lets this device not reach the GPU: look at ACS and the "
		       "IOMMU";
	case EINVAL:
		return "the driver refused the request; with NCCL_IB_PCI_RELAXED_ORDERING=0 it may "
		       "not";
	default:
		return "see the kernel's log (dmesg)";
	}
}

/* What a NIC refuses that has not got it to itself is tried for each connection, again and again.
 */
static bool told_lately(struct ha_nic *nic, const struct ha_mr_range *range)
{
	uint64_t now_ns = ha_now_ns(), before_ns;

	if (!range->further)
		return false;
	before_ns = atomic_exchange(&nic->memory_refused_ns, now_ns);
	return before_ns != 0 && now_ns - before_ns < TOLD_AGAIN_NS;
}

static void say_refused(const struct ha_incarnation *on, const struct ha_mr_range *range, int err)
{
	struct ha_nic *nic = on->nic;
	const char *verb = range->fd >= 0 ? "ibv_reg_dmabuf_mr" : "ibv_reg_mr";

	if (told_lately(nic, range)) {
		HA_INFO(HA_SUBSYS_NET, "%s: %s failed again: %s", nic->name, verb, strerror(err));
		return;
	}
	HA_WARN("%s: cannot register %zu bytes of %s at %#lx: %s: %s (errno %d)%s; %s", nic->name,
		range->length, kind_of(range), (unsigned long)range->addr, verb, strerror(err), err,
		range->further ? ", so it cannot take over for another NIC" : "",
		advice(on, range, err));
}

/* Whether one died a moment ago, before its event was read. Asked here, where one may wait. */
static void ask_device(struct ha_incarnation *on)
{
	struct ibv_port_attr attr;

	atomic_store(&on->mute, !ha_incarnation_is_dead(on) && ibv_query_port(on->ctx, 1, &attr));
}

struct ibv_mr *ha_verbs_reg(struct ha_incarnation *on, struct ibv_pd *pd,
			    const struct ha_mr_range *range)
{
	unsigned int access =
	    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	const struct ha_nic *nic = on->nic;
	struct ibv_mr *mr;

	if (nic->relaxed_ordering && !(range->type & HA_MEM_STRICT_ORDER))
		access |= IBV_ACCESS_RELAXED_ORDERING;
	if (range->type & HA_MEM_ATOMIC)
		access |= IBV_ACCESS_REMOTE_ATOMIC;
	errno = 0;
	if (range->fd >= 0)
		mr = ha_ibv_reg_dmabuf_mr(pd, range->offset, range->length, range->addr, range->fd,
					  (int)access);
	else
		mr = ha_ibv_reg_mr(pd, (void *)range->addr, range->length, access);
	if (!mr) {
		say_refused(on, range, errno);
		ask_device(on);
	}
	return mr;
}
