/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this end says, and how it gets to the peer.
 *
 * An end says one thing at a time about its state, its *statement*, at once and then again at an
 * interval that grows until it is answered. Every message goes over every channel that is alive:
 * the bootstrap socket, and the mailbox of each path that works. All of it is [T], on the progress
 * thread.
 */
#ifndef HA_FAILOVER_SIGNALING_H
#define HA_FAILOVER_SIGNALING_H

#include "failover/message.h"

#include <stdbool.h>
#include <stdint.h>

struct ha_comm;

/* The statement is new: say it soon again if it is not answered. */
void ha_signaling_new_statement(struct ha_comm *comm);

/* Notes what every message tells, whatever its kind. */
void ha_signaling_heard(struct ha_comm *comm, const struct ha_message *m);

/* A message came over the socket; before it is heard. */
void ha_signaling_note_over_socket(struct ha_comm *comm, const struct ha_message *m);

/* Whether the peer seems to have lost its end of a socket whose other end looks healthy here. */
bool ha_signaling_peer_misses_socket(const struct ha_comm *comm);

/* Hears what came into mailboxes since. */
void ha_signaling_read_path_msg(struct ha_comm *comm);

/*
 * At the next opportunity this is said again (enum ha_say), for want of an answer; after what
 * interval once more, in ms, if the one so far was `interval_ms`. A peer that reads nothing is told
 * less and less often.
 */
uint32_t ha_signaling_repeat(struct ha_comm *comm, uint32_t say, uint32_t interval_ms,
			     uint64_t now_ns);

/* Says what is to be said, and again what is due. */
void ha_signaling_send(struct ha_comm *comm, uint64_t now_ns);

/*
 * The peer's socket is up and it says nothing: its process is stopped, and is waited for. A socket
 * that was dialled again counts when the peer has spoken over it; before, the outage goes on.
 */
bool ha_signaling_peer_frozen(const struct ha_comm *comm, uint64_t now_ns);

/* How long an outage is borne: the configuration's give_up_ms. */
uint64_t ha_signaling_deadline_ns(const struct ha_comm *comm);

/*
 * Says BYE over the paths to a peer whose socket is broken, and gives it a moment to get there. At
 * the end of the connection, before its paths are fenced. Any thread.
 */
void ha_signaling_goodbye(struct ha_comm *comm);

/* Which of the ports that this end has said in PORTS are of use now: a bit each. */
uint16_t ha_signaling_ports_up(const struct ha_comm *comm);

/*
 * Whether this path carries messages. The sender learns that the receiver's end of a path is up
 * from the first message that comes over it; before, what it posts would only run into the
 * hardware's timeout.
 */
bool ha_signaling_carries(const struct ha_comm *comm, unsigned p);
/* Whether anything could carry a message now. */
bool ha_signaling_has_ctrl_sock(const struct ha_comm *comm);

#endif
