/* SPDX-License-Identifier: Apache-2.0 */
#include "peer.h"

#include "../unit/cmocka_all.h"

#include "transport/rings.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int peer_dial(const uint8_t handle[HA_HANDLE_BYTES])
{
	struct ha_handle decoded;
	int fd, one = 1;

	assert_int_equal(ha_handle_decode(handle, &decoded), HA_WIRE_OK);
	fd = socket(decoded.addr.sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(fd >= 0);
	assert_int_equal(connect(fd, &decoded.addr.sa, ha_sockaddr_len(&decoded.addr)), 0);
	assert_int_equal(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)), 0);
	return fd;
}

int peer_listen(uint8_t handle[HA_HANDLE_BYTES], uint64_t ask)
{
	struct ha_handle h = {.version = HA_WIRE_VERSION,
			      .secrets = {.ask = ask, .answer = ask + PEER_ANSWER}};
	socklen_t len = sizeof(h.addr);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	assert_true(fd >= 0);
	h.addr.in.sin_family = AF_INET;
	h.addr.in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(bind(fd, &h.addr.sa, sizeof(h.addr.in)), 0);
	assert_int_equal(listen(fd, 16), 0);
	assert_int_equal(getsockname(fd, &h.addr.sa, &len), 0);
	ha_handle_encode(&h, handle);
	return fd;
}

int peer_accept(int listener)
{
	return accept4(listener, NULL, NULL, SOCK_CLOEXEC);
}

void peer_say(int fd, const void *bytes, size_t length)
{
	/* The other end may hang up in the middle: that is often the point. */
	ssize_t n = send(fd, bytes, length, MSG_NOSIGNAL);

	assert_true(n == (ssize_t)length || errno == EPIPE || errno == ECONNRESET);
}

void peer_say_frame(int fd, uint16_t type, const void *payload, uint32_t length)
{
	struct ha_frame_header header = {.type = type, .length = length};
	uint8_t bytes[HA_FRAME_HEADER];

	ha_frame_header_encode(&header, bytes);
	peer_say(fd, bytes, sizeof(bytes));
	if (length != 0)
		peer_say(fd, payload, length);
}

struct ha_hello peer_hello(uint64_t secret)
{
	struct ha_hello hello = {
	    .secret = secret,
	    .version = HA_WIRE_VERSION,
	    .min_version = HA_WIRE_MIN_VERSION,
	    .features = 0, /* no failover */
	    .connection_id = 7,
	    .pid = 1,
	    .host = "elsewhere",
	    .max_recvs = HA_GROUP_MAX,
	    .window = HA_WINDOW,
	    .endpoint = {.generation = 1,
			 .port_num = 1,
			 .link_layer = IBV_LINK_LAYER_ETHERNET,
			 .mtu = IBV_MTU_4096,
			 .nqps = 1,
			 .gid = {[10] = 0xff, [11] = 0xff, 10, 0, 0, 1},
			 .max_message = 1u << 30,
			 .ring_addr = 0x1000,
			 .ring_rkey = 1,
			 .ring_length = 40960,
			 .device = "fake0",
			 .qps = {{.qpn = 0x11, .psn = 1}}},
	};

	return hello;
}

void peer_say_hello(int fd, const struct ha_hello *hello)
{
	uint8_t payload[HA_HELLO_BYTES];

	ha_hello_encode(hello, payload);
	peer_say_frame(fd, HA_FRAME_HELLO, payload, sizeof(payload));
}

size_t peer_hear(int fd, uint8_t *buf, size_t size, bool *closed)
{
	size_t got = 0;

	*closed = false;
	while (got < size) {
		ssize_t n = recv(fd, buf + got, size - got, MSG_DONTWAIT);

		if (n > 0) {
			got += (size_t)n;
			continue;
		}
		*closed = n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
		break;
	}
	return got;
}
