/* SPDX-License-Identifier: Apache-2.0 */
/* regMr and deregMr: may run while another thread drives the same connection. */
#include "transport/comm.h"

#include "base/log.h"
#include "memory/mr.h"
#include "transport/instance.h"

ha_result_t ha_reg_mr(struct ha_comm *comm, void *data, size_t size, int type, uint64_t offset,
		      int fd, struct ha_mr **out)
{
	*out = NULL;
	return ha_mr_register(comm->inst->devices, comm->primary, data, size, type, offset, fd,
			      out);
}

void ha_dereg_mr(struct ha_comm *comm, struct ha_mr *mr)
{
	(void)comm; /* a registration outlives the connection it was made through */
	if (mr)
		ha_mr_deregister(mr);
}
