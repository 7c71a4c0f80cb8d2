/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The job's key: where it may come from, what is refused and what the operator reads of it, and
 * that it is seen nowhere once it is loaded.
 */
#include "../captured_log.h"
#include "../cmocka_all.h"

#include "base/job_key.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Whom the plugin takes this process to be. */
static bool somebody_else;

uid_t __real_geteuid(void);
uid_t __wrap_geteuid(void);

uid_t __wrap_geteuid(void)
{
	return somebody_else ? 4711 : __real_geteuid();
}

static char folder[] = "/tmp/nccl-ha-key.XXXXXX";
static char path[sizeof(folder) + 16], other_path[sizeof(folder) + 16];
static struct ha_config config;

static int make_folder(void **state)
{
	(void)state;
	if (!mkdtemp(folder))
		return -1;
	snprintf(path, sizeof(path), "%s/key", folder);
	snprintf(other_path, sizeof(other_path), "%s/other", folder);
	return 0;
}

static int remove_folder(void **state)
{
	(void)state;
	return rmdir(folder);
}

static int begin(void **state)
{
	(void)state;
	somebody_else = false;
	memset(&config, 0, sizeof(config));
	config.auth = HA_AUTH_IF_KEY;
	config.job_key_fd = -1;
	capture_log();
	return 0;
}

static int end(void **state)
{
	(void)state;
	ha_log_set_sink(NULL);
	(void)unlink(path);
	(void)unlink(other_path);
	return 0;
}

/*
 * A byte of the key number `key`, worked out each time: no copy of a key is to lie about, nor a
 * compiler's table of its bytes, which is what the volatile is for.
 */
static uint8_t key_byte(int key, int i)
{
	static volatile int step = 73;

	return (uint8_t)((i + 1) * step + key * 29 + (i * i >> 2));
}

static void write_key_bytes(int fd, int key, int n)
{
	for (int i = 0; i < n; i++) {
		uint8_t byte = key_byte(key, i % HA_JOB_KEY_BYTES);

		assert_int_equal(write(fd, &byte, 1), 1);
	}
}

/* At `path`, with the first n bytes of key number 1, over again from byte 32 on. */
static void write_file(int n, mode_t mode)
{
	int fd;

	(void)unlink(path);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	write_key_bytes(fd, 1, n);
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
}

/* The code of "message" with key number `key`. */
static void expected_code(int key, uint8_t code[HA_HMAC_BYTES])
{
	uint8_t bytes[HA_JOB_KEY_BYTES];
	struct ha_hmac_key hmac_key;

	for (int i = 0; i < HA_JOB_KEY_BYTES; i++)
		bytes[i] = key_byte(key, i);
	ha_hmac_set_key(&hmac_key, bytes, sizeof(bytes));
	explicit_bzero(bytes, sizeof(bytes));
	ha_hmac(&hmac_key, "message", 7, code, HA_HMAC_BYTES);
	ha_hmac_forget_key(&hmac_key);
}

static void assert_key(const struct ha_job_key *key, int number)
{
	uint8_t expected[HA_HMAC_BYTES], code[HA_HMAC_BYTES];
	struct ha_hmac mac;

	expected_code(number, expected);
	assert_true(ha_job_key_begin(key, &mac));
	ha_hmac_add(&mac, "message", 7);
	ha_hmac_end(&mac, code, sizeof(code));
	assert_memory_equal(code, expected, sizeof(code));
}

static void use_file(void)
{
	ha_copy_text(config.job_key_file, sizeof(config.job_key_file), path);
}

/* One WARN that has all of these texts, and no key. */
#define assert_refused(...)                                                                        \
	do {                                                                                       \
		const char *const texts_[] = {__VA_ARGS__};                                        \
		struct ha_job_key *key_;                                                           \
		capture_log();                                                                     \
		assert_int_equal(ha_job_key_load(&config, &key_), HA_ERR_SYSTEM);                  \
		assert_null(key_);                                                                 \
		assert_int_equal(captured_warnings, 1);                                            \
		for (size_t i_ = 0; i_ < sizeof(texts_) / sizeof(texts_[0]); i_++)                 \
			if (!logged(texts_[i_]))                                                   \
				fail_msg("\"%s\" is not in: %s", texts_[i_], captured_log);        \
	} while (0)

/* ---- files ---------------------------------------------------------------------------------- */

static void a_file_of_32_bytes_that_is_ours_alone_is_the_key(void **state)
{
	struct ha_job_key *key;

	(void)state;
	for (int mode = 0; mode < 0700; mode += 0100) {
		if (!(mode & 0400))
			continue; /* root alone reads it */
		write_file(HA_JOB_KEY_BYTES, (mode_t)mode);
		use_file();
		assert_int_equal(ha_job_key_load(&config, &key), HA_OK);
		assert_non_null(key);
		assert_key(key, 1);
		ha_job_key_free(key);
	}
	assert_int_equal(captured_warnings, 0);
}

static void any_permission_for_others_is_refused(void **state)
{
	(void)state;
	for (int bit = 0; bit < 6; bit++) {
		char mode[32];

		write_file(HA_JOB_KEY_BYTES, (mode_t)(0400 | 1 << bit));
		use_file();
		snprintf(mode, sizeof(mode), "its mode is %04o", 0400 | 1 << bit);
		assert_refused("HA_NCCL_JOB_KEY_FILE=", path, mode, "chmod 0400");
	}
}

static void a_strangers_file_is_refused_and_roots_is_not(void **state)
{
	struct ha_job_key *key;
	char text[64];

	(void)state;
	write_file(HA_JOB_KEY_BYTES, 0400);
	use_file();
	if (getuid() == 0) {
		somebody_else = true;
		assert_int_equal(ha_job_key_load(&config, &key), HA_OK);
		ha_job_key_free(key);
		somebody_else = false;
		assert_int_equal(chown(path, 4712, (gid_t)-1), 0);
		snprintf(text, sizeof(text), "it belongs to user 4712, and this process is user 0");
	} else {
		somebody_else = true;
		snprintf(text, sizeof(text), "it belongs to user %u, and this process is user 4711",
			 (unsigned)getuid());
	}
	assert_refused(path, text, "it must belong to who runs the job, or to root");
}

static void a_link_is_refused_even_to_a_good_file(void **state)
{
	(void)state;
	write_file(HA_JOB_KEY_BYTES, 0400);
	assert_int_equal(symlink(path, other_path), 0);
	ha_copy_text(config.job_key_file, sizeof(config.job_key_file), other_path);
	assert_refused(other_path, "it is a link", "name the file itself");
}

static void what_is_no_regular_file_is_refused_at_once(void **state)
{
	(void)state;
	ha_copy_text(config.job_key_file, sizeof(config.job_key_file), folder);
	assert_refused(folder, "it is no regular file");
	assert_int_equal(mkfifo(path, 0600), 0); /* with nobody at its other end */
	use_file();
	assert_refused(path, "it is no regular file");
	ha_copy_text(config.job_key_file, sizeof(config.job_key_file), "/dev/zero");
	assert_refused("/dev/zero", "it is no regular file");
}

static void a_file_that_is_not_there_is_named(void **state)
{
	(void)state;
	use_file();
	assert_refused(path, "No such file or directory", "every host of the job needs the file");
}

static void a_file_of_any_other_length_is_refused(void **state)
{
	(void)state;
	use_file();
	for (int n = 0; n <= 66; n++) {
		char text[64];

		if (n == HA_JOB_KEY_BYTES)
			continue;
		write_file(n, 0400);
		snprintf(text, sizeof(text), "it has %d bytes instead of 32", n);
		assert_refused(path, text, "head -c 32 /dev/urandom");
		assert_int_equal(logged("not hexadecimal digits"), n == 64 || n == 65);
	}
}

static void a_key_of_zeros_is_none(void **state)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	(void)state;
	assert_int_equal(ftruncate(fd, HA_JOB_KEY_BYTES), 0);
	close(fd);
	use_file();
	assert_refused(path, "all its bytes are the same");
}

/* ---- descriptors ----------------------------------------------------------------------------- */

static bool is_open(int fd)
{
	return fcntl(fd, F_GETFD) != -1;
}

static int memory_file(int key, int n)
{
	int fd = memfd_create("key", MFD_CLOEXEC);

	assert_true(fd >= 3);
	write_key_bytes(fd, key, n);
	return fd;
}

/* In a process of its own: what came from a descriptor stays for the life of the process. */
static void in_a_child(void (*run)(void))
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		run();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* cmocka's failures are the parent's to report. */
#define check(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: %s\n%s", __FILE__, __LINE__, #condition,           \
				captured_log);                                                     \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

static bool has_code(const struct ha_job_key *key, int number)
{
	uint8_t expected[HA_HMAC_BYTES], code[HA_HMAC_BYTES];
	struct ha_hmac mac;

	expected_code(number, expected);
	if (!ha_job_key_begin(key, &mac))
		return false;
	ha_hmac_add(&mac, "message", 7);
	ha_hmac_end(&mac, code, sizeof(code));
	return ha_same_secret(code, expected, sizeof(code));
}

static void load_from_file_twice(void)
{
	struct ha_job_key *key, *again;

	config.job_key_fd = memory_file(2, HA_JOB_KEY_BYTES); /* its offset is at the end */
	check(ha_job_key_load(&config, &key) == HA_OK && has_code(key, 2));
	check(!is_open(config.job_key_fd));
	ha_job_key_free(key);
	/* The number may be another file's meanwhile. */
	check(memory_file(3, HA_JOB_KEY_BYTES) == config.job_key_fd);
	check(ha_job_key_load(&config, &again) == HA_OK && has_code(again, 2));
	check(is_open(config.job_key_fd));
	check(captured_warnings == 0);
}

static void a_descriptor_is_read_once_and_closed(void **state)
{
	(void)state;
	in_a_child(load_from_file_twice);
}

static void *write_slowly(void *arg)
{
	const struct timespec pause = {.tv_nsec = 5 * 1000 * 1000};
	int fd = *(int *)arg;

	for (int i = 0; i < HA_JOB_KEY_BYTES; i++) {
		uint8_t byte = key_byte(4, i);

		check(write(fd, &byte, 1) == 1);
		if (i % 16 == 15)
			nanosleep(&pause, NULL);
	}
	return NULL;
}

static void load_from_pipe(void)
{
	struct ha_job_key *key;
	pthread_t thread;
	int fds[2];

	check(pipe2(fds, O_CLOEXEC) == 0);
	config.job_key_fd = fds[0];
	check(pthread_create(&thread, NULL, write_slowly, &fds[1]) == 0);
	check(ha_job_key_load(&config, &key) == HA_OK && has_code(key, 4));
	check(!is_open(fds[0]));
	pthread_join(thread, NULL);
}

static void a_pipes_writer_may_be_slow(void **state)
{
	(void)state;
	in_a_child(load_from_pipe);
}

/* The number may be that of something else, which stays as it is. */
static void a_descriptor_without_a_key_is_left_as_it_was(void **state)
{
	char bytes[64];
	int fds[2];

	(void)state;
	config.job_key_fd = memory_file(1, HA_JOB_KEY_BYTES + 1);
	assert_refused("HA_NCCL_JOB_KEY_FD=", "it has 33 bytes instead of 32");
	assert_true(is_open(config.job_key_fd));
	close(config.job_key_fd);
	assert_refused("it is not open", "or use HA_NCCL_JOB_KEY_FILE");

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	config.job_key_fd = fds[0];
	write_key_bytes(fds[1], 1, HA_JOB_KEY_BYTES + 1);
	assert_refused("the pipe has 33 bytes instead of 32");
	assert_int_equal(read(fds[0], bytes, sizeof(bytes)), HA_JOB_KEY_BYTES + 1);
	write_key_bytes(fds[1], 1, HA_JOB_KEY_BYTES - 1);
	close(fds[1]);
	assert_refused("the pipe has 31 bytes instead of 32"); /* no more can come */
	assert_int_equal(read(fds[0], bytes, sizeof(bytes)), HA_JOB_KEY_BYTES - 1);
	close(fds[0]);

	config.job_key_fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	assert_refused("it is neither a file nor a pipe");
	close(config.job_key_fd);
}

/* ---- whether there has to be one ------------------------------------------------------------ */

static void without_a_key_only_required_is_an_error(void **state)
{
	struct ha_job_key *key;

	(void)state;
	assert_int_equal(ha_job_key_load(&config, &key), HA_OK);
	assert_null(key);
	config.auth = HA_AUTH_REQUIRED;
	assert_refused("HA_NCCL_AUTH=required", "set HA_NCCL_JOB_KEY_FILE or HA_NCCL_JOB_KEY_FD");
}

static void off_looks_at_no_key_and_a_bad_one_is_fatal_otherwise(void **state)
{
	struct ha_job_key *key;

	(void)state;
	write_file(5, 0666);
	use_file();
	config.auth = HA_AUTH_OFF;
	assert_int_equal(ha_job_key_load(&config, &key), HA_OK);
	assert_null(key);
	assert_int_equal(captured_warnings, 0);
	config.auth = HA_AUTH_IF_KEY;
	assert_refused(path);
	config.auth = HA_AUTH_REQUIRED;
	assert_refused(path);
}

static void two_sources_are_one_too_many(void **state)
{
	(void)state;
	use_file();
	config.job_key_fd = 9;
	assert_refused("HA_NCCL_JOB_KEY_FILE and HA_NCCL_JOB_KEY_FD are both set");
}

static const char *bad_name, *bad_value;

static char *bad_getenv(const char *name)
{
	return strcmp(name, bad_name) ? NULL : (char *)(uintptr_t)bad_value;
}

/* The default in place of a misspelt value would be no protection. */
static void a_value_that_cannot_be_used_is_not_replaced_by_a_default(void **state)
{
	static char long_name[HA_CONFIG_STRING_MAX + 1];
	static const char *const values[][2] = {
	    {"HA_NCCL_AUTH", "require"},   {"HA_NCCL_AUTH", "1"},
	    {"HA_NCCL_JOB_KEY_FD", "two"}, {"HA_NCCL_JOB_KEY_FD", "2"},
	    {"HA_NCCL_JOB_KEY_FD", "-1"},  {"HA_NCCL_JOB_KEY_FILE", long_name},
	};

	(void)state;
	memset(long_name, 'x', sizeof(long_name) - 1);
	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		bad_name = values[i][0];
		bad_value = values[i][1];
		ha_config_load(&config, bad_getenv);
		assert_refused(bad_name, "has no value that can be used");
	}
	bad_name = "HA_NCCL_AUTH";
	bad_value = "Required";
	ha_config_load(&config, bad_getenv);
	assert_int_equal(config.auth, HA_AUTH_REQUIRED);
}

/* ---- where it is seen ----------------------------------------------------------------------- */

/* How often key number 1 is in the memory of this process that can be read. */
static int copies_in_memory(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	int mem = open("/proc/self/mem", O_RDONLY | O_CLOEXEC), found = 0;
	static uint8_t piece[1 << 16];
	char line[512];

	assert_non_null(maps);
	assert_true(mem >= 0);
	while (fgets(line, sizeof(line), maps)) {
		unsigned long from, to;
		char rights[5];

		/* Shadow memory of a sanitizer is terabytes, and not there. */
		if (sscanf(line, "%lx-%lx %4s", &from, &to, rights) != 3 || rights[0] != 'r' ||
		    to - from > 1ul << 30)
			continue;
		for (unsigned long at = from; at < to; at += sizeof(piece) - HA_JOB_KEY_BYTES) {
			size_t size = to - at < sizeof(piece) ? to - at : sizeof(piece);
			ssize_t n = pread(mem, piece, size, (off_t)at);

			for (ssize_t i = 0; i + HA_JOB_KEY_BYTES <= n; i++) {
				const uint8_t *first =
				    memchr(&piece[i], key_byte(1, 0), (size_t)(n - i));
				int same = 0;

				if (!first || first - piece + HA_JOB_KEY_BYTES > n)
					break;
				i = first - piece;
				while (same < HA_JOB_KEY_BYTES &&
				       piece[i + same] == key_byte(1, same))
					same++;
				if (same == HA_JOB_KEY_BYTES) {
					found++;
					i += HA_JOB_KEY_BYTES;
				}
			}
			explicit_bzero(piece, sizeof(piece));
		}
	}
	fclose(maps);
	close(mem);
	return found;
}

static void its_bytes_are_nowhere_in_memory_once_it_is_loaded(void **state)
{
	static volatile uint8_t copy[HA_JOB_KEY_BYTES];
	struct ha_job_key *key;

	(void)state;
	write_file(HA_JOB_KEY_BYTES, 0400);
	use_file();
	assert_int_equal(ha_job_key_load(&config, &key), HA_OK);
	assert_int_equal(copies_in_memory(), 0);
	/* Who looks like this finds one that is there. */
	for (int i = 0; i < HA_JOB_KEY_BYTES; i++)
		copy[i] = key_byte(1, i);
	assert_true(copies_in_memory() >= 1);
	memset((void *)(uintptr_t)copy, 0, sizeof(copy));
	ha_job_key_free(key);
}

/* The flags of the mapping that the key is in, as /proc/self/smaps has them. */
static void page_flags(const struct ha_job_key *key, char *flags, size_t size)
{
	FILE *smaps = fopen("/proc/self/smaps", "r");
	bool here = false;
	char line[512];

	assert_non_null(smaps);
	flags[0] = '\0';
	while (fgets(line, sizeof(line), smaps)) {
		unsigned long from, to;

		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			here = (unsigned long)(uintptr_t)key >= from &&
			       (unsigned long)(uintptr_t)key < to;
		else if (here && !strncmp(line, "VmFlags:", 8))
			snprintf(flags, size, "%s", line);
	}
	fclose(smaps);
}

static void core_files_leave_it_out_and_nothing_can_write_over_it(void **state)
{
	struct ha_job_key *key;
	char flags[512];

	(void)state;
	write_file(HA_JOB_KEY_BYTES, 0400);
	use_file();
	assert_int_equal(ha_job_key_load(&config, &key), HA_OK);
	page_flags(key, flags, sizeof(flags));
	assert_non_null(strstr(flags, " dd")); /* not in a dump */
	assert_non_null(strstr(flags, " wf")); /* empty in a child */
	assert_null(strstr(flags, " wr"));     /* not writable */
	ha_job_key_free(key);
}

static void a_forked_child_has_no_key_and_its_parent_still_has(void **state)
{
	struct ha_job_key *key;
	int status;
	pid_t pid;

	(void)state;
	write_file(HA_JOB_KEY_BYTES, 0400);
	use_file();
	assert_int_equal(ha_job_key_load(&config, &key), HA_OK);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		static const struct ha_hmac erased;
		struct ha_hmac mac;

		memset(&mac, 0xee, sizeof(mac));
		check(!ha_job_key_begin(key, &mac));
		check(memcmp(&mac, &erased, sizeof(mac)) == 0);
		ha_job_key_free(key);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	assert_key(key, 1);
	ha_job_key_free(key);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(a_file_of_32_bytes_that_is_ours_alone_is_the_key),
	    TEST(any_permission_for_others_is_refused),
	    TEST(a_strangers_file_is_refused_and_roots_is_not),
	    TEST(a_link_is_refused_even_to_a_good_file),
	    TEST(what_is_no_regular_file_is_refused_at_once),
	    TEST(a_file_that_is_not_there_is_named),
	    TEST(a_file_of_any_other_length_is_refused),
	    TEST(a_key_of_zeros_is_none),
	    TEST(a_descriptor_is_read_once_and_closed),
	    TEST(a_pipes_writer_may_be_slow),
	    TEST(a_descriptor_without_a_key_is_left_as_it_was),
	    TEST(without_a_key_only_required_is_an_error),
	    TEST(off_looks_at_no_key_and_a_bad_one_is_fatal_otherwise),
	    TEST(two_sources_are_one_too_many),
	    TEST(a_value_that_cannot_be_used_is_not_replaced_by_a_default),
	    TEST(its_bytes_are_nowhere_in_memory_once_it_is_loaded),
	    TEST(core_files_leave_it_out_and_nothing_can_write_over_it),
	    TEST(a_forked_child_has_no_key_and_its_parent_still_has),
	};

	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
