/* SPDX-License-Identifier: Apache-2.0 */
#include "failover/signaling.h"

#include "base/bytes.h"
#include "base/clock.h"
#include "base/invariant.h"
#include "base/log.h"
#include "base/outage.h"
#include "failover/engine.h"
#include "failover/farewell.h"
#include "failover/fsm.h"
#include "failover/hear.h"
#include "failover/notes.h"
#include "failover/peer_life.h"
#include "failover/port_pair.h"
#include "failover/standby.h"
#include "transport/comm.h"
#include "transport/complete.h"
#include "transport/ctrl_sock.h"
#include "transport/e2e.h"
#include "transport/path_connect.h"
#include "transport/path_msg.h"
#include "transport/recv.h"
#include "transport/send.h"
#include "transport/shared.h"

#include <stdio.h>
#include <string.h>

/* A message that nothing answers is said again after this, then after twice that, and so on. */
#define SAY_AGAIN_MIN_MS 10
#define SAY_AGAIN_MAX_MS 250

/*
 * A peer that is frozen finds in its socket what was said, so that is not said often. Its window
 * must stay open, however long it takes: the kernel takes a closed one for a host that is gone. So
 * what was said before is not said again into a socket that holds so much, or that has not even
 * got it across; over paths it is.
 */
#define SAY_AGAIN_FROZEN_MS 16000
#define UNHEARD_MAX	    8192

/*
 * A peer that is there answers what is said to it at the latest after SAY_AGAIN_MAX_MS. One whose
 * socket is up and that says nothing for so long is not running.
 */
#define FROZEN_NS (4ull * SAY_AGAIN_MAX_MS * HA_NS_PER_MS)

/*
 * What is said over paths is said over the socket, too. What came over a path only is of a peer
 * that may be without a socket, and dials for so long at least.
 */
#define MISSED_NS (10 * HA_NS_PER_S)

/* What the last message may take to get there. */
#define GOODBYE_NS     (20 * HA_NS_PER_MS)
#define GOODBYE_ROUNDS 100000

/* ---- what to say --------------------------------------------------------------------------- */

static bool is_drained(const struct ha_comm *comm, unsigned offer)
{
	return ha_port_drained(comm->failover->offers[offer]);
}

/* Of the ports that this end has said in PORTS, those that are so: a bit each. */
static uint16_t ports_that_are(const struct ha_comm *comm,
			       bool (*so)(const struct ha_comm *comm, unsigned offer))
{
	uint16_t bits = 0;

	for (unsigned i = 0; i < comm->failover->noffers; i++)
		if (so(comm, i))
			bits |= (uint16_t)(1u << i);
	return bits;
}

uint16_t ha_signaling_ports_up(const struct ha_comm *comm)
{
	return ports_that_are(comm, ha_offer_usable);
}

static void fill(struct ha_comm *comm, unsigned kind, struct ha_message *m)
{
	struct ha_failover *fo = comm->failover;

	*m = (struct ha_message){
	    .kind = (uint8_t)kind,
	    .reason = fo->now.reason,
	    .code = (uint16_t)ha_comm_error(comm),
	    .epoch = fo->epoch,
	    .serial = ++fo->serial,
	    .ports_up = ha_signaling_ports_up(comm),
	    .ports_drained = ports_that_are(comm, is_drained),
	    .rto_ms = comm->rto_ms,
	    .window = comm->is_send ? comm->send->completed : comm->recv->done,
	};
	fo->ports_said = m->ports_up;
	for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
		const struct ha_slot *slot = &fo->slots[p];

		m->fenced_gen[p] = comm->is_send ? slot->fenced_gen : slot->want_gen;
		m->yielded_gen[p] = comm->is_send ? slot->yielded_gen : slot->fenced_gen;
	}
	if (kind == HA_MSG_SHED || kind == HA_MSG_MENDED)
		ha_rails_fill(comm, m);
}

static void name_path(struct ha_message *m, unsigned path, uint32_t generation)
{
	m->path = (uint8_t)path;
	m->generation = generation;
}

/* ---- channels ------------------------------------------------------------------------------ */

bool ha_signaling_carries(const struct ha_comm *comm, unsigned p)
{
	return ha_path_ready(comm->paths[p]) && ha_slot_is_up(&comm->failover->slots[p]);
}

/* Also one whose first message is still under way: the receiver is heard on it if it lives. */
static bool may_carry_messages(const struct ha_comm *comm, unsigned p)
{
	const struct ha_slot *slot = &comm->failover->slots[p];

	return ha_path_ready(comm->paths[p]) &&
	       (ha_slot_is_up(slot) || (comm->is_send && slot->state == HA_SLOT_PROBING));
}

bool ha_signaling_has_ctrl_sock(const struct ha_comm *comm)
{
	if (!comm->failover->socket_broken)
		return true;
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (may_carry_messages(comm, p))
			return true;
	return false;
}

static struct ha_statement over_path(enum ha_speaker speaker, unsigned p, const uint8_t *bytes)
{
	struct ha_reader count = {bytes + HA_MAILBOX_EXPECTED};

	return (struct ha_statement){.speaker = (uint8_t)speaker,
				     .where = (uint8_t)p,
				     .count = ha_get64(&count),
				     .body = bytes,
				     .body_length = HA_MAILBOX_EXPECTED};
}

/* How a path takes a message: ha_path_msg_send, or the one for the last. */
typedef bool (*path_send)(struct ha_comm *comm, struct ha_path *path, const void *message,
			  size_t length);

static void deliver_over(struct ha_comm *comm, unsigned p, const uint8_t *message, size_t length,
			 path_send send)
{
	uint8_t sealed[HA_MAILBOX_SEALED] = {0};
	struct ha_writer w = {sealed + HA_MAILBOX_EXPECTED};
	struct ha_statement said;

	if (!comm->auth.on) {
		send(comm, comm->paths[p], message, length);
		return;
	}
	memcpy(sealed, message, length);
	ha_put_uint(&w, ++comm->failover->path_said, 8);
	said = over_path(ha_comm_speaker(comm), p, sealed);
	ha_statement_code(&comm->auth.path, &said, sealed + HA_MAILBOX_CODE_OFFS);
	send(comm, comm->paths[p], sealed, sizeof(sealed));
}

/* What is being overwritten is followed by another immediate; what stays as it is was forged. */
static bool is_torn(const struct ha_comm *comm, unsigned p, const uint8_t *bytes)
{
	uint8_t again[HA_MAILBOX_BYTES];

	ha_path_mailbox_read(comm, p, again);
	return memcmp(again, bytes, sizeof(again)) != 0;
}

/* Said by the peer, for this path, and not heard before: the box may be looked at twice. */
static bool may_be_heard(struct ha_comm *comm, unsigned p, const uint8_t *bytes)
{
	struct ha_failover *fo = comm->failover;
	struct ha_statement said;

	if (!comm->auth.on)
		return true;
	said = over_path(ha_other_speaker(ha_comm_speaker(comm)), p, bytes);
	if (ha_statement_is_genuine(&comm->auth.path, &said, bytes + HA_MAILBOX_CODE_OFFS)) {
		if (said.count > fo->path_heard[p]) {
			fo->path_heard[p] = said.count;
			return true;
		}
		if (said.count == fo->path_heard[p]) {
			comm->count.control_stale++;
			return false;
		}
	} else if (is_torn(comm, p, bytes)) {
		return false;
	}
	ha_instance_refused(comm->inst, HA_refused_messages);
	return false;
}

static void deliver(struct ha_comm *comm, const struct ha_message *m)
{
	uint8_t bytes[HA_MESSAGE_MAX_BYTES];
	struct ha_failover *fo = comm->failover;
	size_t length = ha_message_encode(m, bytes);

	HA_TRACE(2, "connection %s: says %s, epoch %u, path %u.%u", comm->name,
		 ha_message_name(m->kind), m->epoch, m->path, m->generation);
	if (!fo->socket_broken && !fo->spare_socket) {
		ha_ctrl_sock_send(comm->ctrl_sock, HA_FRAME_CONTROL, bytes, (uint32_t)length);
		fo->unheard_bytes += (uint32_t)length;
	}
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (ha_signaling_carries(comm, p))
			deliver_over(comm, p, bytes, length,
				     m->kind == HA_MSG_BYE ? ha_path_msg_send_last
							   : ha_path_msg_send);
	comm->count.control_sent++;
}

static bool is_newer(uint32_t serial, uint32_t than)
{
	return (int32_t)(serial - than) > 0;
}

static void note_over_path(struct ha_failover *fo, const struct ha_message *m)
{
	if (!is_newer(m->serial, fo->path_serial))
		return;
	fo->path_serial = m->serial;
	fo->path_serial_ns = ha_now_ns();
}

void ha_signaling_note_over_socket(struct ha_comm *comm, const struct ha_message *m)
{
	if (is_newer(m->serial, comm->failover->socket_serial))
		comm->failover->socket_serial = m->serial;
}

bool ha_signaling_peer_misses_socket(const struct ha_comm *comm)
{
	const struct ha_failover *fo = comm->failover;

	return is_newer(fo->path_serial, fo->socket_serial) &&
	       ha_now_ns() - fo->path_serial_ns < MISSED_NS;
}

void ha_signaling_read_path_msg(struct ha_comm *comm)
{
	for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
		struct ha_slot_notes *notes = &comm->failover->slots[p].notes;
		uint8_t bytes[HA_MAILBOX_BYTES];
		struct ha_message m;

		if (!notes->msg)
			continue;
		notes->msg = false;
		ha_path_mailbox_read(comm, p, bytes);
		/* One that is being overwritten is followed by another immediate. */
		if (!may_be_heard(comm, p, bytes) ||
		    ha_message_decode(bytes, sizeof(bytes), &m) != HA_WIRE_OK)
			continue;
		note_over_path(comm->failover, &m);
		ha_failover_hear(comm, &m);
	}
}

static bool msg_under_way(const struct ha_comm *comm)
{
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (ha_path_ready(comm->paths[p]) && comm->paths[p]->msgs_out != 0)
			return true;
	return false;
}

static void wait_for_message(struct ha_comm *comm)
{
	uint64_t until_ns = ha_now_ns() + GOODBYE_NS;

	/* Rounds are bounded as well, for a clock that stands still. */
	for (int i = 0; i < GOODBYE_ROUNDS && msg_under_way(comm) && ha_now_ns() < until_ns; i++) {
		ha_comm_poll(comm, comm->poll_batch);
		ha_comm_poll_standby(comm);
	}
}

void ha_signaling_goodbye(struct ha_comm *comm)
{
	struct ha_message m;

	fill(comm, HA_MSG_BYE, &m);
	ha_farewell_keep(comm, &m); /* before: it may be asked for as soon as it is said */
	deliver(comm, &m);
	if (comm->failover->socket_broken)
		wait_for_message(comm);
}

/* ---- saying -------------------------------------------------------------------------------- */

void ha_signaling_new_statement(struct ha_comm *comm)
{
	comm->failover->say_interval_ms = SAY_AGAIN_MIN_MS;
	comm->failover->say_again_ns = 0;
}

static void say_kind(struct ha_comm *comm, unsigned kind)
{
	struct ha_message m;

	fill(comm, kind, &m);
	deliver(comm, &m);
}

/* False: there is nothing to state. */
static bool say_statement(struct ha_comm *comm)
{
	const struct ha_failover *fo = comm->failover;
	unsigned kind = ha_fsm_statement(comm);
	struct ha_message m;

	if (kind == 0)
		return false;
	fill(comm, kind, &m);
	if (kind == HA_MSG_SUSPECT) {
		name_path(&m, fo->suspect_path, fo->suspect_gen);
		m.port = HA_SUSPECT_ALL;
	}
	if (kind == HA_MSG_RESUME)
		name_path(&m, comm->active, ha_comm_path(comm)->generation);
	deliver(comm, &m);
	return true;
}

/* About one path: REBUILD and REBUILT with our end of it, REFUSED and SUSPECT without. */
static void say_path(struct ha_comm *comm, unsigned kind, unsigned p)
{
	const struct ha_slot *slot = &comm->failover->slots[p];
	const struct ha_path *path = comm->paths[p];
	struct ha_message m;

	if (kind == HA_MSG_REBUILD && slot->state != HA_SLOT_REBUILDING)
		return; /* answered meanwhile: what it would say is being connected */
	fill(comm, kind, &m);
	name_path(&m, p, path ? path->generation : slot->newest_gen);
	if (kind == HA_MSG_SUSPECT && ha_rails_is_lost(comm, p))
		m.reason = comm->failover->rails[p].reason;
	if (kind == HA_MSG_REBUILD || kind == HA_MSG_REBUILT) {
		if (!ha_path_open_for_use(path))
			return;
		HA_INVARIANT(!ha_path_away(path));
		m.has_endpoint = true;
		ha_path_endpoint(path, &m.endpoint);
		m.port = slot->peer_port;
		m.peer_port = slot->port;
	}
	deliver(comm, &m);
}

static void say_paths(struct ha_comm *comm, uint32_t say)
{
	static const struct {
		uint32_t bit;
		unsigned kind;
	} kinds[] = {
	    {HA_SAY_REBUILD, HA_MSG_REBUILD},
	    {HA_SAY_REBUILT, HA_MSG_REBUILT},
	    {HA_SAY_REFUSED, HA_MSG_REFUSED},
	    {HA_SAY_SUSPECT, HA_MSG_SUSPECT},
	};

	for (unsigned i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		for (unsigned p = 0; p < HA_MAX_PATHS; p++)
			if (say & kinds[i].bit << p)
				say_path(comm, kinds[i].kind, p);
}

/* Nothing is wrong with the socket: the other end's kernel has all of it, and nobody reads. */
static bool reads_nothing(const struct ha_comm *comm, uint64_t now_ns)
{
	return ha_signaling_peer_frozen(comm, now_ns) &&
	       ha_frame_sock_is_drained(&comm->ctrl_sock->frames);
}

uint32_t ha_signaling_repeat(struct ha_comm *comm, uint32_t say, uint32_t interval_ms,
			     uint64_t now_ns)
{
	comm->failover->repeat |= say;
	if (!reads_nothing(comm, now_ns))
		return interval_ms < SAY_AGAIN_MAX_MS ? interval_ms : SAY_AGAIN_MAX_MS;
	if (interval_ms < SAY_AGAIN_MAX_MS)
		return SAY_AGAIN_MAX_MS;
	return 2 * interval_ms < SAY_AGAIN_FROZEN_MS ? 2 * interval_ms : SAY_AGAIN_FROZEN_MS;
}

static void say_again(struct ha_comm *comm, uint64_t now_ns)
{
	struct ha_failover *fo = comm->failover;

	if (ha_fsm_statement(comm) == 0 || now_ns < fo->say_again_ns)
		return;
	if (fo->say_again_ns != 0) {
		comm->count.control_resent++;
		if (fo->say_interval_ms < SAY_AGAIN_MAX_MS)
			fo->say_interval_ms *= 2;
		fo->say_interval_ms =
		    ha_signaling_repeat(comm, HA_SAY_STATEMENT, fo->say_interval_ms, now_ns);
	}
	fo->say_again_ns = now_ns + (uint64_t)fo->say_interval_ms * HA_NS_PER_MS;
}

static void say_all(struct ha_comm *comm, uint32_t say)
{
	const struct ha_failover *fo = comm->failover;
	bool told = false; /* what STATE would tell: those of an epoch do so, too */

	if (say & HA_SAY_ABORT)
		say_kind(comm, HA_MSG_ABORT);
	if (say & HA_SAY_STATEMENT)
		told = say_statement(comm);
	if (say & HA_SAY_RESUMED && fo->state == HA_FO_ACTIVE) {
		say_kind(comm, HA_MSG_RESUMED);
		told = true;
	}
	if (say & HA_SAY_MENDED) {
		say_kind(comm, HA_MSG_MENDED);
		told = true;
	}
	if (say & HA_SAY_PONG)
		say_kind(comm, HA_MSG_PONG);
	if (say & HA_SAY_PING)
		say_kind(comm, HA_MSG_PING);
	if (say & HA_SAY_STATE && !told)
		say_kind(comm, HA_MSG_STATE);
	say_paths(comm, say);
}

void ha_signaling_send(struct ha_comm *comm, uint64_t now_ns)
{
	struct ha_failover *fo = comm->failover;
	uint32_t say, repeat;

	ha_peer_life_check(comm, now_ns);
	say_again(comm, now_ns);
	say = fo->say;
	repeat = fo->repeat & ~say;
	fo->say = fo->repeat = 0;
	say_all(comm, say);
	if (repeat == 0)
		return;
	if (!fo->socket_broken)
		(void)ha_frame_sock_flush(
		    &comm->ctrl_sock->frames); /* what there was no room for */
	fo->spare_socket =
	    fo->unheard_bytes > UNHEARD_MAX || !ha_frame_sock_is_drained(&comm->ctrl_sock->frames);
	say_all(comm, repeat);
	fo->spare_socket = false;
}

/* ---- hearing ------------------------------------------------------------------------------- */

/* What the peer says of its ports: one that went down takes our path with it. */
static void hear_ports(struct ha_comm *comm, uint16_t up)
{
	struct ha_failover *fo = comm->failover;

	if (up == fo->peer_ports_up)
		return;
	fo->peer_renewed |= up & ~fo->peer_ports_up;
	fo->peer_ports_up = up;
	fo->look = true;
	for (unsigned p = 0; p < HA_MAX_PATHS && fo->peer_ports.count != 0; p++)
		if (ha_path_ready(comm->paths[p]) && !(up & 1u << fo->slots[p].peer_port))
			ha_failover_trigger(comm, comm->paths[p], HA_REASON_PEER_PORT,
					    "the peer's port %s:%d is down or of no use",
					    comm->paths[p]->remote.device,
					    comm->paths[p]->remote.port_num);
}

/* What the peer's operator wants of its ports: the receiver sees to it. */
static void hear_drains(struct ha_comm *comm, uint16_t drained)
{
	struct ha_failover *fo = comm->failover;
	uint16_t before = fo->peer_ports_drained;

	if (drained == before)
		return;
	fo->peer_ports_drained = drained;
	fo->look = true;
	if (comm->is_send)
		return;
	if (drained & ~before)
		ha_standby_drain(comm);
	if (before & ~drained & 1) /* the primary one */
		ha_standby_return(comm);
}

void ha_signaling_heard(struct ha_comm *comm, const struct ha_message *m)
{
	struct ha_failover *fo = comm->failover;

	fo->heard_ns = ha_now_ns();
	fo->unheard_bytes = 0;
	if (fo->say_interval_ms > SAY_AGAIN_MAX_MS) { /* it runs again */
		fo->say_interval_ms = SAY_AGAIN_MIN_MS;
		fo->say_again_ns = fo->heard_ns;
	}
	comm->count.control_received++;
	if (comm->is_send)
		ha_e2e_heard(comm, m->window.base);
	/* The state of ports goes up and down, so only the newest message's counts. */
	if (is_newer(m->serial, fo->peer_serial)) {
		fo->peer_serial = m->serial;
		hear_ports(comm, m->ports_up);
		hear_drains(comm, m->ports_drained);
		if (comm->is_send && m->rto_ms > comm->rto_ms && m->rto_ms <= HA_RTO_MAX_MS)
			comm->rto_ms = m->rto_ms;
	} else {
		comm->count.control_stale++;
	}
}

bool ha_signaling_peer_frozen(const struct ha_comm *comm, uint64_t now_ns)
{
	const struct ha_failover *fo = comm->failover;

	return !fo->socket_broken && !fo->unproven && now_ns - fo->heard_ns > FROZEN_NS;
}

uint64_t ha_signaling_deadline_ns(const struct ha_comm *comm)
{
	return ha_outage_ns(comm->config);
}
