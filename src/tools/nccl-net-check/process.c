/* SPDX-License-Identifier: Apache-2.0 */
#include "process.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PROCESS_SANITIZED
size_t __sanitizer_get_current_allocated_bytes(void); /* its header is not always installed */
#endif

#define TCP_LISTEN_STATE 0x0a /* in /proc/net/tcp */
#define MAX_SOCKETS	 4096

static int count_entries(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	int n = 0;

	if (!d)
		return 0;
	while ((e = readdir(d)))
		if (e->d_name[0] != '.')
			n++;
	closedir(d);
	return n;
}

int process_threads(void)
{
	return count_entries("/proc/self/task");
}

int process_fds(void)
{
	return count_entries("/proc/self/fd") - 1; /* without the one that counts */
}

#ifdef PROCESS_SANITIZED
/* A sanitizer's allocator keeps what is freed in quarantine, counts what is handed out, and maps
 * memory for itself as it goes. */
long process_rss_kib(void)
{
	return 0;
}

int process_map_count(void)
{
	return 0;
}

size_t process_heap(void)
{
	return __sanitizer_get_current_allocated_bytes();
}
#else
int process_map_count(void)
{
	FILE *f = fopen("/proc/self/maps", "re");
	int n = 0, c;

	while (f && (c = getc(f)) != EOF)
		n += c == '\n';
	if (f)
		fclose(f);
	return n;
}

long process_rss_kib(void)
{
	long total, resident = 0;
	FILE *f = fopen("/proc/self/statm", "re");

	if (!f)
		return 0;
	if (fscanf(f, "%ld %ld", &total, &resident) != 2)
		resident = 0;
	fclose(f);
	return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

size_t process_heap(void)
{
	struct mallinfo2 info = mallinfo2();
	return info.uordblks + info.hblkhd;
}
#endif

bool process_maps(const char *path)
{
	char line[4352];
	bool found = false;
	FILE *f = fopen("/proc/self/maps", "re");
	char *real = realpath(path, NULL);

	while (f && real && !found && fgets(line, sizeof(line), f))
		found = strstr(line, real) != NULL;
	if (f)
		fclose(f);
	free(real);
	return found;
}

/* ---- listening sockets -------------------------------------------------------------------- */

static int own_sockets(unsigned long *inodes, int max)
{
	DIR *d = opendir("/proc/self/fd");
	struct dirent *e;
	int n = 0;

	while (d && (e = readdir(d)) && n < max) {
		char path[300], target[64];
		snprintf(path, sizeof(path), "/proc/self/fd/%s", e->d_name);
		ssize_t len = readlink(path, target, sizeof(target) - 1);
		if (len <= 0)
			continue;
		target[len] = 0;
		if (sscanf(target, "socket:[%lu]", &inodes[n]) == 1)
			n++;
	}
	if (d)
		closedir(d);
	return n;
}

static bool parse_address(const char *hex, unsigned port, struct sockaddr_storage *addr)
{
	memset(addr, 0, sizeof(*addr));
	if (strlen(hex) == 8) {
		struct sockaddr_in *in = (struct sockaddr_in *)addr;
		in->sin_family = AF_INET;
		in->sin_port = htons((uint16_t)port);
		return sscanf(hex, "%8x", &in->sin_addr.s_addr) == 1;
	}
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)addr;
	in6->sin6_family = AF_INET6;
	in6->sin6_port = htons((uint16_t)port);
	for (int i = 0; i < 4; i++) {
		uint32_t word;
		if (sscanf(hex + i * 8, "%8x", &word) != 1)
			return false;
		memcpy(&in6->sin6_addr.s6_addr[i * 4], &word, 4);
	}
	return true;
}

static int listeners_in(const char *table, const unsigned long *inodes, int inode_count,
			struct sockaddr_storage *addrs, int max)
{
	char line[512], hex[40];
	unsigned port, state;
	unsigned long inode;
	int n = 0;
	FILE *f = fopen(table, "re");

	while (f && n < max && fgets(line, sizeof(line), f)) {
		if (sscanf(line, " %*d: %39[0-9A-F]:%x %*[0-9A-F:] %x %*s %*s %*s %*d %*d %lu", hex,
			   &port, &state, &inode) != 4 ||
		    state != TCP_LISTEN_STATE)
			continue;
		for (int i = 0; i < inode_count; i++) {
			if (inodes[i] == inode && parse_address(hex, port, &addrs[n])) {
				n++;
				break;
			}
		}
	}
	if (f)
		fclose(f);
	return n;
}

uint64_t thread_queued_ns(pid_t tid)
{
	unsigned long long queued = 0;
	char path[64];
	FILE *in;

	snprintf(path, sizeof(path), "/proc/%d/schedstat", (int)tid);
	in = fopen(path, "re");
	if (!in)
		return 0;
	if (fscanf(in, "%*u %llu", &queued) != 1)
		queued = 0;
	fclose(in);
	return queued;
}

uint64_t process_queued_ns(void)
{
	DIR *d = opendir("/proc/self/task");
	uint64_t longest = 0;
	struct dirent *e;

	while (d && (e = readdir(d))) {
		const uint64_t queued = thread_queued_ns((pid_t)strtol(e->d_name, NULL, 10));

		longest = queued > longest ? queued : longest;
	}
	if (d)
		closedir(d);
	return longest;
}

int process_tcp_listeners(struct sockaddr_storage *addrs, int max)
{
	static unsigned long inodes[MAX_SOCKETS];
	int count = own_sockets(inodes, MAX_SOCKETS);
	int n = listeners_in("/proc/self/net/tcp", inodes, count, addrs, max);

	return n + listeners_in("/proc/self/net/tcp6", inodes, count, addrs + n, max - n);
}
