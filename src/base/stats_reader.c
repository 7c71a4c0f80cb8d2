/* SPDX-License-Identifier: Apache-2.0 */
/* Reading statistics files. */
#include "base/stats_reader.h"

#include "base/seqlock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_TRIES 1000

/* Whether the table lies within the file and its records are at least as long as ours. */
static bool table_fits(const struct nccl_ha_stats_table *table, size_t record_size, size_t size)
{
	uint64_t bytes;

	return table->record_size >= record_size && table->record_size % 8 == 0 &&
	       table->offset % 8 == 0 && table->offset <= size &&
	       !__builtin_mul_overflow((uint64_t)table->record_size, table->count, &bytes) &&
	       bytes <= size - table->offset;
}

static bool header_makes_sense(const struct nccl_ha_stats_header *header, size_t size)
{
	return header->magic == NCCL_HA_STATS_MAGIC && header->version == NCCL_HA_STATS_VERSION &&
	       header->header_size >= sizeof *header && header->file_size <= size &&
	       header->job.count == 1 &&
	       table_fits(&header->job, sizeof(struct nccl_ha_job_record), size) &&
	       table_fits(&header->ports, sizeof(struct nccl_ha_port_record), size) &&
	       table_fits(&header->conns, sizeof(struct nccl_ha_conn_record), size);
}

static int map(struct ha_stats_reader *reader, int fd)
{
	struct stat st;

	if (fstat(fd, &st) != 0)
		return errno;
	if (!S_ISREG(st.st_mode) || st.st_size < (off_t)sizeof reader->header)
		return EPROTO;
	reader->size = (size_t)st.st_size;
	reader->mapped = mmap(NULL, reader->size, PROT_READ, MAP_SHARED, fd, 0);
	return reader->mapped == MAP_FAILED ? errno : 0;
}

int ha_stats_reader_open_fd(struct ha_stats_reader *reader, int fd)
{
	int err;

	memset(reader, 0, sizeof *reader);
	err = map(reader, fd);
	if (err) {
		reader->mapped = NULL;
		return err;
	}
	/* Acquire: pairs with the writer's release of the magic. */
	if (__atomic_load_n((const uint64_t *)reader->mapped, __ATOMIC_ACQUIRE) ==
	    NCCL_HA_STATS_MAGIC)
		memcpy(&reader->header, reader->mapped, sizeof reader->header);
	if (header_makes_sense(&reader->header, reader->size))
		return 0;
	ha_stats_reader_close(reader);
	return EPROTO;
}

int ha_stats_reader_open(struct ha_stats_reader *reader, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	int err;

	memset(reader, 0, sizeof *reader);
	if (fd < 0)
		return errno;
	err = ha_stats_reader_open_fd(reader, fd);
	close(fd);
	return err;
}

void ha_stats_reader_close(struct ha_stats_reader *reader)
{
	if (reader->mapped)
		munmap(reader->mapped, reader->size);
	memset(reader, 0, sizeof *reader);
}

static bool read_record(const struct ha_stats_reader *reader,
			const struct nccl_ha_stats_table *table, unsigned int slot, void *to,
			size_t size)
{
	const uint64_t *record;

	memset(to, 0, size);
	if (slot >= table->count)
		return false;
	record = (const uint64_t *)((const char *)reader->mapped + table->offset +
				    (size_t)slot * table->record_size);
	return ha_seqlock_read(&record[0], &record[1], to, size / sizeof(uint64_t), MAX_TRIES);
}

/* Ends a string that the file may not have ended. */
#define TERMINATE(string) ((string)[sizeof(string) - 1] = '\0')

bool ha_stats_read_job(const struct ha_stats_reader *reader, struct nccl_ha_job_stats *job)
{
	bool ok = read_record(reader, &reader->header.job, 0, job, sizeof *job);

	TERMINATE(job->job_id);
	TERMINATE(job->host);
	TERMINATE(job->program);
	TERMINATE(job->plugin_version);
	return ok;
}

bool ha_stats_read_port(const struct ha_stats_reader *reader, unsigned int slot,
			struct nccl_ha_port_stats *port)
{
	bool ok = read_record(reader, &reader->header.ports, slot, port, sizeof *port);

	TERMINATE(port->nic);
	TERMINATE(port->pci_path);
	return ok && port->in_use;
}

bool ha_stats_read_conn(const struct ha_stats_reader *reader, unsigned int slot,
			struct nccl_ha_conn_stats *conn)
{
	bool ok = read_record(reader, &reader->header.conns, slot, conn, sizeof *conn);

	TERMINATE(conn->peer);
	return ok && conn->in_use;
}
