/* SPDX-License-Identifier: Apache-2.0 */
#include "failover/reconnect.h"

#include "base/clock.h"
#include "base/log.h"
#include "failover/engine.h"
#include "transport/comm.h"
#include "transport/ctrl_sock.h"
#include "transport/frame_sock.h"
#include "transport/handshake.h"
#include "transport/shared.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define INTERVAL_MIN_MS 20
#define INTERVAL_MAX_MS 2000
/* Of one attempt, from the first packet to the answer. */
#define ATTEMPT_NS (2 * HA_NS_PER_S)
/* Where the sender lives it dials first. */
#define TURN_NS (10 * HA_NS_PER_MS)
/* A socket that lasted for so long is replaced at once; what breaks each one is given time. */
#define LASTING_NS (2 * HA_NS_PER_S)

enum stage { STAGE_DIAL, STAGE_DIALING, STAGE_REJOIN, STAGE_ANSWER, STAGES };

struct ha_reconnect {
	uint8_t stage;
	uint8_t refused; /* in a row, by its host or by others at its port; as many as count */
	uint32_t interval_ms;
	uint64_t next_ns;     /* STAGE_DIAL: not before */
	uint64_t deadline_ns; /* later stages: not after */
	uint64_t done_ns;     /* when it succeeded last; 0: never */
	uint8_t nonce[HA_NONCE_BYTES];
	struct ha_frame_sock sock;
};

/* One refusal may be of whatever answers in its place for a moment. */
#define REFUSALS 2

/* ---- stages -------------------------------------------------------------------------------- */

static const struct ha_reconnect_at *server_of(const struct ha_comm *comm)
{
	return &comm->failover->peer_reconnect_at;
}

/*
 * At the host that we were connected to, and HELLO does not even say one: no peer can make us
 * reconnect another one.
 */
static bool find_server(const struct ha_comm *comm, union ha_sockaddr *addr)
{
	const union ha_sockaddr *said = &server_of(comm)->addr;

	*addr = comm->ctrl_sock->peer;
	if ((comm->is_send && !ha_secrets_known(&server_of(comm)->secrets)) ||
	    addr->sa.sa_family != said->sa.sa_family)
		return false;
	if (addr->sa.sa_family == AF_INET6)
		addr->in6.sin6_port = said->in6.sin6_port;
	else
		addr->in.sin_port = said->in.sin_port;
	return true;
}

static enum ha_step lost(struct ha_comm *comm, const char *why)
{
	HA_TRACE(1, "connection %s: dialling again: %s", comm->name, why);
	return HA_STEP_RETRY;
}

/* The peer does not listen there any more. */
static enum ha_step refused(struct ha_comm *comm, const char *why)
{
	struct ha_reconnect *reconnect = comm->failover->reconnect;

	if (reconnect->refused < REFUSALS)
		reconnect->refused++;
	return lost(comm, why);
}

static enum ha_step not_through(struct ha_comm *comm, int error)
{
	if (error == ECONNREFUSED)
		return refused(comm, strerror(error));
	comm->failover->reconnect->refused = 0;
	return lost(comm, strerror(error));
}

/* Somebody else does. */
static enum ha_step impostor(struct ha_comm *comm, const char *why)
{
	ha_instance_refused(comm->inst, HA_refused_rejoins);
	return refused(comm, why);
}

/* A receiver has nothing to say: it is for the sender to dial. */
static enum ha_step let_in(struct ha_comm *comm)
{
	comm->failover->reconnect->refused = 0;
	return lost(comm, "somebody listens where the sender's process did");
}

/* From the address that the receiver knows: it lets nobody else in. */
static bool from_where_we_were(const struct ha_comm *comm, int fd)
{
	union ha_sockaddr self = comm->ctrl_sock->self;

	if (self.sa.sa_family == AF_INET6)
		self.in6.sin6_port = 0;
	else
		self.in.sin_port = 0;
	return bind(fd, &self.sa, ha_sockaddr_len(&self)) == 0;
}

static enum ha_step start(struct ha_comm *comm)
{
	struct ha_reconnect *reconnect = comm->failover->reconnect;
	union ha_sockaddr addr;
	int fd;

	if (!find_server(comm, &addr))
		return lost(comm, "nobody knows where");
	fd = socket(addr.sa.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return lost(comm, strerror(errno));
	ha_frame_sock_open(&reconnect->sock, fd);
	ha_frame_sock_keep(&reconnect->sock);
	if (!from_where_we_were(comm, fd))
		return lost(comm, strerror(errno));
	if (connect(fd, &addr.sa, ha_sockaddr_len(&addr)) != 0 && errno != EINPROGRESS)
		return not_through(comm, errno);
	return HA_STEP_NEXT;
}

static enum ha_step dialing(struct ha_comm *comm)
{
	struct ha_reconnect *reconnect = comm->failover->reconnect;
	struct ha_rejoin rejoin = {.secret = server_of(comm)->secrets.ask,
				   .connection_id = comm->id};
	uint8_t payload[HA_REJOIN_BYTES];
	union ha_sockaddr addr;

	if (!find_server(comm, &addr))
		return lost(comm, "nobody knows where");
	/* A second connect tells whether the first is through. */
	if (connect(reconnect->sock.fd, &addr.sa, ha_sockaddr_len(&addr)) != 0 &&
	    errno != EISCONN) {
		if (errno == EALREADY || errno == EINPROGRESS || errno == EINTR)
			return HA_STEP_AGAIN;
		return not_through(comm, errno);
	}
	if (!comm->is_send)
		return let_in(comm);
	ha_auth_draw_nonce(reconnect->nonce);
	memcpy(rejoin.nonce, reconnect->nonce, sizeof(rejoin.nonce));
	if (comm->auth.on)
		ha_frame_sock_authenticate(&reconnect->sock, &comm->auth.session,
					   HA_SPEAKER_SENDER);
	ha_rejoin_encode(&rejoin, payload);
	if (!ha_frame_sock_queue(&reconnect->sock, HA_FRAME_REJOIN, payload, sizeof(payload)))
		return lost(comm, "no room for what is to be said");
	return HA_STEP_NEXT;
}

static enum ha_step say_rejoin(struct ha_comm *comm)
{
	struct ha_frame_sock *sock = &comm->failover->reconnect->sock;

	switch (ha_frame_sock_flush(sock)) {
	case HA_IO_DONE:
		return HA_STEP_NEXT;
	case HA_IO_AGAIN:
		return HA_STEP_AGAIN;
	default:
		return lost(comm, ha_frame_sock_why(sock));
	}
}

/*
 * Who listens there now may be anyone; who knows what we have not said is the peer. One who does
 * not has its port, and two sockets do not listen at one.
 */
static enum ha_step hear_answer(struct ha_comm *comm)
{
	struct ha_frame_sock *sock = &comm->failover->reconnect->sock;
	struct ha_frame_header header;
	struct ha_rejoin said;
	const uint8_t *payload;

	switch (ha_frame_sock_receive(sock, &header, &payload)) {
	case HA_IO_DONE:
		break;
	case HA_IO_AGAIN:
		return HA_STEP_AGAIN;
	case HA_IO_CLOSED:
		comm->failover->reconnect->refused = 0; /* a peer that cannot now hangs up, too */
		return lost(comm, ha_frame_sock_why(sock));
	default:
		return impostor(comm, ha_wire_strerror(sock->bad));
	}
	if (header.type != HA_FRAME_REJOIN ||
	    ha_rejoin_decode(payload, header.length, &said) != HA_WIRE_OK ||
	    said.secret != server_of(comm)->secrets.answer || !ha_secrets_known(&said.next))
		return impostor(comm, "the answer is not our peer's");
	comm->failover->reconnect->refused = 0;
	ha_handshake_key_socket(&comm->auth, HA_SPEAKER_SENDER, sock,
				comm->failover->reconnect->nonce, said.nonce);
	/* The ones before are of no use any more once the receiver has heard READY. */
	comm->failover->peer_reconnect_at.secrets = said.next;
	if (!ha_frame_sock_queue(sock, HA_FRAME_READY, NULL, 0))
		return lost(comm, "no room for what is to be said");
	return ha_failover_reconnected(comm, sock) ? HA_STEP_NEXT : lost(comm, "not now");
}

static enum ha_step (*const stages[STAGES])(struct ha_comm *) = {
    [STAGE_DIAL] = start,
    [STAGE_DIALING] = dialing,
    [STAGE_REJOIN] = say_rejoin,
    [STAGE_ANSWER] = hear_answer,
};

static enum ha_step run(struct ha_comm *comm)
{
	struct ha_reconnect *reconnect = comm->failover->reconnect;

	while (reconnect->stage < STAGES) {
		enum ha_step step = stages[reconnect->stage](comm);

		if (step != HA_STEP_NEXT)
			return step;
		reconnect->stage++;
	}
	return HA_STEP_NEXT;
}

/* ---- when ---------------------------------------------------------------------------------- */

/* The next attempt: after the interval, which doubles. */
static void put_off(struct ha_reconnect *reconnect, uint64_t now_ns)
{
	ha_frame_sock_close(&reconnect->sock);
	reconnect->stage = STAGE_DIAL;
	reconnect->next_ns = now_ns + reconnect->interval_ms * HA_NS_PER_MS;
	/* The second refusal decides, so it is not put off. */
	if (reconnect->refused != 1 && reconnect->interval_ms < INTERVAL_MAX_MS)
		reconnect->interval_ms *= 2;
	if (reconnect->interval_ms > INTERVAL_MAX_MS)
		reconnect->interval_ms = INTERVAL_MAX_MS;
}

static bool begin(struct ha_comm *comm, uint64_t now_ns)
{
	struct ha_reconnect *reconnect = comm->failover->reconnect;
	union ha_sockaddr addr;

	if (!find_server(comm, &addr))
		return false; /* the peer listens nowhere that we could dial */
	if (!reconnect) {
		reconnect = calloc(1, sizeof(*reconnect));
		if (!reconnect) {
			HA_WARN("connection %s: out of memory for dialling again", comm->name);
			return false;
		}
		reconnect->sock.fd = -1;
		comm->failover->reconnect = reconnect;
	}
	reconnect->refused = 0;
	if (reconnect->done_ns == 0 || now_ns - reconnect->done_ns > LASTING_NS) {
		reconnect->interval_ms = INTERVAL_MIN_MS;
		reconnect->stage = STAGE_DIAL;
		reconnect->next_ns = comm->is_send ? now_ns : now_ns + TURN_NS;
	} else {
		put_off(reconnect, now_ns);
	}
	return true;
}

bool ha_reconnect_begin(struct ha_comm *comm, uint64_t now_ns)
{
	bool asks = begin(comm, now_ns);

	return comm->is_send ? asks : ha_secrets_known(&comm->failover->reconnect_at.secrets);
}

void ha_reconnect_visit(struct ha_comm *comm, uint64_t now_ns)
{
	struct ha_failover *fo = comm->failover;
	struct ha_reconnect *reconnect = fo->reconnect;

	if (!reconnect || !fo->socket_broken || fo->state == HA_FO_LATCHED ||
	    fo->state == HA_FO_CLOSED)
		return;
	if (reconnect->stage == STAGE_DIAL) {
		if (now_ns < reconnect->next_ns)
			return;
		reconnect->deadline_ns = now_ns + ATTEMPT_NS;
	}
	switch (run(comm)) {
	case HA_STEP_NEXT:
		reconnect->done_ns = now_ns;
		break;
	case HA_STEP_AGAIN:
		if (now_ns < reconnect->deadline_ns)
			return;
		reconnect->refused = 0;
		put_off(reconnect, now_ns);
		break;
	default:
		put_off(reconnect, now_ns);
	}
}

bool ha_reconnect_refused(const struct ha_comm *comm)
{
	const struct ha_reconnect *reconnect = comm->failover->reconnect;

	return reconnect && reconnect->refused >= REFUSALS;
}

void ha_reconnect_free(struct ha_comm *comm)
{
	struct ha_reconnect *reconnect = comm->failover->reconnect;

	if (!reconnect)
		return;
	ha_frame_sock_close(&reconnect->sock);
	free(reconnect);
}
