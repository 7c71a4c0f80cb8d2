/* SPDX-License-Identifier: Apache-2.0 */
#include "program.h"

#include "bench.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

int bench_be_host(const char *program, int shared_fd, int host)
{
	struct bench_shared *shared =
	    mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, shared_fd, 0);

	if (shared == MAP_FAILED) {
		fprintf(stderr, "%s: --be-host is for its own use\n", program);
		return 2;
	}
	signal(SIGINT, SIG_IGN); /* the director ends us in good order */
	return bench_host(shared, host);
}

void bench_raise_files(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
}

static void interrupt(int signal)
{
	(void)signal;
	bench_interrupted = 1;
}

void bench_catch_signals(void)
{
	struct sigaction act = {.sa_handler = interrupt};

	sigaction(SIGINT, &act, NULL);
	sigaction(SIGTERM, &act, NULL);
	sigaction(SIGHUP, &act, NULL);
}

bool bench_write_report(const char *program, const char *path, const char *key, json_t *list)
{
	struct utsname system;
	json_t *root;
	bool ok;

	uname(&system);
	root = json_pack("{s:s, s:s, s:i, s:s, s:O}", "program", program, "version", HA_VERSION,
			 "processors", (int)sysconf(_SC_NPROCESSORS_ONLN), "kernel", system.release,
			 key, list);
	errno = 0;
	ok = root && json_dump_file(root, path, JSON_INDENT(1) | JSON_REAL_PRECISION(6)) == 0;
	if (!ok)
		fprintf(stderr, "%s: cannot write %s: %s\n", program, path, strerror(errno));
	json_decref(root);
	return ok;
}
