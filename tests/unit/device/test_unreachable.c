/* SPDX-License-Identifier: Apache-2.0 */
/* Ports that were not found a moment ago are not asked for again at once. */
#include "../cmocka_all.h"

#include "base/clock.h"
#include "device/device.h"
#include "device/unreachable.h"

#define MS HA_NS_PER_MS

static struct ha_unreachable unreachable;
static struct ha_port ours[2];
static const uint8_t here[16] = {1}, there[16] = {2};

static int setup(void **state)
{
	(void)state;
	ha_unreachable_init(&unreachable);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	ha_unreachable_destroy(&unreachable);
	return 0;
}

static struct ha_unreachable_key key(int port, const uint8_t *gid)
{
	return (struct ha_unreachable_key){.port = &ours[port], .gid = gid};
}

static void a_slow_no_holds_for_as_long_as_it_took(void **state)
{
	const struct ha_unreachable_key k = key(0, here);

	(void)state;
	assert_false(ha_unreachable_lately(&unreachable, &k, 0));
	ha_unreachable_note(&unreachable, &k, 0, 1000 * MS);
	assert_true(ha_unreachable_lately(&unreachable, &k, 1000 * MS));
	assert_true(ha_unreachable_lately(&unreachable, &k, 1999 * MS));
	assert_false(ha_unreachable_lately(&unreachable, &k, 2000 * MS));
}

static void a_quick_no_is_not_kept(void **state)
{
	const struct ha_unreachable_key k = key(0, here);

	(void)state;
	ha_unreachable_note(&unreachable, &k, 0, 1 * MS);
	assert_false(ha_unreachable_lately(&unreachable, &k, 1 * MS));
}

static void other_pairs_are_not_concerned(void **state)
{
	const struct ha_unreachable_key k = key(0, here), gid = key(0, there), port = key(1, here);

	(void)state;
	ha_unreachable_note(&unreachable, &k, 0, 1000 * MS);
	assert_false(ha_unreachable_lately(&unreachable, &gid, 1000 * MS));
	assert_false(ha_unreachable_lately(&unreachable, &port, 1000 * MS));
	assert_int_equal(ha_unreachable_hash(&k), ha_unreachable_hash(&k));
	assert_int_not_equal(ha_unreachable_hash(&k), ha_unreachable_hash(&gid));
	assert_int_not_equal(ha_unreachable_hash(&k), ha_unreachable_hash(&port));
}

static void a_change_lets_what_it_is_about_be_asked_for_again(void **state)
{
	const struct ha_unreachable_key k = key(0, here), other = key(1, there);

	(void)state;
	for (int i = 0; i < 2; i++) { /* by our port, then by the remote one */
		ha_unreachable_note(&unreachable, &k, 0, 1000 * MS);
		ha_unreachable_note(&unreachable, &other, 0, 1000 * MS);
		ha_unreachable_forget(&unreachable,
				      &(struct ha_unreachable_key){.port = i == 0 ? k.port : NULL,
								   .gid = i == 0 ? NULL : k.gid});
		assert_false(ha_unreachable_lately(&unreachable, &k, 1000 * MS));
		assert_true(ha_unreachable_lately(&unreachable, &other, 1000 * MS));
	}
}

static void of_too_many_the_oldest_is_forgotten(void **state)
{
	uint8_t gids[HA_UNREACHABLE_MAX + 1][16] = {{0}};
	struct ha_unreachable_key k;

	(void)state;
	for (int i = 0; i <= HA_UNREACHABLE_MAX; i++) {
		gids[i][0] = (uint8_t)(i + 1);
		k = key(0, gids[i]);
		ha_unreachable_note(&unreachable, &k, (unsigned)i * MS, (unsigned)(1000 + i) * MS);
	}
	for (int i = 0; i <= HA_UNREACHABLE_MAX; i++) {
		k = key(0, gids[i]);
		assert_int_equal(ha_unreachable_lately(&unreachable, &k, 1100 * MS), i != 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(a_slow_no_holds_for_as_long_as_it_took, setup,
					    teardown),
	    cmocka_unit_test_setup_teardown(a_quick_no_is_not_kept, setup, teardown),
	    cmocka_unit_test_setup_teardown(other_pairs_are_not_concerned, setup, teardown),
	    cmocka_unit_test_setup_teardown(a_change_lets_what_it_is_about_be_asked_for_again,
					    setup, teardown),
	    cmocka_unit_test_setup_teardown(of_too_many_the_oldest_is_forgotten, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
