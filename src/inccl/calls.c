/* SPDX-License-Identifier: Apache-2.0 */
/* What kinds of operations there are: each as a wish, and then begun, or done within a time. */
#include "inccl/comm.h"

/* ---- wishes ---------------------------------------------------------------------------------- */

static struct inccl_request all_reduce(const void *send, void *recv, enum inccl_type type,
				       enum inccl_op op)
{
	return (struct inccl_request){.type = (enum ha_reduce_type)type,
				      .op = (enum ha_reduce_op)op,
				      .send = send,
				      .recv = recv};
}

static struct inccl_request reduce(const void *send, void *recv, enum inccl_type type,
				   enum inccl_op op, uint32_t root)
{
	struct inccl_request wish = all_reduce(send, recv, type, op);

	wish.one_receives = true;
	wish.root = root;
	return wish;
}

static struct inccl_request reduce_scatter(const void *send, void *recv, enum inccl_type type,
					   enum inccl_op op)
{
	struct inccl_request wish = all_reduce(send, recv, type, op);

	wish.one_receives = wish.is_by_rank = wish.send_has_parts = true;
	return wish;
}

/* Of the contributions one has bytes, and the others nothing, which is the smallest. */
static struct inccl_request copy(const void *send, void *recv)
{
	struct inccl_request wish = all_reduce(send, recv, INCCL_UINT8, INCCL_MAX);

	wish.one_sends = true;
	return wish;
}

static struct inccl_request broadcast(void *data, uint32_t root)
{
	struct inccl_request wish = copy(data, data);

	wish.root = root;
	return wish;
}

static struct inccl_request all_gather(const void *send, void *recv)
{
	struct inccl_request wish = copy(send, recv);

	wish.is_by_rank = wish.recv_has_parts = true;
	return wish;
}

/* ---- calls ----------------------------------------------------------------------------------- */

int inccl_iallreduce(struct inccl_comm *comm, const void *send, void *recv, size_t count,
		     enum inccl_type type, enum inccl_op op, unsigned int flags,
		     struct inccl_request **request)
{
	const struct inccl_request wish = all_reduce(send, recv, type, op);

	return ha_inccl_begin(comm, &wish, count, flags, request);
}

int inccl_allreduce(struct inccl_comm *comm, const void *send, void *recv, size_t count,
		    enum inccl_type type, enum inccl_op op, unsigned int flags, uint32_t timeout_ms)
{
	const struct inccl_request wish = all_reduce(send, recv, type, op);

	return ha_inccl_within(comm, &wish, count, flags, timeout_ms);
}

int inccl_ireduce(struct inccl_comm *comm, const void *send, void *recv, size_t count,
		  enum inccl_type type, enum inccl_op op, uint32_t root, unsigned int flags,
		  struct inccl_request **request)
{
	const struct inccl_request wish = reduce(send, recv, type, op, root);

	return ha_inccl_begin(comm, &wish, count, flags, request);
}

int inccl_reduce(struct inccl_comm *comm, const void *send, void *recv, size_t count,
		 enum inccl_type type, enum inccl_op op, uint32_t root, unsigned int flags,
		 uint32_t timeout_ms)
{
	const struct inccl_request wish = reduce(send, recv, type, op, root);

	return ha_inccl_within(comm, &wish, count, flags, timeout_ms);
}

int inccl_ireduce_scatter(struct inccl_comm *comm, const void *send, void *recv, size_t count,
			  enum inccl_type type, enum inccl_op op, unsigned int flags,
			  struct inccl_request **request)
{
	const struct inccl_request wish = reduce_scatter(send, recv, type, op);

	return ha_inccl_begin(comm, &wish, count, flags, request);
}

int inccl_reduce_scatter(struct inccl_comm *comm, const void *send, void *recv, size_t count,
			 enum inccl_type type, enum inccl_op op, unsigned int flags,
			 uint32_t timeout_ms)
{
	const struct inccl_request wish = reduce_scatter(send, recv, type, op);

	return ha_inccl_within(comm, &wish, count, flags, timeout_ms);
}

int inccl_ibroadcast(struct inccl_comm *comm, void *data, size_t bytes, uint32_t root,
		     unsigned int flags, struct inccl_request **request)
{
	const struct inccl_request wish = broadcast(data, root);

	return ha_inccl_begin(comm, &wish, bytes, flags, request);
}

int inccl_broadcast(struct inccl_comm *comm, void *data, size_t bytes, uint32_t root,
		    unsigned int flags, uint32_t timeout_ms)
{
	const struct inccl_request wish = broadcast(data, root);

	return ha_inccl_within(comm, &wish, bytes, flags, timeout_ms);
}

int inccl_iallgather(struct inccl_comm *comm, const void *send, void *recv, size_t bytes,
		     unsigned int flags, struct inccl_request **request)
{
	const struct inccl_request wish = all_gather(send, recv);

	return ha_inccl_begin(comm, &wish, bytes, flags, request);
}

int inccl_allgather(struct inccl_comm *comm, const void *send, void *recv, size_t bytes,
		    unsigned int flags, uint32_t timeout_ms)
{
	const struct inccl_request wish = all_gather(send, recv);

	return ha_inccl_within(comm, &wish, bytes, flags, timeout_ms);
}

int inccl_ibarrier(struct inccl_comm *comm, struct inccl_request **request)
{
	const struct inccl_request wish = all_reduce(NULL, NULL, INCCL_UINT8, INCCL_MAX);

	return ha_inccl_begin(comm, &wish, 0, 0, request);
}

int inccl_barrier(struct inccl_comm *comm, uint32_t timeout_ms)
{
	const struct inccl_request wish = all_reduce(NULL, NULL, INCCL_UINT8, INCCL_MAX);

	return ha_inccl_within(comm, &wish, 0, 0, timeout_ms);
}
