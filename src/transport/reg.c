/* SPDX-License-Identifier: Apache-2.0 */
/* regMr and deregMr: may run while another thread drives the same connection. */
#include "transport/comm.h"

#include "base/log.h"
#include "memory/mr.h"
#include "transport/instance.h"

/*
 * The primary's device as long as it lives: that is where most traffic goes. After its death any
 * other one will do, since the rest follows when a path needs it.
 */
static struct ha_nic *nic_for(const struct ha_comm *comm)
{
	struct ha_device_set *set = comm->inst->devices;

	for (int i = 0; atomic_load(&comm->primary->fatal) && i < set->nnics; i++)
		if (!atomic_load(&set->nics[i].fatal))
			return &set->nics[i];
	return comm->primary;
}

ha_result_t ha_reg_mr(struct ha_comm *comm, void *data, size_t size, int type, uint64_t offset,
		      int fd, struct ha_mr **out)
{
	*out = NULL;
	return ha_mr_register(comm->inst->devices, nic_for(comm), data, size, type, offset, fd,
			      out);
}

void ha_dereg_mr(struct ha_comm *comm, struct ha_mr *mr)
{
	(void)comm; /* a registration outlives the connection it was made through */
	if (mr)
		ha_mr_deregister(mr);
}
