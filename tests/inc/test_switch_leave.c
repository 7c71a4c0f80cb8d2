/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a switch wants its trees to be left, without its process: an operator has drained it, it is
 * about to end, or a switch above wants it. Each reason lasts as long as it does, whatever becomes
 * of the others. Children and the switch above are by hand, over sockets.
 */
#include "../unit/cmocka_all.h"

#include "switch_by_hand.h"

#include <string.h>
#include <sys/epoll.h>

#define GROUP  77
#define NODE   2 /* this switch, behind two members */
#define PARENT 3

static struct by_hand s;
static struct by_hand_child children[2];
static struct ha_talk above; /* the connection to the switch above */

static int setup(void **state)
{
	struct ha_part_place place = {.tree = 0, .node = NODE, .children = 2, .parent = PARENT};
	struct ha_part part = {.group = GROUP,
			       .unit_bytes = 1024,
			       .window = 2,
			       .members = 2,
			       .lanes = 1,
			       .n = 1,
			       .places = &place};

	(void)state;
	memset(children, 0, sizeof(children));
	by_hand_open(&s);
	place.at = part.leader = s.at;
	by_hand_install(&s, &part);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		ns_groups_leave(&s.groups, &children[i].here);
		ha_talk_end(&children[i].here.line.talk);
		ha_talk_end(&children[i].there);
	}
	ha_talk_end(&above);
	by_hand_close(&s);
	return 0;
}

/* Everything that has been said is heard; the switch above answers who joins. */
static void hear_above(void)
{
	uint8_t text[HA_EDGE_ADDRESS_BYTES];
	struct ha_edge_address own;
	enum ha_talk_event event;

	while ((event = ha_talk_next(&above)) != HA_TALK_NOTHING) {
		assert_int_not_equal(event, HA_TALK_ENDED);
		if (event != HA_TALK_HEARD)
			continue;
		assert_int_equal(above.heard.kind, HA_CTRL_JOIN);
		ha_edge_address(&s.edge, &own);
		ha_edge_address_encode(&own, text);
		assert_true(ha_talk_say(&above, HA_CTRL_JOINED, NULL, text, sizeof(text)));
	}
}

static void hear_as_children(void)
{
	for (unsigned i = 0; i < 2; i++)
		if (children[i].there.site)
			assert_true(by_hand_hear(&children[i]));
}

static void hear(void)
{
	struct epoll_event event;

	for (unsigned quiet = 0; quiet < 3;) { /* on a socket of this machine it is there at once */
		quiet++;
		while (epoll_wait(s.epoll, &event, 1, 1) == 1) {
			((struct ns_line *)event.data.ptr)->look(event.data.ptr, 0);
			quiet = 0;
		}
		if (above.site)
			hear_above();
		hear_as_children();
	}
}

static enum ns_admission join(unsigned i, const char **why)
{
	const struct ha_join join = {.group = GROUP, .node = NODE, .place = (uint16_t)i};

	by_hand_ask(&s, &children[i], &join);
	return ns_groups_admit(&s.groups, &children[i].here, 1, why);
}

/* The first child, behind which the switch above is dialled. */
static void begin(void)
{
	const char *why = NULL;

	memset(&above, 0, sizeof(above));
	assert_int_equal(join(0, &why), NS_JOINED);
	by_hand_take(&s, &above);
	hear();
	assert_int_equal(children[0].asked, 0);
}

static void an_end_that_is_announced_is_not_taken_back_with_a_drain(void **state)
{
	const char *why = NULL;

	(void)state;
	begin();
	ns_groups_announce_end(&s.groups);
	hear();
	assert_int_equal(children[0].asked, 1);
	assert_false(s.groups.is_drained); /* which is what a controller would hear */
	ns_groups_drain(&s.groups);
	ns_groups_undrain(&s.groups);
	assert_int_equal(join(1, &why), NS_REFUSED);
	assert_string_equal(why, "this switch is about to end");
	hear();
	assert_int_equal(children[0].asked, 1);
}

static void a_drain_is_taken_back_and_said_again(void **state)
{
	const char *why = NULL;

	(void)state;
	begin();
	ns_groups_drain(&s.groups);
	assert_int_equal(join(1, &why), NS_REFUSED);
	assert_string_equal(why, "this switch is drained");
	ns_groups_undrain(&s.groups);
	assert_int_equal(join(1, &why), NS_JOINED);
	hear();
	assert_int_equal(children[0].asked, 1);
	assert_int_equal(children[1].asked, 0);
	ns_groups_drain(&s.groups);
	ns_groups_drain(&s.groups); /* is no news */
	hear();
	assert_int_equal(children[0].asked, 2);
	assert_int_equal(children[1].asked, 1);
}

/* A controller that has been started again says GO to this one, and that is not about that one. */
static void what_a_switch_above_wants_lasts_whatever_is_said_of_this_one(void **state)
{
	const char *why = NULL;

	(void)state;
	begin();
	assert_true(ha_talk_say(&above, HA_CTRL_DRAIN, NULL, "", 0));
	hear();
	assert_int_equal(children[0].asked, 1);
	ns_groups_undrain(&s.groups);
	assert_int_equal(join(1, &why), NS_JOINED);
	hear();
	assert_int_equal(children[0].asked, 1);
	assert_int_equal(children[1].asked, 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(an_end_that_is_announced_is_not_taken_back_with_a_drain),
	    TEST(a_drain_is_taken_back_and_said_again),
	    TEST(what_a_switch_above_wants_lasts_whatever_is_said_of_this_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
