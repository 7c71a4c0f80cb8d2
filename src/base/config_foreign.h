/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's variables that have no effect here. */
#ifndef HA_BASE_CONFIG_FOREIGN_H
#define HA_BASE_CONFIG_FOREIGN_H

#include <stddef.h>

struct ha_config_foreign {
	const char *name;    /* with * at its end: all that begin so */
	const char *as_here; /* the value that asks for what is so here anyway; NULL: none does */
	const char *why;     /* what is so instead */
};

extern const struct ha_config_foreign ha_config_foreign[];
extern const size_t ha_config_nforeign;

/*
 * One INFO for each of them in environ (NULL-terminated, "NAME=value") that asks for something
 * else than what is so here. Returns how many there were.
 */
int ha_config_note_foreign(char *const *environ_list);

#endif
