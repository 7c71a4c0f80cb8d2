/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha/screen.h"

#include "tools/common/clock.h"

#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

static struct {
	bool terminal; /* standard output is one */
	bool keys;     /* standard input is one, and ours */
	bool colour;
	struct termios before;
} the;

static volatile sig_atomic_t ended, resized;

static void on_end(int signal)
{
	(void)signal;
	ended = 1;
}

static void on_resize(int signal)
{
	(void)signal;
	resized = 1;
}

static void say(const char *text)
{
	fputs(text, stdout);
	fflush(stdout);
}

static void catch_signals(void)
{
	static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
	struct sigaction act = {.sa_handler = on_end};

	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		sigaction(ends[i], &act, NULL);
	act.sa_handler = on_resize;
	sigaction(SIGWINCH, &act, NULL);
	/* The terminal may go away while something is written to it. */
	act.sa_handler = SIG_IGN;
	sigaction(SIGPIPE, &act, NULL);
}

void nh_screen_open(void)
{
	const char *term = getenv("TERM"), *no_colour = getenv("NO_COLOR");
	struct termios raw;

	catch_signals();
	the.terminal = isatty(STDOUT_FILENO) && term && strcmp(term, "dumb") != 0;
	if (!the.terminal)
		return;
	the.colour = !no_colour || !*no_colour;
	if (isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &the.before) == 0) {
		raw = the.before;
		raw.c_lflag &= (tcflag_t) ~(ICANON | ECHO);
		raw.c_cc[VMIN] = 0;
		raw.c_cc[VTIME] = 0;
		the.keys = tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
	}
	atexit(nh_screen_close);
	say("\033[?1049h\033[?25l"); /* the other screen, without a cursor */
}

void nh_screen_close(void)
{
	if (!the.terminal)
		return;
	the.terminal = false;
	say("\033[?25h\033[?1049l");
	if (the.keys)
		tcsetattr(STDIN_FILENO, TCSANOW, &the.before);
	the.keys = false;
}

bool nh_screen_is_terminal(void)
{
	return the.terminal;
}

void nh_screen_size(int *lines, int *columns)
{
	struct winsize size;

	*lines = *columns = 0;
	if (the.terminal && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) {
		*lines = size.ws_row;
		*columns = size.ws_col;
	}
}

/* ---- showing -------------------------------------------------------------------------------- */

/* Bytes of the first `columns` characters of a line. */
static int fitting(const char *line, size_t length, int columns)
{
	size_t i = 0;

	for (int n = 0; i < length; i++) {
		n += ((unsigned char)line[i] & 0xc0) != 0x80;
		if (columns && n > columns)
			break;
	}
	return (int)i;
}

static void show_line(const char *line, size_t length, int columns)
{
	static const char *const marks[] = {"", "\033[1m", "\033[33m", "\033[1;31m"};
	int mark = length > 0 && line[0] >= 1 && line[0] <= 3 ? line[0] : 0;

	if (mark) {
		line++;
		length--;
	}
	if (!the.terminal) {
		printf("%.*s\n", (int)length, line);
		return;
	}
	printf("%s%.*s%s\033[K", the.colour ? marks[mark] : "", fitting(line, length, columns),
	       line, the.colour && mark ? "\033[m" : "");
}

void nh_screen_show(const char *text)
{
	int lines, columns;

	nh_screen_size(&lines, &columns);
	if (the.terminal)
		fputs("\033[H", stdout);
	for (int n = 1; *text; n++) {
		size_t length = strcspn(text, "\n");

		if (the.terminal && lines && n > lines)
			break;
		if (the.terminal && n > 1)
			putchar('\n');
		show_line(text, length, columns);
		text += length + (text[length] == '\n');
	}
	if (the.terminal)
		fputs("\033[J", stdout);
	fflush(stdout);
}

/* ---- waiting -------------------------------------------------------------------------------- */

/* False: a key that ends, or no more keys. */
static bool take_keys(void)
{
	char keys[64];
	ssize_t n = read(STDIN_FILENO, keys, sizeof(keys));

	if (n == 0)
		ended = 1;
	for (ssize_t i = 0; i < n; i++)
		if (keys[i] == 'q' || keys[i] == 'Q' || keys[i] == 3 || keys[i] == 4)
			ended = 1;
	return !ended;
}

bool nh_screen_wait(double seconds)
{
	uint64_t now_ns = np_now_ns(), until_ns = now_ns + (uint64_t)(seconds * 1e9);

	for (; !ended && !resized && now_ns < until_ns; now_ns = np_now_ns()) {
		struct pollfd input = {.fd = the.keys ? STDIN_FILENO : -1, .events = POLLIN};
		uint64_t left_ms = (until_ns - now_ns) / NP_NS_PER_MS + 1;

		/* In slices, for a signal that came just before. */
		if (poll(&input, 1, left_ms < 200 ? (int)left_ms : 200) > 0)
			return take_keys();
		if (ferror(stdout))
			ended = 1;
	}
	resized = 0;
	return !ended;
}
