/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha/ask.h"

#include "base/text.h"
#include "nccl_ha/control.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define LIMIT_S	   5 /* for each call on the socket, and so for a process that is stopped */
#define ANSWER_MAX (4u << 20) /* bytes: of some 30,000 connections */

static const char *const fates[NH_FATE_COUNT] = {
    [NH_FATE_ACTIVE] = "active", [NH_FATE_MOVING] = "moving",	[NH_FATE_AWAY] = "away",
    [NH_FATE_HOME] = "home",	 [NH_FATE_REFUSED] = "refused", [NH_FATE_FAILED] = "failed",
};

static bool no(char *err, size_t err_len, const char *what)
{
	snprintf(err, err_len, "%s", what);
	return false;
}

/* What the process says. */
static bool foreign_no(char *err, size_t err_len, const char *what)
{
	ha_printable(what, SIZE_MAX, err, err_len);
	return false;
}

/* ---- reading an answer ----------------------------------------------------------------------- */

static bool find_word(const char *word, const char *const *words, int n, int *found)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(word, words[i])) {
			*found = i;
			return true;
		}
	return false;
}

static bool parse_connection(const char *line, struct nh_asked *c)
{
	static const char *const ends[] = {"recv", "send"}, *const places[] = {"elsewhere", "home"};
	char end[8], fate[12], place[12];
	int is_send, home, found, used = 0;

	memset(c, 0, sizeof(*c));
	if (sscanf(line, "connection %16" SCNx64 " %7s %11s %23s %79s %" SCNu32 " %11s%n", &c->id,
		   end, fate, c->at.path, c->at.port, &c->epoch, place, &used) != 7 ||
	    !find_word(end, ends, 2, &is_send) || !find_word(place, places, 2, &home) ||
	    !find_word(fate, fates, NH_FATE_COUNT, &found))
		return false;
	c->is_send = is_send;
	c->home = home;
	c->fate = (enum nh_fate)found;
	if (line[used] == ' ')
		snprintf(c->why, sizeof(c->why), "%s", line + used + 1);
	return line[used] == ' ' || line[used] == '\0';
}

static bool add(struct nh_answer *answer, const struct nh_asked *c)
{
	if (answer->n % 64 == 0) {
		struct nh_asked *grown =
		    realloc(answer->connections, (answer->n + 64) * sizeof(*grown));

		if (!grown)
			return false;
		answer->connections = grown;
	}
	answer->connections[answer->n++] = *c;
	return true;
}

/* The first line; *rest is what follows it. */
static bool parse_head(char *text, char **rest, char *err, size_t err_len)
{
	char *end = strchr(text, '\n');
	unsigned version;
	int used = 0;

	if (!end || sscanf(text, "nccl-ha %9u %n", &version, &used) != 1 || !used)
		return no(err, err_len, "its answer makes no sense");
	*end = '\0';
	*rest = end + 1;
	if (version != NCCL_HA_CONTROL_VERSION)
		return no(err, err_len, "its plugin is of another version: use its own nccl-ha");
	if (!strcmp(text + used, "ok"))
		return true;
	if (!strncmp(text + used, "error ", 6) && text[used + 6])
		return foreign_no(err, err_len, text + used + 6);
	return no(err, err_len, "its answer makes no sense");
}

/* The text is changed. */
static bool parse_answer(char *text, struct nh_answer *answer, char *err, size_t err_len)
{
	char *line, *save = NULL;

	*answer = (struct nh_answer){0};
	if (!parse_head(text, &text, err, err_len))
		return false;
	for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		struct nh_asked c;
		size_t n;

		if (sscanf(line, "end %zu", &n) == 1)
			return n == answer->n ? true : no(err, err_len, "its answer has gaps");
		if (!parse_connection(line, &c))
			return no(err, err_len, "its answer makes no sense");
		if (!add(answer, &c))
			return no(err, err_len, "out of memory");
	}
	return no(err, err_len, "its answer has no end");
}

void nh_answer_free(struct nh_answer *answer)
{
	free(answer->connections);
	*answer = (struct nh_answer){0};
}

/* ---- the socket ------------------------------------------------------------------------------ */

/* A name in /dev/shm may be anybody's: only the process's own user may answer for it. */
static bool belongs_to(int fd, unsigned int uid)
{
	socklen_t length = sizeof(struct ucred);
	struct ucred who;

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &length) == 0 && who.uid == uid;
}

static int dial(const char *stats_path, unsigned int uid, char *err, size_t err_len)
{
	const struct timeval limit = {.tv_sec = LIMIT_S};
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	int n =
	    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s" NCCL_HA_CONTROL_SUFFIX, stats_path);
	struct stat st;
	int fd;

	if (n < 0 || (size_t)n >= sizeof(addr.sun_path)) {
		no(err, err_len, "the name of its socket is too long for one");
		return -1;
	}
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0) {
		no(err, err_len, strerror(errno));
		return -1;
	}
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	if (lstat(addr.sun_path, &st) == 0 && (!S_ISSOCK(st.st_mode) || st.st_uid != uid))
		snprintf(err, err_len, "%s is no socket of that user", addr.sun_path);
	else if (connect(fd, (const struct sockaddr *)&addr, sizeof(addr)) != 0)
		snprintf(err, err_len, "%s: %s%s", addr.sun_path, strerror(errno),
			 errno == ENOENT ? " (HA_NCCL_CONTROL=0, or an older plugin)" : "");
	else if (!belongs_to(fd, uid))
		snprintf(err, err_len, "%s belongs to another user", addr.sun_path);
	else
		return fd;
	close(fd);
	return -1;
}

/* All there is until the end; NULL: it did not come, or there is too much of it. */
static char *read_all(int fd, char *err, size_t err_len)
{
	size_t size = 1u << 16, length = 0;
	char *text = malloc(size);

	for (;;) {
		char *grown = text;
		ssize_t n;

		if (length + 1 == size) {
			size *= 2;
			grown = size <= ANSWER_MAX ? realloc(text, size) : NULL;
		}
		if (!grown) {
			no(err, err_len, "its answer is too long");
			break;
		}
		text = grown;
		n = read(fd, text + length, size - length - 1);
		if (n < 0) {
			no(err, err_len,
			   errno == EAGAIN ? "it does not answer: is it stopped?"
					   : strerror(errno));
			break;
		}
		if (n == 0) {
			text[length] = '\0';
			return text;
		}
		length += (size_t)n;
	}
	free(text);
	return NULL;
}

bool nh_ask(const char *stats_path, unsigned int uid, const char *request, struct nh_answer *answer,
	    char *err, size_t err_len)
{
	char line[NCCL_HA_CONTROL_REQUEST_MAX];
	int length = snprintf(line, sizeof(line), "%s\n", request), fd;
	char *text = NULL;
	bool ok;

	*answer = (struct nh_answer){0};
	if (length < 0 || (size_t)length >= sizeof(line))
		return no(err, err_len, "the request is too long");
	fd = dial(stats_path, uid, err, err_len);
	if (fd < 0)
		return false;
	if (send(fd, line, (size_t)length, MSG_NOSIGNAL) == length)
		text = read_all(fd, err, err_len);
	else
		no(err, err_len, strerror(errno));
	close(fd);
	ok = text && parse_answer(text, answer, err, err_len);
	free(text);
	return ok;
}
