/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/lane.h"

#include "base/log.h"
#include "transport/comm.h"
#include "transport/instance.h"

#include <stdlib.h>

#define FRAMES_PER_EVENT 16

struct ha_lane *ha_lane_new(struct ha_stream *stream)
{
	struct ha_lane *lane = malloc(sizeof(*lane));

	if (!lane)
		return NULL;
	lane->comm = NULL;
	lane->watch.fd = -1;
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

static void take_frame(struct ha_comm *comm, const struct ha_frame_header *header,
		       const uint8_t *payload)
{
	struct ha_abort given_up;
	struct ha_bye bye;

	switch (header->type) {
	case HA_FRAME_BYE:
		if (ha_bye_decode(payload, header->length, &bye) == HA_WIRE_OK)
			ha_comm_peer_bye(comm, &bye);
		break;
	case HA_FRAME_ABORT:
		if (ha_abort_decode(payload, header->length, &given_up) == HA_WIRE_OK)
			ha_comm_peer_aborted(comm, &given_up);
		break;
	default: /* of a newer peer */
		HA_TRACE(1, "connection %s: control message of unknown type %u ignored", comm->name,
			 header->type);
		break;
	}
}

/* Progress thread. */
static void ready(struct ha_watch *watch, uint32_t events)
{
	struct ha_lane *lane = ha_container_of(watch, struct ha_lane, watch);
	struct ha_comm *comm = lane->comm;
	struct ha_frame_header header;
	const uint8_t *payload;
	enum ha_io io = HA_IO_DONE;

	(void)events;
	for (int i = 0; i < FRAMES_PER_EVENT && io == HA_IO_DONE; i++) {
		io = ha_stream_receive(&lane->stream, &header, &payload);
		if (io == HA_IO_DONE)
			take_frame(comm, &header, payload);
	}
	if (io == HA_IO_DONE || io == HA_IO_AGAIN)
		return;
	ha_progress_unwatch_self(comm->inst->progress, watch);
	if (atomic_load(&comm->peer_bye))
		return;
	if (io == HA_IO_BAD)
		ha_comm_fail(comm, HA_ERR_INTERNAL, "a control message that is %s",
			     ha_wire_strerror(lane->stream.bad));
	else
		ha_comm_peer_lost(comm, ha_stream_why(&lane->stream));
}

ha_result_t ha_lane_start(struct ha_lane *lane, struct ha_comm *comm)
{
	lane->comm = comm;
	lane->watch.fd = lane->stream.fd;
	lane->watch.ready = ready;
	return ha_progress_watch(comm->inst->progress, &lane->watch);
}

void ha_lane_stop(struct ha_lane *lane)
{
	if (lane && lane->comm)
		ha_progress_unwatch(lane->comm->inst->progress, &lane->watch);
}

void ha_lane_abort(struct ha_lane *lane, const struct ha_abort *abort)
{
	uint8_t payload[HA_ABORT_BYTES];

	ha_abort_encode(abort, payload);
	if (ha_stream_queue(&lane->stream, HA_FRAME_ABORT, payload, sizeof(payload)))
		(void)ha_stream_flush(&lane->stream); /* a peer that cannot be told sees the end */
}

void ha_lane_bye(struct ha_lane *lane, const struct ha_bye *bye)
{
	uint8_t payload[HA_BYE_BYTES];

	ha_bye_encode(bye, payload);
	if (ha_stream_queue(&lane->stream, HA_FRAME_BYE, payload, sizeof(payload)))
		(void)ha_stream_flush(&lane->stream); /* a dead peer needs no goodbye */
}
