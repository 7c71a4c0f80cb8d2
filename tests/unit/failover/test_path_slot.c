/* SPDX-License-Identifier: Apache-2.0 */
/* The table of a path's slot, all of it: against what each rule says, not against itself. */
#include "../cmocka_all.h"

#include "failover/path_slot.h"

#include <string.h>

static enum ha_slot_state next(enum ha_slot_state state, enum ha_slot_event event)
{
	return (enum ha_slot_state)ha_slot_next(state, event).next;
}

static enum ha_slot_action action(enum ha_slot_state state, enum ha_slot_event event)
{
	return (enum ha_slot_action)ha_slot_next(state, event).action;
}

static bool up(enum ha_slot_state state)
{
	const struct ha_slot slot = {.state = (uint8_t)state};

	return ha_slot_is_up(&slot);
}

/* What opening, connecting and connected may come in. */
static bool in_order(enum ha_slot_state s, enum ha_slot_event e)
{
	switch (e) {
	case HA_SLOT_ON_OPENS:
		return s == HA_SLOT_EMPTY;
	case HA_SLOT_ON_OPENED:
		return s == HA_SLOT_OPENING;
	case HA_SLOT_ON_CONNECTS:
		return s == HA_SLOT_OPENING || s == HA_SLOT_REBUILDING;
	case HA_SLOT_ON_CONNECTED:
		return s == HA_SLOT_CONNECTING;
	default:
		return true;
	}
}

static void what_each_event_does_in_each_state(void **state)
{
	(void)state;
	for (unsigned i = 0; i < HA_SLOT_COUNT; i++) {
		enum ha_slot_state s = (enum ha_slot_state)i;

		for (unsigned j = 0; j < HA_SLOT_EVENT_COUNT; j++) {
			enum ha_slot_event e = (enum ha_slot_event)j;
			enum ha_slot_state to = next(s, e);

			assert_true(to < HA_SLOT_COUNT);
			/* What comes out of order is a bug, is said to be one, and changes nothing.
			 */
			assert_int_equal(action(s, e) == HA_SLOT_IMPOSSIBLE, !in_order(s, e));
			if (!in_order(s, e))
				assert_int_equal(to, s);
			/* Only a proof makes a path good, and only one that is connected. */
			if (up(to) && !up(s)) {
				assert_int_equal(s, HA_SLOT_PROBING);
				assert_int_equal(e, HA_SLOT_ON_PROVED);
			}
			/* Only a fence takes it out of use again. */
			if (up(s) && !up(to))
				assert_int_equal(e, HA_SLOT_ON_FENCED);
			/* What is connected is left when its heartbeats are lost. */
			assert_int_equal(action(s, e) == HA_SLOT_LEAVE,
					 s >= HA_SLOT_PROBING && e == HA_SLOT_ON_EXPIRED);
			/* Preregistering is for what is in use and becomes suspected. */
			assert_int_equal(action(s, e) == HA_SLOT_PREREGISTER,
					 s == HA_SLOT_GOOD && to == HA_SLOT_SUSPECTED);
			assert_int_equal(action(s, e) == HA_SLOT_RELAX,
					 s == HA_SLOT_SUSPECTED && to == HA_SLOT_GOOD);
			/* What is not there yet need not wait when its ports reach each other. */
			assert_int_equal(action(s, e) == HA_SLOT_RETRY,
					 s < HA_SLOT_PROBING && e == HA_SLOT_ON_ANSWERED);
		}
		assert_int_equal(next(s, HA_SLOT_ON_FENCED), HA_SLOT_EMPTY);
		assert_int_equal(action(s, HA_SLOT_ON_FENCED), HA_SLOT_NOTHING);
		/* A missing heartbeat makes nobody healthier, and does not take one out of use. */
		assert_int_equal(up(next(s, HA_SLOT_ON_MISSED)), up(s));
		/* Nor does an expired one: the failure that is noted does. */
		assert_int_equal(next(s, HA_SLOT_ON_EXPIRED), s);
	}
	assert_int_equal(next(HA_SLOT_GOOD, HA_SLOT_ON_MISSED), HA_SLOT_SUSPECTED);
	assert_int_equal(next(HA_SLOT_SUSPECTED, HA_SLOT_ON_ANSWERED), HA_SLOT_GOOD);
	assert_int_equal(next(HA_SLOT_SUSPECTED, HA_SLOT_ON_PROVED), HA_SLOT_SUSPECTED);
	assert_int_equal(next(HA_SLOT_GOOD, HA_SLOT_ON_PROVED), HA_SLOT_GOOD);
	assert_int_equal(next(HA_SLOT_EMPTY, HA_SLOT_ON_PROVED), HA_SLOT_EMPTY);
}

static void the_whole_circle(void **state)
{
	static const struct {
		enum ha_slot_event event;
		enum ha_slot_state to;
		enum ha_slot_action action;
	} circle[] = {
	    {HA_SLOT_ON_MISSED, HA_SLOT_SUSPECTED, HA_SLOT_PREREGISTER},
	    {HA_SLOT_ON_EXPIRED, HA_SLOT_SUSPECTED, HA_SLOT_LEAVE},
	    {HA_SLOT_ON_FENCED, HA_SLOT_EMPTY, HA_SLOT_NOTHING},
	    {HA_SLOT_ON_ANSWERED, HA_SLOT_EMPTY, HA_SLOT_RETRY},
	    {HA_SLOT_ON_OPENS, HA_SLOT_OPENING, HA_SLOT_NOTHING},
	    {HA_SLOT_ON_OPENED, HA_SLOT_REBUILDING, HA_SLOT_NOTHING},
	    {HA_SLOT_ON_CONNECTS, HA_SLOT_CONNECTING, HA_SLOT_NOTHING},
	    {HA_SLOT_ON_CONNECTED, HA_SLOT_PROBING, HA_SLOT_NOTHING},
	    {HA_SLOT_ON_PROVED, HA_SLOT_GOOD, HA_SLOT_NOTHING},
	};
	enum ha_slot_state slot = HA_SLOT_GOOD;

	(void)state;
	for (size_t i = 0; i < sizeof circle / sizeof circle[0]; i++) {
		assert_int_equal(action(slot, circle[i].event), circle[i].action);
		slot = next(slot, circle[i].event);
		assert_int_equal(slot, circle[i].to);
	}
	assert_int_equal(slot, HA_SLOT_GOOD);
}

static void a_sender_connects_what_it_has_made(void **state)
{
	(void)state;
	assert_int_equal(next(HA_SLOT_OPENING, HA_SLOT_ON_CONNECTS), HA_SLOT_CONNECTING);
}

static void everything_has_a_name_of_its_own(void **state)
{
	(void)state;
	for (unsigned i = 0; i < HA_SLOT_COUNT; i++)
		for (unsigned j = 0; j < i; j++)
			assert_string_not_equal(ha_slot_state_name(i), ha_slot_state_name(j));
	for (unsigned i = 0; i < HA_SLOT_EVENT_COUNT; i++)
		for (unsigned j = 0; j < i; j++)
			assert_string_not_equal(ha_slot_event_name(i), ha_slot_event_name(j));
	assert_string_equal(ha_slot_state_name(HA_SLOT_COUNT), "unknown");
	assert_string_equal(ha_slot_event_name(HA_SLOT_EVENT_COUNT), "unknown");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(what_each_event_does_in_each_state),
	    cmocka_unit_test(the_whole_circle),
	    cmocka_unit_test(a_sender_connects_what_it_has_made),
	    cmocka_unit_test(everything_has_a_name_of_its_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
