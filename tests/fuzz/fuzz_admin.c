/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes on the operator's socket, in any pieces, by one who reads or does not, and hangs up or
 * does not: what is answered begins as an answer and is one whole line or a list with its end, the
 * connection goes on, and the next caller is served.
 *
 * Input: byte 0 (bits): whether the request's beginning is put right, and how the caller behaves;
 * byte 1: how many bytes at a time; the rest is said.
 */
#include "../transport/harness.h"
#include "fuzz.h"

#include "base/stats.h"
#include "base/stats_file.h"
#include "instance/instance.h"
#include "nccl_ha/control.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { RIGHT_BEGINNING = 1, DEAF = 2, LEAVES_AT_ONCE = 4, ENDS_ITS_SIDE = 8 };

#define PREFIX 2
#define BEGINS "nccl-ha 1 "

const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_TEXT("\0\xffnccl-ha 1 status all\n"),
    FUZZ_TEXT("\0\1nccl-ha 1 failback port sim0:1\n"),
    FUZZ_TEXT("\1\3failover port sim0:1 force\n"),
    FUZZ_TEXT("\2\xffnccl-ha 1 status port sim1:1\nnccl-ha 1 status all\n"),
    FUZZ_TEXT("\4\xffnccl-ha 1 failback all\n"),
    FUZZ_TEXT("\10\xffGET / HTTP/1.1\r\n\r\n"),
    FUZZ_TEXT("\10\xff"),
    {NULL, 0},
};

static char folder[] = "/dev/shm/ha-fuzz-admin-XXXXXX";
static struct sockaddr_un address = {.sun_family = AF_UNIX};
static struct pair pair;

static void close_all(void)
{
	pair_close(&pair);
	rmdir(folder);
}

/* The harness of the transport tests then aborts where an assertion of its own fails. */
__attribute__((constructor)) static void abort_outside_of_tests(void)
{
	setenv("CMOCKA_TEST_ABORT", "1", 1);
}

static void set_up(void)
{
	FUZZ_CHECK(mkdtemp(folder) != NULL);
	ha_stats_dir = folder;
	pair_init(&pair);
	pair.config.stats = true;
	pair.config.enable_backup = true;
	pair.fabric.rails = 2;
	pair_up(&pair);
	pair_wait_standby(&pair);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s" NCCL_HA_CONTROL_SUFFIX,
		 ha_stats_path(pair.inst[0]->stats));
	atexit(close_all);
}

static int dial(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	FUZZ_CHECK(connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0);
	pair_settle(&pair);
	return fd;
}

static size_t hear(int fd, char *heard, size_t got, size_t size)
{
	ssize_t n;

	while ((n = recv(fd, heard + got, size - 1 - got, MSG_DONTWAIT)) > 0)
		got += (size_t)n;
	heard[got] = '\0';
	return got;
}

/* False: the server has hung up. */
static bool say(int fd, const uint8_t *said, size_t size, size_t step)
{
	for (size_t at = 0; at < size; at += step) {
		size_t n = size - at < step ? size - at : step;

		if (send(fd, said + at, n, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)n)
			return false;
		pair_settle(&pair);
	}
	return true;
}

static void check_answer(const char *heard, size_t length)
{
	if (length == 0)
		return;
	FUZZ_CHECK(strlen(heard) == length);
	FUZZ_CHECK(strncmp(heard, BEGINS, strlen(BEGINS)) == 0);
	FUZZ_CHECK(heard[length - 1] == '\n');
	if (strncmp(heard, BEGINS "ok\n", strlen(BEGINS "ok\n")) == 0)
		FUZZ_CHECK(strstr(heard, "\nend ") != NULL);
	else
		FUZZ_CHECK(strchr(heard, '\n') == heard + length - 1);
	for (const char *c = heard; *c; c++)
		FUZZ_CHECK((*c >= ' ' && *c <= '~') || *c == '\n');
}

static void the_next_is_served(void)
{
	static const char request[] = BEGINS "status all\n";
	char heard[4096];
	int fd = dial();
	size_t length;

	FUZZ_CHECK(say(fd, (const uint8_t *)request, sizeof(request) - 1, sizeof(request)));
	length = hear(fd, heard, 0, sizeof(heard));
	FUZZ_CHECK(length > 0 && strstr(heard, "\nend 1\n") != NULL);
	check_answer(heard, length);
	close(fd);
	pair_settle(&pair);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static unsigned runs;
	char heard[8192];
	size_t step, length = 0;
	uint8_t how;
	int fd;

	if (!pair.send)
		set_up();
	if (size < PREFIX)
		return 0;
	how = data[0];
	step = data[1] == 0 ? 1 : data[1];
	fd = dial();
	if (how & RIGHT_BEGINNING)
		say(fd, (const uint8_t *)BEGINS, strlen(BEGINS), strlen(BEGINS));
	say(fd, data + PREFIX, size - PREFIX, step);
	if (how & ENDS_ITS_SIDE)
		shutdown(fd, SHUT_WR);
	if (!(how & LEAVES_AT_ONCE))
		pair_idle(&pair, 2);
	if (!(how & DEAF)) {
		length = hear(fd, heard, 0, sizeof(heard));
		check_answer(heard, length);
	}
	close(fd);
	pair_idle(&pair, 1);
	if (runs++ % 16 == 0) {
		the_next_is_served();
		pair_idle(&pair, 200); /* what was asked for is done */
		transfer(&pair, 1000, 1);
	}
	return 0;
}
