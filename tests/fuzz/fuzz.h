/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a fuzz harness and its driver agree on.
 *
 * A harness defines the function below, in libFuzzer's form, and the seeds. It aborts when
 * something that must hold does not (FUZZ_CHECK), and leaves finding wild accesses to the
 * sanitizers. The driver in driver.c mutates the seeds, with a generator that is always seeded the
 * same unless told:
 *
 *	fuzz_config --corpus corpus/fuzz_config --runs 1000000 --seed 7
 *	fuzz_config crash-fuzz_config		run the input of a failure again
 *
 * The same harness under libFuzzer, guided by coverage: scripts/fuzz.
 */
#ifndef HA_TESTS_FUZZ_H
#define HA_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct fuzz_seed {
	const void *data;
	size_t size;
};

/* Inputs to start from; the last has NULL data. Parts of them are spliced into one another. */
extern const struct fuzz_seed fuzz_seeds[];

#define FUZZ_TEXT(text)                                                                            \
	{                                                                                          \
		(text), sizeof(text) - 1                                                           \
	}

/*
 * For a harness of several decoders: the first byte says which of `count`, the rest is its input,
 * in a block of its own size, so that the sanitizers see one byte too far.
 */
typedef void (*fuzz_decoder)(uint8_t *data, size_t size);
void fuzz_one_of(const fuzz_decoder *decoders, size_t count, const uint8_t *data, size_t size);

#define FUZZ_CHECK(condition)                                                                      \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__,          \
				#condition);                                                       \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

#endif
