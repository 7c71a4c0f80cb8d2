/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the processes of this host that use the plugin publish, as it is at one moment: of this
 * user, for root of all users. Nothing here disturbs them: files are mapped for reading, and
 * copied.
 */
#ifndef NH_SNAPSHOT_H
#define NH_SNAPSHOT_H

#include "nccl_ha/stats.h"
#include "tools/nccl-ha/select.h"

#include <stddef.h>

struct nh_port {
	unsigned int slot;
	struct nccl_ha_port_stats stats;
};

struct nh_conn {
	unsigned int slot;
	struct nccl_ha_conn_stats stats;
};

struct nh_process {
	char path[400]; /* of its statistics file */
	char key[24];	/* "PID", or "PID.1" where two containers have equal PIDs */
	unsigned int uid;
	bool live;
	struct nccl_ha_job_stats job;
	struct nh_port *ports;
	struct nh_conn *conns; /* by slot */
	struct nccl_ha_config_stats *config;
	size_t nports, nconns, nconfig;
};

struct nh_snapshot {
	uint64_t taken_ns;	      /* CLOCK_REALTIME */
	uint64_t monotonic_ns;	      /* CLOCK_MONOTONIC */
	struct nh_process *processes; /* by job, rank, PID */
	size_t nprocesses;
	size_t ndead;	    /* files of dead processes that are not among them */
	size_t nunreadable; /* files that said nothing; each was told on stderr */
	size_t nothers;	    /* processes that were not asked for */
	bool looked;	    /* the folder could be read, and memory was there */
};

/*
 * Looks. `command` begins the messages on stderr; NULL: none, for who looks every second. Returns 0
 * or an errno value: out of memory, or no folder to look in. Pair with _free in any case.
 */
int nh_snapshot_take(struct nh_snapshot *snapshot, const struct nh_select *select,
		     const char *command);
void nh_snapshot_free(struct nh_snapshot *snapshot);

/*
 * The exit status of a command that found no process. With `json` that is an answer like any other
 * and 0, as long as it is known to be true: no file was passed over. Else it is said, as below.
 */
int nh_no_job(const struct nh_snapshot *snapshot, const struct nh_select *select,
	      const char *command, bool json);

/* Says on stderr that there is nothing to show, and what could be done. */
void nh_say_no_job(const struct nh_snapshot *snapshot, const struct nh_select *select,
		   const char *command);

#endif
