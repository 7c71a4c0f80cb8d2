/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Remote ports that were not found from one of ours a moment ago. On RoCE it takes the kernel a
 * second or more to say so, and each of hundreds of connections between the same hosts wants to
 * know: one asks, the others are told for a while.
 */
#ifndef HA_DEVICE_UNREACHABLE_H
#define HA_DEVICE_UNREACHABLE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct ha_port;

/* More than anybody has pairs of ports without a way between them at a time; the oldest goes. */
#define HA_UNREACHABLE_MAX 64

struct ha_unreachable_key {
	const struct ha_port *port; /* ours */
	const uint8_t *gid;	    /* the remote one's, 16 bytes */
};

struct ha_unreachable {
	pthread_mutex_t lock;
	struct {
		const struct ha_port *port;
		uint8_t gid[16];
		uint64_t until_ns;
	} entries[HA_UNREACHABLE_MAX];
};

void ha_unreachable_init(struct ha_unreachable *unreachable);
void ha_unreachable_destroy(struct ha_unreachable *unreachable);

/* All of it, any thread. */

/* It was asked for at began_ns, and the answer was no. One that came at once is not kept. */
void ha_unreachable_note(struct ha_unreachable *unreachable, const struct ha_unreachable_key *key,
			 uint64_t began_ns, uint64_t now_ns);

/* Whether that was so lately that asking again would only take time. */
bool ha_unreachable_lately(struct ha_unreachable *unreachable, const struct ha_unreachable_key *key,
			   uint64_t now_ns);

/* Something of this port has changed: what it did not find may be asked for again. A port of ours,
 * or a remote one's 16 bytes; the other is NULL. */
void ha_unreachable_forget(struct ha_unreachable *unreachable,
			   const struct ha_unreachable_key *key);

/* The same for the same pair. */
uint64_t ha_unreachable_hash(const struct ha_unreachable_key *key);

#endif
