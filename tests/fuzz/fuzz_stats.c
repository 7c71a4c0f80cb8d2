/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a statistics file: a reader refuses it or reads within it, and every string it
 * returns ends.
 */
#include "fuzz.h"

#include "base/stats_reader.h"

#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The smallest file that is accepted: one record of each kind. */
static const struct valid_file {
	struct nccl_ha_stats_header header;
	struct nccl_ha_job_record job;
	struct nccl_ha_port_record port;
	struct nccl_ha_conn_record conn;
	struct nccl_ha_config_record config;
} valid = {
    .header = {.magic = NCCL_HA_STATS_MAGIC,
	       .version = NCCL_HA_STATS_VERSION,
	       .header_size = sizeof valid.header,
	       .file_size = sizeof valid,
	       .job = {sizeof valid.header, sizeof valid.job, 1},
	       .ports = {sizeof valid.header + sizeof valid.job, sizeof valid.port, 1},
	       .conns = {sizeof valid.header + sizeof valid.job + sizeof valid.port,
			 sizeof valid.conn, 1},
	       .config = {offsetof(struct valid_file, config), sizeof valid.config, 1}},
    .job.stats = {.pid = 1, .host = "host"},
    .port.stats = {.in_use = 1, .nic = "mlx5_0"},
    .conn = {.seq = 4, .stats = {.in_use = 1, .peer = "10.0.0.1:1"}},
    .config.stats = {.in_use = 1, .name = "HA_NCCL_RTO_MS", .value = "1000"},
};

const struct fuzz_seed fuzz_seeds[] = {
    {&valid, sizeof valid},
    {&valid, sizeof valid.header},
    {NULL, 0},
};

#define CHECK_STRING(s) FUZZ_CHECK(memchr((s), '\0', sizeof(s)) != NULL)

static void read_all(struct ha_stats_reader *reader)
{
	static const unsigned int slots[] = {0, 1, 2, 1000, UINT32_MAX};
	struct nccl_ha_job_stats job;
	struct nccl_ha_port_stats port;
	struct nccl_ha_conn_stats conn;
	struct nccl_ha_config_stats config;

	ha_stats_read_job(reader, &job);
	CHECK_STRING(job.host);
	CHECK_STRING(job.job_id);
	CHECK_STRING(job.program);
	CHECK_STRING(job.plugin_version);
	CHECK_STRING(job.event_log);
	for (size_t i = 0; i < sizeof slots / sizeof slots[0]; i++) {
		ha_stats_read_port(reader, slots[i], &port);
		CHECK_STRING(port.nic);
		CHECK_STRING(port.pci_path);
		ha_stats_read_conn(reader, slots[i], &conn);
		CHECK_STRING(conn.peer);
		ha_stats_read_config(reader, slots[i], &config);
		CHECK_STRING(config.name);
		CHECK_STRING(config.value);
	}
	/* The last record of each table, which a wrong bound would miss. */
	ha_stats_read_port(reader, reader->header.ports.count - 1, &port);
	ha_stats_read_conn(reader, reader->header.conns.count - 1, &conn);
	ha_stats_read_config(reader, reader->header.config.count - 1, &config);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int fd = -1;
	struct ha_stats_reader reader;

	if (fd < 0) {
		fd = memfd_create("stats", MFD_CLOEXEC);
		FUZZ_CHECK(fd >= 0);
	}
	FUZZ_CHECK(ftruncate(fd, 0) == 0);
	FUZZ_CHECK(pwrite(fd, data, size, 0) == (ssize_t)size);
	if (ha_stats_reader_open_fd(&reader, fd) == 0) {
		read_all(&reader);
		ha_stats_reader_close(&reader);
	}
	return 0;
}
