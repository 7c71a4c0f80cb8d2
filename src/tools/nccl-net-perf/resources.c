/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors, threads and resident size from /proc. */
#include "tools/nccl-net-perf/resources.h"
#include "tools/nccl-net-perf/links.h"
#include "tools/nccl-net-perf/memory.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/clock.h"

/*
 * An allocator's noise; a leak of 1 KiB per cycle exceeds it within some thousand cycles.
 * Sanitizers keep what was freed, and shadows of it.
 */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RSS_NOISE_KIB (256 * 1024)
#else
#define RSS_NOISE_KIB 4096
#endif

/*
 * A plugin may have a pool of threads for each device, started as they are needed: in one cycle all
 * of them, in another one few. A leak of a thread per cycle exceeds that in time.
 */
#define THREADS_PER_DEVICE 8

static long count_entries(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	long n = 0;

	if (!dir)
		return -1;
	while ((entry = readdir(dir)))
		n += entry->d_name[0] != '.';
	closedir(dir);
	return n - 1; /* without the one that reads */
}

static long resident_kib(void)
{
	FILE *f = fopen("/proc/self/status", "re");
	char line[200];
	long kib = -1;

	while (f && kib < 0 && fgets(line, sizeof(line), f))
		if (!strncmp(line, "VmRSS:", 6))
			kib = strtol(line + 6, NULL, 10);
	if (f)
		fclose(f);
	return kib;
}

void np_resources_read(struct np_resources *r)
{
	r->fds = count_entries("/proc/self/fd");
	r->threads = count_entries("/proc/self/task");
	r->rss_kib = resident_kib();
}

bool np_setup_connect(struct np_rank *rk, struct np_side *side, struct np_setup *setup)
{
	uint64_t begun = np_now_ns();
	bool ok;

	np_resources_read(&setup->before);
	ok = np_side_connect(rk, side);
	setup->seconds = (double)(np_now_ns() - begun) / 1e9;
	setup->connections = side->nlinks;
	np_resources_read(&setup->after);
	return ok;
}

static long threads_of_pools(const struct np_rank *rk)
{
	long n = 0;

	for (int i = 0; i < rk->nsides; i++)
		n += (long)rk->sides[i].ndev * THREADS_PER_DEVICE;
	return n;
}

bool np_resources_check(const struct np_resources *early, int cycles, struct np_rank *rk)
{
	struct np_resources now;

	np_resources_read(&now);
	printf("# rank %d after %d cycles: descriptors %ld -> %ld, threads %ld -> %ld, resident "
	       "%ld -> %ld KiB\n",
	       rk->rank, cycles, early->fds, now.fds, early->threads, now.threads, early->rss_kib,
	       now.rss_kib);
	fflush(stdout);
	if (now.fds > early->fds || now.threads > early->threads + threads_of_pools(rk))
		return np_error_set(&rk->error, NP_EXIT_ERROR,
				    "%ld descriptors and %ld threads more than after the first "
				    "tenth of %d cycles: something is not closed",
				    now.fds - early->fds, now.threads - early->threads, cycles);
	if (now.rss_kib > early->rss_kib + RSS_NOISE_KIB)
		return np_error_set(&rk->error, NP_EXIT_ERROR,
				    "resident size grew by %ld KiB over %d cycles",
				    now.rss_kib - early->rss_kib, cycles);
	return true;
}
