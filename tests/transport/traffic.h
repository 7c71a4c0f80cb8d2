/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two applications, one at each end of a connection, that exchange messages of all shapes whatever
 * becomes of the connection's paths. Each buffer is written over as soon as its request is
 * reported, on either end, as NCCL does, and must stay so: a message that is sent twice, late, or
 * after its request was complete is seen.
 */
#ifndef HA_TESTS_TRANSPORT_TRAFFIC_H
#define HA_TESTS_TRANSPORT_TRAFFIC_H

#include "harness.h"

#define MESSAGES 24
#define PART	 ((size_t)20480) /* of memory for each buffer */
#define USED	 0x5a		 /* what the application does with a buffer it has back */

struct shape {
	int n;
	size_t size[3];
};

struct message {
	const struct shape *shape;
	struct ha_request *recv, *send[3];
	int sent; /* sends that were accepted, last tag first */
	bool received, released[3];
};

struct traffic {
	struct pair *pair;
	struct message messages[MESSAGES];
	int count;	   /* messages of this run */
	int asked, offset; /* receives posted; first message that is not wholly sent */
	int received, released;
	uint32_t random;
};

/* `count` messages, MESSAGES at most. */
void traffic_init(struct traffic *t, struct pair *pair, int count, uint32_t seed);

/* The receiver's application posts its next receive, if it can. */
void ask(struct traffic *t);

/* A round of both applications: each call that NCCL could make, once. */
void applications(struct traffic *t);

/* Everything arrived, and the sender knows. */
bool all_done(const struct traffic *t);

/* Until everything is through; then every buffer is as its application left it. */
void finish(struct traffic *t);

/* 0 to sides - 1. */
uint32_t roll(struct traffic *t, uint32_t sides);

#endif
