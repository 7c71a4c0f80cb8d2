/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hands of the lab inside a guest, and its process 1.
 *
 * Requests come from the host over a virtio serial port and answers go back, one line of JSON each.
 * What a drill must time is done here, between two readings of the guest's clock: a process takes a
 * tenth of a second to start under emulation, an ioctl microseconds. Everything else a drill does
 * with processes of its own, which are started here. Single-threaded.
 *
 * A request is {"id": N, "op": NAME, ...}, its answer {"id": N, "now_ns": T, ...} with "error" in
 * it if it failed. The end of a process that was started comes unasked: {"exited": PID, "status":
 * S, "now_ns": T}.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <jansson.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/reboot.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PORT	       "/dev/vport0p1"
#define LINE_MAX_BYTES (1 << 20)
#define MAX_WORDS      1024
#define MAX_NEIGHBOURS 16

static int port = -1; /* to the host */
static int inet = -1; /* a socket for ioctls */

/* A neighbour is forgotten when its link goes down, and is put back when it comes up. */
static struct arpreq neighbours[MAX_NEIGHBOURS];
static int n_neighbours;

static long long now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000LL + ts.tv_nsec;
}

__attribute__((noreturn)) static void power_off(void)
{
	sync();
	reboot(RB_POWER_OFF);
	_exit(1);
}

__attribute__((noreturn)) static void die(const char *what)
{
	fprintf(stderr, "lab-guest: %s: %s\n", what, strerror(errno));
	power_off();
}

/* Consumes message. */
static void send_line(json_t *message)
{
	char *line = json_dumps(message, JSON_COMPACT);
	size_t done = 0, len;

	json_decref(message);
	if (line == NULL)
		die("no memory for an answer");
	len = strlen(line);
	line[len] = '\n';
	while (done < len + 1) {
		ssize_t n = write(port, line + done, len + 1 - done);

		if (n < 0 && errno != EINTR)
			die("write to the host");
		if (n > 0)
			done += (size_t)n;
	}
	free(line);
}

__attribute__((format(printf, 2, 3))) static void fail(json_t *answer, const char *format, ...)
{
	char text[512];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	json_object_set_new(answer, "error", json_string(text));
}

static const char *string_of(const json_t *request, const char *key)
{
	return json_string_value(json_object_get(request, key));
}

/* ---- processes ---- */

/* The strings of an array, with a NULL after them. */
static bool words_of(const json_t *request, const char *key, char *words[MAX_WORDS + 1])
{
	const json_t *array = json_object_get(request, key), *word;
	size_t i;

	if (!json_is_array(array) || json_array_size(array) > MAX_WORDS)
		return false;
	json_array_foreach(array, i, word)
	{
		words[i] = (char *)(uintptr_t)json_string_value(word);
		if (words[i] == NULL)
			return false;
	}
	words[i] = NULL;
	return true;
}

/*
 * Leads a session of its own, so that a terminal that is its input becomes its controlling one and
 * a kill can take its children along.
 */
static void op_start(const json_t *request, json_t *answer)
{
	const int writing = O_WRONLY | O_CREAT | O_APPEND;
	const char *in = string_of(request, "stdin"), *out = string_of(request, "stdout");
	const char *err = string_of(request, "stderr"), *cwd = string_of(request, "cwd");
	char *argv[MAX_WORDS + 1], *env[MAX_WORDS + 1];
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attributes;
	sigset_t none;
	pid_t pid;
	int rc;

	if (!words_of(request, "argv", argv) || argv[0] == NULL || !words_of(request, "env", env)) {
		fail(answer, "start: argv and env must be lists of strings");
		return;
	}
	sigemptyset(&none);
	posix_spawnattr_init(&attributes);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
	posix_spawnattr_setsigmask(&attributes, &none);
	posix_spawn_file_actions_init(&files);
	if (cwd != NULL)
		posix_spawn_file_actions_addchdir_np(&files, cwd);
	posix_spawn_file_actions_addopen(&files, 0, in ? in : "/dev/null", O_RDWR, 0);
	posix_spawn_file_actions_addopen(&files, 1, out ? out : "/dev/null", writing, 0644);
	posix_spawn_file_actions_addopen(&files, 2, err ? err : "/dev/null", writing, 0644);
	rc = posix_spawnp(&pid, argv[0], &files, &attributes, argv, env);
	posix_spawn_file_actions_destroy(&files);
	posix_spawnattr_destroy(&attributes);
	if (rc != 0)
		fail(answer, "start %s: %s", argv[0], strerror(rc));
	else
		json_object_set_new(answer, "pid", json_integer(pid));
}

/* The process and its children. */
static void op_kill(const json_t *request, json_t *answer)
{
	pid_t pid = (pid_t)json_integer_value(json_object_get(request, "pid"));
	int number = (int)json_integer_value(json_object_get(request, "signal"));

	if (pid <= 1)
		fail(answer, "kill: no such process as %d", (int)pid);
	else if (kill(-pid, number) != 0)
		fail(answer, "kill %d: %s", (int)pid, strerror(errno));
}

static void report_exits(void)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		int code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);

		send_line(json_pack("{s:i, s:i, s:I}", "exited", (int)pid, "status", code, "now_ns",
				    (json_int_t)now_ns()));
	}
}

/* ---- links ---- */

static int set_link(const char *name, bool up)
{
	struct ifreq ifr = {0};

	snprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "%s", name);
	if (ioctl(inet, SIOCGIFFLAGS, &ifr) != 0)
		return -1;
	ifr.ifr_flags = (short)(up ? ifr.ifr_flags | IFF_UP : ifr.ifr_flags & ~IFF_UP);
	if (ioctl(inet, SIOCSIFFLAGS, &ifr) != 0)
		return -1;
	for (int i = 0; up && i < n_neighbours; i++)
		if (strcmp(neighbours[i].arp_dev, name) == 0 &&
		    ioctl(inet, SIOCSARP, &neighbours[i]) != 0)
			return -1;
	return 0;
}

/* All of them as close together as can be; before_ns and after_ns enclose it. */
static void op_link(const json_t *request, json_t *answer)
{
	bool up = json_is_true(json_object_get(request, "up"));
	char *names[MAX_WORDS + 1];

	if (!words_of(request, "names", names)) {
		fail(answer, "link: names must be a list of interfaces");
		return;
	}
	json_object_set_new(answer, "before_ns", json_integer(now_ns()));
	for (int i = 0; names[i] != NULL; i++)
		if (set_link(names[i], up) != 0) {
			fail(answer, "link %s %s: %s", names[i], up ? "up" : "down",
			     strerror(errno));
			return;
		}
	json_object_set_new(answer, "after_ns", json_integer(now_ns()));
}

static struct arpreq *neighbour_slot(const char *dev, struct in_addr address)
{
	for (int i = 0; i < n_neighbours; i++) {
		struct sockaddr_in *known = (struct sockaddr_in *)&neighbours[i].arp_pa;

		if (strcmp(neighbours[i].arp_dev, dev) == 0 &&
		    known->sin_addr.s_addr == address.s_addr)
			return &neighbours[i];
	}
	return n_neighbours < MAX_NEIGHBOURS ? &neighbours[n_neighbours++] : NULL;
}

static void op_neighbour(const json_t *request, json_t *answer)
{
	const char *dev = string_of(request, "dev"), *ip = string_of(request, "address");
	const char *mac = string_of(request, "mac");
	struct sockaddr_in address = {.sin_family = AF_INET};
	unsigned int m[6];
	struct arpreq *slot;

	if (dev == NULL || ip == NULL || mac == NULL ||
	    inet_pton(AF_INET, ip, &address.sin_addr) != 1 ||
	    sscanf(mac, "%2x:%2x:%2x:%2x:%2x:%2x", &m[0], &m[1], &m[2], &m[3], &m[4], &m[5]) != 6) {
		fail(answer, "neighbour: wants dev, address and mac");
		return;
	}
	slot = neighbour_slot(dev, address.sin_addr);
	if (slot == NULL) {
		fail(answer, "neighbour: there is room for %d", MAX_NEIGHBOURS);
		return;
	}
	*slot = (struct arpreq){.arp_flags = ATF_COM | ATF_PERM};
	memcpy(&slot->arp_pa, &address, sizeof(address));
	slot->arp_ha.sa_family = ARPHRD_ETHER;
	for (int i = 0; i < 6; i++)
		slot->arp_ha.sa_data[i] = (char)m[i];
	snprintf(slot->arp_dev, sizeof(slot->arp_dev), "%s", dev);
	if (ioctl(inet, SIOCSARP, slot) != 0)
		fail(answer, "neighbour %s of %s: %s", ip, dev, strerror(errno));
}

/* ---- the rest ---- */

static void read_file(const char *path, json_t *files)
{
	char text[4096];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	if (fd >= 0)
		close(fd);
	if (n < 0)
		return;
	while (n > 0 && text[n - 1] == '\n')
		n--;
	json_object_set_new(files, path, json_stringn(text, (size_t)n));
}

/* Every readable file of a pattern, at most 4 KB of each: counters. */
static void op_read(const json_t *request, json_t *answer)
{
	json_t *files = json_object();
	char *patterns[MAX_WORDS + 1];
	glob_t found = {0};

	json_object_set_new(answer, "files", files);
	if (!words_of(request, "patterns", patterns)) {
		fail(answer, "read: patterns must be a list of strings");
		return;
	}
	for (int i = 0; patterns[i] != NULL; i++) {
		if (glob(patterns[i], 0, NULL, &found) == 0)
			for (size_t f = 0; f < found.gl_pathc; f++)
				read_file(found.gl_pathv[f], files);
		globfree(&found);
	}
}

/* What a file has from an offset on, at most 64 KB: "" if there is no more, or no file. */
static void op_tail(const json_t *request, json_t *answer)
{
	static char text[1 << 16];
	const char *path = string_of(request, "path");
	off_t offset = (off_t)json_integer_value(json_object_get(request, "offset"));
	int fd = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : pread(fd, text, sizeof(text), offset);

	if (fd >= 0)
		close(fd);
	json_object_set_new(answer, "text", json_stringn(text, n < 0 ? 0 : (size_t)n));
}

static void op_clock(const json_t *request, json_t *answer)
{
	(void)request;
	(void)answer;
}

/* A line in the kernel's log, whose clock is another one: before_ns and after_ns enclose it. */
static void op_mark(const json_t *request, json_t *answer)
{
	const char *text = string_of(request, "text");
	int fd = open("/dev/kmsg", O_WRONLY | O_CLOEXEC);
	long long before_ns, after_ns;
	char line[128];
	ssize_t n;

	/* A line that has no end yet cannot be read. */
	snprintf(line, sizeof(line), "%s\n", text != NULL ? text : "");
	before_ns = now_ns();
	n = write(fd, line, strlen(line));
	after_ns = now_ns();
	if (n < 0)
		fail(answer, "mark in /dev/kmsg: %s", strerror(errno));
	json_object_set_new(answer, "before_ns", json_integer(before_ns));
	json_object_set_new(answer, "after_ns", json_integer(after_ns));
	if (fd >= 0)
		close(fd);
}

static void op_poweroff(const json_t *request, json_t *answer)
{
	(void)request;
	(void)answer;
	power_off();
}

static const struct {
	const char *name;
	void (*run)(const json_t *request, json_t *answer);
} ops[] = {
    {"start", op_start},	 {"kill", op_kill}, {"link", op_link},
    {"neighbour", op_neighbour}, {"read", op_read}, {"tail", op_tail},
    {"clock", op_clock},	 {"mark", op_mark}, {"poweroff", op_poweroff},
};

static void serve_line(const char *line, size_t len)
{
	json_t *request = json_loadb(line, len, 0, NULL), *answer = json_object();
	const char *name = string_of(request, "op");
	size_t i = 0;

	json_object_set(answer, "id", json_object_get(request, "id"));
	while (name != NULL && i < sizeof(ops) / sizeof(ops[0]) && strcmp(ops[i].name, name) != 0)
		i++;
	if (name == NULL || i == sizeof(ops) / sizeof(ops[0]))
		fail(answer, "no such request: %.*s", (int)(len < 100 ? len : 100), line);
	else
		ops[i].run(request, answer);
	json_object_set_new(answer, "now_ns", json_integer(now_ns()));
	send_line(answer);
	json_decref(request);
}

/* Reads what is there and serves every whole line of it; keeps the rest for later. */
static void serve_port(char *buffer, size_t *have)
{
	ssize_t n = read(port, buffer + *have, LINE_MAX_BYTES - *have);
	char *start = buffer, *end;

	if (n < 0 && errno != EINTR && errno != EAGAIN)
		die("read from the host");
	if (n == 0)
		die("the host is gone");
	if (n < 0)
		return;
	*have += (size_t)n;
	while ((end = memchr(start, '\n', *have - (size_t)(start - buffer))) != NULL) {
		serve_line(start, (size_t)(end - start));
		start = end + 1;
	}
	*have -= (size_t)(start - buffer);
	memmove(buffer, start, *have);
	if (*have == LINE_MAX_BYTES)
		die("a request without an end");
}

int main(void)
{
	static char buffer[LINE_MAX_BYTES];
	struct signalfd_siginfo info;
	size_t have = 0;
	sigset_t children;
	int exits;

	port = open(PORT, O_RDWR | O_CLOEXEC);
	if (port < 0)
		die(PORT);
	inet = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (inet < 0)
		die("socket");
	sigemptyset(&children);
	sigaddset(&children, SIGCHLD);
	sigprocmask(SIG_BLOCK, &children, NULL);
	exits = signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
	if (exits < 0)
		die("signalfd");
	send_line(json_pack("{s:b, s:I}", "ready", 1, "now_ns", (json_int_t)now_ns()));
	for (;;) {
		struct pollfd fds[] = {{.fd = port, .events = POLLIN},
				       {.fd = exits, .events = POLLIN}};

		if (poll(fds, 2, -1) < 0 && errno != EINTR)
			die("poll");
		if (fds[1].revents != 0 && read(exits, &info, sizeof(info)) > 0)
			report_exits();
		if (fds[0].revents != 0)
			serve_port(buffer, &have);
	}
}
