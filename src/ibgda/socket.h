/* SPDX-License-Identifier: Apache-2.0 */
/* What carries hosts' messages between two processes: a connected stream socket. One thread. */
#ifndef HA_IBGDA_SOCKET_H
#define HA_IBGDA_SOCKET_H

#include "ibgda/message.h"
#include "ibgda/wire.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ha_ibgda_socket {
	int fd;
	bool is_readable; /* maybe: set by who polls it */
	bool is_broken;
	uint8_t in[HA_IBGDA_FRAME], out[8 * HA_IBGDA_FRAME];
	size_t got, waiting; /* bytes */
};

/* The socket is its own from then on. */
void ha_ibgda_socket_open(struct ha_ibgda_socket *socket, int fd);
struct ha_ibgda_channel ha_ibgda_socket_channel(struct ha_ibgda_socket *socket);
void ha_ibgda_socket_close(struct ha_ibgda_socket *socket);

#endif
