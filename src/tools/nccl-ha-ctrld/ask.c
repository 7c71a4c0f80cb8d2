/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha-ctrld/ask.h"

#include "base/random.h"
#include "base/text.h"
#include "inc/ctrl_wire.h"
#include "tools/common/address.h"
#include "tools/nccl-ha-ctrld/key.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define PATIENCE_S 10

/* A conversation with the controller. */
struct talk {
	const char *address;
	int fd;
	struct ha_ctrl_session keys;
};

__attribute__((format(printf, 2, 3))) static bool wrong(const struct talk *t, const char *format,
							...)
{
	va_list args;

	fprintf(stderr, "nccl-ha-ctrld: %s: ", t->address);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	return false;
}

static bool dial(struct talk *t)
{
	const struct timeval patience = {.tv_sec = PATIENCE_S};
	char why[256];
	struct addrinfo *list = np_resolve(t->address, false, why, sizeof(why));
	bool reached;

	if (!list)
		return wrong(t, "%s", why);
	t->fd = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	/* The first of them bounds connect, too. */
	reached = t->fd >= 0 &&
		  setsockopt(t->fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) == 0 &&
		  setsockopt(t->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) == 0 &&
		  connect(t->fd, list->ai_addr, list->ai_addrlen) == 0;
	freeaddrinfo(list);
	return reached || wrong(t, "no controller answers: %s",
				strerror(errno == EINPROGRESS ? ETIMEDOUT : errno));
}

static bool send_all(struct talk *t, const void *bytes, size_t length)
{
	return send(t->fd, bytes, length, MSG_NOSIGNAL) == (ssize_t)length ||
	       wrong(t, "the controller does not listen: %s", strerror(errno));
}

static bool receive_all(struct talk *t, void *bytes, size_t length)
{
	ssize_t n = recv(t->fd, bytes, length, MSG_WAITALL);

	return n == (ssize_t)length ||
	       wrong(t, "%s", n < 0 ? "the controller says nothing" : "the controller has hung up");
}

static bool greet(struct talk *t, const struct ha_job_key *site)
{
	uint8_t hello[HA_CTRL_HELLO_BYTES], mine[HA_CTRL_NONCE_BYTES], theirs[HA_CTRL_NONCE_BYTES];
	uint32_t version;

	if (!receive_all(t, hello, sizeof(hello)))
		return false;
	version = ha_ctrl_hello_decode(hello, theirs);
	if (version == 0)
		return wrong(t, "this is no controller");
	if (version != HA_CTRL_VERSION)
		return wrong(t, "the controller speaks version %u, and this is %d", version,
			     HA_CTRL_VERSION);
	ha_ctrl_nonce(mine);
	ha_ctrl_hello_encode(mine, hello);
	return ha_ctrl_session_begin(&t->keys, site, HA_CTRL_HOST, mine, theirs) &&
	       send_all(t, hello, sizeof(hello));
}

static bool ask(struct talk *t)
{
	uint8_t head[HA_CTRL_HEAD_BYTES], digest[HA_SHA256_BYTES];

	ha_sha256("", 0, digest);
	ha_ctrl_say(&t->keys, HA_CTRL_STATUS, NULL, 0, digest, head);
	return send_all(t, head, sizeof(head));
}

/* What a controller without our key says is not repeated. */
static bool believe(struct talk *t, const uint8_t *head, enum ha_ctrl_kind kind, const char *text,
		    uint32_t length)
{
	if (!ha_ctrl_hear(&t->keys, head, text, length, NULL))
		return wrong(t, "the controller has another key: both need the site's key file");
	return kind == HA_CTRL_REPORT || wrong(t, "refused: %s", text);
}

static bool hear(struct talk *t)
{
	uint8_t head[HA_CTRL_HEAD_BYTES];
	enum ha_ctrl_kind kind;
	uint32_t length;
	char *text;
	bool good;

	if (!receive_all(t, head, sizeof(head)))
		return false;
	if (!ha_ctrl_head_decode(head, HA_CTRL_TEXT_MAX, &kind, &length))
		return wrong(t, "this is no controller's frame");
	text = calloc(1, length + 1);
	if (!text)
		return wrong(t, "out of memory");
	good = receive_all(t, text, length) && believe(t, head, kind, text, length) &&
	       puts(text) >= 0 && fflush(stdout) == 0;
	free(text);
	return good;
}

int nc_ask_status(const char *address, const char *key_file)
{
	struct ha_job_key *site = nc_key_load(key_file);
	struct talk t = {.address = address, .fd = -1};
	bool good = site && ha_random_works() && dial(&t) && greet(&t, site) && ask(&t) && hear(&t);

	if (t.fd >= 0)
		close(t.fd);
	ha_ctrl_session_end(&t.keys);
	ha_job_key_free(site);
	return good ? 0 : 1;
}
