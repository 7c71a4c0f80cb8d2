/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha-switchd/inbox.h"

#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

bool ns_inbox_begin(struct ns_inbox *inbox)
{
	pthread_mutex_init(&inbox->lock, NULL);
	ha_list_init(&inbox->letters);
	inbox->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return inbox->fd >= 0;
}

void ns_inbox_end(struct ns_inbox *inbox)
{
	if (inbox->fd >= 0)
		close(inbox->fd);
	inbox->fd = -1;
	pthread_mutex_destroy(&inbox->lock);
}

void ns_inbox_put(struct ns_inbox *inbox, struct ns_letter *letter)
{
	const uint64_t one = 1;

	pthread_mutex_lock(&inbox->lock);
	ha_list_push_back(&inbox->letters, &letter->link);
	pthread_mutex_unlock(&inbox->lock);
	(void)!write(inbox->fd, &one, sizeof(one));
}

static struct ns_letter *pop(struct ns_inbox *inbox)
{
	struct ha_list *first;

	pthread_mutex_lock(&inbox->lock);
	first = ha_list_empty(&inbox->letters) ? NULL : ha_list_pop_front(&inbox->letters);
	pthread_mutex_unlock(&inbox->lock);
	return first ? ha_container_of(first, struct ns_letter, link) : NULL;
}

/* Who puts one there writes behind that: so what is not seen after the read is announced anew. */
struct ns_letter *ns_inbox_take(struct ns_inbox *inbox)
{
	struct ns_letter *letter = pop(inbox);
	uint64_t n;

	if (letter)
		return letter;
	(void)!read(inbox->fd, &n, sizeof(n));
	return pop(inbox);
}
