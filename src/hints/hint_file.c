/* SPDX-License-Identifier: Apache-2.0 */
#include "hints/hint_file.h"

#include "base/fork_guard.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/stat.h>
#include <unistd.h>

void ha_hint_file_begin(struct ha_hint_file *file)
{
	*file = (struct ha_hint_file){.fd = -1};
}

void ha_hint_file_end(struct ha_hint_file *file)
{
	ha_fork_close(file->fd);
	ha_hint_file_begin(file);
}

/* The kernel puts one file in the other's place: a reader finds either. False: it cannot. */
static bool put(struct ha_hint_file *file, int fd)
{
	bool done;

	if (file->fd < 0) {
		file->fd = ha_fork_closes(fd);
		return true;
	}
	done = dup3(fd, file->fd, O_CLOEXEC) == file->fd;
	close(fd);
	return done;
}

/* ---- what is believed ------------------------------------------------------------------------ */

static bool is_trusted(const struct stat *st)
{
	return (st->st_uid == 0 || st->st_uid == geteuid()) && !(st->st_mode & (S_IWGRP | S_IWOTH));
}

/* NULL if it is. */
static const char *wrong_file(const struct stat *st)
{
	if (!S_ISREG(st->st_mode))
		return "it is no regular file";
	if (!is_trusted(st))
		return "others may write it, or it is another user's";
	return st->st_size < MPIB_HINT_BYTES ? "it is too short" : NULL;
}

/* Where so many entries end. */
static off_t end_of(uint32_t entries)
{
	return (off_t)offsetof(struct mpib_hint_shm, entries) +
	       (off_t)entries * (off_t)sizeof(struct mpib_hint_entry);
}

/* Also of one that is being cut. */
static const char *wrong_header(int fd, off_t size, uint32_t *entries)
{
	struct mpib_hint_header header;

	if (pread(fd, &header, sizeof(header), 0) != sizeof(header))
		return "it is too short";
	if (header.magic != MPIB_HINT_MAGIC)
		return "it does not begin with the magic of one";
	if (header.max_entries > MPIB_HINT_MAX_ENTRIES && size < end_of(header.max_entries))
		return "it is too short for its number of entries";
	*entries =
	    header.max_entries < MPIB_HINT_MAX_ENTRIES ? header.max_entries : MPIB_HINT_MAX_ENTRIES;
	return *entries == 0 ? "it has no entries" : NULL;
}

/* A descriptor, or -1: not there, or *why it is not to be believed. */
static int open_hints(const char *dir, const char **why)
{
	int dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), fd = -1;
	struct stat st;

	*why = NULL;
	if (dirfd < 0) {
		*why = errno == ENOENT ? NULL : "its directory is none, or a link";
		return -1;
	}
	if (fstat(dirfd, &st) != 0 || !is_trusted(&st)) {
		*why = "others may write its directory, or it is another user's";
	} else {
		/* NONBLOCK: a FIFO waits for nobody. */
		fd = openat(dirfd, MPIB_AGENT_HINTS,
			    O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
		if (fd < 0 && errno != ENOENT)
			*why = "it cannot be opened, or is a link";
	}
	close(dirfd);
	return fd;
}

/* ---- looking --------------------------------------------------------------------------------- */

static const char *wrong(int fd, struct stat *st, uint32_t *entries)
{
	const char *why = fstat(fd, st) == 0 ? wrong_file(st) : "it cannot be looked at";

	return why ? why : wrong_header(fd, st->st_size, entries);
}

static bool is_same(const struct ha_hint_file *file, const struct stat *st, uint32_t entries)
{
	return st->st_dev == file->dev && st->st_ino == file->ino && entries == file->entries;
}

static enum ha_hint_file_state use(struct ha_hint_file *file, int fd, const struct stat *st,
				   uint32_t entries, const char **why)
{
	if (is_same(file, st, entries)) {
		close(fd);
		return HA_HINT_FILE_SAME;
	}
	file->entries = 0;
	if (!put(file, fd)) {
		*why = "it cannot be put in the place of the one before";
		return HA_HINT_FILE_NONE;
	}
	file->dev = st->st_dev;
	file->ino = st->st_ino;
	file->entries = entries;
	return HA_HINT_FILE_NEW;
}

enum ha_hint_file_state ha_hint_file_look(struct ha_hint_file *file, const char *dir,
					  const char **why)
{
	int fd = open_hints(dir, why);
	uint32_t entries = 0;
	struct stat st;

	if (fd >= 0)
		*why = wrong(fd, &st, &entries);
	if (fd >= 0 && !*why)
		return use(file, fd, &st, entries, why);
	if (fd >= 0)
		close(fd);
	file->entries = 0;
	return HA_HINT_FILE_NONE;
}

uint32_t ha_hint_at(uint32_t slot)
{
	return (uint32_t)(offsetof(struct mpib_hint_shm, entries) +
			  slot * sizeof(struct mpib_hint_entry));
}

bool ha_hint_file_ips(const struct ha_hint_file *file, uint32_t slot, uint64_t *ips)
{
	return slot < file->entries &&
	       pread(file->fd, ips, sizeof(*ips),
		     ha_hint_at(slot) + offsetof(struct mpib_hint_entry, src_ip)) == sizeof(*ips);
}
