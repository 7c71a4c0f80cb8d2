/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client of an agent, against a stand-in for one that says its bytes by hand, well or badly,
 * and against files of hints of every kind.
 */
#include "../cmocka_all.h"
#include "../eventually.h"

#include "base/clock.h"
#include "base/log.h"
#include "hints/hint_file.h"
#include "hints/hints.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BYTES	 4112
#define STALE_MS 300
#define LOOK_MS	 20
/* How long an answer may take: the short time where none comes, the long one where a busy machine
 * may delay it. */
#define STEP_MS 60
#define LONG_MS 3000
#define MUTE_MS 300 /* an agent that does not answer hangs up after so long */

/* ---- what an operator reads ------------------------------------------------------------------ */

static atomic_int warnings;
static char last_warning[512];
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;

static void sink(enum ha_log_level level, unsigned long subsys, const char *file, int line,
		 const char *text)
{
	(void)subsys, (void)file, (void)line;
	if (level != HA_LOG_WARN)
		return;
	pthread_mutex_lock(&log_lock);
	snprintf(last_warning, sizeof(last_warning), "%s", text);
	pthread_mutex_unlock(&log_lock);
	atomic_fetch_add(&warnings, 1);
}

static bool warned_of(const char *what)
{
	bool found;

	pthread_mutex_lock(&log_lock);
	found = strstr(last_warning, what) != NULL;
	pthread_mutex_unlock(&log_lock);
	return found;
}

/* ---- an agent -------------------------------------------------------------------------------- */

enum manner { GOOD, MUTE, BY_BYTES, WRONG_MAGIC, FULL, INVALID, HANGS_UP, TOO_LONG, MANNERS };

static char dir[64], hints_path[96], socket_path[96];

static struct agent {
	int listener;
	pthread_t thread;
	atomic_bool over, listening;
	_Atomic enum manner manner;
	atomic_uint slot, registered, deregistered, conn_id;
	_Atomic uint64_t seen_after_ns; /* nobody had asked yet who asked last */
} agent = {.listener = -1};

static uint8_t *file_bytes; /* the file, mapped */

static void say(int fd, const void *bytes, size_t length, enum manner manner)
{
	for (size_t at = 0; at < length; at += manner == BY_BYTES ? 1 : length) {
		size_t n = manner == BY_BYTES ? 1 : length;

		(void)!send(fd, (const uint8_t *)bytes + at, n, MSG_NOSIGNAL);
		if (manner == BY_BYTES)
			usleep(500);
	}
}

static void answer(int fd, bool is_register)
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
	say(fd, bytes, is_register ? 16 : 12, manner);
}

static void serve(int fd)
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
	if (agent.manner == MUTE)
		usleep(MUTE_MS * 1000);
	else if (agent.manner != HANGS_UP)
		answer(fd, n == 28);
}

static void *serve_all(void *arg)
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

static void start_agent(enum manner manner)
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

static void stop_agent(void)
{
	if (agent.listener < 0)
		return;
	agent.over = true;
	pthread_join(agent.thread, NULL);
	close(agent.listener);
	agent.listener = -1;
}

/* ---- its file -------------------------------------------------------------------------------- */

static void put32(unsigned at, uint32_t value)
{
	__atomic_store_n((uint32_t *)(void *)(file_bytes + at), value, __ATOMIC_RELEASE);
}

static void write_hint(unsigned slot, uint32_t share, const char *src, const char *dst)
{
	unsigned at = 16 + 16 * slot;
	uint32_t *seq = (uint32_t *)(void *)(file_bytes + at + 4);

	put32(at + 4, *seq + 1);
	put32(at, share);
	put32(at + 8, src ? inet_addr(src) : 0);
	put32(at + 12, dst ? inet_addr(dst) : 0);
	put32(at + 4, *seq + 1);
}

static void unmap_file(void)
{
	if (file_bytes)
		munmap(file_bytes, BYTES);
	file_bytes = NULL;
}

static void make_file(void)
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

/* ---- a client -------------------------------------------------------------------------------- */

static struct ha_hints *hints;
static struct ha_hint *hint;
static atomic_int found, lost;

static void agent_changed(void *arg, bool is_found)
{
	(void)arg;
	atomic_fetch_add(is_found ? &found : &lost, 1);
}

static struct ha_agent_flow flow_to(const char *dst)
{
	return (struct ha_agent_flow){inet_addr("10.0.1.1"), inet_addr(dst),
				      inet_addr("172.16.0.1"), inet_addr("172.16.0.2")};
}

static uint32_t share_now(void)
{
	return ha_hint_read(hint, ha_real_ns());
}

static unsigned step_ms;

static void begin(void)
{
	struct ha_hints_settings settings = HA_HINTS_DEFAULTS;
	struct ha_agent_flow flow = flow_to("10.0.1.2");

	settings.dir = dir;
	settings.stale_ms = STALE_MS;
	settings.look_ms = LOOK_MS;
	settings.step_ms = step_ms;
	settings.pause_least_ms = LOOK_MS;
	settings.pause_most_ms = 4 * LOOK_MS;
	settings.agent_changed = agent_changed;
	warnings = found = lost = 0;
	hints = ha_hints_begin(&settings);
	assert_non_null(hints);
	hint = ha_hints_join(hints, &flow);
	assert_non_null(hint);
}

static void end(void)
{
	if (!hints)
		return;
	ha_hints_leave(hints, hint);
	ha_hints_end(hints);
	hints = NULL;
}

/* Long enough for several looks. */
static void some_looks(void)
{
	usleep(8 * LOOK_MS * 1000);
}

static int setup(void **state)
{
	(void)state;
	step_ms = LONG_MS;
	ha_log_set_sink(sink);
	snprintf(dir, sizeof(dir), "%s", "/tmp/ha-hints-XXXXXX");
	if (!mkdtemp(dir) || chmod(dir, 0755) != 0)
		return -1;
	snprintf(hints_path, sizeof(hints_path), "%s/hints", dir);
	snprintf(socket_path, sizeof(socket_path), "%s/agent.sock", dir);
	agent.slot = 5;
	make_file();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	end();
	stop_agent();
	unmap_file();
	unlink(socket_path);
	if (unlink(hints_path) != 0)
		rmdir(hints_path);
	chmod(dir, 0755);
	return rmdir(dir);
}

/* ---- what it is for -------------------------------------------------------------------------- */

static void a_read_20_us_later_has_what_the_agent_wrote(void **state)
{
	(void)state;
	write_hint(5, 256, "10.0.1.1", "10.0.1.2");
	start_agent(GOOD);
	begin();
	EVENTUALLY(share_now() == 256);
	for (uint32_t share = 0; share <= 1024; share++) {
		write_hint(5, share, "10.0.1.1", "10.0.1.2");
		usleep(20);
		assert_int_equal(share_now(), share);
	}
	assert_int_equal(agent.registered, 1);
	assert_true(agent.conn_id >> 16 == ((uint32_t)getpid() & 0xffff));
	assert_int_equal(warnings, 0);
	EVENTUALLY(found == 1);
	end();
	assert_int_equal(agent.deregistered, 1);
}

static void an_agent_that_fills_in_no_addresses_is_believed_until_it_does(void **state)
{
	(void)state;
	write_hint(5, 300, NULL, NULL);
	start_agent(GOOD);
	begin();
	EVENTUALLY(share_now() == 300);
	write_hint(5, 301, "10.0.1.1", "10.0.1.2");
	EVENTUALLY(share_now() == 301);
	write_hint(5, 302, "10.0.1.1", "10.0.1.9");
	some_looks();
	assert_int_not_equal(share_now(), 302);
	EVENTUALLY(warnings == 1);
}

static void an_agent_that_is_gone_is_followed_for_so_long_and_no_longer(void **state)
{
	uint32_t share;

	(void)state;
	write_hint(5, 256, "10.0.1.1", "10.0.1.2");
	start_agent(GOOD);
	begin();
	EVENTUALLY(share_now() == 256);
	stop_agent();
	put32(16 + 16 * 5 + 4, 99); /* it was killed in the middle of a write */
	put32(16 + 16 * 5, 777);
	share = share_now();
	assert_true(share == 256 || ha_real_ns() - agent.seen_after_ns >= STALE_MS * HA_NS_PER_MS);
	EVENTUALLY(share_now() == HA_HINT_NONE);
	assert_true(ha_real_ns() - agent.seen_after_ns >= STALE_MS * HA_NS_PER_MS);
	EVENTUALLY(lost == 1);
	assert_int_equal(warnings, 1);
	assert_true(warned_of("gone"));
	some_looks();
	assert_int_equal(warnings, 1);
	/* Back, and the flow has another slot. */
	agent.slot = 200;
	write_hint(200, 640, "10.0.1.1", "10.0.1.2");
	start_agent(GOOD);
	EVENTUALLY(share_now() == 640);
	EVENTUALLY(found == 2);
}

/* A restart between two looks. */
static void an_agent_that_starts_anew_is_asked_again(void **state)
{
	(void)state;
	write_hint(5, 256, "10.0.1.1", "10.0.1.2");
	start_agent(GOOD);
	begin();
	EVENTUALLY(share_now() == 256);
	agent.slot = 6;
	write_hint(6, 100, "10.0.1.1", "10.0.1.2");
	write_hint(5, 0, NULL, NULL); /* as it clears what was there */
	EVENTUALLY(share_now() == 100);
}

static void a_file_of_another_boot_is_not_read(void **state)
{
	(void)state;
	write_hint(5, 999, "10.0.1.1", "10.0.1.2");
	begin();
	some_looks();
	assert_true(share_now() == HA_HINT_NONE);
	EVENTUALLY(warnings == 1);
	assert_true(warned_of("no agent at"));
}

static void another_flows_slot_is_not_used_and_asked_for_again(void **state)
{
	(void)state;
	write_hint(5, 999, "10.0.1.1", "10.0.1.77");
	start_agent(GOOD);
	begin();
	EVENTUALLY(agent.registered >= 3);
	assert_true(share_now() == HA_HINT_NONE);
	EVENTUALLY(warnings == 1);
	assert_true(warned_of("another flow"));
	write_hint(5, 111, "10.0.1.1", "10.0.1.2");
	EVENTUALLY(share_now() == 111);
}

static void slots_that_there_are_not_are_refused(void **state)
{
	static const uint32_t slots[] = {256, 257, 0x10000005, UINT32_MAX};

	(void)state;
	for (size_t i = 0; i < sizeof(slots) / sizeof(slots[0]); i++) {
		agent.slot = slots[i];
		start_agent(GOOD);
		begin();
		EVENTUALLY(agent.registered >= 2);
		assert_true(share_now() == HA_HINT_NONE);
		EVENTUALLY(warnings == 1);
		end();
		stop_agent();
	}
}

/* ---- files that are not to be believed ------------------------------------------------------- */

static void too_short(void)
{
	assert_int_equal(truncate(hints_path, BYTES - 1), 0);
}

static void empty(void)
{
	assert_int_equal(truncate(hints_path, 0), 0);
}

static void a_link(void)
{
	assert_int_equal(unlink(hints_path), 0);
	assert_int_equal(symlink("/proc/self/exe", hints_path), 0);
}

static void a_fifo(void)
{
	assert_int_equal(unlink(hints_path), 0);
	assert_int_equal(mkfifo(hints_path, 0644), 0);
}

static void a_directory(void)
{
	assert_int_equal(unlink(hints_path), 0);
	assert_int_equal(mkdir(hints_path, 0755), 0);
}

static void writable_by_all(void)
{
	assert_int_equal(chmod(hints_path, 0646), 0);
}

static void writable_by_the_group(void)
{
	assert_int_equal(chmod(hints_path, 0664), 0);
}

static void bad_magic(void)
{
	put32(0, 0x4D504949);
}

static void no_entries(void)
{
	put32(4, 0);
}

static void open_directory(void)
{
	assert_int_equal(chmod(dir, 0777), 0);
}

static void foreign(void)
{
	assert_int_equal(chown(hints_path, 12345, 12345), 0);
}

static void foreign_directory(void)
{
	assert_int_equal(chown(dir, 12345, 12345), 0);
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
    {"an open directory", open_directory, "others may write its directory", false},
    {"another user's", foreign, "another user's", true},
    {"in another user's directory", foreign_directory, "another user's", true},
};

static bool can_make(size_t i)
{
	if (!files[i].needs_root || geteuid() == 0)
		return true;
	print_message("not tried, for want of root's rights: a file that is %s\n", files[i].what);
	return false;
}

static void put_back(void)
{
	chmod(dir, 0755);
	if (geteuid() == 0)
		assert_int_equal(chown(dir, 0, 0), 0);
	unmap_file();
	if (unlink(hints_path) != 0)
		rmdir(hints_path);
	make_file();
	write_hint(5, 256, "10.0.1.1", "10.0.1.2");
}

static void a_file_that_is_not_to_be_believed_is_one_warning(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		if (!can_make(i))
			continue;
		put_back();
		files[i].make();
		start_agent(GOOD);
		begin();
		EVENTUALLY(warnings > 0);
		some_looks();
		if (warnings != 1 || !warned_of(files[i].said) || share_now() != HA_HINT_NONE ||
		    agent.registered != 0)
			fail_msg("%s: %d warnings (%s), hint %u, %u registered", files[i].what,
				 (int)warnings, last_warning, share_now(),
				 (unsigned)agent.registered);
		/* And when it is well again. */
		put_back();
		EVENTUALLY(share_now() == 256);
		end();
		stop_agent();
	}
}

/* The same while it is used. */
static void a_file_that_goes_bad_is_given_up(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		if (!can_make(i))
			continue;
		put_back();
		start_agent(GOOD);
		begin();
		EVENTUALLY(share_now() == 256);
		files[i].make();
		EVENTUALLY(__atomic_load_n(&hint->at, __ATOMIC_ACQUIRE) == 0);
		some_looks();
		if (warnings != 1 || share_now() != HA_HINT_NONE)
			fail_msg("%s: %d warnings (%s), hint %u", files[i].what, (int)warnings,
				 last_warning, share_now());
		put_back();
		EVENTUALLY(share_now() == 256);
		end();
		stop_agent();
	}
}

static void a_file_with_too_many_entries_has_256(void **state)
{
	(void)state;
	put32(4, UINT32_MAX);
	agent.slot = 255;
	write_hint(255, 77, "10.0.1.1", "10.0.1.2");
	start_agent(GOOD);
	begin();
	EVENTUALLY(share_now() == 77);
}

static uint32_t share_at_5(int fd)
{
	uint32_t share = 0;

	assert_true(pread(fd, &share, sizeof(share), 16 + 16 * 5) >= 0);
	return share;
}

/* Whoever has the number of the descriptor reads the file that is believed, or was last. */
static void a_file_that_is_replaced_has_the_same_descriptor(void **state)
{
	struct ha_hint_file file;
	const char *why;
	int fd;

	(void)state;
	write_hint(5, 256, "10.0.1.1", "10.0.1.2");
	ha_hint_file_begin(&file);
	assert_int_equal(ha_hint_file_look(&file, dir, &why), HA_HINT_FILE_NEW);
	fd = file.fd;
	assert_int_equal(share_at_5(fd), 256);
	assert_int_equal(ha_hint_file_look(&file, dir, &why), HA_HINT_FILE_SAME);
	empty();
	assert_int_equal(ha_hint_file_look(&file, dir, &why), HA_HINT_FILE_NONE);
	assert_int_equal(file.entries, 0);
	assert_int_equal(share_at_5(fd), 0);
	put_back();
	assert_int_equal(ha_hint_file_look(&file, dir, &why), HA_HINT_FILE_NEW);
	assert_int_equal(share_at_5(fd), 256);
	make_file(); /* another file of the same name */
	write_hint(5, 257, NULL, NULL);
	assert_int_equal(ha_hint_file_look(&file, dir, &why), HA_HINT_FILE_NEW);
	assert_int_equal(share_at_5(fd), 257);
	assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	assert_int_equal(unlink(hints_path), 0);
	assert_int_equal(ha_hint_file_look(&file, dir, &why), HA_HINT_FILE_NONE);
	assert_null(why);
	assert_int_equal(file.fd, fd);
	ha_hint_file_end(&file);
	assert_int_equal(fcntl(fd, F_GETFD), -1);
	make_file();
}

/* ---- agents that answer badly, or not at all ------------------------------------------------- */

static void a_bad_agent_is_one_warning_and_delays_nobody(void **state)
{
	static const char *const said[MANNERS] = {
	    [MUTE] = "does not answer",	    [WRONG_MAGIC] = "no valid answer",
	    [FULL] = "no free slot",	    [INVALID] = "does not take",
	    [HANGS_UP] = "no valid answer", [TOO_LONG] = "no valid answer",
	};

	(void)state;
	write_hint(5, 256, "10.0.1.1", "10.0.1.2");
	for (enum manner manner = 0; manner < MANNERS; manner++) {
		struct ha_agent_flow other = flow_to("10.0.1.3");
		unsigned quick = 0;

		if (!said[manner])
			continue;
		start_agent(manner);
		step_ms = manner == MUTE ? STEP_MS : LONG_MS;
		begin();
		for (int i = 0; i < 50; i++) {
			uint64_t began_ns = ha_real_ns();

			ha_hints_leave(hints, ha_hints_join(hints, &other));
			quick += ha_real_ns() - began_ns < HA_NS_PER_MS;
			usleep(500);
		}
		assert_in_range(quick, 25, 50);	   /* but for what else runs here */
		EVENTUALLY(agent.registered >= 2); /* it is asked again */
		if (warnings != 1 || !warned_of(said[manner]))
			fail_msg("manner %d: %d warnings (%s)", manner, (int)warnings,
				 last_warning);
		assert_true(share_now() == HA_HINT_NONE);
		agent.manner = GOOD;
		EVENTUALLY(share_now() == 256);
		end();
		stop_agent();
	}
}

static void an_answer_in_single_bytes_is_one(void **state)
{
	(void)state;
	write_hint(5, 256, "10.0.1.1", "10.0.1.2");
	start_agent(BY_BYTES);
	begin();
	EVENTUALLY(share_now() == 256);
	assert_int_equal(warnings, 0);
}

static void without_an_address_there_is_no_registration(void **state)
{
	struct ha_agent_flow none = flow_to("0.0.0.0");

	(void)state;
	start_agent(GOOD);
	begin();
	EVENTUALLY(agent.registered == 1);
	assert_null(ha_hints_join(hints, &none));
	assert_null(ha_hints_join(hints, &none));
	ha_hints_leave(hints, NULL);
	some_looks();
	assert_int_equal(agent.registered, 1);
	EVENTUALLY(warnings == 1);
	assert_true(warned_of("IPv4"));
}

static void the_end_waits_for_no_agent(void **state)
{
	struct ha_agent_flow flow = flow_to("10.0.1.2");
	struct ha_hint *many[200];
	uint64_t began_ns;

	(void)state;
	write_hint(5, 256, "10.0.1.1", "10.0.1.2");
	start_agent(GOOD);
	step_ms = LONG_MS / 6;
	begin();
	for (int i = 0; i < 200; i++)
		many[i] = ha_hints_join(hints, &flow);
	EVENTUALLY(agent.registered == 201);
	agent.manner = MUTE;
	began_ns = ha_real_ns();
	for (int i = 0; i < 200; i++)
		ha_hints_leave(hints, many[i]);
	end();
	assert_true(ha_real_ns() - began_ns < 20 * step_ms * HA_NS_PER_MS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	    T(a_read_20_us_later_has_what_the_agent_wrote),
	    T(an_agent_that_fills_in_no_addresses_is_believed_until_it_does),
	    T(an_agent_that_is_gone_is_followed_for_so_long_and_no_longer),
	    T(an_agent_that_starts_anew_is_asked_again),
	    T(a_file_of_another_boot_is_not_read),
	    T(another_flows_slot_is_not_used_and_asked_for_again),
	    T(slots_that_there_are_not_are_refused),
	    T(a_file_that_is_not_to_be_believed_is_one_warning),
	    T(a_file_that_goes_bad_is_given_up),
	    T(a_file_with_too_many_entries_has_256),
	    T(a_file_that_is_replaced_has_the_same_descriptor),
	    T(a_bad_agent_is_one_warning_and_delays_nobody),
	    T(an_answer_in_single_bytes_is_one),
	    T(without_an_address_there_is_no_registration),
	    T(the_end_waits_for_no_agent),
#undef T
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
