/* SPDX-License-Identifier: Apache-2.0 */
/* What a controller, nccl-ha-ctrld, says of itself: its switches and groups. */
#ifndef NC_ASK_H
#define NC_ASK_H

#include <stddef.h>

/*
 * The JSON that the controller at HOST:PORT answers with, within 10 s; the caller's to free. NULL:
 * it cannot be had, and `why` says why. key_file has the site's key; key_name says in messages
 * where the file's name is from. A key that cannot be read is also told by a line on stderr.
 */
char *nc_ask_status(const char *address, const char *key_name, const char *key_file, char *why,
		    size_t why_len);

#endif
