/* SPDX-License-Identifier: Apache-2.0 */
/* A controller, nccl-ha-ctrld, is asked what it has, its switches and groups, or to change it. */
#ifndef NC_ASK_H
#define NC_ASK_H

#include <stdbool.h>
#include <stddef.h>

/* HOST:PORT; and the file with the site's key, of which key_name says in messages where its name is
 * from. */
struct nc_controller {
	const char *address, *key_name, *key_file;
};

/*
 * The JSON that the controller answers with, within 10 s; the caller's to free. NULL: it cannot be
 * had, and `why` says why. A key that cannot be read is also told by a line on stderr.
 */
char *nc_ask_status(const struct nc_controller *controller, char *why, size_t why_len);
/* The same, after a switch of that name is drained, or is not drained any more. */
char *nc_ask_drain(const struct nc_controller *controller, const char *name, bool is_drained,
		   char *why, size_t why_len);
/* The same, of one group: its plan, or why it has none. */
char *nc_ask_verdict(const struct nc_controller *controller, const char *group, char *why,
		     size_t why_len);

#endif
