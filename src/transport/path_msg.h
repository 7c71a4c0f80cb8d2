/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a path carries besides messages: control messages into the peer's mailbox, and probes,
 * writes of nothing whose completion shows that the path works. One of each at a time per path, and
 * the last message behind one that is still on its way.
 */
#ifndef HA_TRANSPORT_PATH_MSG_H
#define HA_TRANSPORT_PATH_MSG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ha_comm;
struct ha_path;

/* False: the one before is still on its way, or there is no room. A path that fails is triggered.
 * The last one of a connection waits for none: it has a place of its own, for one that is sent
 * once. [T] */
bool ha_path_msg_send(struct ha_comm *comm, struct ha_path *path, const void *message,
		      size_t length);
bool ha_path_msg_send_last(struct ha_comm *comm, struct ha_path *path, const void *message,
			   size_t length);

/*
 * Copies what lies in the mailbox of this path, HA_MAILBOX_BYTES of it. The peer's device may write
 * the next message at this moment: the copy may be of two, but it stays what it is. [T]
 */
void ha_path_mailbox_read(const struct ha_comm *comm, unsigned path, uint8_t *out);

/* A write of nothing; false as for a message. Its completion is reported by probe_done. [T] */
bool ha_path_probe(struct ha_comm *comm, struct ha_path *path);

/* Completions of the two. [T] */
void ha_path_msg_done(struct ha_path *path, uint32_t mark);
void ha_path_probe_done(struct ha_path *path, uint32_t mark);

#endif
