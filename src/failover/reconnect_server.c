/* SPDX-License-Identifier: Apache-2.0 */
#include "failover/reconnect_server.h"

#include "base/clock.h"
#include "base/log.h"
#include "failover/engine.h"
#include "failover/shared.h"
#include "progress/acceptor.h"
#include "transport/comm.h"
#include "transport/frame_sock.h"
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
	ha_seats_leave(&server->acceptor.seats, &client->seat);
	ha_list_remove(&client->link);
	ha_list_push_back(&server->idle, &client->link);
}

static void turn_away(struct client *client, const char *why)
{
	HA_TRACE(1, "a client at the server for broken sockets is turned away: %s", why);
	client->server->strangers++;
	ha_frame_sock_close(&client->sock);
	leave(client);
}

static const struct ha_secrets *secrets_of(const struct ha_comm *comm)
{
	return &comm->failover->reconnect_at.secrets;
}

/* Under the instance's lock. */
static struct ha_comm *find_connection(struct ha_instance *inst, const struct ha_rejoin *said)
{
	struct ha_list *pos;

	ha_list_for_each (pos, &inst->comms) {
		struct ha_comm *comm = ha_container_of(pos, struct ha_comm, in_instance);

		if (!comm->is_send && comm->failover && ha_secrets_known(secrets_of(comm)) &&
		    secrets_of(comm)->ask == said->secret && comm->peer_id == said->connection_id)
			return comm;
	}
	return NULL;
}

/* What the client cannot have from its own words, and nobody else knows. */
static bool answer(const struct ha_comm *comm, struct ha_frame_sock *sock)
{
	struct ha_rejoin said = {.secret = secrets_of(comm)->answer,
				 .connection_id = comm->peer_id};
	uint8_t payload[HA_REJOIN_BYTES];

	ha_rejoin_encode(&said, payload);
	return ha_frame_sock_queue(sock, HA_FRAME_REJOIN, payload, sizeof(payload)) &&
	       ha_frame_sock_flush(sock) == HA_IO_DONE;
}

/* Under the token. */
static bool goes_on(struct ha_comm *comm, struct client *client)
{
	ha_frame_sock_keep(&client->sock);
	return !atomic_load(&comm->peer_bye) && answer(comm, &client->sock) &&
	       ha_failover_reconnected(comm, &client->sock);
}

static void admit(struct client *client, const struct ha_rejoin *said)
{
	struct ha_instance *inst = client->server->inst;
	struct ha_comm *comm;
	bool admitted = false;

	/* One watch at a time: the control socket will have its own. */
	ha_progress_unwatch_self(inst->progress, &client->watch);
	pthread_mutex_lock(&inst->lock);
	comm = find_connection(inst, said);
	if (comm) {
		ha_token_acquire(comm);
		admitted = goes_on(comm, client);
		ha_token_release(comm);
	}
	pthread_mutex_unlock(&inst->lock);
	if (admitted) {
		ha_acceptor_knows(&client->server->acceptor);
		leave(client);
		return;
	}
	turn_away(client, comm ? "its connection is closing" : "it names no connection");
}

static void look_at(struct client *client)
{
	struct ha_frame_header header;
	struct ha_rejoin said;
	const uint8_t *payload;
	enum ha_io io;

	io = ha_frame_sock_receive(&client->sock, &header, &payload);
	if (io == HA_IO_AGAIN)
		return;
	if (io == HA_IO_CLOSED)
		turn_away(client, ha_frame_sock_why(&client->sock));
	else if (io == HA_IO_BAD)
		turn_away(client, ha_wire_strerror(client->sock.bad));
	else if (header.type != HA_FRAME_REJOIN ||
		 ha_rejoin_decode(payload, header.length, &said) != HA_WIRE_OK)
		turn_away(client, "it does not say which connection it is of");
	else
		admit(client, &said);
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

static bool misses_socket(const struct ha_comm *comm)
{
	const struct ha_failover *fo = comm->failover;

	return !comm->is_send && fo && fo->socket_broken && !ha_failover_is_over(comm);
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

	pthread_mutex_lock(&inst->failover_shared->door_lock);
	if (!inst->failover_shared->reconnect_server)
		inst->failover_shared->reconnect_server = server_new(inst);
	open = inst->failover_shared->reconnect_server != NULL;
	if (open)
		*addr = inst->failover_shared->reconnect_server->addr;
	pthread_mutex_unlock(&inst->failover_shared->door_lock);
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
