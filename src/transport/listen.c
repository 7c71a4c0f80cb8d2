/* SPDX-License-Identifier: Apache-2.0 */
/*
 * listen and accept: the listener's half of the handshake, and what it does against strangers.
 *
 * Anyone can connect to the port. A connection is *half-open* until its first frame proves by a
 * secret of our handle that it comes from whoever got that. Half-open connections have a seat, of
 * which there is a fixed number, and a deadline; wrong bytes, silence and hang-ups free the seat at
 * once, and when all are taken one of the source that has most of them makes way. Who is there
 * already is looked at before anybody else is let in, and each newcomer before the next: a peer
 * whose first frame has come is never in anybody's way. So a flood costs the real peer at most a
 * reconnect, which connect does by itself.
 */
#include "transport/handshake.h"

#include "base/clock.h"
#include "base/fork_guard.h"
#include "base/log.h"
#include "base/net_accept.h"
#include "base/seats.h"
#include "base/text.h"
#include "transport/shared.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* In a call: fewer than seats, so that nobody who came in it has to leave in it. */
#define ADMISSIONS   (HA_SEATS / 2)
#define BACKLOG	     1024
#define STRANGER_MS  5000 /* to say the secret */
#define SAY_AGAIN_NS (60 * HA_NS_PER_S)

enum stage { STAGE_HELLO, STAGE_ANSWER, STAGE_READY, STAGES };

struct half_open {
	struct ha_list in_listener;
	struct ha_seat seat; /* until it is proven */
	bool proven;	     /* said the secret: makes way for nobody */
	enum stage stage;
	uint64_t deadline_ns;
	union ha_sockaddr from;
	struct ha_frame_sock sock;
	struct ha_comm *comm;
};

struct ha_listen {
	struct ha_instance *inst;
	struct ha_port *port;
	int fd;
	struct ha_secrets secrets;
	uint64_t strangers;	  /* dropped so far */
	uint64_t short_since_ns;  /* clients wait, and there are no descriptors for them; 0: no */
	uint64_t short_say_ns;	  /* not before */
	struct ha_list half_open; /* in the order in which they came */
	unsigned nhalf_open;
	struct ha_seats seats;
};

/* ---- listen -------------------------------------------------------------------------------- */

/* For a connector that goes by islands. */
static void say_rail(struct ha_port *port, struct ha_handle *handle)
{
	struct ha_port_addr addr;

	if (port->bundle->nrails < HA_RAILS_MIN)
		return;
	ha_port_addr(port->bundle->rails[0], &addr);
	memcpy(handle->gid, addr.gid.raw, sizeof(handle->gid));
}

ha_result_t ha_listen(struct ha_instance *inst, int dev, void *handle_bytes, struct ha_listen **out)
{
	struct ha_port *port = ha_instance_port(inst, dev);
	struct ha_handle handle = {
	    .version = HA_WIRE_VERSION,
	    .flags = inst->config.enable_backup ? HA_HANDLE_DUAL_PATH : 0,
	};
	struct ha_listen *listen;
	char text[HA_SOCKADDR_TEXT_MAX];

	*out = NULL;
	if (!port) {
		HA_WARN("listen: there is no device %d", dev);
		return HA_ERR_ARGUMENT;
	}
	listen = calloc(1, sizeof(*listen));
	if (!listen) {
		HA_WARN("out of memory for a listener");
		return HA_ERR_SYSTEM;
	}
	listen->inst = inst;
	listen->port = port;
	ha_list_init(&listen->half_open);
	ha_seats_init(&listen->seats);
	listen->fd = ha_net_listen(&inst->bootstrap_addr, BACKLOG, &handle.addr);
	if (listen->fd < 0) {
		HA_WARN("listen on %s: %s",
			ha_sockaddr_text(&inst->bootstrap_addr, text, sizeof(text)),
			strerror(errno));
		free(listen);
		return HA_ERR_SYSTEM;
	}
	ha_fork_closes(listen->fd);
	listen->secrets = handle.secrets = ha_secrets_new();
	say_rail(port, &handle);
	ha_handle_encode(&handle, handle_bytes);
	*out = listen;
	return HA_OK;
}

/* ---- half-open connections ------------------------------------------------------------------ */

static void forget(struct ha_listen *listen, struct half_open *half)
{
	if (!half->proven)
		ha_seats_leave(&listen->seats, &half->seat);
	ha_list_remove(&half->in_listener);
	listen->nhalf_open--;
	free(half);
}

static void drop(struct ha_listen *listen, struct half_open *half, const char *why)
{
	if (!half->proven) {
		listen->strangers++;
		ha_instance_refused(listen->inst, HA_refused_handshakes);
	}
	HA_TRACE(1, "listener on %s:%d drops a connection: %s", listen->port->nic->name,
		 listen->port->port_num, why);
	ha_frame_sock_close(&half->sock);
	ha_comm_free(half->comm);
	forget(listen, half);
}

static void deadline(struct half_open *half, uint64_t now_ns, uint64_t ms)
{
	half->deadline_ns = now_ns + ms * HA_NS_PER_MS;
}

/* One that has not said who it is leaves. False: there is none. */
static bool make_way(struct ha_listen *listen)
{
	struct ha_seat *seat = ha_seats_next_to_leave(&listen->seats);

	if (seat)
		drop(listen, ha_container_of(seat, struct half_open, seat), "others are waiting");
	return seat != NULL;
}

/* Clients stay in the queue, so descriptors that come free in time are all that is needed. */
static ha_result_t out_of_descriptors(struct ha_listen *listen, int error, uint64_t now_ns)
{
	const struct ha_port *port = listen->port;

	if (listen->short_since_ns == 0)
		listen->short_since_ns = now_ns;
	if (now_ns - listen->short_since_ns >= HA_HANDSHAKE_PEER_MS * HA_NS_PER_MS) {
		HA_WARN("accept on %s:%d: %s, for %d s now: no connection can be made; raise "
			"'ulimit -n'",
			port->nic->name, port->port_num, strerror(error),
			HA_HANDSHAKE_PEER_MS / 1000);
		return HA_ERR_SYSTEM;
	}
	if (now_ns >= listen->short_say_ns) {
		listen->short_say_ns = now_ns + SAY_AGAIN_NS;
		HA_WARN("accept on %s:%d: %s: connections wait until this process closes some, or "
			"'ulimit -n' is raised",
			port->nic->name, port->port_num, strerror(error));
	}
	return HA_OK;
}

/* One that had said who it is may be waiting for us, too. */
static void silent(struct ha_listen *listen, struct half_open *half)
{
	char peer[HA_SOCKADDR_TEXT_MAX];

	if (half->proven)
		HA_WARN("accept on %s:%d: the peer at %s began a connection and then said nothing "
			"for %d s: it is given up; does that process still run?",
			listen->port->nic->name, listen->port->port_num,
			ha_sockaddr_text(&half->from, peer, sizeof(peer)),
			HA_HANDSHAKE_PEER_MS / 1000);
	drop(listen, half, "silent for too long");
}

static enum ha_step lost(struct ha_listen *listen, struct half_open *half, const char *why)
{
	drop(listen, half, why);
	return HA_STEP_RETRY;
}

static enum ha_step from_io(struct ha_listen *listen, struct half_open *half, enum ha_io io)
{
	switch (io) {
	case HA_IO_DONE:
		return HA_STEP_NEXT;
	case HA_IO_AGAIN:
		return HA_STEP_AGAIN;
	case HA_IO_BAD:
		if (half->sock.bad == HA_WIRE_FORGED)
			ha_instance_refused(listen->inst, HA_refused_handshakes);
		return lost(listen, half, ha_wire_strerror(half->sock.bad));
	default:
		return lost(listen, half, ha_frame_sock_why(&half->sock));
	}
}

/* ---- stages -------------------------------------------------------------------------------- */

/* Says why there will be no connection, as well as that can be done without waiting. */
static enum ha_step reject(struct ha_listen *listen, struct half_open *half, const uint8_t *asked,
			   enum ha_reject_reason reason)
{
	struct ha_reject frame = {.secret = listen->secrets.answer,
				  .reason = (uint16_t)reason,
				  .version = HA_WIRE_VERSION,
				  .min_version = HA_WIRE_MIN_VERSION,
				  .port_num = listen->port->port_num};
	uint8_t payload[HA_REJECT_BYTES];

	ha_copy_text(frame.device, sizeof(frame.device), listen->port->nic->name);
	ha_reject_encode(&frame, payload);
	if (listen->inst->job_key && !ha_auth_seal_reject(listen->inst->job_key, asked, payload))
		return lost(listen, half, "no key for our refusal");
	if (ha_frame_sock_queue(&half->sock, HA_FRAME_REJECT, payload, sizeof(payload)))
		(void)ha_frame_sock_flush(&half->sock);
	return lost(listen, half, "rejected");
}

/* The connector may have another port. */
static enum ha_step no_route(struct ha_listen *listen, struct half_open *half,
			     const struct ha_hello *remote, const uint8_t *asked)
{
	HA_INFO(HA_SUBSYS_NET,
		"a connection from %s for %s:%d: the kernel has no route from a port here to its "
		"%s:%u",
		remote->host, listen->port->nic->name, listen->port->port_num,
		remote->endpoint.device, remote->endpoint.port_num);
	return reject(listen, half, asked, HA_REJECT_ROUTE);
}

/* Somebody of this job, or who knows its handles. One WARN for a host, however often it comes. */
static enum ha_step mistrusted(struct ha_listen *listen, struct half_open *half,
			       const struct ha_hello *remote, const uint8_t *asked, const char *why)
{
	char from[HA_SOCKADDR_TEXT_MAX], key[256];
	struct ha_instance *inst = listen->inst;
	bool told;

	pthread_mutex_lock(&inst->lock);
	told = ha_sockaddr_same_host(&inst->stranger, &half->from);
	inst->stranger = half->from;
	pthread_mutex_unlock(&inst->lock);
	ha_instance_refused(inst, HA_refused_handshakes);
	if (!told)
		HA_WARN("a connection from %s (%s) is refused: %s: give all processes of the job "
			"the same key (ours: %s)",
			ha_sockaddr_text(&half->from, from, sizeof(from)), remote->host, why,
			ha_handshake_key_text(inst, key, sizeof(key)));
	return reject(listen, half, asked, HA_REJECT_KEY);
}

/* The peer has proven itself: make our end and answer. */
static enum ha_step greet(struct ha_listen *listen, struct half_open *half,
			  const struct ha_hello *remote, const uint8_t *asked)
{
	const struct ha_first_path first = {
	    .wanted = ha_rail_island_follow(listen->inst, listen->port, remote),
	    .nqps = remote->endpoint.nqps,
	    .peer = &remote->endpoint};
	uint8_t payload[HA_HELLO_BYTES];
	struct ha_agreement agreed;
	struct ha_hello local;
	ha_result_t result;

	result = ha_handshake_open(listen->inst, false, &first, &half->comm);
	if (result == HA_ERR_REMOTE)
		return no_route(listen, half, remote, asked);
	if (result != HA_OK)
		return reject(listen, half, asked, HA_REJECT_RESOURCES);
	ha_handshake_hello(half->comm, listen->secrets.answer, remote->endpoint.sl,
			   remote->endpoint.traffic_class, &local);
	if (ha_handshake_finish(half->comm, &local, remote) != HA_OK)
		return reject(listen, half, asked,
			      ha_hello_agree(&local, remote, &agreed) == HA_WIRE_UNSUPPORTED
				  ? HA_REJECT_VERSION
				  : HA_REJECT_FABRIC);
	ha_handshake_connected(half->comm, &local);
	if (!ha_handshake_say_hello(half->comm, &local, asked, payload) ||
	    !ha_frame_sock_queue(&half->sock, HA_FRAME_HELLO, payload, sizeof(payload)))
		return lost(listen, half, "no room for our hello, or no key for it");
	if (ha_handshake_authenticate(half->comm, &half->sock, &local, remote) != HA_OK)
		return lost(listen, half, "no key for what comes after hello");
	return HA_STEP_NEXT;
}

static enum ha_step read_hello(struct ha_listen *listen, struct half_open *half)
{
	struct ha_frame_header header;
	enum ha_wire_result decoded;
	struct ha_hello remote;
	uint8_t asked[HA_HELLO_BYTES];
	const uint8_t *payload;
	const char *why;
	enum ha_io io = ha_frame_sock_receive(&half->sock, &header, &payload);

	if (io != HA_IO_DONE)
		return from_io(listen, half, io);
	if (header.type != HA_FRAME_HELLO)
		return lost(listen, half, "its first message is not a hello");
	decoded = ha_hello_decode(payload, header.length, &remote);
	if (decoded != HA_WIRE_OK)
		return lost(listen, half, ha_wire_strerror(decoded));
	if (remote.secret != listen->secrets.ask)
		return lost(listen, half, "it does not know our handle");
	ha_seats_leave(&listen->seats, &half->seat);
	half->proven = true;
	ha_frame_sock_keep(&half->sock);
	deadline(half, ha_now_ns(), HA_HANDSHAKE_PEER_MS);
	memcpy(asked, payload, sizeof(asked));
	why = ha_handshake_mistrusts(listen->inst, &remote, NULL, asked);
	return why ? mistrusted(listen, half, &remote, asked, why)
		   : greet(listen, half, &remote, asked);
}

static enum ha_step flush(struct ha_listen *listen, struct half_open *half)
{
	return from_io(listen, half, ha_frame_sock_flush(&half->sock));
}

static enum ha_step read_ready(struct ha_listen *listen, struct half_open *half)
{
	struct ha_frame_header header;
	const uint8_t *payload;
	enum ha_io io = ha_frame_sock_receive(&half->sock, &header, &payload);

	if (io != HA_IO_DONE)
		return from_io(listen, half, io);
	if (header.type != HA_FRAME_READY)
		return lost(listen, half, "a message out of turn");
	return HA_STEP_NEXT;
}

static enum ha_step (*const stages[STAGES])(struct ha_listen *, struct half_open *) = {
    [STAGE_HELLO] = read_hello,
    [STAGE_ANSWER] = flush,
    [STAGE_READY] = read_ready,
};

static enum ha_step run(struct ha_listen *listen, struct half_open *half)
{
	while (half->stage < STAGES) {
		enum ha_step step = stages[half->stage](listen, half);

		if (step != HA_STEP_NEXT)
			return step;
		half->stage++;
	}
	return HA_STEP_NEXT;
}

/* ---- accept -------------------------------------------------------------------------------- */

/* *out: its connection, when that is complete. Otherwise it goes on later, or is gone. */
static ha_result_t go_on(struct ha_listen *listen, struct half_open *half, uint64_t now_ns,
			 struct ha_comm **out)
{
	enum ha_step step = run(listen, half);

	if (step == HA_STEP_AGAIN && now_ns >= half->deadline_ns)
		silent(listen, half);
	if (step != HA_STEP_NEXT)
		return HA_OK;
	if (ha_handshake_publish(half->comm, &half->sock) != HA_OK) {
		drop(listen, half, "out of resources");
		return HA_ERR_SYSTEM;
	}
	*out = half->comm;
	forget(listen, half);
	return HA_OK;
}

static struct half_open *seat(struct ha_listen *listen, int fd, const union ha_sockaddr *from,
			      uint64_t now_ns)
{
	struct half_open *half = NULL;

	if (listen->nhalf_open < HA_SEATS || make_way(listen))
		half = calloc(1, sizeof(*half));
	if (!half) {
		close(fd);
		return NULL;
	}
	half->from = *from;
	deadline(half, now_ns, STRANGER_MS);
	ha_frame_sock_open(&half->sock, fd);
	ha_seats_take(&listen->seats, &half->seat, ha_seats_source(from));
	ha_list_push_back(&listen->half_open, &half->in_listener);
	listen->nhalf_open++;
	return half;
}

/* -1: nobody is there, or nobody can be let in now. */
static int next_client(struct ha_listen *listen, union ha_sockaddr *from, uint64_t now_ns,
		       ha_result_t *result)
{
	int fd = ha_net_accept(listen->fd, &listen->inst->reserve, from), error = errno;

	if (fd < 0 && ha_net_is_shortage(error) && make_way(listen)) {
		fd = ha_net_accept(listen->fd, &listen->inst->reserve, from);
		error = errno;
	}
	*result = HA_OK;
	if (fd < 0 && ha_net_is_shortage(error))
		*result = out_of_descriptors(listen, error, now_ns);
	else
		listen->short_since_ns = 0;
	return fd;
}

static ha_result_t admit(struct ha_listen *listen, uint64_t now_ns, struct ha_comm **out)
{
	ha_result_t result;

	ha_net_reserve_fill(&listen->inst->reserve);
	for (int i = 0; i < ADMISSIONS && !*out; i++) {
		union ha_sockaddr from;
		int fd = next_client(listen, &from, now_ns, &result);
		struct half_open *half;

		if (fd < 0)
			return result;
		half = seat(listen, fd, &from, now_ns);
		if (half)
			HA_TRY(go_on(listen, half, now_ns, out));
	}
	return HA_OK;
}

ha_result_t ha_accept(struct ha_listen *listen, struct ha_comm **out)
{
	uint64_t now_ns = ha_now_ns();
	struct ha_list *pos, *after;

	*out = NULL;
	ha_list_for_each_safe (pos, after, &listen->half_open) {
		HA_TRY(go_on(listen, ha_container_of(pos, struct half_open, in_listener), now_ns,
			     out));
		if (*out)
			return HA_OK;
	}
	return admit(listen, now_ns, out);
}

void ha_close_listen(struct ha_listen *listen)
{
	struct ha_list *pos, *after;

	if (!listen)
		return;
	ha_list_for_each_safe (pos, after, &listen->half_open)
		drop(listen, ha_container_of(pos, struct half_open, in_listener),
		     "the listener is closed");
	if (listen->strangers != 0)
		HA_INFO(HA_SUBSYS_NET, "a listener on %s:%d turned %llu strangers away",
			listen->port->nic->name, listen->port->port_num,
			(unsigned long long)listen->strangers);
	ha_fork_close(listen->fd);
	free(listen);
}
