/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What goes wrong. A fault is placed in one of two ways: at the N-th thing of its kind (packet,
 * work request, call of a verb), by a rule of the fabric that counts them; or at the N-th step.
 * Each says what it takes away, so that a run can be judged: is there still a path, was data
 * acknowledged that nobody has.
 */
#ifndef HA_TESTS_FAULT_FAULT_H
#define HA_TESTS_FAULT_FAULT_H

#include "world.h"

enum fault_loss {
	LOSS_NOTHING, /* the hardware repairs it, or both ends do */
	LOSS_BRIEF,   /* a path fails, or seems to; what it ran on works or comes back */
	LOSS_VERB,    /* brief, and an error is right while there is no connection yet */
	LOSS_REQUEST, /* brief; what follows a request to a second path is the request's own fault
		       */
	LOSS_REFUSED, /* brief; a bug when three paths in a row say so */
	LOSS_MEMORY,  /* brief: another NIC is taken, or the same asked again; an error is right if
		       * the   application was refused, or while there is no connection yet */
	LOSS_PORT,    /* the port at this host, for good; an error is right likewise */
	LOSS_OTHER_PORT, /* likewise, but the one beside it, which is in reserve */
	LOSS_UNHEARD,	 /* the port, and what was acknowledged may not be known to the receiver */
	LOSS_RAIL,	 /* the rail, for good */
	LOSS_RECEIVED,	 /* brief, and what was acknowledged may not be known to the receiver */
	LOSS_REFUSED_RECEIVE, /* likewise; a bug when three paths in a row say so */
	LOSS_DEVICE,	      /* the port, and what was acknowledged may not be placed */
	LOSS_BUG,     /* what only a bug can cause: an error is right, data may still come */
	LOSS_PROCESS, /* of a host */
	LOSS_ALL,     /* every path, for good */
};

enum fault_act {
	ACT_RULE,	/* `rule`, with $nth: fires by itself */
	ACT_NOW,	/* `rule`, with $now: at a step */
	ACT_DROP,	/* `rule` without $nth, from a step on: fires by what it takes away */
	ACT_FREEZE,	/* the host takes no turns for a while */
	ACT_SOCKET,	/* the bootstrap sockets of the host's connections are shut */
	ACT_DIE,	/* the host's process is gone: sockets shut, devices dead */
	ACT_GID,	/* the address in use is replaced by another */
	ACT_EVERYWHERE, /* `rule`, with $now: at a step, for each rail */
	ACT_RESTART,	/* as ACT_DIE, and another process of the host begins, with a connection */
	ACT_STRANGER,	/* somebody dials every listener, and says what is in `rule` */
	ACT_ORDER, /* the operator of the host asks for `rule`: no fault, but as sudden as one */
};

struct fault {
	const char *name;
	enum fault_act act;
	enum fault_loss loss;
	uint32_t host;
	const char *rule; /* $host, $rail: the host and its active rail; $peer: the other host;
			   * $connection: the number of the first */
	const char
	    *then; /* more rules, when the first has fired: $now, or $soon, a millisecond later */
	uint64_t lasts_ns; /* what it has begun, however soon it is taken back */
	bool frequent;	   /* fits so often that most places are alike: every 16th will do */
	bool first;	   /* one of those that a second fault is put after */
};

extern const struct fault faults[];
extern const unsigned nfaults;	      /* that every campaign has, */
extern const unsigned nfaults_walked; /* behind them those that only walks draw, */
extern const unsigned nfaults_named;  /* and those that have nothing to meet but behind another */

const struct fault *fault_find(const char *name);

/* Whether it is placed at a step (otherwise by counting). */
static inline bool fault_at_step(const struct fault *fault)
{
	return fault->act != ACT_RULE;
}

/* Whether a NIC has to be opened again after it, or is thought to. */
bool fault_ends_device(const struct fault *fault);

/* A fault of a run. */
struct injection {
	const struct fault *fault;
	uint64_t at; /* step since arming, or (from 0) number of what it fits */
	bool armed, fired;
	uint64_t armed_step, fired_step;
	int rule;      /* -1: none */
	uint32_t rail; /* that it means: the active one when the rule was made */
};

/* From here on it counts. */
void fault_arm(struct injection *injection, struct world *world);
/* Before each step. True when it has fired by now. */
bool fault_poll(struct injection *injection, struct world *world);
/* What has not fired does not fire any more. */
void fault_disarm(struct injection *injection);
/* Every port has the address again that it had before any was changed. */
void fault_take_back_addresses(struct world *world);

/* ---- what is left ---------------------------------------------------------------------------- */

struct damage {
	uint32_t lost_ports[WORLD_HOSTS]; /* bit per rail */
	bool acknowledged; /* what was acknowledged may not be with the receiver's software */
	bool unplaced;	   /* ... or not even in its memory */
	bool bug, memory;
	unsigned requests; /* statuses that may come to be the request's fault */
	unsigned refusals; /* those that three paths must give */
	bool at_set_up;	   /* an object was refused before there was a connection */
};

void damage_add(struct damage *damage, const struct injection *injection,
		const struct world *world);
/* Whether two hosts can still reach each other; all of them. */
bool damage_leaves_path_between(const struct damage *damage, const struct world *world, uint32_t a,
				uint32_t b);
bool damage_leaves_path(const struct damage *damage, const struct world *world);

#endif
