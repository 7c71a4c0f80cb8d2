/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha-agent/hint_table.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

void na_hint_table_write(struct na_hint_table *table, unsigned slot, uint32_t share,
			 uint32_t src_ip, uint32_t dst_ip)
{
	struct mpib_hint_entry *entry = &table->shm->entries[slot];
	uint32_t seq = __atomic_load_n(&entry->seq, __ATOMIC_RELAXED) | 1; /* died half way: odd */

	/* Release on each: who sees a word of this write sees the odd number, too. */
	__atomic_store_n(&entry->seq, seq, __ATOMIC_RELAXED);
	__atomic_store_n(&entry->sup_bw, share, __ATOMIC_RELEASE);
	__atomic_store_n(&entry->src_ip, src_ip, __ATOMIC_RELEASE);
	__atomic_store_n(&entry->dst_ip, dst_ip, __ATOMIC_RELEASE);
	__atomic_store_n(&entry->seq, seq + 1, __ATOMIC_RELEASE);
}

static bool is_ours_alone(int fd, struct stat *st)
{
	return fstat(fd, st) == 0 && st->st_uid == geteuid() &&
	       !(st->st_mode & (S_IWGRP | S_IWOTH));
}

/* A descriptor, or -1 with errno, EPERM for what is not to be trusted. */
static int open_dir(const char *dir)
{
	struct stat st;
	int fd;

	if (mkdir(dir, 0755) != 0 && errno != EEXIST)
		return -1;
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || is_ours_alone(fd, &st))
		return fd;
	close(fd);
	errno = EPERM;
	return -1;
}

static int open_file(int dirfd)
{
	/* NONBLOCK: not to wait at a FIFO. */
	int fd = openat(dirfd, MPIB_AGENT_HINTS,
			O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644);
	struct stat st;

	if (fd < 0)
		return -1;
	if (is_ours_alone(fd, &st) && S_ISREG(st.st_mode) && st.st_nlink == 1 &&
	    fchmod(fd, 0644) == 0)
		return fd;
	close(fd);
	errno = EPERM;
	return -1;
}

/* Clients look at it now and then, and plugins of others may lock it for a moment. */
static bool lock(int fd)
{
	for (int tries = 0; tries < 10; tries++) {
		if (flock(fd, LOCK_EX | LOCK_NB) == 0)
			return true;
		usleep(20000);
	}
	return false;
}

static bool map_file(struct na_hint_table *table)
{
	struct stat st;
	void *memory;

	if (fstat(table->fd, &st) != 0 ||
	    (st.st_size < MPIB_HINT_BYTES && ftruncate(table->fd, MPIB_HINT_BYTES) != 0))
		return false;
	/* Room for all of it now: a full disk would be a SIGBUS later. */
	if (posix_fallocate(table->fd, 0, MPIB_HINT_BYTES) != 0)
		return false;
	memory = mmap(NULL, MPIB_HINT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, table->fd, 0);
	table->shm = memory == MAP_FAILED ? NULL : memory;
	return table->shm != NULL;
}

bool na_hint_table_open(struct na_hint_table *table, const char *dir, char *err, size_t err_len)
{
	int dirfd = open_dir(dir);

	table->fd = dirfd < 0 ? -1 : open_file(dirfd);
	if (dirfd >= 0)
		close(dirfd);
	if (table->fd < 0) {
		snprintf(err, err_len, "%s%s: %s", dir, dirfd < 0 ? "" : "/" MPIB_AGENT_HINTS,
			 errno == EPERM ? "it is not ours alone: look who made it, and remove it"
					: strerror(errno));
		return false;
	}
	if (!lock(table->fd))
		snprintf(err, err_len, "%s: another agent runs there", dir);
	else if (!map_file(table))
		snprintf(err, err_len, "%s/" MPIB_AGENT_HINTS ": %s", dir, strerror(errno));
	else {
		for (unsigned slot = 0; slot < MPIB_HINT_MAX_ENTRIES; slot++)
			na_hint_table_write(table, slot, 0, 0, 0);
		table->shm->header = (struct mpib_hint_header){
		    .magic = MPIB_HINT_MAGIC, .max_entries = MPIB_HINT_MAX_ENTRIES};
		return true;
	}
	close(table->fd);
	return false;
}

void na_hint_table_close(struct na_hint_table *table)
{
	munmap(table->shm, MPIB_HINT_BYTES);
	close(table->fd);
}
