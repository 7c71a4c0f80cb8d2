/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A switch as it runs. Its first thread adds (loop.h), and looks at the controller's socket and at
 * who dials. Where there are more (workers.h) it hands whoever joins one of their trees to them.
 */
#ifndef NS_SERVER_H
#define NS_SERVER_H

#include <stdbool.h>
#include <stdint.h>

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
	unsigned threads; /* that add: 1 to NS_THREADS_MOST */
	bool is_pinned;	  /* each of them to a processor of its own */
};

/* Until SIGINT or SIGTERM, which are to be blocked. Returns an exit status, having said on
 * stderr what is wrong. */
int ns_serve(const struct ns_settings *settings);

#endif
