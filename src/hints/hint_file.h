/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file of hints. It is believed only if it and its directory belong to root or to this user and
 * nobody else may write them. Readers have a descriptor, whose number stays the same whatever
 * becomes of the file; nobody maps it, see hint.h.
 */
#ifndef HA_HINTS_HINT_FILE_H
#define HA_HINTS_HINT_FILE_H

#include "nccl_ha/mpib_agent.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct ha_hint_file {
	int fd; /* -1: there was none yet. Of one that is not believed any more, still that one's */
	dev_t dev;
	ino_t ino;
	uint32_t entries; /* that may be used: at most MPIB_HINT_MAX_ENTRIES; 0: none is believed */
};

enum ha_hint_file_state {
	HA_HINT_FILE_SAME, /* as at the last look */
	HA_HINT_FILE_NEW,  /* another one is open in its place */
	HA_HINT_FILE_NONE, /* there is none, or none to be believed */
};

/* No file yet. */
void ha_hint_file_begin(struct ha_hint_file *file);
/* After the last reader. */
void ha_hint_file_end(struct ha_hint_file *file);

/*
 * Looks at `dir`/hints: opens it, or another one that has its name now, or gives up one that cannot
 * be believed any more. Of NONE *why says what is wrong with it, NULL that it is simply not there.
 * Reads files, and never waits for a writer: not for the data path.
 */
enum ha_hint_file_state ha_hint_file_look(struct ha_hint_file *file, const char *dir,
					  const char **why);

/* Where in it an entry begins. */
uint32_t ha_hint_at(uint32_t slot);

/* An entry's addresses, as ha_hint.ips. False: there is no such entry. */
bool ha_hint_file_ips(const struct ha_hint_file *file, uint32_t slot, uint64_t *ips);

#endif
