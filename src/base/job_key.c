/* SPDX-License-Identifier: Apache-2.0 */
/* The job's key: found, checked, and kept where it is not seen. */
#include "base/job_key.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PIPE_WAIT_NS (10 * HA_NS_PER_S) /* for who writes the key into a pipe */
#define SHOWN_MAX    200 /* bytes of a file's name that a log line repeats, at most */

#define MAKE_ONE "make it with head -c 32 /dev/urandom, once for the job"

/* All of a page, which is read-only once there is a key in it. */
struct ha_job_key {
	bool present; /* a child made by fork has zeros here */
	struct ha_hmac_key key;
	uint8_t bytes[HA_JOB_KEY_BYTES]; /* only while it is read */
};

/* Where a key is to come from. */
struct source {
	char name[SHOWN_MAX]; /* as a line in the log has it */
	int fd;
};

/* What an inherited descriptor gave. */
static struct {
	pthread_mutex_t lock; /* protects the rest */
	int fd;
	struct ha_job_key *key; /* NULL: nothing yet; once there it stays */
} inherited = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The one line about what is wrong. remedy: what to do. */
__attribute__((format(printf, 3, 4))) static ha_result_t
refuse(const struct source *source, const char *remedy, const char *wrong, ...)
{
	char text[160];
	va_list args;

	va_start(args, wrong);
	vsnprintf(text, sizeof(text), wrong, args);
	va_end(args);
	HA_WARN("no job key from %s: %s; %s", source->name, text, remedy);
	return HA_ERR_SYSTEM;
}

/* ---- the page ------------------------------------------------------------------------------- */

static void free_page(struct ha_job_key *key)
{
	if (mprotect(key, sizeof(*key), PROT_READ | PROT_WRITE) == 0)
		explicit_bzero(key, sizeof(*key));
	munmap(key, sizeof(*key));
}

static struct ha_job_key *new_page(void)
{
	struct ha_job_key *key =
	    mmap(NULL, sizeof(*key), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (key == MAP_FAILED)
		return NULL;
	if (madvise(key, sizeof(*key), MADV_DONTDUMP) != 0) {
		munmap(key, sizeof(*key));
		return NULL;
	}
	(void)madvise(key, sizeof(*key), MADV_WIPEONFORK);
	(void)mlock(key, sizeof(*key));
	return key;
}

/* ---- what is read ---------------------------------------------------------------------------- */

/* What truncate or /dev/zero made. */
static bool all_the_same(const uint8_t *bytes)
{
	uint8_t different = 0;

	for (int i = 1; i < HA_JOB_KEY_BYTES; i++)
		different |= bytes[i] ^ bytes[0];
	return different == 0;
}

/* `got` bytes, or -1 with errno, were read into the page. */
static ha_result_t take_bytes(const struct source *source, ssize_t got, struct ha_job_key *key)
{
	if (got < 0)
		return refuse(source, "it must be open for reading", "it cannot be read: %s",
			      strerror(errno));
	if (got != HA_JOB_KEY_BYTES)
		return refuse(source, MAKE_ONE, "only %zd of %d bytes came", got, HA_JOB_KEY_BYTES);
	if (all_the_same(key->bytes))
		return refuse(source, MAKE_ONE, "all its bytes are the same");
	ha_hmac_set_key(&key->key, key->bytes, HA_JOB_KEY_BYTES);
	explicit_bzero(key->bytes, sizeof(key->bytes));
	key->present = true;
	return mprotect(key, sizeof(*key), PROT_READ) == 0
		   ? HA_OK
		   : refuse(source, "the host is out of memory", "its page cannot be protected: %s",
			    strerror(errno));
}

/* Regular, and of a key's length. Where the offset of the descriptor is does not matter: other
 * processes may have inherited the same one. */
static ha_result_t read_file(const struct source *source, const struct stat *st,
			     struct ha_job_key *key)
{
	if (st->st_size != HA_JOB_KEY_BYTES)
		return refuse(
		    source,
		    st->st_size == 2 * HA_JOB_KEY_BYTES || st->st_size == 2 * HA_JOB_KEY_BYTES + 1
			? "a key is raw bytes, not hexadecimal digits: " MAKE_ONE
			: MAKE_ONE,
		    "it has %lld bytes instead of %d", (long long)st->st_size, HA_JOB_KEY_BYTES);
	return take_bytes(source, pread(source->fd, key->bytes, HA_JOB_KEY_BYTES, 0), key);
}

/* ---- a file that is named ------------------------------------------------------------------- */

static ha_result_t check_rights(const struct source *source, const struct stat *st)
{
	if (st->st_uid != geteuid() && st->st_uid != 0)
		return refuse(source, "it must belong to who runs the job, or to root",
			      "it belongs to user %u, and this process is user %u's",
			      (unsigned)st->st_uid, (unsigned)geteuid());
	if (st->st_mode & (S_IRWXG | S_IRWXO))
		return refuse(source, "chmod 0400, and make another key: this one may be known",
			      "its mode is %04o, so that others get at it",
			      (unsigned)(st->st_mode & 07777));
	return HA_OK;
}

static ha_result_t load_opened(const struct source *source, struct ha_job_key *key)
{
	struct stat st;

	if (fstat(source->fd, &st) != 0)
		return refuse(source, "name a file on a file system that works",
			      "it cannot be looked at: %s", strerror(errno));
	if (!S_ISREG(st.st_mode))
		return refuse(source, "name a regular file", "it is no regular file");
	HA_TRY(check_rights(source, &st));
	return read_file(source, &st, key);
}

static ha_result_t load_file(const char *what, const char *path, struct ha_job_key *key)
{
	char shown[SHOWN_MAX - sizeof("HA_NCCL_JOB_KEY_FILE")];
	struct source source;
	ha_result_t result;

	snprintf(source.name, sizeof(source.name), "%s=%s", what,
		 ha_printable(path, SIZE_MAX, shown, sizeof(shown)));
	/* A pipe or a device without anybody at its other end must not hold up the job. */
	source.fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (source.fd < 0 && errno == ELOOP)
		return refuse(&source, "name the file itself", "it is a link");
	if (source.fd < 0)
		return refuse(&source,
			      errno == ENOENT
				  ? "every host of the job needs the file, before NCCL starts"
				  : "who runs the job must be able to read it",
			      "it cannot be opened: %s", strerror(errno));
	result = load_opened(&source, key);
	close(source.fd);
	return result;
}

/* ---- a descriptor that was inherited -------------------------------------------------------- */

/* Bytes in a pipe, when there are enough for a key or no more will come. Who writes may be slower
 * than we are. */
static int wait_for_writer(int fd)
{
	uint64_t give_up_ns = ha_real_ns() + PIPE_WAIT_NS;
	const struct timespec pause = {.tv_nsec = (long)HA_NS_PER_MS};

	for (;;) {
		struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
		bool last = poll(&poll_fd, 1, 0) > 0 && poll_fd.revents & (POLLHUP | POLLERR);
		int waiting = 0;

		last |= ioctl(fd, FIONREAD, &waiting) != 0 || ha_real_ns() >= give_up_ns;
		if (last || waiting >= HA_JOB_KEY_BYTES)
			return waiting;
		nanosleep(&pause, NULL);
	}
}

/* Nothing is taken out of a pipe that has not exactly a key in it: the number may be that of a pipe
 * that this process made itself. */
static ha_result_t read_pipe(const struct source *source, struct ha_job_key *key)
{
	int waiting = wait_for_writer(source->fd);

	if (waiting != HA_JOB_KEY_BYTES)
		return refuse(source, MAKE_ONE, "the pipe has %d bytes instead of %d", waiting,
			      HA_JOB_KEY_BYTES);
	return take_bytes(source, read(source->fd, key->bytes, HA_JOB_KEY_BYTES), key);
}

static ha_result_t load_fd(int fd, struct ha_job_key *key)
{
	struct source source = {.fd = fd};
	ha_result_t result;
	struct stat st;

	snprintf(source.name, sizeof(source.name), "HA_NCCL_JOB_KEY_FD=%d", fd);
	if (fstat(fd, &st) != 0)
		return refuse(
		    &source,
		    "who starts this process must leave it open, or use HA_NCCL_JOB_KEY_FILE",
		    "it is not open");
	if (S_ISREG(st.st_mode))
		result = read_file(&source, &st, key);
	else if (S_ISFIFO(st.st_mode))
		result = read_pipe(&source, key);
	else
		return refuse(&source, "pass a file or a pipe", "it is neither a file nor a pipe");
	if (result == HA_OK)
		close(fd);
	return result;
}

/* ---- which of them -------------------------------------------------------------------------- */

/* From a descriptor, or where that is -1 from a file. */
static ha_result_t load_new(int fd, const char *what, const char *path, struct ha_job_key **out)
{
	struct ha_job_key *key = new_page();
	ha_result_t result;

	*out = NULL;
	if (!key) {
		HA_WARN("out of memory for the job key");
		return HA_ERR_SYSTEM;
	}
	result = fd >= 0 ? load_fd(fd, key) : load_file(what, path, key);
	if (result == HA_OK)
		*out = key;
	else
		free_page(key);
	return result;
}

ha_result_t ha_job_key_load_file(const char *what, const char *path, struct ha_job_key **key)
{
	return load_new(-1, what, path, key);
}

static ha_result_t load_inherited(const struct ha_config *config, struct ha_job_key **out)
{
	ha_result_t result = HA_OK;

	pthread_mutex_lock(&inherited.lock);
	if (!inherited.key || inherited.fd != config->job_key_fd) {
		result = load_new(config->job_key_fd, NULL, NULL, out);
		if (result == HA_OK && !inherited.key) {
			inherited.fd = config->job_key_fd;
			inherited.key = *out;
		}
	} else {
		*out = inherited.key;
	}
	pthread_mutex_unlock(&inherited.lock);
	return result;
}

/* A default in place of what was asked for might be no protection. */
static ha_result_t check_values(const struct ha_config *config)
{
	static const char *const variables[] = {"HA_NCCL_AUTH", "HA_NCCL_JOB_KEY_FILE",
						"HA_NCCL_JOB_KEY_FD"};

	for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
		if (ha_config_origin(config, variables[i]) == HA_ORIGIN_INVALID) {
			HA_WARN("%s has no value that can be used, and the plugin does not guess "
				"whom to trust: correct it, or unset it",
				variables[i]);
			return HA_ERR_SYSTEM;
		}
	if (config->job_key_file[0] && config->job_key_fd >= 0) {
		HA_WARN(
		    "HA_NCCL_JOB_KEY_FILE and HA_NCCL_JOB_KEY_FD are both set: unset one of them");
		return HA_ERR_SYSTEM;
	}
	return HA_OK;
}

ha_result_t ha_job_key_load(const struct ha_config *config, struct ha_job_key **key)
{
	*key = NULL;
	HA_TRY(check_values(config));
	if (config->auth == HA_AUTH_OFF)
		return HA_OK;
	if (config->job_key_fd >= 0)
		return load_inherited(config, key);
	if (config->job_key_file[0])
		return ha_job_key_load_file("HA_NCCL_JOB_KEY_FILE", config->job_key_file, key);
	if (config->auth == HA_AUTH_REQUIRED) {
		HA_WARN("HA_NCCL_AUTH=required, and there is no key: set HA_NCCL_JOB_KEY_FILE or "
			"HA_NCCL_JOB_KEY_FD");
		return HA_ERR_SYSTEM;
	}
	return HA_OK;
}

void ha_job_key_free(struct ha_job_key *key)
{
	bool stays;

	if (!key)
		return;
	pthread_mutex_lock(&inherited.lock);
	stays = key == inherited.key;
	pthread_mutex_unlock(&inherited.lock);
	if (!stays)
		free_page(key);
}

bool ha_job_key_begin(const struct ha_job_key *key, struct ha_hmac *mac)
{
	if (!key->present) {
		explicit_bzero(mac, sizeof(*mac));
		return false;
	}
	ha_hmac_begin(mac, &key->key);
	return true;
}
