/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random numbers that are a function of a seed, in place of the kernel's: for programs that are
 * linked with -Wl,--wrap=getrandom.
 */
#ifndef HA_TESTS_SEEDED_RANDOM_H
#define HA_TESTS_SEEDED_RANDOM_H

#include <stdint.h>

/* Begins the sequence that getrandom gives from now on. */
void seed_random(uint64_t seed);

/* A well-mixed number of a value: for whatever else depends on the seed. */
uint64_t mix(uint64_t value);

#endif
