/* SPDX-License-Identifier: Apache-2.0 */
/* Intrusive doubly linked lists. An unlinked node points to itself. */
#ifndef SV_LIST_H
#define SV_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct sv_list {
	struct sv_list *prev, *next;
};

#define sv_container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

static inline void sv_list_init(struct sv_list *head)
{
	head->prev = head->next = head;
}

static inline bool sv_list_empty(const struct sv_list *head)
{
	return head->next == head;
}

static inline void sv_list_add_tail(struct sv_list *head, struct sv_list *node)
{
	node->prev = head->prev;
	node->next = head;
	head->prev->next = node;
	head->prev = node;
}

/* Fine on an unlinked node. */
static inline void sv_list_del(struct sv_list *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
	sv_list_init(node);
}

/* All of `from` behind what `to` has; `from` is empty then. */
static inline void sv_list_move_all(struct sv_list *to, struct sv_list *from)
{
	if (sv_list_empty(from))
		return;
	from->next->prev = to->prev;
	from->prev->next = to;
	to->prev->next = from->next;
	to->prev = from->prev;
	sv_list_init(from);
}

#define sv_list_for_each(pos, head) for ((pos) = (head)->next; (pos) != (head); (pos) = (pos)->next)
/* The current node may go. */
#define sv_list_for_each_safe(pos, tmp, head)                                                      \
	for ((pos) = (head)->next, (tmp) = (pos)->next; (pos) != (head);                           \
	     (pos) = (tmp), (tmp) = (pos)->next)

#endif
