/* SPDX-License-Identifier: Apache-2.0 */
#include "failover/reconnect_server.h"

#include "base/clock.h"
#include "base/log.h"
#include "failover/engine.h"
#include "failover/shared.h"
#include "transport/comm.h"
#include "transport/frame_sock.h"
#include "transport/shared.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GUESTS	   16
#define BACKLOG	   1024
#define SILENCE_NS (5 * HA_NS_PER_S) /* until a guest must have said who it is */
/* At a time: so that each has been looked at before the next ones may take its place. */
#define ADMISSIONS (GUESTS / 2)
/* Without descriptors nobody can be let in, and the socket would stay readable. */
#define PAUSE_NS HA_NS_PER_S

struct guest {
	struct ha_watch watch;
	struct ha_door *door;
	uint64_t since_ns;
	struct ha_stream stream; /* fd -1: the place is free */
};

/* Made by the application, then the progress thread's. */
struct ha_door {
	struct ha_instance *inst;
	int fd;
	union ha_sockaddr addr; /* constant */
	struct ha_watch watch;	/* fd -1: pausing */
	struct ha_poller poller;
	uint64_t open_again_ns;
	uint64_t strangers; /* turned away so far */
	unsigned nguests;
	struct guest guests[GUESTS];
};

/* ---- guests -------------------------------------------------------------------------------- */

static void turn_away(struct guest *guest, const char *why)
{
	HA_TRACE(1, "a guest at the door for broken sockets is turned away: %s", why);
	guest->door->strangers++;
	guest->door->nguests--;
	ha_progress_unwatch_self(guest->door->inst->progress, &guest->watch);
	ha_stream_close(&guest->stream);
}

/* Under the instance's lock. */
static struct ha_comm *find_connection(struct ha_instance *inst, const struct ha_rejoin *said)
{
	struct ha_list *pos;

	ha_list_for_each (pos, &inst->comms) {
		struct ha_comm *comm = ha_container_of(pos, struct ha_comm, in_instance);

		if (!comm->is_send && comm->failover && comm->failover->door.cookie != 0 &&
		    comm->failover->door.cookie == said->cookie &&
		    comm->peer_id == said->connection_id)
			return comm;
	}
	return NULL;
}

/* The answer is what the guest said: nobody else could know. */
static bool answer(struct ha_stream *stream, const struct ha_rejoin *said)
{
	uint8_t payload[HA_REJOIN_BYTES];

	ha_rejoin_encode(said, payload);
	return ha_stream_queue(stream, HA_FRAME_REJOIN, payload, sizeof(payload)) &&
	       ha_stream_flush(stream) == HA_IO_DONE;
}

/* Under the token. */
static bool goes_on(struct ha_comm *comm, struct guest *guest, const struct ha_rejoin *said)
{
	return !atomic_load(&comm->peer_bye) && answer(&guest->stream, said) &&
	       ha_failover_rejoined(comm, &guest->stream);
}

static void admit(struct guest *guest, const struct ha_rejoin *said)
{
	struct ha_instance *inst = guest->door->inst;
	struct ha_comm *comm;
	bool admitted = false;

	/* One watch at a time: the lane will have its own. */
	ha_progress_unwatch_self(inst->progress, &guest->watch);
	pthread_mutex_lock(&inst->lock);
	comm = find_connection(inst, said);
	if (comm) {
		ha_token_acquire(comm);
		admitted = goes_on(comm, guest, said);
		ha_token_release(comm);
	}
	pthread_mutex_unlock(&inst->lock);
	if (admitted)
		guest->door->nguests--;
	else
		turn_away(guest, comm ? "its connection is closing" : "it names no connection");
}

/* Progress thread. */
static void guest_ready(struct ha_watch *watch, uint32_t events)
{
	struct guest *guest = ha_container_of(watch, struct guest, watch);
	struct ha_frame_header header;
	struct ha_rejoin said;
	const uint8_t *payload;
	enum ha_io io;

	(void)events;
	if (watch->fd < 0)
		return; /* it left in the same round */
	io = ha_stream_receive(&guest->stream, &header, &payload);
	if (io == HA_IO_AGAIN)
		return;
	if (io == HA_IO_CLOSED)
		turn_away(guest, ha_stream_why(&guest->stream));
	else if (io == HA_IO_BAD)
		turn_away(guest, ha_wire_strerror(guest->stream.bad));
	else if (header.type != HA_FRAME_REJOIN ||
		 ha_rejoin_decode(payload, header.length, &said) != HA_WIRE_OK)
		turn_away(guest, "it does not say which connection it is of");
	else
		admit(guest, &said);
}

/* A free place, or that of the guest who has been silent longest. */
static struct guest *find_place(struct ha_door *door)
{
	struct guest *oldest = &door->guests[0];

	for (unsigned i = 0; i < GUESTS; i++) {
		struct guest *guest = &door->guests[i];

		if (guest->stream.fd < 0)
			return guest;
		if (guest->since_ns < oldest->since_ns)
			oldest = guest;
	}
	turn_away(oldest, "others are waiting");
	return oldest;
}

static void seat(struct ha_door *door, int fd)
{
	struct guest *guest = find_place(door);

	door->nguests++;
	guest->since_ns = ha_now_ns();
	ha_stream_open(&guest->stream, fd);
	guest->watch.fd = fd;
	if (ha_progress_watch(door->inst->progress, &guest->watch) != HA_OK) {
		guest->watch.fd = -1;
		turn_away(guest, "it cannot be watched");
	}
	ha_progress_call(door->inst->progress, &door->poller); /* for its deadline */
}

/* ---- the door ------------------------------------------------------------------------------ */

/* Progress thread. */
static void door_ready(struct ha_watch *watch, uint32_t events)
{
	struct ha_door *door = ha_container_of(watch, struct ha_door, watch);

	(void)events;
	for (unsigned i = 0; i < ADMISSIONS && watch->fd >= 0; i++) {
		int fd = accept4(door->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd >= 0) {
			seat(door, fd);
		} else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
			   errno == ENOMEM) {
			door->open_again_ns = ha_now_ns() + PAUSE_NS;
			ha_progress_unwatch_self(door->inst->progress, watch);
			ha_progress_call(door->inst->progress, &door->poller);
		} else {
			return; /* nobody there; one that left meanwhile is no concern */
		}
	}
}

static void open_again(struct ha_door *door, uint64_t now_ns)
{
	door->watch.fd = door->fd;
	if (ha_progress_watch(door->inst->progress, &door->watch) == HA_OK)
		return;
	door->watch.fd = -1;
	door->open_again_ns = now_ns + PAUSE_NS;
}

static void due(struct ha_door *door, uint64_t at_ns)
{
	if (door->poller.due_ns == 0 || at_ns < door->poller.due_ns)
		door->poller.due_ns = at_ns;
}

static enum ha_poll_result visit(struct ha_poller *poller)
{
	struct ha_door *door = ha_container_of(poller, struct ha_door, poller);
	uint64_t now_ns;

	door->poller.due_ns = 0;
	if (door->nguests == 0 && door->watch.fd >= 0)
		return HA_POLL_ASLEEP;
	now_ns = ha_now_ns();
	for (unsigned i = 0; i < GUESTS; i++) {
		struct guest *guest = &door->guests[i];

		if (guest->stream.fd >= 0 && now_ns - guest->since_ns > SILENCE_NS)
			turn_away(guest, "silent for too long");
		if (guest->stream.fd >= 0)
			due(door, guest->since_ns + SILENCE_NS + 1);
	}
	if (door->watch.fd < 0 && now_ns >= door->open_again_ns)
		open_again(door, now_ns);
	if (door->watch.fd < 0)
		due(door, door->open_again_ns);
	return HA_POLL_ASLEEP;
}

static struct ha_door *door_new(struct ha_instance *inst)
{
	struct ha_door *door = calloc(1, sizeof(*door));
	char text[HA_SOCKADDR_TEXT_MAX];

	if (!door) {
		HA_WARN("out of memory for a socket that peers can dial again");
		return NULL;
	}
	door->inst = inst;
	for (unsigned i = 0; i < GUESTS; i++) {
		door->guests[i].door = door;
		door->guests[i].stream.fd = -1;
		door->guests[i].watch = (struct ha_watch){.fd = -1, .ready = guest_ready};
	}
	door->fd = ha_net_listen(&inst->bootstrap_addr, BACKLOG, &door->addr);
	door->watch = (struct ha_watch){.fd = door->fd, .ready = door_ready};
	if (door->fd < 0 || ha_progress_watch(inst->progress, &door->watch) != HA_OK) {
		HA_WARN("cannot listen on %s (%s): bootstrap sockets that break are not replaced",
			ha_sockaddr_text(&inst->bootstrap_addr, text, sizeof(text)),
			strerror(errno));
		if (door->fd >= 0)
			close(door->fd);
		free(door);
		return NULL;
	}
	ha_list_init(&door->poller.link);
	door->poller.visit = visit;
	ha_progress_add(inst->progress, &door->poller);
	return door;
}

bool ha_door_open(struct ha_instance *inst, union ha_sockaddr *addr)
{
	bool open;

	pthread_mutex_lock(&inst->failover_shared->door_lock);
	if (!inst->failover_shared->door)
		inst->failover_shared->door = door_new(inst);
	open = inst->failover_shared->door != NULL;
	if (open)
		*addr = inst->failover_shared->door->addr;
	pthread_mutex_unlock(&inst->failover_shared->door_lock);
	return open;
}

void ha_door_close(struct ha_instance *inst)
{
	struct ha_door *door = inst->failover_shared->door;

	if (!door)
		return;
	ha_progress_remove(inst->progress, &door->poller);
	ha_progress_unwatch(inst->progress, &door->watch);
	for (unsigned i = 0; i < GUESTS; i++) {
		ha_progress_unwatch(inst->progress, &door->guests[i].watch);
		ha_stream_close(&door->guests[i].stream);
	}
	if (door->strangers != 0)
		HA_INFO(HA_SUBSYS_NET, "the socket for peers that dial again turned %llu away",
			(unsigned long long)door->strangers);
	close(door->fd);
	free(door);
	inst->failover_shared->door = NULL;
}
