/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exported verbs: libibverbs' names on top of the core's functions (engine.h). Nothing but
 * names and conversions of types belongs here. The hot verbs (post, poll, notify) do not come
 * through here at all: the headers call them through the context's operations.
 */
#include "simverbs/engine.h"
#include "simverbs/live/runtime.h"
#include "simverbs/roce/runtime.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* --- devices -------------------------------------------------------------------------------- */

static struct sv_device *to_device(struct ibv_device *device)
{
	return (struct sv_device *)((char *)device - offsetof(struct sv_device, ibv));
}

struct ibv_device **ibv_get_device_list(int *num_devices)
{
	struct sv_device **found;
	struct ibv_device **list;
	int i, n = 0;

	if (num_devices)
		*num_devices = 0;
	found = sv_stepped_devices(&n);
	if (!found)
		found = sv_roce_devices(&n);
	if (!found && errno == ENOSYS)
		found = sv_live_devices(&n);
	/* A machine without devices has an empty list; that is not an error. */
	if (!found && errno != ENOSYS)
		return NULL;
	list = calloc((size_t)n + 1, sizeof(*list));
	for (i = 0; i < n; i++) {
		if (list)
			list[i] = &found[i]->ibv;
		else
			sv_device_put(found[i]);
	}
	free(found);
	if (!list) {
		errno = ENOMEM;
		return NULL;
	}
	if (num_devices)
		*num_devices = n;
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	size_t i;

	for (i = 0; list && list[i]; i++)
		sv_device_put(to_device(list[i]));
	free(list);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

__be64 ibv_get_device_guid(struct ibv_device *device)
{
	return to_device(device)->node_guid;
}

int ibv_get_device_index(struct ibv_device *device)
{
	return (int)to_device(device)->rail;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	return sv_open_device(device);
}

int ibv_close_device(struct ibv_context *context)
{
	return sv_told(sv_close_device(context));
}

/* --- queries -------------------------------------------------------------------------------- */

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	return sv_told(sv_query_device(context, attr));
}

/*
 * The exported function knows the structure as it was before port_cap_flags2 was added to its end;
 * programs with newer headers reach the context's own query_port.
 */
int ibv_query_port(struct ibv_context *context, uint8_t port_num,
		   struct _compat_ibv_port_attr *port_attr)
{
	struct ibv_port_attr attr = {0};
	int rc = sv_query_port(context, port_num, &attr);

	if (!rc)
		memcpy(port_attr, &attr, offsetof(struct ibv_port_attr, port_cap_flags2));
	return sv_told(rc);
}

int ibv_query_gid(struct ibv_context *context, uint8_t port_num, int index, union ibv_gid *gid)
{
	return sv_query_gid(context, port_num, index, gid);
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port_num, uint32_t gid_index,
		      struct ibv_gid_entry *entry, uint32_t flags, size_t entry_size)
{
	return sv_told(sv_query_gid_ex(context, port_num, gid_index, entry, flags, entry_size));
}

ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
			     size_t max_entries, uint32_t flags, size_t entry_size)
{
	return sv_query_gid_table(context, entries, max_entries, flags, entry_size);
}

int ibv_query_pkey(struct ibv_context *context, uint8_t port_num, int index, __be16 *pkey)
{
	return sv_query_pkey(context, port_num, index, pkey);
}

int ibv_get_pkey_index(struct ibv_context *context, uint8_t port_num, __be16 pkey)
{
	return sv_get_pkey_index(context, port_num, pkey);
}

/* --- memory --------------------------------------------------------------------------------- */

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	return sv_alloc_pd(context);
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	return sv_told(sv_dealloc_pd(pd));
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return sv_reg_mr(pd, addr, length, access);
}

struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
			       int access)
{
	return sv_reg_mr_iova(pd, addr, length, iova, access);
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				unsigned int access)
{
	return sv_reg_mr_iova2(pd, addr, length, iova, access);
}

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova,
				 int fd, int access)
{
	return sv_reg_dmabuf_mr(pd, offset, length, iova, fd, access);
}

int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length,
		 int access)
{
	return sv_told(sv_rereg_mr(mr, flags, pd, addr, length, access));
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	return sv_told(sv_dereg_mr(mr));
}

/* --- completions ---------------------------------------------------------------------------- */

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	return sv_create_comp_channel(context);
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	return sv_told(sv_destroy_comp_channel(channel));
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
			     struct ibv_comp_channel *channel, int comp_vector)
{
	return sv_create_cq(context, cqe, cq_context, channel, comp_vector);
}

int ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
	return sv_told(sv_resize_cq(cq, cqe));
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	return sv_told(sv_destroy_cq(cq));
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
	return sv_get_cq_event(channel, cq, cq_context);
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int nevents)
{
	sv_ack_cq_events(cq, nevents);
}

/* --- queue pairs ---------------------------------------------------------------------------- */

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *srq_init_attr)
{
	return sv_create_srq(pd, srq_init_attr);
}

int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *srq_attr, int srq_attr_mask)
{
	return sv_told(sv_modify_srq(srq, srq_attr, srq_attr_mask));
}

int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *srq_attr)
{
	return sv_told(sv_query_srq(srq, srq_attr));
}

int ibv_destroy_srq(struct ibv_srq *srq)
{
	return sv_told(sv_destroy_srq(srq));
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *qp_init_attr)
{
	return sv_create_qp(pd, qp_init_attr);
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	return sv_qp_to_qp_ex(qp);
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask)
{
	return sv_told(sv_modify_qp(qp, attr, attr_mask));
}

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask,
		 struct ibv_qp_init_attr *init_attr)
{
	return sv_told(sv_query_qp(qp, attr, attr_mask, init_attr));
}

int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	return sv_told(sv_query_ece(qp, ece));
}

int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	return sv_told(sv_set_ece(qp, ece));
}

int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
	return sv_query_qp_data_in_order(qp, op, flags);
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
	return sv_told(sv_destroy_qp(qp));
}

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	return sv_create_ah(pd, attr);
}

int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port_num, struct ibv_wc *wc,
			struct ibv_grh *grh, struct ibv_ah_attr *ah_attr)
{
	return sv_init_ah_from_wc(context, port_num, wc, grh, ah_attr);
}

struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh,
				     uint8_t port_num)
{
	return sv_create_ah_from_wc(pd, wc, grh, port_num);
}

int ibv_destroy_ah(struct ibv_ah *ah)
{
	return sv_told(sv_destroy_ah(ah));
}

/* --- asynchronous events -------------------------------------------------------------------- */

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	return sv_get_async_event(context, event);
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	sv_ack_async_event(event);
}

/* --- fork ----------------------------------------------------------------------------------- */

/*
 * Nothing here pins pages, so nothing breaks when a child writes to a page first. (A child must
 * not use what its parent opened, as with any verbs library; it may open devices of its own.)
 */
int ibv_fork_init(void)
{
	return 0;
}

enum ibv_fork_status ibv_is_fork_initialized(void)
{
	return IBV_FORK_UNNEEDED;
}

int ibv_dontfork_range(void *base, size_t size);
int ibv_dontfork_range(void *base, size_t size)
{
	(void)base;
	(void)size;
	return 0;
}

int ibv_dofork_range(void *base, size_t size);
int ibv_dofork_range(void *base, size_t size)
{
	(void)base;
	(void)size;
	return 0;
}
