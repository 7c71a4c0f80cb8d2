/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes on a bootstrap socket, in any of its states: towards a listener, towards a connector,
 * and on an established connection's control lane. Nothing crashes, waits or leaks, and the next
 * honest peer is served.
 *
 * Input: byte 0 the role, byte 1 bit 0: put the right cookie where a hello has it, byte 2: how
 * many bytes at a time; the rest is said.
 */
#include "fuzz.h"

#include "base/clock.h"
#include "base/log.h"
#include "simverbs/simverbs.h"
#include "transport/comm.h"
#include "transport/instance.h"
#include "transport/transport.h"
#include "transport/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PREFIX	    3
#define COOKIE_AT   HA_FRAME_HEADER /* first field of a hello */
#define MAX_SAID    1024
#define CHECK_EVERY 1000

enum { TO_LISTENER, TO_CONNECTOR, TO_LANE, ROLES };

static uint8_t seeds[5][PREFIX + 2 * HA_FRAME_HEADER + HA_HELLO_BYTES];

const struct fuzz_seed fuzz_seeds[] = {
    {seeds[0], sizeof(seeds[0])}, /* hello and ready, to a listener */
    {seeds[1], PREFIX + HA_FRAME_HEADER + HA_HELLO_BYTES},
    {seeds[2], PREFIX + HA_FRAME_HEADER + HA_REJECT_BYTES},
    {seeds[3], PREFIX + HA_FRAME_HEADER + HA_BYE_BYTES},
    {seeds[4], PREFIX + HA_FRAME_HEADER + HA_ABORT_BYTES},
    {NULL, 0},
};

static struct ha_instance *inst;
static struct ha_listen *listener;
static uint8_t handle[HA_HANDLE_BYTES];
static uint64_t cookie;
static int fake_listener;
static uint8_t fake_handle[HA_HANDLE_BYTES];
static struct ha_hello honest;

/* ---- set-up -------------------------------------------------------------------------------- */

static size_t frame(uint8_t *out, uint16_t type, const void *payload, uint32_t length)
{
	struct ha_frame_header header = {.type = type, .length = length};

	ha_frame_header_encode(&header, out);
	if (length != 0)
		memcpy(out + HA_FRAME_HEADER, payload, length);
	return HA_FRAME_HEADER + length;
}

__attribute__((constructor)) static void make_seeds(void)
{
	struct ha_reject reject = {.reason = HA_REJECT_VERSION, .version = 2, .min_version = 2};
	struct ha_bye bye = {.done = 1};
	uint8_t payload[HA_HELLO_BYTES];
	size_t n;

	honest = (struct ha_hello){.version = HA_WIRE_VERSION,
				   .min_version = HA_WIRE_MIN_VERSION,
				   .max_recvs = 8,
				   .window = HA_WINDOW,
				   .host = "elsewhere",
				   .endpoint = {.generation = 1,
						.port_num = 1,
						.link_layer = IBV_LINK_LAYER_ETHERNET,
						.mtu = IBV_MTU_4096,
						.nqps = 1,
						.gid = {[10] = 0xff, [11] = 0xff, 10, 0, 0, 1},
						.max_message = 1u << 30,
						.ring_length = 65536,
						.device = "fake0",
						.qps = {{.qpn = 0x11, .psn = 1}}}};
	static const uint8_t roles[] = {TO_LISTENER, TO_CONNECTOR, TO_CONNECTOR, TO_LANE, TO_LANE};

	for (size_t i = 0; i < sizeof(roles); i++) {
		seeds[i][0] = roles[i];
		seeds[i][1] = 1;
		seeds[i][2] = 255;
	}
	ha_hello_encode(&honest, payload);
	n = frame(seeds[0] + PREFIX, HA_FRAME_HELLO, payload, sizeof(payload));
	frame(seeds[0] + PREFIX + n, HA_FRAME_READY, NULL, 0);
	frame(seeds[1] + PREFIX, HA_FRAME_HELLO, payload, sizeof(payload));
	ha_reject_encode(&reject, payload);
	frame(seeds[2] + PREFIX, HA_FRAME_REJECT, payload, HA_REJECT_BYTES);
	ha_bye_encode(&bye, payload);
	frame(seeds[3] + PREFIX, HA_FRAME_BYE, payload, HA_BYE_BYTES);
	memset(payload, 0, HA_ABORT_BYTES);
	frame(seeds[4] + PREFIX, HA_FRAME_ABORT, payload, HA_ABORT_BYTES);
}

static void no_log(enum ha_log_level level, unsigned long subsys, const char *file, int line,
		   const char *text)
{
	(void)level, (void)subsys, (void)file, (void)line, (void)text;
}

static char *no_environment(const char *name)
{
	(void)name;
	return NULL;
}

static void set_up(void)
{
	struct ha_instance_options options = {.no_threads = true};
	struct ha_handle h = {.version = HA_WIRE_VERSION, .cookie = 99};
	socklen_t len = sizeof(h.addr);
	struct ha_config config;

	ha_log_set_sink(no_log);
	FUZZ_CHECK(sv_stepped_open(NULL) == 0);
	ha_clock_set_source(sv_stepped_now);
	ha_config_load(&config, no_environment);
	strcpy(config.socket_ifname, "=lo");
	config.stats = false;
	options.config = &config;
	FUZZ_CHECK(ha_instance_open(&options, &inst) == HA_OK);
	FUZZ_CHECK(ha_listen(inst, 0, handle, &listener) == HA_OK);
	fake_listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	h.addr.in.sin_family = AF_INET;
	h.addr.in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	FUZZ_CHECK(bind(fake_listener, &h.addr.sa, sizeof(h.addr.in)) == 0);
	FUZZ_CHECK(listen(fake_listener, 16) == 0);
	FUZZ_CHECK(getsockname(fake_listener, &h.addr.sa, &len) == 0);
	ha_handle_encode(&h, fake_handle);
	FUZZ_CHECK(ha_handle_decode(handle, &h) == HA_WIRE_OK);
	cookie = h.cookie;
}

/* ---- saying -------------------------------------------------------------------------------- */

/* False when the other end has hung up. */
static bool say(int fd, const uint8_t *bytes, size_t size)
{
	ssize_t n = send(fd, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT);

	return n == (ssize_t)size;
}

static void hear_all(int fd)
{
	uint8_t buf[4096];

	while (recv(fd, buf, sizeof(buf), MSG_DONTWAIT) > 0)
		;
}

static void hang_up(int fd)
{
	/* No TIME_WAIT: a campaign would run out of ports. */
	struct linger now = {.l_onoff = 1};

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	close(fd);
}

static int dial(void)
{
	struct ha_handle h;
	int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	FUZZ_CHECK(ha_handle_decode(handle, &h) == HA_WIRE_OK);
	FUZZ_CHECK(connect(fd, &h.addr.sa, sizeof(h.addr.in)) == 0);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

static struct ha_comm *accept_round(void)
{
	struct ha_comm *comm;

	FUZZ_CHECK(ha_accept(listener, &comm) == HA_OK);
	return comm;
}

/* Says everything, `step` bytes at a time, giving the other end a turn after each. */
static void converse(int fd, const uint8_t *said, size_t size, size_t step, void (*turn)(void))
{
	for (size_t at = 0; at < size; at += step) {
		if (!say(fd, said + at, size - at < step ? size - at : step))
			return;
		turn();
		hear_all(fd);
	}
	turn();
}

/* ---- roles --------------------------------------------------------------------------------- */

static struct ha_comm *got;

static void listener_turn(void)
{
	struct ha_comm *comm = accept_round();

	if (comm) {
		ha_close_recv(got);
		got = comm;
	}
	ha_instance_progress(inst);
}

static void to_listener(const uint8_t *said, size_t size, size_t step)
{
	int fd = dial();

	converse(fd, said, size, step, listener_turn);
	hang_up(fd);
	listener_turn();
	listener_turn();
	ha_close_recv(got);
	got = NULL;
}

static uint8_t attempt_handle[HA_HANDLE_BYTES];
static struct ha_comm *connected;

static void connector_turn(void)
{
	struct ha_comm *comm;

	if (connected)
		return;
	/* A failed attempt starts anew: the clock stands still, so it never gives up. */
	if (ha_connect(inst, 0, HA_TRAFFIC_CLASS_UNDEF, attempt_handle, &comm) == HA_OK)
		connected = comm;
	ha_instance_progress(inst);
}

static void to_connector(const uint8_t *said, size_t size, size_t step)
{
	int fd = -1;

	memcpy(attempt_handle, fake_handle, sizeof(attempt_handle));
	for (int i = 0; i < 1000 && fd < 0; i++) {
		connector_turn();
		fd = accept4(fake_listener, NULL, NULL, SOCK_CLOEXEC);
	}
	FUZZ_CHECK(fd >= 0);
	converse(fd, said, size, step, connector_turn);
	hang_up(fd);
	connector_turn();
	ha_close_send(connected);
	connected = NULL;
	ha_connect_abandon_all(inst);
	while ((fd = accept4(fake_listener, NULL, NULL, SOCK_CLOEXEC)) >= 0)
		hang_up(fd);
}

static void lane_turn(void)
{
	ha_instance_progress(inst);
}

/* A connection that an honest hello and READY made, also as a proof that the listener serves. */
static struct ha_comm *honest_connection(int *fd)
{
	uint8_t bytes[2 * HA_FRAME_HEADER + HA_HELLO_BYTES], payload[HA_HELLO_BYTES];
	struct ha_comm *comm = NULL;
	size_t n;

	*fd = dial();
	honest.cookie = cookie;
	ha_hello_encode(&honest, payload);
	n = frame(bytes, HA_FRAME_HELLO, payload, sizeof(payload));
	n += frame(bytes + n, HA_FRAME_READY, NULL, 0);
	FUZZ_CHECK(say(*fd, bytes, n));
	for (int i = 0; i < 100 && !comm; i++)
		comm = accept_round();
	FUZZ_CHECK(comm != NULL);
	hear_all(*fd);
	return comm;
}

static void to_lane(const uint8_t *said, size_t size, size_t step)
{
	struct ha_comm *comm;
	int fd;

	comm = honest_connection(&fd);
	converse(fd, said, size, step, lane_turn);
	hang_up(fd);
	lane_turn();
	lane_turn();
	ha_close_recv(comm);
}

/* ---- one input ------------------------------------------------------------------------------ */

static int open_descriptors(void)
{
	int n = 0;

	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int runs, descriptors;
	uint8_t said[MAX_SAID];
	size_t step;

	if (!inst)
		set_up();
	if (size < PREFIX)
		return 0;
	step = data[2] == 0 ? 1 : (size_t)data[2] * 2;
	size -= PREFIX;
	if (size > sizeof(said))
		size = sizeof(said);
	memcpy(said, data + PREFIX, size);
	if ((data[1] & 1) && size >= COOKIE_AT + 8) {
		uint64_t right = data[0] % ROLES == TO_CONNECTOR ? 99 : cookie;

		for (size_t i = 0; i < 8; i++)
			said[COOKIE_AT + i] = (uint8_t)(right >> (8 * i));
	}
	switch (data[0] % ROLES) {
	case TO_LISTENER:
		to_listener(said, size, step);
		break;
	case TO_CONNECTOR:
		to_connector(said, size, step);
		break;
	default:
		to_lane(said, size, step);
		break;
	}
	if (runs++ % CHECK_EVERY == 0) {
		int fd, now;

		ha_close_recv(honest_connection(&fd));
		hang_up(fd);
		listener_turn();
		now = open_descriptors();
		FUZZ_CHECK(descriptors == 0 || now == descriptors);
		descriptors = now;
	}
	return 0;
}
