/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha-ctrld/session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct nc_session *nc_session_new(int fd, const union ha_sockaddr *from, uint64_t now_ns)
{
	struct nc_session *s = calloc(1, sizeof(*s));
	uint8_t hello[HA_CTRL_HELLO_BYTES];

	if (!s) {
		close(fd);
		return NULL;
	}
	s->fd = fd;
	s->from = *from;
	s->since_ns = now_ns;
	s->unsent_most = NC_UNSENT_MAX;
	ha_ctrl_nonce(s->nonce);
	ha_ctrl_hello_encode(s->nonce, hello);
	/* It fits: nothing was said on this socket before. */
	s->over = send(fd, hello, sizeof(hello), MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof(hello);
	return s;
}

void nc_session_free(struct nc_session *session)
{
	close(session->fd);
	for (unsigned i = 0; i < session->n_unsent; i++)
		nc_text_release(session->unsent[i].text);
	free(session->unsent);
	free(session->in);
	ha_ctrl_session_end(&session->keys);
	free(session);
}

/* ---- out ------------------------------------------------------------------------------------- */

/* False: no more now. */
static bool send_some(struct nc_session *s, struct nc_unsent *u)
{
	const bool in_head = u->sent < sizeof(u->head);
	const void *from = in_head ? (const void *)(u->head + u->sent)
				   : u->text->bytes + (u->sent - sizeof(u->head));
	const size_t left =
	    in_head ? sizeof(u->head) - u->sent : sizeof(u->head) + u->text->length - u->sent;
	const int more = in_head && u->text->length > 0 ? MSG_MORE : 0;
	ssize_t n = send(s->fd, from, left, MSG_NOSIGNAL | MSG_DONTWAIT | more);

	if (n < 0 && errno == EINTR)
		return true;
	if (n < 0) {
		s->over |= errno != EAGAIN;
		return false;
	}
	u->sent += (size_t)n;
	return true;
}

void nc_session_write(struct nc_session *session)
{
	while (session->n_unsent > 0 && !session->over) {
		struct nc_unsent *u = &session->unsent[0];

		if (u->sent < sizeof(u->head) + u->text->length) {
			if (!send_some(session, u))
				return;
			continue;
		}
		nc_text_release(u->text);
		session->n_unsent--;
		memmove(u, u + 1, session->n_unsent * sizeof(*u));
	}
	if (session->phase == NC_ENDING && session->n_unsent == 0)
		(void)shutdown(session->fd, SHUT_WR);
}

static bool has_room(struct nc_session *session)
{
	const unsigned room = session->unsent_room ? 2 * session->unsent_room : 2;
	struct nc_unsent *more;

	if (session->n_unsent < session->unsent_room)
		return true;
	if (session->n_unsent >= session->unsent_most)
		return false;
	more = realloc(session->unsent, room * sizeof(*more));
	if (!more)
		return false;
	session->unsent = more;
	session->unsent_room = room;
	return true;
}

void nc_session_say(struct nc_session *session, enum ha_ctrl_kind kind, struct nc_text *text,
		    const uint8_t *secret)
{
	struct nc_unsent *u;

	if (!has_room(session)) { /* asks on and does not read */
		session->over = true;
		return;
	}
	u = &session->unsent[session->n_unsent];
	text->users++;
	*u = (struct nc_unsent){.text = text};
	ha_ctrl_say(&session->keys, kind, secret, text->length, text->digest, u->head);
	session->n_unsent++;
	nc_session_write(session);
}

void nc_session_refuse(struct nc_session *session, uint64_t now_ns, const char *why)
{
	struct nc_text *text = nc_text_new(why, strlen(why));

	session->phase = NC_ENDING;
	session->since_ns = now_ns;
	if (text)
		nc_session_say(session, HA_CTRL_REFUSED, text, NULL);
	else
		session->over = true;
	nc_text_release(text);
}

/* ---- in -------------------------------------------------------------------------------------- */

static enum nc_refusal greet(struct nc_session *s, const struct ha_job_key *site, uint64_t now_ns)
{
	uint8_t theirs[HA_CTRL_NONCE_BYTES];
	uint32_t version = ha_ctrl_hello_decode(s->in, theirs);
	char why[96];

	s->got = 0;
	if (version == 0 ||
	    !ha_ctrl_session_begin(&s->keys, site, HA_CTRL_CONTROLLER, theirs, s->nonce)) {
		s->over = true;
		return NC_BAD_VERSION;
	}
	s->phase = NC_STRANGER;
	if (version == HA_CTRL_VERSION)
		return NC_NOT_REFUSED;
	snprintf(why, sizeof(why), "the controller speaks version %d, and this is %u",
		 HA_CTRL_VERSION, version);
	nc_session_refuse(s, now_ns, why);
	return NC_BAD_VERSION;
}

/* Who has proved nothing yet is brief. */
static uint32_t most(const struct nc_session *s)
{
	return s->phase == NC_KNOWN ? HA_CTRL_TEXT_MAX : HA_CTRL_ASK_MAX;
}

/* Room for a head, and then for the text that it is of. */
static bool make_room(struct nc_session *s, uint32_t length)
{
	uint8_t *more = s->in;

	if (s->got == 0 || s->got == HA_CTRL_HEAD_BYTES)
		more = realloc(s->in, HA_CTRL_HEAD_BYTES + length);
	s->in = more ? more : s->in;
	return more != NULL;
}

/* Bytes that are to be there before anything can be said of them. */
static size_t wanted(const struct nc_session *s, uint32_t length)
{
	if (s->phase == NC_GREETING)
		return HA_CTRL_HELLO_BYTES;
	return s->got < HA_CTRL_HEAD_BYTES ? HA_CTRL_HEAD_BYTES : HA_CTRL_HEAD_BYTES + length;
}

/* What has come is a hello, a head, or a frame. *length: of the text that the head is of. */
static enum nc_refusal take(struct nc_session *s, const struct ha_job_key *site, uint64_t now_ns,
			    nc_session_hears hears, void *arg, uint32_t *length)
{
	enum ha_ctrl_kind kind;
	bool first = s->phase == NC_STRANGER;
	uint8_t secret[HA_CTRL_SECRET_BYTES];

	if (s->phase == NC_GREETING)
		return greet(s, site, now_ns);
	if (!ha_ctrl_head_decode(s->in, most(s), &kind, length)) {
		nc_session_refuse(s, now_ns, "this is no frame, or its text is too long");
		return first ? NC_BAD_KEY : NC_BAD_REQUEST;
	}
	if (s->got < HA_CTRL_HEAD_BYTES + *length)
		return NC_NOT_REFUSED;
	if (!ha_ctrl_hear(&s->keys, s->in, s->in + HA_CTRL_HEAD_BYTES, *length, secret)) {
		nc_session_refuse(s, now_ns,
				  "the controller has another key: both need the site's key file");
		return NC_BAD_KEY;
	}
	s->phase = NC_KNOWN;
	s->got = 0;
	hears(arg, s, kind, (const char *)s->in + HA_CTRL_HEAD_BYTES, *length, secret);
	explicit_bzero(secret, sizeof(secret));
	*length = 0;
	return NC_NOT_REFUSED;
}

/* Who has been refused may still be saying something: were it left unread, the answer would be lost
 * with it. */
static void drain(struct nc_session *s)
{
	uint8_t bytes[4096];
	ssize_t n = recv(s->fd, bytes, sizeof(bytes), MSG_DONTWAIT);

	s->over |= n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

enum nc_refusal nc_session_read(struct nc_session *session, const struct ha_job_key *site,
				uint64_t now_ns, nc_session_hears hears, void *arg)
{
	struct nc_session *s = session;
	enum nc_refusal refusal = NC_NOT_REFUSED;
	enum ha_ctrl_kind kind;
	uint32_t length = 0;
	ssize_t n;

	if (s->phase == NC_ENDING) {
		drain(s);
		return NC_NOT_REFUSED;
	}
	if (s->phase != NC_GREETING && s->got >= HA_CTRL_HEAD_BYTES)
		(void)!ha_ctrl_head_decode(s->in, most(s), &kind, &length);
	if (!make_room(s, length)) {
		s->over = true;
		return NC_NOT_REFUSED;
	}
	n = recv(s->fd, s->in + s->got, wanted(s, length) - s->got, MSG_DONTWAIT);
	s->over |= n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
	if (n > 0) {
		s->got += (size_t)n;
		if (s->got == wanted(s, length))
			refusal = take(s, site, now_ns, hears, arg, &length);
	}
	if (s->got == 0) {
		free(s->in);
		s->in = NULL;
	}
	return refusal;
}
