/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who has which flow: processes, their connections, and the flows that have entries in the file. A
 * process is known by a descriptor of it (pidfd), so one that has got the number of a dead one is
 * not taken for it. Connections of the same two SOUT addresses share a flow.
 */
#ifndef NA_REGISTRY_H
#define NA_REGISTRY_H

#include "base/agent_frame.h"
#include "base/list.h"

#include <stdbool.h>
#include <sys/types.h>

/* Of one process, whatever its connections: their numbers have 16 bits. */
#define NA_CONNS_MAX 65536u

/* Its index is its slot. */
struct na_flow {
	struct ha_agent_flow addresses;
	unsigned users; /* connections; 0: free */
	uint32_t share; /* as written */
};

struct na_conn {
	uint32_t id;
	unsigned slot;
};

struct na_client {
	struct ha_list link;
	pid_t pid;
	int pidfd; /* readable when it has died */
	struct na_conn *conns;
	unsigned n, size;
};

struct na_registry {
	struct na_flow flows[MPIB_HINT_MAX_ENTRIES];
	struct ha_list clients;
	/* A flow was taken or is free again. */
	void (*changed)(void *arg, unsigned slot);
	void *arg;
};

void na_registry_begin(struct na_registry *r, void (*changed)(void *arg, unsigned slot), void *arg);
void na_registry_end(struct na_registry *r);

/* NULL: it has registered nothing, or the one that had has died. */
struct na_client *na_client_find(struct na_registry *r, pid_t pid);
/* NULL: it is gone, cannot be seen from here, or there is no descriptor to be had. */
struct na_client *na_client_new(struct na_registry *r, pid_t pid);
/* Gives back all that it has. */
void na_client_end(struct na_registry *r, struct na_client *client);

/* A connection that is there already moves, if its addresses are others now. */
enum mpib_agent_status na_register(struct na_registry *r, struct na_client *client,
				   uint32_t conn_id, const struct ha_agent_flow *addresses,
				   unsigned *slot);
enum mpib_agent_status na_deregister(struct na_registry *r, struct na_client *client,
				     uint32_t conn_id);

#endif
