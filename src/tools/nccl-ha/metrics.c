/* SPDX-License-Identifier: Apache-2.0 */
/* nccl-ha metrics: for Prometheus, printed, into a file for node_exporter, or served over HTTP. */
#include "tools/common/clock.h"
#include "tools/nccl-ha/exposition.h"
#include "tools/nccl-ha/http.h"
#include "tools/nccl-ha/tool.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAX_HOSTS 16

struct arguments {
	struct nh_select select;
	const char *textfile, *listen;
	const char *hosts[MAX_HOSTS + 1]; /* NULL ends them */
	int nhosts;
	double interval_s; /* 0: once */
	bool connections;
};

enum { KEY_TEXTFILE = 0x2000, KEY_LISTEN, KEY_HOST };

static const struct argp_option options[] = {
    {"listen", KEY_LISTEN, "[ADDRESS:]PORT", 0,
     "Serve http://ADDRESS:PORT/metrics; without ADDRESS on 127.0.0.1, port 0 is any", 0},
    {"host", KEY_HOST, "NAME", 0,
     "With --listen: this host is also known as NAME, and as anything with '*'; may be repeated",
     0},
    {"textfile", KEY_TEXTFILE, "FILE", 0,
     "Into FILE, at once or not at all: for node_exporter's --collector.textfile.directory", 0},
    {"interval", 'i', "S", 0, "With --textfile: again each S seconds", 0},
    {"connections", 'v', NULL, 0, "Each connection as well: many series", 0},
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct arguments *a = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &a->select;
		return 0;
	case KEY_TEXTFILE:
		a->textfile = arg;
		return 0;
	case KEY_LISTEN:
		a->listen = arg;
		return 0;
	case KEY_HOST:
		if (a->nhosts == MAX_HOSTS)
			argp_error(state, "more than %d times --host", MAX_HOSTS);
		a->hosts[a->nhosts++] = arg;
		return 0;
	case 'i':
		a->interval_s = nh_seconds(state, "--interval", arg, 0.1, 86400);
		return 0;
	case 'v':
		a->connections = true;
		return 0;
	case ARGP_KEY_END:
		if (a->textfile && a->listen)
			argp_error(state, "--textfile or --listen, not both");
		if (a->nhosts > 0 && !a->listen)
			argp_error(state, "--host goes with --listen");
		if (a->interval_s > 0 && !a->textfile)
			argp_error(state, "--interval goes with --textfile");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* nh_page_fn; NULL: no memory. Nothing to see is a page as well. */
static char *page(void *arg, size_t *length)
{
	const struct arguments *a = arg;
	struct nh_snapshot snapshot;
	char *text = NULL;

	if (nh_snapshot_take(&snapshot, &a->select, NULL) != ENOMEM)
		text = nh_exposition(&snapshot, a->connections, length);
	nh_snapshot_free(&snapshot);
	return text;
}

/* ---- into a file ---------------------------------------------------------------------------- */

static bool write_all(int fd, const char *text, size_t length)
{
	while (length > 0) {
		ssize_t n = write(fd, text, length);

		if (n < 0 && errno != EINTR)
			return false;
		if (n > 0) {
			text += n;
			length -= (size_t)n;
		}
	}
	return true;
}

/*
 * Beside the file and then renamed, so that a reader sees the old page or the new one. The name it
 * has meanwhile does not end in .prom, which node_exporter reads, and is the same each time: what
 * one that was killed has left is the next one's. Nobody else's file or link is written into.
 */
static int open_temporary(const char *name)
{
	struct stat st, named;
	int fd = open(name, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);

	if (fd < 0)
		return -1;
	/* Another writer may have given it its name meanwhile. */
	if (flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
	    st.st_uid == geteuid() && st.st_nlink == 1 && lstat(name, &named) == 0 &&
	    named.st_dev == st.st_dev && named.st_ino == st.st_ino && ftruncate(fd, 0) == 0)
		return fd;
	close(fd);
	errno = EBUSY;
	return -1;
}

static bool write_file(const char *path, const char *text, size_t length)
{
	char temporary[4096];
	int fd, err;
	bool ok;

	if (snprintf(temporary, sizeof(temporary), "%s.new", path) >= (int)sizeof(temporary)) {
		errno = ENAMETOOLONG;
		return false;
	}
	fd = open_temporary(temporary);
	if (fd < 0)
		return false;
	/* On the disk before it has its name: else a crash of the host may leave an empty page. */
	ok = write_all(fd, text, length) && fchmod(fd, 0644) == 0 && fsync(fd) == 0 &&
	     rename(temporary, path) == 0;
	err = errno;
	if (!ok)
		unlink(temporary);
	close(fd);
	errno = err;
	return ok;
}

/* ---- all of it ------------------------------------------------------------------------------ */

static volatile sig_atomic_t stop;

static void on_signal(int signal)
{
	(void)signal;
	stop = 1;
}

static void catch_signals(void)
{
	struct sigaction act = {.sa_handler = on_signal};

	sigaction(SIGINT, &act, NULL);
	sigaction(SIGTERM, &act, NULL);
	sigaction(SIGHUP, &act, NULL);
}

/* In slices: a signal that comes just before one would otherwise wait for all of it. */
static void wait_s(double seconds)
{
	const struct timespec slice = {.tv_nsec = 100 * 1000000L};
	uint64_t until_ns = np_now_ns() + (uint64_t)(seconds * 1e9);

	while (!stop && np_now_ns() < until_ns)
		nanosleep(&slice, NULL);
}

static int write_textfile(struct arguments *a, const char *command)
{
	catch_signals();
	do {
		size_t length = 0;
		char *text = page(a, &length);
		bool ok = text && write_file(a->textfile, text, length);

		if (!ok)
			fprintf(stderr, "%s: %s: %s\n", command, a->textfile,
				text ? strerror(errno) : "out of memory");
		free(text);
		if (!ok && a->interval_s <= 0)
			return NH_EXIT_FAILED;
		if (a->interval_s > 0)
			wait_s(a->interval_s);
	} while (a->interval_s > 0 && !stop);
	return NH_EXIT_OK;
}

static int serve(struct arguments *a, const char *command)
{
	char url[200], why[300];
	int listener = nh_http_listen(a->listen, url, sizeof(url), why, sizeof(why));

	if (listener < 0) {
		fprintf(stderr, "%s: %s\n", command, why);
		return NH_EXIT_FAILED;
	}
	catch_signals();
	printf("%s/metrics\n", url);
	fflush(stdout);
	if (!nh_http_serve(listener, page, a, a->hosts, &stop)) {
		fprintf(stderr, "%s: %s: the HTTP server failed: %s\n", command, url,
			strerror(errno));
		return NH_EXIT_FAILED;
	}
	return NH_EXIT_OK;
}

static int print(struct arguments *a, const char *command)
{
	size_t length = 0;
	char *text = page(a, &length);
	bool ok = text && fwrite(text, 1, length, stdout) == length && fflush(stdout) == 0;

	if (!ok)
		fprintf(stderr, "%s: %s\n", command, text ? strerror(errno) : "out of memory");
	free(text);
	return ok ? NH_EXIT_OK : NH_EXIT_FAILED;
}

int nh_cmd_metrics(int argc, char **argv)
{
	static const struct argp_child children[] = {{&nh_select_argp, 0, NULL, 0}, {0}};
	static const struct argp argp = {options,
					 parse,
					 NULL,
					 "Prints the statistics of this user's processes (for "
					 "root: of all users') as metrics in "
					 "Prometheus' text format.\vExit status: 0, also when "
					 "nothing runs; 1 if the file or the "
					 "address cannot be used, 2 wrong usage.",
					 children,
					 NULL,
					 NULL};
	struct arguments a = {.select = NH_SELECT_ALL};

	argp_parse(&argp, argc, argv, 0, NULL, &a);
	if (a.listen)
		return serve(&a, argv[0]);
	return a.textfile ? write_textfile(&a, argv[0]) : print(&a, argv[0]);
}
