/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bootstrap socket after the handshake: a control channel between the two ends. It tells that
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

enum ha_ctrl_sock_state {
	HA_CTRL_SOCK_NEW,
	HA_CTRL_SOCK_WATCHED, /* or would be, if its socket were not broken */
	HA_CTRL_SOCK_STOPPED, /* nothing may be watched any more */
};

struct ha_ctrl_sock {
	struct ha_watch watch;
	struct ha_comm *comm;
	struct ha_frame_sock frames; /* progress thread between start and stop */
	bool readable;		     /* progress thread: something has come, or its end */
	_Atomic int state;	     /* enum ha_ctrl_sock_state; written by the application */
	union ha_sockaddr self,
	    peer; /* constant: the two ends of the first socket; zero: unknown */
};

/* Takes over the handshake's socket, which is closed afterwards. NULL: out of memory. */
struct ha_ctrl_sock *ha_ctrl_sock_new(struct ha_frame_sock *frames);
void ha_ctrl_sock_free(struct ha_ctrl_sock *sock);

/* From here on the progress thread reads it and tells `comm`. */
ha_result_t ha_ctrl_sock_start(struct ha_ctrl_sock *sock, struct ha_comm *comm) HA_MUST_CHECK;
void ha_ctrl_sock_stop(struct ha_ctrl_sock *sock);

/* Takes what has come, if anything, and tells whoever keeps the connection alive. Progress thread,
 * in a visit of the connection, under the token. */
void ha_ctrl_sock_read(struct ha_ctrl_sock *sock);

/*
 * The frame just read is not what the peer said: nor is, then, what comes behind it. From the
 * callback of ha_ctrl_sock_read.
 */
void ha_ctrl_sock_garbled(struct ha_ctrl_sock *sock, enum ha_wire_result how);

/*
 * Goes on over another socket, which it takes over, and closes the one before. False, and all is
 * as it was: it is not started yet, or stopped, or the socket cannot be watched. Progress thread,
 * under the token.
 */
bool ha_ctrl_sock_replace(struct ha_ctrl_sock *sock, struct ha_frame_sock *frames) HA_MUST_CHECK;

/*
 * Says something as well as a socket can without waiting; false: not, or not now. Before
 * ha_ctrl_sock_start, on the progress thread, or after ha_ctrl_sock_stop.
 */
bool ha_ctrl_sock_send(struct ha_ctrl_sock *sock, enum ha_frame_type type, const void *payload,
		       uint32_t length);

/* Says ABORT as well as a socket can without waiting. Progress thread. */
void ha_ctrl_sock_abort(struct ha_ctrl_sock *sock, const struct ha_abort *abort);

/* Says BYE as well as a socket can without waiting. After ha_ctrl_sock_stop. */
void ha_ctrl_sock_bye(struct ha_ctrl_sock *sock, const struct ha_bye *bye);

#endif
