/* SPDX-License-Identifier: Apache-2.0 */
#include "inc/net/talk.h"

#include "base/clock.h"
#include "base/text.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define UNSENT_MAX (4u << 20) /* bytes that are kept for who does not read */

__attribute__((format(printf, 2, 3))) static void fail(struct ha_talk *talk, const char *format,
						       ...)
{
	va_list args;

	if (talk->phase == HA_TALK_OVER)
		return;
	va_start(args, format);
	vsnprintf(talk->why, sizeof(talk->why), format, args);
	va_end(args);
	talk->phase = HA_TALK_OVER;
	if (talk->fd >= 0)
		close(talk->fd);
	talk->fd = -1;
}

/* ---- life ----------------------------------------------------------------------------------- */

void ha_talk_watch_life(int fd)
{
	const int on = 1, idle_s = 2, interval_s = 1, probes = 3, unacknowledged_ms = 5000;

	(void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacknowledged_ms,
			 sizeof(unacknowledged_ms));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

static bool make_room(uint8_t **bytes, size_t *room, size_t wanted)
{
	uint8_t *more;

	if (*room >= wanted)
		return true;
	more = realloc(*bytes, wanted);
	if (!more)
		return false;
	*bytes = more;
	*room = wanted;
	return true;
}

static void begin(struct ha_talk *talk, enum ha_ctrl_side side, const struct ha_job_key *site,
		  uint32_t most)
{
	*talk = (struct ha_talk){.side = side, .site = site, .most = most, .fd = -1};
	ha_ctrl_nonce(talk->nonce);
}

/* Both do at once. */
static void greet(struct ha_talk *talk)
{
	uint8_t hello[HA_CTRL_HELLO_BYTES];

	talk->phase = HA_TALK_GREETING;
	ha_ctrl_hello_encode(talk->nonce, hello);
	/* It fits: nothing was said on this socket before. */
	if (send(talk->fd, hello, sizeof(hello), MSG_NOSIGNAL) != sizeof(hello))
		fail(talk, "%s", strerror(errno));
}

void ha_talk_dial(struct ha_talk *talk, const union ha_sockaddr *to, const struct ha_job_key *site,
		  uint32_t most)
{
	begin(talk, HA_CTRL_HOST, site, most);
	talk->fd = socket(to->sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (talk->fd < 0) {
		fail(talk, "no socket: %s", strerror(errno));
		return;
	}
	ha_talk_watch_life(talk->fd);
	if (connect(talk->fd, &to->sa, ha_sockaddr_len(to)) == 0)
		greet(talk);
	else if (errno != EINPROGRESS)
		fail(talk, "nobody answers: %s", strerror(errno));
}

void ha_talk_take(struct ha_talk *talk, int fd, const struct ha_job_key *site, uint32_t most)
{
	begin(talk, HA_CTRL_CONTROLLER, site, most);
	talk->fd = fd;
	ha_talk_watch_life(fd);
	greet(talk);
}

void ha_talk_end(struct ha_talk *talk)
{
	fail(talk, "ended");
	free(talk->in);
	free(talk->out);
	talk->in = talk->out = NULL;
	ha_ctrl_session_end(&talk->keys);
	explicit_bzero(&talk->heard, sizeof(talk->heard));
}

/* ---- out ------------------------------------------------------------------------------------ */

static void flush(struct ha_talk *talk)
{
	while (talk->phase == HA_TALK_OPEN && talk->sent < talk->to_send) {
		const ssize_t n = send(talk->fd, talk->out + talk->sent, talk->to_send - talk->sent,
				       MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n < 0)
			fail(talk, "%s", strerror(errno));
		else
			talk->sent += (size_t)n;
	}
	if (talk->sent == talk->to_send)
		talk->sent = talk->to_send = 0;
}

bool ha_talk_say(struct ha_talk *talk, enum ha_ctrl_kind kind, const uint8_t *secret,
		 const void *text, size_t length)
{
	const size_t end = talk->to_send + HA_CTRL_HEAD_BYTES + length;
	uint8_t digest[HA_SHA256_BYTES];

	if (talk->phase != HA_TALK_OPEN)
		return false;
	if (end > UNSENT_MAX || !make_room(&talk->out, &talk->out_room, end)) {
		fail(talk, "it does not read what it is told");
		return false;
	}
	ha_sha256(text, length, digest);
	ha_ctrl_say(&talk->keys, kind, secret, (uint32_t)length, digest, talk->out + talk->to_send);
	if (length > 0)
		memcpy(talk->out + talk->to_send + HA_CTRL_HEAD_BYTES, text, length);
	talk->to_send = end;
	flush(talk);
	return talk->phase == HA_TALK_OPEN;
}

/* What it may still be saying has to be read before the socket is closed, or the answer is lost:
 * so only this half of it is. */
void ha_talk_refuse(struct ha_talk *talk, const char *why)
{
	if (ha_talk_say(talk, HA_CTRL_REFUSED, NULL, why, strlen(why)))
		(void)shutdown(talk->fd, SHUT_WR);
}

/* ---- in ------------------------------------------------------------------------------------- */

static bool is_connected(struct ha_talk *talk)
{
	struct pollfd p = {.fd = talk->fd, .events = POLLOUT};
	socklen_t size = sizeof(int);
	int error = 0;

	if (poll(&p, 1, 0) != 1)
		return false;
	(void)getsockopt(talk->fd, SOL_SOCKET, SO_ERROR, &error, &size);
	if (error != 0)
		fail(talk, "nobody answers: %s", strerror(error));
	return error == 0;
}

/* Whether so many bytes are there. */
static bool has_read(struct ha_talk *talk, size_t wanted)
{
	if (!make_room(&talk->in, &talk->in_room, wanted)) {
		fail(talk, "out of memory");
		return false;
	}
	while (talk->got < wanted) {
		const ssize_t n = recv(talk->fd, talk->in + talk->got, wanted - talk->got, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return false;
		if (n <= 0) {
			fail(talk, "%s", n < 0 ? strerror(errno) : "it has hung up");
			return false;
		}
		talk->got += (size_t)n;
	}
	return true;
}

static enum ha_talk_event hear_hello(struct ha_talk *talk)
{
	uint8_t theirs[HA_CTRL_NONCE_BYTES];
	const bool is_host = talk->side == HA_CTRL_HOST;
	uint32_t version;

	if (!has_read(talk, HA_CTRL_HELLO_BYTES))
		return HA_TALK_NOTHING;
	talk->got = 0;
	version = ha_ctrl_hello_decode(talk->in, theirs);
	if (version != HA_CTRL_VERSION) {
		if (version == 0)
			fail(talk, "it speaks another protocol");
		else
			fail(talk, "it speaks version %u, and this is %d", version,
			     HA_CTRL_VERSION);
		return HA_TALK_NOTHING;
	}
	if (!ha_ctrl_session_begin(&talk->keys, talk->site, talk->side,
				   is_host ? talk->nonce : theirs,
				   is_host ? theirs : talk->nonce)) {
		fail(talk, "this process is a child of the one that read the key");
		return HA_TALK_NOTHING;
	}
	talk->phase = HA_TALK_OPEN;
	return HA_TALK_OPENED;
}

static enum ha_talk_event hear_frame(struct ha_talk *talk)
{
	struct ha_talk_frame *heard = &talk->heard;

	if (!has_read(talk, HA_CTRL_HEAD_BYTES))
		return HA_TALK_NOTHING;
	if (!ha_ctrl_head_decode(talk->in, talk->most, &heard->kind, &heard->length)) {
		fail(talk, talk->is_known ? "it has said what is no frame"
					  : "it has another key: both need the site's key file");
		return HA_TALK_NOTHING;
	}
	if (!has_read(talk, HA_CTRL_HEAD_BYTES + heard->length))
		return HA_TALK_NOTHING;
	talk->got = 0;
	heard->text = talk->in + HA_CTRL_HEAD_BYTES;
	if (!ha_ctrl_hear(&talk->keys, talk->in, heard->text, heard->length, heard->secret)) {
		fail(talk, "it has another key: both need the site's key file");
		return HA_TALK_NOTHING;
	}
	talk->is_known = true;
	return HA_TALK_HEARD;
}

/* What a controller, a switch or a leader refuses, it has said why; the text is not terminated. */
static void be_refused(struct ha_talk *talk)
{
	char why[HA_TALK_WHY];
	const size_t room = sizeof(why) - 1;
	const size_t n = talk->heard.length < room ? talk->heard.length : room;

	memcpy(why, talk->heard.text, n);
	why[n] = '\0';
	ha_make_printable(why);
	talk->is_refused = true;
	fail(talk, "refused: %s", why);
}

static enum ha_talk_event step(struct ha_talk *talk)
{
	enum ha_talk_event event = HA_TALK_NOTHING;

	if (talk->phase == HA_TALK_DIALING && is_connected(talk))
		greet(talk);
	if (talk->phase == HA_TALK_GREETING)
		return hear_hello(talk);
	flush(talk);
	if (talk->phase == HA_TALK_OPEN)
		event = hear_frame(talk);
	if (event == HA_TALK_HEARD && talk->heard.kind == HA_CTRL_REFUSED &&
	    talk->side == HA_CTRL_HOST) {
		be_refused(talk);
		return HA_TALK_NOTHING;
	}
	return event;
}

enum ha_talk_event ha_talk_next(struct ha_talk *talk)
{
	enum ha_talk_event event = HA_TALK_NOTHING;

	if (talk->phase != HA_TALK_OVER)
		event = step(talk);
	if (talk->phase != HA_TALK_OVER || talk->is_told)
		return event;
	talk->is_told = true;
	return HA_TALK_ENDED;
}

short ha_talk_waits_for(const struct ha_talk *talk)
{
	if (talk->phase == HA_TALK_DIALING)
		return POLLOUT;
	return (short)(POLLIN | (talk->to_send > talk->sent ? POLLOUT : 0));
}

enum ha_talk_event ha_talk_await(struct ha_talk *talk, uint64_t until_ns)
{
	enum ha_talk_event event = ha_talk_next(talk);

	while (event == HA_TALK_NOTHING && talk->phase != HA_TALK_OVER) {
		struct pollfd p = {.fd = talk->fd, .events = ha_talk_waits_for(talk)};
		const uint64_t now_ns = ha_real_ns();

		if (now_ns >= until_ns)
			return HA_TALK_NOTHING;
		(void)poll(&p, 1, (int)((until_ns - now_ns) / HA_NS_PER_MS) + 1);
		event = ha_talk_next(talk);
	}
	return event;
}

bool ha_talk_is_stuck(const struct ha_talk *talk, uint64_t dialled_ns, uint64_t now_ns)
{
	return talk->phase == HA_TALK_DIALING && now_ns - dialled_ns > HA_TALK_CONNECT_NS;
}

bool ha_talk_here(const struct ha_talk *talk, union ha_sockaddr *at)
{
	socklen_t size = sizeof(*at);

	memset(at, 0, sizeof(*at));
	return talk->fd >= 0 && getsockname(talk->fd, &at->sa, &size) == 0;
}
