/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state machine of a failover: two tables, one per end, of what an event does in a state.
 * The handlers change state, start fences and note what is to be said; none waits. [T]
 */
#ifndef HA_FAILOVER_FSM_H
#define HA_FAILOVER_FSM_H

#include "failover/engine.h"

enum ha_on {
	HA_ON_FAILED,	      /* a path that carries failed, or is to be left */
	HA_ON_RAIL_FAILED,    /* one failed that carries beside the active one, and can be shed */
	HA_ON_STANDBY_FAILED, /* a path failed that does not carry */
	HA_ON_SUSPECT,	      /* messages, by kind */
	HA_ON_FENCE,
	HA_ON_FENCED,
	HA_ON_RESUME,
	HA_ON_RESUMED,
	HA_ON_REBUILD,
	HA_ON_REBUILT,
	HA_ON_REFUSED,
	HA_ON_STATE,
	HA_ON_ABORT,
	HA_ON_BYE,
	HA_ON_SHED,
	HA_ON_MENDED,
	HA_ON_DRAINED,	/* a fence was confirmed */
	HA_ON_PROVED,	/* a path in reserve works */
	HA_ON_DEADLINE, /* nothing has been left for too long */
	HA_ON_GIVE_UP,	/* an error was latched at this end */
	HA_ON_END
};

struct ha_fsm_event {
	enum ha_on on;
	const struct ha_message *m; /* of the messages */
	enum ha_reason reason;	    /* of FAILED */
	uint8_t path;		    /* of the three FAILED */
};

/*
 * One step. In a visit of the connection alone, and never from inside another step: that would be a
 * bug, and is latched as one.
 */
void ha_fsm_step(struct ha_comm *comm, const struct ha_fsm_event *o);

/* Receiver: a path was proved, or none can be at the moment. */
void ha_failover_try_resume(struct ha_comm *comm);

const char *ha_failover_state_name(unsigned state);

/* Whether the peer can know of such epochs and generations. */
bool ha_fsm_can_be(const struct ha_comm *comm, const struct ha_message *m);

/* The kind of message that this end says in its state until it is answered; 0: nothing. */
unsigned ha_fsm_statement(const struct ha_comm *comm);

static inline void ha_fsm_on(struct ha_comm *comm, enum ha_on on)
{
	ha_fsm_step(comm, &(struct ha_fsm_event){.on = on});
}

/* Notes something to be said, and has the progress thread say it. */
void ha_say(struct ha_comm *comm, uint32_t what);

#endif
