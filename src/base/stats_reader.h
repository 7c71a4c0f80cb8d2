/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading the statistics of a process: what tools use. The file is taken as untrusted: it may be of
 * another version, cut off, or that of a process that died in the middle of a write.
 */
#ifndef HA_BASE_STATS_READER_H
#define HA_BASE_STATS_READER_H

#include "nccl_ha/stats.h"

#include <stdbool.h>
#include <stddef.h>

struct ha_stats_reader {
	void *mapped; /* read-only */
	size_t size;
	struct nccl_ha_stats_header header; /* checked */
	unsigned int torn; /* records that were being written when they were to be read, so far */
};

/*
 * Maps a file. Returns 0, an errno value, EPROTO for a file that is damaged or of another kind, or
 * EPROTONOSUPPORT for one of another version; reader->header.version then says which.
 */
int ha_stats_reader_open(struct ha_stats_reader *reader, const char *path);
/* Maps an open file; the descriptor stays the caller's. Returns what ha_stats_reader_open does. */
int ha_stats_reader_open_fd(struct ha_stats_reader *reader, int fd);
void ha_stats_reader_close(struct ha_stats_reader *reader);

/* False when there is no consistent copy to be had, or the slot is not in use. What the file's
 * version does not have yet is zero. */
bool ha_stats_read_job(struct ha_stats_reader *reader, struct nccl_ha_job_stats *job);
bool ha_stats_read_port(struct ha_stats_reader *reader, unsigned int slot,
			struct nccl_ha_port_stats *port);
bool ha_stats_read_conn(struct ha_stats_reader *reader, unsigned int slot,
			struct nccl_ha_conn_stats *conn);
bool ha_stats_read_config(struct ha_stats_reader *reader, unsigned int slot,
			  struct nccl_ha_config_stats *config);

#endif
