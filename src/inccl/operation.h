/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An operation, and how it is cut into pieces, each of which is an all-reduce of the group's. All
 * ranks cut alike, whatever memory each of them has registered.
 */
#ifndef HA_INCCL_OPERATION_H
#define HA_INCCL_OPERATION_H

#include "inc/coll/coll.h"
#include "inccl/inccl.h"

struct inccl_request {
	struct inccl_comm *comm; /* NULL: free */
	enum ha_reduce_type type;
	enum ha_reduce_op op;
	const char *send;
	char *recv;
	struct ha_mr *send_mr, *recv_mr; /* NULL: through a copy */
	size_t bytes, element_bytes;
	size_t asked;	     /* bytes whose pieces have been begun */
	bool is_asked;	     /* all of them: of 0 bytes there is one, too */
	unsigned int pieces; /* that are not done */
};

struct ha_inccl_piece {
	struct inccl_request *of;
	size_t at, bytes;
};

/* The next one of those that are not begun; false: all are. */
bool ha_inccl_operation_next(struct inccl_request *request, size_t most,
			     struct ha_inccl_piece *piece);
/* It is begun, and it is done. */
void ha_inccl_operation_begun(const struct ha_inccl_piece *piece);
void ha_inccl_operation_done(const struct ha_inccl_piece *piece);

static inline bool ha_inccl_operation_is_done(const struct inccl_request *request)
{
	return request->is_asked && request->pieces == 0;
}

#endif
