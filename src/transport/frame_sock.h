/* SPDX-License-Identifier: Apache-2.0 */
/* Frames over a non-blocking TCP socket: buffers for one frame in and a few out, nothing else. */
#ifndef HA_TRANSPORT_FRAME_SOCK_H
#define HA_TRANSPORT_FRAME_SOCK_H

#include "transport/auth.h"
#include "transport/wire.h"

#include <stddef.h>
#include <stdint.h>

enum ha_io {
	HA_IO_DONE,
	HA_IO_AGAIN,  /* would wait */
	HA_IO_CLOSED, /* end of file, reset, or another socket error: see error */
	HA_IO_BAD,    /* bytes that no peer of ours would send: see bad */
};

/* How a socket came to its end, which is what it says of the peer. */
enum ha_sock_end {
	HA_SOCK_CLOSED, /* the peer's host closed it in good order: so it does for a dead process */
	HA_SOCK_RESET,	/* somebody knows of no such socket, or speaks in between: the peer's host,
			   or a firewall */
	HA_SOCK_SILENT, /* nothing came back: the network is out, or the peer's host */
};

/* Where the job has a key: each frame ends with a code, over how many there were before. */
struct ha_frame_auth {
	bool on;
	enum ha_speaker self;
	uint64_t said, heard; /* frames */
	struct ha_hmac_key key;
};

struct ha_frame_sock {
	int fd;	   /* -1: closed */
	int error; /* errno after HA_IO_CLOSED, 0 for end of file: the first one, since it is told
		      once */
	enum ha_wire_result bad;
	struct ha_frame_auth auth;
	size_t in_len, out_len, out_sent;
	uint8_t in[HA_FRAME_HEADER + HA_FRAME_MAX_PAYLOAD];
	uint8_t out[2 * (HA_FRAME_HEADER + HA_FRAME_MAX_PAYLOAD)];
};

/* Takes over a connected or connecting socket. Costs next to nothing: it may be a stranger's. */
void ha_frame_sock_open(struct ha_frame_sock *sock, int fd);
/* It is to be the peer's: what is said goes out at once, and that its host is gone is noticed. */
void ha_frame_sock_keep(struct ha_frame_sock *sock);
void ha_frame_sock_close(struct ha_frame_sock *sock);

/* From the next frame on, in both directions, with a key that is copied. */
void ha_frame_sock_authenticate(struct ha_frame_sock *sock, const struct ha_hmac_key *key,
				enum ha_speaker self);

/* Whether the frame that was received last carries the code that it should have carried. */
bool ha_frame_sock_was_genuine(struct ha_frame_sock *sock);

/* Puts a frame behind those not sent yet. False when there is no room. */
bool ha_frame_sock_queue(struct ha_frame_sock *sock, enum ha_frame_type type, const void *payload,
			 uint32_t length);
/* All that was ever said has been acknowledged by the other end's kernel. Costs a system call. */
bool ha_frame_sock_is_drained(const struct ha_frame_sock *sock);
/* Sends what is queued. */
enum ha_io ha_frame_sock_flush(struct ha_frame_sock *sock);

/*
 * The next frame, whole. HA_IO_DONE: *header and *payload are valid until the next call, which
 * starts the next frame.
 */
enum ha_io ha_frame_sock_receive(struct ha_frame_sock *sock, struct ha_frame_header *header,
				 const uint8_t **payload);

/* What came was no peer's words. */
static inline bool ha_frame_sock_is_bad(const struct ha_frame_sock *sock)
{
	return sock->bad != HA_WIRE_OK && sock->bad != HA_WIRE_SHORT;
}

/* Whether its end has not come yet, as far as this host knows. */
bool ha_frame_sock_looks_healthy(const struct ha_frame_sock *sock);

/* After HA_IO_CLOSED or HA_IO_BAD. */
enum ha_sock_end ha_frame_sock_end(const struct ha_frame_sock *sock);

/* "closed by the other end", the socket's error, or what is wrong with what came. */
const char *ha_frame_sock_why(const struct ha_frame_sock *sock);

#endif
