/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A switch as it runs: one thread, which adds, and between that looks at its sockets: the
 * controller's, those of children, those to switches above it. Without work it naps, the longer the
 * longer there is none, while there are trees up to NS_NAP_MOST_NS, or as long as keeps what its
 * looks at all of them cost to a share of a processor; and without trees until somebody comes.
 */
#ifndef NS_SERVER_H
#define NS_SERVER_H

#include <stdbool.h>
#include <stdint.h>

#define NS_SPIN_NS     1000000ull /* without work, before the first nap */
#define NS_NAP_PART    16	  /* of the time without work so far: how long a nap is */
#define NS_NAP_MOST_NS 1000000ull
#define NS_NAP_TURNS   40 /* of the processor's time that was taken since the last nap */
#define NS_SILENCE_MS                                                                              \
	5000 /* for a stranger to say what it wants, and for its group to be known                 \
	      */

struct ns_settings {
	const char *name;	/* of the switch, as the topology has it */
	const char *controller; /* ADDRESS:PORT */
	const char *key_file;
	const char *device; /* DEVICE or DEVICE:PORT; NULL: the only port there is */
	const char
	    *listen; /* ADDRESS:PORT; NULL: at the address from which it reaches the controller */
};

/* Until SIGINT or SIGTERM, which are to be blocked. Returns an exit status, having said on
 * stderr what is wrong. */
int ns_serve(const struct ns_settings *settings);

#endif
