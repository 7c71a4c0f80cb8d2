/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as the statistics file of a process, as the tools find it in its folder: it is passed
 * over, or is read whole, and what Prometheus and the readers of JSON get of it is well formed.
 *
 * Input: patches of a file that is right, each of an offset (2 bytes), a length (1) and the bytes,
 * or with byte 0 set the file itself.
 */
#include "fuzz.h"

#include "base/stats_file.h"
#include "nccl_ha/stats.h"
#include "tools/nccl-ha/exposition.h"
#include "tools/nccl-ha/snapshot.h"
#include "tools/nccl-ha/status_json.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

static const struct valid_file {
	struct nccl_ha_stats_header header;
	struct nccl_ha_job_record job;
	struct nccl_ha_port_record port[2];
	struct nccl_ha_conn_record conn[2];
	struct nccl_ha_config_record config;
} valid = {
    .header = {.magic = NCCL_HA_STATS_MAGIC,
	       .version = NCCL_HA_STATS_VERSION,
	       .header_size = sizeof valid.header,
	       .file_size = sizeof valid,
	       .job = {offsetof(struct valid_file, job), sizeof valid.job, 1},
	       .ports = {offsetof(struct valid_file, port), sizeof valid.port[0], 2},
	       .conns = {offsetof(struct valid_file, conn), sizeof valid.conn[0], 2},
	       .config = {offsetof(struct valid_file, config), sizeof valid.config, 1}},
    .job.stats = {.pid = 1, .host = "host", .connections_open = 2},
    .port = {{.stats = {.in_use = 1, .nic = "mlx5_0"}}, {.stats = {.in_use = 1, .nic = "mlx5_1"}}},
    .conn = {{.seq = 4, .stats = {.in_use = 1, .peer = "10.0.0.1:1"}},
	     {.seq = 2, .stats = {.in_use = 1, .peer = "[::1]:2"}}},
    .config.stats = {.in_use = 1, .name = "HA_NCCL_RTO_MS", .value = "1000"},
};

#define AT(member)                                                                                 \
	(uint8_t)(offsetof(struct valid_file, member) >> 8),                                       \
	    (uint8_t)offsetof(struct valid_file, member)

static const uint8_t as_it_is[] = {0};
static const uint8_t names[] = {0,    AT(job.stats.host),    4, '"',  '\\', '\n',
				0xff, AT(port[0].stats.nic), 4, 0xc2, 0x9b, '{',
				'}'};
static const uint8_t counts[] = {0,    AT(header.conns), 4, 0xff, 0xff, 0xff,
				 0xff, AT(conn[0].seq),	 1, 5};
static const uint8_t nothing[] = {1, 0};

const struct fuzz_seed fuzz_seeds[] = {
    {as_it_is, sizeof(as_it_is)},
    {names, sizeof(names)},
    {counts, sizeof(counts)},
    {nothing, sizeof(nothing)},
    {NULL, 0},
};

/* ---- the file -------------------------------------------------------------------------------- */

static char folder[] = "/dev/shm/ha-fuzz-exposition-XXXXXX", path[sizeof(folder) + 40];

static void remove_folder(void)
{
	unlink(path);
	rmdir(folder);
}

static int open_file(void)
{
	static int fd = -1;

	if (fd >= 0)
		return fd;
	FUZZ_CHECK(mkdtemp(folder) != NULL);
	ha_stats_dir = folder;
	snprintf(path, sizeof(path), "%s/" NCCL_HA_STATS_PREFIX "%u.1", folder, (unsigned)getuid());
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	FUZZ_CHECK(fd >= 0);
	atexit(remove_folder);
	return fd;
}

static void apply_patches(const uint8_t *data, size_t size, uint8_t *file)
{
	while (size >= 3) {
		size_t at = (size_t)data[0] << 8 | data[1], length = data[2];

		data += 3;
		size -= 3;
		if (length > size)
			length = size;
		if (at + length <= sizeof(valid))
			memcpy(file + at, data, length);
		data += length;
		size -= length;
	}
}

static void write_file(const uint8_t *data, size_t size)
{
	static uint8_t file[sizeof(valid)];
	int fd = open_file();

	FUZZ_CHECK(ftruncate(fd, 0) == 0);
	if (data[0] & 1) {
		FUZZ_CHECK(pwrite(fd, data + 1, size - 1, 0) == (ssize_t)size - 1);
		return;
	}
	memcpy(file, &valid, sizeof(file));
	apply_patches(data + 1, size - 1, file);
	FUZZ_CHECK(pwrite(fd, file, sizeof(file), 0) == (ssize_t)sizeof(file));
}

/* ---- what is made of it ---------------------------------------------------------------------- */

/* name{label="value",...} and what follows. */
static const char *skip_series(const char *c)
{
	FUZZ_CHECK(isalpha((unsigned char)*c) || *c == '_');
	while (isalnum((unsigned char)*c) || *c == '_')
		c++;
	if (*c != '{')
		return c;
	while (*c++ != '}') {
		while (isalnum((unsigned char)*c) || *c == '_')
			c++;
		FUZZ_CHECK(*c++ == '=');
		FUZZ_CHECK(*c++ == '"');
		for (; *c != '"'; c++) {
			FUZZ_CHECK((unsigned char)*c >= ' ');
			c += *c == '\\';
		}
		c++;
		FUZZ_CHECK(*c == ',' || *c == '}');
	}
	return c;
}

static void check_exposition(const char *text, size_t length)
{
	const char *end = text + length;

	FUZZ_CHECK(strlen(text) == length);
	while (text < end) {
		const char *line_end = strchr(text, '\n');
		char *number_end;

		FUZZ_CHECK(line_end != NULL);
		if (*text != '#') {
			text = skip_series(text);
			FUZZ_CHECK(*text == ' ');
			(void)strtod(text + 1, &number_end);
			FUZZ_CHECK(number_end == line_end);
		}
		text = line_end + 1;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct nh_select select = NH_SELECT_ALL;
	struct nh_snapshot snapshot;
	size_t length;
	json_t *json;
	char *text;

	if (size == 0)
		return 0;
	write_file(data, size);
	select.dead = true;
	FUZZ_CHECK(nh_snapshot_take(&snapshot, &select, NULL) == 0);
	for (int connections = 0; connections < 2; connections++) {
		text = nh_exposition(&snapshot, connections, &length);
		FUZZ_CHECK(text != NULL);
		check_exposition(text, length);
		free(text);
	}
	json = nh_status_json(&snapshot, true);
	FUZZ_CHECK(json != NULL);
	text = json_dumps(json, JSON_COMPACT);
	FUZZ_CHECK(text != NULL);
	free(text);
	json_decref(json);
	nh_snapshot_free(&snapshot);
	return 0;
}
