/* SPDX-License-Identifier: Apache-2.0 */
/* The intrusive list. */
#include "../cmocka_all.h"

#include "base/list.h"

struct item {
	int value;
	struct ha_list node;
};

/* The values in order, as decimal digits. */
static int digits(struct ha_list *list)
{
	struct ha_list *pos;
	int forward = 0, backward = 0, scale = 1;

	ha_list_for_each (pos, list)
		forward = forward * 10 + ha_container_of(pos, struct item, node)->value;
	for (pos = list->prev; pos != list; pos = pos->prev, scale *= 10)
		backward += ha_container_of(pos, struct item, node)->value * scale;
	assert_int_equal(forward, backward);
	return forward;
}

static void items_keep_their_order(void **state)
{
	struct item a = {.value = 1}, b = {.value = 2}, c = {.value = 3};
	struct ha_list list;

	(void)state;
	ha_list_init(&list);
	assert_true(ha_list_empty(&list));
	assert_null(ha_list_pop_front(&list));
	ha_list_push_back(&list, &a.node);
	ha_list_push_back(&list, &b.node);
	ha_list_push_back(&list, &c.node);
	assert_int_equal(digits(&list), 123);
	ha_list_remove(&b.node);
	ha_list_remove(&b.node); /* harmless */
	assert_int_equal(digits(&list), 13);
	assert_ptr_equal(ha_list_pop_front(&list), &a.node);
	assert_int_equal(digits(&list), 3);
	ha_list_push_back(&list, &a.node); /* a popped item may go back */
	assert_int_equal(digits(&list), 31);
}

static void safe_walk_may_remove_every_item(void **state)
{
	struct item items[5];
	struct ha_list list, *pos, *after;
	int seen = 0;

	(void)state;
	ha_list_init(&list);
	for (int i = 0; i < 5; i++)
		ha_list_push_back(&list, &items[i].node);
	ha_list_for_each_safe (pos, after, &list) {
		ha_list_remove(pos);
		seen++;
	}
	assert_int_equal(seen, 5);
	assert_true(ha_list_empty(&list));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(items_keep_their_order),
	    cmocka_unit_test(safe_walk_may_remove_every_item),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
