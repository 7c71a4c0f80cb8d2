/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signals are added to this rank's words, and NICs flushed, by queue pairs that are connected to
 * themselves: a loopback on each NIC that a stream ends at. The applier (gin/applier.h) says what
 * may be done, and is told what came of it. For all receivers of a group; one thread.
 */
#ifndef HA_GIN_VERBS_ADDER_H
#define HA_GIN_VERBS_ADDER_H

#include "gin/applier.h"
#include "gin/inbox.h"
#include "gin/verbs/qp.h"

#include <stdbool.h>
#include <stdint.h>

#define HA_GIN_TASKS 64 /* of a loopback, under way at a time */

struct ha_mr;

/* What a loopback is asked for. */
struct ha_gin_errand {
	struct ha_gin_task task;
	struct ha_gin_inbox *inbox; /* NULL: a push */
	bool is_out;
};

enum ha_gin_loopback_state {
	HA_GIN_LOOPBACK_NONE, /* to be made when there is need */
	HA_GIN_LOOPBACK_WORKS,
	HA_GIN_LOOPBACK_FENCING,
};

struct ha_gin_loopback {
	enum ha_gin_loopback_state state;
	struct ha_gin_qp qp;
	struct ha_port *port; /* where it is made, and made again */
	bool is_wanted;	      /* a stream has ended at this NIC */
	unsigned int out;
	uint64_t since_ns; /* nothing has come back since, though something is out */
	uint64_t again_ns; /* it is not made again before */
	/* Pushes: asked for; on their way; and come back, or given up. */
	uint64_t pushes, pushing, pushed;
	uint32_t deaths;
	struct ha_gin_errand errands[HA_GIN_TASKS];
};

struct ha_gin_adder {
	struct ha_gin_applier applier;
	struct ha_device_set *set;
	/* Where a word lies; and some memory that a NIC has written to, to be read for a flush. */
	bool (*find)(void *arg, const struct ha_gin_word *word, uint64_t *addr, struct ha_mr **mr);
	void *arg;
	uint64_t *landing; /* HA_GIN_TASKS for each NIC */
	struct ha_mr *landing_mr;
	struct ha_gin_loopback *nics[HA_MAX_NICS]; /* NULL: none was ever wanted */
	uint64_t failed;			   /* loopbacks that did */
	uint64_t written;			   /* words, after that */
};

/* On failure it is closed. */
ha_result_t ha_gin_adder_open(struct ha_gin_adder *adder, struct ha_device_set *set,
			      struct ha_nic *nic, bool is_e2e) HA_MUST_CHECK;

/* Before a stream ends at that port. False: not now. */
bool ha_gin_adder_has(struct ha_gin_adder *adder, struct ha_port *port);

/* Does for an inbox what can be done now. */
void ha_gin_adder_serve(struct ha_gin_adder *adder, struct ha_gin_inbox *inbox);
/* Takes what has come back. */
void ha_gin_adder_poll(struct ha_gin_adder *adder);
/* What takes time: loopbacks that have failed, and NICs that have died. */
void ha_gin_adder_mend(struct ha_gin_adder *adder);

/* A read through a NIC, which pushes what the NIC has written before into memory. */
struct ha_gin_push {
	unsigned int nic;
	uint64_t number; /* of those through that NIC */
};

/* Asks for one of what the NIC wrote in that life. Where it has died since, or dies, it is given
 * up, which the applier counts as what is unproved. False: no memory, or nothing was ever wanted
 * there. */
bool ha_gin_adder_push(struct ha_gin_adder *adder, unsigned int nic, uint32_t life,
		       struct ha_gin_push *push);
/* How often the NIC has died. */
uint32_t ha_gin_adder_life(const struct ha_gin_adder *adder, unsigned int nic);
/* It has come back, or was given up. */
bool ha_gin_adder_has_pushed(const struct ha_gin_adder *adder, const struct ha_gin_push *push);

/* False: a device does not let go: to be closed again. One that is not open is fine. */
bool ha_gin_adder_close(struct ha_gin_adder *adder);

#endif
