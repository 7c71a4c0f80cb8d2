/* SPDX-License-Identifier: Apache-2.0 */
/* A peer made of a plain socket: it says what a test wants, right or wrong. */
#ifndef HA_TESTS_TRANSPORT_PEER_H
#define HA_TESTS_TRANSPORT_PEER_H

#include "transport/wire.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A connected socket to where the handle points. */
int peer_dial(const uint8_t handle[HA_HANDLE_BYTES]);
/* A listening socket of our own and a handle that points to it, with secrets `ask` and
 * `ask` + PEER_ANSWER. */
#define PEER_ANSWER 1000
int peer_listen(uint8_t handle[HA_HANDLE_BYTES], uint64_t ask);
/* The connection that is waiting there, or -1. */
int peer_accept(int listener);

void peer_say(int fd, const void *bytes, size_t length);
void peer_say_frame(int fd, uint16_t type, const void *payload, uint32_t length);
/* A hello with a secret, that nothing is wrong with; its queue pairs don't exist. */
struct ha_hello peer_hello(uint64_t secret);
void peer_say_hello(int fd, const struct ha_hello *hello);

/* What came so far; 0 also when nothing did. `closed` tells whether the other end hung up. */
size_t peer_hear(int fd, uint8_t *buf, size_t size, bool *closed);

#endif
