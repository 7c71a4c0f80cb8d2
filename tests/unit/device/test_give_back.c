/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a device refuses to take back: asked for again, ever more seldom, kept with its memory, and
 * counted when it stays refused.
 */
#include "../captured_log.h"
#include "../cmocka_all.h"
#include "../fake_verbs.h"

#include "base/clock.h"
#include "device/device.h"
#include "device/give_back.h"

#include <errno.h>
#include <stdlib.h>

static struct ha_config config;
static struct ha_device_set *set;
static struct ha_incarnation *on;
static uint64_t now_ns;
static unsigned gone, told;

static uint64_t virtual_now(void)
{
	return now_ns;
}

static char *no_env(const char *name)
{
	(void)name;
	return NULL;
}

static void is_gone(void *arg)
{
	(void)arg;
	gone++;
}

static void is_told(struct ha_asker *asker)
{
	(void)asker;
	told++;
}

static struct ha_asker asker = {.refused = is_told};
static struct ibv_pd *pd;
static struct ibv_mr *last;

static int setup(void **state)
{
	(void)state;
	fake_verbs_reset();
	capture_log();
	ha_config_load(&config, no_env);
	fake_device_add("mlx5_0");
	if (ha_device_set_open(&config, &set) != HA_OK || set->nnics != 1)
		return -1;
	on = set->nics[0].now;
	atomic_store(&set->nics[0].asker, &asker);
	now_ns = HA_NS_PER_S;
	ha_clock_set_source(virtual_now);
	gone = told = 0;
	pd = ibv_alloc_pd(on->ctx);
	return pd ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	ha_clock_set_source(NULL);
	fake_verbs_done();
	return 0;
}

static struct ibv_mr *registered(void)
{
	static char page[4096];

	last = ibv_reg_mr(pd, page, sizeof(page), IBV_ACCESS_LOCAL_WRITE);
	return last;
}

/* What is gone without the library's help stays in its memory: of a real one as of this. */
static void free_librarys(void)
{
	free(last);
}

static void done(void)
{
	ha_give_back(on, HA_OBJECT_PD, pd, NULL, NULL);
	ha_device_set_close(set);
	assert_int_equal(fake_devices[0].pds, 0);
	assert_int_equal(fake_devices[0].regs, fake_devices[0].deregs);
}

static void refuse(int error)
{
	fake_devices[0].dereg_error = error;
}

static void what_is_taken_back_is_gone_at_once(void **state)
{
	(void)state;
	ha_give_back(on, HA_OBJECT_MR, registered(), is_gone, NULL);
	assert_int_equal(gone, 1);
	ha_give_back(on, HA_OBJECT_MR, NULL, is_gone, NULL); /* was never made */
	ha_give_back(NULL, HA_OBJECT_MR, NULL, is_gone, NULL);
	assert_int_equal(gone, 3);
	assert_int_equal(told, 0);
	assert_int_equal(ha_give_back_due(on), 0);
	done();
}

static void what_is_refused_once_is_asked_for_again_and_keeps_its_memory_until_then(void **state)
{
	(void)state;
	refuse(EBUSY);
	ha_give_back(on, HA_OBJECT_MR, registered(), is_gone, NULL);
	refuse(0);
	assert_int_equal(gone, 0);
	assert_int_equal(told, 1);
	assert_int_equal(ha_give_back_due(on), now_ns + HA_GIVE_BACK_NS);
	now_ns += HA_GIVE_BACK_NS - 1;
	ha_give_back_again(on);
	assert_int_equal(gone, 0);
	now_ns++;
	ha_give_back_again(on);
	assert_int_equal(gone, 1);
	assert_int_equal(ha_give_back_due(on), 0);
	assert_int_equal(captured_warnings, 0);
	done();
}

/* Asks as often as it is due. */
static void ask(unsigned times)
{
	for (unsigned i = 0; i < times; i++) {
		now_ns = ha_give_back_due(on);
		ha_give_back_again(on);
	}
}

static unsigned leaked_registrations(void)
{
	return ha_nic_leaks(on->nic).of[HA_OBJECT_MR];
}

static void what_stays_refused_is_a_leak_of_which_one_line_tells(void **state)
{
	(void)state;
	refuse(EAGAIN);
	ha_give_back(on, HA_OBJECT_MR, registered(), is_gone, NULL);
	ask(HA_GIVE_BACK_TRIES - 2);
	assert_int_equal(leaked_registrations(), 0);
	assert_int_equal(captured_warnings, 0);
	ask(1);
	assert_int_equal(leaked_registrations(), 1);
	assert_int_equal(captured_warnings, 1);
	assert_true(logged("mlx5_0: the device does not take back a registration"));
	assert_in_range(now_ns, 3 * HA_NS_PER_S, 4 * HA_NS_PER_S);
	/* However long, and however many. */
	ha_give_back(on, HA_OBJECT_MR, registered(), is_gone, NULL);
	ask(40);
	assert_int_equal(leaked_registrations(), 2);
	assert_int_equal(captured_warnings, 1);
	assert_in_range(ha_give_back_due(on), now_ns, now_ns + HA_GIVE_BACK_MAX_NS);
	assert_int_equal(gone, 0);
	/* It may come to it yet. */
	refuse(0);
	ask(2);
	assert_int_equal(gone, 2);
	assert_int_equal(leaked_registrations(), 0);
	done();
}

static void leaks_are_said_in_words(void **state)
{
	const struct ha_leaks none = {{0}};
	const struct ha_leaks some = {
	    {[HA_OBJECT_QP] = 2, [HA_OBJECT_AH] = 1, [HA_OBJECT_MR] = 12}};
	char text[80], little[16];

	(void)state;
	assert_string_equal(ha_leaks_text(&none, text, sizeof(text)), "nothing");
	assert_string_equal(ha_leaks_text(&some, text, sizeof(text)),
			    "2 queue pairs, an address handle, 12 registrations");
	assert_string_equal(ha_leaks_text(&some, little, sizeof(little)), "2 queue pairs, ");
	done();
}

static void closing_asks_once_more_tells_what_is_left_and_ends_its_memory(void **state)
{
	(void)state;
	refuse(EBUSY);
	ha_give_back(on, HA_OBJECT_MR, registered(), is_gone, NULL);
	ha_give_back(on, HA_OBJECT_PD, pd, NULL, NULL);
	ha_device_set_close(set);
	free_librarys();
	assert_int_equal(gone, 1);
	assert_int_equal(captured_warnings, 1);
	assert_true(logged("mlx5_0: the device does not take back a registration"));
}

/* One line said that it died, and it answers EIO to everything. */
static void of_a_dead_device_nothing_is_said_and_what_left_with_it_is_gone(void **state)
{
	(void)state;
	(void)ha_incarnation_died(on);
	refuse(EIO);
	ha_give_back(on, HA_OBJECT_MR, registered(), is_gone, NULL);
	assert_int_equal(gone, 0);
	now_ns += HA_LEAVING_NS + 1;
	ha_give_back_again(on);
	free_librarys();
	assert_int_equal(gone, 1);
	refuse(EBUSY);
	ha_give_back(on, HA_OBJECT_MR, registered(), is_gone, NULL);
	ask(HA_GIVE_BACK_TRIES + 1);
	assert_int_equal(captured_warnings, 0);
	assert_int_equal(leaked_registrations(), 0);
	ha_device_set_close(set);
	free_librarys();
	assert_int_equal(gone, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(what_is_taken_back_is_gone_at_once, setup, teardown),
	    cmocka_unit_test_setup_teardown(
		what_is_refused_once_is_asked_for_again_and_keeps_its_memory_until_then, setup,
		teardown),
	    cmocka_unit_test_setup_teardown(what_stays_refused_is_a_leak_of_which_one_line_tells,
					    setup, teardown),
	    cmocka_unit_test_setup_teardown(leaks_are_said_in_words, setup, teardown),
	    cmocka_unit_test_setup_teardown(
		closing_asks_once_more_tells_what_is_left_and_ends_its_memory, setup, teardown),
	    cmocka_unit_test_setup_teardown(
		of_a_dead_device_nothing_is_said_and_what_left_with_it_is_gone, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
