/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two plugin instances, host 0 and host 1 of a stepped simverbs fabric, in one process and one
 * thread: what they say to each other is real, when it arrives is ours to decide.
 */
#ifndef HA_TESTS_TRANSPORT_HARNESS_H
#define HA_TESTS_TRANSPORT_HARNESS_H

#include "../unit/cmocka_all.h"

#include "../stepped_rules.h"
#include "../unit/captured_log.h"
#include "base/config.h"
#include "simverbs/simverbs.h"
#include "transport/comm.h"
#include "transport/shared.h"
#include "transport/transport.h"

#include <stdbool.h>
#include <stdint.h>

/* Fails with the whole log when it says no such thing. */
#define assert_logged(text)                                                                        \
	do {                                                                                       \
		if (!logged(text))                                                                 \
			fail_msg("not in the log: %s; it says:\n%s", (text), captured_log);        \
	} while (0)

#define MEM_SIZE (4u << 20)
#define CANARY	 0xa5

/* One end's buffers: a block that everything is sent from or received into. */
struct memory {
	uint8_t *bytes;
	size_t length;
	struct ha_mr *mr;
};

struct pair {
	struct ha_config config; /* both instances'; change it before pair_open */
	const struct ha_config
	    *peer_config; /* the receiver's instance has this one; NULL: it has not */
	struct sv_stepped_opts fabric;
	size_t memory;		     /* of each end, a multiple of MEM_SIZE; 0: that much */
	struct ha_instance *inst[2]; /* 0 sends, 1 receives */
	struct ha_listen *listen;
	int listen_dev, connect_dev; /* the primary ports of the receiver and of the sender */
	uint8_t handle[HA_HANDLE_MAX];
	const char *log;
	struct ha_comm *send, *recv;
	struct memory from, to;
};

/* Defaults, connection set-up over loopback. `log` is where the test captures it. */
void pair_defaults(struct pair *pair, const char *log);

static inline void pair_init(struct pair *pair)
{
	capture_log();
	pair_defaults(pair, captured_log);
}

/* Fabric and instances. */
void pair_open(struct pair *pair);
/* A connection between them and registered memory. */
void pair_connect(struct pair *pair);
/* The connection and its memory back. Ends may have been closed already. */
void pair_disconnect(struct pair *pair);
/* Everything back; asserts that verbs objects are gone. Ends may have been closed already. */
void pair_close(struct pair *pair);
/* All three. */
void pair_up(struct pair *pair);

/* Both instances go on until neither has anything to do now. False: neither had. */
bool pair_settle(struct pair *pair);
/* One event of the fabric and a round of both instances. False: nothing moved. */
bool pair_step(struct pair *pair);
/* So much virtual time passes. */
void pair_idle(struct pair *pair, unsigned ms);
/* An event of the fabric or a millisecond, whichever is sooner, since the next event may be far
 * away; then both instances go on. And so on for a while. */
void pair_advance(struct pair *pair);
void pair_pass(struct pair *pair, unsigned ms);

/* Tests `req`, stepping in between, until it is done or the result is not HA_OK. Fails the test
 * when nothing moves any more. */
ha_result_t pair_finish(struct pair *pair, struct ha_request *req, int *sizes);
/* Whether a request that must not fail is over, or there is none; then it is NULL. */
bool pair_is_done(struct ha_request **req);

/* A receive of n buffers, posted now. Buffer i lies at offset[i] of the receiver's memory. */
struct ha_request *post_recv(struct pair *pair, int n, const size_t *offset, const size_t *size,
			     const int *tag);
/* A send, stepping until it matches. */
struct ha_request *post_send(struct pair *pair, size_t offset, size_t size, int tag);
/* The same, one call: NULL when it does not match now. */
struct ha_request *try_send(struct pair *pair, size_t offset, size_t size, int tag);

/* A message of 300000 bytes that is posted at both ends, and no more. */
struct in_flight {
	struct ha_request *recv, *send;
};
struct in_flight pair_start(struct pair *pair);

/* `req` and every call on `comm` end with `code`, again and again. */
void pair_assert_latched(struct pair *pair, struct ha_comm *comm, struct ha_request *req,
			 ha_result_t code);

/* Both ends have a path in reserve that is proved and shares no port with the active one. */
bool pair_has_standby(const struct pair *pair);
/* Until they have: a few seconds of virtual time at most. */
void pair_wait_standby(struct pair *pair);

/* Fills with a pattern that differs for each seed and position. */
void fill(uint8_t *bytes, size_t size, uint32_t seed);
bool filled(const uint8_t *bytes, size_t size, uint32_t seed);

/* One message of n = 1, checked byte by byte, with canaries around it. */
void transfer(struct pair *pair, size_t size, uint32_t seed);

#endif
