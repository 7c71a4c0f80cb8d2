/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/frame_sock.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/*
 * A host that vanished, or a network that lost the way to it, must not look like a peer that has
 * nothing to say: kernels answer for stopped processes, too. Noticed after 10 to 15 s.
 */
static void keep_alive(int fd)
{
	static const struct {
		int level, name, value;
	} options[] = {
	    {SOL_SOCKET, SO_KEEPALIVE, 1},
	    {IPPROTO_TCP, TCP_KEEPIDLE, 5},
	    {IPPROTO_TCP, TCP_KEEPINTVL, 2},
	    {IPPROTO_TCP, TCP_KEEPCNT, 4},
	    {IPPROTO_TCP, TCP_USER_TIMEOUT, 15000 /* ms */},
	};

	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
		(void)setsockopt(fd, options[i].level, options[i].name, &options[i].value,
				 sizeof(options[i].value));
}

void ha_stream_open(struct ha_stream *stream, int fd)
{
	int one = 1;

	memset(stream, 0, sizeof(*stream));
	stream->fd = fd;
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	keep_alive(fd);
}

void ha_stream_close(struct ha_stream *stream)
{
	if (stream->fd >= 0)
		close(stream->fd);
	stream->fd = -1;
}

bool ha_stream_queue(struct ha_stream *stream, enum ha_frame_type type, const void *payload,
		     uint32_t length)
{
	struct ha_frame_header header = {.type = (uint16_t)type, .length = length};

	if (length > HA_FRAME_MAX_PAYLOAD ||
	    sizeof(stream->out) - stream->out_len < HA_FRAME_HEADER + length)
		return false;
	ha_frame_header_encode(&header, stream->out + stream->out_len);
	stream->out_len += HA_FRAME_HEADER;
	if (length != 0)
		memcpy(stream->out + stream->out_len, payload, length);
	stream->out_len += length;
	return true;
}

static enum ha_io failed(struct ha_stream *stream, int error)
{
	if (error == EAGAIN || error == EWOULDBLOCK || error == EINTR)
		return HA_IO_AGAIN;
	stream->error = error;
	return HA_IO_CLOSED;
}

enum ha_io ha_stream_flush(struct ha_stream *stream)
{
	while (stream->out_sent < stream->out_len) {
		ssize_t n = send(stream->fd, stream->out + stream->out_sent,
				 stream->out_len - stream->out_sent, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0)
			return failed(stream, errno);
		stream->out_sent += (size_t)n;
	}
	stream->out_sent = stream->out_len = 0;
	return HA_IO_DONE;
}

/* Reads until `wanted` bytes of the current frame are here. */
static enum ha_io fill(struct ha_stream *stream, size_t wanted)
{
	while (stream->in_len < wanted) {
		ssize_t n = recv(stream->fd, stream->in + stream->in_len, wanted - stream->in_len,
				 MSG_DONTWAIT);

		if (n < 0)
			return failed(stream, errno);
		if (n == 0) {
			stream->error = 0;
			return HA_IO_CLOSED;
		}
		stream->in_len += (size_t)n;
	}
	return HA_IO_DONE;
}

enum ha_io ha_stream_receive(struct ha_stream *stream, struct ha_frame_header *header,
			     const uint8_t **payload)
{
	enum ha_io io = fill(stream, HA_FRAME_HEADER);

	stream->bad = ha_frame_header_decode(stream->in, stream->in_len, header);
	if (stream->bad == HA_WIRE_SHORT)
		return io;
	if (stream->bad != HA_WIRE_OK)
		return HA_IO_BAD;
	io = fill(stream, HA_FRAME_HEADER + header->length);
	if (io != HA_IO_DONE)
		return io;
	*payload = stream->in + HA_FRAME_HEADER;
	stream->in_len = 0;
	return HA_IO_DONE;
}

const char *ha_stream_why(const struct ha_stream *stream)
{
	return stream->error == 0 ? "closed by the other end" : strerror(stream->error);
}
