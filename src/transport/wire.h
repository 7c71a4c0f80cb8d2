/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything that travels outside the data path: the handle NCCL carries from listener to
 * connector, and the frames on the bootstrap socket. Layouts are fixed, little-endian and written
 * byte by byte; docs/protocol.md lists them.
 *
 * The decoders are pure functions of bytes that may come from anyone. They read nothing beyond
 * `len`, accept nothing they have not checked, and say by a result code which check failed.
 */
#ifndef HA_TRANSPORT_WIRE_H
#define HA_TRANSPORT_WIRE_H

#include "base/bytes.h"
#include "base/net.h"
#include "base/result.h"
#include "transport/labels.h"
#include "transport/secrets.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HA_WIRE_VERSION	    2 /* what we speak */
#define HA_WIRE_MIN_VERSION 2 /* the oldest we still understand */

#define HA_WIRE_MAX_QPS HA_IMM_MAX_PARTS
#define HA_WIRE_RAILS	4 /* of a bundle, at most */

/* Paths of a connection: an index is a slot that both ends agree on. */
#define HA_MAX_PATHS 4

/* Feature bits: both ends must have one for it to be used. */
#define HA_FEATURE_FAILOVER 0x1ull  /* control messages, standby paths */
#define HA_FEATURE_E2E	    0x2ull  /* the receiver reports what its software has */
#define HA_FEATURE_RAILS    0x4ull  /* rows name paths, messages are cut among them: stripe.h */
#define HA_FEATURE_SHED	    0x40ull /* one of these paths is lost without an epoch: rails.h */
#define HA_FEATURE_TURN	    0x80ull /* neither does the control rail's loss take one: turn.h */
#define HA_FEATURE_AUTH	    0x20ull /* what is said carries codes by the job's key: auth.h */

enum ha_wire_result {
	HA_WIRE_OK = 0,
	HA_WIRE_SHORT,	     /* fewer bytes than the layout needs */
	HA_WIRE_MAGIC,	     /* not ours */
	HA_WIRE_CHECKSUM,    /* ours once, damaged */
	HA_WIRE_UNSUPPORTED, /* a version we cannot speak */
	HA_WIRE_TOO_LONG,    /* a frame longer than any of ours */
	HA_WIRE_BAD_VALUE,   /* a field outside its range */
	HA_WIRE_FORGED,	     /* without the code of who has the key, or said before */
};
const char *ha_wire_strerror(enum ha_wire_result result);

/* ---- handle ------------------------------------------------------------------------------ */

#define HA_HANDLE_BYTES	     128
#define HA_HANDLE_DUAL_PATH  0x1 /* flag: the listener will offer a standby path */
#define HA_HANDLE_STATE_OFFS 120 /* the connector's own state lies from here on */

struct ha_handle {
	uint16_t version;
	uint16_t flags;
	struct ha_secrets secrets;
	union ha_sockaddr addr; /* AF_INET or AF_INET6 */
	uint8_t gid[16];	/* of rail 0 of a bundle; zero: none */
};

void ha_handle_encode(const struct ha_handle *in, uint8_t out[HA_HANDLE_BYTES]);
enum ha_wire_result ha_handle_decode(const uint8_t in[HA_HANDLE_BYTES], struct ha_handle *out);

/*
 * Where connect keeps its place between calls: an attempt number in the handle memory, 0 for none.
 * It is a number to look up and not a pointer, since a peer wrote these bytes first.
 */
uint64_t ha_handle_attempt(const uint8_t handle[HA_HANDLE_BYTES]);
void ha_handle_set_attempt(uint8_t handle[HA_HANDLE_BYTES], uint64_t attempt);

/* ---- frames ------------------------------------------------------------------------------ */

#define HA_FRAME_HEADER	     16
#define HA_FRAME_MAX_PAYLOAD 1024

enum ha_frame_type {
	HA_FRAME_HELLO = 1, /* connector first, then listener */
	HA_FRAME_READY,	    /* connector: my queue pairs are up */
	HA_FRAME_REJECT,    /* listener: no connection, and why */
	HA_FRAME_BYE,	    /* orderly close, with the count of what was delivered */
	HA_FRAME_ABORT,	    /* this end has latched an error */
	HA_FRAME_PORTS,	    /* the ports this end could use: failover/port_offer.h */
	HA_FRAME_CONTROL,   /* a message of the failover protocol: failover/message.h */
	HA_FRAME_REJOIN,    /* sender: a new socket for a connection; receiver: it is */
};

struct ha_frame_header {
	uint16_t type;
	uint32_t length; /* of the payload */
};

void ha_frame_header_encode(const struct ha_frame_header *in, uint8_t out[HA_FRAME_HEADER]);
enum ha_wire_result ha_frame_header_decode(const uint8_t *in, size_t len,
					   struct ha_frame_header *out);

/* ---- hello ------------------------------------------------------------------------------- */

struct ha_wire_qp {
	uint32_t qpn;
	uint32_t psn;
};

/* What two devices may agree on (ece.h). Not known: the end has none, or wants none. */
struct ha_wire_ece {
	bool known;
	uint32_t vendor_id, options, comp_mask;
};

/* One end of a path. Later frames offer further paths with the same layout. */
struct ha_wire_endpoint {
	uint8_t path;
	uint16_t generation;
	uint8_t port_num;
	uint8_t link_layer;
	uint8_t mtu; /* enum ibv_mtu */
	uint8_t sl;
	uint8_t traffic_class;
	uint8_t nqps;
	uint16_t lid;
	uint8_t gid[16];
	uint64_t guid; /* system image GUID */
	uint64_t max_message;
	uint64_t ring_addr;
	uint32_t ring_rkey;
	uint32_t ring_length;
	struct ha_wire_ece ece;
	char device[24];
	struct ha_wire_qp qps[HA_WIRE_MAX_QPS];
};

#define HA_NONCE_BYTES 16 /* random, and never used again */

/*
 * Where an end's process listens when the bootstrap socket breaks. Said in HELLO, so that there is
 * no moment at which a socket can break for good. A receiver is dialled again there, and the two
 * ends know each other by the secrets. A sender says none: all that its receiver asks is whether
 * its host refuses, as it does when the process is gone.
 */
struct ha_reconnect_at {
	struct ha_secrets secrets;
	union ha_sockaddr addr; /* AF_UNSPEC: nowhere. Of a peer family and port only are known */
};

struct ha_hello {
	uint64_t secret; /* of the handle: the connector's is `ask`, the listener's `answer` */
	uint16_t version;
	uint16_t min_version;
	uint64_t features;
	uint64_t connection_id; /* random, one per end, for logs and later for control channels */
	uint32_t pid;
	char host[32];
	uint16_t max_recvs;
	uint16_t window; /* depth of the rings */
	uint8_t nonce[HA_NONCE_BYTES];
	struct ha_reconnect_at reconnect_at;
	struct ha_wire_endpoint endpoint;
	uint8_t rail; /* of its bundle, that this end would have the connection on */
	/* Connector: queue pairs of a path on each of its rails; 0: as the first path has. */
	uint8_t rail_nqps[HA_WIRE_RAILS];
	uint8_t rail_mode; /* its bundle goes by, enum ha_rail_mode + 1; 0: none is said */
	uint8_t nrails;	   /* its bundle has; 0: none is said */
};

#define HA_ENDPOINT_BYTES 224
_Static_assert(HA_ENDPOINT_BYTES == 96 + HA_WIRE_MAX_QPS * 8, "queue pairs are what comes last");
#define HA_HELLO_NONCE_OFFS 320 /* from 303 on is room for one-sided connections */
#define HA_HELLO_AGAIN_OFFS 336 /* the secrets of a socket that is dialled again */
#define HA_HELLO_CODE_OFFS  352 /* auth.h; zero without a key */
#define HA_HELLO_BYTES	    384
_Static_assert(72 + HA_ENDPOINT_BYTES + 24 == HA_HELLO_NONCE_OFFS, "wire layout");
_Static_assert(HA_HELLO_NONCE_OFFS + HA_NONCE_BYTES == HA_HELLO_AGAIN_OFFS, "wire layout");
_Static_assert(HA_HELLO_AGAIN_OFFS + 16 == HA_HELLO_CODE_OFFS, "wire layout");

void ha_hello_encode(const struct ha_hello *in, uint8_t out[HA_HELLO_BYTES]);
/* A newer peer may append fields: bytes after the ones we know are ignored. */
enum ha_wire_result ha_hello_decode(const uint8_t *in, size_t len, struct ha_hello *out);

/* What two ends make of each other's hello. Symmetric: both compute the same. */
struct ha_agreement {
	uint16_t version;
	uint16_t window;
	uint16_t max_recvs;
	uint64_t features;
	bool downgraded; /* one end has more than is used */
};
enum ha_wire_result ha_hello_agree(const struct ha_hello *local, const struct ha_hello *remote,
				   struct ha_agreement *out);

/* ---- small frames ------------------------------------------------------------------------ */

enum ha_reject_reason {
	HA_REJECT_VERSION = 1,
	HA_REJECT_RESOURCES, /* the listener could not make its end */
	HA_REJECT_FABRIC,    /* the two ports cannot reach each other */
	HA_REJECT_ROUTE,     /* no port of the listener's has a route to the connector's */
	HA_REJECT_KEY,	     /* one end has a job key that the other does not have */
};

struct ha_reject {
	uint64_t secret; /* `answer`: nobody else can end an attempt to connect */
	uint16_t reason;
	uint16_t version;
	uint16_t min_version;
	uint8_t port_num; /* with the device: the one that was asked for */
	char device[24];
};

#define HA_REJECT_CODE_OFFS 40 /* auth.h; zero without a key */
#define HA_REJECT_BYTES	    72
void ha_reject_encode(const struct ha_reject *in, uint8_t out[HA_REJECT_BYTES]);
enum ha_wire_result ha_reject_decode(const uint8_t *in, size_t len, struct ha_reject *out);

struct ha_bye {
	uint64_t done;	    /* messages below this number are delivered (sent: completed) */
	uint64_t done_bits; /* and of those above, these */
};

/* No end waits for one that has given up. */
struct ha_abort {
	uint32_t epoch;
	uint16_t code; /* ha_result_t */
};

#define HA_ABORT_BYTES 8
void ha_abort_encode(const struct ha_abort *in, uint8_t out[HA_ABORT_BYTES]);
enum ha_wire_result ha_abort_decode(const uint8_t *in, size_t len, struct ha_abort *out);

#define HA_BYE_BYTES 16
void ha_bye_encode(const struct ha_bye *in, uint8_t out[HA_BYE_BYTES]);
enum ha_wire_result ha_bye_decode(const uint8_t *in, size_t len, struct ha_bye *out);

/*
 * The first frame on a socket that was dialled again, and what the receiver says to it. The sender
 * then says READY.
 */
struct ha_rejoin {
	uint64_t secret;	/* the sender's is `ask`, the receiver's `answer` */
	uint64_t connection_id; /* of the sender's end, as in its HELLO */
	uint8_t nonce[HA_NONCE_BYTES];
	struct ha_secrets next; /* the receiver's: for the next time, these were good for one */
};

#define HA_REJOIN_BYTES 48
void ha_rejoin_encode(const struct ha_rejoin *in, uint8_t out[HA_REJOIN_BYTES]);
enum ha_wire_result ha_rejoin_decode(const uint8_t *in, size_t len, struct ha_rejoin *out);

/* ---- pieces that several messages share ---- */

/* Where a socket listens, HA_ADDRESS_BYTES long. False: nowhere that one could dial. */
#define HA_ADDRESS_BYTES 24
void ha_put_address(struct ha_writer *w, const union ha_sockaddr *addr);
bool ha_get_address(struct ha_reader *r, union ha_sockaddr *addr);

/* One end of a path, HA_ENDPOINT_BYTES long. */
void ha_put_endpoint(struct ha_writer *w, const struct ha_wire_endpoint *e);
void ha_get_endpoint(struct ha_reader *r, struct ha_wire_endpoint *e);
bool ha_endpoint_valid(const struct ha_wire_endpoint *e);

#endif
