/* SPDX-License-Identifier: Apache-2.0 */
/* Registers memory that it has not written: right in a program that lets a device write it. */
#include <infiniband/verbs.h>
#include <stdlib.h>

#define BYTES 10000u

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = list && list[0] ? ibv_open_device(list[0]) : NULL;
	struct ibv_pd *pd = ctx ? ibv_alloc_pd(ctx) : NULL;
	char *buf = malloc(BYTES);
	struct ibv_mr *mr = pd && buf ? ibv_reg_mr(pd, buf, BYTES, IBV_ACCESS_LOCAL_WRITE) : NULL;

	if (!mr || ibv_dereg_mr(mr) || ibv_dealloc_pd(pd) || ibv_close_device(ctx))
		return EXIT_FAILURE;
	ibv_free_device_list(list);
	free(buf);
	return EXIT_SUCCESS;
}
