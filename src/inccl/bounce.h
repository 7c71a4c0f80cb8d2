/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registered memory of a communicator's own, for what goes or comes where nothing is registered:
 * places of a piece each way. A result stays in its place until its piece is done, as the group may
 * have to send it to somebody who lacks it.
 */
#ifndef HA_INCCL_BOUNCE_H
#define HA_INCCL_BOUNCE_H

#include "inc/coll/coll.h"

#define HA_INCCL_PLACES 8

struct ha_inccl_bounce {
	size_t piece_bytes;
	char *memory; /* NULL: not needed yet. To be sent, then to be received, by place */
	struct ha_mr *mr;
	unsigned int used; /* bit by place */
};

/* Has memory from now on. May wait for the device. */
bool ha_inccl_bounce_make(struct ha_inccl_bounce *bounce, struct ha_coll *coll);
void ha_inccl_bounce_end(struct ha_inccl_bounce *bounce);

/* False: none is free. */
bool ha_inccl_bounce_take(struct ha_inccl_bounce *bounce, unsigned int *place);
void ha_inccl_bounce_free(struct ha_inccl_bounce *bounce, unsigned int place);

static inline char *ha_inccl_bounce_to_send(const struct ha_inccl_bounce *bounce,
					    unsigned int place)
{
	return bounce->memory + place * bounce->piece_bytes;
}

static inline char *ha_inccl_bounce_received(const struct ha_inccl_bounce *bounce,
					     unsigned int place)
{
	return bounce->memory + (HA_INCCL_PLACES + place) * bounce->piece_bytes;
}

#endif
