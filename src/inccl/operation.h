/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An operation, and how it is cut into pieces, each of which is an all-reduce of the group's. All
 * ranks cut alike, whatever memory each of them has registered.
 *
 * It has one part, or one for each rank. To a part contribute all ranks or its owner alone, and its
 * result is for all or for its owner alone: so an all-gather, say, is as many broadcasts as there
 * are ranks.
 */
#ifndef HA_INCCL_OPERATION_H
#define HA_INCCL_OPERATION_H

#include "inc/coll/coll.h"
#include "inccl/inccl.h"

struct inccl_request {
	struct inccl_comm *comm; /* NULL: free */
	enum ha_reduce_type type;
	enum ha_reduce_op op;
	bool one_sends, one_receives; /* the owner of a part, in place of everybody */
	bool is_by_rank;	      /* a part for each, which that one owns; else the root does */
	unsigned int rank, ranks, root;
	const char *send;
	char *recv;
	bool send_has_parts, recv_has_parts; /* one behind the other */
	struct ha_mr *send_mr, *recv_mr;     /* NULL: through a copy */
	size_t bytes, element_bytes;	     /* of a part */
	unsigned int part;		     /* whose next piece has not begun */
	size_t asked;			     /* bytes of it whose pieces have */
	bool is_asked;	     /* all pieces have begun: of 0 bytes there is one, too */
	unsigned int pieces; /* that are not done */
};

struct ha_inccl_piece {
	struct inccl_request *of;
	bool is_empty;	  /* this rank contributes nothing */
	const char *send; /* NULL then, and perhaps of 0 bytes */
	char *recv;	  /* NULL: it does not need the result */
	size_t bytes;
};

/* How many bytes of `send` and of `recv` are this rank's to read and to write. */
size_t ha_inccl_operation_reads(const struct inccl_request *request);
size_t ha_inccl_operation_writes(const struct inccl_request *request);

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
