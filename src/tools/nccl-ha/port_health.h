/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the ports of this host are, for whoever decides whether a host goes on: what processes that
 * use them publish, with both ends' evidence, in one word and one sentence. What was survived and
 * is mended is good.
 */
#ifndef NH_PORT_HEALTH_H
#define NH_PORT_HEALTH_H

#include "tools/nccl-ha/snapshot.h"
#include "tools/nccl-ha/view.h"

/* X(NAME, "name", exit status of nccl-ha health); the worst comes last. */
#define NH_HEALTHS(X)                                                                              \
	X(UNUSED, "unused", 0)		 /* down, and nobody asked for it */                       \
	X(GOOD, "good", 0)		 /* works, and another port can take over */               \
	X(DRAINED, "drained", 0)	 /* the operator wants it left alone */                    \
	X(UNPROTECTED, "unprotected", 4) /* works, and the next failure stops connections */       \
	X(DEGRADED, "degraded", 1)	 /* does not work: other ports serve */                    \
	X(STOPPED, "stopped", 5)	 /* connections have no path, or ended with an error */

enum nh_health {
#define NH_HEALTH_ENUM(name, text, status) NH_HEALTH_##name,
	NH_HEALTHS(NH_HEALTH_ENUM)
#undef NH_HEALTH_ENUM
	    NH_HEALTH_COUNT
};

/* Where the evidence points, X(NAME, "name"). */
#define NH_FAULTS(X)                                                                               \
	X(NONE, "none")                                                                            \
	X(ELSEWHERE, "elsewhere") /* the other end's port, cable or switch: not this port's */     \
	X(BETWEEN, "between") /* both ends say that they work, and one does not hear another */    \
	X(HERE, "here")	      /* the port, its cable or the switch behind it */

enum nh_fault {
#define NH_FAULT_ENUM(name, text) NH_FAULT_##name,
	NH_FAULTS(NH_FAULT_ENUM)
#undef NH_FAULT_ENUM
};

const char *nh_health_name(enum nh_health health);
int nh_health_exit_status(enum nh_health health);
const char *nh_fault_name(enum nh_fault fault);

#define NH_REMOTES_MAX 32 /* further ones are not told apart */
#define NH_SENTENCE    600

/* A port of a peer, printable. */
struct nh_remote {
	char host[80], port[80];
	bool silent, answers, down; /* its heartbeats; as it says itself */
};

struct nh_port_health {
	char name[NH_PORT_NAME_MAX];
	uint64_t guid; /* tells ports of equal names apart: of hosts that are simulated */
	enum nh_health health;
	enum nh_fault fault;
	/* Connections: whose traffic is here, and of these without a path in reserve, without any
	 * path, and ended with an error; and those that should be here and are served elsewhere. */
	size_t here, unprotected, failing_over, failed, left;
	uint64_t since_ns; /* CLOCK_REALTIME since when the first of those that left is; 0: none */
	char served_by[NH_PORT_NAME_MAX]; /* one of the ports that serve them; empty: none */
	char why[NH_SENTENCE];		  /* the evidence for the fault; empty: none */
	struct nh_remote remotes[NH_REMOTES_MAX]; /* that connections here were asked for with */
	size_t nremotes;
	/* As added up over processes. */
	bool down, dead, silent, drained, used;
	char reason[64]; /* of the last failover of one that left */
};

/* As one process sees its port. */
void nh_port_health(const struct nh_process *process, const struct nh_port *port,
		    struct nh_port_health *out);

/* As all live processes see their ports, each port once, the worst first. The caller frees the
 * array. NULL: no memory, or there is none (*n is 0). */
struct nh_port_health *nh_ports_health(const struct nh_snapshot *snapshot, size_t *n);

/* What it means, as a sentence without its end: "served by mlx5_1:1 since …". Returns buf. */
const char *nh_health_sentence(const struct nh_port_health *port, char buf[NH_SENTENCE + 200]);

#endif
