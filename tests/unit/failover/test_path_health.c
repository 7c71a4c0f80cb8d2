/* SPDX-License-Identifier: Apache-2.0 */
/* The table of path health, all of it: against what each rule says, not against itself. */
#include "../cmocka_all.h"

#include "failover/path_health.h"

#include <string.h>

static enum ha_health next(enum ha_health state, enum ha_health_event event)
{
	return (enum ha_health)ha_health_step(state, event).next;
}

static enum ha_health_action action(enum ha_health state, enum ha_health_event event)
{
	return (enum ha_health_action)ha_health_step(state, event).action;
}

static void what_each_event_does_in_each_state(void **state)
{
	(void)state;
	for (unsigned i = 0; i < HA_HEALTH_COUNT; i++) {
		enum ha_health s = (enum ha_health)i;

		for (unsigned j = 0; j < HA_HEALTH_EVENT_COUNT; j++) {
			enum ha_health_event e = (enum ha_health_event)j;
			enum ha_health to = next(s, e);

			assert_true(to < HA_HEALTH_COUNT);
			/* A path leaves use as soon as, and only when, it has failed. */
			if (action(s, e) == HA_HEALTH_LEAVE)
				assert_int_equal(to, HA_HEALTH_FAILED);
			/* Only a probe makes a failed or rebuilt path good, only a rebuild gets a
			 * failed one that far. */
			if (ha_health_usable(to) && !ha_health_usable(s)) {
				assert_int_equal(s, HA_HEALTH_RECOVERING);
				assert_int_equal(e, HA_HEALTH_EVENT_PROBE_OK);
			}
			if (s == HA_HEALTH_FAILED && to != s)
				assert_int_equal(e, HA_HEALTH_EVENT_REBUILT);
			/* Preparing is for whoever is in use and becomes suspected. */
			assert_int_equal(action(s, e) == HA_HEALTH_PREPARE,
					 s == HA_HEALTH_GOOD && to == HA_HEALTH_SUSPECTED);
			assert_int_equal(action(s, e) == HA_HEALTH_RELAX,
					 s == HA_HEALTH_SUSPECTED && to == HA_HEALTH_GOOD);
			assert_int_equal(action(s, e) == HA_HEALTH_PROBE,
					 e == HA_HEALTH_EVENT_REBUILT);
			assert_int_equal(action(s, e) == HA_HEALTH_RETRY,
					 s == HA_HEALTH_FAILED && e == HA_HEALTH_EVENT_ANSWERED);
		}
		assert_int_equal(next(s, HA_HEALTH_EVENT_FENCED), HA_HEALTH_FAILED);
		assert_int_equal(action(s, HA_HEALTH_EVENT_FENCED), HA_HEALTH_NOTHING);
		assert_int_equal(next(s, HA_HEALTH_EVENT_EXPIRED), HA_HEALTH_FAILED);
		assert_int_equal(next(s, HA_HEALTH_EVENT_PROBE_FAILED), HA_HEALTH_FAILED);
		assert_int_equal(next(s, HA_HEALTH_EVENT_REBUILT), HA_HEALTH_RECOVERING);
		/* A missing heartbeat makes nobody healthier, and does not take one out of use. */
		assert_int_equal(ha_health_usable(next(s, HA_HEALTH_EVENT_MISSED)),
				 ha_health_usable(s));
	}
	assert_int_equal(next(HA_HEALTH_GOOD, HA_HEALTH_EVENT_MISSED), HA_HEALTH_SUSPECTED);
	assert_int_equal(next(HA_HEALTH_SUSPECTED, HA_HEALTH_EVENT_ANSWERED), HA_HEALTH_GOOD);
	assert_int_equal(next(HA_HEALTH_SUSPECTED, HA_HEALTH_EVENT_PROBE_OK), HA_HEALTH_SUSPECTED);
	assert_int_equal(next(HA_HEALTH_GOOD, HA_HEALTH_EVENT_PROBE_OK), HA_HEALTH_GOOD);
	assert_int_equal(next(HA_HEALTH_GOOD, HA_HEALTH_EVENT_ANSWERED), HA_HEALTH_GOOD);
}

static void the_whole_circle(void **state)
{
	static const struct {
		enum ha_health_event event;
		enum ha_health to;
		enum ha_health_action action;
	} circle[] = {
	    {HA_HEALTH_EVENT_MISSED, HA_HEALTH_SUSPECTED, HA_HEALTH_PREPARE},
	    {HA_HEALTH_EVENT_EXPIRED, HA_HEALTH_FAILED, HA_HEALTH_LEAVE},
	    {HA_HEALTH_EVENT_FENCED, HA_HEALTH_FAILED, HA_HEALTH_NOTHING},
	    {HA_HEALTH_EVENT_ANSWERED, HA_HEALTH_FAILED, HA_HEALTH_RETRY},
	    {HA_HEALTH_EVENT_REBUILT, HA_HEALTH_RECOVERING, HA_HEALTH_PROBE},
	    {HA_HEALTH_EVENT_PROBE_OK, HA_HEALTH_GOOD, HA_HEALTH_NOTHING},
	};
	enum ha_health health = HA_HEALTH_GOOD;

	(void)state;
	for (size_t i = 0; i < sizeof circle / sizeof circle[0]; i++) {
		assert_int_equal(action(health, circle[i].event), circle[i].action);
		health = next(health, circle[i].event);
		assert_int_equal(health, circle[i].to);
	}
	assert_int_equal(health, HA_HEALTH_GOOD);
}

static void everything_has_a_name_of_its_own(void **state)
{
	(void)state;
	for (unsigned i = 0; i < HA_HEALTH_COUNT; i++)
		for (unsigned j = 0; j < i; j++)
			assert_string_not_equal(ha_health_name(i), ha_health_name(j));
	for (unsigned i = 0; i < HA_HEALTH_EVENT_COUNT; i++)
		for (unsigned j = 0; j < i; j++)
			assert_string_not_equal(ha_health_event_name(i), ha_health_event_name(j));
	assert_string_equal(ha_health_name(HA_HEALTH_COUNT), "unknown");
	assert_string_equal(ha_health_event_name(HA_HEALTH_EVENT_COUNT), "unknown");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(what_each_event_does_in_each_state),
	    cmocka_unit_test(the_whole_circle),
	    cmocka_unit_test(everything_has_a_name_of_its_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
