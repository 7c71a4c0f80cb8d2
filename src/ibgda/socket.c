/* SPDX-License-Identifier: Apache-2.0 */
#include "ibgda/socket.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void ha_ibgda_socket_open(struct ha_ibgda_socket *socket, int fd)
{
	memset(socket, 0, sizeof(*socket));
	socket->fd = fd;
}

void ha_ibgda_socket_close(struct ha_ibgda_socket *socket)
{
	(void)close(socket->fd);
	socket->fd = -1;
}

static bool is_later(ssize_t moved)
{
	return moved < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
}

static void push(struct ha_ibgda_socket *socket)
{
	ssize_t sent;

	if (socket->waiting == 0 || socket->is_broken)
		return;
	sent = send(socket->fd, socket->out, socket->waiting, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (sent > 0) {
		socket->waiting -= (size_t)sent;
		memmove(socket->out, socket->out + sent, socket->waiting);
	} else if (!is_later(sent)) {
		socket->is_broken = true;
	}
}

/* Who does not read what is said to it for so many messages never will. */
static bool sends(void *context, const struct ha_ibgda_message *message)
{
	struct ha_ibgda_socket *socket = context;

	push(socket);
	if (socket->is_broken)
		return true;
	if (socket->waiting + HA_IBGDA_FRAME > sizeof(socket->out))
		return false;
	ha_ibgda_wire_encode(message, socket->out + socket->waiting);
	socket->waiting += HA_IBGDA_FRAME;
	push(socket);
	return true;
}

static int receives(void *context, struct ha_ibgda_message *message)
{
	struct ha_ibgda_socket *socket = context;
	ssize_t got;

	push(socket);
	if (socket->is_broken)
		return -1;
	if (!socket->is_readable)
		return 0;
	got =
	    recv(socket->fd, socket->in + socket->got, HA_IBGDA_FRAME - socket->got, MSG_DONTWAIT);
	if (is_later(got)) {
		socket->is_readable = false;
		return 0;
	}
	if (got > 0)
		socket->got += (size_t)got;
	if (got > 0 && socket->got < HA_IBGDA_FRAME)
		return 0;
	socket->got = 0;
	if (got > 0 && ha_ibgda_wire_decode(socket->in, message))
		return 1;
	socket->is_broken = true;
	return -1;
}

static void ends(void *context)
{
	const struct ha_ibgda_socket *socket = context;

	(void)shutdown(socket->fd, SHUT_RDWR);
}

struct ha_ibgda_channel ha_ibgda_socket_channel(struct ha_ibgda_socket *socket)
{
	return (struct ha_ibgda_channel){
	    .context = socket, .send = sends, .receive = receives, .end = ends};
}
