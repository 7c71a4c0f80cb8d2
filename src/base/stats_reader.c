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

#define MAX_TRIES 20 /* to copy a record between two writes of it */

/* The header and the records as the first plugins of this version wrote them: what is not smaller
 * can be read. */
#define FIRST_HEADER_SIZE offsetof(struct nccl_ha_stats_header, config)
#define FIRST_JOB_SIZE                                                                             \
	(offsetof(struct nccl_ha_job_record, stats) + offsetof(struct nccl_ha_job_stats, event_log))
#define FIRST_PORT_SIZE                                                                            \
	(offsetof(struct nccl_ha_port_record, stats) +                                             \
	 offsetof(struct nccl_ha_port_stats, messages))
#define FIRST_CONN_SIZE	  sizeof(struct nccl_ha_conn_record)
#define FIRST_CONFIG_SIZE sizeof(struct nccl_ha_config_record)

/* Whether the table lies within the file, and its records are long enough and not too many. */
static bool table_fits(const struct nccl_ha_stats_table *table, size_t record_size, uint32_t most,
		       size_t size)
{
	uint64_t bytes;

	return table->count <= most && table->record_size >= record_size &&
	       table->record_size % 8 == 0 && table->offset % 8 == 0 && table->offset <= size &&
	       !__builtin_mul_overflow((uint64_t)table->record_size, table->count, &bytes) &&
	       bytes <= size - table->offset;
}

static bool header_makes_sense(const struct nccl_ha_stats_header *header, size_t size)
{
	return header->header_size >= FIRST_HEADER_SIZE && header->file_size <= size &&
	       header->job.count == 1 && table_fits(&header->job, FIRST_JOB_SIZE, 1, size) &&
	       table_fits(&header->ports, FIRST_PORT_SIZE, NCCL_HA_STATS_PORTS_MAX, size) &&
	       table_fits(&header->conns, FIRST_CONN_SIZE, NCCL_HA_STATS_CONNS_MAX, size) &&
	       (header->config.count == 0 ||
		table_fits(&header->config, FIRST_CONFIG_SIZE, NCCL_HA_STATS_CONFIG_MAX, size));
}

/* What the file's header has of ours; the rest is zero. The magic was seen. */
static void copy_header(struct ha_stats_reader *reader)
{
	const struct nccl_ha_stats_header *header = reader->mapped;
	size_t size = header->header_size;

	if (size < FIRST_HEADER_SIZE)
		size =
		    FIRST_HEADER_SIZE; /* which the file has; what is wrong with it is seen later */
	if (size > sizeof reader->header)
		size = sizeof reader->header;
	if (size > reader->size)
		size = reader->size;
	memcpy(&reader->header, header, size);
}

static int map(struct ha_stats_reader *reader, int fd)
{
	struct stat st;

	if (fstat(fd, &st) != 0)
		return errno;
	/* One with several names could be read again and again. */
	if (!S_ISREG(st.st_mode) || st.st_nlink > 1 || st.st_size < (off_t)FIRST_HEADER_SIZE ||
	    st.st_size > NCCL_HA_STATS_BYTES_MAX)
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
		copy_header(reader);
	if (reader->header.magic == NCCL_HA_STATS_MAGIC &&
	    reader->header.version != NCCL_HA_STATS_VERSION)
		err = EPROTONOSUPPORT;
	else if (!header_makes_sense(&reader->header, reader->size))
		err = EPROTO;
	if (err) {
		munmap(reader->mapped, reader->size);
		reader->mapped = NULL;
	}
	return err;
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

/* One that is being written is not looked at: its writer may never come back. */
static bool copy_record(const uint64_t *record, void *to, size_t nwords)
{
	for (int i = 0; i < MAX_TRIES; i++)
		if (!(__atomic_load_n(record, __ATOMIC_RELAXED) & 1) &&
		    ha_seqlock_read(&record[0], &record[1], to, nwords, 1))
			return true;
	return false;
}

static bool read_record(struct ha_stats_reader *reader, const struct nccl_ha_stats_table *table,
			unsigned int slot, void *to, size_t size)
{
	const uint64_t *record;
	bool whole;

	memset(to, 0, size);
	if (slot >= table->count)
		return false;
	if (size > table->record_size - sizeof(uint64_t))
		size = table->record_size - sizeof(uint64_t);
	record = (const uint64_t *)((const char *)reader->mapped + table->offset +
				    (size_t)slot * table->record_size);
	whole = copy_record(record, to, size / sizeof(uint64_t));
	reader->torn += !whole;
	return whole;
}

/* Ends a string that the file may not have ended. */
#define TERMINATE(string) ((string)[sizeof(string) - 1] = '\0')

bool ha_stats_read_job(struct ha_stats_reader *reader, struct nccl_ha_job_stats *job)
{
	bool ok = read_record(reader, &reader->header.job, 0, job, sizeof *job);

	TERMINATE(job->job_id);
	TERMINATE(job->host);
	TERMINATE(job->program);
	TERMINATE(job->plugin_version);
	TERMINATE(job->event_log);
	return ok;
}

bool ha_stats_read_port(struct ha_stats_reader *reader, unsigned int slot,
			struct nccl_ha_port_stats *port)
{
	bool ok = read_record(reader, &reader->header.ports, slot, port, sizeof *port);

	TERMINATE(port->nic);
	TERMINATE(port->pci_path);
	return ok && port->in_use;
}

bool ha_stats_read_conn(struct ha_stats_reader *reader, unsigned int slot,
			struct nccl_ha_conn_stats *conn)
{
	bool ok = read_record(reader, &reader->header.conns, slot, conn, sizeof *conn);

	TERMINATE(conn->peer);
	TERMINATE(conn->preferred.peer_port);
	return ok && conn->in_use;
}

bool ha_stats_read_config(struct ha_stats_reader *reader, unsigned int slot,
			  struct nccl_ha_config_stats *config)
{
	bool ok = read_record(reader, &reader->header.config, slot, config, sizeof *config);

	TERMINATE(config->name);
	TERMINATE(config->value);
	return ok && config->in_use;
}
