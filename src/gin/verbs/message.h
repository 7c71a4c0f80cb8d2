/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What two ranks of a group say to each other beside the data: over an ordinary connection in each
 * direction, which keeps order, survives what can be survived, and loses nothing.
 *
 *   receiver                                   sender
 *     REGION, OFFER (epoch, verdict, address) ->
 *                                           <- ANSWER (epoch, address)
 *     READY (epoch)                           ->        it posts
 *                                           <- SUSPECT (epoch): its end has failed
 *
 * The receiver numbers the epochs. With an OFFER it says that its end of all earlier ones is
 * fenced, with an ANSWER the sender says so.
 */
#ifndef HA_GIN_VERBS_MESSAGE_H
#define HA_GIN_VERBS_MESSAGE_H

#include "gin/stream.h"
#include "gin/verbs/qp.h"

#include <stdbool.h>
#include <stdint.h>

/* Of this form of the messages. */
#define HA_GIN_MAGIC 0x316e6967u

enum ha_gin_say {
	HA_GIN_HELLO = 1, /* the first one of a connection: whose it is */
	HA_GIN_REGION,
	HA_GIN_OFFER,
	HA_GIN_ANSWER,
	HA_GIN_READY,
	HA_GIN_SUSPECT,
};

/* A path of the connection from the sender to the receiver, by what both ends call it. */
struct ha_gin_path_name {
	uint32_t slot, generation;
};

/* Both ends are little-endian machines of one job. */
struct ha_gin_message {
	uint32_t magic;
	uint32_t say; /* enum ha_gin_say */
	uint32_t epoch;
	uint32_t number; /* REGION: of the registration */
	union {
		struct {
			uint32_t rank, nranks;
		} hello;
		struct {
			uint64_t base, size; /* bytes */
			uint32_t rkey;	     /* on the NIC that the epoch's path ends at */
			uint32_t is_signals;
		} region;
		struct {
			struct ha_gin_address address;
			struct ha_gin_path_name path;
			struct ha_gin_verdict verdict; /* of the epoch before */
			uint64_t ring;
			uint32_t ring_rkey;
		} offer;
		struct {
			struct ha_gin_address address;
			uint64_t told;
			uint32_t told_rkey;
		} answer;
		uint8_t bytes[112];
	};
};

_Static_assert(sizeof(struct ha_gin_message) == 128, "the form of the messages");

#endif
