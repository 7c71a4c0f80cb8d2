/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The receiver's end of a stream: counts operations as they arrive, has their signals applied in
 * order, each once, and says what it has when a path has failed. A put alone only takes its turn.
 *
 * Knows no network and no memory: ha_gin_next() says what is to be done, the caller does it and
 * says what came of it. What cannot be is refused and changes nothing. One thread at a time, which
 * is that of the applier.
 */
#ifndef HA_GIN_INBOX_H
#define HA_GIN_INBOX_H

#include "gin/applier.h"
#include "gin/stream.h"

enum ha_gin_arrival {
	HA_GIN_COUNTED,
	HA_GIN_STALE,	   /* of an epoch that is over */
	HA_GIN_IMPOSSIBLE, /* out of order, or more than there is room for: the sender's fault */
};

struct ha_gin_row {
	enum ha_gin_row_state {
		HA_GIN_ROW_COUNTED,
		HA_GIN_ROW_OPEN,    /* its add is under way */
		HA_GIN_ROW_READING, /* its add's loopback failed, and its word is being read, or set
				     */
		HA_GIN_ROW_APPLIED,
	} state;
	unsigned int via; /* the NIC that it came through, */
	uint64_t when;	  /* and when, by the applier's clock */
	struct ha_gin_word *word;
	uint64_t addend; /* 0: a put alone */
};

struct ha_gin_inbox {
	struct ha_gin_applier *applier;
	enum ha_gin_end end;
	uint32_t epoch;
	unsigned int nic;  /* that the epoch's path ends at */
	unsigned int room; /* operations that are counted and not applied, at most */
	uint64_t counted;
	uint64_t turned;		       /* whose turn came: all below */
	uint64_t applied;		       /* ... and are applied */
	uint64_t told;			       /* the sender knows of */
	struct ha_gin_verdict verdict;	       /* of the path that was fenced last */
	struct ha_gin_row rows[HA_GIN_WINDOW]; /* by number modulo HA_GIN_WINDOW */
};

/* Epoch 0, up, over a path to `nic`; room from 1 to HA_GIN_WINDOW, as the sender has it. */
void ha_gin_inbox_init(struct ha_gin_inbox *inbox, struct ha_gin_applier *applier, unsigned int nic,
		       unsigned int room);

/* An operation has arrived over the path of an epoch, with a signal of `addend` to `word`, or with
 * 0 and NULL. */
enum ha_gin_arrival ha_gin_count(struct ha_gin_inbox *inbox, uint32_t epoch, uint64_t number,
				 struct ha_gin_word *word, uint64_t addend);

/* ---- signals -------------------------------------------------------------------------------- */

struct ha_gin_task {
	enum ha_gin_do what;
	unsigned int nic;
	uint64_t number; /* of ADD, READ and SET */
	struct ha_gin_word *word;
	uint64_t addend; /* of ADD; of SET the value */
};

/* What is to be done, which is under way as soon as it is returned; to be asked until it is WAIT,
 * and also where the stream has come to its end while an add is open, for which other streams wait.
 */
struct ha_gin_task ha_gin_next(struct ha_gin_inbox *inbox);

/* An ADD's completion has come, with the value before it; a READ's, with the value; a SET's. FLUSH
 * is ha_gin_flushed(). What fails is said by ha_gin_loopback_failed(), READ and SET also here. */
bool ha_gin_added(struct ha_gin_inbox *inbox, uint64_t number, uint64_t before);
bool ha_gin_was_read(struct ha_gin_inbox *inbox, uint64_t number, uint64_t value);
bool ha_gin_was_set(struct ha_gin_inbox *inbox, uint64_t number);
bool ha_gin_read_failed(struct ha_gin_inbox *inbox, uint64_t number);

/* What is to be written to the sender now. False: it knows, or the path is being fenced. */
bool ha_gin_tell(struct ha_gin_inbox *inbox, uint64_t *applied);

/* ---- failover ------------------------------------------------------------------------------- */

/* Our end's fence is ordered; is confirmed, and what had arrived by then is counted. */
void ha_gin_inbox_fence(struct ha_gin_inbox *inbox);
void ha_gin_inbox_fenced(struct ha_gin_inbox *inbox);

/* What the sender has to be told, the same as often as it is asked. False: our end is not fenced.
 */
bool ha_gin_inbox_verdict(const struct ha_gin_inbox *inbox, struct ha_gin_verdict *verdict);

/* The stream goes on in that epoch, over a path to that NIC. False: our end is not fenced, or the
 * epoch is not a later one. */
bool ha_gin_inbox_resume(struct ha_gin_inbox *inbox, uint32_t epoch, unsigned int nic);

#endif
