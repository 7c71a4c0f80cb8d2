/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the numbers of a snapshot mean to somebody who looks after jobs: is a connection protected,
 * and which connections are alike.
 */
#ifndef NH_VIEW_H
#define NH_VIEW_H

#include "tools/nccl-ha/snapshot.h"

/* X(NAME, "name"); the worst comes last. */
#define NH_STANDINGS(X)                                                                            \
	X(PROTECTED, "protected")     /* runs, and another path is ready to take over */           \
	X(UNPROTECTED, "unprotected") /* runs, and the next failure stops it */                    \
	X(FAILING_OVER, "failing over")                                                            \
	X(FAILED, "failed") /* the error is latched: it ends with its communicator */

enum nh_standing {
#define NH_STANDING_ENUM(name, text) NH_##name,
	NH_STANDINGS(NH_STANDING_ENUM)
#undef NH_STANDING_ENUM
	    NH_STANDING_COUNT
};

enum nh_standing nh_standing(const struct nccl_ha_conn_stats *conn);
/* Protected, by a path whose NIC has read the GPU memory it would carry. */
bool nh_is_proved_with_gpu(const struct nccl_ha_conn_stats *conn);
const char *nh_standing_text(enum nh_standing standing);

/* Texts of the enums of stats.h; "unknown" for what a later version may say. */
const char *nh_state_text(uint32_t state);
const char *nh_direction_text(uint32_t direction);
const char *nh_health_text(uint32_t health);
const char *nh_port_state_text(const struct nccl_ha_port_stats *port);
/* Heartbeats go out over it and not one remote port answers: cut off, whatever the port says. */
bool nh_port_is_silent(const struct nccl_ha_port_stats *port);
/* What else there is to say behind its state: ", drained", ", SILENT", both, or nothing. */
const char *nh_port_marks(const struct nccl_ha_port_stats *port);
/* "remote error" and so on: NCCL's result codes. */
const char *nh_error_text(int32_t code);

/* The port that a connection's or a path's device number means; NULL: not among the records. */
const struct nh_port *nh_port_of(const struct nh_process *process, int32_t device);
/* The port that is such a rail of NCCL's device; NULL: there is no record of it. */
const struct nh_port *nh_rail_of(const struct nh_process *process, int32_t nccl_device,
				 unsigned int rail);
/* "mlx5_0:1", printable. Returns buf. */
#define NH_PORT_NAME_MAX 80
const char *nh_port_name(const struct nh_port *port, char buf[NH_PORT_NAME_MAX]);
const char *nh_device_name(const struct nh_process *process, int32_t device,
			   char buf[NH_PORT_NAME_MAX]);
/* "10.0.0.2" of "10.0.0.2:4711", printable. Returns buf. */
const char *nh_peer_host(const struct nccl_ha_conn_stats *conn, char buf[80]);
/* The paths but the active one: "mlx5_1:1 good, mlx5_0:1 failed"; "none". Returns buf. */
#define NH_PATHS_MAX 400
const char *nh_standby_text(const struct nh_process *process, const struct nccl_ha_conn_stats *conn,
			    char buf[NH_PATHS_MAX]);

/* How many connections stand how. */
struct nh_counts {
	size_t connections, by_standing[NH_STANDING_COUNT];
};

void nh_count(const struct nh_process *process, struct nh_counts *counts); /* adds */

/* Connections of a process with the same port, peer, state and paths. */
struct nh_group {
	const struct nccl_ha_conn_stats *first; /* speaks for all of them */
	enum nh_standing standing;
	size_t sends, receives;
	uint64_t failovers;
	const struct nccl_ha_conn_stats *latest; /* that failed over last; NULL: none did */
};

/* The caller frees the array; NULL: none, or no memory. */
struct nh_group *nh_groups(const struct nh_process *process, size_t *n);

/* Quantile of a histogram in ns, as ha_hist_quantile. */
uint64_t nh_quantile(const struct nccl_ha_histogram *histogram, unsigned int per_mille);

#endif
