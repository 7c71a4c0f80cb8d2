/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A message of the failover protocol. One layout for all kinds: whatever an end says, it says
 * everything it knows (epoch, watermarks, what is done), so that messages can be lost, repeated
 * and overtake each other. docs/protocol.md says who says what and when.
 */
#ifndef HA_FAILOVER_MESSAGE_H
#define HA_FAILOVER_MESSAGE_H

#include "transport/window.h"
#include "transport/wire.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(name, number). The numbers travel. */
#define HA_MESSAGES(X)                                                                             \
	X(SUSPECT, 1) /* sender: path.gen failed, I have stopped */                                \
	X(FENCE, 2)   /* receiver: a new epoch begins; fence what fenced_gen names */              \
	X(FENCED, 3)  /* sender: done so, and this is what I completed */                          \
	X(RESUME, 4)  /* receiver: go on with path.gen */                                          \
	X(RESUMED, 5) /* sender: going on */                                                       \
	X(REBUILD, 6) /* receiver: make your end of path.gen; here is mine */                      \
	X(REBUILT, 7) /* sender: made; here it is */                                               \
	X(REFUSED, 8) /* sender: cannot make it now */                                             \
	X(PING, 9)    /* either: are you there? */                                                 \
	X(PONG, 10)   /* either: yes */                                                            \
	X(STATE, 11)  /* either: my ports have changed */                                          \
	X(ABORT, 12)  /* either: I have latched an error */                                        \
	X(BYE, 13)    /* either: I have closed in good order */                                    \
	X(SHED, 14)   /* receiver: paths beside the active one are lost; fence them */             \
	X(MENDED, 15) /* sender: they are, and what was lost with them is posted again */

enum ha_message_kind {
#define HA_MESSAGE_ENUM(name, number) HA_MSG_##name = (number),
	HA_MESSAGES(HA_MESSAGE_ENUM)
#undef HA_MESSAGE_ENUM
	    HA_MSG_END
};

struct ha_message {
	uint8_t kind;	/* enum ha_message_kind */
	uint8_t reason; /* enum ha_reason, for the log */
	uint8_t path;	/* SUSPECT, RESUME, REBUILD, REBUILT, REFUSED: path.generation */
	uint8_t port;	/* REBUILD: which of its own ports the sender is to use */
	/* SUSPECT, in its place: 1: not the path alone, all that carries has stopped */
	uint8_t peer_port; /* REBUILD: which of its own ports the receiver uses */
	bool has_endpoint; /* REBUILD, REBUILT */
	uint16_t code;	   /* ABORT: ha_result_t */
	uint32_t epoch;	   /* the protocol's */
	uint32_t serial;   /* counts what this end said: a state of ports is only as new as this */
	uint32_t generation;	/* with path */
	uint16_t ports_up;	/* bit i: port i of this end's PORTS is up */
	uint16_t ports_drained; /* bit i: its operator wants port i left alone */
	uint32_t rto_ms;	/* soft timeout in use */
	/*
	 * Per path, the watermark up to which every generation is out of use. The sender's are
	 * facts: nothing of these is posted, nothing of these will arrive at its memory. The
	 * receiver's are orders: fence up to these.
	 */
	uint32_t fenced_gen[HA_MAX_PATHS];
	/*
	 * The sender's alone: up to here it has stopped and takes nothing that completes any more,
	 * and its hardware does not confirm it. It relies on the receiver's fence.
	 */
	uint32_t yielded_gen[HA_MAX_PATHS];
	struct ha_window window; /* receiver: done; sender: completed */
	/*
	 * SHED. Masks by path: of these, what fenced_gen names is lost; of these among them nothing
	 * arrives here any more, and so the next is final. By path and so by stripe, bit i: of
	 * message window.base + i, which is not done, this stripe is here.
	 */
	uint8_t lost, drained;
	uint64_t seen[HA_MAX_PATHS];
	uint32_t mended_gen[HA_MAX_PATHS]; /* MENDED, a watermark per path: up to here it is done */
	struct ha_wire_endpoint endpoint;
};

#define HA_SUSPECT_ALL 1

#define HA_MESSAGE_BYTES     88
#define HA_MESSAGE_SHED	     40 /* bytes that follow in SHED */
#define HA_MESSAGE_MENDED    (4 * HA_MAX_PATHS)
#define HA_MESSAGE_MAX_BYTES (HA_MESSAGE_BYTES + HA_ENDPOINT_BYTES)

/* "FENCE"; "unknown" for a number that is none of ours. */
const char *ha_message_name(unsigned kind);

/* Returns the bytes used, HA_MESSAGE_MAX_BYTES at most. */
size_t ha_message_encode(const struct ha_message *in, uint8_t out[HA_MESSAGE_MAX_BYTES]);

/*
 * A pure function of bytes that may come from anyone. HA_WIRE_CHECKSUM is normal for a mailbox that
 * is being written at this moment. A newer peer may append fields.
 */
enum ha_wire_result ha_message_decode(const uint8_t *in, size_t len, struct ha_message *out);

#endif
