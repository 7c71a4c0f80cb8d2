/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha/logs.h"

#include "tools/nccl-ha/foreign.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define OURS (-1) /* whoever runs the tool has named it */

struct log {
	char *path;
	int64_t owner; /* of the process that has named it, or OURS */
	int fd;	       /* -1: not open */
	dev_t device;
	ino_t inode;
	off_t offset;
	char *partial; /* NH_LINE_MAX bytes: a line whose end is not there yet */
	size_t length;
	bool too_long; /* it is passed over */
	bool told;     /* what is wrong with the file */
};

struct nh_logs {
	char **patterns;
	struct log *logs;
	size_t npatterns, nlogs, opened;
};

struct nh_logs *nh_logs_new(void)
{
	return calloc(1, sizeof(struct nh_logs));
}

static void close_log(struct log *log)
{
	if (log->fd > 0)
		close(log->fd);
	log->fd = -1;
	log->length = 0;
	log->offset = 0;
	log->too_long = false;
}

void nh_logs_free(struct nh_logs *logs)
{
	for (size_t i = 0; logs && i < logs->nlogs; i++) {
		close_log(&logs->logs[i]);
		free(logs->logs[i].path);
		free(logs->logs[i].partial);
	}
	for (size_t i = 0; logs && i < logs->npatterns; i++)
		free(logs->patterns[i]);
	free(logs ? logs->logs : NULL);
	free(logs ? logs->patterns : NULL);
	free(logs);
}

bool nh_logs_add(struct nh_logs *logs, const char *pattern)
{
	char **grown;

	for (size_t i = 0; i < logs->npatterns; i++)
		if (!strcmp(logs->patterns[i], pattern))
			return true;
	grown = realloc(logs->patterns, (logs->npatterns + 1) * sizeof(*grown));
	if (!grown)
		return false;
	logs->patterns = grown;
	grown[logs->npatterns] = strdup(pattern);
	logs->npatterns += grown[logs->npatterns] != NULL;
	return true;
}

size_t nh_logs_opened(const struct nh_logs *logs)
{
	return logs->opened;
}

/* ---- which files ---------------------------------------------------------------------------- */

static bool add_file(struct nh_logs *logs, const char *path, int64_t owner)
{
	struct log *grown;

	for (size_t i = 0; i < logs->nlogs; i++)
		if (logs->logs[i].owner == owner && !strcmp(logs->logs[i].path, path))
			return true;
	grown = realloc(logs->logs, (logs->nlogs + 1) * sizeof(*grown));
	if (!grown)
		return false;
	logs->logs = grown;
	grown += logs->nlogs;
	*grown = (struct log){
	    .path = strdup(path), .owner = owner, .partial = malloc(NH_LINE_MAX), .fd = -1};
	if (!grown->path || !grown->partial) {
		free(grown->path);
		free(grown->partial);
		return false;
	}
	logs->nlogs++;
	return true;
}

bool nh_logs_add_named(struct nh_logs *logs, const char *path, unsigned int owner)
{
	return add_file(logs, path, owner);
}

static void look_for_files(struct nh_logs *logs)
{
	for (size_t i = 0; i < logs->npatterns; i++) {
		const char *pattern = logs->patterns[i];
		glob_t found;

		/* A name with brackets in it may be just that. */
		if (strpbrk(pattern, "*?[") == NULL || access(pattern, F_OK) == 0) {
			(void)add_file(logs, pattern, OURS);
			continue;
		}
		if (glob(pattern, 0, NULL, &found) != 0)
			continue;
		for (size_t j = 0; j < found.gl_pathc; j++)
			(void)add_file(logs, found.gl_pathv[j], OURS);
		globfree(&found);
	}
}

/* ---- one file ------------------------------------------------------------------------------- */

static void tell(struct log *log, const struct nh_logs_reader *reader, const char *what)
{
	if (!log->told)
		reader->problem(reader->arg, log->path, what);
	log->told = true;
}

static void take(struct log *log, const char *data, size_t n, const struct nh_logs_reader *reader)
{
	for (size_t i = 0; i < n; i++) {
		if (data[i] != '\n') {
			if (log->length == NH_LINE_MAX - 1)
				log->too_long = true;
			else
				log->partial[log->length++] = data[i];
			continue;
		}
		log->partial[log->length] = '\0';
		if (log->too_long)
			tell(log, reader, "has a line that is too long for an event");
		else if (log->length > 0)
			reader->line(reader->arg, log->path, log->partial);
		log->length = 0;
		log->too_long = false;
	}
}

static void read_to_end(struct log *log, const struct nh_logs_reader *reader)
{
	char data[65536];
	ssize_t n;

	while ((n = read(log->fd, data, sizeof(data))) > 0) {
		log->offset += n;
		take(log, data, (size_t)n, reader);
	}
	if (n < 0 && errno != EAGAIN && errno != EINTR)
		tell(log, reader, strerror(errno));
}

/* -1 with what is wrong in *why. */
static int open_path(const struct log *log, const char **why)
{
	int fd;

	if (log->owner != OURS)
		return nh_foreign_open(log->path, (uid_t)log->owner, why);
	/* Not waiting: it may be a pipe without a writer. */
	fd = open(log->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	*why = fd < 0 ? strerror(errno) : NULL;
	return fd;
}

static void open_log(struct nh_logs *logs, struct log *log, const struct nh_logs_reader *reader)
{
	const char *why;
	struct stat st;

	if (log->owner == OURS && !strcmp(log->path, "-")) {
		log->fd = STDIN_FILENO;
		logs->opened++;
		return;
	}
	log->fd = open_path(log, &why);
	if (!why && fstat(log->fd, &st) != 0)
		why = strerror(errno);
	if (!why && !S_ISREG(st.st_mode))
		why = "is not a file";
	if (why) {
		tell(log, reader, why);
		close_log(log);
		return;
	}
	log->device = st.st_dev;
	log->inode = st.st_ino;
	log->told = false;
	logs->opened++;
}

/* Whether another file has its name now. */
static bool replaced(const struct log *log)
{
	struct stat st;
	const char *why;
	int err = log->owner == OURS ? stat(log->path, &st)
				     : nh_foreign_stat(log->path, (uid_t)log->owner, &st, &why);

	return err == 0 && (st.st_dev != log->device || st.st_ino != log->inode);
}

static bool was_cut(const struct log *log)
{
	struct stat st;

	return fstat(log->fd, &st) == 0 && st.st_size < log->offset;
}

static void read_log(struct nh_logs *logs, struct log *log, const struct nh_logs_reader *reader)
{
	if (log->fd < 0)
		open_log(logs, log, reader);
	if (log->fd < 0)
		return;
	if (log->fd == STDIN_FILENO) {
		read_to_end(log, reader);
		return;
	}
	if (was_cut(log)) {
		lseek(log->fd, 0, SEEK_SET);
		log->offset = 0;
		log->length = 0;
		log->too_long = false;
	}
	read_to_end(log, reader);
	if (replaced(log)) {
		read_to_end(log, reader); /* what was written between the two */
		close_log(log);
		open_log(logs, log, reader);
		if (log->fd >= 0)
			read_to_end(log, reader);
	}
}

void nh_logs_read(struct nh_logs *logs, const struct nh_logs_reader *reader)
{
	look_for_files(logs);
	for (size_t i = 0; i < logs->nlogs; i++)
		read_log(logs, &logs->logs[i], reader);
}
