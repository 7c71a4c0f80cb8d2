/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Journals, inboxes and an applier put together in memory, with paths that break and NICs that die
 * and come back at any step. Three senders signal the same words of one receiver, whose NICs keep
 * what they received for a while, add in two steps (read, write), and die with all that or after
 * having done it. A kernel uses what a signal tells it of, and fills it again; now and then it sets
 * a word to zero.
 *
 * What must never be has the names of the model, tests/model/oneside.pml. All that happens is a
 * function of a run's number.
 */
#include "../unit/cmocka_all.h"

#include "../seeded_random.h"

#include "gin/inbox.h"
#include "gin/journal.h"

#include <stdlib.h>
#include <string.h>

#define STREAMS	 3
#define NICS	 3
#define WORDS	 2
#define OPS	 20
#define ROOM	 4
#define EPOCHS	 32
#define JOBS	 32
#define STEPS	 40000
#define POISON	 0xdead
#define CONSUMED 0xc0de

struct path {
	unsigned int nic;
	bool is_broken; /* nothing new passes */
	bool is_dead;	/* its NIC died */
	bool s_fenced, r_fenced;
	uint64_t posted, passes, arrived, polled; /* all numbers below are */
	uint64_t read[OPS]; /* what the sender's NIC had read when it was fenced */
};

struct record {
	uint64_t number, addend;
	unsigned int word;
};

struct stream {
	struct ha_gin_journal journal;
	struct ha_gin_inbox inbox;
	struct path path[EPOCHS];
	uint64_t source[OPS], target[OPS];
	struct record record[OPS], ring[ROOM];
	uint64_t released;     /* requests whose memory is the program's again */
	uint64_t told;	       /* a kernel knows that all below is there */
	uint64_t added;	       /* no signal below is to be added any more */
	uint64_t lost_at[OPS]; /* its data died with a NIC: how often the applier had given up then,
				  + 1 */
	bool is_alarmed, is_said, is_over;
	struct ha_gin_verdict said;
	struct count {
		bool is_there;
		uint32_t epoch;
		uint64_t applied;
	} net, memory;
};

struct job {
	struct ha_gin_task task;
	unsigned int stream;
	uint64_t value;
};

struct nic {
	bool is_dead;
	/* Of its loopback. */
	bool is_broken, is_gone, is_known, is_fenced;
	uint64_t accepted;		      /* jobs that it got while it lived */
	uint64_t posted, begun, done, polled; /* jobs, all numbers below are */
	struct job job[JOBS];
	unsigned int held;
	struct held {
		unsigned int stream;
		uint64_t number, data;
	} hold[2 * STREAMS * OPS];
};

static struct world {
	struct ha_gin_applier applier;
	struct ha_gin_word words[WORDS];
	uint64_t value[WORDS], taken[WORDS], sum[WORDS];
	struct stream stream[STREAMS];
	struct nic nic[NICS];
	unsigned int faults, resets;
	bool is_e2e;
	uint64_t chance;
} w;

/* How often in all runs. */
static struct {
	unsigned int ended_well, replays, breaks, broken, deaths, backs, losses, reads, taken_back,
	    gave_up, flushes, resets, sets, over[3];
	/* Puts whose acknowledgement was lost, and whose memory the kernel had filled anew. */
	unsigned int refilled;
} seen;

static uint64_t random_below(uint64_t n)
{
	w.chance = mix(w.chance);
	return w.chance % n;
}

static uint64_t data_of(unsigned int s, uint64_t number)
{
	return 1000 * (s + 1) + number;
}

static struct path *path_of(struct stream *stream, uint32_t epoch)
{
	assert_true(epoch < EPOCHS);
	return &stream->path[epoch];
}

static void must(bool holds, const char *property)
{
	if (!holds)
		fail_msg("%s", property);
}

/* ---- memory --------------------------------------------------------------------------------- */

static bool is_excused(const struct stream *stream, uint64_t number)
{
	return stream->lost_at[number] && w.applier.gave_up >= stream->lost_at[number];
}

static void place(struct nic *nic)
{
	for (unsigned int i = 0; i < nic->held; i++) {
		struct held *held = &nic->hold[i];
		struct stream *stream = &w.stream[held->stream];

		must(held->number >= stream->told || is_excused(stream, held->number),
		     "late_write");
		stream->target[held->number] = held->data;
	}
	nic->held = 0;
}

static void kernel_is_told(unsigned int s, uint64_t number)
{
	struct stream *stream = &w.stream[s];

	for (; stream->told <= number; stream->told++) {
		must(stream->target[stream->told] == data_of(s, stream->told) ||
			 is_excused(stream, stream->told),
		     "torn");
		stream->target[stream->told] = CONSUMED;
	}
}

static void release(unsigned int s)
{
	struct stream *stream = &w.stream[s];
	uint64_t completed = ha_gin_completed(&stream->journal);

	if (stream->released == completed)
		return;
	for (uint32_t e = 0; e < stream->journal.epoch; e++)
		must(stream->path[e].s_fenced || !stream->path[e].posted, "early_release");
	must(!w.is_e2e || completed <= stream->inbox.applied, "early_complete");
	for (; stream->released < completed; stream->released++)
		stream->source[stream->released] = POISON;
}

/* ---- the sender ----------------------------------------------------------------------------- */

static void asks(unsigned int s)
{
	struct stream *stream = &w.stream[s];
	uint64_t k;

	if (stream->journal.issued == OPS || !ha_gin_issue(&stream->journal, &k))
		return;
	stream->source[k] = data_of(s, k);
	stream->record[k] = (struct record){k, 0, (unsigned int)random_below(WORDS)};
	if (random_below(3)) {
		stream->record[k].addend = 1 + random_below(5);
		w.sum[stream->record[k].word] += stream->record[k].addend;
	}
}

static void posts(unsigned int s)
{
	struct stream *stream = &w.stream[s];
	struct path *path = path_of(stream, stream->journal.epoch);
	uint64_t k;

	if (!ha_gin_post(&stream->journal, &k))
		return;
	must(k == path->posted, "order of posts");
	must(k >= stream->released, "early_release");
	path->posted++;
	if (!path->is_broken && !path->is_dead)
		path->passes = path->posted;
}

static void hears(unsigned int s)
{
	struct stream *stream = &w.stream[s];
	struct path *path = path_of(stream, stream->journal.epoch);

	if (!path->s_fenced && path->arrived > stream->journal.acknowledged && random_below(2))
		ha_gin_acknowledge(&stream->journal, stream->journal.epoch,
				   stream->journal.acknowledged);
	if (stream->memory.is_there)
		ha_gin_hear_applied(&stream->journal, stream->memory.epoch, stream->memory.applied);
}

/* ---- the fabric ----------------------------------------------------------------------------- */

static void hold(const struct stream *stream, const struct path *path, uint64_t k)
{
	struct nic *nic = &w.nic[path->nic];

	nic->hold[nic->held++] = (struct held){(unsigned int)(stream - w.stream), k,
					       path->s_fenced ? path->read[k] : stream->source[k]};
}

static void delivers(unsigned int s)
{
	struct stream *stream = &w.stream[s];
	struct path *path = &stream->path[random_below(stream->journal.epoch + 1)];
	uint64_t k = path->arrived;

	if (stream->net.is_there && random_below(2)) {
		stream->memory = stream->net;
		stream->net.is_there = false;
	}
	if (path->r_fenced || path->is_dead || k == path->passes)
		return;
	path->arrived++;
	stream->ring[k % ROOM] = stream->record[k];
	hold(stream, path, k);
}

static void break_path(struct stream *stream, struct path *path)
{
	path->is_broken = true;
	path->passes = path->arrived + random_below(path->passes - path->arrived + 1);
	if (random_below(2))
		stream->net.is_there = false;
}

/* Done already, or not. */
static void nic_sets(const struct job *job)
{
	struct stream *stream = &w.stream[job->stream];
	const uint64_t k = job->task.number;
	uint64_t *value = &w.value[job->task.word - w.words];

	must(job->task.addend >= *value, "duplicate");
	must(k >= stream->added || job->task.addend == *value, "duplicate");
	*value = job->task.addend;
	if (k < stream->added)
		return;
	for (uint64_t j = stream->added; j < k; j++)
		must(!stream->record[j].addend, "disorder");
	stream->added = k + 1;
	kernel_is_told(job->stream, k);
}

static void nic_works(unsigned int n)
{
	struct nic *nic = &w.nic[n];
	struct job *job = &nic->job[nic->done % JOBS];

	if (!nic->is_dead && nic->held && !random_below(60))
		place(nic);
	if (nic->is_fenced || nic->done == nic->accepted)
		return;
	if (nic->begun == nic->done) {
		if (nic->is_gone)
			return;
		place(nic);
		if (job->task.what != HA_GIN_FLUSH)
			job->value = w.value[job->task.word - w.words];
		nic->begun++;
		return;
	}
	if (job->task.what == HA_GIN_SET)
		nic_sets(job);
	if (job->task.what == HA_GIN_ADD) {
		struct stream *stream = &w.stream[job->stream];
		uint64_t k = job->task.number;

		must(k >= stream->added, "duplicate");
		for (uint64_t j = stream->added; j < k; j++)
			must(!stream->record[j].addend, "disorder");
		stream->added = k + 1;
		kernel_is_told(job->stream, k);
		w.value[job->task.word - w.words] = job->value + job->task.addend;
	}
	nic->done++;
}

static void kernel_resets(void)
{
	unsigned int word = (unsigned int)random_below(WORDS);

	if (!w.resets || !w.value[word])
		return;
	for (unsigned int n = 0; n < NICS; n++)
		if (w.nic[n].begun != w.nic[n].done)
			return;
	w.resets--;
	seen.resets++;
	w.taken[word] += w.value[word];
	w.value[word] = 0;
}

/* ---- the receiver --------------------------------------------------------------------------- */

static void poll_one(struct stream *stream, uint32_t epoch)
{
	struct path *path = &stream->path[epoch];
	uint64_t k = path->polled;
	const struct record *record = &stream->ring[k % ROOM];
	enum ha_gin_arrival arrival =
	    ha_gin_count(&stream->inbox, epoch, k, &w.words[record->word], record->addend);

	must(arrival != HA_GIN_IMPOSSIBLE, "overwritten");
	must(arrival == HA_GIN_STALE || record->number == k, "overwritten");
	path->polled++;
}

static void polls(unsigned int s)
{
	struct stream *stream = &w.stream[s];
	uint32_t epoch = (uint32_t)random_below(stream->journal.epoch + 1);
	struct path *path = &stream->path[epoch];

	if (!path->r_fenced && !path->is_dead && path->polled < path->arrived)
		poll_one(stream, epoch);
}

static void applies(unsigned int s)
{
	struct stream *stream = &w.stream[s];
	uint64_t gave_up = w.applier.gave_up, applied;
	struct ha_gin_task task = ha_gin_next(&stream->inbox);
	struct path *path = path_of(stream, stream->inbox.epoch);

	seen.gave_up += (unsigned int)(w.applier.gave_up - gave_up);
	if (task.what != HA_GIN_WAIT) {
		struct nic *nic = &w.nic[task.nic];

		assert_true(nic->posted - nic->polled < JOBS);
		nic->job[nic->posted++ % JOBS] = (struct job){.task = task, .stream = s};
		if (!nic->is_broken)
			nic->accepted = nic->posted;
	}
	if (!stream->net.is_there && ha_gin_tell(&stream->inbox, &applied) && !path->is_broken &&
	    !path->is_dead)
		stream->net = (struct count){true, stream->inbox.epoch, applied};
}

/* What was read cannot be judged only if it may be either way. */
static void cannot_tell(const struct ha_gin_word *word, uint64_t addend, uint64_t now)
{
	must(now == 0 || (now == word->value && now == addend), "false_latch");
}

static void takes_completion(unsigned int n)
{
	struct nic *nic = &w.nic[n];
	struct job *job = &nic->job[nic->polled % JOBS];
	struct ha_gin_inbox *inbox = &w.stream[job->stream].inbox;
	uint64_t turned;

	if (nic->polled == nic->done || nic->is_fenced || (nic->is_broken && random_below(8)))
		return;
	nic->polled++;
	switch (job->task.what) {
	case HA_GIN_ADD:
		assert_true(ha_gin_added(inbox, job->task.number, job->value));
		break;
	case HA_GIN_READ:
		seen.reads++;
		turned = inbox->turned;
		assert_true(ha_gin_was_read(inbox, job->task.number, job->value));
		seen.taken_back += inbox->turned < turned;
		if (w.applier.over == HA_GIN_CANNOT_TELL)
			cannot_tell(job->task.word,
				    w.stream[job->stream].record[job->task.number].addend,
				    job->value);
		break;
	case HA_GIN_SET:
		seen.sets++;
		assert_true(ha_gin_was_set(inbox, job->task.number));
		break;
	case HA_GIN_FLUSH:
		seen.flushes += ha_gin_flushed(&w.applier, n);
		break;
	case HA_GIN_WAIT:
		break;
	}
}

/* ---- failures ------------------------------------------------------------------------------- */

static void loopback_breaks(struct nic *nic)
{
	nic->is_broken = true;
	nic->is_gone = random_below(2);
	seen.broken++;
}

static void nic_dies(struct nic *nic)
{
	loopback_breaks(nic);
	nic->is_dead = true;
	nic->is_known = false;
	if (!nic->is_gone)
		place(nic);
	for (unsigned int i = 0; i < nic->held; i++) {
		struct held *held = &nic->hold[i];
		struct stream *stream = &w.stream[held->stream];

		if (held->number < stream->inbox.counted) /* or it is written again */
			stream->lost_at[held->number] = w.applier.gave_up + 1;
	}
	nic->held = 0;
	for (unsigned int s = 0; s < STREAMS; s++)
		for (uint32_t e = 0; e <= w.stream[s].journal.epoch; e++)
			if (&w.nic[w.stream[s].path[e].nic] == nic)
				w.stream[s].path[e].is_dead = true;
	seen.deaths++;
}

static void fails(void)
{
	struct stream *stream = &w.stream[random_below(STREAMS)];
	struct path *path = path_of(stream, stream->inbox.epoch);
	struct nic *nic = &w.nic[random_below(NICS)];

	if (!w.faults || random_below(40))
		return;
	w.faults--;
	switch (random_below(4)) {
	case 0:
		break_path(stream, path);
		seen.breaks++;
		break;
	case 1:
		if (!nic->is_dead)
			nic_dies(nic);
		break;
	case 2:
		if (!nic->is_broken)
			loopback_breaks(nic);
		break;
	default: /* a false alarm, or an operator */
		stream->is_alarmed = true;
	}
}

/* What becomes of a loopback that failed, with its NIC or alone: somebody notices, it is fenced,
 * another one comes. */
static void nic_goes_on(unsigned int n)
{
	struct nic *nic = &w.nic[n];
	uint64_t gave_up = w.applier.gave_up;

	if (!nic->is_broken || random_below(6))
		return;
	if (!nic->is_known) {
		nic->is_known = true;
		if (nic->is_dead)
			ha_gin_nic_died(&w.applier, n);
		else
			ha_gin_loopback_failed(&w.applier, n);
	} else if (!nic->is_fenced && nic->begun == nic->done) {
		nic->is_fenced = true;
		ha_gin_loopback_fenced(&w.applier, n);
		for (; nic->polled < nic->posted; nic->polled++) {
			struct job *job = &nic->job[nic->polled % JOBS];

			if (job->task.what == HA_GIN_READ || job->task.what == HA_GIN_SET)
				assert_true(ha_gin_read_failed(&w.stream[job->stream].inbox,
							       job->task.number));
		}
	} else if (nic->is_fenced && !random_below(4) && ha_gin_loopback_made(&w.applier, n)) {
		seen.gave_up += (unsigned int)(w.applier.gave_up - gave_up);
		seen.backs += nic->is_dead;
		nic->is_dead = nic->is_broken = nic->is_gone = nic->is_known = nic->is_fenced =
		    false;
		nic->accepted = nic->posted = nic->begun = nic->done = nic->polled = 0;
	}
}

static void is_fenced_at_the_sender(struct stream *stream)
{
	struct path *path = path_of(stream, stream->journal.epoch);

	if (stream->journal.end != HA_GIN_DRAINING)
		return;
	if (!path->is_broken)
		break_path(stream, path);
	memcpy(path->read, stream->source, sizeof(path->read));
	path->s_fenced = true;
	ha_gin_journal_fenced(&stream->journal);
}

static void is_fenced_at_the_receiver(struct stream *stream)
{
	struct path *path = path_of(stream, stream->inbox.epoch);

	if (stream->inbox.end != HA_GIN_DRAINING)
		return;
	while (!path->is_dead && path->polled < path->arrived)
		poll_one(stream, stream->inbox.epoch);
	if (!path->is_dead && path->arrived < path->passes && random_below(2))
		hold(stream, path, path->arrived); /* its data came, and its notice did not */
	path->r_fenced = true;
	ha_gin_inbox_fenced(&stream->inbox);
}

static bool choose_nic(unsigned int *n)
{
	*n = (unsigned int)random_below(NICS);
	for (unsigned int i = 0; i < NICS; i++, *n = (*n + 1) % NICS)
		if (w.applier.works >> *n & 1)
			return true;
	return false;
}

static void goes_on(struct stream *stream)
{
	uint32_t epoch = stream->journal.epoch + 1;
	const uint64_t posted = stream->journal.posted;
	const uint64_t acknowledged = stream->journal.acknowledged;
	struct path *old = path_of(stream, stream->journal.epoch);
	unsigned int n;

	if (!stream->is_said)
		stream->is_said = ha_gin_inbox_verdict(&stream->inbox, &stream->said);
	if (!stream->is_said)
		return;
	if (!choose_nic(&n))
		return;
	switch (ha_gin_journal_resume(&stream->journal, epoch, &stream->said)) {
	case HA_GIN_UNFENCED:
		return;
	case HA_GIN_LOST:
		must(old->is_dead && old->polled < old->arrived, "false_loss");
		seen.losses++;
		stream->is_over = true;
		return;
	case HA_GIN_CONTRADICTS:
		fail_msg("a verdict that cannot be");
		return;
	case HA_GIN_RESUMED:
		break;
	}
	seen.replays += stream->said.counted < posted;
	if (stream->told > acknowledged)
		seen.refilled += (unsigned int)(stream->told - acknowledged);
	ha_gin_inbox_resume(&stream->inbox, epoch, n);
	*path_of(stream, epoch) = (struct path){
	    .nic = n,
	    .is_dead = w.nic[n].is_dead,
	    .posted = stream->said.counted,
	    .passes = stream->said.counted,
	    .arrived = stream->said.counted,
	    .polled = stream->said.counted,
	};
	stream->is_said = stream->is_alarmed = false;
	stream->net.is_there = false;
}

/* Each end notices, fences and says what it has, at any step. */
static void fails_over(unsigned int s)
{
	struct stream *stream = &w.stream[s];
	struct path *path = path_of(stream, stream->journal.epoch);

	if (path->is_broken || path->is_dead || stream->is_alarmed) {
		if (!random_below(4))
			ha_gin_journal_fence(&stream->journal);
		if (!random_below(4))
			ha_gin_inbox_fence(&stream->inbox);
	}
	if (!random_below(4))
		is_fenced_at_the_sender(stream);
	if (!random_below(4))
		is_fenced_at_the_receiver(stream);
	if (!random_below(2))
		goes_on(stream);
}

/* ---- runs ----------------------------------------------------------------------------------- */

static bool is_finished(const struct stream *stream)
{
	return stream->is_over ||
	       (ha_gin_completed(&stream->journal) == OPS && stream->inbox.applied == OPS);
}

static bool all_finished(void)
{
	for (unsigned int s = 0; s < STREAMS; s++)
		if (!is_finished(&w.stream[s]))
			return false;
	return true;
}

static void step(void)
{
	static void (*const of_stream[])(unsigned int) = {
	    asks, posts, hears, delivers, delivers, polls, polls, applies, applies, fails_over};
	unsigned int s = (unsigned int)random_below(STREAMS), n = (unsigned int)random_below(NICS);

	if (w.stream[s].is_over) {
		applies(s);
	} else {
		of_stream[random_below(sizeof(of_stream) / sizeof(of_stream[0]))](s);
		release(s);
	}
	nic_works(n);
	takes_completion(n);
	nic_goes_on(n);
	fails();
	if (!random_below(50))
		kernel_resets();
}

static void run_of(uint64_t number, unsigned int faults, bool is_e2e, bool never_resets)
{
	bool is_over = false;

	memset(&w, 0, sizeof(w));
	for (unsigned int i = 0; i < WORDS; i++)
		w.words[i].never_reset = never_resets;
	w.chance = number * 2 + is_e2e;
	w.faults = faults;
	w.resets = number % 2 && !never_resets ? 3 : 0;
	w.is_e2e = is_e2e;
	ha_gin_applier_init(&w.applier, NICS, is_e2e);
	for (unsigned int s = 0; s < STREAMS; s++) {
		struct stream *stream = &w.stream[s];

		ha_gin_journal_init(&stream->journal, ROOM, is_e2e);
		stream->path[0].nic = (unsigned int)random_below(NICS);
		ha_gin_inbox_init(&stream->inbox, &w.applier, stream->path[0].nic, ROOM);
	}
	for (unsigned int i = 0; !all_finished() && w.applier.over == HA_GIN_WORKS; i++) {
		if (i == STEPS)
			fail_msg("stuck: run %u", (unsigned int)number);
		step();
	}
	seen.over[w.applier.over]++;
	assert_true(w.applier.over != HA_GIN_UNPROVED || is_e2e);
	for (unsigned int s = 0; s < STREAMS; s++)
		is_over |= w.stream[s].is_over;
	if (is_over || w.applier.over != HA_GIN_WORKS)
		return;
	seen.ended_well++;
	for (unsigned int i = 0; i < WORDS; i++)
		must(w.value[i] + w.taken[i] == w.sum[i], "lost_signal");
}

static void run(uint64_t number, unsigned int faults, bool is_e2e)
{
	run_of(number, faults, is_e2e, false);
}

static void without_failures_every_signal_is_added_once(void **state)
{
	(void)state;
	memset(&seen, 0, sizeof(seen));
	for (unsigned int i = 0; i < 100; i++)
		run(i, 0, i % 4 == 0);
	assert_int_equal(seen.ended_well, 100);
	assert_true(seen.resets && seen.flushes);
}

static unsigned int runs = 2000;

/* Paths that broke, loopbacks that did, NICs that died. */
static unsigned int faults_fired(void)
{
	return seen.breaks + seen.broken + seen.deaths;
}

static void whatever_fails_every_signal_is_added_once_in_order_behind_its_data(void **state)
{
	(void)state;
	memset(&seen, 0, sizeof(seen));
	for (unsigned int i = 0; i < runs; i++)
		run(i, 1 + i % 6, false);
	print_message(
	    "%u faults fired; %u of %u runs to the end, %u with a loss that was found, %u could "
	    "not tell; %u "
	    "breaks, %u loopbacks broken, %u deaths, %u back, %u replays, %u reads, %u taken back, "
	    "%u flushes, "
	    "%u gave up\n",
	    faults_fired(), seen.ended_well, runs, seen.losses, seen.over[HA_GIN_CANNOT_TELL],
	    seen.breaks, seen.broken, seen.deaths, seen.backs, seen.replays, seen.reads,
	    seen.taken_back, seen.flushes, seen.gave_up);
	assert_true(seen.ended_well > runs / 4 * 3);
	assert_true(faults_fired() > runs / 2 * 5);
	assert_true(seen.breaks && seen.deaths && seen.backs && seen.replays && seen.losses);
	assert_true(seen.reads && seen.taken_back && seen.flushes && seen.gave_up && seen.resets);
	assert_true(seen.over[HA_GIN_CANNOT_TELL]);
	assert_false(seen.over[HA_GIN_UNPROVED]);
	print_message("%u puts were filled anew before their stream went on\n", seen.refilled);
	assert_true(seen.refilled >= runs / 4);
}

/* Who writes again what has come is found out in so few cases. */
static void what_the_kernel_has_filled_anew_is_not_written_again(void **state)
{
	(void)state;
	memset(&seen, 0, sizeof(seen));
	for (unsigned int i = 0; seen.refilled < 100; i++)
		run(i, 1 + i % 6, false);
	assert_true(seen.refilled < 100 + STREAMS * OPS);
}

static void end_to_end_no_data_is_missing_behind_a_signal(void **state)
{
	(void)state;
	memset(&seen, 0, sizeof(seen));
	for (unsigned int i = 0; i < 600; i++)
		run(i, 1 + i % 6, true);
	assert_true(seen.ended_well > 300);
	assert_true(seen.over[HA_GIN_UNPROVED]);
}

/* Whether an add was done is never asked, so nothing cannot be told. */
static void words_that_are_never_set_to_zero_are_written_and_not_read(void **state)
{
	(void)state;
	memset(&seen, 0, sizeof(seen));
	for (unsigned int i = 0; i < 2000; i++)
		run_of(i, 1 + i % 6, i % 5 == 0, true);
	print_message("%u of 2000 runs to the end, %u with a loss that was found; %u words set, %u "
		      "gave up\n",
		      seen.ended_well, seen.losses, seen.sets, seen.gave_up);
	assert_true(seen.sets > 100);
	assert_int_equal(seen.reads, 0);
	assert_int_equal(seen.over[HA_GIN_CANNOT_TELL], 0);
}

/* unit_gin_failures [RUNS] */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(without_failures_every_signal_is_added_once),
	    cmocka_unit_test(whatever_fails_every_signal_is_added_once_in_order_behind_its_data),
	    cmocka_unit_test(what_the_kernel_has_filled_anew_is_not_written_again),
	    cmocka_unit_test(end_to_end_no_data_is_missing_behind_a_signal),
	    cmocka_unit_test(words_that_are_never_set_to_zero_are_written_and_not_read),
	};

	if (argc > 1)
		runs = (unsigned int)strtoul(argv[1], NULL, 10);
	return cmocka_run_group_tests_name("gin_failures", tests, NULL, NULL);
}
