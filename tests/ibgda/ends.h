/* SPDX-License-Identifier: Apache-2.0 */
/* Two ends of a stream in one process, each with two NICs of a fabric, and what carries their
 * hosts' messages. */
#ifndef TESTS_IBGDA_ENDS_H
#define TESTS_IBGDA_ENDS_H

#include "ibgda/receiver.h"
#include "ibgda/sender.h"

#define END_NICS 2u

struct stream_end {
	struct ha_ibgda_nic nics[END_NICS];
	struct ibv_mr *mrs[END_NICS];
};

/* The NIC of this rail, of a stepped fabric. */
struct ibv_context *open_rail(uint32_t host, uint32_t rail);

/* NICs that `open` has opened, with this memory as region 1. */
void stream_end_make(struct stream_end *end, struct ibv_context *const *contexts, void *memory,
		     size_t size, uint8_t timeout, uint8_t retry_cnt);
void stream_end_give(struct stream_end *end);
/* Its memory is not registered with that NIC any more. */
void stream_end_forget(struct stream_end *end, unsigned int nic);

/* The two ends of one, over a pair of sockets. */
struct pipe_end {
	int fd;
};
void pipe_make(struct pipe_end ends[2]);
void pipe_give(struct pipe_end ends[2]);
struct ha_ibgda_channel pipe_channel(struct pipe_end *end);

#endif
