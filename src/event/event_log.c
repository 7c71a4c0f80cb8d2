/* SPDX-License-Identifier: Apache-2.0 */
/* Writing events as JSON. By hand: the plugin depends on libibverbs and libc alone. */
#include "event/event_log.h"

#include "base/async_log.h"
#include "base/clock.h"
#include "base/fork_guard.h"
#include "base/launcher_env.h"
#include "base/log.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* Strings are cut to this many bytes; each may become six (\u00ff). A line has five of them and
 * less than a kilobyte of the rest. */
#define STRING_MAX 256
#define LINE_SIZE  (5 * 6 * STRING_MAX + 1024)

struct ha_eventlog {
	atomic_uint refs;     /* its owner's, and each note's */
	pthread_mutex_t lock; /* of the file and what became of it; one writes at a time */
	pid_t pid;	      /* whose lock it is */
	int fd;
	uint64_t size_max; /* bytes; 0: any */
	bool torn;	   /* the file may end in the middle of a line */
	uint64_t missing;  /* events that could not be written since that was told */
	int rank;	   /* -1 unknown */
	char host[64];
	char path[PATH_MAX];
	char absolute[PATH_MAX]; /* for readers with another working folder; empty: unknown */
};

/* ---- JSON ----------------------------------------------------------------------------------- */

struct json {
	char text[LINE_SIZE];
	size_t length;
	bool first; /* no comma before the next member */
};

static void put(struct json *json, const char *text)
{
	size_t n = strlen(text);

	if (n > sizeof(json->text) - json->length)
		n = sizeof(json->text) - json->length;
	memcpy(json->text + json->length, text, n);
	json->length += n;
}

static void put_char(struct json *json, char c)
{
	const char text[2] = {c, '\0'};

	put(json, text);
}

/* Bytes beyond ASCII need not be UTF-8: each is written as the character with its number. */
static void put_string(struct json *json, const char *string)
{
	size_t length = strnlen(string, STRING_MAX);

	put_char(json, '"');
	for (size_t i = 0; i < length; i++) {
		unsigned char c = (unsigned char)string[i];
		char escape[8];

		if (c == '"' || c == '\\') {
			put_char(json, '\\');
			put_char(json, (char)c);
		} else if (c < 0x20 || c >= 0x7f) {
			snprintf(escape, sizeof(escape), "\\u%04x", (unsigned)c);
			put(json, escape);
		} else {
			put_char(json, (char)c);
		}
	}
	put_char(json, '"');
}

static void member(struct json *json, const char *name)
{
	if (!json->first)
		put_char(json, ',');
	json->first = false;
	put_string(json, name);
	put_char(json, ':');
}

static void member_string(struct json *json, const char *name, const char *value)
{
	member(json, name);
	if (value)
		put_string(json, value);
	else
		put(json, "null");
}

static void member_number(struct json *json, const char *name, uint64_t value)
{
	char text[24];

	member(json, name);
	snprintf(text, sizeof(text), "%" PRIu64, value);
	put(json, text);
}

static void member_null(struct json *json, const char *name)
{
	member(json, name);
	put(json, "null");
}

/* Not with %f: the application's locale may have a comma for the point. */
static void member_ms(struct json *json, const char *name, uint64_t ns)
{
	const uint64_t us = ns / HA_NS_PER_US;
	char text[32];

	if (ns == HA_EVENT_NO_TIME) {
		member_null(json, name);
		return;
	}
	member(json, name);
	snprintf(text, sizeof(text), "%" PRIu64 ".%03" PRIu64, us / 1000, us % 1000);
	put(json, text);
}

static void member_path(struct json *json, const char *name, const struct ha_event_path *path)
{
	char port[96];

	if (!path->nic) {
		member_null(json, name);
		return;
	}
	snprintf(port, sizeof(port), "%s:%d", path->nic, path->port_num);
	member(json, name);
	put_char(json, '{');
	json->first = true;
	if (path->index < 0) {
		member_null(json, "path");
		member_null(json, "generation");
	} else {
		member_number(json, "path", (uint64_t)path->index);
		member_number(json, "generation", path->generation);
	}
	member_string(json, "port", port);
	put_char(json, '}');
	json->first = false;
}

/* ---- the object ----------------------------------------------------------------------------- */

static void put_when(struct json *json)
{
	struct timespec now;
	char date[32], text[48];
	struct tm utc;

	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &utc);
	strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &utc);
	snprintf(text, sizeof(text), "%s.%03ldZ", date, now.tv_nsec / (long)HA_NS_PER_MS);
	member_string(json, "time", text);
	member_number(json, "monotonic_ns", ha_now_ns());
}

static void put_who(struct json *json, const struct ha_eventlog *log, const struct ha_event *event)
{
	char id[24];

	member_string(json, "host", log->host);
	member_number(json, "pid", (uint64_t)getpid());
	if (log->rank < 0)
		member_null(json, "rank");
	else
		member_number(json, "rank", (uint64_t)log->rank);
	member_string(json, "kind", ha_event_kind_text(event->kind));
	snprintf(id, sizeof(id), "%016" PRIx64, event->conn_id);
	member_string(json, "connection", event->conn_name ? id : NULL);
	member_string(json, "name", event->conn_name);
}

static void put_requests(struct json *json, const struct ha_event *event)
{
	const bool has_bytes = event->kind == HA_EVENT_SWITCH || event->kind == HA_EVENT_MENDED;

	if (has_bytes || event->kind == HA_EVENT_INC_EPOCH) {
		member_number(json, "completed_without_resend", event->completed_without_resend);
		member_number(json, "replayed_messages", event->replayed_messages);
	} else {
		member_null(json, "completed_without_resend");
		member_null(json, "replayed_messages");
	}
	if (has_bytes)
		member_number(json, "replayed_bytes", event->replayed_bytes);
	else
		member_null(json, "replayed_bytes");
}

/* Every object has every member, so that a reader needs no cases: null where there is nothing. */
static void put_event(struct json *json, const struct ha_eventlog *log,
		      const struct ha_event *event)
{
	json->length = 0;
	json->first = true;
	put_char(json, '{');
	put_when(json);
	put_who(json, log, event);
	member_string(json, "reason",
		      event->reason == HA_REASON_NONE ? NULL : ha_reason_text(event->reason));
	member_string(json, "detail", event->detail);
	member_path(json, "from", &event->from);
	member_path(json, "to", &event->to);
	if (event->conn_name)
		member_number(json, "epoch", event->epoch);
	else
		member_null(json, "epoch");
	member_ms(json, "detection_ms", event->detection_ns);
	member_ms(json, "blackout_ms", event->blackout_ns);
	put_requests(json, event);
	put(json, "}\n");
}

/* ---- writing --------------------------------------------------------------------------------- */

struct event_note {
	struct ha_note note;
	struct ha_eventlog *log;
	size_t length;
	char text[];
};

static void put_log(struct ha_eventlog *log)
{
	if (atomic_fetch_sub(&log->refs, 1) != 1)
		return;
	ha_fork_close(log->fd);
	pthread_mutex_destroy(&log->lock);
	free(log);
}

static int open_file(struct ha_eventlog *log, const char *path);

/* Whoever rotates logs gives the file another name, or takes it away. */
static void reopen_if_renamed(struct ha_eventlog *log, const struct stat *open_one)
{
	const char *path = log->absolute[0] ? log->absolute : log->path;
	struct stat st;
	int before = log->fd;

	if (!S_ISREG(open_one->st_mode) || (stat(path, &st) == 0 && st.st_dev == open_one->st_dev &&
					    st.st_ino == open_one->st_ino))
		return;
	if (open_file(log, path) != 0) {
		log->fd = before;
		return;
	}
	ha_fork_close(before);
	log->torn = false;
}

/* 0, or an errno value: why a line of that length must not be written now. Beyond the limit of a
 * process it would be answered with a signal that ends the job. */
static int has_room(const struct ha_eventlog *log, size_t length)
{
	struct rlimit limit;
	struct stat st;

	if (fstat(log->fd, &st) != 0 || !S_ISREG(st.st_mode))
		return 0;
	if (log->size_max && (uint64_t)st.st_size + length > log->size_max)
		return EDQUOT;
	if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && (uint64_t)st.st_size + length > limit.rlim_cur)
		return EFBIG;
	return 0;
}

/* A line that was cut off is ended first: so it is the only one that is lost. An errno value; 0. */
static int write_line(struct ha_eventlog *log, const char *text, size_t length)
{
	struct iovec parts[2] = {{.iov_base = "\n", .iov_len = log->torn},
				 {.iov_base = (char *)text, .iov_len = length}};
	size_t wanted = length + parts[0].iov_len;
	int err = has_room(log, wanted);
	ssize_t n;

	if (err)
		return err;
	n = writev(log->fd, parts, 2);
	if (n < 0)
		return errno;
	log->torn = n > 0 ? (size_t)n < wanted : log->torn;
	return (size_t)n == wanted ? 0 : ENOSPC;
}

static const char *reason(int err)
{
	return err == EDQUOT  ? "it is as long as HA_NCCL_EVENT_LOG_MB allows"
	       : err == EFBIG ? "it is as long as files may be (ulimit -f)"
			      : strerror(err);
}

/* A forked child may have got it locked, by a thread that it does not have. */
static void take_lock(struct ha_eventlog *log)
{
	if (log->pid != getpid()) {
		pthread_mutex_init(&log->lock, NULL);
		log->pid = getpid();
	}
	pthread_mutex_lock(&log->lock);
}

static void write_text(struct ha_eventlog *log, const char *text, size_t length)
{
	struct stat st;
	int err;

	take_lock(log);
	if (fstat(log->fd, &st) == 0)
		reopen_if_renamed(log, &st);
	err = write_line(log, text, length);
	if (err && log->missing++ == 0)
		HA_WARN("HA_NCCL_EVENT_LOG: %s: %s; events are missing there from now on",
			log->path, reason(err));
	if (!err && log->missing > 0) {
		HA_WARN("HA_NCCL_EVENT_LOG: %s: goes on; %llu events are missing there", log->path,
			(unsigned long long)log->missing);
		log->missing = 0;
	}
	pthread_mutex_unlock(&log->lock);
}

static void write_note(struct ha_note *note)
{
	struct event_note *e = ha_container_of(note, struct event_note, note);

	write_text(e->log, e->text, e->length);
}

static void drop_note(struct ha_note *note)
{
	put_log(ha_container_of(note, struct event_note, note)->log);
}

/* False: there is no writer, or no memory. */
static bool leave_to_writer(struct ha_eventlog *log, const struct json *json)
{
	size_t size = sizeof(struct event_note) + json->length;
	struct event_note *e = malloc(size);

	if (!e)
		return false;
	*e = (struct event_note){.note = {.size = size, .write = write_note, .drop = drop_note},
				 .log = log,
				 .length = json->length};
	memcpy(e->text, json->text, json->length);
	atomic_fetch_add(&log->refs, 1);
	if (ha_async_log_take(&e->note))
		return true;
	put_log(log);
	free(e);
	return false;
}

void ha_eventlog_write(struct ha_eventlog *log, const struct ha_event *event)
{
	struct json json;

	if (!log)
		return;
	put_event(&json, log, event);
	if (!leave_to_writer(log, &json))
		write_text(log, json.text, json.length);
}

/* ---- the file ------------------------------------------------------------------------------- */

/* What a name has of a text that may have anything. */
static int put_name(char *out, size_t room, const char *text)
{
	int n = snprintf(out, room, "%s", *text ? text : "unknown");

	for (size_t i = 0; i < room && out[i]; i++)
		if (out[i] == '/')
			out[i] = '_';
	return n;
}

/* False when it does not fit. */
static bool expand(const char *name, const char *host, char *path, size_t size)
{
	size_t length = 0;

	for (; *name && length < size; name++) {
		char code = name[0] == '%' && name[1] ? name[1] : '\0';
		char *out = path + length;
		size_t room = size - length;
		int n;

		if (code == 'p')
			n = snprintf(out, room, "%ld", (long)getpid());
		else if (code == 'h')
			n = put_name(out, room, host);
		else if (code == 'j')
			n = put_name(out, room, ha_launcher_job_id());
		else
			n = snprintf(out, room, "%c", name[0]);
		name += code == 'p' || code == 'h' || code == 'j' || code == '%';
		length += (size_t)n;
	}
	return length < size;
}

/*
 * errno. A pipe is refused: when its reader goes, writing raises SIGPIPE, which would end the job.
 * Non-blocking so that opening one does not wait for the reader. A link in place of the file is not
 * followed: in a folder for everybody, anybody may have put it there.
 */
static int open_file(struct ha_eventlog *log, const char *path)
{
	struct stat st;

	log->fd = open(
	    path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | O_NOFOLLOW,
	    0640);
	if (log->fd < 0)
		return errno == ENXIO ? ESPIPE : errno;
	if (fstat(log->fd, &st) == 0 && (S_ISREG(st.st_mode) || S_ISCHR(st.st_mode))) {
		ha_fork_closes(log->fd);
		return 0;
	}
	close(log->fd);
	return ESPIPE;
}

struct ha_eventlog *ha_eventlog_open(const char *name, uint64_t size_max)
{
	struct ha_eventlog *log;
	char shown[256];
	int err;

	if (!*name)
		return NULL;
	log = calloc(1, sizeof(*log));
	if (!log) {
		HA_WARN("HA_NCCL_EVENT_LOG: out of memory; there is no event log");
		return NULL;
	}
	atomic_init(&log->refs, 1);
	pthread_mutex_init(&log->lock, NULL);
	log->pid = getpid();
	log->size_max = size_max;
	log->rank = ha_launcher_rank();
	if (gethostname(log->host, sizeof(log->host) - 1) != 0)
		log->host[0] = '\0';
	err = expand(name, log->host, log->path, sizeof(log->path)) ? open_file(log, log->path)
								    : ENAMETOOLONG;
	if (err) {
		HA_WARN("HA_NCCL_EVENT_LOG: %s: %s; there is no event log",
			ha_printable(err == ENAMETOOLONG ? name : log->path, SIZE_MAX, shown,
				     sizeof(shown)),
			err == ESPIPE  ? "neither a file nor a device"
			: err == ELOOP ? "a link, which is not followed: name what it leads to"
				       : strerror(err));
		pthread_mutex_destroy(&log->lock);
		free(log);
		return NULL;
	}
	if (!realpath(log->path, log->absolute))
		log->absolute[0] = '\0';
	HA_INFO(HA_SUBSYS_INIT, "event log: %s", log->path);
	return log;
}

const char *ha_eventlog_path(const struct ha_eventlog *log)
{
	return log ? log->absolute : "";
}

void ha_eventlog_close(struct ha_eventlog *log)
{
	if (log)
		put_log(log);
}
