/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/frame_sock.h"

#include "base/fork_guard.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

/*
 * A host that vanished, or a network that lost the way to it, must not look like a peer that has
 * nothing to say: kernels answer for stopped processes, too. Noticed after 10 to 15 s.
 *
 * The time for what is not acknowledged also runs while a stopped process's window is closed: who
 * speaks to one must not fill it.
 */
void ha_frame_sock_keep(struct ha_frame_sock *sock)
{
	static const struct {
		int level, name, value;
	} options[] = {
	    {IPPROTO_TCP, TCP_NODELAY, 1},  {SOL_SOCKET, SO_KEEPALIVE, 1},
	    {IPPROTO_TCP, TCP_KEEPIDLE, 5}, {IPPROTO_TCP, TCP_KEEPINTVL, 2},
	    {IPPROTO_TCP, TCP_KEEPCNT, 4},  {IPPROTO_TCP, TCP_USER_TIMEOUT, 15000 /* ms */},
	};

	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
		(void)setsockopt(sock->fd, options[i].level, options[i].name, &options[i].value,
				 sizeof(options[i].value));
}

void ha_frame_sock_open(struct ha_frame_sock *sock, int fd)
{
	sock->fd = ha_fork_closes(fd);
	sock->error = 0;
	sock->bad = HA_WIRE_OK;
	sock->auth.on = false;
	sock->in_len = sock->out_len = sock->out_sent = 0;
}

void ha_frame_sock_close(struct ha_frame_sock *sock)
{
	ha_fork_close(sock->fd);
	sock->fd = -1;
	if (sock->auth.on)
		ha_hmac_forget_key(&sock->auth.key);
	sock->auth.on = false;
}

void ha_frame_sock_authenticate(struct ha_frame_sock *sock, const struct ha_hmac_key *key,
				enum ha_speaker self)
{
	sock->auth = (struct ha_frame_auth){.on = true, .self = self, .key = *key};
}

static struct ha_statement statement(enum ha_speaker speaker, uint64_t count, const uint8_t *frame,
				     size_t length)
{
	return (struct ha_statement){.speaker = (uint8_t)speaker,
				     .count = count,
				     .head = frame,
				     .head_length = HA_FRAME_HEADER,
				     .body = frame + HA_FRAME_HEADER,
				     .body_length = length};
}

/* Of a frame that lies there, with room for its code. */
static void seal(struct ha_frame_auth *auth, uint8_t *frame, uint32_t length)
{
	struct ha_statement said = statement(auth->self, auth->said++, frame, length);

	ha_statement_code(&auth->key, &said, frame + HA_FRAME_HEADER + length);
}

/* What is left of a frame without its code. False: it is not genuine. */
static bool unseal(struct ha_frame_auth *auth, const uint8_t *frame, uint32_t *length)
{
	struct ha_statement said;

	if (*length < HA_CODE_BYTES)
		return false;
	*length -= HA_CODE_BYTES;
	said = statement(ha_other_speaker(auth->self), auth->heard++, frame, *length);
	return ha_statement_is_genuine(&auth->key, &said, frame + HA_FRAME_HEADER + *length);
}

bool ha_frame_sock_was_genuine(struct ha_frame_sock *sock)
{
	struct ha_frame_header header;

	return ha_frame_header_decode(sock->in, HA_FRAME_HEADER, &header) == HA_WIRE_OK &&
	       unseal(&sock->auth, sock->in, &header.length);
}

bool ha_frame_sock_queue(struct ha_frame_sock *sock, enum ha_frame_type type, const void *payload,
			 uint32_t length)
{
	uint32_t whole = length + (sock->auth.on ? HA_CODE_BYTES : 0);
	struct ha_frame_header header = {.type = (uint16_t)type, .length = whole};
	uint8_t *frame = sock->out + sock->out_len;

	if (whole > HA_FRAME_MAX_PAYLOAD ||
	    sizeof(sock->out) - sock->out_len < HA_FRAME_HEADER + whole)
		return false;
	ha_frame_header_encode(&header, frame);
	if (length != 0)
		memcpy(frame + HA_FRAME_HEADER, payload, length);
	if (sock->auth.on)
		seal(&sock->auth, frame, length);
	sock->out_len += HA_FRAME_HEADER + whole;
	return true;
}

bool ha_frame_sock_is_drained(const struct ha_frame_sock *sock)
{
	int left = 0;

	return sock->out_len == 0 && ioctl(sock->fd, SIOCOUTQ, &left) == 0 && left == 0;
}

static enum ha_io failed(struct ha_frame_sock *sock, int error)
{
	if (error == EAGAIN || error == EWOULDBLOCK || error == EINTR)
		return HA_IO_AGAIN;
	if (sock->error == 0)
		sock->error = error;
	return HA_IO_CLOSED;
}

enum ha_io ha_frame_sock_flush(struct ha_frame_sock *sock)
{
	while (sock->out_sent < sock->out_len) {
		ssize_t n = send(sock->fd, sock->out + sock->out_sent,
				 sock->out_len - sock->out_sent, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0)
			return failed(sock, errno);
		sock->out_sent += (size_t)n;
	}
	sock->out_sent = sock->out_len = 0;
	return HA_IO_DONE;
}

/* Reads until `wanted` bytes of the current frame are here. */
static enum ha_io fill(struct ha_frame_sock *sock, size_t wanted)
{
	while (sock->in_len < wanted) {
		ssize_t n =
		    recv(sock->fd, sock->in + sock->in_len, wanted - sock->in_len, MSG_DONTWAIT);

		if (n < 0)
			return failed(sock, errno);
		if (n == 0)
			return HA_IO_CLOSED;
		sock->in_len += (size_t)n;
	}
	return HA_IO_DONE;
}

enum ha_io ha_frame_sock_receive(struct ha_frame_sock *sock, struct ha_frame_header *header,
				 const uint8_t **payload)
{
	enum ha_io io = fill(sock, HA_FRAME_HEADER);

	sock->bad = ha_frame_header_decode(sock->in, sock->in_len, header);
	if (sock->bad == HA_WIRE_SHORT)
		return io;
	if (sock->bad != HA_WIRE_OK)
		return HA_IO_BAD;
	io = fill(sock, HA_FRAME_HEADER + header->length);
	if (io != HA_IO_DONE)
		return io;
	*payload = sock->in + HA_FRAME_HEADER;
	sock->in_len = 0;
	if (sock->auth.on && !unseal(&sock->auth, sock->in, &header->length)) {
		sock->bad = HA_WIRE_FORGED;
		return HA_IO_BAD;
	}
	return HA_IO_DONE;
}

bool ha_frame_sock_looks_healthy(const struct ha_frame_sock *sock)
{
	struct pollfd p = {.fd = sock->fd, .events = POLLRDHUP};

	return sock->fd >= 0 && poll(&p, 1, 0) == 0;
}

enum ha_sock_end ha_frame_sock_end(const struct ha_frame_sock *sock)
{
	switch (sock->error) {
	case 0:
		return ha_frame_sock_is_bad(sock) ? HA_SOCK_RESET : HA_SOCK_CLOSED;
	case ETIMEDOUT:
	case EHOSTUNREACH:
	case EHOSTDOWN:
	case ENETUNREACH:
	case ENETDOWN:
		return HA_SOCK_SILENT;
	default:
		return HA_SOCK_RESET;
	}
}

const char *ha_frame_sock_why(const struct ha_frame_sock *sock)
{
	if (ha_frame_sock_is_bad(sock))
		return ha_wire_strerror(sock->bad);
	return sock->error == 0 ? "closed by the other end" : strerror(sock->error);
}
