/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What other threads have for one thread, in the order in which each of them has put it there. The
 * descriptor is readable while there is something, so that who naps is woken. Nobody waits for
 * longer than it takes to link a letter.
 */
#ifndef NS_INBOX_H
#define NS_INBOX_H

#include "base/list.h"

#include <pthread.h>
#include <stdbool.h>

/* Embedded in what is handed over, which belongs to the reader from then on. */
struct ns_letter {
	struct ha_list link;
	enum ns_letter_kind { NS_LETTER_CHILD, NS_LETTER_ORDER, NS_LETTER_STOP } kind;
};

struct ns_inbox {
	pthread_mutex_t lock;
	struct ha_list letters;
	int fd;
};

/* False: there is no descriptor (errno). Either way ns_inbox_end is to be called. */
bool ns_inbox_begin(struct ns_inbox *inbox);
/* Of an empty one. */
void ns_inbox_end(struct ns_inbox *inbox);

/* Any thread. */
void ns_inbox_put(struct ns_inbox *inbox, struct ns_letter *letter);
/* The oldest; NULL: there is none, and the descriptor is readable again when there is. For the
 * thread whose inbox it is. */
struct ns_letter *ns_inbox_take(struct ns_inbox *inbox);

#endif
