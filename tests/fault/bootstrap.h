/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What makes a run of two instances a function of its seed: their bootstrap sockets and their
 * random numbers.
 *
 * A TCP connection over loopback is delivered by the kernel's softirq, sometimes at once and
 * sometimes a little later, and a closed one keeps its port for a minute: a campaign of a hundred
 * thousand connections would neither repeat itself nor find a free port. The linker therefore
 * redirects the transport's socket calls (-Wl,--wrap) to local stream sockets, on which a byte
 * is at the other end when send returns. getrandom gives the run's own numbers (seeded_random.h).
 */
#ifndef HA_TESTS_FAULT_BOOTSTRAP_H
#define HA_TESTS_FAULT_BOOTSTRAP_H

#include <stdint.h>

/* Begins a run, and the sequence that getrandom will give. */
void bootstrap_seed(uint64_t seed);

/* A stranger dials every listener there is: sockets of his that are connected, at most `room`,
 * which are the caller's. How many. */
unsigned bootstrap_visit(int *fds, unsigned room);

#endif
