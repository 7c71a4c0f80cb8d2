/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stand-in for an agent, in a directory of its own: it says its bytes by hand, well or badly, and
 * its file of hints may become anything that is not to be believed.
 */
#ifndef HA_TESTS_HINTS_STAND_IN_H
#define HA_TESTS_HINTS_STAND_IN_H

#include "../cmocka_all.h"

#include "base/clock.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BYTES	  4112
#define SLOWLY_MS 20 /* between two bytes */

/* ---- an agent -------------------------------------------------------------------------------- */

enum manner {
	GOOD,
	MUTE,
	BY_BYTES,
	SLOWLY, /* by bytes, the last of which does not come */
	WRONG_MAGIC,
	FULL,
	INVALID,
	HANGS_UP,
	TOO_LONG,
	MANNERS
};

static char agent_dir[64], hints_path[96], socket_path[96];

static struct agent {
	int listener;
	pthread_t thread;
	atomic_bool over, listening;
	_Atomic enum manner manner;
	atomic_uint slot, registered, deregistered, conn_id;
	_Atomic uint64_t seen_after_ns; /* nobody had asked yet who asked last */
} agent = {.listener = -1};

static uint8_t *file_bytes; /* the file, mapped */

static inline void say(int fd, const uint8_t *bytes, size_t length, enum manner manner)
{
	const bool in_pieces = manner == BY_BYTES || manner == SLOWLY;
	const size_t piece = in_pieces ? 1 : length;

	for (size_t at = 0; at < length; at += piece) {
		(void)!send(fd, bytes + at, piece, MSG_NOSIGNAL);
		if (in_pieces)
			usleep(manner == SLOWLY ? SLOWLY_MS * 1000 : 500);
	}
}

/* It has waited as long as it likes. */
static inline void wait_until_it_hangs_up(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	uint8_t byte;

	while (poll(&p, 1, 20000) == 1 && recv(fd, &byte, 1, 0) > 0)
		;
}

static inline void answer(int fd, bool is_register)
{
	enum manner manner = agent.manner;
	uint8_t bytes[16] = {0x52, 0x49, 0x50, 0x4d, is_register ? 16 : 12, 0, 128};
	uint32_t slot = agent.slot;

	memcpy(&bytes[12], &slot, 4);
	if (manner == WRONG_MAGIC)
		bytes[3] ^= 1;
	if (manner == TOO_LONG)
		bytes[5] = 0x7f;
	if (manner == FULL)
		bytes[8] = 1;
	if (manner == INVALID)
		bytes[8] = 2;
	say(fd, bytes, (is_register ? 16u : 12u) - (manner == SLOWLY), manner);
}

static inline void serve(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	uint8_t bytes[64];
	ssize_t n;

	if (poll(&p, 1, 1000) != 1 || (n = recv(fd, bytes, sizeof(bytes), 0)) <= 0)
		return; /* it only looked whether we are here */
	if (n == 28 && bytes[6] == 1) {
		memcpy(&agent.conn_id, &bytes[8], 4);
		atomic_fetch_add(&agent.registered, 1);
	} else if (n == 12 && bytes[6] == 2) {
		atomic_fetch_add(&agent.deregistered, 1);
	}
	if (agent.manner != MUTE && agent.manner != HANGS_UP)
		answer(fd, n == 28);
	if (agent.manner == MUTE || agent.manner == SLOWLY)
		wait_until_it_hangs_up(fd);
}

static inline void *serve_all(void *arg)
{
	uint64_t before_ns, idle_ns = agent.seen_after_ns;

	(void)arg;
	while (!agent.over) {
		struct pollfd p = {.fd = agent.listener, .events = POLLIN};
		int fd;

		before_ns = ha_real_ns();
		if (poll(&p, 1, 5) != 1) {
			idle_ns = before_ns;
			continue;
		}
		fd = accept(agent.listener, NULL, NULL);
		if (fd < 0)
			continue;
		agent.seen_after_ns = idle_ns;
		serve(fd);
		close(fd);
	}
	return NULL;
}

static inline void start_agent(enum manner manner)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};

	agent.manner = manner;
	agent.over = false;
	agent.seen_after_ns = ha_real_ns();
	agent.registered = agent.deregistered = 0;
	agent.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", socket_path);
	unlink(socket_path);
	assert_int_equal(bind(agent.listener, (struct sockaddr *)&addr, sizeof(addr)), 0);
	assert_int_equal(listen(agent.listener, 64), 0);
	assert_int_equal(pthread_create(&agent.thread, NULL, serve_all, NULL), 0);
}

static inline void stop_agent(void)
{
	if (agent.listener < 0)
		return;
	agent.over = true;
	pthread_join(agent.thread, NULL);
	close(agent.listener);
	agent.listener = -1;
}

/* ---- its file -------------------------------------------------------------------------------- */

static inline void put32(unsigned at, uint32_t value)
{
	__atomic_store_n((uint32_t *)(void *)(file_bytes + at), value, __ATOMIC_RELEASE);
}

static inline void write_hint(unsigned slot, uint32_t share, const char *src, const char *dst)
{
	unsigned at = 16 + 16 * slot;
	uint32_t *seq = (uint32_t *)(void *)(file_bytes + at + 4);

	put32(at + 4, *seq + 1);
	put32(at, share);
	put32(at + 8, src ? inet_addr(src) : 0);
	put32(at + 12, dst ? inet_addr(dst) : 0);
	put32(at + 4, *seq + 1);
}

static inline void unmap_file(void)
{
	if (file_bytes)
		munmap(file_bytes, BYTES);
	file_bytes = NULL;
}

static inline void make_file(void)
{
	static const uint8_t header[16] = {0x48, 0x49, 0x50, 0x4d, 0, 1, 0, 0};
	int fd;

	unmap_file();
	unlink(hints_path);
	fd = open(hints_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, BYTES), 0);
	assert_int_equal(pwrite(fd, header, sizeof(header), 0), 16);
	file_bytes = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(file_bytes != MAP_FAILED);
	close(fd);
}

/* ---- files that are not to be believed ------------------------------------------------------- */

static inline void too_short(void)
{
	assert_int_equal(truncate(hints_path, BYTES - 1), 0);
}

static inline void empty(void)
{
	assert_int_equal(truncate(hints_path, 0), 0);
}

static inline void a_link(void)
{
	assert_int_equal(unlink(hints_path), 0);
	assert_int_equal(symlink("/proc/self/exe", hints_path), 0);
}

static inline void a_fifo(void)
{
	assert_int_equal(unlink(hints_path), 0);
	assert_int_equal(mkfifo(hints_path, 0644), 0);
}

static inline void a_directory(void)
{
	assert_int_equal(unlink(hints_path), 0);
	assert_int_equal(mkdir(hints_path, 0755), 0);
}

static inline void writable_by_all(void)
{
	assert_int_equal(chmod(hints_path, 0646), 0);
}

static inline void writable_by_the_group(void)
{
	assert_int_equal(chmod(hints_path, 0664), 0);
}

static inline void bad_magic(void)
{
	put32(0, 0x4D504949);
}

static inline void no_entries(void)
{
	put32(4, 0);
}

static inline void more_entries_than_bytes(void)
{
	put32(4, 257);
}

static inline void all_entries_that_can_be_said(void)
{
	put32(4, UINT32_MAX);
}

static inline void open_directory(void)
{
	assert_int_equal(chmod(agent_dir, 0777), 0);
}

static inline void foreign(void)
{
	assert_int_equal(chown(hints_path, 12345, 12345), 0);
}

static inline void foreign_directory(void)
{
	assert_int_equal(chown(agent_dir, 12345, 12345), 0);
}

static const struct {
	const char *what;
	void (*make)(void);
	const char *said;
	bool needs_root;
} files[] = {
    {"too short", too_short, "too short", false},
    {"empty", empty, "too short", false},
    {"a link", a_link, "a link", false},
    {"a FIFO", a_fifo, "no regular file", false},
    {"a directory", a_directory, "no regular file", false},
    {"writable by all", writable_by_all, "others may write it", false},
    {"writable by the group", writable_by_the_group, "others may write it", false},
    {"bad magic", bad_magic, "magic", false},
    {"no entries", no_entries, "no entries", false},
    {"one entry too long", more_entries_than_bytes, "number of entries", false},
    {"2^32 - 1 entries long", all_entries_that_can_be_said, "number of entries", false},
    {"an open directory", open_directory, "others may write its directory", false},
    {"another user's", foreign, "another user's", true},
    {"in another user's directory", foreign_directory, "another user's", true},
};

static inline bool can_make(size_t i)
{
	if (!files[i].needs_root || geteuid() == 0)
		return true;
	print_message("not tried, for want of root's rights: a file that is %s\n", files[i].what);
	return false;
}

static inline void put_back(void)
{
	chmod(agent_dir, 0755);
	if (geteuid() == 0)
		assert_int_equal(chown(agent_dir, 0, 0), 0);
	unmap_file();
	if (unlink(hints_path) != 0)
		rmdir(hints_path);
	make_file();
}

static inline bool make_agent(void)
{
	snprintf(agent_dir, sizeof(agent_dir), "%s", "/tmp/ha-hints-XXXXXX");
	if (!mkdtemp(agent_dir) || chmod(agent_dir, 0755) != 0)
		return false;
	snprintf(hints_path, sizeof(hints_path), "%s/hints", agent_dir);
	snprintf(socket_path, sizeof(socket_path), "%s/agent.sock", agent_dir);
	agent.slot = 5;
	make_file();
	return true;
}

/* 0: it is gone, and its directory. */
static inline int remove_agent(void)
{
	stop_agent();
	unmap_file();
	unlink(socket_path);
	if (unlink(hints_path) != 0)
		rmdir(hints_path);
	chmod(agent_dir, 0755);
	return rmdir(agent_dir);
}

#endif
