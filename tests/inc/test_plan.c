/* SPDX-License-Identifier: Apache-2.0 */
#include "../unit/cmocka_all.h"

#include "inc/cut.h"
#include "inc/plan.h"

#include <stdbool.h>
#include <string.h>

#define NONE HA_PLAN_NONE

static struct ha_plan plan;
static struct ha_plan_where where;

static enum ha_plan_fault make(unsigned int members, unsigned int switches, const uint16_t *parent)
{
	const uint16_t *lanes[] = {parent};

	return ha_plan_make(&plan, members, switches, 1, lanes, &where);
}

/* ---- trees ---------------------------------------------------------------------------------- */

static void expect_children(uint16_t node, const uint16_t *children, unsigned int n)
{
	const struct ha_plan_tree *tree = &plan.tree[0];

	assert_int_equal(tree->node[node].children, n);
	for (unsigned int i = 0; i < n; i++) {
		assert_int_equal(ha_plan_child(tree, node, i), children[i]);
		assert_int_equal(tree->node[children[i]].place, i);
		assert_int_equal(tree->node[children[i]].parent, node);
	}
}

static void one_switch_has_the_members_in_their_order(void **state)
{
	static const uint16_t parent[] = {3, 3, 3, NONE}, children[] = {0, 1, 2};

	(void)state;
	assert_int_equal(make(3, 1, parent), HA_PLAN_OK);
	assert_int_equal(plan.tree[0].root, 3);
	expect_children(3, children, 3);
	ha_plan_free(&plan);
}

/* Members 0 and 3 below one switch, 1 and 4 below another one, 2 below the third with these two.
 * Whatever the switches' numbers, the order is that of the lowest member: (0 3), (1 4), 2. */
static void children_come_in_the_order_of_the_lowest_member(void **state)
{
	static const uint16_t numbers[][3] = {{5, 6, 7}, {5, 7, 6}, {6, 5, 7},
					      {6, 7, 5}, {7, 5, 6}, {7, 6, 5}};

	(void)state;
	for (size_t i = 0; i < 6; i++) {
		const uint16_t *s = numbers[i], a[] = {0, 3}, b[] = {1, 4}, top[] = {s[0], s[1], 2};
		uint16_t parent[8] = {s[0], s[1], s[2], s[0], s[1]};

		parent[s[0]] = parent[s[1]] = s[2];
		parent[s[2]] = NONE;
		assert_int_equal(make(5, 3, parent), HA_PLAN_OK);
		assert_int_equal(plan.tree[0].root, s[2]);
		expect_children(s[0], a, 2);
		expect_children(s[1], b, 2);
		expect_children(s[2], top, 3);
		ha_plan_free(&plan);
	}
}

static void lanes_have_trees_of_their_own(void **state)
{
	static const uint16_t first[] = {2, 2, NONE, NONE}, second[] = {3, 3, NONE, NONE};
	const uint16_t *lanes[] = {first, second};

	(void)state;
	assert_int_equal(ha_plan_make(&plan, 2, 2, 2, lanes, &where), HA_PLAN_OK);
	assert_int_equal(plan.tree[0].root, 2);
	assert_int_equal(plan.tree[1].root, 3);
	assert_int_equal(plan.tree[1].node[2].children, 0); /* not in that tree */
	ha_plan_free(&plan);
}

static void a_chain_of_switches_is_a_tree(void **state)
{
	static const uint16_t parent[] = {1, 2, 3, NONE}, child[] = {2};

	(void)state;
	assert_int_equal(make(1, 3, parent), HA_PLAN_OK);
	expect_children(3, child, 1);
	ha_plan_free(&plan);
}

static void what_is_no_tree_is_named(void **state)
{
	static const struct {
		unsigned int members, switches;
		uint16_t parent[6];
		enum ha_plan_fault fault;
		uint16_t node;
	} cases[] = {
	    {2, 1, {2, NONE, NONE}, HA_PLAN_ORPHAN, 1},
	    {2, 1, {2, 1, NONE}, HA_PLAN_PARENT, 1}, /* itself, a member */
	    {2, 1, {2, 3, NONE}, HA_PLAN_PARENT, 1}, /* nobody */
	    {2, 2, {2, 3, NONE, NONE}, HA_PLAN_ROOTS, 3},
	    {2, 2, {2, 2, 3, 2}, HA_PLAN_LOOP, 0},	 /* no root at all */
	    {2, 3, {2, 2, NONE, 4, 3}, HA_PLAN_LOOP, 3}, /* beside the tree */
	    {1, 1, {1, 1}, HA_PLAN_LOOP, 0},		 /* a switch below itself */
	    {2, 2, {2, 2, NONE, 2}, HA_PLAN_IDLE, 3},
	    {0, 1, {NONE}, HA_PLAN_SIZE, NONE},
	    {1, 0, {NONE}, HA_PLAN_SIZE, NONE},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(make(cases[i].members, cases[i].switches, cases[i].parent),
				 cases[i].fault);
		assert_int_equal(where.node, cases[i].node);
		assert_int_equal(where.lane, cases[i].node == NONE ? NONE : 0);
		assert_null(plan.tree[0].node);
	}
	assert_int_equal(ha_plan_make(&plan, 1, 1, HA_PLAN_LANES + 1, NULL, &where), HA_PLAN_SIZE);
	assert_int_equal(ha_plan_make(&plan, UINT32_MAX, 2, 1, NULL, &where), HA_PLAN_SIZE);
	for (int fault = 0; fault < HA_PLAN_FAULTS; fault++)
		assert_true(strlen(ha_plan_fault_text((enum ha_plan_fault)fault)) > 0);
}

static void a_switch_has_thirty_two_children(void **state)
{
	uint16_t parent[35];

	(void)state;
	for (int i = 0; i < 35; i++)
		parent[i] = 32;
	parent[32] = NONE;
	assert_int_equal(make(32, 1, parent), HA_PLAN_OK);
	ha_plan_free(&plan);
	for (int i = 0; i < 33; i++)
		parent[i] = 33;
	parent[33] = NONE;
	assert_int_equal(make(33, 1, parent), HA_PLAN_WIDE);
	assert_int_equal(where.node, 33);
}

/* ---- units ---------------------------------------------------------------------------------- */

static const struct ha_cut cuts[] = {
    {0, 0, 64},
    {0, 1, 64},
    {7, 63, 64},
    {7, 64, 64},
    {7, 65, 64},
    {5, 640, 64},
    {5, 641, 64},
    {1, 4032, 65536},
    {1, 4033, 65536},
    {9, 65536, 65536},
    {9, 65537, 65536},
    {3, 1u << 30, 65536},
    {3, ((uint64_t)1 << 40) - 8, 65536},
};

#define N_CUTS (sizeof(cuts) / sizeof(cuts[0]))

/* Without a gap, each as large as can be, and of one size but for the last. */
static void units_are_the_whole_vector(void **state)
{
	(void)state;
	for (size_t i = 0; i < N_CUTS; i++) {
		uint64_t n = ha_cut_units(&cuts[i]), end = 0;

		if (n > 100000)
			continue;
		assert_true(n > 0);
		for (uint64_t u = cuts[i].first; u < cuts[i].first + n; u++) {
			struct ha_piece piece = ha_cut_piece(&cuts[i], u);

			assert_true(piece.offset == end);
			assert_true(piece.bytes == cuts[i].unit_bytes ||
				    u + 1 == cuts[i].first + n);
			assert_true(piece.bytes > 0 || cuts[i].bytes == 0);
			end += piece.bytes;
		}
		assert_true(end == cuts[i].bytes);
	}
}

/* A unit keeps its number when the lanes become more or fewer. */
static void a_unit_is_the_same_in_any_number_of_lanes(void **state)
{
	(void)state;
	for (unsigned int lanes = 1; lanes <= HA_PLAN_LANES; lanes++)
		for (uint64_t u = 0; u < 100; u++)
			assert_true(
			    ha_cut_unit(ha_cut_index(u, lanes), ha_cut_lane(u, lanes), lanes) == u);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(one_switch_has_the_members_in_their_order),
	    cmocka_unit_test(children_come_in_the_order_of_the_lowest_member),
	    cmocka_unit_test(lanes_have_trees_of_their_own),
	    cmocka_unit_test(a_chain_of_switches_is_a_tree),
	    cmocka_unit_test(what_is_no_tree_is_named),
	    cmocka_unit_test(a_switch_has_thirty_two_children),
	    cmocka_unit_test(units_are_the_whole_vector),
	    cmocka_unit_test(a_unit_is_the_same_in_any_number_of_lanes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
