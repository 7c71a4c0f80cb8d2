/* SPDX-License-Identifier: Apache-2.0 */
#include "liveness/session.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "device/gid.h"
#include "device/unreachable.h"
#include "liveness/packet.h"
#include "progress/progress.h"

#include <stdlib.h>
#include <string.h>

/* After an address could not be resolved: a second at least, and ten times what the try took. */
#define ADDRESS_PAUSE_NS     HA_NS_PER_S
#define ADDRESS_PAUSE_FACTOR 10

/* Between two flow labels of a session; and after so many, where it seems to be of no use. */
#define RELABEL_NS	  HA_NS_PER_S
#define RELABELS	  32
#define RELABEL_SELDOM_NS (64 * HA_NS_PER_S)
/* So many the peer tries while we stay with ours. */
#define PEERS_LABELS 2

/* Between two warnings of suspicion. */
#define WARN_PAUSE_NS (60 * HA_NS_PER_S)

static struct ha_list *bucket_of(struct ha_live_port *port, uint64_t id)
{
	return &port->buckets[(id ^ (id >> 32)) % HA_LIVE_BUCKETS];
}

struct ha_session *ha_session_find(struct ha_live_port *port, uint64_t id)
{
	struct ha_list *pos, *bucket = bucket_of(port, id);

	ha_list_for_each (pos, bucket) {
		struct ha_session *s = ha_container_of(pos, struct ha_session, in_bucket);

		if (s->remote.id == id)
			return s;
	}
	return NULL;
}

/* ---- state ---------------------------------------------------------------------------------- */

static const char *remote_text(const struct ha_session *s, char *buf, size_t size)
{
	union ibv_gid gid;

	memcpy(gid.raw, s->remote.gid, sizeof(gid.raw));
	return ha_gid_text(&gid, buf, size);
}

static void tell_links(struct ha_session *s, enum ha_session_state state)
{
	struct ha_list *pos;

	ha_list_for_each (pos, &s->links) {
		struct ha_live_link *link = ha_container_of(pos, struct ha_live_link, in_session);

		if (state == HA_SESSION_DOWN && link->down)
			link->down(link);
		if (state == HA_SESSION_UP && link->up)
			link->up(link);
	}
}

static void tell_links_of_doubt(struct ha_session *s)
{
	struct ha_list *pos;

	ha_list_for_each (pos, &s->links) {
		struct ha_live_link *link = ha_container_of(pos, struct ha_live_link, in_session);

		if (link->suspected)
			link->suspected(link);
	}
}

static void tell_links_of_doom(struct ha_session *s)
{
	struct ha_list *pos;

	ha_list_for_each (pos, &s->links) {
		struct ha_live_link *link = ha_container_of(pos, struct ha_live_link, in_session);

		if (link->doomed)
			link->doomed(link);
	}
}

static void log_change(const struct ha_session *s, enum ha_session_state state, uint64_t now_ns)
{
	const struct ha_port *port = s->port->port;
	char gid[HA_GID_TEXT_MAX];

	remote_text(s, gid, sizeof(gid));
	if (state == HA_SESSION_DOWN)
		HA_WARN("%s:%d: heartbeats to %s (LID %u) are not answered any more: silent for "
			"%llu ms",
			port->nic->name, port->port_num, gid, s->remote.lid,
			(unsigned long long)((now_ns - s->detector.heard_ns) / HA_NS_PER_MS));
	else if (state == HA_SESSION_UP)
		HA_INFO(HA_SUBSYS_NET, "%s:%d: heartbeats to %s (LID %u) are answered",
			port->nic->name, port->port_num, gid, s->remote.lid);
}

/* Once in a while: it may come and go, and is no failure yet. */
static void warn_of_suspicion(struct ha_session *s, uint64_t now_ns)
{
	const struct ha_port *port = s->port->port;
	char gid[HA_GID_TEXT_MAX];

	if (s->warned_ns != 0 && now_ns - s->warned_ns < WARN_PAUSE_NS)
		return;
	s->warned_ns = now_ns;
	HA_WARN("%s:%d: a heartbeat to %s (LID %u) is missing or far too slow; what uses this pair "
		"of ports gets ready to leave it",
		port->nic->name, port->port_num, remote_text(s, gid, sizeof(gid)), s->remote.lid);
}

/* The event that would say so may be late, or never come. */
static void doubt_port(const struct ha_session *s)
{
	const struct ha_liveness *live = s->port->live;

	if (live->doubt)
		live->doubt(live->doubt_arg, s->port->port);
}

/* After the detector may have changed. */
static void update(struct ha_session *s, uint64_t now_ns)
{
	enum ha_session_state before = (enum ha_session_state)atomic_load(&s->state);
	enum ha_session_state state = s->detector.state;

	if (state == before)
		return;
	atomic_store(&s->state, (int)state);
	switch (state) {
	case HA_SESSION_UP:
		s->relabels = 0;
		if (s->of_use) { /* and never stopped being */
			tell_links_of_doubt(s);
			return;
		}
		s->of_use = true;
		s->ups++;
		break;
	case HA_SESSION_DOWN:
		s->down_ns = now_ns;
		if (!s->of_use) { /* and never was: nothing is left for that alone */
			tell_links_of_doubt(s);
			return;
		}
		s->of_use = false;
		s->downs++;
		break;
	case HA_SESSION_SUSPECTED:
		s->label_ns = now_ns;
		s->suspicions++;
		doubt_port(s);
		if (s->of_use)
			warn_of_suspicion(s, now_ns);
		tell_links_of_doubt(s);
		return;
	case HA_SESSION_INIT:
		return;
	}
	log_change(s, state, now_ns);
	tell_links(s, state);
}

static bool any_traffic(struct ha_session *s)
{
	struct ha_list *pos;
	bool any = false;

	/* All of them, so that each counts from now on. */
	ha_list_for_each (pos, &s->links) {
		struct ha_live_link *link = ha_container_of(pos, struct ha_live_link, in_session);

		any |= link->alive && link->alive(link);
	}
	return any;
}

/* ---- sending -------------------------------------------------------------------------------- */

/* Its commands are stuck: it is given no new ones. */
static bool is_sick(const struct ha_session *s)
{
	return atomic_load(&s->port->port->nic->sick);
}

static struct ha_commands *commands_of(const struct ha_session *s)
{
	return ha_progress_commands(s->port->live->progress, (unsigned)s->port->port->nic->index);
}

/* A thread of the commands. */
static void resolve(struct ha_command *command)
{
	struct ha_live_address *address = ha_container_of(command, struct ha_live_address, command);
	uint64_t began_ns = ha_now_ns();

	address->ah = ha_ud_qp_address(address->ud_qp, &address->to);
	address->took_ns = ha_now_ns() - began_ns;
}

/* A thread of the commands. */
static void destroy_handle(struct ha_command *command)
{
	struct ha_live_address *address = ha_container_of(command, struct ha_live_address, command);

	ha_ud_qp_address_free(address->ud_qp, address->ah);
	address->ah = NULL;
}

static void free_address(struct ha_command *command)
{
	struct ha_live_address *address = ha_container_of(command, struct ha_live_address, command);

	ha_ud_qp_close(address->ud_qp);
	free(address);
}

/* A thread of the commands: a query that was left, whatever came of it. */
static void free_query(struct ha_command *command)
{
	destroy_handle(command);
	free_address(command);
}

/* Nobody sends to it any more. Never waits for the device. */
static void drop(const struct ha_session *s, struct ha_live_address *address)
{
	struct ha_commands *commands = commands_of(s);

	if (!address)
		return;
	if (!address->ah) {
		free_address(&address->command);
		return;
	}
	address->command.run = destroy_handle;
	address->command.abandoned = free_address;
	address->command.kind = HA_COMMAND_CLEAN;
	/* One thread does it for all of a port's. */
	address->command.key = (uintptr_t)address->ud_qp;
	ha_command_send(commands, &address->command);
	ha_command_leave(commands, &address->command);
}

static void ask(struct ha_session *s, uint32_t addr_gen)
{
	const struct ha_unreachable_key key = {.port = s->port->port, .gid = s->remote.gid};
	struct ha_live_address *query = calloc(1, sizeof(*query));

	if (!query)
		return;
	query->ud_qp = ha_ud_qp_hold(s->port->ud_qp);
	query->addr_gen = addr_gen;
	query->to.lid = s->remote.lid;
	query->to.sl = s->sl;
	query->to.traffic_class = s->traffic_class;
	query->to.flow_label = s->flow_label;
	memcpy(query->to.gid, s->remote.gid, sizeof(query->to.gid));
	query->command.run = resolve;
	query->command.owner = &s->port->live->poller;
	query->command.abandoned = free_query;
	query->command.key = ha_unreachable_hash(&key);
	query->command.kind = HA_COMMAND_RESOLVE;
	ha_list_init(&query->command.link);
	s->query = query;
	s->port->live->queries++;
	ha_command_send(commands_of(s), &query->command);
}

/* The answer is there. */
static void take_answer(struct ha_session *s, uint64_t now_ns)
{
	struct ha_live_address *query = s->query;

	s->query = NULL;
	s->port->live->queries--;
	if (query->ah) {
		s->address = query;
		s->address_try_ns = 0;
	} else {
		s->address_try_ns =
		    now_ns + ADDRESS_PAUSE_NS + ADDRESS_PAUSE_FACTOR * query->took_ns;
		drop(s, query);
	}
}

/* Asks for the address handle if there is none for our port's present address. */
static bool have_address(struct ha_session *s, uint64_t now_ns)
{
	struct ha_port_addr own;

	if (s->query) {
		if (!ha_command_done(&s->query->command))
			return false;
		take_answer(s, now_ns);
	}
	ha_port_addr(s->port->port, &own);
	if (s->address && s->address->addr_gen == own.addr_gen)
		return true;
	if (s->port->dead || is_sick(s) || now_ns < s->address_try_ns)
		return false;
	drop(s, s->address);
	s->address = NULL;
	ask(s, own.addr_gen);
	return false;
}

/* Until the address is there; the newest is enough. */
static void hold(struct ha_session *s, enum ha_heartbeat_kind kind, uint64_t seq)
{
	if (!s->query)
		return;
	if (kind == HA_HEARTBEAT_PING) {
		s->held.ping = true;
		s->held.ping_seq = seq;
	} else {
		s->held.pong = true;
		s->held.pong_seq = seq;
	}
}

static void say(struct ha_session *s, enum ha_heartbeat_kind kind, uint64_t seq, uint64_t now_ns)
{
	struct ha_heartbeat packet = {
	    .kind = (uint8_t)kind, .from = s->port->id, .to = s->remote.id, .seq = seq};
	const struct ha_job_key *key = s->port->live->key;
	uint8_t bytes[HA_HEARTBEAT_SEALED];

	/* It could only fail, which stops the queue pair of soft RoCE, and be restarted, each time.
	 */
	if (atomic_load(&s->port->port->state) != IBV_PORT_ACTIVE)
		return;
	if (!have_address(s, now_ns)) {
		hold(s, kind, seq);
		return;
	}
	ha_heartbeat_encode(&packet, bytes);
	if (key && !ha_heartbeat_seal(key, bytes))
		return; /* a child of the process that has the key */
	if (ha_ud_qp_send(s->port->ud_qp, s->address->ah, s->remote.qpn, ha_live_qkey(s->remote.id),
			  bytes, key ? sizeof(bytes) : HA_HEARTBEAT_BYTES) != 0)
		s->port->count.send_errors++;
}

/* What waited for the address. An address that is not to be had loses it. */
static void say_held(struct ha_session *s, uint64_t now_ns)
{
	struct ha_held held = s->held;

	if (!s->query || !ha_command_done(&s->query->command))
		return;
	take_answer(s, now_ns);
	s->held = (struct ha_held){0};
	if (!s->address)
		return;
	if (held.ping) {
		ha_detector_ping_sent(&s->detector, held.ping_seq - s->first_seq, now_ns);
		say(s, HA_HEARTBEAT_PING, held.ping_seq, now_ns);
	}
	if (held.pong)
		say(s, HA_HEARTBEAT_PONG, held.pong_seq, now_ns);
}

/*
 * So many sessions ping in step: more would not all have room in a port's queue, nor their answers
 * in that of a peer's. The next so many do in a batch of their own.
 */
#define MOST_IN_STEP 64

/* A batch is to come, and there is room in it. */
static bool has_place(const struct ha_ping_batch *batch, uint64_t now_ns)
{
	return batch->next_ns > now_ns && batch->places > 0;
}

/* Who has pinged, and pings at the interval, does so next with the others. */
static void keep_step(struct ha_session *s, uint64_t now_ns)
{
	struct ha_ping_batch *batch = &s->port->live->batch;

	if (!ha_detector_is_steady(&s->detector, now_ns))
		return;
	if (!has_place(batch, now_ns)) {
		batch->next_ns = s->detector.next_ping_ns;
		batch->places = MOST_IN_STEP;
	}
	ha_detector_keep_step(&s->detector, batch->next_ns);
	batch->places--;
	batch->pinged++;
}

/* ---- the same peer over other ports --------------------------------------------------------- */

typedef bool look_at_other(struct ha_session *s, struct ha_session *other, uint64_t now_ns);

/*
 * At each session that may say something about this one, until `look` says true. A NIC that is sick
 * may have lost the questions as well as the answers: it is no witness, and no one is against it.
 */
static bool any_other(struct ha_session *s, look_at_other *look, uint64_t now_ns)
{
	const struct ha_liveness *live = s->port->live;
	uint64_t process = ha_live_process(s->remote.id);

	if (is_sick(s))
		return false;
	for (int p = 0; p < live->nports; p++)
		for (int b = 0; b < HA_LIVE_BUCKETS; b++) {
			struct ha_list *pos, *bucket = &live->ports[p]->buckets[b];

			ha_list_for_each (pos, bucket) {
				struct ha_session *other =
				    ha_container_of(pos, struct ha_session, in_bucket);

				if (other != s && !is_sick(other) &&
				    ha_live_process(other->remote.id) == process &&
				    look(s, other, now_ns))
					return true;
			}
		}
	return false;
}

static bool witnesses(struct ha_session *s, struct ha_session *other, uint64_t now_ns)
{
	return ha_detector_witnesses(&other->detector, &s->detector, now_ns);
}

/* Has the peer answered over other ports while it did not over these? */
static bool has_witness(struct ha_session *s, uint64_t now_ns)
{
	return any_other(s, witnesses, now_ns);
}

static bool note_rounds(struct ha_session *s, struct ha_session *other, uint64_t now_ns)
{
	(void)now_ns;
	ha_detector_note_rounds(&s->detector, ha_detector_rounds(&other->detector, &s->detector));
	return false;
}

static bool help(struct ha_session *s, struct ha_session *other, uint64_t now_ns)
{
	struct ha_liveness *live = s->port->live;

	ha_detector_help(&other->detector, now_ns);
	if (other->detector.next_ping_ns < live->due_ns)
		live->due_ns = other->detector.next_ping_ns; /* it may have had its visit */
	return false;
}

/* ---- pinging -------------------------------------------------------------------------------- */

static void ping(struct ha_session *s, uint64_t now_ns)
{
	/* One that cannot be sent is a missing one, too. */
	uint64_t seq = ha_detector_ping(&s->detector, now_ns);

	s->pings++;
	s->port->count.pings++;
	keep_step(s, now_ns);
	say(s, HA_HEARTBEAT_PING, s->first_seq + seq, now_ns);
	if (ha_detector_wants_help(&s->detector))
		(void)any_other(s, help, now_ns);
}

/* ---- receiving ------------------------------------------------------------------------------ */

static void answered(struct ha_session *s, uint64_t seq, uint64_t now_ns)
{
	struct ha_live_port_report *count = &s->port->count;
	uint64_t round_trip_ns, lost = s->detector.lost;

	if (seq <= s->first_seq ||
	    !ha_detector_pong(&s->detector, seq - s->first_seq, now_ns, &round_trip_ns)) {
		count->stale++;
		return;
	}
	s->pongs++;
	count->pongs++;
	count->lost += s->detector.lost - lost;
	ha_hist_add(&s->round_trips, round_trip_ns);
	ha_hist_add(&count->round_trips, round_trip_ns);
	ha_detector_judge(&s->detector, false, now_ns);
	update(s, now_ns);
}

/* The peer's pings come: the way they go is good. */
static bool hears_pings(const struct ha_session *s, uint64_t now_ns)
{
	return s->pinged_ns != 0 && now_ns < s->pinged_ns + 2 * s->detector.interval_ns;
}

/* A peer that was not heard has found a way: ours may be good, and is not changed before an answer
 * can have come. */
static void note_ping(struct ha_session *s, uint64_t now_ns)
{
	if (!hears_pings(s, now_ns)) {
		s->label_ns = now_ns;
		s->relabels = 0;
	}
	s->pinged_ns = now_ns;
}

static void refuse(const struct ha_live_port *port)
{
	if (port->live->refused)
		port->live->refused(port->live->refused_arg);
}

/* It is the peer's queue pair, at the peer's address as far as the packet has one. */
static bool comes_from(const struct ha_session *s, const struct ha_datagram *datagram)
{
	if (datagram->from_qpn != s->remote.qpn)
		return false;
	if (datagram->has_gid)
		return memcmp(datagram->from_gid, s->remote.gid, sizeof(s->remote.gid)) == 0;
	return s->remote.link_layer == IBV_LINK_LAYER_ETHERNET ||
	       datagram->from_lid == s->remote.lid;
}

static struct ha_session *speaker_of(const struct ha_datagram *datagram,
				     const struct ha_heartbeat *packet, struct ha_live_port *port)
{
	struct ha_session *s = packet->to == port->id ? ha_session_find(port, packet->from) : NULL;

	return s && comes_from(s, datagram) ? s : NULL;
}

#define HEARD_BEFORE 64

/* Whether this ping is none that was recorded. They may overtake one another. */
static bool is_new(struct ha_heard *heard, uint64_t seq)
{
	uint64_t ahead = seq - heard->newest, back = heard->newest - seq, bit;

	if (seq > heard->newest) {
		heard->before = ahead > HEARD_BEFORE ? 0
				: ahead == HEARD_BEFORE
				    ? 1ull << (HEARD_BEFORE - 1)
				    : heard->before << ahead | 1ull << (ahead - 1);
		heard->newest = seq;
		return true;
	}
	if (back == 0 || back > HEARD_BEFORE)
		return false;
	bit = 1ull << (back - 1);
	if (heard->before & bit)
		return false;
	heard->before |= bit;
	return true;
}

static void pinged(struct ha_session *s, uint64_t seq, uint64_t now_ns)
{
	/* Without a key who makes up a number would have the peer's own ones refused. */
	if (s->port->live->key && !is_new(&s->heard, seq)) {
		s->port->count.stale++;
		refuse(s->port);
		return;
	}
	s->port->count.answered++;
	note_ping(s, now_ns);
	say(s, HA_HEARTBEAT_PONG, seq, now_ns);
	ha_detector_hurry(&s->detector, now_ns);
}

void ha_session_received(void *live_port, const struct ha_datagram *datagram)
{
	struct ha_live_port *port = live_port;
	struct ha_heartbeat packet;
	struct ha_session *s;
	size_t len = datagram->len;
	uint64_t due_ns, now_ns = ha_now_ns();

	if (port->live->key && ha_heartbeat_is_genuine(port->live->key, datagram->data, len))
		len = HA_HEARTBEAT_BYTES;
	else if (port->live->key)
		len = 0;
	if (!ha_heartbeat_decode(datagram->data, len, &packet)) {
		port->count.malformed++;
		refuse(port);
		return;
	}
	s = speaker_of(datagram, &packet, port);
	if (!s) {
		port->count.strangers++;
		refuse(port);
		return;
	}
	if (packet.kind == HA_HEARTBEAT_PONG)
		answered(s, packet.seq, now_ns);
	else
		pinged(s, packet.seq, now_ns);
	due_ns = ha_detector_due_ns(&s->detector);
	if (due_ns < port->live->due_ns)
		port->live->due_ns = due_ns;
}

/* ---- time --------------------------------------------------------------------------------- */

/* Its ping is due, or somebody's is and this one's nearly; and the queue is not full of others. */
static bool wants_to_ping(const struct ha_session *s, uint64_t now_ns)
{
	const struct ha_ping_batch *batch = &s->port->live->batch;

	if (batch->pinged >= MOST_IN_STEP && ha_detector_is_steady(&s->detector, now_ns))
		return false; /* in a millisecond */
	return ha_detector_ping_due(&s->detector, now_ns) ||
	       (batch->on && ha_detector_may_join(&s->detector, now_ns));
}

void ha_session_visit(struct ha_session *s, bool starved, uint64_t now_ns)
{
	struct ha_detector *detector = &s->detector;
	uint64_t lost = detector->lost;
	bool suspected;

	say_held(s, now_ns);
	if (s->port->dead) {
		ha_detector_stop(detector);
		update(s, now_ns);
		return;
	}
	if (starved)
		ha_detector_restart(detector, now_ns);
	suspected = ha_detector_wants_traffic(detector);
	if (suspected)
		ha_detector_traffic(detector, any_traffic(s), now_ns);
	if (ha_detector_inquires(detector))
		(void)any_other(s, note_rounds, now_ns);
	ha_detector_judge(detector,
			  ha_detector_wants_witness(detector, now_ns) && has_witness(s, now_ns),
			  now_ns);
	/* The first question sets the mark that the next one counts from. */
	if (!suspected && ha_detector_wants_traffic(detector))
		ha_detector_traffic(detector, any_traffic(s), now_ns);
	s->port->count.lost += detector->lost - lost;
	update(s, now_ns);
	if (ha_detector_take_doom(detector) && s->of_use) {
		doubt_port(s);
		tell_links_of_doom(s);
	}
	if (wants_to_ping(s, now_ns))
		ping(s, now_ns);
}

/* ---- life --------------------------------------------------------------------------------- */

/* 20 bits; 0 would be none. */
static uint32_t new_label(void)
{
	return (uint32_t)(ha_random() % 0xfffff) + 1;
}

struct ha_session *ha_session_new(struct ha_live_port *port, const struct ha_live_endpoint *remote,
				  uint8_t sl, uint8_t traffic_class)
{
	struct ha_session *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->port = port;
	s->remote = *remote;
	s->sl = sl;
	s->traffic_class = traffic_class;
	s->flow_label = new_label();
	s->first_seq = port->newest_seq;
	ha_list_init(&s->links);
	atomic_init(&s->state, HA_SESSION_INIT);
	ha_detector_init(&s->detector, port->live->interval_ns, port->live->stall_ns,
			 port->id ^ remote->id, ha_now_ns());
	ha_list_push_back(bucket_of(port, remote->id), &s->in_bucket);
	return s;
}

static void drop_address(struct ha_session *s)
{
	struct ha_live_address *query = s->query;

	drop(s, s->address);
	s->address = NULL;
	s->query = NULL;
	s->address_try_ns = 0;
	if (!query)
		return;
	s->port->live->queries--;
	if (ha_command_disown(commands_of(s), &query->command))
		drop(s, query);
}

void ha_session_renew(struct ha_session *s)
{
	drop_address(s);
	ha_detector_restart(&s->detector, ha_now_ns());
}

/*
 * Heartbeats are missing, though the path is alive: the way they go is bad, ours or the peer's.
 * Where the peer's pings come, and ours are not answered, it is ours for certain. Where none come
 * it is the peer's, and ours may be good: then one of the two ends moves, the other stays. So the
 * end that stays never leaves a good way, and once it is on one its peer, which hears it, finds the
 * other.
 */
static bool moves_unheard(const struct ha_session *s)
{
	return s->port->id <= s->remote.id;
}

/* How long a label is given: time for an answer, and where we hear nothing for the peer to look. */
static uint64_t label_time_ns(const struct ha_session *s, bool hears)
{
	uint64_t ns = s->relabels < RELABELS ? RELABEL_NS : RELABEL_SELDOM_NS;

	if (ns < 2 * s->detector.interval_ns)
		ns = 2 * s->detector.interval_ns;
	return hears ? ns : PEERS_LABELS * ns;
}

/* What is alive and does not answer heartbeats: the way they go is bad, and another may be good. */
void ha_session_note_life(struct ha_session *s, uint64_t now_ns)
{
	bool hears = hears_pings(s, now_ns);

	ha_detector_note_life(&s->detector, now_ns);
	if (s->detector.state != HA_SESSION_SUSPECTED && s->detector.state != HA_SESSION_DOWN)
		return;
	if (now_ns < s->label_ns + label_time_ns(s, hears) || !(hears || moves_unheard(s)))
		return;
	s->label_ns = now_ns;
	s->relabels++;
	s->flow_label = new_label();
	drop_address(s);
}

void ha_session_follow(struct ha_session *s, const struct ha_live_endpoint *remote)
{
	if (s->remote.qpn == remote->qpn && s->remote.lid == remote->lid &&
	    memcmp(s->remote.gid, remote->gid, sizeof(remote->gid)) == 0)
		return;
	s->remote = *remote;
	drop_address(s);
}

void ha_session_free(struct ha_session *s)
{
	if (s->port->newest_seq < s->first_seq + s->detector.sent)
		s->port->newest_seq = s->first_seq + s->detector.sent;
	drop_address(s);
	ha_list_remove(&s->in_bucket);
	free(s);
}

/* ---- reports -------------------------------------------------------------------------------- */

enum ha_session_state ha_session_state(const struct ha_session *session)
{
	return (enum ha_session_state)atomic_load(&session->state);
}

/* A time of the session's, which changes under the lock. */
static uint64_t read_ns(const struct ha_session *s, const uint64_t *time_ns)
{
	pthread_mutex_t *lock = &s->port->live->lock;
	uint64_t ns;

	pthread_mutex_lock(lock);
	ns = *time_ns;
	pthread_mutex_unlock(lock);
	return ns;
}

uint64_t ha_session_down_ns(const struct ha_session *s)
{
	return read_ns(s, &s->down_ns);
}

uint64_t ha_session_failed_before_ns(const struct ha_session *s)
{
	return read_ns(s, &s->detector.failed_before_ns);
}

uint64_t ha_session_asked_ns(const struct ha_session *s)
{
	return read_ns(s, &s->detector.answers[0].sent_ns);
}

uint64_t ha_session_alone_since_ns(const struct ha_session *s, uint64_t now_ns)
{
	pthread_mutex_t *lock = &s->port->live->lock;
	uint64_t ns;

	pthread_mutex_lock(lock);
	ns = ha_detector_lacks_witness(&s->detector, now_ns) ? s->detector.inquiry.since_ns : 0;
	pthread_mutex_unlock(lock);
	return ns;
}

uint64_t ha_session_heard_ns(const struct ha_session *s)
{
	return read_ns(s, &s->detector.heard_ns);
}

void ha_session_report(const struct ha_session *s, struct ha_session_report *out)
{
	pthread_mutex_t *lock = &s->port->live->lock;

	pthread_mutex_lock(lock);
	out->state = s->detector.state;
	out->pings = s->pings;
	out->pongs = s->pongs;
	out->lost = s->detector.lost;
	out->ups = s->ups;
	out->downs = s->downs;
	out->suspicions = s->suspicions;
	out->round_trip_ns = s->detector.baseline_ns;
	out->round_trips = s->round_trips;
	pthread_mutex_unlock(lock);
}
