/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any text as a name in the folder of statistics, where anybody may put names: it is passed over,
 * or its numbers are what they look like; and only a socket of ours without its file is an orphan.
 * Any text as the name of an event log: what it expands to fits and ends.
 */
#include "fuzz.h"

#include "base/stats_file.c"
#include "event/event_log.c"

#include <sys/socket.h>
#include <sys/un.h>

const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_TEXT("nccl-ha.1000.4242"),
    FUZZ_TEXT("nccl-ha.0.1.9"),
    FUZZ_TEXT("nccl-ha.4294967295.1"),
    FUZZ_TEXT("nccl-ha.4294967296.1"),
    FUZZ_TEXT("nccl-ha.1.18446744073709551617"),
    FUZZ_TEXT("nccl-ha.1000.4242.control"),
    FUZZ_TEXT("nccl-ha..1"),
    FUZZ_TEXT("nccl-ha.1.2.3.4"),
    FUZZ_TEXT("/var/log/nccl-ha/%h.%p%%"),
    FUZZ_TEXT("%h%h%h%h%h%h%p%"),
    {NULL, 0},
};

/* ---- names ----------------------------------------------------------------------------------- */

/* The first number, without a limit to its size: false when it is not this one. */
static bool first_number_is(const char *digits, unsigned int value)
{
	char text[16];
	size_t length = strspn(digits, "0123456789");

	while (length > 1 && *digits == '0') {
		digits++;
		length--;
	}
	snprintf(text, sizeof(text), "%u", value);
	return length == strlen(text) && strncmp(digits, text, length) == 0;
}

static void as_name(const char *name)
{
	unsigned int uid;
	int dots = 0;

	if (!parse_name(name, &uid))
		return;
	FUZZ_CHECK(strncmp(name, NCCL_HA_STATS_PREFIX, strlen(NCCL_HA_STATS_PREFIX)) == 0);
	name += strlen(NCCL_HA_STATS_PREFIX);
	FUZZ_CHECK(first_number_is(name, uid));
	for (; *name; name++) {
		FUZZ_CHECK(*name == '.' || (*name >= '0' && *name <= '9'));
		dots += *name == '.';
	}
	FUZZ_CHECK(dots == 1 || dots == 2);
}

static char folder[] = "/dev/shm/ha-fuzz-names-XXXXXX", socket_name[64];
static int folder_fd = -1;

static void remove_folder(void)
{
	unlinkat(folder_fd, socket_name, 0);
	rmdir(folder);
}

/* With one orphan in it. */
static void make_folder_of_names(void)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	FUZZ_CHECK(mkdtemp(folder) != NULL);
	folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	snprintf(socket_name, sizeof(socket_name),
		 NCCL_HA_STATS_PREFIX "%u.77" NCCL_HA_CONTROL_SUFFIX, (unsigned)geteuid());
	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/%s", folder, socket_name);
	FUZZ_CHECK(bind(fd, (const struct sockaddr *)&addr, sizeof(addr)) == 0);
	close(fd);
	atexit(remove_folder);
	FUZZ_CHECK(is_stale(folder_fd, socket_name));
}

/* As readdir gives them. */
static void as_orphan(const char *name)
{
	if (strchr(name, '/') || strlen(name) > 255)
		return;
	FUZZ_CHECK(!is_stale(folder_fd, name) || strcmp(name, socket_name) == 0);
}

/* ---- event logs ------------------------------------------------------------------------------ */

static void as_log(const char *name)
{
	static const size_t sizes[] = {1, 2, 9, 64, 4096};
	const char *host = strchr(name, '.') ? strchr(name, '.') : "host";

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		char *path = malloc(sizes[i]); /* one byte too far is a wild access */

		FUZZ_CHECK(path);
		path[0] = '\0';
		if (expand(name, host, path, sizes[i])) {
			FUZZ_CHECK(memchr(path, '\0', sizes[i]) != NULL);
			FUZZ_CHECK(strchr(name, '%') || strcmp(name, path) == 0);
		}
		free(path);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *name = malloc(size + 1);

	if (folder_fd < 0)
		make_folder_of_names();
	FUZZ_CHECK(name);
	memcpy(name, data, size);
	name[size] = '\0';
	as_name(name);
	as_orphan(name);
	as_log(name);
	free(name);
	return 0;
}
