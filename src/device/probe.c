/* SPDX-License-Identifier: Apache-2.0 */
/* Finding out by trying. */
#include "device/probe.h"

#include "base/log.h"
#include "device/give_back.h"
#include "device/incarnation.h"
#include "device/newer_verbs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool accepts_relaxed_ordering(struct ha_incarnation *on, struct ibv_pd *pd)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct ibv_mr *mr;
	void *memory;

	if (posix_memalign(&memory, page, page) != 0)
		return false;
	mr = ha_ibv_reg_mr(pd, memory, page, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING);
	ha_give_back(on, HA_OBJECT_MR, mr, free, memory);
	return mr != NULL;
}

/* No memory is needed: a driver that knows dmabufs complains about the descriptor, one that does
 * not complains about the request. */
static bool accepts_dmabuf(struct ha_incarnation *on, struct ibv_pd *pd)
{
	struct ibv_mr *mr;

	errno = 0;
	mr = ha_ibv_reg_dmabuf_mr(pd, 0, (size_t)sysconf(_SC_PAGESIZE), 0, -1,
				  IBV_ACCESS_LOCAL_WRITE);
	if (mr) {
		ha_give_back(on, HA_OBJECT_MR, mr, NULL, NULL);
		return false; /* whatever it registered, it was not a dmabuf */
	}
	return errno != EOPNOTSUPP && errno != EPROTONOSUPPORT && errno != ENOSYS;
}

void ha_probe(const struct ha_config *config, struct ha_incarnation *on, const char *name,
	      struct ha_abilities *out)
{
	struct ibv_pd *pd = ibv_alloc_pd(on->ctx);

	memset(out, 0, sizeof *out);
	if (!pd) {
		HA_WARN("%s: cannot allocate a protection domain to probe with (%s); doing without "
			"relaxed ordering and dmabuf",
			name, strerror(errno));
		return;
	}
	if (config->ib_pci_relaxed_ordering != 0)
		out->relaxed_ordering = accepts_relaxed_ordering(on, pd);
	if (config->ib_pci_relaxed_ordering == 1 && !out->relaxed_ordering)
		HA_WARN(
		    "%s refuses relaxed ordering, which NCCL_IB_PCI_RELAXED_ORDERING=1 asks for; "
		    "doing without",
		    name);
	out->dmabuf = accepts_dmabuf(on, pd);
	ha_give_back(on, HA_OBJECT_PD, pd, NULL, NULL);
}
