/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes on a bootstrap socket, in any of its states: towards a listener, towards a connector,
 * and on an established connection's control channel, where the messages of the failover protocol
 * travel. Nothing crashes, waits or leaks, and the next honest peer is served.
 *
 * Input: byte 0 the role, byte 1 bit 0: put the right secret where a hello has it, bit 1: put the
 * sums of control messages right; byte 2: how many bytes at a time; the rest is said.
 */
#include "../descriptors.h"
#include "fuzz.h"

#include "base/bytes.h"
#include "base/clock.h"
#include "base/log.h"
#include "failover/message.h"
#include "failover/port_offer.h"
#include "instance/instance.h"
#include "simverbs/simverbs.h"
#include "transport/comm.h"
#include "transport/connect.h"
#include "transport/shared.h"
#include "transport/transport.h"
#include "transport/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PREFIX	    3
#define SECRET_AT   HA_FRAME_HEADER /* first field of a hello */
#define MAX_SAID    4096
#define CHECK_EVERY 1000
/* From one input to the next. What a plugin keeps for a while after a close would else be kept for
 * ever. */
#define PAUSE_NS (50 * HA_NS_PER_MS)

enum { TO_LISTENER, TO_CONNECTOR, TO_LANE, ROLES };

/* Lengths of frames. */
#define FRAME(payload) (HA_FRAME_HEADER + (payload))
#define HELLO	       FRAME(HA_HELLO_BYTES)
#define PORTS	       FRAME(8 + 2 * HA_OFFER_BYTES)
#define MESSAGE	       FRAME(HA_MESSAGE_BYTES)
#define MESSAGE_END    FRAME(HA_MESSAGE_MAX_BYTES) /* with an end of a path */

static uint8_t seeds[8][PREFIX + MAX_SAID];

const struct fuzz_seed fuzz_seeds[] = {
    {seeds[0], PREFIX + HELLO + FRAME(0)},
    {seeds[1], PREFIX + HELLO},
    {seeds[2], PREFIX + FRAME(HA_REJECT_BYTES)},
    {seeds[3], PREFIX + HELLO + PORTS + MESSAGE_END + 2 * MESSAGE},
    {seeds[4], PREFIX + FRAME(HA_BYE_BYTES)},
    {seeds[5], PREFIX + FRAME(HA_ABORT_BYTES)},
    {seeds[6], PREFIX + PORTS + MESSAGE_END + 3 * MESSAGE},
    {seeds[7], PREFIX + 5 * MESSAGE + FRAME(HA_REJOIN_BYTES)},
    {NULL, 0},
};

static struct ha_instance *inst;
static struct ha_listen *listener;
static uint8_t handle[HA_HANDLE_BYTES];
static uint64_t ask;
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

/* Seeds are made one after the other. */
static size_t nseeds;

static uint8_t *seed_at(size_t n)
{
	return &seeds[nseeds][PREFIX + n];
}

static size_t begin_seed(uint8_t role, bool sums)
{
	seeds[nseeds][0] = role;
	seeds[nseeds][1] = sums ? 3 : 1;
	seeds[nseeds][2] = 255;
	return 0;
}

static void end_seed(size_t n)
{
	FUZZ_CHECK(fuzz_seeds[nseeds].size == PREFIX + n);
	nseeds++;
}

static size_t ports_frame(uint8_t *out)
{
	struct ha_port_offers ports = {.count = 2};
	uint8_t payload[HA_PORT_OFFERS_MAX_BYTES];

	for (unsigned i = 0; i < ports.count; i++)
		ports.offers[i] =
		    (struct ha_offer){.link_layer = IBV_LINK_LAYER_ETHERNET,
				      .port_num = 1,
				      .up = 1,
				      .guid = i,
				      .gid = {[10] = 0xff, [11] = 0xff, 10, (uint8_t)i, 0, 1},
				      .device = "fake0"};
	return frame(out, HA_FRAME_PORTS, payload,
		     (uint32_t)ha_port_offers_encode(&ports, payload));
}

static size_t control_frame(uint8_t *out, unsigned kind, uint32_t epoch, uint8_t path,
			    uint32_t generation)
{
	struct ha_message m = {.kind = (uint8_t)kind,
			       .epoch = epoch,
			       .path = path,
			       .generation = generation,
			       .fenced_gen = {epoch - 1},
			       .window = {.base = 1},
			       .ports_up = 3};
	uint8_t payload[HA_MESSAGE_MAX_BYTES];

	m.has_endpoint = kind == HA_MSG_REBUILD || kind == HA_MSG_REBUILT;
	if (m.has_endpoint) {
		m.endpoint = honest.endpoint;
		m.endpoint.path = path;
		m.endpoint.generation = (uint16_t)generation;
	}
	return frame(out, HA_FRAME_CONTROL, payload, (uint32_t)ha_message_encode(&m, payload));
}

__attribute__((constructor)) static void make_seeds(void)
{
	struct ha_reject reject = {.reason = HA_REJECT_VERSION, .version = 2, .min_version = 2};
	struct ha_bye bye = {.done = 1};
	uint8_t payload[HA_HELLO_BYTES], small[HA_REJECT_BYTES];
	size_t n;

	honest = (struct ha_hello){.version = HA_WIRE_VERSION,
				   .min_version = HA_WIRE_MIN_VERSION,
				   .max_recvs = 8,
				   .window = HA_WINDOW,
				   .features = HA_FEATURE_FAILOVER | HA_FEATURE_E2E,
				   .host = "elsewhere",
				   .endpoint = {.generation = 1,
						.port_num = 1,
						.link_layer = IBV_LINK_LAYER_ETHERNET,
						.mtu = IBV_MTU_4096,
						.nqps = 1,
						.gid = {[10] = 0xff, [11] = 0xff, 10, 0, 0, 1},
						.max_message = 1u << 30,
						.ring_addr = 4096,
						.ring_length = 65536,
						.device = "fake0",
						.qps = {{.qpn = 0x11, .psn = 1}}}};
	ha_hello_encode(&honest, payload);
	ha_reject_encode(&reject, small);
	/* To a listener: a handshake, and what may follow it. */
	n = begin_seed(TO_LISTENER, false);
	n += frame(seed_at(n), HA_FRAME_HELLO, payload, sizeof(payload));
	n += frame(seed_at(n), HA_FRAME_READY, NULL, 0);
	end_seed(n);
	/* To a connector: an answer, a refusal, an answer and a failover. */
	n = begin_seed(TO_CONNECTOR, false);
	n += frame(seed_at(n), HA_FRAME_HELLO, payload, sizeof(payload));
	end_seed(n);
	n = begin_seed(TO_CONNECTOR, false);
	n += frame(seed_at(n), HA_FRAME_REJECT, small, HA_REJECT_BYTES);
	end_seed(n);
	n = begin_seed(TO_CONNECTOR, true);
	n += frame(seed_at(n), HA_FRAME_HELLO, payload, sizeof(payload));
	n += ports_frame(seed_at(n));
	n += control_frame(seed_at(n), HA_MSG_REBUILD, 1, 1, 1);
	n += control_frame(seed_at(n), HA_MSG_FENCE, 2, 0, 1);
	n += control_frame(seed_at(n), HA_MSG_RESUME, 2, 1, 1);
	end_seed(n);
	/* On the control socket of a receiver. */
	ha_bye_encode(&bye, small);
	n = begin_seed(TO_LANE, false);
	n += frame(seed_at(n), HA_FRAME_BYE, small, HA_BYE_BYTES);
	end_seed(n);
	memset(small, 0, sizeof(small));
	n = begin_seed(TO_LANE, false);
	n += frame(seed_at(n), HA_FRAME_ABORT, small, HA_ABORT_BYTES);
	end_seed(n);
	n = begin_seed(TO_LANE, true);
	n += ports_frame(seed_at(n));
	n += control_frame(seed_at(n), HA_MSG_REBUILT, 1, 1, 1);
	n += control_frame(seed_at(n), HA_MSG_SUSPECT, 1, 0, 1);
	n += control_frame(seed_at(n), HA_MSG_FENCED, 2, 0, 1);
	n += control_frame(seed_at(n), HA_MSG_RESUMED, 2, 1, 1);
	end_seed(n);
	n = begin_seed(TO_LANE, true);
	n += control_frame(seed_at(n), HA_MSG_PING, 1, 0, 1);
	n += control_frame(seed_at(n), HA_MSG_STATE, 1, 0, 1);
	n += control_frame(seed_at(n), HA_MSG_REFUSED, 1, 1, 1);
	n += control_frame(seed_at(n), HA_MSG_BYE, 1, 0, 1);
	n += control_frame(seed_at(n), HA_MSG_ABORT, 1, 0, 1);
	ha_rejoin_encode(&(struct ha_rejoin){.secret = 1, .connection_id = 2}, small);
	n += frame(seed_at(n), HA_FRAME_REJOIN, small, HA_REJOIN_BYTES);
	end_seed(n);
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
	struct ha_handle h = {.version = HA_WIRE_VERSION, .secrets = {98, 99}};
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
	ask = h.secrets.ask;
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

/* Walks the frames as far as they are whole; one mutant in four billion would have a right sum. */
static void put_sums_right(uint8_t *said, size_t size)
{
	struct ha_frame_header header;

	for (size_t at = 0; ha_frame_header_decode(said + at, size - at, &header) == HA_WIRE_OK;
	     at += HA_FRAME_HEADER + header.length) {
		uint8_t *message = said + at + HA_FRAME_HEADER;
		struct ha_reader length = {message + HA_MESSAGE_BYTES - 4};
		struct ha_writer sum = {message + 4};
		uint32_t n;

		if (size - at - HA_FRAME_HEADER < header.length)
			return;
		if (header.type != HA_FRAME_CONTROL || header.length < HA_MESSAGE_BYTES)
			continue;
		n = ha_get32(&length);
		if (n >= 8 && n <= header.length)
			ha_put_uint(&sum, ha_checksum(message + 8, n - 8), 4);
	}
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

	if (connected) {
		ha_instance_progress(inst);
		return;
	}
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
	honest.secret = ask;
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
	if ((data[1] & 1) && size >= SECRET_AT + 8) {
		uint64_t right = data[0] % ROLES == TO_CONNECTOR ? 99 : ask;

		for (size_t i = 0; i < 8; i++)
			said[SECRET_AT + i] = (uint8_t)(right >> (8 * i));
	}
	if (data[1] & 2)
		put_sums_right(said, size);
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
	sv_stepped_run(sv_stepped_now() + PAUSE_NS);
	if (runs++ % CHECK_EVERY == 0) {
		int fd, now;

		ha_close_recv(honest_connection(&fd));
		hang_up(fd);
		listener_turn();
		now = open_descriptors_below(256);
		FUZZ_CHECK(descriptors == 0 || now == descriptors);
		descriptors = now;
	}
	return 0;
}
