/* SPDX-License-Identifier: Apache-2.0 */
#include "base/random.h"

#include "base/clock.h"
#include "base/hmac.h"
#include "base/log.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/random.h>
#include <unistd.h>

/*
 * Where the kernel's call is filtered or missing: numbers from a key of this process, which is made
 * of what the kernel gave it when it started and of /dev/urandom. No number says anything about the
 * others.
 */
static struct {
	pthread_mutex_t lock; /* protects the rest */
	bool ready;
	struct ha_hmac_key key;
	uint64_t count;
} own = {.lock = PTHREAD_MUTEX_INITIALIZER};

#define AT_RANDOM_BYTES 16
#define URANDOM_BYTES	32

static bool read_urandom(uint8_t *bytes, size_t size)
{
	int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
	bool ok = fd >= 0 && read(fd, bytes, size) == (ssize_t)size;

	if (fd >= 0)
		close(fd);
	return ok;
}

/* With the lock. False: half of what makes it is missing, and it is not made. */
static bool make_key(bool in_need)
{
	const void *started_with = (const void *)getauxval(AT_RANDOM);
	uint8_t seed[AT_RANDOM_BYTES + URANDOM_BYTES] = {0};
	bool has_all = started_with && read_urandom(seed + AT_RANDOM_BYTES, URANDOM_BYTES);

	if (!has_all && !in_need)
		return false;
	if (!has_all) {
		uint64_t now_ns = ha_now_ns();

		HA_WARN("neither getrandom nor /dev/urandom works any more: what other hosts must "
			"not guess comes from the beginning of this process only");
		memcpy(seed + AT_RANDOM_BYTES, &now_ns, sizeof(now_ns));
	}
	if (started_with)
		memcpy(seed, started_with, AT_RANDOM_BYTES);
	ha_hmac_set_key(&own.key, seed, sizeof(seed));
	explicit_bzero(seed, sizeof(seed));
	own.ready = true;
	return true;
}

/* With the lock. A forked child has the same key and count, and another number. */
static uint64_t next_of_own(void)
{
	const struct {
		uint64_t count, pid;
	} message = {own.count++, (uint64_t)getpid()};
	uint64_t value;

	ha_hmac(&own.key, &message, sizeof(message), (uint8_t *)&value, sizeof(value));
	return value;
}

static bool from_kernel(uint64_t *value)
{
	return getrandom(value, sizeof(*value), 0) == (ssize_t)sizeof(*value);
}

bool ha_random_works(void)
{
	bool works;

	if (getrandom(NULL, 0, 0) == 0)
		return true;
	pthread_mutex_lock(&own.lock);
	works = own.ready || make_key(false);
	pthread_mutex_unlock(&own.lock);
	if (!works)
		HA_WARN("no random numbers: neither getrandom nor /dev/urandom works (a seccomp "
			"filter? a container without /dev?); the plugin does not begin without");
	return works;
}

uint64_t ha_random(void)
{
	uint64_t value = 0;

	while (value == 0) {
		if (from_kernel(&value))
			continue;
		pthread_mutex_lock(&own.lock);
		if (own.ready || make_key(true))
			value = next_of_own();
		pthread_mutex_unlock(&own.lock);
	}
	return value;
}
