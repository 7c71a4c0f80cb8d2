/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One opening of a NIC: the verbs context, and what is made on it.
 *
 * A device that died is dead for ever in the context that was open then, whatever becomes of the
 * device: what was made there is only destroyed. If the device comes back it is opened again, as
 * another incarnation of the same NIC. So who makes verbs objects holds the incarnation that they
 * are made on, and goes by that one to the end; the NIC says which one is for new objects now.
 */
#ifndef HA_DEVICE_INCARNATION_H
#define HA_DEVICE_INCARNATION_H

#include "base/clock.h"
#include "base/result.h"
#include "device/give_back.h"

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct ha_mr_cache;
struct ha_nic;

struct ha_incarnation {
	/* Constant. */
	struct ha_nic *nic;
	unsigned number; /* 1: the first one */
	struct ibv_context *ctx;

	/* Since when it is known to be dead; 0: it is not. Written by the async-event reader, read
	 * by anyone. */
	_Atomic uint64_t died_ns;
	/* When a registration failed last, the device did not answer a question either: memory/'s.
	 */
	atomic_bool mute;

	/* The shared PD, made on first use, and its registrations: memory/'s, guarded by pd_lock.
	 */
	pthread_mutex_t pd_lock;
	struct ibv_pd *pd;
	int pd_users;
	struct ha_mr_cache *mr_cache; /* lives as long as the PD */

	/* What the device refused to take back: give_back.c's. */
	struct ha_refusals refusals;

	/* Who holds it: under the NIC's lock, as the next one. */
	unsigned users;
	struct ha_incarnation *older; /* that is not closed either */
};

/* A verb that failed, for a line that says so. */
struct ha_verb_failure {
	const char *verb;
	int error; /* errno */
};

/*
 * Opens a device: *out, which the NIC takes (ha_nic_replace) or ha_incarnation_close ends. Its
 * event descriptor does not block. attr: the device's. Waits for the device. On failure *why says
 * what failed, and nothing was logged.
 */
ha_result_t ha_incarnation_open(struct ha_nic *nic, struct ibv_device *device,
				struct ibv_device_attr *attr, struct ha_incarnation **out,
				struct ha_verb_failure *why) HA_MUST_CHECK;

/* Nobody holds it, and its PD is gone. Waits for the device. */
void ha_incarnation_close(struct ha_incarnation *incarnation);

/* From now on it is the one that new objects are made on; the one before stays until it is closed
 * (ha_nic_idle). Progress thread, or before there is one. */
void ha_nic_replace(struct ha_nic *nic, struct ha_incarnation *incarnation);

/*
 * The one for new objects, held: it stays as long as somebody holds it. Dead or not. Any thread;
 * never waits for the device.
 */
struct ha_incarnation *ha_nic_hold(struct ha_nic *nic);
/* Once more, by who holds it. */
void ha_incarnation_hold(struct ha_incarnation *incarnation);
void ha_incarnation_let_go(struct ha_incarnation *incarnation);

/* An older one that nobody holds: it is the caller's, who closes it. NULL: none. *left, if not
 * NULL: whether there are others, still held. Any thread. */
struct ha_incarnation *ha_nic_idle(struct ha_nic *nic, bool *left);

/* The driver says so, or its events have ended. True: that is news. Event reader. */
bool ha_incarnation_died(struct ha_incarnation *incarnation);

static inline bool ha_incarnation_is_dead(const struct ha_incarnation *incarnation)
{
	return atomic_load_explicit(&incarnation->died_ns, memory_order_relaxed) != 0;
}

/* What the kernel has left to destroy behind the event, and an older one altogether. */
#define HA_LEAVING_NS (20 * HA_NS_PER_MS)

/*
 * Whether the kernel has no such object any more, and the hardware has stopped: so it is when a
 * verb on it answered `error`, EIO or ENODEV, of a device that was taken away, and not before.
 * The kernel answers EIO to every command from the moment on in which it begins to take a device
 * away; queue pairs are destroyed after that, and the event that says so comes last, or before
 * Linux 5.7 in between: so HA_LEAVING_NS have to pass. Any thread.
 */
bool ha_incarnation_took_along(const struct ha_incarnation *incarnation, int error,
			       uint64_t now_ns);

#endif
