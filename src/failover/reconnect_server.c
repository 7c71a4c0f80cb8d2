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

#define CLIENTS	   16
#define BACKLOG	   1024
#define SILENCE_NS (5 * HA_NS_PER_S) /* until a client must have said who it is */
/* At a time: fewer than places, so that nobody loses his before he was looked at. */
#define ADMISSIONS (CLIENTS / 2)

struct client {
	struct ha_watch watch;
	struct ha_reconnect_server *server;
	uint64_t since_ns;
	struct ha_frame_sock sock; /* fd -1: the place is free */
};

/* Made by the application, then the progress thread's. */
struct ha_reconnect_server {
	struct ha_instance *inst;
	union ha_sockaddr addr; /* constant */
	struct ha_acceptor acceptor;
	struct ha_poller poller;
	uint64_t strangers; /* turned away so far */
	unsigned nclients;
	struct client clients[CLIENTS];
};

/* ---- clients -------------------------------------------------------------------------------- */

static void turn_away(struct client *client, const char *why)
{
	HA_TRACE(1, "a client at the server for broken sockets is turned away: %s", why);
	client->server->strangers++;
	client->server->nclients--;
	ha_progress_unwatch_self(client->server->inst->progress, &client->watch);
	ha_frame_sock_close(&client->sock);
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
	if (admitted)
		client->server->nclients--;
	else
		turn_away(client, comm ? "its connection is closing" : "it names no connection");
}

/* Progress thread. */
static void client_ready(struct ha_watch *watch, uint32_t events)
{
	struct client *client = ha_container_of(watch, struct client, watch);
	struct ha_frame_header header;
	struct ha_rejoin said;
	const uint8_t *payload;
	enum ha_io io;

	(void)events;
	if (watch->fd < 0)
		return; /* it left in the same round */
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

/* A free place, or that of the client who has been silent longest. */
static struct client *find_place(struct ha_reconnect_server *server)
{
	struct client *oldest = &server->clients[0];

	for (unsigned i = 0; i < CLIENTS; i++) {
		struct client *client = &server->clients[i];

		if (client->sock.fd < 0)
			return client;
		if (client->since_ns < oldest->since_ns)
			oldest = client;
	}
	turn_away(oldest, "others are waiting");
	return oldest;
}

static void seat(struct ha_acceptor *acceptor, int fd)
{
	struct ha_reconnect_server *server =
	    ha_container_of(acceptor, struct ha_reconnect_server, acceptor);
	struct client *client = find_place(server);

	server->nclients++;
	client->since_ns = ha_now_ns();
	ha_frame_sock_open(&client->sock, fd);
	client->watch.fd = fd;
	if (ha_progress_watch(server->inst->progress, &client->watch) != HA_OK) {
		client->watch.fd = -1;
		turn_away(client, "it cannot be watched");
	}
	ha_progress_call(server->inst->progress, &server->poller); /* for its deadline */
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
	uint64_t now_ns;

	server->poller.due_ns = 0;
	if (server->nclients == 0 && !ha_acceptor_pauses(&server->acceptor))
		return HA_POLL_ASLEEP;
	now_ns = ha_now_ns();
	for (unsigned i = 0; i < CLIENTS; i++) {
		struct client *client = &server->clients[i];

		if (client->sock.fd >= 0 && now_ns - client->since_ns > SILENCE_NS)
			turn_away(client, "silent for too long");
		if (client->sock.fd >= 0)
			due(server, client->since_ns + SILENCE_NS + 1);
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
	for (unsigned i = 0; i < CLIENTS; i++) {
		server->clients[i].server = server;
		server->clients[i].sock.fd = -1;
		server->clients[i].watch = (struct ha_watch){.fd = -1, .ready = client_ready};
	}
	ha_list_init(&server->poller.link);
	server->poller.visit = visit;
	server->acceptor = (struct ha_acceptor){
	    .progress = inst->progress,
	    .poller = &server->poller,
	    .at_a_time = ADMISSIONS,
	    .seat = seat,
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

	if (!server)
		return;
	ha_progress_remove(inst->progress, &server->poller);
	ha_acceptor_end(&server->acceptor);
	for (unsigned i = 0; i < CLIENTS; i++) {
		ha_progress_unwatch(inst->progress, &server->clients[i].watch);
		ha_frame_sock_close(&server->clients[i].sock);
	}
	if (server->strangers != 0)
		HA_INFO(HA_SUBSYS_NET, "the socket for peers that dial again turned %llu away",
			(unsigned long long)server->strangers);
	free(server);
	inst->failover_shared->reconnect_server = NULL;
}
