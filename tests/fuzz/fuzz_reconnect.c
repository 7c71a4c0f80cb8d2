/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes where a broken bootstrap socket is replaced: at the receiver's server, as a guest, and
 * at the sender, as what answers it. Nothing crashes, waits or leaks, and a stranger changes
 * nothing: without the secret the connection has its own socket afterwards, and works.
 *
 * Input: byte 0 (bits): who is spoken to, and whether the frame is put right that proves who
 * speaks; byte 1: how many bytes at a time; the rest is said.
 */
#include "../descriptors.h"
#include "../transport/harness.h"
#include "../transport/peer.h"
#include "fuzz.h"

#include "failover/engine.h"
#include "transport/ctrl_sock.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TO_SENDER = 1, RIGHT = 2, ECHO = 4 };

#define PREFIX	 2
#define SAID_MAX 4096
#define REJOIN	 (HA_FRAME_HEADER + HA_REJOIN_BYTES)

static uint8_t guest[PREFIX + REJOIN + HA_FRAME_HEADER], answer[PREFIX + REJOIN];
static uint8_t stranger[PREFIX + REJOIN];

const struct fuzz_seed fuzz_seeds[] = {
    {guest, sizeof(guest)},
    {answer, sizeof(answer)},
    {stranger, sizeof(stranger)},
    FUZZ_TEXT("\0\1GET / HTTP/1.1\r\n\r\n"),
    FUZZ_TEXT("\1\0"),
    FUZZ_TEXT("\5\0"),
    {NULL, 0},
};

static void put_rejoin(uint8_t *out, uint64_t secret, uint64_t id, struct ha_secrets next)
{
	struct ha_frame_header header = {.type = HA_FRAME_REJOIN, .length = HA_REJOIN_BYTES};
	struct ha_rejoin rejoin = {.secret = secret, .connection_id = id, .next = next};

	ha_frame_header_encode(&header, out);
	ha_rejoin_encode(&rejoin, out + HA_FRAME_HEADER);
}

/* The harness of the transport tests then aborts where an assertion of its own fails. */
__attribute__((constructor)) static void make_seeds(void)
{
	struct ha_frame_header ready = {.type = HA_FRAME_READY};

	setenv("CMOCKA_TEST_ABORT", "1", 1);
	guest[0] = RIGHT;
	answer[0] = TO_SENDER | RIGHT;
	guest[1] = answer[1] = stranger[1] = 255;
	put_rejoin(guest + PREFIX, 1, 2, (struct ha_secrets){0, 0});
	ha_frame_header_encode(&ready, guest + PREFIX + REJOIN);
	put_rejoin(answer + PREFIX, 1, 2, (struct ha_secrets){3, 4});
	put_rejoin(stranger + PREFIX, 1, 2, (struct ha_secrets){0, 0});
}

/* ---- saying ---------------------------------------------------------------------------------- */

static void hang_up(int fd)
{
	/* No TIME_WAIT: a campaign would run out of ports. */
	struct linger now = {.l_onoff = 1};

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	close(fd);
}

static void converse(struct pair *pair, int fd, const uint8_t *said, size_t size, size_t step)
{
	uint8_t heard[4096];
	int one = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	for (size_t at = 0; at < size; at += step) {
		size_t n = size - at < step ? size - at : step;

		if (send(fd, said + at, n, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)n)
			break;
		pair_settle(pair);
		while (recv(fd, heard, sizeof(heard), MSG_DONTWAIT) > 0)
			;
	}
	pair_settle(pair);
}

static bool begins_right(uint8_t how, size_t size)
{
	return (how & RIGHT) && !(how & TO_SENDER && how & ECHO) && size >= REJOIN;
}

static void to_server(struct pair *pair, uint8_t how, uint8_t *said, size_t size, size_t step)
{
	const struct ha_reconnect_at *at = &pair->recv->failover->reconnect_at;
	int fd = socket(at->addr.sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (begins_right(how, size))
		put_rejoin(said, at->secrets.ask, pair->recv->peer_id, (struct ha_secrets){0, 0});
	FUZZ_CHECK(connect(fd, &at->addr.sa, ha_sockaddr_len(&at->addr)) == 0);
	converse(pair, fd, said, size, step);
	hang_up(fd);
}

static size_t heard_so_far(int fd, uint8_t *heard)
{
	ssize_t n = recv(fd, heard, SAID_MAX, MSG_DONTWAIT);

	return n > 0 ? (size_t)n : 0;
}

/* A server of ours is where the sender dials. */
static void to_sender(struct pair *pair, uint8_t how, uint8_t *said, size_t size, size_t step)
{
	struct ha_reconnect_at *at = &pair->send->failover->peer_reconnect_at;
	union ha_sockaddr right = at->addr;
	socklen_t length = sizeof(at->addr.in);
	int fd = -1, listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	at->addr.in.sin_port = 0;
	FUZZ_CHECK(bind(listener, &at->addr.sa, length) == 0 && listen(listener, 4) == 0);
	FUZZ_CHECK(getsockname(listener, &at->addr.sa, &length) == 0);
	if (begins_right(how, size))
		put_rejoin(said, at->secrets.answer, pair->send->id, (struct ha_secrets){3, 4});
	FUZZ_CHECK(shutdown(pair->send->ctrl_sock->frames.fd, SHUT_RDWR) == 0);
	for (int i = 0; i < 200 && fd < 0; i++) {
		pair_idle(pair, 1);
		fd = peer_accept(listener);
	}
	FUZZ_CHECK(fd >= 0);
	pair_settle(pair); /* it says who it is */
	if (how & ECHO)
		size = heard_so_far(fd, said);
	converse(pair, fd, said, size, step);
	at->addr = right;
	hang_up(fd);
	hang_up(listener);
}

/* ---- a run ----------------------------------------------------------------------------------- */

static bool has_failed(const struct ha_comm *comm)
{
	return ha_comm_error(comm) != HA_OK;
}

static bool is_whole(const struct pair *pair)
{
	return !pair->send->failover->socket_broken && !pair->recv->failover->socket_broken;
}

static void open_settled(struct pair *pair)
{
	pair_init(pair);
	pair->config.enable_backup = true;
	pair_up(pair);
	for (int i = 0; i < 1000 && pair->send->failover->peer_ports.count == 0; i++)
		pair_idle(pair, 1);
	FUZZ_CHECK(ha_secrets_known(&pair->send->failover->peer_reconnect_at.secrets));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int descriptors;
	uint8_t said[SAID_MAX];
	struct pair pair;
	size_t step;
	int now;

	if (size < PREFIX)
		return 0;
	step = data[1] == 0 ? 1 : data[1];
	size -= PREFIX;
	if (size > sizeof(said))
		size = sizeof(said);
	memcpy(said, data + PREFIX, size);
	open_settled(&pair);
	if (data[0] & TO_SENDER)
		to_sender(&pair, data[0], said, size, step);
	else
		to_server(&pair, data[0], said, size, step);
	for (int i = 0; i < 500 && !is_whole(&pair); i++)
		pair_idle(&pair, 1);
	/* Who knows the secret takes the place of the peer, and what follows is between those two.
	 */
	if (!begins_right(data[0], size)) {
		FUZZ_CHECK(!has_failed(pair.send) && !has_failed(pair.recv));
		FUZZ_CHECK(is_whole(&pair));
		transfer(&pair, 1000, 1);
	}
	pair_close(&pair);
	now = open_descriptors_below(256);
	FUZZ_CHECK(descriptors == 0 || now == descriptors);
	descriptors = now;
	return 0;
}
