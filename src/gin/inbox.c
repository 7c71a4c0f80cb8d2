/* SPDX-License-Identifier: Apache-2.0 */
#include "gin/inbox.h"

#include <stddef.h>

static struct ha_gin_row *row_of(struct ha_gin_inbox *inbox, uint64_t number)
{
	return &inbox->rows[number % HA_GIN_WINDOW];
}

/* The row of an operation whose turn came, if it is in this state. */
static struct ha_gin_row *turned_row(struct ha_gin_inbox *inbox, uint64_t number,
				     enum ha_gin_row_state state)
{
	struct ha_gin_row *row = row_of(inbox, number);

	if (number < inbox->applied || number >= inbox->turned || row->state != state)
		return NULL;
	return row;
}

void ha_gin_inbox_init(struct ha_gin_inbox *inbox, struct ha_gin_applier *applier, unsigned int nic,
		       unsigned int room)
{
	*inbox = (struct ha_gin_inbox){.applier = applier, .nic = nic, .room = room};
}

/* A path that drains still brings what had arrived. */
enum ha_gin_arrival ha_gin_count(struct ha_gin_inbox *inbox, uint32_t epoch, uint64_t number,
				 struct ha_gin_word *word, uint64_t addend)
{
	if (epoch != inbox->epoch || inbox->end == HA_GIN_FENCED)
		return HA_GIN_STALE;
	if (number != inbox->counted || number - inbox->applied >= inbox->room)
		return HA_GIN_IMPOSSIBLE;
	*row_of(inbox, number) = (struct ha_gin_row){
	    .via = inbox->nic,
	    .when = ha_gin_came(inbox->applier, inbox->nic),
	    .word = word,
	    .addend = addend,
	};
	inbox->counted++;
	return HA_GIN_COUNTED;
}

/* ---- signals -------------------------------------------------------------------------------- */

static void mark_applied(struct ha_gin_inbox *inbox, struct ha_gin_row *row)
{
	row->state = HA_GIN_ROW_APPLIED;
	while (inbox->applied != inbox->turned &&
	       row_of(inbox, inbox->applied)->state == HA_GIN_ROW_APPLIED)
		inbox->applied++;
}

static void take_turns_alone(struct ha_gin_inbox *inbox)
{
	while (inbox->turned != inbox->counted && !row_of(inbox, inbox->turned)->addend) {
		inbox->turned++;
		mark_applied(inbox, row_of(inbox, inbox->turned - 1));
	}
}

/* Whether it was done need not be known. */
static void must_set(const struct ha_gin_inbox *inbox, const struct ha_gin_row *row,
		     struct ha_gin_task *task)
{
	task->what = ha_gin_begin_set(inbox->applier, row->when, &task->nic);
	task->addend = row->word->value + row->addend;
}

static void must_read(const struct ha_gin_inbox *inbox, struct ha_gin_task *task)
{
	if (ha_gin_may_read(inbox->applier, &task->nic))
		task->what = HA_GIN_READ;
}

/* The first operation that is not applied, if its add's loopback failed: a READ or SET of its word,
 * or a FLUSH before. */
static bool must_resolve(struct ha_gin_inbox *inbox, struct ha_gin_task *task)
{
	struct ha_gin_row *row = turned_row(inbox, inbox->applied, HA_GIN_ROW_OPEN);

	if (!row)
		return false;
	if (row->word->never_reset)
		must_set(inbox, row, task);
	else
		must_read(inbox, task);
	if (task->what == HA_GIN_READ || task->what == HA_GIN_SET) {
		row->state = HA_GIN_ROW_READING;
		task->number = inbox->applied;
		task->word = row->word;
	}
	return task->what != HA_GIN_WAIT;
}

struct ha_gin_task ha_gin_next(struct ha_gin_inbox *inbox)
{
	struct ha_gin_task task = {.what = HA_GIN_WAIT};
	struct ha_gin_row *row;

	if (must_resolve(inbox, &task))
		return task;
	task = (struct ha_gin_task){.what = HA_GIN_WAIT};
	take_turns_alone(inbox);
	if (inbox->turned == inbox->counted)
		return task;
	row = row_of(inbox, inbox->turned);
	task.what = ha_gin_begin_add(inbox->applier, row->word, row->via, row->when, &task.nic);
	if (task.what != HA_GIN_ADD)
		return task;
	row->state = HA_GIN_ROW_OPEN;
	task.number = inbox->turned++;
	task.word = row->word;
	task.addend = row->addend;
	return task;
}

bool ha_gin_added(struct ha_gin_inbox *inbox, uint64_t number, uint64_t before)
{
	struct ha_gin_row *row = turned_row(inbox, number, HA_GIN_ROW_OPEN);

	if (!row)
		return false;
	ha_gin_end_add(inbox->applier, row->word, row->when, before + row->addend);
	mark_applied(inbox, row);
	return true;
}

/* The add of `number` was not done, nor any later one: a NIC keeps its order. */
static void take_back_from(struct ha_gin_inbox *inbox, uint64_t number)
{
	for (uint64_t k = number; k != inbox->turned; k++) {
		struct ha_gin_row *row = row_of(inbox, k);

		if (row->state != HA_GIN_ROW_APPLIED)
			ha_gin_take_back(inbox->applier, row->word);
		row->state = HA_GIN_ROW_COUNTED;
	}
	inbox->turned = number;
}

bool ha_gin_was_read(struct ha_gin_inbox *inbox, uint64_t number, uint64_t value)
{
	struct ha_gin_row *row = turned_row(inbox, number, HA_GIN_ROW_READING);

	if (!row)
		return false;
	switch (ha_gin_judge(inbox->applier, row->word, row->addend, value)) {
	case HA_GIN_DONE:
		ha_gin_end_add(inbox->applier, row->word, row->when, value);
		mark_applied(inbox, row);
		break;
	case HA_GIN_NOT_DONE:
		take_back_from(inbox, number);
		break;
	case HA_GIN_UNKNOWN:
		break;
	}
	return true;
}

bool ha_gin_was_set(struct ha_gin_inbox *inbox, uint64_t number)
{
	struct ha_gin_row *row = turned_row(inbox, number, HA_GIN_ROW_READING);

	if (!row)
		return false;
	ha_gin_end_add(inbox->applier, row->word, row->when, row->word->value + row->addend);
	mark_applied(inbox, row);
	return true;
}

bool ha_gin_read_failed(struct ha_gin_inbox *inbox, uint64_t number)
{
	struct ha_gin_row *row = turned_row(inbox, number, HA_GIN_ROW_READING);

	if (row)
		row->state = HA_GIN_ROW_OPEN;
	return row != NULL;
}

bool ha_gin_tell(struct ha_gin_inbox *inbox, uint64_t *applied)
{
	if (inbox->end != HA_GIN_UP || inbox->told == inbox->applied)
		return false;
	*applied = inbox->told = inbox->applied;
	return true;
}

/* ---- failover ------------------------------------------------------------------------------- */

void ha_gin_inbox_fence(struct ha_gin_inbox *inbox)
{
	if (inbox->end == HA_GIN_UP)
		inbox->end = HA_GIN_DRAINING;
}

void ha_gin_inbox_fenced(struct ha_gin_inbox *inbox)
{
	if (inbox->end == HA_GIN_FENCED)
		return;
	inbox->end = HA_GIN_FENCED;
	ha_gin_owes_flush(inbox->applier, inbox->nic);
	inbox->verdict = (struct ha_gin_verdict){inbox->counted, inbox->applied};
}

bool ha_gin_inbox_verdict(const struct ha_gin_inbox *inbox, struct ha_gin_verdict *verdict)
{
	*verdict = inbox->verdict;
	return inbox->end == HA_GIN_FENCED;
}

bool ha_gin_inbox_resume(struct ha_gin_inbox *inbox, uint32_t epoch, unsigned int nic)
{
	if (inbox->end != HA_GIN_FENCED || epoch <= inbox->epoch)
		return false;
	inbox->end = HA_GIN_UP;
	inbox->epoch = epoch;
	inbox->nic = nic;
	inbox->told = inbox->verdict.applied;
	return true;
}
