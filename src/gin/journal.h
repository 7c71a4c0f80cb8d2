/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sender's journal of a stream: which operations may be posted, which requests are complete,
 * and what is written again when a path has failed.
 *
 * Knows no network and no memory: the caller keeps what the operations are, by number modulo
 * HA_GIN_WINDOW, posts them and says what has happened. What cannot be is refused and changes
 * nothing. One thread at a time.
 */
#ifndef HA_GIN_JOURNAL_H
#define HA_GIN_JOURNAL_H

#include "gin/stream.h"

#include <stdbool.h>

enum ha_gin_resume {
	HA_GIN_RESUMED,
	HA_GIN_UNFENCED,    /* our end of the old path may still read memory: not yet */
	HA_GIN_LOST,	    /* a request is complete that the receiver has not: the stream's end */
	HA_GIN_CONTRADICTS, /* what the sender knows: a bug, or a lie */
};

struct ha_gin_journal {
	enum ha_gin_end end;
	bool is_e2e; /* requests complete when applied, not when acknowledged */
	uint32_t epoch;
	unsigned int room;     /* rows of the receiver, 1 to HA_GIN_WINDOW */
	unsigned int slots;    /* operations that are not complete, at most */
	uint64_t issued;       /* operations that were asked for */
	uint64_t posted;       /* ... of them written in this epoch, or settled before it */
	uint64_t acknowledged; /* ... by hardware, or by a verdict */
	uint64_t applied;      /* ... as far as the receiver has said */
};

/* Epoch 0, up; room as the receiver has it; HA_GIN_WINDOW slots. */
void ha_gin_journal_init(struct ha_gin_journal *journal, unsigned int room, bool is_e2e);

/* All requests below are complete: their memory is the program's again. */
static inline uint64_t ha_gin_completed(const struct ha_gin_journal *journal)
{
	return journal->is_e2e ? journal->applied : journal->acknowledged;
}

/* ---- what each operation passes, inline ----------------------------------------------------- */

/* One operation more is asked for, by who knows that fewer than there are slots are not complete;
 * its number. */
static inline uint64_t ha_gin_issue_in_room(struct ha_gin_journal *journal)
{
	return journal->issued++;
}

/* The same of who does not. False: there is no room. */
static inline bool ha_gin_issue(struct ha_gin_journal *journal, uint64_t *number)
{
	if (journal->issued - ha_gin_completed(journal) == journal->slots)
		return false;
	*number = ha_gin_issue_in_room(journal);
	return true;
}

/* Something was asked for that the receiver has room for, and is not posted. */
static inline bool ha_gin_may_post(const struct ha_gin_journal *journal)
{
	return journal->posted != journal->issued && journal->end == HA_GIN_UP &&
	       journal->posted < journal->applied + journal->room;
}

/* The operation of this number, the first that is asked for and not posted, is to be posted now,
 * and counts as posted whatever becomes of it. False: the receiver has no room, or the path is
 * being fenced. */
static inline bool ha_gin_post_this(struct ha_gin_journal *journal, uint64_t number)
{
	if (journal->end != HA_GIN_UP || number >= journal->applied + journal->room)
		return false;
	journal->posted = number + 1;
	return true;
}

/* The next one, if there is one. */
static inline bool ha_gin_post(struct ha_gin_journal *journal, uint64_t *number)
{
	*number = journal->posted;
	return journal->posted != journal->issued && ha_gin_post_this(journal, *number);
}

/* The hardware says that this operation, and so all before it, has arrived. False: it is of another
 * epoch, or comes after the fence was confirmed, and counts for nothing. A path that drains still
 * says what was done before. */
static inline bool ha_gin_acknowledge(struct ha_gin_journal *journal, uint32_t epoch,
				      uint64_t number)
{
	if (epoch != journal->epoch || journal->end == HA_GIN_FENCED || number >= journal->posted)
		return false;
	if (number >= journal->acknowledged)
		journal->acknowledged = number + 1;
	return true;
}

/* The receiver says how many operations it has applied. False: of another epoch, or impossible, or
 * the path is being fenced: its verdict will say it. */
static inline bool ha_gin_hear_applied(struct ha_gin_journal *journal, uint32_t epoch,
				       uint64_t applied)
{
	if (epoch != journal->epoch || journal->end != HA_GIN_UP || applied > journal->posted)
		return false;
	if (applied > journal->applied)
		journal->applied = applied;
	return true;
}

/* ---- failover ------------------------------------------------------------------------------- */

/* Our end's fence is ordered; is confirmed. */
void ha_gin_journal_fence(struct ha_gin_journal *journal);
void ha_gin_journal_fenced(struct ha_gin_journal *journal);

/* The receiver has fenced its end too, has said this, and the stream goes on in that epoch: what it
 * has not counted is posted again. */
enum ha_gin_resume ha_gin_journal_resume(struct ha_gin_journal *journal, uint32_t epoch,
					 const struct ha_gin_verdict *verdict);

#endif
