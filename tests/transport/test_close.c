/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Closing while the kernel takes long to destroy queue pairs, on a live fabric with real threads:
 * close and the end of the instance leave that to the background, what is left uses nothing that
 * has been given back, and it is freed in the end. Where memory of the application is not known to
 * be safe, close waits.
 */
#include "../descriptors.h"
#include "../unit/cmocka_all.h"
#include "pair.h"

#include "base/clock.h"
#include "base/log.h"
#include "instance/instance.h"
#include "memory/mr.h"
#include "transport/comm.h"
#include "transport/transport.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define DESTROY_MS 3000 /* that the fabric takes for each queue pair of host 0 */
#define FENCE_MS   800	/* that it takes to stop one, where deregistering is tested */
#define PROMPT_MS  1500 /* what is left to the background takes less, on a busy machine, too */
#define MEM_SIZE   (1u << 20)
#define LOG_SIZE   65536

/* A machine that stops a process for a moment is no cut that somebody is to be told of. */
#define HEARTBEAT_MS 2000

/* ---- a host ---------------------------------------------------------------------------------- */

struct host {
	struct ha_config config;
	struct ha_instance *inst;
	struct ha_comm *comm;
	struct ha_mr *mr;
	uint8_t *memory;
	int peer_fd, test_fd;
};

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static char lines[LOG_SIZE];

static void keep(enum ha_log_level level, unsigned long subsys, const char *file, int line,
		 const char *text)
{
	size_t used;

	(void)subsys, (void)file, (void)line;
	pthread_mutex_lock(&log_lock);
	used = strlen(lines);
	snprintf(lines + used, LOG_SIZE - used, "%s%s\n", level == HA_LOG_WARN ? "WARN " : "",
		 text);
	pthread_mutex_unlock(&log_lock);
}

static bool said(const char *text)
{
	bool found;

	pthread_mutex_lock(&log_lock);
	found = strstr(lines, text) != NULL;
	pthread_mutex_unlock(&log_lock);
	return found;
}

static bool no_warning(void)
{
	bool warned = said("WARN ");

	if (warned)
		fprintf(stderr, "%s", lines);
	return !warned;
}

static uint64_t ms_since(uint64_t ns)
{
	return (ha_now_ns() - ns) / HA_NS_PER_MS;
}

static void nap(void)
{
	usleep(1000);
}

static void open_host(struct host *h, int peer_fd, int test_fd, bool failover)
{
	struct ha_instance_options options = {.config = &h->config};

	memset(h, 0, sizeof(*h));
	ha_log_set_sink(keep);
	h->peer_fd = peer_fd;
	h->test_fd = test_fd;
	ha_config_load(&h->config, NULL);
	strcpy(h->config.socket_ifname, "=lo");
	h->config.enable_backup = failover;
	h->config.stats = false;
	h->config.heartbeat_ms = HEARTBEAT_MS;
	NEED(ha_instance_open(&options, &h->inst) == HA_OK);
}

/* The other end says where it listens. */
static void dial(struct host *h)
{
	uint8_t handle[HA_HANDLE_MAX];

	NEED(recv(h->peer_fd, handle, sizeof(handle), MSG_WAITALL) == sizeof(handle));
	while (!h->comm) {
		NEED(ha_connect(h->inst, 0, HA_TRAFFIC_CLASS_UNDEF, handle, &h->comm) == HA_OK);
		nap();
	}
}

static void await_dial(struct host *h)
{
	uint8_t handle[HA_HANDLE_MAX] = {0};
	struct ha_listen *listen;

	NEED(ha_listen(h->inst, 0, handle, &listen) == HA_OK);
	NEED(write(h->peer_fd, handle, sizeof(handle)) == sizeof(handle));
	while (!h->comm) {
		NEED(ha_accept(listen, &h->comm) == HA_OK);
		nap();
	}
	ha_close_listen(listen);
}

static void get_memory(struct host *h)
{
	h->memory =
	    mmap(NULL, MEM_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	NEED(h->memory != MAP_FAILED);
	NEED(ha_reg_mr(h->comm, h->memory, MEM_SIZE, HA_MEM_HOST, 0, -1, &h->mr) == HA_OK);
}

/* From here on an access to it, by whomever, is the end of the process. */
static void give_memory_back(struct host *h)
{
	ha_dereg_mr(NULL, h->mr);
	NEED(munmap(h->memory, MEM_SIZE) == 0);
}

static struct ha_request *post_recv(struct host *h)
{
	struct ha_request *req = NULL;
	void *data = h->memory;
	size_t size = MEM_SIZE;
	int tag = 1;

	while (!req)
		NEED(ha_irecv(h->comm, 1, &data, &size, &tag, &h->mr, &req) == HA_OK);
	return req;
}

static struct ha_request *post_send(struct host *h)
{
	struct ha_request *req = NULL;

	while (!req) {
		NEED(ha_isend(h->comm, h->memory, MEM_SIZE, 1, h->mr, &req) == HA_OK);
		nap();
	}
	return req;
}

static void finish(struct ha_request *req)
{
	bool done = false;

	while (!done)
		NEED(ha_test(req, &done, NULL) == HA_OK);
}

/* So that there is more than one path to close. */
static void await_standby(const struct host *h)
{
	bool ready = false;

	for (int i = 0; i < 10000 && !ready; i++) {
		ha_token_acquire(h->comm);
		ready = h->comm->npaths > 1 && ha_path_ready(h->comm->paths[1]);
		ha_token_release(h->comm);
		nap();
	}
	NEED(ready);
}

/* Tells the test program, and waits for it to have done what it does then. */
static void tell(const struct host *h, char byte)
{
	NEED(write(h->test_fd, &byte, 1) == 1);
	NEED(read(h->test_fd, &byte, 1) == 1);
}

/* ---- what is fenced is left ------------------------------------------------------------------ */

static int leaving_host(int peer_fd, int test_fd, void *arg)
{
	uint64_t began_ns;
	struct host h;
	int before;

	(void)arg;
	open_host(&h, peer_fd, test_fd, true);
	ha_instance_close(h.inst);
	before = open_descriptors(); /* with what simverbs keeps */
	open_host(&h, peer_fd, test_fd, true);
	await_dial(&h);
	get_memory(&h);
	await_standby(&h);
	(void)post_recv(&h); /* for which nothing comes */
	tell(&h, 'r');
	began_ns = ha_now_ns();
	ha_close_recv(h.comm);
	h.comm = NULL;
	NEED(ms_since(began_ns) < PROMPT_MS);
	NEED(said("closes with 1 requests in flight"));
	NEED(said("takes long and is left to the background"));
	give_memory_back(&h);
	meet(peer_fd);

	/* Others go on, and where it is known to take long nobody waits any more. */
	await_dial(&h);
	get_memory(&h);
	finish(post_recv(&h));
	for (size_t i = 0; i < MEM_SIZE; i++)
		NEED(h.memory[i] == pattern(1, i));
	began_ns = ha_now_ns();
	ha_close_recv(h.comm);
	NEED(ms_since(began_ns) < PROMPT_MS);
	give_memory_back(&h);

	began_ns = ha_now_ns();
	ha_instance_close(h.inst);
	NEED(ms_since(began_ns) < PROMPT_MS);
	NEED(open_descriptors() > before); /* those of the devices */
	/* A connection's queue pair on each device, that of heartbeats, the other connection's. */
	while (open_descriptors() > before && ms_since(began_ns) < 10 * DESTROY_MS)
		nap();
	NEED(open_descriptors() == before);
	NEED(no_warning());
	return 0;
}

static int other_host(int peer_fd, int test_fd, void *arg)
{
	struct host h;

	(void)arg;
	open_host(&h, peer_fd, test_fd, true);
	dial(&h);
	await_standby(&h);
	meet(peer_fd);
	ha_close_send(h.comm);
	h.comm = NULL;
	dial(&h);
	get_memory(&h);
	for (size_t i = 0; i < MEM_SIZE; i++)
		h.memory[i] = pattern(1, i);
	finish(post_send(&h));
	ha_close_send(h.comm);
	give_memory_back(&h);
	ha_instance_close(h.inst);
	return 0;
}

static void close_leaves_what_the_kernel_holds_to_the_background(void **state)
{
	struct pair pair;
	json_t *status;

	(void)state;
	fabric_up("--hosts 2 --rails 2");
	pair_start(&pair, leaving_host, other_host, NULL);
	assert_int_equal(pair_wait_byte(&pair, 0), 'r');
	assert_int_equal(
	    fabric_tool("fault %s 'wait=%dms verb=destroy_qp host=0'", fabric_name(), DESTROY_MS),
	    0);
	pair_send_byte(&pair, 0, 'g');
	assert_int_equal(pair_join(&pair, 1, 30), 0);
	assert_int_equal(pair_join(&pair, 0, 60), 0);
	status = fabric_status();
	assert_true(status_fired(status, 0) >= 4);
	json_decref(status);
	fabric_down();
}

/* ---- deregistering --------------------------------------------------------------------------- */

/*
 * The memory is another handle's as well, so its registration stays, and the other end has the key.
 * What it sends when the memory was given back must not arrive there any more.
 */
static int deregistering_host(int peer_fd, int test_fd, void *arg)
{
	struct ha_mr *other;
	uint64_t began_ns;
	struct host h;

	(void)arg;
	open_host(&h, peer_fd, test_fd, false);
	await_dial(&h);
	get_memory(&h);
	NEED(ha_reg_mr(h.comm, h.memory, MEM_SIZE, HA_MEM_HOST, 0, -1, &other) == HA_OK);
	(void)post_recv(&h);
	meet(peer_fd); /* the other end can send */
	tell(&h, 'r');
	began_ns = ha_now_ns();
	ha_dereg_mr(h.comm, h.mr);
	NEED(ms_since(began_ns) >= FENCE_MS - 100);
	NEED(said("deregistering waits"));
	memset(h.memory, 0xa5, MEM_SIZE);
	meet(peer_fd); /* now it does */
	meet(peer_fd);
	for (size_t i = 0; i < MEM_SIZE; i++)
		NEED(h.memory[i] == 0xa5);
	ha_close_recv(h.comm);
	ha_dereg_mr(NULL, other);
	NEED(munmap(h.memory, MEM_SIZE) == 0);
	ha_instance_close(h.inst);
	return 0;
}

static int late_sender(int peer_fd, int test_fd, void *arg)
{
	struct ha_request *req = NULL;
	bool done = false;
	struct host h;

	(void)arg;
	(void)test_fd;
	open_host(&h, peer_fd, test_fd, false);
	dial(&h);
	get_memory(&h);
	memset(h.memory, 1, MEM_SIZE);
	meet(peer_fd);
	meet(peer_fd);
	/* Until something becomes of it: the other end refuses, or takes it. */
	for (int i = 0; i < 2000 && !req; i++) {
		if (ha_isend(h.comm, h.memory, MEM_SIZE, 1, h.mr, &req) != HA_OK)
			break;
		nap();
	}
	for (int i = 0; i < 2000 && req && !done; i++) {
		if (ha_test(req, &done, NULL) != HA_OK)
			break;
		nap();
	}
	meet(peer_fd);
	ha_close_send(h.comm);
	give_memory_back(&h);
	ha_instance_close(h.inst);
	return 0;
}

static void deregistering_waits_until_nothing_can_be_written_any_more(void **state)
{
	struct pair pair;
	json_t *status;

	(void)state;
	fabric_up("--hosts 2 --rails 1");
	pair_start(&pair, deregistering_host, late_sender, NULL);
	assert_int_equal(pair_wait_byte(&pair, 0), 'r');
	assert_int_equal(
	    fabric_tool("fault %s 'wait=%dms verb=err host=0'", fabric_name(), FENCE_MS), 0);
	pair_send_byte(&pair, 0, 'g');
	assert_int_equal(pair_join(&pair, 0, 60), 0);
	assert_int_equal(pair_join(&pair, 1, 30), 0);
	status = fabric_status();
	assert_true(status_fired(status, 0) >= 1);
	json_decref(status);
	fabric_down();
}

/* ---- a process may end meanwhile ------------------------------------------------------------- */

static int ending_host(int peer_fd, int test_fd, void *arg)
{
	struct host h;

	(void)arg;
	open_host(&h, peer_fd, test_fd, true);
	await_dial(&h);
	tell(&h, 'r');
	ha_close_recv(h.comm);
	ha_instance_close(h.inst);
#ifdef __SANITIZE_ADDRESS__
	_exit(0); /* what is still open is simverbs's, and no leak */
#endif
	return 0;
}

static int leaver(int peer_fd, int test_fd, void *arg)
{
	struct host h;

	(void)arg;
	open_host(&h, peer_fd, test_fd, true);
	dial(&h);
	ha_close_send(h.comm);
	ha_instance_close(h.inst);
	return 0;
}

static void a_process_can_end_while_queue_pairs_are_left(void **state)
{
	struct pair pair;
	json_t *status;

	(void)state;
	fabric_up("--hosts 2 --rails 2");
	pair_start(&pair, ending_host, leaver, NULL);
	assert_int_equal(pair_wait_byte(&pair, 0), 'r');
	assert_int_equal(fabric_tool("fault %s 'wait=100s verb=destroy_qp host=0'", fabric_name()),
			 0);
	pair_send_byte(&pair, 0, 'g');
	assert_int_equal(pair_join(&pair, 1, 30), 0);
	assert_int_equal(pair_join(&pair, 0, 30), 0);
	status = fabric_status();
	assert_true(status_fired(status, 0) >= 1);
	json_decref(status);
	fabric_down();
}

/* ---- what is not, is waited for -------------------------------------------------------------- */

static int wedged_host(int peer_fd, int test_fd, void *arg)
{
	uint64_t began_ns;
	struct host h;

	(void)arg;
	open_host(&h, peer_fd, test_fd, false);
	await_dial(&h);
	get_memory(&h);
	tell(&h, 'r');
	/* Asking for data is a write, with which the queue pair gets stuck, and flushes nothing. */
	(void)post_recv(&h);
	usleep(50000);
	began_ns = ha_now_ns();
	ha_close_recv(h.comm);
	NEED(ms_since(began_ns) >= DESTROY_MS - PROMPT_MS);
	NEED(said("closing waits, since the device may still use the memory"));
	give_memory_back(&h);
	ha_instance_close(h.inst);
	return 0;
}

static int patient_host(int peer_fd, int test_fd, void *arg)
{
	struct host h;

	(void)arg;
	open_host(&h, peer_fd, test_fd, false);
	dial(&h);
	tell(&h, 'r');
	ha_close_send(h.comm);
	ha_instance_close(h.inst);
	return 0;
}

static void close_waits_where_memory_in_use_is_not_safe_yet(void **state)
{
	struct pair pair;
	json_t *status;

	(void)state;
	fabric_up("--hosts 2 --rails 1");
	pair_start(&pair, wedged_host, patient_host, NULL);
	assert_int_equal(pair_wait_byte(&pair, 0), 'r');
	assert_int_equal(pair_wait_byte(&pair, 1), 'r');
	assert_int_equal(fabric_tool("fault %s 'wedge=hard host=0 op=write'", fabric_name()), 0);
	assert_int_equal(
	    fabric_tool("fault %s 'wait=%dms verb=destroy_qp host=0'", fabric_name(), DESTROY_MS),
	    0);
	pair_send_byte(&pair, 0, 'g');
	assert_int_equal(pair_join(&pair, 0, 30), 0);
	pair_send_byte(&pair, 1, 'g');
	assert_int_equal(pair_join(&pair, 1, 30), 0);
	status = fabric_status();
	assert_int_equal(status_fired(status, 0), 1);
	assert_int_equal(status_fired(status, 1), 1);
	json_decref(status);
	fabric_down();
}

/* A device that refuses to destroy has not stopped: until it does, or the process ends. */
static void close_waits_while_a_queue_pair_cannot_be_destroyed(void **state)
{
	struct pair pair;
	json_t *status;

	(void)state;
	fabric_up("--hosts 2 --rails 1");
	pair_start(&pair, wedged_host, patient_host, NULL);
	assert_int_equal(pair_wait_byte(&pair, 0), 'r');
	assert_int_equal(pair_wait_byte(&pair, 1), 'r');
	assert_int_equal(fabric_tool("fault %s 'wedge=hard host=0 op=write'", fabric_name()), 0);
	/* Whatever that takes on a busy machine: it goes on to be refused for as long as the test
	 * asks close to wait, and as much again. */
	assert_int_equal(fabric_tool("fault %s 'errno=EBUSY verb=destroy_qp host=0 until=%dms'",
				     fabric_name(), 2 * DESTROY_MS),
			 0);
	pair_send_byte(&pair, 0, 'g');
	assert_int_equal(pair_join(&pair, 0, 30), 0);
	pair_send_byte(&pair, 1, 'g');
	assert_int_equal(pair_join(&pair, 1, 30), 0);
	status = fabric_status();
	assert_int_equal(status_fired(status, 0), 1);
	assert_true(status_fired(status, 1) > 2); /* it was tried again and again */
	json_decref(status);
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
	    cmocka_unit_test_teardown(close_leaves_what_the_kernel_holds_to_the_background, tidy),
	    cmocka_unit_test_teardown(deregistering_waits_until_nothing_can_be_written_any_more,
				      tidy),
	    cmocka_unit_test_teardown(a_process_can_end_while_queue_pairs_are_left, tidy),
	    cmocka_unit_test_teardown(close_waits_where_memory_in_use_is_not_safe_yet, tidy),
	    cmocka_unit_test_teardown(close_waits_while_a_queue_pair_cannot_be_destroyed, tidy),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
