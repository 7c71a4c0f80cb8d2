/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as what the kernel's files say of a device, and as an entry of its GID table: texts
 * stay within their buffers, and what is made of them is within its range.
 *
 * Input: byte 0: what; the rest is in the files.
 */
#include "fuzz.h"

#include "base/config.h"
#include "device/gid.h"
#include "device/sysfs.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ATTRIBUTES, GIDS, KINDS };

#define MAX_GIDS 16

const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_TEXT("\0RoCE v2\n"),
    FUZZ_TEXT("\0IB/RoCE v1\n"),
    FUZZ_TEXT("\0-1\n"),
    FUZZ_TEXT("\0"
	      "0x1\n"),
    FUZZ_TEXT("\0"
	      "99999999999999999999\n"),
    FUZZ_TEXT("\1\0\0\0\0\0\0\0\0\0\0\xff\xff\x0a\0\0\1\2"
	      "\xfe\x80\0\0\0\0\0\0\0\0\0\0\0\0\0\1\1"),
    {NULL, 0},
};

/* ---- files ----------------------------------------------------------------------------------- */

static const char *const folders[] = {
    "", "/device", "/ports", "/ports/1", "/ports/1/gid_attrs", "/ports/1/gid_attrs/types"};
static const char *const files[] = {"/device/numa_node", "/ports/1/apm_enable",
				    "/ports/1/gid_attrs/types/0"};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static char root[] = "/dev/shm/ha-fuzz-sysfs-XXXXXX";
static int fds[COUNT(files)];

static const char *in_root(const char *name)
{
	static char path[sizeof(root) + 64];

	snprintf(path, sizeof(path), "%s%s", root, name);
	return path;
}

static void remove_files(void)
{
	for (size_t i = 0; i < COUNT(files); i++)
		unlink(in_root(files[i]));
	for (size_t i = COUNT(folders); i > 0; i--)
		rmdir(in_root(folders[i - 1]));
}

static void make_files(void)
{
	FUZZ_CHECK(mkdtemp(root) != NULL);
	atexit(remove_files);
	for (size_t i = 1; i < COUNT(folders); i++)
		FUZZ_CHECK(mkdir(in_root(folders[i]), 0700) == 0);
	for (size_t i = 0; i < COUNT(files); i++) {
		fds[i] = open(in_root(files[i]), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		FUZZ_CHECK(fds[i] >= 0);
	}
}

static void as_attributes(uint8_t *data, size_t size)
{
	char *text = malloc(16);
	int version;

	if (fds[0] == 0)
		make_files();
	for (size_t i = 0; i < COUNT(files); i++) {
		FUZZ_CHECK(ftruncate(fds[i], 0) == 0);
		FUZZ_CHECK(pwrite(fds[i], data, size, 0) == (ssize_t)size);
	}
	FUZZ_CHECK(ha_sysfs_numa_node(root) >= -1);
	version = ha_sysfs_roce_version(root, 1, 0);
	FUZZ_CHECK(version >= 0 && version <= 2);
	(void)ha_sysfs_apm_enabled(root, 1);
	FUZZ_CHECK(ha_sysfs_read(root, "device/numa_node", text, 16));
	FUZZ_CHECK(strlen(text) < 16 && !strchr(text, '\n'));
	free(text);
}

/* ---- addresses ------------------------------------------------------------------------------- */

static char *no_environment(const char *name)
{
	(void)name;
	return NULL;
}

/* 17 bytes an entry, of which the last is its type. */
static void as_gids(uint8_t *data, size_t size)
{
	struct ha_gid gids[MAX_GIDS];
	struct ha_config config;
	int n = 0, kept, chosen;

	ha_config_load(&config, no_environment);
	for (; n < MAX_GIDS && size >= 17; n++, data += 17, size -= 17) {
		char text[HA_GID_TEXT_MAX];
		struct in6_addr back;

		gids[n] = (struct ha_gid){.index = n, .roce_version = data[16] % 3};
		memcpy(gids[n].raw.raw, data, 16);
		ha_gid_text(&gids[n].raw, text, sizeof(text));
		FUZZ_CHECK(inet_pton(AF_INET6, text, &back) == 1);
		FUZZ_CHECK(memcmp(&back, gids[n].raw.raw, 16) == 0);
		FUZZ_CHECK(!(ha_gid_is_ipv4(&gids[n].raw) && ha_gid_is_link_local(&gids[n].raw)));
		FUZZ_CHECK(ha_gid_same_subnet(&gids[n].raw, &gids[n].raw));
	}
	kept = n > 0 && size > 0 ? data[0] % n : -1;
	if (size > 2) { /* NCCL_IB_ADDR_RANGE */
		config.ib_addr_range.family = data[1] & 1 ? AF_INET : AF_INET6;
		config.ib_addr_range.prefix_len = data[2] % (data[1] & 1 ? 33 : 129);
		memcpy(config.ib_addr_range.addr, data + 3, size - 3 < 16 ? size - 3 : 16);
	}
	chosen = ha_gid_choose(&config, gids, n, kept);
	FUZZ_CHECK(n == 0 ? chosen == -1 : chosen >= 0 && chosen < n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const fuzz_decoder decoders[KINDS] = {
	    [ATTRIBUTES] = as_attributes,
	    [GIDS] = as_gids,
	};

	fuzz_one_of(decoders, KINDS, data, size);
	return 0;
}
