/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bootstrap socket after the handshake: a control lane between the two ends. It tells that
 * the peer closed in good order (BYE) or that its process is gone (end of file without BYE).
 * Later control messages travel on it, too. When it breaks it can be replaced by another:
 * failover/reconnect.h.
 */
#ifndef HA_TRANSPORT_CTRL_SOCK_H
#define HA_TRANSPORT_CTRL_SOCK_H

#include "base/result.h"
#include "progress/progress.h"
#include "transport/frame_sock.h"

#include <stdatomic.h>

struct ha_comm;

enum ha_lane_state {
	HA_LANE_NEW,
	HA_LANE_WATCHED, /* or would be, if its socket were not broken */
	HA_LANE_STOPPED, /* nothing may be watched any more */
};

struct ha_lane {
	struct ha_watch watch;
	struct ha_comm *comm;
	struct ha_stream stream; /* progress thread between start and stop */
	bool readable;		 /* progress thread: something has come, or its end */
	_Atomic int state;	 /* enum ha_lane_state; written by the application */
	union ha_sockaddr peer;	 /* constant: the other end of the first socket; zero: unknown */
};

/* Takes over the handshake's stream, which is closed afterwards. NULL: out of memory. */
struct ha_lane *ha_lane_new(struct ha_stream *stream);
void ha_lane_free(struct ha_lane *lane);

/* From here on the progress thread reads it and tells `comm`. */
ha_result_t ha_lane_start(struct ha_lane *lane, struct ha_comm *comm) HA_MUST_CHECK;
void ha_lane_stop(struct ha_lane *lane);

/* Takes what has come, if anything, and tells whoever keeps the connection alive. Progress thread,
 * in a visit of the connection, under the token. */
void ha_lane_read(struct ha_lane *lane);

/*
 * Goes on over another socket, which it takes over, and closes the one before. False, and all is
 * as it was: it is not started yet, or stopped, or the socket cannot be watched. Progress thread,
 * under the token.
 */
bool ha_lane_replace(struct ha_lane *lane, struct ha_stream *stream) HA_MUST_CHECK;

/*
 * Says something as well as a socket can without waiting; false: not, or not now. Before
 * ha_lane_start, on the progress thread, or after ha_lane_stop.
 */
bool ha_lane_say(struct ha_lane *lane, enum ha_frame_type type, const void *payload,
		 uint32_t length);

/* Says ABORT as well as a socket can without waiting. Progress thread. */
void ha_lane_abort(struct ha_lane *lane, const struct ha_abort *abort);

/* Says BYE as well as a socket can without waiting. After ha_lane_stop. */
void ha_lane_bye(struct ha_lane *lane, const struct ha_bye *bye);

#endif
