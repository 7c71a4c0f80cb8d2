/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names that vendor libraries (libmlx5, libmlx4, libefa, ...) and librdmacm import from libibverbs.
 * Programs linked with those (perftest is) load only when every name is there, because they are
 * bound at load time. None of it is ever called here: no device of this fabric is a vendor's, so
 * vendor drivers stay registered and unused. Should something call one after all, it gets
 * EOPNOTSUPP.
 *
 * The arguments do not matter to a function that looks at none, so all have the type int(void).
 */
#include "simverbs/engine.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>

#define UNSUPPORTED(name)                                                                          \
	int name(void);                                                                            \
	int name(void)                                                                             \
	{                                                                                          \
		return EOPNOTSUPP;                                                                 \
	}

/* For what returns a pointer. */
#define UNSUPPORTED_POINTER(name)                                                                  \
	void *name(void);                                                                          \
	void *name(void)                                                                           \
	{                                                                                          \
		errno = EOPNOTSUPP;                                                                \
		return NULL;                                                                       \
	}

#define NOTHING(name)                                                                              \
	void name(void);                                                                           \
	void name(void)                                                                            \
	{                                                                                          \
	}

UNSUPPORTED(execute_ioctl)
UNSUPPORTED(ibv_cmd_advise_mr)
UNSUPPORTED(ibv_cmd_alloc_dm)
UNSUPPORTED(ibv_cmd_alloc_mw)
UNSUPPORTED(ibv_cmd_alloc_pd)
UNSUPPORTED(ibv_cmd_attach_mcast)
UNSUPPORTED(ibv_cmd_close_xrcd)
UNSUPPORTED(ibv_cmd_create_ah)
UNSUPPORTED(ibv_cmd_create_counters)
UNSUPPORTED(ibv_cmd_create_cq)
UNSUPPORTED(ibv_cmd_create_cq_ex)
UNSUPPORTED(ibv_cmd_create_flow)
UNSUPPORTED(ibv_cmd_create_flow_action_esp)
UNSUPPORTED(ibv_cmd_create_qp)
UNSUPPORTED(ibv_cmd_create_qp_ex)
UNSUPPORTED(ibv_cmd_create_qp_ex2)
UNSUPPORTED(ibv_cmd_create_rwq_ind_table)
UNSUPPORTED(ibv_cmd_create_srq)
UNSUPPORTED(ibv_cmd_create_srq_ex)
UNSUPPORTED(ibv_cmd_create_wq)
UNSUPPORTED(ibv_cmd_dealloc_mw)
UNSUPPORTED(ibv_cmd_dealloc_pd)
UNSUPPORTED(ibv_cmd_dereg_mr)
UNSUPPORTED(ibv_cmd_destroy_ah)
UNSUPPORTED(ibv_cmd_destroy_counters)
UNSUPPORTED(ibv_cmd_destroy_cq)
UNSUPPORTED(ibv_cmd_destroy_flow)
UNSUPPORTED(ibv_cmd_destroy_flow_action)
UNSUPPORTED(ibv_cmd_destroy_qp)
UNSUPPORTED(ibv_cmd_destroy_rwq_ind_table)
UNSUPPORTED(ibv_cmd_destroy_srq)
UNSUPPORTED(ibv_cmd_destroy_wq)
UNSUPPORTED(ibv_cmd_detach_mcast)
UNSUPPORTED(ibv_cmd_free_dm)
UNSUPPORTED(ibv_cmd_get_context)
UNSUPPORTED(ibv_cmd_modify_cq)
UNSUPPORTED(ibv_cmd_modify_flow_action_esp)
UNSUPPORTED(ibv_cmd_modify_qp)
UNSUPPORTED(ibv_cmd_modify_qp_ex)
UNSUPPORTED(ibv_cmd_modify_srq)
UNSUPPORTED(ibv_cmd_modify_wq)
UNSUPPORTED(ibv_cmd_open_qp)
UNSUPPORTED(ibv_cmd_open_xrcd)
UNSUPPORTED(ibv_cmd_poll_cq)
UNSUPPORTED(ibv_cmd_post_recv)
UNSUPPORTED(ibv_cmd_post_send)
UNSUPPORTED(ibv_cmd_post_srq_recv)
UNSUPPORTED(ibv_cmd_query_context)
UNSUPPORTED(ibv_cmd_query_device_any)
UNSUPPORTED(ibv_cmd_query_mr)
UNSUPPORTED(ibv_cmd_query_port)
UNSUPPORTED(ibv_cmd_query_qp)
UNSUPPORTED(ibv_cmd_query_srq)
UNSUPPORTED(ibv_cmd_read_counters)
UNSUPPORTED(ibv_cmd_reg_dm_mr)
UNSUPPORTED(ibv_cmd_reg_dmabuf_mr)
UNSUPPORTED(ibv_cmd_reg_mr)
UNSUPPORTED(ibv_cmd_req_notify_cq)
UNSUPPORTED(ibv_cmd_rereg_mr)
UNSUPPORTED(ibv_cmd_resize_cq)
UNSUPPORTED_POINTER(_verbs_init_and_alloc_context)
UNSUPPORTED_POINTER(verbs_open_device)
NOTHING(verbs_init_cq)
NOTHING(verbs_register_driver_34)
NOTHING(verbs_set_ops)
NOTHING(verbs_uninit_context)
NOTHING(__verbs_log)
/* The connection manager's conversions from kernel structures: /dev/infiniband/rdma_cm knows no
 * device of this fabric, so there is never anything to convert. */
NOTHING(ibv_copy_ah_attr_from_kern)
NOTHING(ibv_copy_path_rec_from_kern)
NOTHING(ibv_copy_path_rec_to_kern)
NOTHING(ibv_copy_qp_attr_from_kern)

/* Counts the attributes of a chain of ioctl buffers: there are none. */
unsigned int __ioctl_final_num_attrs(void);
unsigned int __ioctl_final_num_attrs(void)
{
	return 0;
}

extern bool verbs_allow_disassociate_destroy;
bool verbs_allow_disassociate_destroy;

/*
 * ibv_devinfo's way to ask for the version of RoCE behind a GID: 0 for RoCE v1 and InfiniBand, 1
 * for RoCE v2.
 */
int ibv_query_gid_type(struct ibv_context *context, uint8_t port_num, unsigned int index,
		       int *type);
int ibv_query_gid_type(struct ibv_context *context, uint8_t port_num, unsigned int index, int *type)
{
	enum ibv_gid_type gid_type;
	int rc = sv_query_gid_type(context, port_num, index, &gid_type);

	if (rc) {
		errno = rc;
		return -1;
	}
	*type = gid_type == IBV_GID_TYPE_ROCE_V2;
	return 0;
}
