/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/ctrl_sock.h"
#include "transport/peer_end.h"

#include "base/log.h"
#include "transport/comm.h"
#include "transport/failover_ops.h"
#include "transport/shared.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define FRAMES_PER_VISIT 16

struct ha_ctrl_sock *ha_ctrl_sock_new(struct ha_frame_sock *frames)
{
	struct ha_ctrl_sock *sock = malloc(sizeof(*sock));
	socklen_t self_length = sizeof(sock->self), peer_length = sizeof(sock->peer);

	if (!sock)
		return NULL;
	sock->comm = NULL;
	memset(&sock->peer, 0, sizeof(sock->peer));
	memset(&sock->self, 0, sizeof(sock->self));
	if (getpeername(frames->fd, &sock->peer.sa, &peer_length) != 0 ||
	    getsockname(frames->fd, &sock->self.sa, &self_length) != 0)
		sock->peer.sa.sa_family = AF_UNSPEC; /* it broke already */
	atomic_init(&sock->state, HA_CTRL_SOCK_NEW);
	sock->watch.fd = -1;
	sock->readable = false;
	sock->frames = *frames;
	frames->fd = -1;
	return sock;
}

void ha_ctrl_sock_free(struct ha_ctrl_sock *sock)
{
	if (!sock)
		return;
	ha_frame_sock_close(&sock->frames);
	free(sock);
}

static void lost(struct ha_ctrl_sock *sock, enum ha_io io)
{
	struct ha_comm *comm = sock->comm;

	if (atomic_load(&comm->peer_bye))
		return;
	if (comm->ops->socket_broken(comm))
		ha_frame_sock_close(&sock->frames); /* the peer must not believe in it any longer */
	else if (io == HA_IO_BAD)
		ha_comm_fail(comm, HA_ERR_INTERNAL, "a control message that is %s",
			     ha_wire_strerror(sock->frames.bad));
	else
		ha_comm_peer_lost(comm, ha_frame_sock_why(&sock->frames));
}

void ha_ctrl_sock_garbled(struct ha_ctrl_sock *sock, enum ha_wire_result how)
{
	/* It came whole: what is missing was never said. */
	sock->frames.bad = how == HA_WIRE_SHORT ? HA_WIRE_BAD_VALUE : how;
}

/* The connection's visit reads it: there, and nowhere else, is what it says acted upon. */
static void ready(struct ha_watch *watch, uint32_t events)
{
	struct ha_ctrl_sock *sock = ha_container_of(watch, struct ha_ctrl_sock, watch);

	(void)events;
	if (watch->fd < 0)
		return; /* unwatched by another callback of the same round */
	sock->readable = true;
	ha_progress_call(sock->comm->inst->progress, &sock->comm->poller);
}

void ha_ctrl_sock_read(struct ha_ctrl_sock *sock)
{
	struct ha_comm *comm = sock->comm;
	struct ha_frame_header header;
	const uint8_t *payload;
	enum ha_io io = HA_IO_DONE;

	if (!sock->readable)
		return;
	sock->readable = false; /* what is left is told again */
	for (int i = 0; i < FRAMES_PER_VISIT && io == HA_IO_DONE; i++) {
		io = ha_frame_sock_receive(&sock->frames, &header, &payload);
		if (io == HA_IO_DONE)
			comm->ops->frame(comm, &header, payload);
		if (ha_frame_sock_is_bad(&sock->frames))
			io = HA_IO_BAD;
		if (sock->frames.bad == HA_WIRE_FORGED)
			ha_instance_refused(comm->inst, HA_refused_messages);
	}
	if (io == HA_IO_CLOSED || io == HA_IO_BAD) {
		ha_progress_unwatch_self(comm->inst->progress, &sock->watch);
		lost(sock, io);
	}
}

ha_result_t ha_ctrl_sock_start(struct ha_ctrl_sock *sock, struct ha_comm *comm)
{
	sock->comm = comm;
	sock->watch.fd = sock->frames.fd;
	sock->watch.ready = ready;
	HA_TRY(ha_progress_watch(comm->inst->progress, &sock->watch));
	atomic_store_explicit(&sock->state, HA_CTRL_SOCK_WATCHED, memory_order_release);
	return HA_OK;
}

void ha_ctrl_sock_stop(struct ha_ctrl_sock *sock)
{
	if (!sock || !sock->comm)
		return;
	/*
	 * Before the lock that unwatch takes: a round that has not seen it by then has watched what
	 * it wanted to when unwatch gets there, and later ones see it.
	 */
	atomic_store_explicit(&sock->state, HA_CTRL_SOCK_STOPPED, memory_order_release);
	ha_progress_unwatch(sock->comm->inst->progress, &sock->watch);
}

bool ha_ctrl_sock_replace(struct ha_ctrl_sock *sock, struct ha_frame_sock *frames)
{
	struct ha_watch before = sock->watch;

	if (atomic_load_explicit(&sock->state, memory_order_acquire) != HA_CTRL_SOCK_WATCHED)
		return false;
	sock->watch.fd = frames->fd;
	if (ha_progress_watch(sock->comm->inst->progress, &sock->watch) != HA_OK) {
		sock->watch.fd = before.fd;
		return false;
	}
	ha_progress_unwatch_self(sock->comm->inst->progress, &before);
	ha_frame_sock_close(&sock->frames);
	sock->frames = *frames;
	frames->fd = -1;
	return true;
}

bool ha_ctrl_sock_send(struct ha_ctrl_sock *sock, enum ha_frame_type type, const void *payload,
		       uint32_t length)
{
	return ha_frame_sock_queue(&sock->frames, type, payload, length) &&
	       ha_frame_sock_flush(&sock->frames) == HA_IO_DONE;
}

void ha_ctrl_sock_abort(struct ha_ctrl_sock *sock, const struct ha_abort *abort)
{
	uint8_t payload[HA_ABORT_BYTES];

	ha_abort_encode(abort, payload);
	/* A peer that cannot be told sees the end. */
	(void)ha_ctrl_sock_send(sock, HA_FRAME_ABORT, payload, sizeof(payload));
}

void ha_ctrl_sock_bye(struct ha_ctrl_sock *sock, const struct ha_bye *bye)
{
	uint8_t payload[HA_BYE_BYTES];

	ha_bye_encode(bye, payload);
	/* A dead peer needs no goodbye. */
	(void)ha_ctrl_sock_send(sock, HA_FRAME_BYE, payload, sizeof(payload));
}
