/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-net-perf/bootstrap_wire.h"

#include "base/bytes.h"
#include "base/random.h"
#include "tools/common/clock.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- greetings ------------------------------------------------------------------------------ */

/* Label by label no code can be taken for another. */
static const char hello_label[] = "nccl-net-perf hello 2",
		  welcome_label[] = "nccl-net-perf welcome 2",
		  session_label[] = "nccl-net-perf session 2";

static bool hello_code(const struct ha_job_key *key, const struct np_hello *hello,
		       uint8_t code[HA_HMAC_BYTES])
{
	struct ha_hmac mac;

	if (!ha_job_key_begin(key, &mac))
		return false;
	ha_hmac_add(&mac, hello_label, sizeof(hello_label));
	ha_hmac_add(&mac, hello, offsetof(struct np_hello, code));
	ha_hmac_end(&mac, code, HA_HMAC_BYTES);
	return true;
}

static bool welcome_code(const struct ha_job_key *key, const struct np_hello *hello,
			 const struct np_welcome *welcome, uint8_t code[HA_HMAC_BYTES])
{
	struct ha_hmac mac;

	if (!ha_job_key_begin(key, &mac))
		return false;
	ha_hmac_add(&mac, welcome_label, sizeof(welcome_label));
	ha_hmac_add(&mac, hello, sizeof(*hello));
	ha_hmac_add(&mac, welcome, offsetof(struct np_welcome, code));
	ha_hmac_end(&mac, code, HA_HMAC_BYTES);
	return true;
}

bool np_hello_seal(const struct ha_job_key *key, struct np_hello *hello)
{
	hello->keyed = key != NULL;
	return !key || hello_code(key, hello, hello->code);
}

bool np_hello_is_genuine(const struct ha_job_key *key, const struct np_hello *hello)
{
	uint8_t code[HA_HMAC_BYTES];

	if (!key || !hello->keyed)
		return !key && !hello->keyed;
	return hello_code(key, hello, code) && ha_same_secret(code, hello->code, sizeof(code));
}

bool np_welcome_seal(const struct ha_job_key *key, const struct np_hello *hello,
		     struct np_welcome *welcome)
{
	return !key || welcome_code(key, hello, welcome, welcome->code);
}

bool np_welcome_is_genuine(const struct ha_job_key *key, const struct np_hello *hello,
			   const struct np_welcome *welcome)
{
	uint8_t code[HA_HMAC_BYTES];

	return !key || (welcome_code(key, hello, welcome, code) &&
			ha_same_secret(code, welcome->code, sizeof(code)));
}

void np_draw_nonce(uint8_t nonce[NP_NONCE_BYTES])
{
	struct ha_writer w = {nonce};

	ha_put_uint(&w, ha_random(), 8);
	ha_put_uint(&w, ha_random(), 8);
}

bool np_sock_authenticate(struct np_sock *sock, const struct ha_job_key *key,
			  const struct np_hello *hello, const struct np_welcome *welcome)
{
	uint8_t bytes[HA_HMAC_BYTES];
	struct ha_hmac mac;

	if (!key)
		return true;
	if (!ha_job_key_begin(key, &mac))
		return false;
	ha_hmac_add(&mac, session_label, sizeof(session_label));
	ha_hmac_add(&mac, hello->nonce, sizeof(hello->nonce));
	ha_hmac_add(&mac, welcome->nonce, sizeof(welcome->nonce));
	ha_hmac_end(&mac, bytes, sizeof(bytes));
	ha_hmac_set_key(&sock->key, bytes, sizeof(bytes));
	explicit_bzero(bytes, sizeof(bytes));
	sock->keyed = true;
	return true;
}

void np_sock_close(struct np_sock *sock)
{
	if (sock->fd >= 0)
		close(sock->fd);
	sock->fd = -1;
	if (sock->keyed)
		ha_hmac_forget_key(&sock->key);
	sock->keyed = false;
}

/* ---- bytes ---------------------------------------------------------------------------------- */

bool np_wait(int fd, short events, uint64_t deadline_ns, int stop_fd)
{
	struct pollfd p[2] = {{.fd = fd, .events = events}, {.fd = stop_fd, .events = POLLIN}};
	uint64_t now = np_now_ns();
	int wait_ms;

	if (now >= deadline_ns) {
		errno = ETIMEDOUT;
		return false;
	}
	wait_ms = deadline_ns == UINT64_MAX ? -1 : (int)((deadline_ns - now) / NP_NS_PER_MS) + 1;
	if (poll(p, stop_fd >= 0 ? 2 : 1, wait_ms) < 0)
		return errno == EINTR;
	if (stop_fd >= 0 && p[1].revents) {
		errno = ECANCELED;
		return false;
	}
	return true;
}

bool np_send_all(const struct np_sock *sock, const void *data, size_t len, uint64_t deadline_ns)
{
	const char *p = data;

	while (len) {
		ssize_t n = send(sock->fd, p, len, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n > 0) {
			p += n;
			len -= (size_t)n;
		} else if (n < 0 && errno != EAGAIN && errno != EINTR) {
			return false;
		} else if (!np_wait(sock->fd, POLLOUT, deadline_ns, sock->stop_fd)) {
			return false;
		}
	}
	return true;
}

bool np_recv_all(const struct np_sock *sock, void *data, size_t len, uint64_t deadline_ns)
{
	char *p = data;

	while (len) {
		ssize_t n = recv(sock->fd, p, len, MSG_DONTWAIT);

		if (n > 0) {
			p += n;
			len -= (size_t)n;
		} else if (n == 0) {
			errno = ECONNRESET;
			return false;
		} else if (errno != EAGAIN && errno != EINTR) {
			return false;
		} else if (!np_wait(sock->fd, POLLIN, deadline_ns, sock->stop_fd)) {
			return false;
		}
	}
	return true;
}

/* ---- frames --------------------------------------------------------------------------------- */

static struct ha_statement statement(enum np_speaker speaker, uint64_t count,
				     const struct np_frame *frame, const void *body, size_t len)
{
	return (struct ha_statement){.speaker = (uint8_t)speaker,
				     .count = count,
				     .head = frame,
				     .head_length = sizeof(*frame),
				     .body = body,
				     .body_length = len};
}

static enum np_speaker other_of(enum np_speaker speaker)
{
	return speaker == NP_SPEAKER_RANK ? NP_SPEAKER_ROOT : NP_SPEAKER_RANK;
}

bool np_frame_send(struct np_sock *sock, const struct np_frame *frame, const void *body, size_t len,
		   uint64_t deadline_ns)
{
	uint8_t code[HA_CODE_BYTES];
	struct ha_statement said = statement(sock->self, sock->said++, frame, body, len);

	if (sock->keyed)
		ha_statement_code(&sock->key, &said, code);
	return np_send_all(sock, frame, sizeof(*frame), deadline_ns) &&
	       np_send_all(sock, body, len, deadline_ns) &&
	       (!sock->keyed || np_send_all(sock, code, sizeof(code), deadline_ns));
}

static bool is_genuine(struct np_sock *sock, const struct np_frame *head, const void *body,
		       size_t len, const uint8_t code[HA_CODE_BYTES])
{
	struct ha_statement said = statement(other_of(sock->self), sock->heard++, head, body, len);

	return ha_statement_is_genuine(&sock->key, &said, code);
}

bool np_frame_recv(struct np_sock *sock, const struct np_frame *head, void *body, size_t len,
		   uint64_t deadline_ns)
{
	uint8_t code[HA_CODE_BYTES];

	if (!np_recv_all(sock, body, len, deadline_ns))
		return false;
	if (!sock->keyed)
		return true;
	if (!np_recv_all(sock, code, sizeof(code), deadline_ns))
		return false;
	if (is_genuine(sock, head, body, len, code))
		return true;
	errno = EBADMSG;
	return false;
}

bool np_frame_is_genuine(struct np_sock *sock, const struct np_frame *head,
			 const uint8_t code[HA_CODE_BYTES])
{
	return !sock->keyed || is_genuine(sock, head, NULL, 0, code);
}
