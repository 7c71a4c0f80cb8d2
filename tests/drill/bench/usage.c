/* SPDX-License-Identifier: Apache-2.0 */
#include "usage.h"

#include "tools/common/clock.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PLUGIN_THREAD "nccl-ha"

static long count_fds(pid_t pid)
{
	char path[64];
	struct dirent *entry;
	long n = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	dir = opendir(path);
	if (!dir)
		return -1;
	while ((entry = readdir(dir)))
		n += entry->d_name[0] != '.';
	closedir(dir);
	return n;
}

/* The first line of a file of a process; false if there is none. */
static bool read_line(const char *path, char *line, size_t size)
{
	FILE *f = fopen(path, "re");
	bool got = f && fgets(line, (int)size, f);

	if (f)
		fclose(f);
	return got;
}

static long private_kib(pid_t pid)
{
	char path[64], line[200];
	long kib = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", (int)pid);
	f = fopen(path, "re");
	if (!f)
		return -1;
	while (fgets(line, sizeof(line), f))
		if (!strncmp(line, "Private_", 8) && !strstr(line, "Hugetlb"))
			kib += strtol(strchr(line, ':') + 1, NULL, 10);
	fclose(f);
	return kib;
}

static bool process_cpu_ns(pid_t pid, uint64_t *out)
{
	struct timespec ts;
	clockid_t clock;
	int rc = clock_getcpuclockid(pid, &clock);

	if (rc == 0 && clock_gettime(clock, &ts) == 0) {
		*out = (uint64_t)ts.tv_sec * NP_NS_PER_S + (uint64_t)ts.tv_nsec;
		return true;
	}
	if (rc)
		errno = rc;
	return false;
}

/* Time on a processor so far of the threads with the plugin's name. */
static bool plugin_cpu_ns(pid_t pid, uint64_t *out)
{
	char folder[64], path[400], line[200];
	struct dirent *entry;
	DIR *dir;

	*out = 0;
	snprintf(folder, sizeof(folder), "/proc/%d/task", (int)pid);
	dir = opendir(folder);
	if (!dir)
		return false;
	while ((entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s/comm", folder, entry->d_name);
		if (!read_line(path, line, sizeof(line)) || strcmp(line, PLUGIN_THREAD "\n") != 0)
			continue;
		snprintf(path, sizeof(path), "%s/%s/schedstat", folder, entry->d_name);
		if (read_line(path, line, sizeof(line)))
			*out += strtoull(line, NULL, 10);
	}
	closedir(dir);
	return true;
}

bool bench_usage_read(pid_t pid, struct bench_usage *out)
{
	out->fds = count_fds(pid);
	out->memory_kib = private_kib(pid);
	out->at_ns = np_now_ns();
	return out->fds >= 0 && out->memory_kib >= 0 && process_cpu_ns(pid, &out->cpu_ns) &&
	       plugin_cpu_ns(pid, &out->plugin_ns);
}

uint64_t bench_stolen_ns(void)
{
	unsigned long long ticks = 0;
	char line[300];

	if (!read_line("/proc/stat", line, sizeof(line)) ||
	    sscanf(line, "cpu %*u %*u %*u %*u %*u %*u %*u %llu", &ticks) != 1)
		return 0;
	return ticks * (NP_NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK));
}
