/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices that take long to register memory, to end a registration, or to make a queue pair, on a
 * live fabric with real threads: nobody waits for them who drives a connection, messages are held
 * back meanwhile and arrive, and deregistering leaves to the background what takes long.
 */
#include "../unit/cmocka_all.h"
#include "pair.h"

#include "base/clock.h"
#include "base/log.h"
#include "instance/instance.h"
#include "memory/mr.h"
#include "progress/command.h"
#include "transport/comm.h"
#include "transport/recv.h"
#include "transport/transport.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define REG_MS	  3000 /* that the standby's device takes to register memory */
#define PROMPT_MS 1500 /* what does not wait for it takes less, on a busy machine, too */
#define DEREG_S	  30   /* that a device takes to end a registration */
#define MESSAGES  3
#define SIZE	  65536u
#define MEM_SIZE  (MESSAGES * SIZE)

/* ---- a host ---------------------------------------------------------------------------------- */

struct host {
	struct ha_config config;
	struct ha_instance *inst;
	struct ha_comm *comm, *other; /* by way of rail 0, of rail 1 */
	struct ha_mr *mr[MESSAGES];   /* of its own for each message */
	struct ha_mr *other_mr;
	uint8_t *memory, *other_memory;
	int peer_fd, test_fd;
	bool receives;
	uint64_t longest_ns; /* of the calls that may not wait */
	uint64_t last_ns;    /* when something moved on the other connection */
	uint64_t longest_gap_ns;
};

static void nap(void)
{
	usleep(200);
}

static uint64_t ms_since(uint64_t ns)
{
	return (ha_now_ns() - ns) / HA_NS_PER_MS;
}

static void open_host(struct host *h, int peer_fd, int test_fd)
{
	struct ha_instance_options options = {.config = &h->config};

	memset(h, 0, sizeof(*h));
	h->peer_fd = peer_fd;
	h->test_fd = test_fd;
	ha_config_load(&h->config, NULL);
	strcpy(h->config.socket_ifname, "=lo");
	h->config.stats = false;
	NEED(ha_instance_open(&options, &h->inst) == HA_OK);
}

static struct ha_comm *dial(struct host *h, int dev)
{
	uint8_t handle[HA_HANDLE_MAX];
	struct ha_comm *comm = NULL;

	NEED(recv(h->peer_fd, handle, sizeof(handle), MSG_WAITALL) == sizeof(handle));
	while (!comm) {
		NEED(ha_connect(h->inst, dev, HA_TRAFFIC_CLASS_UNDEF, handle, &comm) == HA_OK);
		nap();
	}
	return comm;
}

static struct ha_comm *await_dial(struct host *h, int dev)
{
	uint8_t handle[HA_HANDLE_MAX] = {0};
	struct ha_comm *comm = NULL;
	struct ha_listen *listen;

	NEED(ha_listen(h->inst, dev, handle, &listen) == HA_OK);
	NEED(write(h->peer_fd, handle, sizeof(handle)) == sizeof(handle));
	while (!comm) {
		NEED(ha_accept(listen, &comm) == HA_OK);
		nap();
	}
	ha_close_listen(listen);
	return comm;
}

static uint8_t *pages(size_t size)
{
	uint8_t *memory =
	    mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	NEED(memory != MAP_FAILED);
	return memory;
}

static void get_messages_memory(struct host *h)
{
	h->memory = pages(MEM_SIZE);
	for (size_t i = 0; i < MESSAGES; i++)
		NEED(ha_reg_mr(h->comm, h->memory + i * SIZE, SIZE, HA_MEM_HOST, 0, -1,
			       &h->mr[i]) == HA_OK);
}

static void get_other_memory(struct host *h)
{
	h->other_memory = pages(SIZE);
	NEED(ha_reg_mr(h->other, h->other_memory, SIZE, HA_MEM_HOST, 0, -1, &h->other_mr) == HA_OK);
}

static void get_memory(struct host *h)
{
	get_messages_memory(h);
	get_other_memory(h);
}

static void await_standby(struct ha_comm *comm)
{
	bool ready = false;

	for (int i = 0; i < 50000 && !ready; i++) {
		ha_token_acquire(comm);
		ready = comm->npaths > 1 && ha_path_ready(comm->paths[1]);
		ha_token_release(comm);
		nap();
	}
	NEED(ready);
}

static void await_move(struct ha_comm *comm)
{
	bool moved = false;

	for (int i = 0; i < 50000 && !moved; i++) {
		ha_token_acquire(comm);
		moved = comm->active == 1 && ha_comm_may_post(comm);
		ha_token_release(comm);
		nap();
	}
	NEED(moved);
}

static void tell(const struct host *h, char byte)
{
	NEED(write(h->test_fd, &byte, 1) == 1);
	NEED(read(h->test_fd, &byte, 1) == 1);
}

/* ---- calls, and how long they take ---------------------------------------------------------- */

static void took(struct host *h, uint64_t began_ns)
{
	uint64_t ns = ha_now_ns() - began_ns;

	if (ns > h->longest_ns)
		h->longest_ns = ns;
}

static struct ha_request *start(struct host *h, struct ha_comm *comm, uint8_t *data,
				struct ha_mr *mr)
{
	const uint64_t began_ns = ha_now_ns();
	struct ha_request *req = NULL;
	size_t size = SIZE;
	void *to = data;
	int tag = 1;

	if (h->receives)
		NEED(ha_irecv(comm, 1, &to, &size, &tag, &mr, &req) == HA_OK);
	else
		NEED(ha_isend(comm, data, size, tag, mr, &req) == HA_OK);
	took(h, began_ns);
	return req;
}

static bool is_done(struct host *h, struct ha_request *req)
{
	const uint64_t began_ns = ha_now_ns();
	int done = 0;

	NEED(ha_test_request(req, &done, NULL) == HA_OK);
	took(h, began_ns);
	return done;
}

/* A step of traffic without end over the other connection; *req is what is under way. */
static void go_on(struct host *h, struct ha_request **req)
{
	uint64_t now_ns;

	if (!*req)
		*req = start(h, h->other, h->other_memory, h->other_mr);
	else if (is_done(h, *req)) {
		*req = NULL;
		now_ns = ha_now_ns();
		if (h->last_ns != 0 && now_ns - h->last_ns > h->longest_gap_ns)
			h->longest_gap_ns = now_ns - h->last_ns;
		h->last_ns = now_ns;
	}
}

/* All messages, with traffic on the other connection meanwhile. */
static void transfer_all(struct host *h)
{
	struct ha_request *req[MESSAGES] = {0}, *other = NULL;
	unsigned started = 0, done = 0;

	while (done < MESSAGES) {
		if (started < MESSAGES) {
			req[started] =
			    start(h, h->comm, h->memory + started * SIZE, h->mr[started]);
			started += req[started] != NULL;
		}
		for (unsigned i = 0; i < started; i++)
			if (req[i] && is_done(h, req[i])) {
				req[i] = NULL;
				done++;
			}
		go_on(h, &other);
		nap();
	}
}

/* ---- registering takes long ----------------------------------------------------------------- */

static void open_both(struct host *h)
{
	if (h->receives) {
		h->comm = await_dial(h, 0);
		h->other = await_dial(h, 1);
	} else {
		h->comm = dial(h, 0);
		h->other = dial(h, 1);
	}
	get_other_memory(h);
	await_standby(h->comm);
	meet(h->peer_fd);
}

static void close_both(struct host *h)
{
	uint64_t began_ns;

	meet(h->peer_fd);
	if (h->receives) {
		ha_close_recv(h->comm);
		ha_close_recv(h->other);
	} else {
		ha_close_send(h->comm);
		ha_close_send(h->other);
	}
	began_ns = ha_now_ns();
	for (size_t i = 0; i < MESSAGES; i++)
		ha_dereg_mr(NULL, h->mr[i]);
	ha_dereg_mr(NULL, h->other_mr);
	NEED(ms_since(began_ns) < PROMPT_MS);
	NEED(munmap(h->memory, MEM_SIZE) == 0);
	NEED(munmap(h->other_memory, SIZE) == 0);
	ha_instance_close(h->inst);
}

/* The memory of the messages is new when the connection has moved: nothing was registered ahead. */
static int mover(int peer_fd, int test_fd, bool receives)
{
	uint64_t began_ns;
	struct host h;

	ha_command_sick_ns = UINT64_MAX / 2; /* so long is no failure here */
	open_host(&h, peer_fd, test_fd);
	h.receives = receives;
	open_both(&h);
	tell(&h, 'r'); /* the links of rail 0 go down */
	await_move(h.comm);
	tell(&h, 'm'); /* registering takes long */
	began_ns = ha_now_ns();
	get_messages_memory(&h);
	for (size_t i = 0; i < MEM_SIZE && !receives; i++)
		h.memory[i] = pattern(7, i);
	transfer_all(&h);
	NEED(ms_since(began_ns) >= REG_MS - 100);
	fprintf(stderr, "%s: longest call %llu ms, longest gap elsewhere %llu ms, all in %llu ms\n",
		receives ? "receiver" : "sender", (unsigned long long)h.longest_ns / HA_NS_PER_MS,
		(unsigned long long)h.longest_gap_ns / HA_NS_PER_MS,
		(unsigned long long)ms_since(began_ns));
	for (size_t i = 0; i < MEM_SIZE && receives; i++)
		NEED(h.memory[i] == pattern(7, i));
	NEED(h.comm->active == 1);
	NEED(h.longest_ns < PROMPT_MS * HA_NS_PER_MS);
	NEED(h.longest_gap_ns < PROMPT_MS * HA_NS_PER_MS);
	close_both(&h);
	return 0;
}

static int receiver(int peer_fd, int test_fd, void *arg)
{
	(void)arg;
	return mover(peer_fd, test_fd, true);
}

static int sender(int peer_fd, int test_fd, void *arg)
{
	(void)arg;
	return mover(peer_fd, test_fd, false);
}

static void move_while_registering_takes_long(int slow_host)
{
	struct pair pair;
	json_t *status;

	fabric_up("--hosts 2 --rails 2");
	pair_start(&pair, receiver, sender, NULL);
	assert_int_equal(pair_wait_byte(&pair, 0), 'r');
	assert_int_equal(pair_wait_byte(&pair, 1), 'r');
	/* At both ends, so that no path can be built that registers its ring meanwhile. */
	assert_int_equal(fabric_tool("link %s 0 0 down", fabric_name()), 0);
	assert_int_equal(fabric_tool("link %s 1 0 down", fabric_name()), 0);
	pair_send_byte(&pair, 0, 'g');
	pair_send_byte(&pair, 1, 'g');
	assert_int_equal(pair_wait_byte(&pair, 0), 'm');
	assert_int_equal(pair_wait_byte(&pair, 1), 'm');
	assert_int_equal(fabric_tool("fault %s 'wait=%dms verb=reg_mr host=%d rail=1'",
				     fabric_name(), REG_MS, slow_host),
			 0);
	pair_send_byte(&pair, 0, 'g');
	pair_send_byte(&pair, 1, 'g');
	assert_int_equal(pair_join(&pair, 0, 30), 0);
	assert_int_equal(pair_join(&pair, 1, 30), 0);
	status = fabric_status();
	assert_true(status_fired(status, 0) >= 1);
	json_decref(status);
	fabric_down();
}

static void sends_wait_for_their_memory_and_nobody_for_the_device(void **state)
{
	(void)state;
	move_while_registering_takes_long(1);
}

static void receives_wait_for_their_memory_and_nobody_for_the_device(void **state)
{
	(void)state;
	move_while_registering_takes_long(0);
}

/* ---- making the queue pair of a flush takes long -------------------------------------------- */

/* The end of a process whose device still keeps commands to itself. */
static int ended(void)
{
#ifdef __SANITIZE_ADDRESS__
	_exit(0); /* what is still open is the device's, and no leak */
#endif
	return 0;
}

/* The memory is said to be a GPU's: the background looks at that, too, under the token. */
static void say_is_gpus(struct ha_comm *comm, struct ha_mr *mr)
{
	ha_token_acquire(comm);
	mr->host = false;
	ha_token_release(comm);
}

static int flusher(int peer_fd, int test_fd, void *arg)
{
	struct ha_request *flush;
	const int got = SIZE;
	uint64_t began_ns;
	struct host h;
	void *data;

	(void)arg;
	ha_command_sick_ns = UINT64_MAX / 2;
	open_host(&h, peer_fd, test_fd);
	h.receives = true;
	h.comm = await_dial(&h, 0);
	h.other = await_dial(&h, 1);
	get_memory(&h);
	await_standby(h.comm);
	data = h.memory;
	tell(&h, 'r'); /* making a queue pair takes long */
	began_ns = ha_now_ns();
	say_is_gpus(h.comm, h.mr[0]); /* not before that: the background begins to make it, too */
	NEED(ha_iflush(h.comm, 1, &data, &got, &h.mr[0], &flush) == HA_OK);
	took(&h, began_ns);
	NEED(flush != NULL);
	while (!is_done(&h, flush))
		nap();
	NEED(ms_since(began_ns) >= REG_MS - 100);
	NEED(h.longest_ns < PROMPT_MS * HA_NS_PER_MS);
	NEED(ha_comm_error(h.comm) == HA_OK);
	/* Closing while the next one is being made leaves that to the background. */
	say_is_gpus(h.other, h.other_mr);
	data = h.other_memory;
	NEED(ha_iflush(h.other, 1, &data, &got, &h.other_mr, &flush) == HA_OK);
	NEED(flush->posted == HA_FLUSH_NEW);
	began_ns = ha_now_ns();
	ha_close_recv(h.other);
	NEED(ms_since(began_ns) < PROMPT_MS);
	meet(peer_fd);
	ha_close_recv(h.comm);
	for (size_t i = 0; i < MESSAGES; i++)
		ha_dereg_mr(NULL, h.mr[i]);
	ha_dereg_mr(NULL, h.other_mr);
	ha_instance_close(h.inst);
	return ended();
}

static int onlooker(int peer_fd, int test_fd, void *arg)
{
	struct host h;

	(void)arg;
	open_host(&h, peer_fd, test_fd);
	h.comm = dial(&h, 0);
	h.other = dial(&h, 1);
	await_standby(h.comm);
	tell(&h, 'r');
	meet(peer_fd);
	ha_close_send(h.comm);
	ha_close_send(h.other);
	ha_instance_close(h.inst);
	return 0;
}

static void a_flush_waits_for_its_queue_pair_and_nobody_for_the_device(void **state)
{
	struct pair pair;
	json_t *status;

	(void)state;
	fabric_up("--hosts 2 --rails 2");
	pair_start(&pair, flusher, onlooker, NULL);
	assert_int_equal(pair_wait_byte(&pair, 0), 'r');
	assert_int_equal(pair_wait_byte(&pair, 1), 'r');
	assert_int_equal(
	    fabric_tool("fault %s 'wait=%dms verb=create_qp host=0'", fabric_name(), REG_MS), 0);
	pair_send_byte(&pair, 0, 'g');
	pair_send_byte(&pair, 1, 'g');
	assert_int_equal(pair_join(&pair, 0, 60), 0);
	assert_int_equal(pair_join(&pair, 1, 60), 0);
	status = fabric_status();
	assert_true(status_fired(status, 0) >= 2);
	json_decref(status);
	fabric_down();
}

/* ---- deregistering takes long --------------------------------------------------------------- */

/* On the first device and on another one: who gives memory back waits for neither. */
static int leaver(int peer_fd, int test_fd, void *arg)
{
	struct ha_device_set *set;
	struct ibv_mr *unused;
	uint64_t began_ns;
	struct host h;

	(void)arg;
	open_host(&h, peer_fd, test_fd);
	h.receives = true;
	h.comm = await_dial(&h, 0);
	h.other = await_dial(&h, 1);
	get_memory(&h);
	set = ha_instance_devices(h.inst);
	for (size_t i = 0; i < MESSAGES; i++)
		NEED(ha_mr_on(h.mr[i], &set->nics[1], &unused) == HA_OK);
	tell(&h, 'r'); /* ending a registration takes long */
	for (size_t i = 0; i < MESSAGES; i++) {
		began_ns = ha_now_ns();
		ha_dereg_mr(h.comm, h.mr[i]);
		NEED(ms_since(began_ns) < PROMPT_MS);
	}
	NEED(ha_comm_error(h.comm) == HA_OK);
	tell(&h, 'd');
#ifdef __SANITIZE_ADDRESS__
	_exit(0); /* what is still open is simverbs's, and no leak */
#endif
	return 0;
}

static int caller(int peer_fd, int test_fd, void *arg)
{
	struct host h;

	(void)arg;
	open_host(&h, peer_fd, test_fd);
	h.comm = dial(&h, 0);
	h.other = dial(&h, 1);
	tell(&h, 'r');
	ha_close_send(h.comm);
	ha_close_send(h.other);
	ha_instance_close(h.inst);
	return ended();
}

static void deregistering_waits_for_no_device(void **state)
{
	struct pair pair;

	(void)state;
	fabric_up("--hosts 2 --rails 2");
	pair_start(&pair, leaver, caller, NULL);
	assert_int_equal(pair_wait_byte(&pair, 0), 'r');
	assert_int_equal(pair_wait_byte(&pair, 1), 'r');
	for (int rail = 0; rail < 2; rail++)
		assert_int_equal(fabric_tool("fault %s 'wait=%ds verb=dereg_mr host=0 rail=%d'",
					     fabric_name(), DEREG_S, rail),
				 0);
	pair_send_byte(&pair, 0, 'g');
	assert_int_equal(pair_wait_byte(&pair, 0), 'd');
	/* Commands are given by a thread of their own. */
	assert_true(wait_until_fired(0, 10) >= 1);
	assert_true(wait_until_fired(1, 10) >= 1);
	pair_send_byte(&pair, 0, 'g');
	pair_send_byte(&pair, 1, 'g');
	assert_int_equal(pair_join(&pair, 0, 30), 0);
	assert_int_equal(pair_join(&pair, 1, 30), 0);
	fabric_down();
}

static int tidy(void **state)
{
	(void)state;
	fabric_down();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_teardown(sends_wait_for_their_memory_and_nobody_for_the_device, tidy),
	    cmocka_unit_test_teardown(receives_wait_for_their_memory_and_nobody_for_the_device,
				      tidy),
	    cmocka_unit_test_teardown(a_flush_waits_for_its_queue_pair_and_nobody_for_the_device,
				      tidy),
	    cmocka_unit_test_teardown(deregistering_waits_for_no_device, tidy),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
