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
#define HA_ABSENT_MAX 64

struct ha_absent_key {
	const struct ha_port *port; /* ours */
	const uint8_t *gid;	    /* the remote one's, 16 bytes */
};

struct ha_absent {
	pthread_mutex_t lock;
	struct {
		const struct ha_port *port;
		uint8_t gid[16];
		uint64_t until_ns;
	} entries[HA_ABSENT_MAX];
};

void ha_absent_init(struct ha_absent *absent);
void ha_absent_destroy(struct ha_absent *absent);

/* All of it, any thread. */

/* It was asked for at began_ns, and the answer was no. One that came at once is not kept. */
void ha_absent_note(struct ha_absent *absent, const struct ha_absent_key *key, uint64_t began_ns,
		    uint64_t now_ns);

/* Whether that was so lately that asking again would only take time. */
bool ha_absent_lately(struct ha_absent *absent, const struct ha_absent_key *key, uint64_t now_ns);

/* Something has changed: all may be asked for again. */
void ha_absent_forget(struct ha_absent *absent);

/* The same for the same pair. */
uint64_t ha_absent_hash(const struct ha_absent_key *key);

#endif
