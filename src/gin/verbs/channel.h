/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages to and from a rank, over an ordinary connection in each direction (transport/): so they
 * keep order, and come exactly once or the connection has an error. One thread.
 */
#ifndef HA_GIN_VERBS_CHANNEL_H
#define HA_GIN_VERBS_CHANNEL_H

#include "gin/verbs/message.h"
#include "transport/transport.h"

#include <stdbool.h>
#include <stddef.h>

#define HA_GIN_HEARD 8 /* receives that are posted */

struct ha_mr;

/* What is said: waits here as long as the connection takes nothing. */
struct ha_gin_out {
	struct ha_comm *comm; /* owned */
	struct ha_mr *mr;
	struct ha_gin_message *posted; /* of the request */
	struct ha_request *request;    /* NULL: none is under way */
	struct ha_gin_message *queue;  /* a ring */
	size_t head, count, room;
};

struct ha_gin_in {
	struct ha_comm *comm; /* owned */
	struct ha_mr *mr;
	struct ha_gin_message *buffers; /* HA_GIN_HEARD */
	struct ha_request *requests[HA_GIN_HEARD];
	unsigned int next; /* the oldest */
};

/* Take the connection in any case; on failure it is closed. */
ha_result_t ha_gin_out_open(struct ha_gin_out *out, struct ha_comm *comm) HA_MUST_CHECK;
ha_result_t ha_gin_in_open(struct ha_gin_in *in, struct ha_comm *comm) HA_MUST_CHECK;

/* HA_ERR_SYSTEM: no memory. */
ha_result_t ha_gin_out_say(struct ha_gin_out *out,
			   const struct ha_gin_message *message) HA_MUST_CHECK;
/* Sends what can be sent. An error is the connection's. */
ha_result_t ha_gin_out_progress(struct ha_gin_out *out) HA_MUST_CHECK;
/* The next message, if *is_heard; its magic number is right, nothing else of it is believed. */
ha_result_t ha_gin_in_hear(struct ha_gin_in *in, struct ha_gin_message *message,
			   bool *is_heard) HA_MUST_CHECK;

/* The path that the connection goes over now: its port here, and its name. False: it moves, or
 * somebody else looks at it just now. */
bool ha_gin_path_now(struct ha_comm *comm, struct ha_port **port, struct ha_gin_path_name *name);

/* What goes over that path does not come through, whatever it says of itself: the connection leaves
 * it, if it is there still and nobody else looks at it just now. */
void ha_gin_path_failed(struct ha_comm *comm, const struct ha_gin_path_name *name, const char *why);

/* One that is not open is fine. */
void ha_gin_out_close(struct ha_gin_out *out);
void ha_gin_in_close(struct ha_gin_in *in);

#endif
