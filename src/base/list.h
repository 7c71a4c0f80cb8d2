/* SPDX-License-Identifier: Apache-2.0 */
/* Intrusive doubly linked list. An empty list, and a node on no list, points at itself. */
#ifndef HA_BASE_LIST_H
#define HA_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct ha_list {
	struct ha_list *next, *prev;
};

/* The struct of type `type` whose member `member` is at `ptr`. */
#define ha_container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

static inline void ha_list_init(struct ha_list *list)
{
	list->next = list->prev = list;
}

static inline bool ha_list_empty(const struct ha_list *list)
{
	return list->next == list;
}

static inline void ha_list_insert_between(struct ha_list *node, struct ha_list *prev,
					  struct ha_list *next)
{
	node->prev = prev;
	node->next = next;
	prev->next = node;
	next->prev = node;
}

static inline void ha_list_push_back(struct ha_list *list, struct ha_list *node)
{
	ha_list_insert_between(node, list->prev, list);
}

/* Leaves the node on no list, so that removing it again is harmless. */
static inline void ha_list_remove(struct ha_list *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
	ha_list_init(node);
}

/* NULL when the list is empty. */
static inline struct ha_list *ha_list_pop_front(struct ha_list *list)
{
	struct ha_list *node = list->next;

	if (node == list)
		return NULL;
	ha_list_remove(node);
	return node;
}

/* Moves all nodes of `from` to the end of `to`, without looking at those in between. */
static inline void ha_list_move_all(struct ha_list *to, struct ha_list *from)
{
	if (ha_list_empty(from))
		return;
	from->next->prev = to->prev;
	from->prev->next = to;
	to->prev->next = from->next;
	to->prev = from->prev;
	ha_list_init(from);
}

#define ha_list_for_each(pos, list) for ((pos) = (list)->next; (pos) != (list); (pos) = (pos)->next)

/* The body may remove `pos`. */
#define ha_list_for_each_safe(pos, after, list)                                                    \
	for ((pos) = (list)->next, (after) = (pos)->next; (pos) != (list);                         \
	     (pos) = (after), (after) = (pos)->next)

#endif
