/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stripes into memory of a GPU: each NIC writes late, as PCIe may have it, and pushes its own
 * writes alone, so a flush reads through each NIC that brought bytes. Two hosts, one thread,
 * virtual time.
 */
#include "../transport/gpu_run.h"
#include "bundled.h"

#include "failover/rails.h"
#include "transport/gpu_proof.h"

#include <stdio.h>
#include <stdlib.h>

#define SIZE  ((size_t)400000)
#define SMALL ((size_t)15000) /* goes over no other rail */

static void carrying(struct pair *pair, uint32_t rails, const char *share)
{
	bundled_init(pair, rails);
	strcpy(pair->config.rail_share, share);
	pair->fabric.gpu = true;
	pair_open(pair);
	pair_connect(pair);
	wait_members(pair, rails);
}

static struct ha_path *path_on(const struct ha_comm *comm, unsigned rail)
{
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (comm->paths[p] && comm->paths[p]->nic->name[3] == (char)('0' + rail))
			return comm->paths[p];
	fail_msg("no path on rail %u", rail);
	return NULL;
}

/* Reads of GPU memory through the receiver's NIC of each rail. */
static void count_reads(const struct pair *pair, unsigned rails, uint32_t reads[HA_RAILS_MAX])
{
	for (unsigned rail = 0; rail < rails; rail++)
		reads[rail] = path_on(pair->recv, rail)->flush.posted;
}

/* One message, flushed; so many reads more through each NIC. */
static void flushed(struct pair *pair, const struct gpu *from, const struct gpu *to, size_t size,
		    unsigned rails, const uint32_t expected[HA_RAILS_MAX])
{
	uint32_t before[HA_RAILS_MAX], after[HA_RAILS_MAX];
	struct ha_request *recv, *send = NULL, *flush;
	int got = 0;

	fill(from->bytes, size, (uint32_t)size);
	memset(to->bytes, CANARY, to->size);
	count_reads(pair, rails, before);
	recv = gpu_recv(pair->recv, to, 0, size);
	for (int i = 0; i < 1000 && !send; i++) {
		send = gpu_try_send(pair->send, from, 0, size);
		pair_step(pair);
	}
	assert_int_equal(pair_finish(pair, recv, &got), HA_OK);
	assert_int_equal(got, (int)size);
	assert_int_equal(pair_finish(pair, send, NULL), HA_OK);
	assert_true(gpu_missing(to->bytes, size) > size / 2);
	flush = gpu_flush(pair->recv, to, 0, size);
	assert_non_null(flush);
	assert_int_equal(pair_finish(pair, flush, NULL), HA_OK);
	assert_true(filled(to->bytes, size, (uint32_t)size));
	count_reads(pair, rails, after);
	for (unsigned rail = 0; rail < rails; rail++)
		assert_int_equal(after[rail] - before[rail], expected[rail]);
}

/* And through the control rail's, also if it brought none. */
static void a_flush_reads_through_each_nic_that_brought_bytes_and_no_other(void **state)
{
	static const struct {
		const char *share;
		uint32_t reads[HA_RAILS_MAX];
	} cases[] = {{"1,1,1", {1, 1, 1}},
		     {"1,1,0", {1, 1, 0}},
		     {"1,0,1", {1, 0, 1}},
		     {"0,1,1", {1, 1, 1}},
		     {"0,1,0", {1, 1, 0}}};
	static const uint32_t control[HA_RAILS_MAX] = {1};

	(void)state;
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct gpu from, to;
		struct pair pair;
		uint64_t flushes;
		int rule;

		carrying(&pair, 3, cases[i].share);
		gpu_open(&from, pair.send, SIZE, GPU_BY_POINTER);
		gpu_open(&to, pair.recv, SIZE, GPU_BY_DMABUF);
		pair_idle(&pair, 100);
		rule = add_rule(GPU_LATE);
		flushes = pair.recv->count.flushes;
		for (int round = 0; round < 3; round++) {
			flushed(&pair, &from, &to, SIZE, 3, cases[i].reads);
			flushed(&pair, &from, &to, SMALL, 3, control);
		}
		assert_int_equal(pair.recv->count.flushes - flushes, 6);
		assert_true(fired(rule) > 0);
		assert_int_equal(carrying_now(&pair), 3);
		gpu_close(&from, pair.send);
		gpu_close(&to, pair.recv);
		pair_close(&pair);
	}
}

/* At either end. */
static void what_a_nic_was_not_proved_to_reach_goes_over_the_others(void **state)
{
	static const uint32_t both[HA_RAILS_MAX] = {1, 1}, control[HA_RAILS_MAX] = {1};

	(void)state;
	for (int end = 0; end < 2; end++) {
		struct ha_gpu_proof_state *proof;
		struct gpu from, to;
		struct pair pair;

		carrying(&pair, 2, "1,1");
		gpu_open(&from, pair.send, SIZE, GPU_BY_POINTER);
		gpu_open(&to, pair.recv, SIZE, GPU_BY_POINTER);
		pair_idle(&pair, 100);
		(void)add_rule(GPU_LATE);
		flushed(&pair, &from, &to, SIZE, 2, both);
		proof = &path_on(end ? pair.recv : pair.send, 1)->gpu_proof;
		assert_int_equal(proof->state, HA_GPU_PROOF_GOOD);
		proof->state = HA_GPU_PROOF_FAILED;
		flushed(&pair, &from, &to, SIZE, 2, control);
		gpu_close(&from, pair.send);
		gpu_close(&to, pair.recv);
		pair_close(&pair);
	}
}

/* ---- with failures --------------------------------------------------------------------------- */

#define PART ((size_t)200000)

static void run_up(struct gpu_run *r)
{
	memset(r, 0, sizeof(*r));
	carrying(&r->pair, 2, "1,1");
	gpu_run_begin(r, PART);
}

static unsigned broken_host, broken_rail;
static bool no_turns;

static void link_down(void)
{
	sv_stepped_link(broken_host, broken_rail, false);
}

static void cut(void)
{
	sv_stepped_cut(broken_rail, true);
}

static void kill_device(void)
{
	sv_stepped_kill(broken_host, broken_rail);
}

/* At places of a run some events apart: how many. */
static unsigned everywhere(unsigned host, unsigned rail, void (*break_it)(void), bool late,
			   unsigned apart)
{
	unsigned places = 0;
	bool broken = true;

	broken_host = host;
	broken_rail = rail;
	for (unsigned events = 5; broken; events += apart) {
		struct gpu_run r;

		run_up(&r);
		if (no_turns)
			without_turns(&r.pair);
		if (late)
			(void)add_rule(GPU_LATE);
		broken = gpu_run_with(&r, events, break_it);
		assert_int_equal(r.result, HA_OK);
		gpu_run_nothing_comes_later(&r);
		if (break_it == link_down)
			assert_int_equal(r.pair.recv->count.failovers, broken && no_turns);
		places += broken;
		gpu_run_end(&r);
	}
	return places;
}

static void what_was_flushed_is_there_and_stays_wherever_a_rail_is_lost(void **state)
{
	(void)state;
	assert_true(everywhere(1, 1, link_down, true, 41) >= 10);
	assert_true(everywhere(0, 1, link_down, true, 83) >= 5);
	assert_true(everywhere(0, 1, cut, true, 149) >= 3);
}

/* Its NIC is read through a while yet, and the one that takes its place as the active path's. */
static void what_was_flushed_is_there_and_stays_wherever_the_control_rail_is_lost(void **state)
{
	(void)state;
	assert_true(everywhere(1, 0, link_down, true, 17) >= 10);
	assert_true(everywhere(0, 0, link_down, true, 43) >= 5);
	assert_true(everywhere(0, 0, cut, true, 149) >= 3);
}

/* And with ends that take no turns. */
static void what_was_flushed_is_there_and_stays_after_a_failover_of_rails(void **state)
{
	(void)state;
	no_turns = true;
	assert_true(everywhere(1, 0, link_down, true, 89) >= 5);
	no_turns = false;
}

/* What a dead device had not written yet is lost: so its writes are prompt here. */
static void what_was_flushed_is_there_and_stays_when_a_rails_device_goes(void **state)
{
	(void)state;
	assert_true(everywhere(1, 1, kill_device, false, 97) >= 5);
	assert_true(everywhere(0, 1, kill_device, true, 97) >= 5);
	assert_true(everywhere(1, 0, kill_device, false, 61) >= 5);
	assert_true(everywhere(0, 0, kill_device, true, 97) >= 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_flush_reads_through_each_nic_that_brought_bytes_and_no_other),
	    cmocka_unit_test(what_a_nic_was_not_proved_to_reach_goes_over_the_others),
	    cmocka_unit_test(what_was_flushed_is_there_and_stays_wherever_a_rail_is_lost),
	    cmocka_unit_test(what_was_flushed_is_there_and_stays_wherever_the_control_rail_is_lost),
	    cmocka_unit_test(what_was_flushed_is_there_and_stays_after_a_failover_of_rails),
	    cmocka_unit_test(what_was_flushed_is_there_and_stays_when_a_rails_device_goes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
