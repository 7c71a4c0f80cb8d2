/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signs of life of a connection: what its completions say of the path in use.
 */
#ifndef HA_TRANSPORT_LIFE_H
#define HA_TRANSPORT_LIFE_H

#include <stdatomic.h>
#include <stdint.h>

/* What ha_comm_note_life (visit.h) saw. [T] */
struct ha_life {
	uint64_t alive_ns; /* when something had completed */
	uint64_t idle_ns;  /* when nothing was outstanding */
	/* Of count.completions, those that are no life: of other paths, or with an error. */
	uint64_t lifeless;
	/* Then: completions of the active path << 8 | that path. Read by heartbeats without the
	 * token, so in one word. */
	_Atomic uint64_t seen;
};

#endif
