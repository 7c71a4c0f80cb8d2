/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taking generations of a path out of use: what a watermark reaches, and when it is confirmed. How
 * far a fence is, and what else paths do, is for each test to say.
 */
#include "../cmocka_all.h"
#include "fences.h"

#include "fake_comm.h"

#include "failover/notes.h"
#include "failover/preregister.h"
#include "failover/standby.h"
#include "transport/fence.h"
#include "transport/path_close.h"

#include <stdio.h>

#define NOW_NS (1000 * HA_NS_PER_S)

/* The path that most tests are about. */
enum { P = 2 };

static struct {
	/* What is answered. */
	enum ha_fence fence[HA_MAX_PATHS];
	bool closing[HA_MAX_PATHS];
	/* What was asked for. */
	unsigned fences[HA_MAX_PATHS], questions[HA_MAX_PATHS];
	unsigned preregistered[HA_MAX_PATHS], retried[HA_MAX_PATHS], left[HA_MAX_PATHS];
	enum ha_reason reason;
	ha_result_t error;
	char text[256];
} calls;

/* ---- what paths do --------------------------------------------------------------------------- */

void __wrap_ha_path_fence(struct ha_path *path);
void __wrap_ha_path_fence(struct ha_path *path)
{
	calls.fences[path->index]++;
	atomic_store(&path->state, HA_PATH_FENCING);
}

enum ha_fence __wrap_ha_path_fenced(struct ha_comm *comm, struct ha_path *path, uint64_t now_ns);
enum ha_fence __wrap_ha_path_fenced(struct ha_comm *comm, struct ha_path *path, uint64_t now_ns)
{
	assert_ptr_equal(comm, &fake.comm);
	assert_int_equal(now_ns, NOW_NS);
	calls.questions[path->index]++;
	if (calls.fence[path->index] == HA_FENCE_DONE)
		atomic_store(&path->state, HA_PATH_FENCED);
	return calls.fence[path->index];
}

bool __wrap_ha_path_closing(struct ha_path *path);
bool __wrap_ha_path_closing(struct ha_path *path)
{
	return calls.closing[path->index];
}

void __wrap_ha_preregister(struct ha_comm *comm, unsigned p);
void __wrap_ha_preregister(struct ha_comm *comm, unsigned p)
{
	assert_ptr_equal(comm, &fake.comm);
	calls.preregistered[p]++;
}

void __wrap_ha_standby_retry(struct ha_comm *comm, unsigned p);
void __wrap_ha_standby_retry(struct ha_comm *comm, unsigned p)
{
	assert_ptr_equal(comm, &fake.comm);
	calls.retried[p]++;
}

void __wrap_ha_failover_trigger(struct ha_comm *comm, struct ha_path *path, enum ha_reason reason,
				const char *fmt, ...);
void __wrap_ha_failover_trigger(struct ha_comm *comm, struct ha_path *path, enum ha_reason reason,
				const char *fmt, ...)
{
	(void)fmt;
	assert_ptr_equal(comm, &fake.comm);
	calls.left[path->index]++;
	calls.reason = reason;
}

ha_result_t __wrap_ha_comm_fail(struct ha_comm *comm, ha_result_t code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
ha_result_t __wrap_ha_comm_fail(struct ha_comm *comm, ha_result_t code, const char *fmt, ...)
{
	va_list args;

	assert_ptr_equal(comm, &fake.comm);
	calls.error = code;
	va_start(args, fmt);
	vsnprintf(calls.text, sizeof(calls.text), fmt, args);
	va_end(args);
	return code;
}

/* ---- the connection -------------------------------------------------------------------------- */

static int no_path_is_open(void **state)
{
	(void)state;
	memset(&calls, 0, sizeof(calls));
	fake_comm_init();
	return 0;
}

static struct ha_slot *slot_of(unsigned p)
{
	return &fake.failover.slots[p];
}

/* As it is where everything before this generation was fenced. */
static struct ha_slot *open_generation(unsigned p, uint32_t generation)
{
	struct ha_slot *slot = slot_of(p);

	fake_open_path(p, p, p);
	fake.paths[p].generation = slot->newest_gen = generation;
	slot->want_gen = slot->fenced_gen = generation - 1;
	return slot;
}

static void assert_marks(const struct ha_slot *slot, uint32_t newest, uint32_t want,
			 uint32_t fenced)
{
	assert_int_equal(slot->newest_gen, newest);
	assert_int_equal(slot->want_gen, want);
	assert_int_equal(slot->fenced_gen, fenced);
}

/* ---- what a watermark reaches ---------------------------------------------------------------- */

static void a_path_is_fenced_up_to_its_own_generation(void **state)
{
	struct ha_slot *slot = open_generation(P, 3);

	(void)state;
	ha_slot_fence(&fake.comm, P, 3);
	assert_int_equal(calls.fences[P], 1);
	assert_int_equal(slot->state, HA_SLOT_EMPTY);
	/* It is out of use, and not confirmed yet. */
	assert_marks(slot, 3, 3, 2);
	assert_false(all_are_fenced(&fake.comm));
	assert_ptr_equal(fake.comm.paths[P], &fake.paths[P]);
}

static void a_generation_beyond_the_watermark_stays(void **state)
{
	struct ha_slot *slot = open_generation(P, 3);

	(void)state;
	ha_slot_fence(&fake.comm, P, 2);
	ha_slot_fence(&fake.comm, P, 1);
	assert_int_equal(calls.fences[P], 0);
	assert_int_equal(slot->state, HA_SLOT_GOOD);
	assert_marks(slot, 3, 2, 2);
	assert_true(all_are_fenced(&fake.comm));
	assert_int_equal(fake.failover.say, 0);
}

static void a_watermark_beyond_the_path_takes_it_as_well(void **state)
{
	struct ha_slot *slot = open_generation(P, 3);

	(void)state;
	ha_slot_fence(&fake.comm, P, 7);
	assert_int_equal(calls.fences[P], 1);
	/* No generation up to it can come any more, although nobody here has seen them. */
	assert_marks(slot, 7, 7, 2);
}

static void a_watermark_is_never_lowered(void **state)
{
	struct ha_slot *slot = open_generation(P, 3);

	(void)state;
	ha_slot_fence(&fake.comm, P, 7);
	ha_slot_fence(&fake.comm, P, 3);
	assert_marks(slot, 7, 7, 2);
	/* What it reaches goes, whichever generation is named. */
	slot = open_generation(0, 3);
	slot->want_gen = 5;
	ha_slot_fence(&fake.comm, 0, 2);
	assert_int_equal(calls.fences[0], 1);
	assert_marks(slot, 3, 5, 2);
}

static void where_there_is_no_path_a_watermark_is_confirmed_at_once(void **state)
{
	struct ha_slot *slot = slot_of(P);

	(void)state;
	ha_slot_fence(&fake.comm, P, 4);
	assert_marks(slot, 4, 4, 4);
	assert_true(all_are_fenced(&fake.comm));
	ha_slot_fence(&fake.comm, P, 2);
	assert_marks(slot, 4, 4, 4);
}

static void other_slots_keep_their_paths(void **state)
{
	(void)state;
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		open_generation(p, 1);
	ha_slot_fence(&fake.comm, P, 5);
	for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
		assert_int_equal(calls.fences[p], p == P);
		assert_int_equal(slot_of(p)->state, p == P ? HA_SLOT_EMPTY : HA_SLOT_GOOD);
		assert_int_equal(slot_of(p)->want_gen, p == P ? 5 : 0);
	}
}

static void a_new_watermark_is_said_again_only_while_the_peer_is_told_to_fence(void **state)
{
	(void)state;
	for (uint8_t s = 0; s < HA_FO_STATES; s++) {
		no_path_is_open(state);
		open_generation(P, 3);
		fake.failover.state = s;
		ha_slot_fence(&fake.comm, P, 2); /* reaches nothing */
		assert_int_equal(fake.failover.say, 0);
		ha_slot_fence(&fake.comm, P, 3);
		assert_int_equal(fake.failover.say, s == HA_FO_FENCING ? HA_SAY_STATEMENT : 0);
	}
}

static void a_proof_that_was_noted_is_forgotten_with_what_it_proved(void **state)
{
	struct ha_slot *slot = open_generation(P, 3);

	(void)state;
	slot->notes.proved = true;
	ha_slot_fence(&fake.comm, P, 2); /* reaches nothing */
	assert_true(slot->notes.proved);
	ha_slot_fence(&fake.comm, P, 3);
	assert_false(slot->notes.proved);
}

static void all_is_fenced_when_every_slot_has_reached_its_watermark(void **state)
{
	(void)state;
	for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
		slot_of(p)->want_gen = slot_of(p)->fenced_gen = 10 * (p + 1);
		assert_true(all_are_fenced(&fake.comm));
	}
	for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
		slot_of(p)->fenced_gen--;
		assert_false(all_are_fenced(&fake.comm));
		slot_of(p)->fenced_gen += 2; /* more than was asked for is fine */
		assert_true(all_are_fenced(&fake.comm));
	}
}

/* ---- confirmation ---------------------------------------------------------------------------- */

static void a_fence_is_confirmed_when_nothing_moves_any_more(void **state)
{
	struct ha_slot *slot = open_generation(P, 3);

	(void)state;
	ha_slot_fence(&fake.comm, P, 3);
	calls.fence[P] = HA_FENCE_PENDING;
	assert_false(ha_slots_drain(&fake.comm, NOW_NS));
	assert_marks(slot, 3, 3, 2);
	assert_ptr_equal(fake.comm.paths[P], &fake.paths[P]);
	calls.fence[P] = HA_FENCE_DONE;
	assert_true(ha_slots_drain(&fake.comm, NOW_NS));
	assert_marks(slot, 3, 3, 3);
	assert_true(all_are_fenced(&fake.comm));
	assert_null(fake.comm.paths[P]);
	assert_int_equal(calls.questions[P], 2);
	/* Once. */
	assert_false(ha_slots_drain(&fake.comm, NOW_NS));
	assert_int_equal(calls.questions[P], 2);
}

static void a_failure_that_was_noted_comes_before_the_confirmation(void **state)
{
	struct ha_slot *slot = open_generation(P, 3);

	(void)state;
	ha_slot_fence(&fake.comm, P, 3);
	calls.fence[P] = HA_FENCE_DONE;
	slot->notes.failed_gen = 3;
	assert_false(ha_slots_drain(&fake.comm, NOW_NS));
	assert_int_equal(calls.questions[P], 0);
	slot->notes.failed_gen = 2; /* of the one before: taken up long ago */
	assert_true(ha_slots_drain(&fake.comm, NOW_NS));
}

static void a_watermark_that_was_raised_meanwhile_is_confirmed_with_it(void **state)
{
	struct ha_slot *slot = open_generation(P, 3);

	(void)state;
	ha_slot_fence(&fake.comm, P, 3);
	ha_slot_fence(&fake.comm, P, 6);
	calls.fence[P] = HA_FENCE_DONE;
	assert_true(ha_slots_drain(&fake.comm, NOW_NS));
	assert_marks(slot, 6, 6, 6);
}

static void only_paths_that_are_being_fenced_are_asked(void **state)
{
	(void)state;
	for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
		open_generation(p, 1);
		calls.fence[p] = HA_FENCE_DONE;
	}
	fake.comm.paths[0] = NULL;
	atomic_store(&fake.paths[1].state, HA_PATH_INIT);
	assert_false(ha_slots_drain(&fake.comm, NOW_NS));
	ha_slot_fence(&fake.comm, 3, 1);
	assert_true(ha_slots_drain(&fake.comm, NOW_NS));
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		assert_int_equal(calls.questions[p], p == 3);
}

static void one_that_takes_longer_does_not_hold_up_the_others(void **state)
{
	(void)state;
	for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
		open_generation(p, 1);
		ha_slot_fence(&fake.comm, p, 1);
		calls.fence[p] = p == 1 ? HA_FENCE_PENDING : HA_FENCE_DONE;
	}
	assert_true(ha_slots_drain(&fake.comm, NOW_NS));
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		assert_int_equal(slot_of(p)->fenced_gen, p == 1 ? 0 : 1);
	assert_false(all_are_fenced(&fake.comm));
}

static void a_path_that_cannot_be_fenced_ends_the_connection(void **state)
{
	struct ha_slot *slot = open_generation(P, 3);

	(void)state;
	strcpy(fake.nics[P].name, "mlx5_2");
	fake.ports[P].port_num = 1;
	fake.paths[P].carried = true;
	ha_slot_fence(&fake.comm, P, 3);
	calls.fence[P] = HA_FENCE_FAILED;
	assert_false(ha_slots_drain(&fake.comm, NOW_NS));
	assert_int_equal(calls.error, HA_ERR_SYSTEM);
	assert_non_null(strstr(calls.text, "path 2.3 on mlx5_2:1"));
	/* Memory must not be used again as if it was. */
	assert_marks(slot, 3, 3, 2);
	assert_ptr_equal(fake.comm.paths[P], &fake.paths[P]);
}

/* A standby: nothing is claimed of it either, but traffic goes on. */
static void one_that_never_carried_anything_ends_nothing(void **state)
{
	struct ha_slot *slot = open_generation(P, 3);

	(void)state;
	ha_slot_fence(&fake.comm, P, 3);
	calls.fence[P] = HA_FENCE_FAILED;
	assert_false(ha_slots_drain(&fake.comm, NOW_NS));
	assert_int_equal(calls.error, HA_OK);
	assert_marks(slot, 3, 3, 2);
	assert_ptr_equal(fake.comm.paths[P], &fake.paths[P]);
}

/* Traffic goes on by the sender's fence: it is asked for again, and not taken for fenced. */
static void one_that_traffic_went_on_without_ends_nothing(void **state)
{
	struct ha_slot *slot = open_generation(P, 3);

	(void)state;
	fake.paths[P].carried = true;
	ha_slot_fence(&fake.comm, P, 3);
	slot->settled_gen = 3;
	calls.fence[P] = HA_FENCE_FAILED;
	for (unsigned i = 1; i <= 3; i++) {
		assert_false(ha_slots_drain(&fake.comm, NOW_NS));
		assert_int_equal(calls.error, HA_OK);
		assert_int_equal(calls.questions[P], i);
		assert_marks(slot, 3, 3, 2);
		assert_ptr_equal(fake.comm.paths[P], &fake.paths[P]);
		assert_true(fake.paths[P].unheard); /* it has counted */
	}
	calls.fence[P] = HA_FENCE_DONE;
	assert_true(ha_slots_drain(&fake.comm, NOW_NS));
	assert_marks(slot, 3, 3, 3);
	assert_null(fake.comm.paths[P]);
}

/* What is settled is an older one: of this one something is still relied upon. */
static void one_that_is_not_settled_itself_ends_the_connection(void **state)
{
	struct ha_slot *slot = open_generation(P, 3);

	(void)state;
	fake.paths[P].carried = true;
	ha_slot_fence(&fake.comm, P, 3);
	slot->settled_gen = 2;
	calls.fence[P] = HA_FENCE_FAILED;
	assert_false(ha_slots_drain(&fake.comm, NOW_NS));
	assert_int_equal(calls.error, HA_ERR_SYSTEM);
	assert_marks(slot, 3, 3, 2);
}

/* Also when traffic has gone on by the peer's fence, and when no verb has failed: it may drain, or
 * have to be destroyed. */
static void a_fence_is_asked_after_until_it_is_confirmed(void **state)
{
	struct ha_slot *slot = open_generation(P, 3);
	struct ha_path *path = &fake.paths[P];

	(void)state;
	assert_false(ha_slots_fencing(&fake.comm));
	ha_slot_fence(&fake.comm, P, 3);
	slot->settled_gen = 3;
	assert_false(ha_slots_wait(&fake.comm));
	assert_true(ha_slots_fencing(&fake.comm));
	atomic_store(&path->command.state, HA_COMMAND_RUNNING); /* which says when it is back */
	assert_false(ha_slots_fencing(&fake.comm));
	atomic_store(&path->command.state, HA_COMMAND_DONE);
	assert_true(ha_slots_fencing(&fake.comm));
	fake.comm.paths[P] = NULL;
	slot->yielded = path;
	assert_true(ha_slots_fencing(&fake.comm));
	atomic_store(&path->state, HA_PATH_FENCED);
	assert_false(ha_slots_fencing(&fake.comm));
}

/* ---- what is left of it ---------------------------------------------------------------------- */

static void retire(unsigned p)
{
	open_generation(p, 1);
	ha_slot_fence(&fake.comm, p, 1);
	calls.fence[p] = HA_FENCE_DONE;
	assert_true(ha_slots_drain(&fake.comm, NOW_NS));
}

static unsigned retired(unsigned p)
{
	unsigned found = 0;

	for (const struct ha_path *path = fake.failover.retired; path; path = path->next_retired)
		found += path == &fake.paths[p];
	return found;
}

static void a_fenced_path_is_kept_until_it_is_closed(void **state)
{
	(void)state;
	for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
		retire(p);
		calls.closing[p] = true;
	}
	ha_slots_tidy(&fake.comm);
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		assert_int_equal(retired(p), 1);
	/* In the middle, at the end, at the beginning, and the last one. */
	for (unsigned i = 0; i < HA_MAX_PATHS; i++) {
		static const unsigned order[HA_MAX_PATHS] = {2, 0, 3, 1};

		calls.closing[order[i]] = false;
		ha_slots_tidy(&fake.comm);
		for (unsigned k = 0; k < HA_MAX_PATHS; k++)
			assert_int_equal(retired(order[k]), k > i);
	}
	assert_null(fake.failover.retired);
}

static void several_are_closed_at_one_time(void **state)
{
	(void)state;
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		retire(p);
	calls.closing[1] = true;
	ha_slots_tidy(&fake.comm);
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		assert_int_equal(retired(p), p == 1);
}

static void there_is_something_to_close_while_one_is_not_with_its_command(void **state)
{
	(void)state;
	assert_int_equal(ha_slots_tidy_ns(&fake.comm), 0);
	retire(0);
	retire(1);
	assert_int_equal(ha_slots_tidy_ns(&fake.comm), 1);
	atomic_store(&fake.paths[0].command.state, HA_COMMAND_RUNNING);
	assert_int_equal(ha_slots_tidy_ns(&fake.comm), 1);
	atomic_store(&fake.paths[1].command.state, HA_COMMAND_WAITING);
	assert_int_equal(ha_slots_tidy_ns(&fake.comm), 0);
	atomic_store(&fake.paths[0].command.state, HA_COMMAND_DONE);
	assert_int_equal(ha_slots_tidy_ns(&fake.comm), 1);
	fake.paths[0].destroy_ns = 7; /* in vain, and not again before */
	assert_int_equal(ha_slots_tidy_ns(&fake.comm), 7);
	fake.paths[0].destroyed = true;
	assert_int_equal(ha_slots_tidy_ns(&fake.comm), 1);
}

/* ---- the active path ------------------------------------------------------------------------- */

static void the_active_generation_is_that_of_the_path_that_is_there(void **state)
{
	(void)state;
	fake.comm.active = P;
	assert_int_equal(ha_active_generation(&fake.comm), 0);
	open_generation(0, 9);
	open_generation(P, 3);
	assert_int_equal(ha_active_generation(&fake.comm), 3);
}

static void traffic_runs_on_one_path_and_only_in_peace(void **state)
{
	(void)state;
	fake.comm.active = P;
	for (uint8_t s = 0; s < HA_FO_STATES; s++) {
		fake.failover.state = s;
		for (unsigned p = 0; p < HA_MAX_PATHS; p++)
			assert_int_equal(ha_is_active(&fake.comm, p), s == HA_FO_ACTIVE && p == P);
	}
}

/* ---- what follows from a step ---------------------------------------------------------------- */

static void a_missing_heartbeat_has_the_standby_prepared_once(void **state)
{
	struct ha_slot *slot = open_generation(P, 3);

	(void)state;
	ha_slot_on(&fake.comm, P, HA_SLOT_ON_MISSED);
	assert_int_equal(slot->state, HA_SLOT_SUSPECTED);
	assert_int_equal(calls.preregistered[P], 1);
	ha_slot_on(&fake.comm, P, HA_SLOT_ON_MISSED);
	assert_int_equal(calls.preregistered[P], 1);
	ha_slot_on(&fake.comm, P, HA_SLOT_ON_ANSWERED);
	assert_int_equal(slot->state, HA_SLOT_GOOD);
	assert_int_equal(calls.left[P] + calls.retried[P], 0);
}

static void heartbeats_that_expire_have_a_path_left_that_is_in_use(void **state)
{
	(void)state;
	open_generation(P, 3);
	ha_slot_on(&fake.comm, P, HA_SLOT_ON_EXPIRED);
	assert_int_equal(calls.left[P], 1);
	assert_int_equal(calls.reason, HA_REASON_LIVENESS);
	/* One that was stopped is left already, and one that is gone cannot be. */
	atomic_store(&fake.paths[P].state, HA_PATH_STOPPED);
	ha_slot_on(&fake.comm, P, HA_SLOT_ON_EXPIRED);
	fake.comm.paths[P] = NULL;
	ha_slot_on(&fake.comm, P, HA_SLOT_ON_EXPIRED);
	assert_int_equal(calls.left[P], 1);
}

static void answers_on_the_ports_of_a_failed_path_have_it_built_again(void **state)
{
	(void)state;
	ha_slot_on(&fake.comm, P, HA_SLOT_ON_ANSWERED);
	assert_int_equal(slot_of(P)->state, HA_SLOT_EMPTY); /* until a probe comes back */
	assert_int_equal(calls.retried[P], 1);
	assert_int_equal(calls.preregistered[P] + calls.left[P], 0);
}

static void what_cannot_happen_ends_the_connection(void **state)
{
	struct ha_slot *slot = open_generation(P, 3);

	(void)state;
	ha_slot_on(&fake.comm, P, HA_SLOT_ON_OPENED);
	assert_int_equal(calls.error, HA_ERR_INTERNAL);
	assert_non_null(strstr(calls.text, "path 2 is good, and now: our end opened"));
	assert_int_equal(slot->state, HA_SLOT_GOOD);
}

static void the_first_path_begins_as_one_that_works(void **state)
{
	(void)state;
	ha_slot_begin(slot_of(P), 3);
	assert_true(ha_slot_is_up(slot_of(P)));
	assert_marks(slot_of(P), 3, 0, 0);
}

int main(void)
{
#define TEST(NAME) cmocka_unit_test_setup(NAME, no_path_is_open)
	const struct CMUnitTest tests[] = {
	    TEST(a_path_is_fenced_up_to_its_own_generation),
	    TEST(a_generation_beyond_the_watermark_stays),
	    TEST(a_watermark_beyond_the_path_takes_it_as_well),
	    TEST(a_watermark_is_never_lowered),
	    TEST(where_there_is_no_path_a_watermark_is_confirmed_at_once),
	    TEST(other_slots_keep_their_paths),
	    TEST(a_new_watermark_is_said_again_only_while_the_peer_is_told_to_fence),
	    TEST(a_proof_that_was_noted_is_forgotten_with_what_it_proved),
	    TEST(all_is_fenced_when_every_slot_has_reached_its_watermark),
	    TEST(a_fence_is_confirmed_when_nothing_moves_any_more),
	    TEST(a_failure_that_was_noted_comes_before_the_confirmation),
	    TEST(a_watermark_that_was_raised_meanwhile_is_confirmed_with_it),
	    TEST(only_paths_that_are_being_fenced_are_asked),
	    TEST(one_that_takes_longer_does_not_hold_up_the_others),
	    TEST(a_path_that_cannot_be_fenced_ends_the_connection),
	    TEST(one_that_never_carried_anything_ends_nothing),
	    TEST(one_that_traffic_went_on_without_ends_nothing),
	    TEST(one_that_is_not_settled_itself_ends_the_connection),
	    TEST(a_fence_is_asked_after_until_it_is_confirmed),
	    TEST(a_fenced_path_is_kept_until_it_is_closed),
	    TEST(several_are_closed_at_one_time),
	    TEST(there_is_something_to_close_while_one_is_not_with_its_command),
	    TEST(the_active_generation_is_that_of_the_path_that_is_there),
	    TEST(traffic_runs_on_one_path_and_only_in_peace),
	    TEST(a_missing_heartbeat_has_the_standby_prepared_once),
	    TEST(heartbeats_that_expire_have_a_path_left_that_is_in_use),
	    TEST(answers_on_the_ports_of_a_failed_path_have_it_built_again),
	    TEST(what_cannot_happen_ends_the_connection),
	    TEST(the_first_path_begins_as_one_that_works),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
