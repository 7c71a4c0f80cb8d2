/* SPDX-License-Identifier: Apache-2.0 */
/* The application's memory, as devices see it that keep pages, or that cannot take it. */
#include "gpu.h"

#include "failover/engine.h"
#include "failover/standby_memory.h"
#include "memory/mr.h"
#include "transport/gpu_proof.h"

#include <sys/mman.h>
#include <unistd.h>

#define PAGE  ((size_t)4096)
#define PAGES 8u

static uint8_t *map_shared(void *addr, size_t length)
{
	uint8_t *map = mmap(addr, length, PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS | (addr ? MAP_FIXED : 0), -1, 0);

	assert_ptr_not_equal(map, MAP_FAILED);
	return map;
}

static struct ha_mr *registered(struct ha_comm *comm, void *data, size_t size)
{
	struct ha_mr *mr;

	assert_int_equal(ha_reg_mr(comm, data, size, HA_MEM_HOST, 0, -1, &mr), HA_OK);
	return mr;
}

/* A message into memory of the receiver's, all of it. */
static void receive_into(struct pair *pair, uint8_t *to, size_t size, struct ha_mr *mr,
			 uint32_t seed)
{
	struct ha_request *recv, *send;
	void *data = to;
	int tag = 1;

	fill(pair->from.bytes, size, seed);
	assert_int_equal(ha_irecv(pair->recv, 1, &data, &size, &tag, &mr, &recv), HA_OK);
	send = post_send(pair, 0, size, tag);
	assert_int_equal(pair_finish(pair, recv, NULL), HA_OK);
	assert_int_equal(pair_finish(pair, send, NULL), HA_OK);
	assert_true(filled(to, size, seed));
}

/*
 * A large buffer is registered, a part of it as well; the large one is given back, and all but the
 * part is unmapped and mapped anew. What the device had pinned are no pages of anybody's any more.
 */
static void messages_arrive_in_memory_that_was_mapped_anew(void **state)
{
	struct ha_mr *whole, *part, *rest;
	struct pair pair;
	uint8_t *map;

	(void)state;
	pair_init(&pair);
	pair.fabric.pin = true;
	pair_up(&pair);
	map = map_shared(NULL, PAGES * PAGE);
	whole = registered(pair.recv, map, PAGES * PAGE);
	part = registered(pair.recv, map, PAGE);
	receive_into(&pair, map, PAGES * PAGE, whole, 1);
	ha_dereg_mr(pair.recv, whole);
	map_shared(map + PAGE, (PAGES - 1) * PAGE);
	rest = registered(pair.recv, map + PAGE, (PAGES - 1) * PAGE);
	receive_into(&pair, map + PAGE, (PAGES - 1) * PAGE, rest, 2);
	receive_into(&pair, map, PAGE, part, 3);
	ha_dereg_mr(pair.recv, rest);
	ha_dereg_mr(pair.recv, part);
	munmap(map, PAGES * PAGE);
	pair_close(&pair);
}

/* ---- NICs that refuse ------------------------------------------------------------------------ */

static void rails(struct pair *pair, uint32_t n)
{
	pair_init(pair);
	pair->config.enable_backup = true;
	pair->fabric.rails = n;
	pair->fabric.gpu = true;
	pair_up(pair);
	transfer(pair, 1000, 1);
	pair_wait_standby(pair);
}

static const char *active_device(const struct ha_comm *comm)
{
	return ha_comm_path(comm)->nic->name;
}

/* The rail of a path in reserve that is up; -1: there is none. */
static int rail_in_reserve(const struct ha_comm *comm)
{
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (p != comm->active && ha_slot_is_up(&comm->failover->slots[p]) &&
		    ha_path_ready(comm->paths[p]))
			return comm->paths[p]->nic->index;
	return -1;
}

/* Until the path in reserve is over this rail at both ends. */
static void wait_for_reserve(struct pair *pair, int rail)
{
	for (int i = 0; i < 1000; i++) {
		if (rail_in_reserve(pair->send) == rail && rail_in_reserve(pair->recv) == rail)
			return;
		pair_idle(pair, 5);
	}
	fail_msg("no path in reserve over rail %d; log:\n%s", rail, captured_log);
}

/* At either end. */
static void a_refusal_ahead_of_need_is_a_warning_and_another_nic_stands_by(void **state)
{
	(void)state;
	for (uint32_t host = 0; host < 2; host++) {
		struct ha_mr *mr;
		struct pair pair;
		char rule[100];
		int refuses, other;
		uint8_t *map;

		rails(&pair, 3);
		refuses = rail_in_reserve(pair.recv);
		other = 3 - refuses;
		snprintf(rule, sizeof(rule), "errno=ENOMEM verb=reg_mr host=%u rail=%d", host,
			 refuses);
		refuses = add_rule(rule);
		map = map_shared(NULL, PAGE);
		mr = registered(host == 0 ? pair.send : pair.recv, map, PAGE);
		wait_for_reserve(&pair, other);
		assert_true(fired(refuses) > 0);
		assert_true(logged(other == 2 ? "sim1: cannot register 4096 bytes of host memory"
					      : "sim2: cannot register 4096 bytes of host memory"));
		assert_logged("ibv_reg_mr: Cannot allocate memory (errno 12), so it cannot take "
			      "over for another NIC; raise the limit on locked memory");
		assert_int_equal(pair.send->count.failovers, 0);
		sv_stepped_link(0, 0, false);
		transfer(&pair, 20000, 2);
		assert_int_equal(ha_comm_path(pair.recv)->nic->index, other);
		ha_dereg_mr(NULL, mr);
		munmap(map, PAGE);
		pair_close(&pair);
	}
}

/* With no time to find out before: what is asked for is asked for of yet another NIC. */
static void a_refusal_at_a_switch_is_a_failure_of_that_path(void **state)
{
	(void)state;
	for (uint32_t host = 0; host < 2; host++) {
		struct in_flight message;
		int refuses, rule_id;
		struct pair pair;
		char rule[100];

		rails(&pair, 3);
		refuses = rail_in_reserve(pair.recv);
		snprintf(rule, sizeof(rule), "errno=ENOMEM verb=reg_mr host=%u rail=%d", host,
			 refuses);
		rule_id = add_rule(rule);
		/* As if nothing had been registered ahead. */
		ha_dereg_mr(pair.send, pair.from.mr);
		ha_dereg_mr(pair.recv, pair.to.mr);
		pair.from.mr = registered(pair.send, pair.from.bytes, MEM_SIZE);
		pair.to.mr = registered(pair.recv, pair.to.bytes, MEM_SIZE);
		message = pair_start(&pair);
		sv_stepped_link(0, 0, false);
		assert_int_equal(pair_finish(&pair, message.recv, NULL), HA_OK);
		assert_int_equal(pair_finish(&pair, message.send, NULL), HA_OK);
		assert_true(filled(pair.to.bytes, 300000, 5));
		assert_true(fired(rule_id) > 0);
		assert_int_equal(ha_comm_path(pair.recv)->nic->index, 3 - refuses);
		assert_string_equal(active_device(pair.send), active_device(pair.recv));
		transfer(&pair, 20000, 2);
		pair_close(&pair);
	}
}

static struct in_flight start_into(struct pair *pair, const struct gpu *gpu)
{
	struct in_flight t = {.recv = gpu_recv(pair->recv, gpu, 0, gpu->size)};

	fill(pair->from.bytes, gpu->size, 5);
	t.send = post_send(pair, 0, gpu->size, 1);
	return t;
}

static void finish_over_sim1(struct pair *pair, const struct in_flight *message,
			     const struct gpu *gpu)
{
	assert_int_equal(pair_finish(pair, message->recv, NULL), HA_OK);
	assert_int_equal(pair_finish(pair, message->send, NULL), HA_OK);
	assert_true(filled(gpu->bytes, gpu->size, 5));
	assert_string_equal(active_device(pair->recv), "sim1");
}

static void a_connection_whose_memory_no_nic_takes_ends_with_an_error(void **state)
{
	struct in_flight message;
	struct pair pair;
	struct gpu gpu;
	int rule;

	(void)state;
	rails(&pair, 2);
	rule = add_rule("errno=ENOMEM verb=reg_dmabuf_mr host=1 rail=1");
	gpu_open(&gpu, pair.recv, 300000, GPU_BY_DMABUF);
	message = start_into(&pair, &gpu);
	sv_stepped_kill(1, 0);
	assert_int_equal(pair_finish(&pair, message.recv, NULL), HA_ERR_SYSTEM);
	assert_true(fired(rule) > 0);
	assert_logged("cannot be registered on sim1, nor on any other NIC");
	gpu_close(&gpu, pair.recv);
	pair_close(&pair);
}

static void a_refusal_of_the_last_nic_that_is_left_is_no_error_at_once(void **state)
{
	struct in_flight message;
	struct pair pair;
	struct gpu gpu;
	int rule;

	(void)state;
	rails(&pair, 2);
	rule = add_rule("errno=ENOMEM verb=reg_dmabuf_mr host=1 rail=1 nth=1");
	gpu_open(&gpu, pair.recv, 300000, GPU_BY_DMABUF);
	sv_stepped_kill(1, 0);
	message = start_into(&pair, &gpu);
	finish_over_sim1(&pair, &message, &gpu);
	assert_int_equal(fired(rule), 1);
	gpu_close(&gpu, pair.recv);
	pair_close(&pair);
}

/* What is left is asked again, when nothing else works. */
static void a_nic_that_refused_is_the_last_resort(void **state)
{
	struct in_flight message;
	struct pair pair;
	struct gpu gpu;
	int rule;

	(void)state;
	rails(&pair, 2);
	rule = add_rule("errno=ENOMEM verb=reg_dmabuf_mr host=1 rail=1");
	gpu_open(&gpu, pair.recv, 300000, GPU_BY_DMABUF);
	message = start_into(&pair, &gpu);
	sv_stepped_link(1, 0, false);
	pair_idle(&pair, 500);
	assert_true(fired(rule) > 0);
	sv_stepped_fault_remove(rule);
	finish_over_sim1(&pair, &message, &gpu);
	gpu_close(&gpu, pair.recv);
	pair_close(&pair);
}

/* Memory may have been unlocked since. */
static void a_nic_that_refused_is_asked_again_a_minute_later(void **state)
{
	struct pair pair;
	struct ha_mr *mr;
	uint8_t *map;
	int rule;

	(void)state;
	rails(&pair, 2);
	rule = add_rule("errno=ENOMEM verb=reg_mr host=1 rail=1");
	map = map_shared(NULL, PAGE);
	mr = registered(pair.recv, map, PAGE);
	pair_idle(&pair, 30000);
	assert_int_not_equal(rail_in_reserve(pair.recv), 1);
	assert_true(fired(rule) > 0);
	sv_stepped_fault_remove(rule);
	pair_idle(&pair, 29000);
	assert_int_not_equal(rail_in_reserve(pair.recv), 1);
	pair_idle(&pair, 2000);
	wait_for_reserve(&pair, 1);
	ha_dereg_mr(pair.recv, mr);
	munmap(map, PAGE);
	pair_close(&pair);
}

/* ---- NICs that register and do not reach ----------------------------------------------------- */

static bool is_proved(const struct ha_comm *comm, int rail)
{
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (p != comm->active && ha_path_ready(comm->paths[p]) &&
		    comm->paths[p]->nic->index == rail)
			return ha_standby_memory_is_proved(comm) &&
			       comm->paths[p]->gpu_proof.state == HA_GPU_PROOF_GOOD;
	return false;
}

static void wait_proved(struct pair *pair, const struct ha_comm *comm, int rail)
{
	for (int i = 0; i < 1000 && !is_proved(comm, rail); i++)
		pair_idle(pair, 5);
	if (!is_proved(comm, rail))
		fail_msg("not proved on rail %d; log:\n%s", rail, captured_log);
}

/* At either end, told or not: it is found before it is needed, and traffic never meets it. */
static void a_standby_that_cannot_reach_the_gpu_is_found_before_it_is_needed(void **state)
{
	static const char *const how[] = {"unreachable", "unreachable=silent"};

	(void)state;
	for (uint32_t i = 0; i < 4; i++) {
		uint32_t host = i % 2;
		int bad, rule_id;
		struct ha_comm *comm;
		struct pair pair;
		struct gpu gpu;
		char rule[100];

		rails(&pair, 3);
		comm = host == 0 ? pair.send : pair.recv;
		bad = rail_in_reserve(pair.recv);
		snprintf(rule, sizeof(rule), "%s host=%u rail=%d", how[i / 2], host, bad);
		rule_id = add_rule(rule);
		gpu_open(&gpu, comm, 300000, GPU_BY_DMABUF);
		memset(gpu.bytes, 0x3c, gpu.size);
		wait_for_reserve(&pair, 3 - bad);
		wait_proved(&pair, comm, 3 - bad);
		assert_int_equal(fired(rule_id), 1);
		snprintf(rule, sizeof(rule), "sim%d has registered GPU memory and cannot read it",
			 bad);
		assert_logged(rule);
		assert_int_equal(pair.send->count.failovers, 0);
		for (size_t b = 0; b < gpu.size; b++) /* the proof changes nothing */
			assert_int_equal(gpu.bytes[b], 0x3c);
		sv_stepped_link(0, 0, false);
		if (host == 1) {
			struct in_flight message = start_into(&pair, &gpu);

			assert_int_equal(pair_finish(&pair, message.recv, NULL), HA_OK);
			assert_int_equal(pair_finish(&pair, message.send, NULL), HA_OK);
			assert_true(filled(gpu.bytes, gpu.size, 5));
		}
		transfer(&pair, 20000, 2);
		assert_int_equal(ha_comm_path(pair.recv)->nic->index, 3 - bad);
		assert_int_equal(pair.recv->count.failovers, 1);
		gpu_close(&gpu, comm);
		pair_close(&pair);
	}
}

static void without_gpu_memory_nothing_is_proved_with_it(void **state)
{
	struct pair pair;
	int rule;

	(void)state;
	rails(&pair, 2);
	rule = add_rule("unreachable rail=1");
	pair_idle(&pair, 1000);
	assert_false(ha_standby_memory_is_proved(pair.send));
	assert_false(ha_standby_memory_is_proved(pair.recv));
	assert_int_equal(rail_in_reserve(pair.recv), 1);
	assert_int_equal(fired(rule), 0);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(messages_arrive_in_memory_that_was_mapped_anew),
	    cmocka_unit_test(a_refusal_ahead_of_need_is_a_warning_and_another_nic_stands_by),
	    cmocka_unit_test(a_refusal_at_a_switch_is_a_failure_of_that_path),
	    cmocka_unit_test(a_connection_whose_memory_no_nic_takes_ends_with_an_error),
	    cmocka_unit_test(a_refusal_of_the_last_nic_that_is_left_is_no_error_at_once),
	    cmocka_unit_test(a_nic_that_refused_is_the_last_resort),
	    cmocka_unit_test(a_standby_that_cannot_reach_the_gpu_is_found_before_it_is_needed),
	    cmocka_unit_test(without_gpu_memory_nothing_is_proved_with_it),
	    cmocka_unit_test(a_nic_that_refused_is_asked_again_a_minute_later),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
