/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as the file of hints: it is refused or read within it, each read comes back, and says a
 * share that there can be or none; also when the file is cut, and grows again, between two looks.
 */
#include "fuzz.h"

#include "hints/hint.h"
#include "hints/hint_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Two entries: one that is being written, one of a flow. */
static const struct mpib_hint_shm valid = {
    .header = {.magic = MPIB_HINT_MAGIC, .max_entries = MPIB_HINT_MAX_ENTRIES},
    .entries = {{.sup_bw = 256, .seq = 3, .src_ip = 1, .dst_ip = 2},
		{.sup_bw = 700, .seq = 8, .src_ip = 3, .dst_ip = 4}},
};

const struct fuzz_seed fuzz_seeds[] = {
    {&valid, sizeof(valid)},
    {&valid, sizeof(valid) - 1},
    {NULL, 0},
};

static char dir[64];

static void clean_up(void)
{
	char path[80];

	snprintf(path, sizeof(path), "%s/" MPIB_AGENT_HINTS, dir);
	unlink(path);
	rmdir(dir);
}

static int begin(void)
{
	char path[80];
	int fd;

	snprintf(dir, sizeof(dir), "%s", "/tmp/fuzz-hints-XXXXXX");
	FUZZ_CHECK(mkdtemp(dir));
	atexit(clean_up);
	snprintf(path, sizeof(path), "%s/" MPIB_AGENT_HINTS, dir);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	FUZZ_CHECK(fd >= 0);
	return fd;
}

static void read_all(const struct ha_hint_file *file, const struct mpib_hint_shm *bytes)
{
	uint64_t ips;

	FUZZ_CHECK(file->entries >= 1 && file->entries <= MPIB_HINT_MAX_ENTRIES);
	for (uint32_t slot = 0; slot < file->entries; slot++) {
		struct ha_hint hint = {
		    .at = ha_hint_at(slot), .fd = file->fd, .last = HA_HINT_NONE};
		uint32_t share;

		FUZZ_CHECK(ha_hint_file_ips(file, slot, &ips));
		hint.ips = ips;
		share = ha_hint_read(&hint, 0);
		FUZZ_CHECK(share <= MPIB_HINT_ALL || share == HA_HINT_NONE);
		FUZZ_CHECK((share == HA_HINT_NONE) == (bytes->entries[slot].seq & 1));
	}
	FUZZ_CHECK(!ha_hint_file_ips(file, file->entries, &ips));
	FUZZ_CHECK(!ha_hint_file_ips(file, UINT32_MAX, &ips));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int fd = -1;
	struct mpib_hint_shm bytes;
	struct ha_hint_file file;
	const char *why = NULL;

	if (fd < 0)
		fd = begin();
	FUZZ_CHECK(ftruncate(fd, 0) == 0);
	FUZZ_CHECK(pwrite(fd, data, size, 0) == (ssize_t)size);
	ha_hint_file_begin(&file);
	if (ha_hint_file_look(&file, dir, &why) == HA_HINT_FILE_NEW) {
		memcpy(&bytes, data, sizeof(bytes)); /* a shorter one is refused */
		read_all(&file, &bytes);
		FUZZ_CHECK(ftruncate(fd, 0) == 0);
		FUZZ_CHECK(ha_hint_file_look(&file, dir, &why) == HA_HINT_FILE_NONE);
	}
	FUZZ_CHECK(why && file.entries == 0);
	ha_hint_file_end(&file);
	return 0;
}
