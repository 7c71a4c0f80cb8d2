/* SPDX-License-Identifier: Apache-2.0 */
/* The leader's decision against one that asks unit by unit and member by member. */
#include "../unit/cmocka_all.h"

#include "inc/decision.h"

#include <string.h>

#define MEMBERS 3
#define EPOCH	2

static struct ha_fenced places[MEMBERS];
static struct ha_decision decision;

static void begin(void)
{
	ha_decision_init(&decision, MEMBERS, places);
	for (int i = 0; i < EPOCH; i++)
		ha_decision_begin(&decision);
}

/* ---- the oracle ----------------------------------------------------------------------------- */

static bool bit(const struct ha_fenced *said, uint64_t unit, uint64_t bitmap)
{
	return unit >= said->retired && unit < said->retired + HA_DECISION_UNITS &&
	       bitmap >> (unit - said->retired) & 1;
}

static bool has(const struct ha_fenced *said, uint64_t unit)
{
	return unit < said->retired || bit(said, unit, said->have);
}

/* What becomes of one unit. */
struct fate {
	bool retired, lost, taken, lacked, damaged;
	uint16_t owner;
};

static struct fate fate_of(const struct ha_fenced *said, uint64_t unit)
{
	bool sent = true, direct = false;
	struct fate fate = {.owner = MEMBERS};

	for (uint16_t m = 0; m < MEMBERS; m++) {
		fate.retired |= unit < said[m].retired;
		fate.lacked |= !has(&said[m], unit);
		if (has(&said[m], unit) && fate.owner == MEMBERS)
			fate.owner = m;
		sent &= bit(&said[m], unit, said[m].sent);
		direct |= bit(&said[m], unit, said[m].direct);
	}
	fate.lost = fate.retired && fate.lacked;
	fate.taken = !fate.retired && fate.owner != MEMBERS;
	fate.damaged = !fate.retired && !fate.taken && sent && direct;
	return fate;
}

/* ---- everything that three members can say of a few units ----------------------------------- */

#define UNITS	 4 /* 0 to 3: a member speaks of two from its own `retired` on, which is 0 to 2 */
#define SAYINGS	 (3 * 4 * 4 + 3)
#define LEAVINGS (3 * 4 * 4)

/* The number'th thing that a member can say. */
static struct ha_fenced saying(unsigned int number, bool direct)
{
	if (number >= LEAVINGS)
		return (struct ha_fenced){.leaves = true, .retired = number - LEAVINGS};
	return (struct ha_fenced){
	    .epoch = EPOCH,
	    .retired = number / 16,
	    .have = number / 4 % 4,
	    .sent = number % 4,
	    .direct = direct ? 3 : 0,
	};
}

static unsigned int made, lost, damaged, owned, kept, again; /* how often each was the outcome */

static void check_resume(const struct ha_fenced *said, const struct ha_resume *resume)
{
	assert_int_equal(resume->epoch, EPOCH);
	for (uint64_t u = 0; u < UNITS; u++) {
		const struct fate want = fate_of(said, u);
		uint64_t i = u - resume->retired;

		assert_int_equal(u < resume->retired, want.retired);
		if (want.retired)
			continue;
		assert_int_equal(resume->taken >> i & 1, want.taken);
		assert_int_equal(resume->lacked >> i & 1, want.taken && want.lacked);
		if (want.taken && want.lacked)
			assert_int_equal(resume->owner[i], want.owner);
		owned += want.taken && want.lacked;
		kept += want.taken && !want.lacked;
		again += !want.taken;
	}
	/* Nothing is said of units that nobody spoke of. */
	assert_true(resume->taken < 1 << UNITS && (resume->lacked & ~resume->taken) == 0);
}

static void check_lost(const struct ha_fenced *said, const struct ha_decision_fault *fault)
{
	assert_true(fate_of(said, fault->unit).lost);
	assert_false(has(&said[fault->member], fault->unit));
	for (uint16_t m = 0; m <= fault->member; m++) {
		uint64_t end = m < fault->member ? UNITS : fault->unit;

		for (uint64_t u = 0; u < end; u++)
			assert_false(fate_of(said, u).retired && !has(&said[m], u));
	}
}

static void check(const struct ha_fenced *said)
{
	enum ha_decision_verdict want = HA_DECISION_MADE, verdict;
	struct ha_decision_fault fault = {0};
	struct ha_resume resume;
	uint64_t first = UNITS;

	for (uint64_t u = UNITS; u-- > 0;) {
		if (fate_of(said, u).damaged)
			first = u;
	}
	if (first < UNITS)
		want = HA_DECISION_DAMAGED;
	for (uint64_t u = 0; u < UNITS; u++) {
		if (fate_of(said, u).lost)
			want = HA_DECISION_LOST;
	}

	verdict = ha_decision_make(&decision, &resume, &fault);
	assert_int_equal(verdict, want);
	if (verdict == HA_DECISION_LOST)
		check_lost(said, &fault);
	else if (verdict == HA_DECISION_DAMAGED)
		assert_int_equal(fault.unit, first);
	else
		check_resume(said, &resume);
	made += verdict == HA_DECISION_MADE;
	lost += verdict == HA_DECISION_LOST;
	damaged += verdict == HA_DECISION_DAMAGED;
}

static void each_unit_has_the_fate_that_follows_from_what_was_said(void **state)
{
	(void)state;
	for (unsigned int n = 0; n < 2 * SAYINGS * SAYINGS * SAYINGS; n++) {
		const unsigned int each[MEMBERS] = {n / 2 % SAYINGS, n / 2 / SAYINGS % SAYINGS,
						    n / 2 / SAYINGS / SAYINGS};
		struct ha_fenced said[MEMBERS];

		begin();
		for (uint16_t m = 0; m < MEMBERS; m++) {
			said[m] = saying(each[m], n % 2);
			assert_true(ha_decision_hear(&decision, m, &said[m]));
		}
		check(said);
	}
	/* No outcome is so rare that the comparison says little of it. */
	assert_true(made > 100 && lost > 100 && damaged > 100);
	assert_true(owned > 100 && kept > 100 && again > 100);
}

/* ---- who has said what, and when ------------------------------------------------------------ */

static struct ha_fenced fenced(uint32_t epoch, uint64_t retired, uint64_t have)
{
	return (struct ha_fenced){.epoch = epoch, .retired = retired, .have = have};
}

static bool hear(uint16_t member, struct ha_fenced said)
{
	return ha_decision_hear(&decision, member, &said);
}

static enum ha_decision_verdict make(struct ha_resume *resume, struct ha_decision_fault *fault)
{
	memset(resume, 0xee, sizeof(*resume));
	memset(fault, 0xee, sizeof(*fault));
	return ha_decision_make(&decision, resume, fault);
}

static void nothing_is_decided_without_every_member(void **state)
{
	struct ha_decision_fault fault;
	struct ha_resume resume;

	(void)state;
	for (uint16_t missing = 0; missing < MEMBERS; missing++) {
		begin();
		for (uint16_t m = 0; m < MEMBERS; m++) {
			if (m != missing)
				assert_true(hear(m, fenced(EPOCH, 5, 0)));
		}
		assert_int_equal(make(&resume, &fault), HA_DECISION_WAITS);
		assert_int_equal(fault.member, missing);
		assert_true(hear(missing, fenced(EPOCH, 5, 1))); /* the only one that has unit 5 */
		assert_int_equal(make(&resume, &fault), HA_DECISION_MADE);
		assert_int_equal(resume.taken, 1);
		assert_int_equal(resume.owner[0], missing);
	}
}

static void what_is_said_of_another_epoch_counts_for_nothing(void **state)
{
	struct ha_decision_fault fault;
	struct ha_resume resume;

	(void)state;
	begin();
	for (uint16_t m = 0; m < MEMBERS; m++)
		assert_true(hear(m, fenced(EPOCH, 5, 0)));
	ha_decision_begin(&decision);
	assert_int_equal(make(&resume, &fault), HA_DECISION_WAITS);
	assert_int_equal(fault.member, 0);

	/* Of member 1 comes what it said before it got unit 5; and something that cannot be yet. */
	assert_true(hear(0, fenced(EPOCH + 1, 5, 0)));
	assert_true(hear(2, fenced(EPOCH + 1, 5, 0)));
	assert_false(hear(1, fenced(EPOCH, 5, 0)));
	assert_false(hear(1, fenced(EPOCH + 2, 5, 0)));
	assert_int_equal(make(&resume, &fault), HA_DECISION_WAITS);
	assert_int_equal(fault.member, 1);
	assert_true(hear(1, fenced(EPOCH + 1, 5, 1)));
	assert_false(hear(1, fenced(EPOCH, 5, 0)));
	assert_int_equal(make(&resume, &fault), HA_DECISION_MADE);
	assert_int_equal(resume.epoch, EPOCH + 1);
	assert_int_equal(resume.owner[0], 1);
}

static void nothing_counts_before_the_first_fence(void **state)
{
	struct ha_decision_fault fault;
	struct ha_resume resume;

	(void)state;
	ha_decision_init(&decision, MEMBERS, places);
	assert_int_equal(make(&resume, &fault), HA_DECISION_WAITS);
	assert_false(hear(0, fenced(0, 5, 0)));
}

static void whoever_has_left_has_answered_for_good(void **state)
{
	const struct ha_fenced leave = {.epoch = EPOCH, .leaves = true, .retired = 7};
	struct ha_decision_fault fault;
	struct ha_resume resume;

	(void)state;
	begin();
	assert_true(hear(1, fenced(EPOCH, 6, 1)));
	assert_true(hear(1, leave)); /* in the middle of a fence */
	assert_false(hear(1, fenced(EPOCH, 6, 1)));
	ha_decision_begin(&decision);
	assert_true(hear(0, fenced(EPOCH + 1, 5, 3)));
	assert_true(hear(2, fenced(EPOCH + 1, 6, 1)));
	assert_int_equal(make(&resume, &fault), HA_DECISION_MADE);
	assert_int_equal(resume.retired, 7); /* nobody else knows it */
	assert_int_equal(resume.taken, 0);
}

static void all_bits_count_and_units_beyond_32_bits(void **state)
{
	const uint64_t base = (1ULL << 40) + 3;
	struct ha_decision_fault fault;
	struct ha_resume resume;

	(void)state;
	begin();
	assert_true(hear(0, fenced(EPOCH, base + HA_DECISION_UNITS, 1ULL << 63)));
	assert_true(hear(1, fenced(EPOCH, base, UINT64_MAX)));
	assert_true(hear(2, fenced(EPOCH, base + 1, UINT64_MAX)));
	assert_int_equal(make(&resume, &fault), HA_DECISION_MADE);
	assert_int_equal(resume.retired, base + HA_DECISION_UNITS);
	assert_true(resume.taken == (1ULL << 63 | 1) && resume.lacked == resume.taken);
	assert_int_equal(resume.owner[0], 2);
	assert_int_equal(resume.owner[63], 0);

	begin(); /* one more than a bitmap can say */
	assert_true(hear(0, fenced(EPOCH, base + HA_DECISION_UNITS + 1, 0)));
	assert_true(hear(1, fenced(EPOCH, base, UINT64_MAX)));
	assert_true(hear(2, fenced(EPOCH, base + HA_DECISION_UNITS + 1, 0)));
	assert_int_equal(make(&resume, &fault), HA_DECISION_LOST);
	assert_int_equal(fault.member, 1);
	assert_int_equal(fault.unit, base + HA_DECISION_UNITS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(each_unit_has_the_fate_that_follows_from_what_was_said),
	    cmocka_unit_test(nothing_is_decided_without_every_member),
	    cmocka_unit_test(what_is_said_of_another_epoch_counts_for_nothing),
	    cmocka_unit_test(nothing_counts_before_the_first_fence),
	    cmocka_unit_test(whoever_has_left_has_answered_for_good),
	    cmocka_unit_test(all_bits_count_and_units_beyond_32_bits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
