/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who is at the other end of the operator's socket, and whether he may give orders: the job's user
 * and root, of this container. Containers may share the folder that the socket is in, and have a
 * root each, with the same number.
 */
#ifndef HA_ADMIN_PEER_H
#define HA_ADMIN_PEER_H

#include <stdbool.h>
#include <sys/socket.h>

/* Says who has connected, as the kernel knows it. False with an answer in *why: may not ask. Never
 * waits. */
bool ha_admin_peer_may_ask(int fd, struct ucred *who, const char **why);

#endif
