/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's directory and its file of hints (nccl_ha/mpib_agent.h): one agent for each, in a
 * directory that nobody else can write. The file never gets shorter, and an entry is whole whenever
 * its number is even.
 */
#ifndef NA_HINT_TABLE_H
#define NA_HINT_TABLE_H

#include "nccl_ha/mpib_agent.h"

#include <stdbool.h>
#include <stddef.h>

struct na_hint_table {
	struct mpib_hint_shm *shm;
	int fd; /* holds the lock */
};

/*
 * Makes the directory and the file where they are missing, and takes both over from an agent that
 * is gone: all entries are 0, and whole. False with a reason in err: another agent runs, or
 * somebody else's hands may be in it.
 */
bool na_hint_table_open(struct na_hint_table *table, const char *dir, char *err, size_t err_len);
void na_hint_table_close(struct na_hint_table *table);

/* Addresses in network byte order. */
void na_hint_table_write(struct na_hint_table *table, unsigned slot, uint32_t share,
			 uint32_t src_ip, uint32_t dst_ip);

#endif
