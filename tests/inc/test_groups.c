/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of nccl-ha-ctrld by hand: time is a number, and answers are counted. */
#include "../unit/cmocka_all.h"

#include "tools/nccl-ha-ctrld/groups.h"

#include <stdio.h>
#include <string.h>

#define S 1000000000ull

static const char fabric[] =
    "version: 1\nswitches: [{name: s, capacity: {groups: 2}}]\n"
    "hosts: [{name: a, ports: [{nic: n}]}, {name: b, ports: [{nic: n}]}, {name: c, ports: [{nic: "
    "n}]}]\n"
    "links: [{a: a, b: s, gbps: 1}, {a: b, b: s, gbps: 1}, {a: c, b: s, gbps: 1}]\n";

/* What each member heard last. */
struct heard {
	struct nc_member member;
	unsigned plans, nones, parts, gos;
	char receipt[2048];
	size_t receipt_bytes;
	char text[1024];
	uint8_t key[HA_CTRL_SECRET_BYTES];
};

/* What the program of the switch hears. */
static struct {
	struct nc_serving serving;
	unsigned gos, drains, parts, overs;
	bool is_drained; /* it says so as it comes */
} the_switch;

static struct nc_topology topology;
static struct nc_groups groups;
static struct heard hosts[8];
static char why[256];

static void answer(void *arg, struct nc_member *member, enum ha_ctrl_kind kind,
		   struct nc_text *text, const uint8_t *key)
{
	struct heard *h = ha_container_of(member, struct heard, member);

	(void)arg;
	assert_true(text->users >= 1);
	assert_int_equal(kind == HA_CTRL_NONE || kind == HA_CTRL_GO, key == NULL);
	if (kind == HA_CTRL_GO) {
		h->gos++;
		return;
	}
	if (kind == HA_CTRL_RECEIPT) {
		assert_int_equal(member->rank, 0);
		assert_in_range(text->length, 1, sizeof(h->receipt));
		memcpy(h->receipt, text->bytes, text->length);
		h->receipt_bytes = text->length;
		return;
	}
	if (kind == HA_CTRL_PART) {
		h->parts++;
		assert_memory_equal(h->key, key, sizeof(h->key));
		return;
	}
	snprintf(h->text, sizeof(h->text), "%.*s", (int)text->length, text->bytes);
	h->plans += key != NULL;
	h->nones += key == NULL;
	if (key)
		memcpy(h->key, key, sizeof(h->key));
}

static void instruct(void *arg, struct nc_serving *serving, enum ha_ctrl_kind kind,
		     struct nc_text *text, const uint8_t *key)
{
	(void)arg;
	assert_true(serving == &the_switch.serving && text->users >= 1);
	assert_int_equal(kind == HA_CTRL_PART, key != NULL);
	the_switch.gos += kind == HA_CTRL_GO;
	the_switch.drains += kind == HA_CTRL_DRAIN;
	the_switch.parts += kind == HA_CTRL_PART;
	the_switch.overs += kind == HA_CTRL_OVER;
}

static bool serve_at(uint16_t port)
{
	const struct nc_service service = {
	    .vertex = topology.n_ports,
	    .at = {.in = {.sin_family = AF_INET, .sin_port = htons(port)}},
	    .is_drained = the_switch.is_drained};

	return nc_groups_serve(&groups, &the_switch.serving, &service, why, sizeof(why));
}

static bool serve(void)
{
	return serve_at(1);
}

static int setup(void **state)
{
	struct nc_fault fault;

	(void)state;
	memset(hosts, 0, sizeof(hosts));
	if (!nc_topology_read(&topology, fabric, strlen(fabric), &fault))
		return -1;
	memset(&the_switch, 0, sizeof(the_switch));
	groups = (struct nc_groups){
	    .verdict_ns = 10 * S, .lease_ns = 2 * S, .answer = answer, .instruct = instruct};
	return nc_groups_begin(&groups, &topology) && serve() ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	nc_groups_end(&groups);
	nc_topology_free(&topology);
	return 0;
}

static bool ask(struct heard *host, const char *group, unsigned rank, unsigned ranks, uint64_t at)
{
	struct nc_ask what = {
	    .rank = rank, .ranks = ranks, .port = rank, .unit_bytes = 1 << 16, .window = 16};

	snprintf(what.group, sizeof(what.group), "%s", group);
	return nc_groups_ask(&groups, &host->member, &what, at, why, sizeof(why));
}

static void make(struct heard *first, const char *group, uint64_t at)
{
	for (unsigned rank = 0; rank < 3; rank++)
		assert_true(ask(&first[rank], group, rank, 3, at));
	for (unsigned rank = 0; rank < 3; rank++)
		assert_int_equal(first[rank].plans, 1);
}

static void the_last_member_brings_the_plan_to_all(void **state)
{
	(void)state;
	assert_true(ask(&hosts[2], "g", 2, 3, 1));
	assert_true(ask(&hosts[0], "g", 0, 3, 2));
	assert_int_equal(hosts[0].plans + hosts[2].plans, 0);
	assert_true(ask(&hosts[1], "g", 1, 3, 3));
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(hosts[i].plans, 1);
		assert_int_equal(hosts[i].parts, 1);
		assert_string_equal(hosts[i].text, hosts[0].text);
		assert_memory_equal(hosts[i].key, hosts[0].key, sizeof(hosts[0].key));
	}
	assert_non_null(strstr(hosts[0].text, "[\"a/n\",\"b/n\",\"c/n\"]"));
	assert_int_equal(groups.use.switches[0].groups, 1);
}

/* Not a nanosecond before the limit. */
static void the_time_limit_is_counted_from_the_first_member(void **state)
{
	(void)state;
	assert_true(ask(&hosts[1], "g", 1, 3, 5));
	assert_true(ask(&hosts[2], "g", 2, 3, 9 * S));
	assert_int_equal(nc_groups_tick(&groups, 10 * S + 4), 10 * S + 5);
	assert_int_equal(hosts[1].nones, 0);
	nc_groups_tick(&groups, 10 * S + 5);
	assert_int_equal(hosts[1].nones, 1);
	assert_int_equal(hosts[2].nones, 1);
	assert_non_null(strstr(hosts[1].text, "1 of 3 members have not asked in 10000 ms; the "
					      "first is member 0"));
	/* Who comes late hears the same. */
	assert_true(ask(&hosts[0], "g", 0, 3, 11 * S));
	assert_string_equal(hosts[0].text, hosts[1].text);
	assert_null(hosts[0].member.group);
}

static void a_verdict_without_a_plan_is_forgotten_in_the_end(void **state)
{
	uint64_t kept;

	(void)state;
	assert_true(ask(&hosts[1], "g", 1, 3, 1));
	nc_groups_lost(&groups, &hosts[1].member, 2);
	kept = nc_groups_tick(&groups, 3);
	assert_int_equal(kept, 2 + NC_LATE_NS);
	assert_int_equal(groups.n, 1);
	assert_int_equal(nc_groups_tick(&groups, kept), 0);
	assert_int_equal(groups.n, 0);
	make(&hosts[3], "g", kept);
}

static void a_lease_ends_unless_member_0_is_back_in_time(void **state)
{
	char plan[sizeof(hosts[0].text)];

	(void)state;
	make(hosts, "g", 1);
	memcpy(plan, hosts[0].text, sizeof(plan));
	assert_int_equal(nc_groups_tick(&groups, 100 * S), 0);
	nc_groups_lost(&groups, &hosts[1].member, 100 * S);
	assert_int_equal(nc_groups_tick(&groups, 200 * S), 0);
	nc_groups_lost(&groups, &hosts[0].member, 200 * S);
	assert_int_equal(nc_groups_tick(&groups, 201 * S), 202 * S);
	assert_true(ask(&hosts[4], "g", 0, 3, 202 * S));
	assert_string_equal(hosts[4].text, plan);
	assert_memory_equal(hosts[4].key, hosts[0].key, sizeof(hosts[0].key));
	assert_int_equal(nc_groups_tick(&groups, 300 * S), 0);
	assert_int_equal(groups.use.switches[0].groups, 1);
	nc_groups_lost(&groups, &hosts[4].member, 300 * S);
	nc_groups_tick(&groups, 302 * S);
	assert_int_equal(groups.n, 0);
	assert_int_equal(groups.use.switches[0].groups, 0);
	assert_int_equal(groups.use.switches[0].bytes, 0);
	assert_null(hosts[2].member.group); /* who is still there is in no group */
	assert_int_equal(the_switch.parts, 1);
	assert_int_equal(the_switch.overs, 1);
}

/* One program at a time; without one the switch is in no plan, and what it was in stays. */
static void a_switch_is_in_plans_as_long_as_a_program_serves_it(void **state)
{
	struct nc_serving other = {0};
	const struct nc_service service = {
	    .vertex = topology.n_ports,
	    .at = {.in = {.sin_family = AF_INET, .sin_port = htons(2)}}};

	(void)state;
	make(hosts, "g", 1);
	assert_false(nc_groups_serve(&groups, &other, &service, why, sizeof(why)));
	assert_string_equal(why, "another program serves s");
	nc_groups_unserve(&groups, &other);
	nc_groups_unserve(&groups, &the_switch.serving);
	for (unsigned rank = 0; rank < 3; rank++)
		assert_true(ask(&hosts[3 + rank], "h", rank, 3, 2));
	assert_int_equal(hosts[3].nones, 1);
	assert_non_null(strstr(hosts[3].text, "that a program serves"));
	assert_int_equal(groups.use.switches[0].groups, 1);
	assert_true(serve());
	assert_int_equal(the_switch.gos, 2);
	assert_int_equal(the_switch.parts, 2); /* of g once more */
}

static void only_member_0_says_that_a_group_is_over(void **state)
{
	(void)state;
	make(hosts, "g", 1);
	nc_groups_leave(&groups, &hosts[1].member, 2);
	assert_int_equal(groups.use.switches[0].groups, 1);
	nc_groups_leave(&groups, &hosts[0].member, 3);
	assert_int_equal(groups.n, 0);
	assert_int_equal(groups.use.switches[0].groups, 0);
	/* One that is still gathering has its verdict by it. */
	assert_true(ask(&hosts[3], "h", 0, 3, 4));
	assert_true(ask(&hosts[4], "h", 1, 3, 4));
	nc_groups_leave(&groups, &hosts[3].member, 5);
	assert_int_equal(hosts[4].nones, 1);
	assert_non_null(strstr(hosts[4].text, "member 0 has left"));
}

/* Members know where it was when they got their plan, and nothing newer. */
static void lanes_are_there_while_each_switch_is_served_where_it_was(void **state)
{
	(void)state;
	assert_false(nc_groups_are_lanes_there(&groups, &hosts[0].member)); /* of no group */
	assert_true(ask(&hosts[0], "g", 0, 3, 1));
	assert_false(nc_groups_are_lanes_there(&groups, &hosts[0].member)); /* of no plan */
	assert_true(ask(&hosts[1], "g", 1, 3, 1));
	assert_true(ask(&hosts[2], "g", 2, 3, 1));
	assert_true(nc_groups_are_lanes_there(&groups, &hosts[0].member));
	assert_false(nc_groups_are_lanes_there(&groups, &hosts[1].member));
	nc_groups_unserve(&groups, &the_switch.serving);
	assert_false(nc_groups_are_lanes_there(&groups, &hosts[0].member));
	assert_true(serve_at(2));
	assert_false(nc_groups_are_lanes_there(&groups, &hosts[0].member));
	nc_groups_unserve(&groups, &the_switch.serving);
	assert_true(serve());
	assert_true(nc_groups_are_lanes_there(&groups, &hosts[0].member));
}

/* Its groups are told by the switch, and go back when it is over. */
static void a_switch_that_is_drained_is_in_no_new_plan_and_nobody_goes_back_to_it(void **state)
{
	(void)state;
	make(hosts, "g", 1);
	nc_groups_drain(&groups, topology.n_ports, true);
	assert_int_equal(the_switch.drains, 1);
	assert_false(nc_groups_are_lanes_there(&groups, &hosts[0].member));
	for (unsigned rank = 0; rank < 3; rank++)
		assert_true(ask(&hosts[3 + rank], "h", rank, 3, 2));
	assert_int_equal(hosts[3].nones, 1);
	nc_groups_drain(&groups, topology.n_ports, false);
	assert_int_equal(the_switch.gos, 2);
	assert_int_equal(the_switch.drains, 1);
	assert_true(nc_groups_are_lanes_there(&groups, &hosts[0].member));
}

/* The controller's word counts, once it has one; before that the program's does. */
static void a_drain_outlives_the_switchs_program_and_the_controller(void **state)
{
	(void)state;
	nc_groups_drain(&groups, topology.n_ports, true);
	nc_groups_unserve(&groups, &the_switch.serving);
	assert_true(serve());
	assert_int_equal(the_switch.drains, 2);
	nc_groups_unserve(&groups, &the_switch.serving);
	nc_groups_drain(&groups, topology.n_ports, false); /* while nobody is there */
	the_switch.is_drained = true;
	assert_true(serve());
	assert_int_equal(the_switch.drains, 2);
	assert_false(groups.use.switches[0].is_idle);
	nc_groups_end(&groups);
	memset(&the_switch.serving, 0, sizeof(the_switch.serving));
	assert_true(nc_groups_begin(&groups, &topology) && serve());
	assert_int_equal(the_switch.drains, 3);
	assert_true(groups.use.switches[0].is_idle);
}

/* Another controller, which knows nothing, of the same topology. */
static void start_again(void)
{
	nc_groups_end(&groups);
	memset(&the_switch, 0, sizeof(the_switch));
	assert_true(nc_groups_begin(&groups, &topology));
}

static bool know(struct heard *host, const struct heard *as, size_t length)
{
	return nc_groups_know(&groups, &host->member, as->receipt, length, as->key, 5, why,
			      sizeof(why));
}

static void
a_controller_that_was_started_again_knows_groups_by_what_their_member_0_has(void **state)
{
	uint64_t bytes;

	(void)state;
	make(hosts, "g", 1);
	bytes = groups.use.switches[0].bytes;
	start_again();
	assert_true(know(&hosts[4], &hosts[0], hosts[0].receipt_bytes));
	assert_int_equal(groups.use.switches[0].bytes, bytes);
	assert_int_equal(groups.use.switches[0].groups, 1);
	assert_int_equal(groups.use.loads[0], NC_WHOLE);
	assert_string_equal(hosts[4].text, hosts[0].text);
	assert_memory_equal(hosts[4].key, hosts[0].key, sizeof(hosts[0].key));
	assert_int_equal(hosts[4].receipt_bytes, hosts[0].receipt_bytes);
	assert_memory_equal(hosts[4].receipt, hosts[0].receipt, hosts[0].receipt_bytes);
	assert_true(serve()); /* after the group */
	assert_int_equal(the_switch.parts, 1);
	assert_true(nc_groups_are_lanes_there(&groups, &hosts[4].member));
	/* It counts as any other one: for who asks, and when member 0 goes. */
	assert_true(ask(&hosts[5], "g", 1, 3, 6));
	assert_int_equal(hosts[5].plans, 1);
	nc_groups_lost(&groups, &hosts[4].member, 7);
	assert_true(know(&hosts[6], &hosts[0], hosts[0].receipt_bytes));
	assert_int_equal(nc_groups_tick(&groups, 300 * S), 0);
	nc_groups_leave(&groups, &hosts[6].member, 300 * S);
	assert_int_equal(groups.n, 0);
	assert_int_equal(groups.use.switches[0].bytes, 0);
	assert_int_equal(groups.use.loads[0], 0);
}

/* Each piece of a receipt, and each one in which a number or a name is another one. */
static void a_receipt_that_is_none_changes_nothing(void **state)
{
	struct heard altered;
	unsigned known;

	(void)state;
	make(hosts, "g", 1);
	start_again();
	for (size_t n = 0; n < hosts[0].receipt_bytes; n++) {
		if (n % 16 == 0)
			assert_false(know(&hosts[4], &hosts[0], n));
		altered = hosts[0];
		altered.receipt[n] ^= 1;
		if (know(&hosts[4], &altered, altered.receipt_bytes))
			nc_groups_leave(&groups, &hosts[4].member, 6);
		assert_int_equal(groups.n, 0);
		assert_int_equal(groups.use.switches[0].groups, 0);
		assert_int_equal(groups.use.switches[0].bytes, 0);
		assert_int_equal(groups.use.loads[0], 0);
	}
	known = hosts[4].plans;
	assert_true(serve());
	for (unsigned rank = 0; rank < 3; rank++)
		assert_true(ask(&hosts[4 + rank], "g", rank, 3, 7));
	nc_groups_lost(&groups, &hosts[4].member, 8); /* of another group of that name */
	assert_int_equal(hosts[4].plans, hosts[5].plans + known);
	assert_false(know(&hosts[7], &hosts[0], hosts[0].receipt_bytes));
	assert_non_null(strstr(why, "another group has that name"));
}

static struct nc_group_view seen;

static void see(void *arg, const struct nc_group_view *group)
{
	(void)arg;
	seen = *group;
}

static void member_0_says_by_which_way_its_group_goes(void **state)
{
	const uint8_t said[8] = {5, 0, 0, 0, 2, 0, 0, 0};

	(void)state;
	assert_false(nc_groups_way(&groups, &hosts[0].member, said, sizeof(said)));
	make(hosts, "g", 1);
	assert_false(nc_groups_way(&groups, &hosts[1].member, said, sizeof(said)));
	assert_false(nc_groups_way(&groups, &hosts[0].member, said, sizeof(said) - 1));
	assert_true(nc_groups_way(&groups, &hosts[0].member, said, sizeof(said)));
	nc_groups_each(&groups, see, NULL);
	assert_int_equal(seen.epoch, 5);
	assert_int_equal(seen.way, 2);
	assert_int_equal(seen.ports[2], 2);
	assert_int_equal(seen.deadline_ns, 0);
	nc_groups_lost(&groups, &hosts[0].member, 3 * S);
	nc_groups_each(&groups, see, NULL);
	assert_int_equal(seen.deadline_ns, 5 * S);
}

static void what_a_switch_has_counted_is_its_programs(void **state)
{
	const struct ha_switch_counts counts = {.trees = 1, .units = 5, .refused = 7};
	uint8_t text[HA_SWITCH_COUNTS_BYTES];

	(void)state;
	ha_switch_counts_encode(&counts, text);
	assert_false(nc_groups_count(&groups, &(struct nc_serving){0}, text, sizeof(text)));
	assert_false(nc_groups_count(&groups, &the_switch.serving, text, sizeof(text) - 8));
	assert_true(nc_groups_count(&groups, &the_switch.serving, text, sizeof(text)));
	assert_true(groups.counted[0].is_said);
	assert_memory_equal(&groups.counted[0].counts, &counts, sizeof(counts));
	nc_groups_unserve(&groups, &the_switch.serving);
	assert_false(groups.counted[0].is_said);
}

static void a_rank_is_taken_once(void **state)
{
	(void)state;
	assert_true(ask(&hosts[0], "g", 0, 3, 1));
	assert_false(ask(&hosts[1], "g", 0, 3, 2));
	assert_string_equal(why, "member 0 of group g is there already");
	assert_int_equal(hosts[0].nones, 0);
	/* That one took nobody's place. */
	assert_true(ask(&hosts[1], "g", 1, 3, 3));
	assert_true(ask(&hosts[2], "g", 2, 3, 3));
	assert_int_equal(hosts[0].plans, 1);
}

static void expect_told(unsigned gos, unsigned nones)
{
	unsigned heard_go = 0, heard_none = 0;

	for (unsigned i = 0; i < 3; i++) {
		heard_go += hosts[i].gos;
		heard_none += hosts[i].nones;
	}
	assert_int_equal(heard_go, gos);
	assert_int_equal(heard_none, nones);
}

static void a_group_that_has_begun_is_given_up_by_nobody(void **state)
{
	(void)state;
	make(hosts, "g", 1);
	assert_false(nc_groups_all_here(&groups, &hosts[1].member)); /* member 0 alone says so */
	assert_true(nc_groups_all_here(&groups, &hosts[0].member));
	expect_told(1, 0);
	assert_true(nc_groups_give_up(&groups, &hosts[2].member, 2));
	assert_int_equal(hosts[2].gos, 1);
	/* Nor when member 0 has died behind its word, to others or to none. */
	nc_groups_lost(&groups, &hosts[0].member, 3);
	assert_true(nc_groups_give_up(&groups, &hosts[1].member, 3));
	assert_int_equal(hosts[1].gos, 1);
	expect_told(3, 0);
	assert_int_equal(groups.use.switches[0].groups, 1);
}

static void a_group_that_has_begun_is_kept_for_who_has_not_hung_up(void **state)
{
	(void)state;
	make(hosts, "g", 1);
	assert_true(nc_groups_all_here(&groups, &hosts[0].member));
	nc_groups_lost(&groups, &hosts[2].member, 2); /* has heard it from member 0 */
	nc_groups_lost(&groups, &hosts[0].member, 3);
	assert_int_equal(nc_groups_tick(&groups, 5 * S), 7 * S);
	assert_true(nc_groups_give_up(&groups, &hosts[1].member, 6 * S));
	assert_int_equal(hosts[1].gos, 1);
	nc_groups_lost(&groups, &hosts[1].member, 6 * S);
	assert_int_equal(nc_groups_tick(&groups, 7 * S), 0);
	assert_int_equal(groups.n, 0);
	assert_int_equal(groups.use.switches[0].groups, 0);
}

static void a_group_that_a_member_has_given_up_is_begun_by_nobody(void **state)
{
	(void)state;
	for (unsigned is_lost = 0; is_lost < 2; is_lost++) {
		memset(hosts, 0, sizeof(hosts));
		make(hosts, is_lost ? "h" : "g", 1);
		if (is_lost)
			nc_groups_lost(&groups, &hosts[0].member, 1);
		assert_true(nc_groups_give_up(&groups, &hosts[2].member, 2));
		expect_told(0, is_lost ? 2 : 3);
		assert_non_null(strstr(hosts[1].text, "member 2 has not heard from member 0 that "
						      "all are there"));
		assert_int_equal(groups.use.switches[0].groups, 0);
		assert_int_equal(the_switch.overs, is_lost + 1);
		if (!is_lost) {
			assert_true(nc_groups_all_here(&groups, &hosts[0].member));
			assert_int_equal(hosts[0].nones, 2);
		}
		assert_true(nc_groups_give_up(&groups, &hosts[1].member, 3));
		assert_int_equal(hosts[1].nones, 2);
		expect_told(0, is_lost ? 3 : 5);
	}
}

/* Nor one that has none of both. */
static void a_group_without_a_plan_is_neither_begun_nor_given_up(void **state)
{
	(void)state;
	assert_true(ask(&hosts[0], "g", 0, 3, 1));
	assert_false(nc_groups_all_here(&groups, &hosts[0].member));
	assert_false(nc_groups_give_up(&groups, &hosts[0].member, 1));
	assert_false(nc_groups_all_here(&groups, &hosts[1].member));
	assert_false(nc_groups_give_up(&groups, &hosts[1].member, 1));
	expect_told(0, 0);
}

static void verdicts_for_who_comes_late_make_room_for_groups(void **state)
{
	struct heard *many = calloc(NC_GROUPS + 1, sizeof(*many));
	char name[16];

	(void)state;
	for (unsigned i = 0; i < NC_GROUPS; i++) {
		snprintf(name, sizeof(name), "g%u", i);
		assert_true(ask(&many[i], name, 1, 2, 1));
	}
	assert_false(ask(&many[NC_GROUPS], "more", 0, 2, 1));
	assert_string_equal(why, "the controller has 4096 groups and no room for more");
	nc_groups_lost(&groups, &many[7].member, 2);
	assert_true(ask(&many[NC_GROUPS], "more", 0, 2, 3));
	assert_int_equal(groups.n, NC_GROUPS);
	nc_groups_end(&groups);
	assert_true(nc_groups_begin(&groups, &topology));
	free(many);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(the_last_member_brings_the_plan_to_all),
	    TEST(the_time_limit_is_counted_from_the_first_member),
	    TEST(a_verdict_without_a_plan_is_forgotten_in_the_end),
	    TEST(a_lease_ends_unless_member_0_is_back_in_time),
	    TEST(a_switch_is_in_plans_as_long_as_a_program_serves_it),
	    TEST(only_member_0_says_that_a_group_is_over),
	    TEST(lanes_are_there_while_each_switch_is_served_where_it_was),
	    TEST(a_switch_that_is_drained_is_in_no_new_plan_and_nobody_goes_back_to_it),
	    TEST(a_drain_outlives_the_switchs_program_and_the_controller),
	    TEST(member_0_says_by_which_way_its_group_goes),
	    TEST(a_controller_that_was_started_again_knows_groups_by_what_their_member_0_has),
	    TEST(a_receipt_that_is_none_changes_nothing),
	    TEST(what_a_switch_has_counted_is_its_programs),
	    TEST(a_rank_is_taken_once),
	    TEST(verdicts_for_who_comes_late_make_room_for_groups),
	    TEST(a_group_that_has_begun_is_given_up_by_nobody),
	    TEST(a_group_that_has_begun_is_kept_for_who_has_not_hung_up),
	    TEST(a_group_that_a_member_has_given_up_is_begun_by_nobody),
	    TEST(a_group_without_a_plan_is_neither_begun_nor_given_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
