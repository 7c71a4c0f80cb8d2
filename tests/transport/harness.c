/* SPDX-License-Identifier: Apache-2.0 */
#include "harness.h"
#include "instance/instance.h"

#include "base/clock.h"
#include "failover/engine.h"
#include "memory/mr.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* How far the clock jumps when nothing moves, and how often before a test gives up. */
#define QUIET_NS     HA_NS_PER_MS
#define QUIET_ROUNDS 30000
#define CONNECT_NS   (20 * HA_NS_PER_S)

static char *no_environment(const char *name)
{
	(void)name;
	return NULL;
}

void pair_defaults(struct pair *pair, const char *log)
{
	memset(pair, 0, sizeof(*pair));
	pair->log = log;
	ha_config_load(&pair->config, no_environment);
	strcpy(pair->config.socket_ifname, "=lo");
	/* Nothing in the background, unless a test is about it. */
	pair->config.enable_backup = false;
	pair->config.lone_timeout_min = pair->config.lone_rto_min_ms = 0;
	pair->config.stats = false;
	pair->fabric.seed = 1;
}

/* A file of so many canaries at least. Mapping it costs a test only the pages that it touches. */
static int canaries(size_t length)
{
	static uint8_t bytes[MEM_SIZE];
	static size_t written;
	static int fd = -1;

	if (fd < 0) {
		fd = memfd_create("canaries", MFD_CLOEXEC);
		assert_true(fd >= 0);
		memset(bytes, CANARY, MEM_SIZE);
	}
	for (; written < length; written += MEM_SIZE)
		assert_int_equal(write(fd, bytes, MEM_SIZE), MEM_SIZE);
	return fd;
}

void pair_open(struct pair *pair)
{
	struct ha_instance_options options = {.config = &pair->config, .no_threads = true};

	if (sv_stepped_open_contexts() != 0)
		sv_stepped_destroy(); /* what a test that failed half way left */
	(void)canaries(MEM_SIZE);     /* before a test counts descriptors */
	assert_int_equal(sv_stepped_open(&pair->fabric), 0);
	ha_clock_set_source(sv_stepped_now);
	for (uint32_t host = 0; host < 2; host++) {
		sv_stepped_set_host(host);
		if (host == 1 && pair->peer_config)
			options.config = pair->peer_config;
		assert_int_equal(ha_instance_open(&options, &pair->inst[host]), HA_OK);
		assert_true(ha_instance_devices(pair->inst[host])->nports > 0);
	}
}

static void memory_open(struct memory *memory, size_t length, struct ha_comm *comm)
{
	memory->length = length != 0 ? length : MEM_SIZE;
	memory->bytes = mmap(NULL, memory->length, PROT_READ | PROT_WRITE, MAP_PRIVATE,
			     canaries(memory->length), 0);
	assert_ptr_not_equal(memory->bytes, MAP_FAILED);
	assert_int_equal(
	    ha_reg_mr(comm, memory->bytes, memory->length, HA_MEM_HOST, 0, -1, &memory->mr), HA_OK);
}

void pair_connect(struct pair *pair)
{
	/* Of real time: threads of the plugin may have a part in it. */
	uint64_t give_up_ns = ha_real_ns() + CONNECT_NS;

	if (!pair->listen)
		assert_int_equal(
		    ha_listen(pair->inst[1], pair->listen_dev, pair->handle, &pair->listen), HA_OK);
	while (!(pair->send && pair->recv) && ha_real_ns() < give_up_ns) {
		if (!pair->send)
			assert_int_equal(ha_connect(pair->inst[0], pair->connect_dev,
						    HA_TRAFFIC_CLASS_UNDEF, pair->handle,
						    &pair->send),
					 HA_OK);
		if (!pair->recv)
			assert_int_equal(ha_accept(pair->listen, &pair->recv), HA_OK);
	}
	assert_non_null(pair->send);
	assert_non_null(pair->recv);
	ha_close_listen(pair->listen);
	pair->listen = NULL;
	if (!pair->from.bytes)
		memory_open(&pair->from, pair->memory, pair->send);
	if (!pair->to.bytes)
		memory_open(&pair->to, pair->memory, pair->recv);
}

static void memory_close(struct memory *memory, struct ha_comm *comm)
{
	if (!memory->bytes)
		return;
	ha_dereg_mr(comm, memory->mr);
	munmap(memory->bytes, memory->length);
	memory->bytes = NULL;
}

void pair_disconnect(struct pair *pair)
{
	memory_close(&pair->from, pair->send);
	memory_close(&pair->to, pair->recv);
	ha_close_send(pair->send);
	ha_close_recv(pair->recv);
	ha_close_listen(pair->listen);
	pair->send = pair->recv = NULL;
	pair->listen = NULL;
}

void pair_close(struct pair *pair)
{
	pair_disconnect(pair);
	ha_instance_close(pair->inst[0]);
	ha_instance_close(pair->inst[1]);
	ha_clock_set_source(NULL);
	assert_int_equal(sv_stepped_open_contexts(), 0);
	assert_int_equal(sv_stepped_close(), 0);
}

void pair_up(struct pair *pair)
{
	pair_open(pair);
	pair_connect(pair);
}

/* What they say to each other on sockets takes no time: the next event may be far away. */
static bool progress(struct pair *pair, uint32_t host)
{
	sv_stepped_set_host(host); /* whose devices it would find */
	return ha_instance_progress(pair->inst[host]) > 0;
}

bool pair_settle(struct pair *pair)
{
	bool moved = false;

	for (int round = 0, worked = 1; worked && round < 20; round++) {
		worked = progress(pair, 0);
		worked |= progress(pair, 1);
		moved |= worked;
	}
	return moved;
}

bool pair_step(struct pair *pair)
{
	bool moved = sv_stepped_step();

	moved |= pair_settle(pair);
	if (!moved)
		sv_stepped_run(sv_stepped_now() + QUIET_NS); /* timers want time to pass */
	return moved;
}

void pair_advance(struct pair *pair)
{
	uint64_t limit_ns = sv_stepped_now() + HA_NS_PER_MS;
	struct sv_event_info next;

	if (sv_stepped_peek(&next) && next.time_ns <= limit_ns)
		sv_stepped_step();
	else
		sv_stepped_run(limit_ns);
	pair_settle(pair);
}

void pair_pass(struct pair *pair, unsigned ms)
{
	uint64_t until_ns = sv_stepped_now() + ms * HA_NS_PER_MS;

	while (sv_stepped_now() < until_ns)
		pair_advance(pair);
}

void pair_idle(struct pair *pair, unsigned ms)
{
	uint64_t until_ns = sv_stepped_now() + ms * HA_NS_PER_MS;

	while (sv_stepped_now() < until_ns)
		pair_step(pair);
}

ha_result_t pair_finish(struct pair *pair, struct ha_request *req, int *sizes)
{
	assert_non_null(req);
	for (int quiet = 0; quiet < QUIET_ROUNDS;) {
		bool done;
		ha_result_t result = ha_test(req, &done, sizes);

		if (result != HA_OK || done)
			return result;
		quiet = pair_step(pair) ? 0 : quiet + 1;
	}
	fail_msg("a request does not complete and nothing moves; log:\n%s", pair->log);
	return HA_ERR_INTERNAL;
}

bool pair_is_done(struct ha_request **req)
{
	bool done = false;

	if (*req)
		assert_int_equal(ha_test(*req, &done, NULL), HA_OK);
	if (done)
		*req = NULL;
	return *req == NULL;
}

struct ha_request *post_recv(struct pair *pair, int n, const size_t *offset, const size_t *size,
			     const int *tag)
{
	struct ha_request *req;
	struct ha_mr *mrs[HA_GROUP_MAX];
	void *data[HA_GROUP_MAX];

	for (int i = 0; i < n; i++) {
		data[i] = pair->to.bytes + offset[i];
		mrs[i] = pair->to.mr;
	}
	assert_int_equal(ha_irecv(pair->recv, n, data, size, tag, mrs, &req), HA_OK);
	return req;
}

struct ha_request *try_send(struct pair *pair, size_t offset, size_t size, int tag)
{
	struct ha_request *req;

	assert_int_equal(
	    ha_isend(pair->send, pair->from.bytes + offset, size, tag, pair->from.mr, &req), HA_OK);
	return req;
}

struct ha_request *post_send(struct pair *pair, size_t offset, size_t size, int tag)
{
	for (int quiet = 0; quiet < QUIET_ROUNDS;) {
		struct ha_request *req = try_send(pair, offset, size, tag);

		if (req)
			return req;
		quiet = pair_step(pair) ? 0 : quiet + 1;
	}
	fail_msg("a send does not match and nothing moves; log:\n%s", pair->log);
	return NULL;
}

struct in_flight pair_start(struct pair *pair)
{
	const size_t offset = 0, size = 300000;
	const int tag = 1;
	struct in_flight t;

	fill(pair->from.bytes, size, 5);
	t.recv = post_recv(pair, 1, &offset, &size, &tag);
	t.send = post_send(pair, 0, size, tag);
	return t;
}

void pair_assert_latched(struct pair *pair, struct ha_comm *comm, struct ha_request *req,
			 ha_result_t code)
{
	struct ha_request *out;
	size_t size = 100;
	void *data = comm->is_send ? pair->from.bytes : pair->to.bytes;
	struct ha_mr *mr = comm->is_send ? pair->from.mr : pair->to.mr;
	int tag = 1, got = 100;
	bool done;

	for (int i = 0; i < 3; i++) {
		assert_int_equal(ha_test(req, &done, NULL), code);
		assert_false(done);
		if (comm->is_send) {
			assert_int_equal(ha_isend(comm, data, size, tag, mr, &out), code);
			assert_null(out);
			continue;
		}
		assert_int_equal(ha_irecv(comm, 1, &data, &size, &tag, &mr, &out), code);
		assert_null(out);
		assert_int_equal(ha_iflush(comm, 1, &data, &got, &mr, &out), code);
		assert_null(out);
	}
}

/* The sender knows that a path is proved when there was a message on it. */
static bool is_in_reserve(const struct ha_comm *comm, unsigned p)
{
	const struct ha_slot *slot = &comm->failover->slots[p];
	const struct ha_slot *active = &comm->failover->slots[comm->active];

	return ha_slot_is_up(slot) && ha_path_ready(comm->paths[p]) && slot->port != active->port &&
	       slot->peer_port != active->peer_port;
}

static bool has_standby(const struct ha_comm *comm)
{
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (is_in_reserve(comm, p))
			return true;
	return false;
}

bool pair_has_standby(const struct pair *pair)
{
	return has_standby(pair->send) && has_standby(pair->recv);
}

/* What failed again and again is built anew after 5 s at most, and then it has to come up. */
#define STANDBY_MS 8000

void pair_wait_standby(struct pair *pair)
{
	for (int ms = 0; ms < STANDBY_MS && !pair_has_standby(pair); ms += 5)
		pair_idle(pair, 5);
	assert_true(pair_has_standby(pair));
}

/* Every seed is another place to begin in one sequence, which is made once: sanitizers look at each
 * byte that is computed, and at blocks that are copied or compared once. */
#define PERIOD (2u << 20)

static const uint8_t *sequence(void)
{
	static uint8_t bytes[PERIOD];
	static bool is_made;

	for (size_t i = 0; i < PERIOD && !is_made; i++)
		bytes[i] = (uint8_t)((i * 2654435761u) >> 13);
	is_made = true;
	return bytes;
}

/* Where what fills `size` bytes goes on, from `*at` to the end of the sequence at most; `*at` is
 * then behind it. */
static const uint8_t *next_of_sequence(size_t *at, size_t size, size_t *length)
{
	const uint8_t *found = sequence() + *at;

	*length = size < PERIOD - *at ? size : PERIOD - *at;
	*at = (*at + *length) % PERIOD;
	return found;
}

static size_t begin_of(uint32_t seed)
{
	return seed * 1779815u % PERIOD;
}

void fill(uint8_t *bytes, size_t size, uint32_t seed)
{
	size_t at = begin_of(seed), length;

	for (size_t i = 0; i < size; i += length) {
		const uint8_t *next = next_of_sequence(&at, size - i, &length);

		memcpy(bytes + i, next, length);
	}
}

bool filled(const uint8_t *bytes, size_t size, uint32_t seed)
{
	size_t at = begin_of(seed), length;

	for (size_t i = 0; i < size; i += length) {
		const uint8_t *next = next_of_sequence(&at, size - i, &length);

		if (memcmp(bytes + i, next, length) != 0)
			return false;
	}
	return true;
}

static bool is_untouched(const uint8_t *bytes, size_t size)
{
	return bytes[0] == CANARY && memcmp(bytes, bytes + 1, size - 1) == 0;
}

void transfer(struct pair *pair, size_t size, uint32_t seed)
{
	const size_t offset = 4096 + seed % 64, capacity = size + 100;
	const int tag = (int)seed;
	struct ha_request *recv, *send;
	int got = -1, sent = -1;

	memset(pair->to.bytes, CANARY, offset + capacity + 64);
	fill(pair->from.bytes + 128, size, seed);
	recv = post_recv(pair, 1, &offset, &capacity, &tag);
	assert_non_null(recv);
	send = post_send(pair, 128, size, tag);
	assert_int_equal(pair_finish(pair, recv, &got), HA_OK);
	assert_int_equal(pair_finish(pair, send, &sent), HA_OK);
	assert_int_equal(got, (int)size);
	assert_int_equal(sent, (int)size);
	assert_true(filled(pair->to.bytes + offset, size, seed));
	assert_true(is_untouched(pair->to.bytes + offset - 64, 64));
	assert_true(is_untouched(pair->to.bytes + offset + size, 64));
}
