/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What connect and accept have in common. The exchange, on one TCP connection:
 *
 *   connector                              listener
 *      HELLO (ask, its endpoint)     ->
 *                                   <-     HELLO (answer, its endpoint; its queue pairs are up)
 *                                          or REJECT
 *      READY (its queue pairs are up) ->
 *
 * After that the socket stays as the connection's control channel.
 */
#ifndef HA_TRANSPORT_HANDSHAKE_H
#define HA_TRANSPORT_HANDSHAKE_H

#include "transport/comm.h"
#include "transport/frame_sock.h"
#include "transport/rail_island.h"

/* How long either end waits for a peer that has connected: its thread may be busy. */
#define HA_HANDSHAKE_PEER_MS 120000

/* What a step of a handshake comes to. */
enum ha_step {
	HA_STEP_NEXT,  /* go on with the next stage now */
	HA_STEP_AGAIN, /* nothing to do until the caller comes back */
	HA_STEP_RETRY, /* this attempt is lost, another may work */
	HA_STEP_FAIL,  /* no attempt will work; result is set */
};

/* Where the first path may begin. */
struct ha_first_path {
	struct ha_rail_choice wanted;	     /* by NCCL */
	uint8_t nqps;			     /* 0: as its port has them */
	const struct ha_wire_endpoint *peer; /* NULL: not known yet */
	struct ha_port *const *unreached;    /* ports that do not reach the peer, so many of them */
	unsigned n_unreached;
};

/*
 * A connection with its first path in INIT: on the port that is wanted, or with failover on the
 * best one that is up and reaches the peer. HA_ERR_REMOTE: none reaches it.
 */
ha_result_t ha_handshake_open(struct ha_instance *inst, bool is_send,
			      const struct ha_first_path *first,
			      struct ha_comm **out) HA_MUST_CHECK;

/* False: the kernel has no route to the peer's end. The routes of a port that is down say nothing.
 */
bool ha_handshake_reaches(struct ha_port *port, const struct ha_wire_endpoint *peer);

/* Our HELLO. secret: of the two in the handle, this end's. traffic_class: the communicator's, from
 * the connecting side; it decides for both. */
void ha_handshake_hello(const struct ha_comm *comm, uint64_t secret, uint8_t sl, uint8_t tc,
			struct ha_hello *out);

/*
 * Our HELLO in bytes, with its code where the job has a key; asked: as ha_auth_seal_hello. False:
 * the key cannot be used in this process.
 */
bool ha_handshake_say_hello(struct ha_comm *comm, const struct ha_hello *local,
			    const uint8_t *asked, uint8_t payload[HA_HELLO_BYTES]) HA_MUST_CHECK;

/* Why a peer that knows the handle's secret is refused all the same; NULL: it is not. */
const char *ha_handshake_mistrusts(const struct ha_instance *inst, const struct ha_hello *remote,
				   const uint8_t *asked, const uint8_t *payload);

/* Where our key is from, for people. Returns buf. */
const char *ha_handshake_key_text(const struct ha_instance *inst, char *buf, size_t size);

/* What both ends say on this socket from now on carries codes, if the job has a key. */
ha_result_t ha_handshake_authenticate(struct ha_comm *comm, struct ha_frame_sock *sock,
				      const struct ha_hello *local,
				      const struct ha_hello *remote) HA_MUST_CHECK;
/* The same on a socket that is dialled again, by the random numbers of the two REJOINs (of the
 * first one NULL). */
void ha_handshake_key_socket(const struct ha_auth *auth, enum ha_speaker self,
			     struct ha_frame_sock *sock, const uint8_t *sender_nonce,
			     const uint8_t *receiver_nonce);

/* Both HELLOs are known: agree, name the connection, take the path to RTS. */
ha_result_t ha_handshake_finish(struct ha_comm *comm, const struct ha_hello *local,
				const struct ha_hello *remote) HA_MUST_CHECK;

/* Our HELLO is said after ha_handshake_finish: what came of it. */
void ha_handshake_connected(const struct ha_comm *comm, struct ha_hello *local);

/* The established connection, announced in the log. */
ha_result_t ha_handshake_publish(struct ha_comm *comm, struct ha_frame_sock *sock) HA_MUST_CHECK;

#endif
