/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any text as HA_NCCL_ISLAND, and as the file that it names: there are islands whatever it is, it
 * is at most one line of the log, and an address is in the island that it is in itself.
 *
 * Input: the text. One that begins with a zero is a file's, from the next byte on.
 */
#include "fuzz.h"

#include "base/log.h"
#include "device/island.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define TEXT_MAX 4096

static int lines;

const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_TEXT("24"),
    FUZZ_TEXT("33"),
    FUZZ_TEXT("10.1.0.0/16=a,10.2.0.0/16=a,10.3.0.0/16=b,fd00::/8=c"),
    FUZZ_TEXT("10.1.0.0/16="),
    FUZZ_TEXT("@/nowhere"),
    FUZZ_TEXT("\0# halls\n10.1.0.0/16 a\n10.2.0.0/16\tb # the other\nfd00::/8 c\n"),
    FUZZ_TEXT("\0 10.1.0.0/16 a b\n"),
    {NULL, 0},
};

static void check_line(enum ha_log_level level, unsigned long subsys, const char *file, int line,
		       const char *logged)
{
	(void)level, (void)subsys, (void)file, (void)line;
	lines++;
	for (const char *c = logged; *c; c++)
		FUZZ_CHECK((unsigned char)*c >= 0x20 && *c != 0x7f);
}

/* HA_NCCL_ISLAND for a file of these bytes, which lasts as long as *fd is open. */
static void make_file(const uint8_t *data, size_t size, char value[TEXT_MAX], int *fd)
{
	*fd = memfd_create("islands", MFD_CLOEXEC);
	FUZZ_CHECK(*fd >= 0 && write(*fd, data, size) == (ssize_t)size);
	snprintf(value, TEXT_MAX, "@/proc/self/fd/%d", *fd);
}

static void check_islands(const struct ha_islands *islands)
{
	static const union ibv_gid gids[] = {
	    {.raw = {[10] = 0xff, 0xff, 10, 1, 0, 1}},
	    {.raw = {[10] = 0xff, 0xff, 10, 3, 0, 1}},
	    {.raw = {0xfd, [15] = 1}},
	};
	const size_t n = sizeof(gids) / sizeof(*gids);

	FUZZ_CHECK(islands != NULL);
	for (size_t a = 0; a < n; a++)
		for (size_t b = 0; b < n; b++) {
			const bool same = ha_islands_same(islands, &gids[a], &gids[b]);

			FUZZ_CHECK(same == ha_islands_same(islands, &gids[b], &gids[a]));
			FUZZ_CHECK(same || a != b);
		}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ha_islands *islands;
	char text[TEXT_MAX];
	int fd = -1;

	ha_log_set_sink(check_line);
	if (size > 0 && data[0] == 0) {
		make_file(data + 1, size - 1, text, &fd);
	} else {
		if (size > sizeof(text) - 1)
			size = sizeof(text) - 1;
		if (size > 0)
			memcpy(text, data, size);
		text[size] = '\0';
		if (text[0] == '@') /* none of this machine's files */
			text[0] = '=';
	}
	lines = 0;
	islands = ha_islands_load(text);
	FUZZ_CHECK(lines <= 1);
	check_islands(islands);
	ha_islands_free(islands);
	if (fd >= 0)
		close(fd);
	return 0;
}
