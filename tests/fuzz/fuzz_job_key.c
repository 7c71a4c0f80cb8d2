/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as the file of a job's key, with any mode: it is a key of 32 bytes that nobody else
 * gets at, or is refused with one line in the log that has nothing of it.
 *
 * Input: 2 bytes the file's mode; the rest is in it.
 */
#include "fuzz.h"

#include "base/job_key.h"
#include "base/log.h"

#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_TEXT("\1\0"
	      "0123456789abcdef0123456789ABCDEF"),
    FUZZ_TEXT("\1\x80"
	      "0123456789abcdef0123456789ABCDEF"),
    FUZZ_TEXT("\1\x20"
	      "0123456789abcdef0123456789ABCDEF"),
    FUZZ_TEXT("\1\0"
	      "00000000000000000000000000000000"),
    FUZZ_TEXT("\1\0"
	      "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n"),
    FUZZ_TEXT("\1\0"),
    {NULL, 0},
};

static char path[] = "/dev/shm/ha-fuzz-job-key-XXXXXX", last_line[1024];
static unsigned warnings;

static void keep_line(enum ha_log_level level, unsigned long subsys, const char *file, int line,
		      const char *text)
{
	(void)subsys, (void)file, (void)line;
	warnings += level == HA_LOG_WARN;
	snprintf(last_line, sizeof(last_line), "%s", text);
}

static char *no_environment(const char *name)
{
	(void)name;
	return NULL;
}

static void remove_file(void)
{
	unlink(path);
}

static int open_file(void)
{
	static int fd = -1;

	if (fd >= 0)
		return fd;
	fd = mkstemp(path);
	FUZZ_CHECK(fd >= 0);
	atexit(remove_file);
	ha_log_set_sink(keep_line);
	return fd;
}

static bool is_a_key(const uint8_t *bytes, size_t size)
{
	return size == HA_JOB_KEY_BYTES && memcmp(bytes, bytes + 1, size - 1) != 0;
}

static ha_result_t load(struct ha_job_key **key)
{
	struct ha_config config;

	ha_config_load(&config, no_environment);
	snprintf(config.job_key_file, sizeof(config.job_key_file), "%s", path);
	warnings = 0;
	last_line[0] = '\0';
	return ha_job_key_load(&config, key);
}

static void fill_file(int fd, const uint8_t *bytes, size_t size)
{
	FUZZ_CHECK(ftruncate(fd, 0) == 0);
	FUZZ_CHECK(pwrite(fd, bytes, size, 0) == (ssize_t)size);
}

/* What the log says of a key that is refused is what it says of any other. */
static void check_that_nothing_is_shown(int fd, const uint8_t *bytes)
{
	uint8_t other[HA_JOB_KEY_BYTES];
	char line[sizeof(last_line)];
	struct ha_job_key *key;

	for (size_t i = 0; i < sizeof(other); i++)
		other[i] = bytes[i] ^ 0x55;
	memcpy(line, last_line, sizeof(line));
	fill_file(fd, other, sizeof(other));
	FUZZ_CHECK(load(&key) != HA_OK);
	FUZZ_CHECK(strcmp(line, last_line) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int fd = open_file();
	struct ha_job_key *key = NULL;
	struct ha_hmac mac;
	ha_result_t result;
	mode_t mode;

	if (size < 2)
		return 0;
	mode = (mode_t)(data[0] << 8 | data[1]) & 0777;
	data += 2;
	size -= 2;
	fill_file(fd, data, size);
	FUZZ_CHECK(fchmod(fd, mode) == 0);
	result = load(&key);
	FUZZ_CHECK((result == HA_OK) == (key != NULL));
	FUZZ_CHECK(warnings == (result != HA_OK));
	if (result == HA_OK) {
		FUZZ_CHECK(is_a_key(data, size) && (mode & 0077) == 0);
		FUZZ_CHECK(ha_job_key_begin(key, &mac));
	} else {
		FUZZ_CHECK(!is_a_key(data, size) || (mode & 0077) != 0 || (mode & 0400) == 0);
		if (is_a_key(data, size))
			check_that_nothing_is_shown(fd, data);
	}
	ha_job_key_free(key);
	return 0;
}
