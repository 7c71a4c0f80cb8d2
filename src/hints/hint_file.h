/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file of hints, mapped. It is believed only if it and its directory belong to root or to this
 * user and nobody else may write them. Whatever becomes of the file, the memory that readers have
 * stays where it is: what is lost is replaced by zeros in the same place.
 *
 * A page that its owner cuts off is gone at once, and a read of it before the next look is a
 * SIGBUS: agents must never make the file shorter.
 */
#ifndef HA_HINTS_HINT_FILE_H
#define HA_HINTS_HINT_FILE_H

#include "nccl_ha/mpib_agent.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct ha_hint_file {
	struct mpib_hint_shm *memory; /* read-only; zeros while no file is mapped */
	int fd;			      /* -1: none is */
	dev_t dev;
	ino_t ino;
	uint32_t entries; /* that may be used: at most MPIB_HINT_MAX_ENTRIES */
};

enum ha_hint_file_state {
	HA_HINT_FILE_SAME, /* as at the last look */
	HA_HINT_FILE_NEW,  /* another one is mapped in its place */
	HA_HINT_FILE_NONE, /* there is none, or none to be believed */
};

/* Memory for it, and no file yet. False: out of memory. */
bool ha_hint_file_begin(struct ha_hint_file *file);
/* After the last reader. */
void ha_hint_file_end(struct ha_hint_file *file);

/*
 * Looks at `dir`/hints: maps it, or another one that has its name now, or gives up one that cannot
 * be believed any more. Of NONE *why says what is wrong with it, NULL that it is simply not there.
 * Reads files, and never waits for a writer: not for the data path.
 */
enum ha_hint_file_state ha_hint_file_look(struct ha_hint_file *file, const char *dir,
					  const char **why);

/* An entry's addresses, as ha_hint.ips, read from the file: also when it was cut. False: it was. */
bool ha_hint_file_ips(const struct ha_hint_file *file, uint32_t slot, uint64_t *ips);

#endif
