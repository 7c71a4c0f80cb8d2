/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may add to a signal word, and when: the NICs of a receiver, for all its inboxes.
 *
 * A NIC adds by an atomic on a queue pair that is connected to itself (its loopback), which it does
 * after all that it received before. Between two NICs there is no such order, and their atomics
 * would lose one another's; so one NIC adds at a time, and the others are flushed first, by a read
 * on their loopback. A NIC that has died cannot be flushed: what it received and has not shown to
 * be in memory is unproved, which is counted, and end to end is an error.
 *
 * Knows no network and no memory: it says what is to be done, the caller does it and says what came
 * of it. All adds and flushes of a NIC go over one queue pair, in the order in which they were
 * asked for. Where no NIC lives everything waits; for how long is the caller's business. One thread
 * at a time.
 */
#ifndef HA_GIN_APPLIER_H
#define HA_GIN_APPLIER_H

#include <stdbool.h>
#include <stdint.h>

#define HA_GIN_NICS 32

/* A signal word of the receiver's memory; one for the whole process, however many streams add to
 * it. */
struct ha_gin_word {
	uint64_t value;	  /* after the last add; a kernel may have set it to zero since, */
	bool never_reset; /* ... but for one of which that was promised: constant */
	bool is_open;	  /* an add of it is under way */
};

/* Why signals are not applied any more. */
enum ha_gin_end_reason {
	HA_GIN_WORKS,
	HA_GIN_UNPROVED,    /* end to end, and a NIC died with what is not proved to be in memory */
	HA_GIN_CANNOT_TELL, /* whether an add was done that a loopback failed with */
};

enum ha_gin_do {
	HA_GIN_WAIT,  /* nothing, until something under way has come to an end */
	HA_GIN_FLUSH, /* read through this NIC's loopback */
	HA_GIN_ADD,   /* to the word, through this NIC's loopback */
	HA_GIN_READ,  /* the word through this NIC, to learn whether an add was done */
	HA_GIN_SET,   /* the word through this NIC to what it is after the add, done or not */
};

struct ha_gin_applier {
	bool is_e2e;
	enum ha_gin_end_reason over;
	/* Bitmaps of NICs. */
	uint32_t works;	    /* its loopback adds and flushes */
	uint32_t dead;	    /* with what it held */
	uint32_t used;	    /* something came through it, or it has added */
	uint32_t fenced;    /* its loopback failed, and can do nothing any more */
	uint32_t flushing;  /* a flush is under way */
	uint64_t clock;	    /* counts what happens at the NICs */
	uint64_t gave_up;   /* dead NICs with something unproved */
	unsigned int adder; /* the NIC that the open adds are of */
	unsigned int open;  /* how many */
	bool is_orphaned;   /* ... and the loopback that they went over can do nothing any more */
	struct ha_gin_nic { /* by the clock: */
		uint64_t last;	   /* what came through it last; 0: nothing did */
		uint64_t proved;   /* up to here, all that came is in memory */
		uint64_t owes;	   /* a flush is due of what was then, as long as it lives */
		uint64_t flushed;  /* up to here it was */
		uint64_t flush_to; /* up to here the flush under way goes */
	} nic[HA_GIN_NICS];
};

/* NICs 0 to nics - 1 live, and each has a loopback. */
void ha_gin_applier_init(struct ha_gin_applier *applier, unsigned int nics, bool is_e2e);

/* Something came through a NIC; when, by the clock. */
uint64_t ha_gin_came(struct ha_gin_applier *applier, unsigned int nic);
/* A path to it was fenced: half of an operation may have come, which will be written again over
 * another path, and may still be on its way to memory. */
void ha_gin_owes_flush(struct ha_gin_applier *applier, unsigned int nic);

/*
 * What comes next for a signal that came through NIC `via` at time `when` and is the next one of
 * its stream: WAIT, FLUSH or ADD, and of the latter two through which NIC. FLUSH and ADD are under
 * way as soon as they are returned.
 */
enum ha_gin_do ha_gin_begin_add(struct ha_gin_applier *applier, struct ha_gin_word *word,
				unsigned int via, uint64_t when, unsigned int *nic);

/* The add of a signal that came at `when` was done, and left this value; or was not, and will not
 * be. */
void ha_gin_end_add(struct ha_gin_applier *applier, struct ha_gin_word *word, uint64_t when,
		    uint64_t value);
void ha_gin_take_back(struct ha_gin_applier *applier, struct ha_gin_word *word);

/* A flush is complete. False: none is under way. */
bool ha_gin_flushed(struct ha_gin_applier *applier, unsigned int nic);

/* A NIC's loopback failed: it adds and flushes nothing before it has another one, and what it would
 * have to flush is waited for. */
void ha_gin_loopback_failed(struct ha_gin_applier *applier, unsigned int nic);
/* Then: the loopback is in ERR and drained, or destroyed. */
void ha_gin_loopback_fenced(struct ha_gin_applier *applier, unsigned int nic);
/* Then: there is another one. False: the old one is not fenced. */
bool ha_gin_loopback_made(struct ha_gin_applier *applier, unsigned int nic);
/* Something else that a NIC has written is not proved to be in memory: counted, and end to end the
 * applier's end. */
void ha_gin_unproved(struct ha_gin_applier *applier);
/* The NIC, its loopback included, is dead: what it was about to write is written or never will be.
 * Another loopback is of another incarnation. */
void ha_gin_nic_died(struct ha_gin_applier *applier, unsigned int nic);

/* Whether an add that a failed loopback left open can be looked into, and through which NIC. False:
 * it is not fenced, or there is no other. */
bool ha_gin_may_read(const struct ha_gin_applier *applier, unsigned int *nic);

/*
 * What comes next for an add that a failed loopback left open, of a word that is never set to zero,
 * of a signal that came at `when`: WAIT, also where its loopback has not failed; FLUSH of the NIC
 * that was to do it, for nothing says that it has; or SET, through which NIC. It may be done again.
 * FLUSH and SET are under way as soon as they are returned. Its end is ha_gin_end_add()'s.
 */
enum ha_gin_do ha_gin_begin_set(struct ha_gin_applier *applier, uint64_t when, unsigned int *nic);

enum ha_gin_outcome { HA_GIN_DONE, HA_GIN_NOT_DONE, HA_GIN_UNKNOWN };

/* What the value that was read says of an open add. UNKNOWN is the end of the applier. */
enum ha_gin_outcome ha_gin_judge(struct ha_gin_applier *applier, const struct ha_gin_word *word,
				 uint64_t addend, uint64_t now);

#endif
