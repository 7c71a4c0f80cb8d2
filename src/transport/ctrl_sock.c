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

struct ha_lane *ha_lane_new(struct ha_stream *stream)
{
	struct ha_lane *lane = malloc(sizeof(*lane));
	socklen_t length = sizeof(lane->peer);

	if (!lane)
		return NULL;
	lane->comm = NULL;
	memset(&lane->peer, 0, sizeof(lane->peer));
	if (getpeername(stream->fd, &lane->peer.sa, &length) != 0)
		lane->peer.sa.sa_family = AF_UNSPEC; /* it broke already */
	atomic_init(&lane->state, HA_LANE_NEW);
	lane->watch.fd = -1;
	lane->readable = false;
	lane->stream = *stream;
	stream->fd = -1;
	return lane;
}

void ha_lane_free(struct ha_lane *lane)
{
	if (!lane)
		return;
	ha_stream_close(&lane->stream);
	free(lane);
}

static void lost(struct ha_lane *lane, enum ha_io io)
{
	struct ha_comm *comm = lane->comm;

	if (atomic_load(&comm->peer_bye))
		return;
	if (io == HA_IO_BAD)
		ha_comm_fail(comm, HA_ERR_INTERNAL, "a control message that is %s",
			     ha_wire_strerror(lane->stream.bad));
	else if (!comm->ops->socket_broken(comm))
		ha_comm_peer_lost(comm, ha_stream_why(&lane->stream));
	else
		ha_stream_close(&lane->stream); /* the peer must not believe in it any longer */
}

/* The connection's visit reads it: there, and nowhere else, is what it says acted upon. */
static void ready(struct ha_watch *watch, uint32_t events)
{
	struct ha_lane *lane = ha_container_of(watch, struct ha_lane, watch);

	(void)events;
	if (watch->fd < 0)
		return; /* unwatched by another callback of the same round */
	lane->readable = true;
	ha_progress_call(lane->comm->inst->progress, &lane->comm->poller);
}

void ha_lane_read(struct ha_lane *lane)
{
	struct ha_comm *comm = lane->comm;
	struct ha_frame_header header;
	const uint8_t *payload;
	enum ha_io io = HA_IO_DONE;

	if (!lane->readable)
		return;
	lane->readable = false; /* what is left is told again */
	for (int i = 0; i < FRAMES_PER_VISIT && io == HA_IO_DONE; i++) {
		io = ha_stream_receive(&lane->stream, &header, &payload);
		if (io == HA_IO_DONE)
			comm->ops->frame(comm, &header, payload);
	}
	if (io == HA_IO_CLOSED || io == HA_IO_BAD) {
		ha_progress_unwatch_self(comm->inst->progress, &lane->watch);
		lost(lane, io);
	}
}

ha_result_t ha_lane_start(struct ha_lane *lane, struct ha_comm *comm)
{
	lane->comm = comm;
	lane->watch.fd = lane->stream.fd;
	lane->watch.ready = ready;
	HA_TRY(ha_progress_watch(comm->inst->progress, &lane->watch));
	atomic_store_explicit(&lane->state, HA_LANE_WATCHED, memory_order_release);
	return HA_OK;
}

void ha_lane_stop(struct ha_lane *lane)
{
	if (!lane || !lane->comm)
		return;
	/*
	 * Before the lock that unwatch takes: a round that has not seen it by then has watched what
	 * it wanted to when unwatch gets there, and later ones see it.
	 */
	atomic_store_explicit(&lane->state, HA_LANE_STOPPED, memory_order_release);
	ha_progress_unwatch(lane->comm->inst->progress, &lane->watch);
}

bool ha_lane_replace(struct ha_lane *lane, struct ha_stream *stream)
{
	struct ha_watch before = lane->watch;

	if (atomic_load_explicit(&lane->state, memory_order_acquire) != HA_LANE_WATCHED)
		return false;
	lane->watch.fd = stream->fd;
	if (ha_progress_watch(lane->comm->inst->progress, &lane->watch) != HA_OK) {
		lane->watch.fd = before.fd;
		return false;
	}
	ha_progress_unwatch_self(lane->comm->inst->progress, &before);
	ha_stream_close(&lane->stream);
	lane->stream = *stream;
	stream->fd = -1;
	return true;
}

bool ha_lane_say(struct ha_lane *lane, enum ha_frame_type type, const void *payload,
		 uint32_t length)
{
	return ha_stream_queue(&lane->stream, type, payload, length) &&
	       ha_stream_flush(&lane->stream) == HA_IO_DONE;
}

void ha_lane_abort(struct ha_lane *lane, const struct ha_abort *abort)
{
	uint8_t payload[HA_ABORT_BYTES];

	ha_abort_encode(abort, payload);
	/* A peer that cannot be told sees the end. */
	(void)ha_lane_say(lane, HA_FRAME_ABORT, payload, sizeof(payload));
}

void ha_lane_bye(struct ha_lane *lane, const struct ha_bye *bye)
{
	uint8_t payload[HA_BYE_BYTES];

	ha_bye_encode(bye, payload);
	/* A dead peer needs no goodbye. */
	(void)ha_lane_say(lane, HA_FRAME_BYE, payload, sizeof(payload));
}
