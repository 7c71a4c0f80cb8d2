/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the threads of a switch hand groups and children to each other, on one thread: what they say
 * to each other is read when the test says so, and time is what it says it is.
 */
#include "../unit/cmocka_all.h"

#include "switch_by_hand.h"

#include "base/bytes.h"
#include "tools/nccl-ha-switchd/workers.h"

#include <string.h>
#include <sys/epoll.h>

#define NODE	    2 /* this switch, the root of every tree, above two members */
#define TREES	    4
#define CHILDREN    4
#define EVENTS_MOST 100 /* of what is said in a test */

static struct by_hand s; /* of the first thread */
static struct ns_worker worker;
static struct ns_workers workers = {.of = &worker, .n = 1};
static struct ns_inbox back;
static struct by_hand_child children[CHILDREN];

static int setup(void **state)
{
	(void)state;
	memset(children, 0, sizeof(children));
	by_hand_open(&s);
	assert_true(ns_inbox_begin(&back));
	assert_true(ns_worker_begin(&worker, &s.set->ports[0], s.site, &back));
	ns_groups_share(&s.groups, 2, ns_workers_tell, &workers);
	return 0;
}

/* ---- what happens --------------------------------------------------------------------------- */

static void install(uint64_t group, uint8_t lanes, uint8_t spares)
{
	struct ha_part_place places[TREES];
	const struct ha_part part = {.group = group,
				     .unit_bytes = 1024,
				     .window = 2,
				     .members = 2,
				     .lanes = lanes,
				     .spares = spares,
				     .leader = s.at,
				     .n = lanes + spares,
				     .places = places};

	for (unsigned i = 0; i < part.n; i++)
		places[i] = (struct ha_part_place){
		    .tree = (uint8_t)i, .node = NODE, .children = 2, .parent = HA_PLAN_NONE};
	by_hand_install(&s, &part);
}

static void end_group(uint64_t group, uint64_t now_ns)
{
	uint8_t text[8];
	struct ha_writer w = {text};

	ha_put_uint(&w, group, 8);
	ns_groups_remove(&s.groups, &(struct ha_talk_frame){.length = 8, .text = text}, now_ns);
}

static const char *why;

static enum ns_admission admit(unsigned i)
{
	struct ns_child *child = &children[i].here;
	const enum ns_admission what = ns_groups_admit(&s.groups, child, 1, &why);

	if (what == NS_AWAY)
		ns_workers_give(&workers, child);
	return what;
}

static enum ns_admission join(unsigned i, uint64_t group, uint8_t tree, uint32_t epoch)
{
	const struct ha_join ask = {
	    .group = group, .node = NODE, .tree = tree, .epoch = epoch, .place = (uint16_t)(i % 2)};

	by_hand_ask(&s, &children[i], &ask);
	return admit(i);
}

/* The worker does all that there is to do. Returns whether there was anything. */
static bool work(void)
{
	struct epoll_event event;
	bool any = false;

	for (unsigned n = 0; epoll_wait(worker.groups.epoll, &event, 1, 1) == 1; n++) {
		assert_true(n < EVENTS_MOST);
		any = true;
		worker.loop.look(&worker.loop, event.data.ptr);
	}
	worker.loop.tick(&worker.loop);
	return any;
}

/* The first thread takes back whom it gets; returns how many. */
static unsigned take_back(void)
{
	struct ns_letter *letter;
	unsigned n = 0;

	for (; (letter = ns_inbox_take(&back)); n++) {
		struct ns_child *child = ha_container_of(letter, struct ns_child, letter);

		ns_groups_return(&s.groups, child);
		ha_talk_end(&child->line.talk);
	}
	return n;
}

static bool has_groups(const struct ns_groups *groups)
{
	return !ha_list_empty(&groups->all);
}

static uint64_t trees_of_worker(void)
{
	struct ha_switch_counts counts;

	ns_worker_count(&worker, &counts);
	assert_int_equal(counts.trees, worker.groups.n_trees);
	return counts.trees;
}

static int teardown(void **state)
{
	(void)state;
	(void)work(); /* as it does before it ends */
	ns_worker_end(&worker);
	assert_true(worker.is_left);
	(void)take_back();
	assert_int_equal(s.groups.sharing.away, 0);
	ns_worker_free(&worker);
	ns_inbox_end(&back);
	for (unsigned i = 0; i < CHILDREN; i++) {
		ns_groups_leave(&s.groups, &children[i].here);
		ha_talk_end(&children[i].here.line.talk);
		ha_talk_end(&children[i].there);
	}
	by_hand_close(&s);
	return 0;
}

/* ---- dealing -------------------------------------------------------------------------------- */

static void each_thread_gets_as_many_lanes_and_as_many_spares(void **state)
{
	const struct ns_sharing *of = &s.groups.sharing;

	(void)state;
	install(1, 2, 2);
	assert_int_equal(of->lanes[0], 1);
	assert_int_equal(of->lanes[1], 1);
	assert_int_equal(of->spares[0], 1);
	assert_int_equal(of->spares[1], 1);
	install(2, 1, 1); /* of several the last one, which has no strangers */
	assert_int_equal(of->lanes[1], 2);
	assert_int_equal(of->spares[1], 2);
	install(3, 2, 0);
	assert_int_equal(of->lanes[0], 2);
	assert_int_equal(of->lanes[1], 3);
}

static void who_has_fewest_is_known_when_a_group_has_gone(void **state)
{
	(void)state;
	install(1, 1, 0);
	install(2, 1, 0);
	assert_int_equal(join(0, 1, 0, 0), NS_AWAY);
	end_group(2, 5); /* which is the first thread's */
	ns_groups_tick(&s.groups, 6);
	install(3, 1, 0);
	assert_int_equal(join(1, 3, 0, 0), NS_JOINED);
}

/* ---- children ------------------------------------------------------------------------------- */

static void a_child_of_another_threads_tree_is_that_threads_until_it_has_left(void **state)
{
	(void)state;
	install(1, 2, 0);
	assert_int_equal(join(0, 1, 0, 0), NS_AWAY);
	assert_int_equal(join(1, 1, 1, 0), NS_JOINED);
	assert_true(work());
	assert_int_equal(trees_of_worker(), 1);
	assert_int_equal(s.groups.n_trees, 1);
	assert_true(by_hand_hear(&children[0]));
	assert_int_equal(children[0].there.heard.kind, HA_CTRL_JOINED);
	assert_int_equal(take_back(), 0);
	assert_false(ns_groups_are_left(&s.groups));
	ns_groups_leave(&s.groups, &children[1].here);
	assert_false(ns_groups_are_left(&s.groups));
	ha_talk_end(&children[0].there);
	assert_true(work());
	assert_int_equal(trees_of_worker(), 0);
	assert_int_equal(take_back(), 1);
	assert_true(ns_groups_are_left(&s.groups));
}

static void whom_it_refuses_it_gives_back_and_hears_no_more(void **state)
{
	(void)state;
	install(1, 1, 0);
	assert_int_equal(join(0, 1, 0, 0), NS_AWAY);
	assert_int_equal(join(2, 1, 0, 0), NS_AWAY); /* at the same place */
	assert_true(work());
	assert_int_equal(trees_of_worker(), 1);
	assert_null(children[0].here.refusal);
	assert_string_equal(children[2].here.refusal, "that place is taken");
	assert_true(ha_talk_say(&children[2].there, HA_CTRL_STATUS, NULL, "", 0));
	assert_false(work());
	assert_int_equal(take_back(), 1);
}

static void who_speaks_again_is_given_back(void **state)
{
	const struct ha_join ask = {.group = 1, .node = NODE};

	(void)state;
	install(1, 1, 0);
	by_hand_ask(&s, &children[0], &ask);
	assert_true(
	    ha_talk_say(&children[0].there, HA_CTRL_STATUS, NULL, "", 0)); /* not heard yet */
	assert_int_equal(admit(0), NS_AWAY);
	assert_true(work());
	assert_int_equal(take_back(), 1);
	assert_string_equal(children[0].here.refusal, "a switch is asked once, to join a tree");
	assert_int_equal(trees_of_worker(), 0);
}

/* ---- groups --------------------------------------------------------------------------------- */

static void a_later_epoch_ends_the_trees_of_all_threads(void **state)
{
	(void)state;
	install(1, 2, 0);
	assert_int_equal(join(0, 1, 0, 0), NS_AWAY);
	assert_true(work());
	assert_int_equal(join(1, 1, 1, 1), NS_JOINED);
	assert_true(work());
	assert_int_equal(trees_of_worker(), 0);
	assert_int_equal(take_back(), 1);
	assert_false(by_hand_hear(&children[0]));
	assert_int_equal(join(2, 1, 0, 0), NS_REFUSED);
	assert_string_equal(why, "that epoch is over");
	assert_int_equal(join(3, 1, 0, 1), NS_AWAY);
}

static void a_group_that_the_controller_may_not_know_is_kept_for_another_threads_trees(void **state)
{
	uint64_t now_ns = 1;

	(void)state;
	install(1, 1, 0);
	assert_int_equal(join(0, 1, 0, 0), NS_AWAY);
	assert_true(work());
	ns_groups_doubt(&s.groups, now_ns);
	ns_groups_tick(&s.groups, now_ns += NS_FORGOTTEN_NS + 1);
	assert_int_equal(join(1, 1, 0, 0), NS_AWAY);
	assert_true(work());
	ha_talk_end(&children[0].there);
	ha_talk_end(&children[1].there);
	assert_true(work());
	assert_int_equal(take_back(), 2);
	ns_groups_tick(&s.groups, now_ns += NS_FORGOTTEN_NS + 1);
	assert_false(has_groups(&s.groups));
	assert_true(work());
	assert_false(has_groups(&worker.groups));
}

/* Its children are still at the other thread when that is told to forget it. */
static void begin_to_forget(void)
{
	install(1, 1, 0);
	assert_int_equal(join(0, 1, 0, 0), NS_AWAY);
	assert_true(work());
	end_group(1, 1);
	ns_groups_tick(&s.groups, NS_OVER_NS);
	assert_false(work());
	assert_int_equal(trees_of_worker(), 1); /* they go by themselves */
	ns_groups_tick(&s.groups, NS_OVER_NS + 2);
	assert_true(has_groups(&s.groups));
}

static void a_group_that_is_over_is_kept_until_its_children_have_come_back(void **state)
{
	(void)state;
	begin_to_forget();
	assert_true(work());
	assert_false(has_groups(&worker.groups));
	assert_int_equal(trees_of_worker(), 0);
	assert_true(has_groups(&s.groups));
	assert_int_equal(take_back(), 1);
	ns_groups_tick(&s.groups, NS_OVER_NS + 3);
	assert_false(has_groups(&s.groups));
	assert_int_equal(s.groups.sharing.lanes[1], 0);
}

static void a_group_that_is_told_of_again_is_known_to_all_threads(void **state)
{
	(void)state;
	begin_to_forget();
	install(1, 1, 0);
	assert_true(work());
	assert_true(has_groups(&worker.groups));
	assert_int_equal(take_back(), 1);
	ns_groups_tick(&s.groups, NS_OVER_NS + 3);
	assert_int_equal(join(1, 1, 0, 0), NS_AWAY);
	assert_true(work());
	assert_int_equal(trees_of_worker(), 1);
}

static void a_drain_and_an_end_are_said_to_the_children_of_all_threads(void **state)
{
	(void)state;
	install(1, 1, 0);
	assert_int_equal(join(0, 1, 0, 0), NS_AWAY);
	ns_groups_drain(&s.groups);
	assert_int_equal(join(1, 1, 0, 0), NS_REFUSED);
	assert_true(work());
	assert_true(by_hand_hear(&children[0]));
	assert_int_equal(children[0].asked, 1);
	ns_groups_undrain(&s.groups);
	assert_int_equal(join(1, 1, 0, 0), NS_AWAY);
	assert_true(work());
	assert_int_equal(trees_of_worker(), 1);
	ns_groups_announce_end(&s.groups);
	assert_true(work());
	for (unsigned i = 0; i < 2; i++) {
		assert_true(by_hand_hear(&children[i]));
		assert_int_equal(children[i].asked, 2 - i);
	}
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(each_thread_gets_as_many_lanes_and_as_many_spares),
	    TEST(who_has_fewest_is_known_when_a_group_has_gone),
	    TEST(a_child_of_another_threads_tree_is_that_threads_until_it_has_left),
	    TEST(whom_it_refuses_it_gives_back_and_hears_no_more),
	    TEST(who_speaks_again_is_given_back),
	    TEST(a_later_epoch_ends_the_trees_of_all_threads),
	    TEST(a_group_that_the_controller_may_not_know_is_kept_for_another_threads_trees),
	    TEST(a_group_that_is_over_is_kept_until_its_children_have_come_back),
	    TEST(a_group_that_is_told_of_again_is_known_to_all_threads),
	    TEST(a_drain_and_an_end_are_said_to_the_children_of_all_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
