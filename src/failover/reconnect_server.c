/* SPDX-License-Identifier: Apache-2.0 */
#include "failover/reconnect_server.h"

#include "base/clock.h"
#include "base/log.h"
#include "failover/engine.h"
#include "failover/farewell.h"
#include "failover/message.h"
#include "failover/shared.h"
#include "failover/signaling.h"
#include "progress/acceptor.h"
#include "transport/comm.h"
#include "transport/ctrl_sock.h"
#include "transport/frame_sock.h"
#include "transport/handshake.h"
#include "transport/shared.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BACKLOG	   1024
#define SILENCE_NS (5 * HA_NS_PER_S) /* until a client must have said who it is */
#define ADMISSIONS 16		     /* in a round: the thread has other things to do */
/* While every connection has its socket, nobody has a reason to dial. */
#define STRANGERS_PER_SECOND 200

/* Made when it is needed, and kept: an event of its last socket may still be under way. */
struct client {
	struct ha_list link; /* of those who are here, in the order in which they came, or idle */
	struct ha_seat seat;
	struct ha_watch watch;
	struct ha_reconnect_server *server;
	uint64_t since_ns;
	bool answered; /* it said REJOIN and was believed so far: it needs no seat */
	struct ha_rejoin rejoin;
	union ha_sockaddr from;
	struct ha_frame_sock sock; /* fd -1: idle */
};

/* Made by the application, then the progress thread's. */
struct ha_reconnect_server {
	struct ha_instance *inst;
	union ha_sockaddr addr; /* constant */
	struct ha_acceptor acceptor;
	struct ha_poller poller;
	uint64_t strangers; /* turned away so far */
	struct ha_list clients, idle;
};

/* ---- clients -------------------------------------------------------------------------------- */

static void leave(struct client *client)
{
	struct ha_reconnect_server *server = client->server;

	ha_progress_unwatch_self(server->inst->progress, &client->watch);
	if (!client->answered)
		ha_seats_leave(&server->acceptor.seats, &client->seat);
	ha_list_remove(&client->link);
	ha_list_push_back(&server->idle, &client->link);
}

static void go_without(struct client *client)
{
	client->server->strangers++;
	leave(client); /* before: closed, its number is anybody's */
	ha_frame_sock_close(&client->sock);
}

static void turn_away(struct client *client, const char *why)
{
	HA_TRACE(1, "a client at the server for broken sockets is turned away: %s", why);
	ha_instance_refused(client->server->inst, HA_refused_rejoins);
	go_without(client);
}

/* So does a receiver that asks whether we are still here. */
static bool asked_for_nothing(const struct client *client)
{
	return !client->answered && client->sock.in_len == 0 && client->sock.error == 0;
}

/* ---- who it is ------------------------------------------------------------------------------ */

/* Under the instance's lock. */
static struct ha_comm *find_connection(struct ha_instance *inst, uint64_t id)
{
	struct ha_list *pos;

	ha_list_for_each (pos, &inst->comms) {
		struct ha_comm *comm = ha_container_of(pos, struct ha_comm, in_instance);

		if (!comm->is_send && comm->failover && comm->peer_id == id &&
		    ha_secrets_known(&comm->failover->reconnect_at.secrets))
			return comm;
	}
	return NULL;
}

/* Whom a client must be to be let in: the sender of a connection, or of one that has closed. */
struct door {
	uint64_t peer_id;
	struct ha_secrets *secrets, *next;
	const union ha_sockaddr *peer;
	const struct ha_auth *auth;
};

static struct door door_of(struct ha_comm *comm)
{
	return (struct door){
	    .peer_id = comm->peer_id,
	    .secrets = &comm->failover->reconnect_at.secrets,
	    .next = &comm->failover->next_secrets,
	    .peer = &comm->ctrl_sock->peer,
	    .auth = &comm->auth,
	};
}

static struct door door_of_closed(struct ha_farewell *farewell)
{
	return (struct door){
	    .peer_id = farewell->peer_id,
	    .secrets = &farewell->secrets,
	    .next = &farewell->next,
	    .peer = &farewell->peer,
	    .auth = &farewell->auth,
	};
}

/*
 * Secrets are good for one time. Those for the next time are said in the answer, and whether the
 * sender has heard it is not known before it says READY or uses them. Until then both will do.
 */
static void use_next(const struct door *door)
{
	*door->secrets = *door->next;
	*door->next = (struct ha_secrets){0};
}

static bool knows_secret(const struct door *door, uint64_t said)
{
	return said != 0 && (said == door->secrets->ask || said == door->next->ask);
}

/* Its REJOIN came before we knew whose key it would have to be said with. From now on both have it.
 */
static bool is_genuine(const struct door *door, struct client *client)
{
	ha_frame_sock_authenticate(&client->sock, &door->auth->session, HA_SPEAKER_RECEIVER);
	return ha_frame_sock_was_genuine(&client->sock);
}

/* What the client cannot have from its own words, and nobody else knows. */
static const char *answer(const struct door *door, struct client *client)
{
	struct ha_rejoin said = {.connection_id = door->peer_id};
	uint8_t payload[HA_REJOIN_BYTES];

	if (!knows_secret(door, client->rejoin.secret))
		return "it does not know the connection's secret";
	if (!ha_sockaddr_same_host(&client->from, door->peer))
		return "it comes from another address than the peer";
	if (door->auth->on && !is_genuine(door, client))
		return "it does not have the connection's key";
	if (client->rejoin.secret == door->next->ask)
		use_next(door);
	if (!ha_secrets_known(door->next))
		*door->next = ha_secrets_new();
	said.secret = door->secrets->answer;
	said.next = *door->next;
	ha_auth_draw_nonce(said.nonce);
	ha_rejoin_encode(&said, payload);
	if (!ha_frame_sock_queue(&client->sock, HA_FRAME_REJOIN, payload, sizeof(payload)) ||
	    ha_frame_sock_flush(&client->sock) != HA_IO_DONE)
		return "it cannot be answered";
	ha_handshake_key_socket(door->auth, HA_SPEAKER_RECEIVER, &client->sock,
				client->rejoin.nonce, said.nonce);
	return NULL;
}

static const char secret_was_used[] = "its secret was used meanwhile";

/* It is rare, and the operator should know: a firewall may have forgotten the one before. */
static void tell_of_replacement(const struct ha_comm *comm, const struct client *client)
{
	char before[HA_SOCKADDR_TEXT_MAX], now[HA_SOCKADDR_TEXT_MAX];

	if (comm->failover->socket_broken || !ha_frame_sock_looks_healthy(&comm->ctrl_sock->frames))
		return;
	HA_WARN("connection %s: its bootstrap socket, first of %s, looks healthy here and is "
		"replaced by one of %s, which knows its secret",
		comm->name, ha_sockaddr_text(&comm->ctrl_sock->peer, before, sizeof(before)),
		ha_sockaddr_text(&client->from, now, sizeof(now)));
}

/* It has heard the answer: this is the connection's socket from now on. Under the token. */
static const char *go_on(struct ha_comm *comm, struct client *client)
{
	const struct door door = door_of(comm);

	if (client->rejoin.secret != door.secrets->ask)
		return secret_was_used;
	if (atomic_load(&comm->peer_bye))
		return "its connection is closing";
	tell_of_replacement(comm, client);
	ha_frame_sock_keep(&client->sock);
	use_next(&door);
	return ha_failover_reconnected(comm, &client->sock) ? NULL : "its connection is closing";
}

/* The same of one that has closed: it is told so, and that is all. Whether it hears it nobody
 * knows, so it may ask again. */
static const char *say_farewell(struct ha_farewell *farewell, struct client *client)
{
	const struct door door = door_of_closed(farewell);
	uint8_t bytes[HA_MESSAGE_MAX_BYTES];
	size_t length;

	if (client->rejoin.secret != door.secrets->ask)
		return secret_was_used;
	use_next(&door);
	length = ha_message_encode(&farewell->bye, bytes);
	if (!ha_frame_sock_queue(&client->sock, HA_FRAME_CONTROL, bytes, (uint32_t)length) ||
	    ha_frame_sock_flush(&client->sock) != HA_IO_DONE)
		return "it cannot be answered";
	HA_INFO(HA_SUBSYS_NET,
		"a sender that dials again is told again that its connection %08x is closed",
		(uint32_t)farewell->peer_id);
	return NULL;
}

/* A step that a client takes with the connection it names; NULL: it is taken. */
struct step {
	const char *(*with_connection)(struct ha_comm *comm, struct client *client);
	const char *(*with_closed)(struct ha_farewell *farewell, struct client *client);
};

static const char *answer_of_connection(struct ha_comm *comm, struct client *client)
{
	const struct door door = door_of(comm);

	return answer(&door, client);
}

static const char *answer_of_closed(struct ha_farewell *farewell, struct client *client)
{
	const struct door door = door_of_closed(farewell);

	return answer(&door, client);
}

static const struct step rejoining = {answer_of_connection, answer_of_closed};
static const struct step joining = {go_on, say_farewell};

static const char *take_with_closed(struct client *client, const struct step *step)
{
	struct ha_farewells *farewells = &client->server->inst->failover_shared->farewells;
	const char *why = "it names no connection";
	struct ha_farewell *farewell;

	pthread_mutex_lock(&farewells->lock);
	farewell = ha_farewells_find(farewells, client->rejoin.connection_id, ha_now_ns());
	if (farewell)
		why = step->with_closed(farewell, client);
	pthread_mutex_unlock(&farewells->lock);
	return why;
}

/* NULL, or why it cannot be. */
static const char *take(struct client *client, const struct step *step)
{
	struct ha_instance *inst = client->server->inst;
	const char *why = NULL;
	struct ha_comm *comm;

	pthread_mutex_lock(&inst->lock);
	comm = find_connection(inst, client->rejoin.connection_id);
	if (comm) {
		ha_token_acquire(comm);
		why = step->with_connection(comm, client);
		ha_token_release(comm);
	}
	pthread_mutex_unlock(&inst->lock);
	return comm ? why : take_with_closed(client, step);
}

/* It is no stranger, and nobody can take its seat. */
static void believe(struct client *client)
{
	struct ha_acceptor *acceptor = &client->server->acceptor;

	ha_acceptor_knows(acceptor);
	ha_seats_leave(&acceptor->seats, &client->seat);
	client->answered = true;
}

static void hear_rejoin(struct client *client, const struct ha_frame_header *header,
			const uint8_t *payload)
{
	const char *why = "it does not say which connection it is of";

	if (header->type == HA_FRAME_REJOIN &&
	    ha_rejoin_decode(payload, header->length, &client->rejoin) == HA_WIRE_OK)
		why = take(client, &rejoining);
	if (why)
		turn_away(client, why);
	else
		believe(client);
}

static void hear_ready(struct client *client, const struct ha_frame_header *header)
{
	const char *why = "a message out of turn";

	/* One watch at a time: the control socket will have its own. */
	ha_progress_unwatch_self(client->server->inst->progress, &client->watch);
	if (header->type == HA_FRAME_READY)
		why = take(client, &joining);
	if (why) {
		turn_away(client, why);
		return;
	}
	leave(client);
	ha_frame_sock_close(&client->sock); /* where the connection has not taken it over */
}

static void look_at(struct client *client)
{
	struct ha_frame_header header;
	const uint8_t *payload;
	enum ha_io io;

	io = ha_frame_sock_receive(&client->sock, &header, &payload);
	if (io == HA_IO_AGAIN)
		return;
	if (io == HA_IO_CLOSED && asked_for_nothing(client))
		go_without(client);
	else if (io == HA_IO_CLOSED)
		turn_away(client, ha_frame_sock_why(&client->sock));
	else if (io == HA_IO_BAD)
		turn_away(client, ha_wire_strerror(client->sock.bad));
	else if (!client->answered)
		hear_rejoin(client, &header, payload);
	else
		hear_ready(client, &header);
}

/* Progress thread. */
static void client_ready(struct ha_watch *watch, uint32_t events)
{
	(void)events;
	if (watch->fd >= 0) /* it may have left in the same round */
		look_at(ha_container_of(watch, struct client, watch));
}

static struct ha_reconnect_server *server_of(struct ha_acceptor *acceptor)
{
	return ha_container_of(acceptor, struct ha_reconnect_server, acceptor);
}

/* One who has not said anything yet. */
static void make_way(struct ha_acceptor *acceptor, struct ha_seat *seat)
{
	(void)acceptor;
	turn_away(ha_container_of(seat, struct client, seat), "others are waiting");
}

static struct client *client_of(struct ha_reconnect_server *server)
{
	struct ha_list *idle = ha_list_pop_front(&server->idle);
	struct client *client;

	if (idle)
		return ha_container_of(idle, struct client, link);
	client = malloc(sizeof(*client));
	if (!client)
		return NULL;
	client->server = server;
	client->watch = (struct ha_watch){.fd = -1, .ready = client_ready};
	client->sock.fd = -1;
	return client;
}

static void seat(struct ha_acceptor *acceptor, int fd, const union ha_sockaddr *from)
{
	struct ha_reconnect_server *server = server_of(acceptor);
	struct client *client = client_of(server);

	if (!client) {
		close(fd);
		return;
	}
	client->answered = false;
	client->from = *from;
	client->since_ns = ha_now_ns();
	ha_list_push_back(&server->clients, &client->link);
	ha_seats_take(&acceptor->seats, &client->seat, ha_seats_source(from));
	ha_frame_sock_open(&client->sock, fd);
	look_at(client); /* who has said it already is through, whoever else waits */
	if (client->sock.fd < 0)
		return;
	client->watch.fd = fd;
	if (ha_progress_watch(server->inst->progress, &client->watch) != HA_OK) {
		client->watch.fd = -1;
		turn_away(client, "it cannot be watched");
	}
	ha_progress_call(server->inst->progress, &server->poller); /* for its deadline */
}

/* At either end. */
static bool misses_socket(const struct ha_comm *comm)
{
	const struct ha_failover *fo = comm->failover;

	return !comm->is_send && fo && !ha_failover_is_over(comm) &&
	       (fo->socket_broken || ha_signaling_peer_misses_socket(comm));
}

static bool expects(struct ha_acceptor *acceptor)
{
	struct ha_instance *inst = server_of(acceptor)->inst;
	struct ha_list *pos;
	bool found = false;

	pthread_mutex_lock(&inst->lock);
	ha_list_for_each (pos, &inst->comms) {
		found = misses_socket(ha_container_of(pos, struct ha_comm, in_instance));
		if (found)
			break;
	}
	pthread_mutex_unlock(&inst->lock);
	return found;
}

/* ---- the server ------------------------------------------------------------------------------ */

static void due(struct ha_reconnect_server *server, uint64_t at_ns)
{
	if (at_ns != 0 && (server->poller.due_ns == 0 || at_ns < server->poller.due_ns))
		server->poller.due_ns = at_ns;
}

static enum ha_poll_result visit(struct ha_poller *poller)
{
	struct ha_reconnect_server *server =
	    ha_container_of(poller, struct ha_reconnect_server, poller);
	struct ha_list *pos, *after;
	uint64_t now_ns;

	server->poller.due_ns = 0;
	if (ha_list_empty(&server->clients) && !ha_acceptor_pauses(&server->acceptor))
		return HA_POLL_ASLEEP;
	now_ns = ha_now_ns();
	ha_list_for_each_safe (pos, after, &server->clients) {
		struct client *client = ha_container_of(pos, struct client, link);

		if (now_ns - client->since_ns <= SILENCE_NS) {
			due(server, client->since_ns + SILENCE_NS + 1);
			break; /* the others came later */
		}
		turn_away(client, "silent for too long");
	}
	due(server, ha_acceptor_visit(&server->acceptor, now_ns));
	return HA_POLL_ASLEEP;
}

static struct ha_reconnect_server *server_new(struct ha_instance *inst)
{
	struct ha_reconnect_server *server = calloc(1, sizeof(*server));
	char text[HA_SOCKADDR_TEXT_MAX];
	int fd;

	if (!server) {
		HA_WARN("out of memory for a socket that peers can dial again");
		return NULL;
	}
	server->inst = inst;
	ha_list_init(&server->clients);
	ha_list_init(&server->idle);
	ha_list_init(&server->poller.link);
	server->poller.visit = visit;
	server->acceptor = (struct ha_acceptor){
	    .progress = inst->progress,
	    .poller = &server->poller,
	    .at_a_time = ADMISSIONS,
	    .seat = seat,
	    .make_way = make_way,
	    .per_second = STRANGERS_PER_SECOND,
	    .expects = expects,
	};
	fd = ha_net_listen(&inst->bootstrap_addr, BACKLOG, &server->addr);
	if (fd < 0 || ha_acceptor_begin(&server->acceptor, fd) != HA_OK) {
		HA_WARN("cannot listen on %s (%s): bootstrap sockets that break are not replaced",
			ha_sockaddr_text(&inst->bootstrap_addr, text, sizeof(text)),
			strerror(errno));
		if (fd >= 0)
			close(fd);
		free(server);
		return NULL;
	}
	ha_progress_add(inst->progress, &server->poller);
	return server;
}

bool ha_reconnect_server_open(struct ha_instance *inst, union ha_sockaddr *addr)
{
	bool open;

	pthread_mutex_lock(&inst->failover_shared->server_lock);
	if (!inst->failover_shared->reconnect_server)
		inst->failover_shared->reconnect_server = server_new(inst);
	open = inst->failover_shared->reconnect_server != NULL;
	if (open)
		*addr = inst->failover_shared->reconnect_server->addr;
	pthread_mutex_unlock(&inst->failover_shared->server_lock);
	return open;
}

void ha_reconnect_server_close(struct ha_instance *inst)
{
	struct ha_reconnect_server *server = inst->failover_shared->reconnect_server;
	struct ha_list *pos;

	if (!server)
		return;
	ha_progress_remove(inst->progress, &server->poller);
	ha_acceptor_end(&server->acceptor);
	ha_list_move_all(&server->idle, &server->clients);
	while ((pos = ha_list_pop_front(&server->idle)) != NULL) {
		struct client *client = ha_container_of(pos, struct client, link);

		ha_progress_unwatch(inst->progress, &client->watch);
		ha_frame_sock_close(&client->sock);
		free(client);
	}
	if (server->strangers != 0)
		HA_INFO(HA_SUBSYS_NET, "the socket for peers that dial again turned %llu away",
			(unsigned long long)server->strangers);
	free(server);
	inst->failover_shared->reconnect_server = NULL;
}
