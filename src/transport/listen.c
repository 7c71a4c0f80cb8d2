/* SPDX-License-Identifier: Apache-2.0 */
/*
 * listen and accept: the listener's half of the handshake, and what it does against strangers.
 *
 * Anyone can connect to the port. A connection is *half-open* until its first frame proves by a
 * secret of our handle that it comes from whoever got that. Half-open connections have a place in a
 * table of fixed size and a deadline; wrong bytes, silence and hang-ups free the place at once,
 * and when the table is full the one that has been silent longest makes way. So a flood costs
 * the real peer at most a reconnect, which connect does by itself.
 */
#include "transport/handshake.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/net_accept.h"
#include "base/text.h"
#include "transport/shared.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HALF_OPEN_MAX	 32
#define ACCEPTS_PER_CALL 64
#define BACKLOG		 1024
#define STRANGER_MS	 5000 /* to say the secret */
#define SAY_AGAIN_NS	 (60 * HA_NS_PER_S)

enum stage { STAGE_HELLO, STAGE_ANSWER, STAGE_READY, STAGES };

struct half_open {
	bool used;
	bool proven; /* said the secret: not to be evicted */
	enum stage stage;
	uint64_t since_ns, deadline_ns;
	union ha_sockaddr from;
	struct ha_frame_sock sock;
	struct ha_comm *comm;
};

struct ha_listen {
	struct ha_instance *inst;
	struct ha_port *port;
	int fd;
	struct ha_secrets secrets;
	uint64_t strangers;	 /* dropped so far */
	uint64_t short_since_ns; /* clients wait, and there are no descriptors for them; 0: no */
	uint64_t short_say_ns;	 /* not before */
	struct half_open half_open[HALF_OPEN_MAX];
};

/* ---- listen -------------------------------------------------------------------------------- */

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
	listen->fd = ha_net_listen(&inst->bootstrap_addr, BACKLOG, &handle.addr);
	if (listen->fd < 0) {
		HA_WARN("listen on %s: %s",
			ha_sockaddr_text(&inst->bootstrap_addr, text, sizeof(text)),
			strerror(errno));
		free(listen);
		return HA_ERR_SYSTEM;
	}
	listen->secrets = handle.secrets = ha_secrets_new();
	ha_handle_encode(&handle, handle_bytes);
	*out = listen;
	return HA_OK;
}

/* ---- half-open connections ------------------------------------------------------------------ */

static void drop(struct ha_listen *listen, struct half_open *half, const char *why)
{
	if (!half->proven)
		listen->strangers++;
	HA_TRACE(1, "listener on %s:%d drops a connection: %s", listen->port->nic->name,
		 listen->port->port_num, why);
	ha_frame_sock_close(&half->sock);
	ha_comm_free(half->comm);
	half->comm = NULL;
	half->used = false;
}

static void deadline(struct half_open *half, uint64_t now_ns, uint64_t ms)
{
	half->deadline_ns = now_ns + ms * HA_NS_PER_MS;
}

/* A free place, or that of the stranger who has been silent longest. NULL: all are proven. */
static struct half_open *find_place(struct ha_listen *listen)
{
	struct half_open *oldest = NULL;

	for (int i = 0; i < HALF_OPEN_MAX; i++) {
		struct half_open *half = &listen->half_open[i];

		if (!half->used)
			return half;
		if (!half->proven && (!oldest || half->since_ns < oldest->since_ns))
			oldest = half;
	}
	if (oldest)
		drop(listen, oldest, "others are waiting");
	return oldest;
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

static ha_result_t take_new(struct ha_listen *listen, uint64_t now_ns)
{
	ha_net_reserve_fill(&listen->inst->reserve);
	for (int i = 0; i < ACCEPTS_PER_CALL; i++) {
		union ha_sockaddr from;
		int fd = ha_net_accept(listen->fd, &listen->inst->reserve, &from);
		struct half_open *half;

		if (fd < 0 && ha_net_is_shortage(errno))
			return out_of_descriptors(listen, errno, now_ns);
		listen->short_since_ns = 0;
		if (fd < 0)
			break; /* nobody there; a connection that broke meanwhile is no concern */
		half = find_place(listen);
		if (!half) {
			close(fd);
			break;
		}
		memset(half, 0, offsetof(struct half_open, sock));
		half->used = true;
		half->since_ns = now_ns;
		half->from = from;
		deadline(half, now_ns, STRANGER_MS);
		ha_frame_sock_open(&half->sock, fd);
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
		return lost(listen, half, ha_wire_strerror(half->sock.bad));
	default:
		return lost(listen, half, ha_frame_sock_why(&half->sock));
	}
}

/* ---- stages -------------------------------------------------------------------------------- */

/* Says why there will be no connection, as well as that can be done without waiting. */
static enum ha_step reject(struct ha_listen *listen, struct half_open *half,
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
	if (ha_frame_sock_queue(&half->sock, HA_FRAME_REJECT, payload, sizeof(payload)))
		(void)ha_frame_sock_flush(&half->sock);
	return lost(listen, half, "rejected");
}

/* The connector may have another port. */
static enum ha_step no_route(struct ha_listen *listen, struct half_open *half,
			     const struct ha_hello *remote)
{
	HA_INFO(HA_SUBSYS_NET,
		"a connection from %s for %s:%d: the kernel has no route from a port here to its "
		"%s:%u",
		remote->host, listen->port->nic->name, listen->port->port_num,
		remote->endpoint.device, remote->endpoint.port_num);
	return reject(listen, half, HA_REJECT_ROUTE);
}

/* The peer has proven itself: make our end and answer. */
static enum ha_step greet(struct ha_listen *listen, struct half_open *half,
			  const struct ha_hello *remote)
{
	const struct ha_first_path first = {
	    .wanted = listen->port, .nqps = remote->endpoint.nqps, .peer = &remote->endpoint};
	uint8_t payload[HA_HELLO_BYTES];
	struct ha_agreement agreed;
	struct ha_hello local;
	ha_result_t result;

	result = ha_handshake_open(listen->inst, false, &first, &half->comm);
	if (result == HA_ERR_REMOTE)
		return no_route(listen, half, remote);
	if (result != HA_OK)
		return reject(listen, half, HA_REJECT_RESOURCES);
	ha_handshake_hello(half->comm, listen->secrets.answer, remote->endpoint.sl,
			   remote->endpoint.traffic_class, &local);
	if (ha_handshake_finish(half->comm, &local, remote) != HA_OK)
		return reject(listen, half,
			      ha_hello_agree(&local, remote, &agreed) == HA_WIRE_UNSUPPORTED
				  ? HA_REJECT_VERSION
				  : HA_REJECT_FABRIC);
	ha_handshake_connected(half->comm, &local);
	ha_hello_encode(&local, payload);
	if (!ha_frame_sock_queue(&half->sock, HA_FRAME_HELLO, payload, sizeof(payload)))
		return lost(listen, half, "no room for our hello");
	return HA_STEP_NEXT;
}

static enum ha_step read_hello(struct ha_listen *listen, struct half_open *half)
{
	struct ha_frame_header header;
	enum ha_wire_result decoded;
	struct ha_hello remote;
	const uint8_t *payload;
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
	half->proven = true;
	deadline(half, ha_now_ns(), HA_HANDSHAKE_PEER_MS);
	return greet(listen, half, &remote);
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

ha_result_t ha_accept(struct ha_listen *listen, struct ha_comm **out)
{
	uint64_t now_ns = ha_now_ns();

	*out = NULL;
	HA_TRY(take_new(listen, now_ns));
	for (int i = 0; i < HALF_OPEN_MAX; i++) {
		struct half_open *half = &listen->half_open[i];
		enum ha_step step;

		if (!half->used)
			continue;
		step = run(listen, half);
		if (step == HA_STEP_AGAIN && now_ns >= half->deadline_ns)
			silent(listen, half);
		if (step != HA_STEP_NEXT)
			continue;
		half->used = false;
		if (ha_handshake_publish(half->comm, &half->sock) != HA_OK) {
			drop(listen, half, "out of resources");
			return HA_ERR_SYSTEM;
		}
		*out = half->comm;
		half->comm = NULL;
		return HA_OK;
	}
	return HA_OK;
}

void ha_close_listen(struct ha_listen *listen)
{
	if (!listen)
		return;
	for (int i = 0; i < HALF_OPEN_MAX; i++)
		if (listen->half_open[i].used)
			drop(listen, &listen->half_open[i], "the listener is closed");
	if (listen->strangers != 0)
		HA_INFO(HA_SUBSYS_NET, "a listener on %s:%d turned %llu strangers away",
			listen->port->nic->name, listen->port->port_num,
			(unsigned long long)listen->strangers);
	close(listen->fd);
	free(listen);
}
