/* SPDX-License-Identifier: Apache-2.0 */
/* From what the peer says, over whatever channel, to the state machine. */
#include "failover/hear.h"

#include "base/log.h"
#include "failover/engine.h"
#include "failover/fsm.h"
#include "failover/notes.h"
#include "failover/port_exchange.h"
#include "failover/signaling.h"
#include "transport/comm.h"
#include "transport/ctrl_sock.h"
#include "transport/peer_end.h"

static const enum ha_on event_of[HA_MSG_END] = {
    [HA_MSG_SUSPECT] = HA_ON_SUSPECT, [HA_MSG_FENCE] = HA_ON_FENCE,
    [HA_MSG_FENCED] = HA_ON_FENCED,   [HA_MSG_RESUME] = HA_ON_RESUME,
    [HA_MSG_RESUMED] = HA_ON_RESUMED, [HA_MSG_REBUILD] = HA_ON_REBUILD,
    [HA_MSG_REBUILT] = HA_ON_REBUILT, [HA_MSG_REFUSED] = HA_ON_REFUSED,
    [HA_MSG_STATE] = HA_ON_STATE,     [HA_MSG_ABORT] = HA_ON_ABORT,
    [HA_MSG_BYE] = HA_ON_BYE,	      [HA_MSG_SHED] = HA_ON_SHED,
    [HA_MSG_MENDED] = HA_ON_MENDED,
};

/*
 * Numbers are merged and never go back, so one that nobody can have would stay: a message that was
 * never sent would be there, a path could not be built any more.
 */
static bool can_be(struct ha_comm *comm, const struct ha_message *m)
{
	if (!ha_comm_peer_can_have(comm, &m->window))
		return false;
	if (ha_fsm_can_be(comm, m))
		return true;
	ha_comm_fail(comm, HA_ERR_INTERNAL,
		     "%s of the peer names an epoch or a generation that cannot be: it is broken, "
		     "or somebody else speaks in its place",
		     ha_message_name(m->kind));
	return false;
}

void ha_failover_hear(struct ha_comm *comm, const struct ha_message *m)
{
	HA_TRACE(2, "connection %s: hears %s, epoch %u, path %u.%u", comm->name,
		 ha_message_name(m->kind), m->epoch, m->path, m->generation);
	if (!can_be(comm, m))
		return; /* the next visit gives up */
	/* An end that has failed does nothing it is asked for. */
	if (ha_comm_error(comm) != HA_OK && comm->failover->state != HA_FO_LATCHED)
		ha_fsm_on(comm, HA_ON_GIVE_UP);
	ha_signaling_heard(comm, m);
	ha_failover_take_failures(comm); /* of what it says of the peer's ports */
	switch (m->kind) {
	case HA_MSG_PING:
		ha_say(comm, HA_SAY_PONG);
		comm->failover->stalled = true; /* there, and nothing may be outstanding here */
		return;
	case HA_MSG_PONG:
		return;
	default:
		ha_fsm_step(comm, &(struct ha_fsm_event){.on = event_of[m->kind], .m = m});
	}
}

static void take_message(struct ha_comm *comm, const uint8_t *payload, uint32_t length)
{
	struct ha_message m;
	enum ha_wire_result decoded = ha_message_decode(payload, length, &m);

	comm->failover->unproven = false;
	if (decoded == HA_WIRE_OK) {
		ha_signaling_note_over_socket(comm, &m);
		ha_failover_hear(comm, &m);
	} else if (decoded != HA_WIRE_BAD_VALUE)
		ha_ctrl_sock_garbled(comm->ctrl_sock, decoded);
	else
		ha_comm_fail(comm, HA_ERR_INTERNAL, "a message of the failover protocol that is %s",
			     ha_wire_strerror(decoded));
}

void ha_failover_frame(struct ha_comm *comm, const struct ha_frame_header *header,
		       const uint8_t *payload)
{
	ha_failover_take_failures(comm);
	switch (header->type) {
	case HA_FRAME_PORTS:
		ha_port_exchange_heard(comm, payload, header->length);
		break;
	case HA_FRAME_CONTROL:
		take_message(comm, payload, header->length);
		break;
	default: /* of a newer peer */
		HA_TRACE(1, "connection %s: control message of unknown type %u ignored", comm->name,
			 header->type);
	}
}
