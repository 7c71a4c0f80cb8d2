/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages from GPU to GPU, and what iflush promises of them: that all of a message is in the
 * receiver's GPU, whatever became of the path it came on, and that nothing of it comes later. The
 * devices' writes to GPUs are late (gpu=reorder), as PCIe may have them: a receive says that they
 * were sent, and not that they are there.
 */
#include "gpu_run.h"

#include "base/clock.h"
#include "fakecuda.h"
#include "memory/mr.h"

#include <stdio.h>
#include <string.h>

static void up(struct pair *pair, uint32_t rails)
{
	pair_init(pair);
	pair->config.enable_backup = rails > 1;
	pair->fabric.rails = rails;
	pair->fabric.gpu = true;
	pair_up(pair);
	if (rails > 1)
		pair_wait_standby(pair);
}

static struct ha_request *send_from(struct pair *pair, const struct gpu *gpu, size_t offset,
				    size_t size)
{
	for (int quiet = 0; quiet < 1000;) {
		struct ha_request *req = gpu_try_send(pair->send, gpu, offset, size);

		if (req)
			return req;
		quiet = pair_step(pair) ? 0 : quiet + 1;
	}
	fail_msg("a send does not match; log:\n%s", captured_log);
	return NULL;
}

/* One message, until both ends have been told. */
static void exchange(struct pair *pair, const struct gpu *from, const struct gpu *to, size_t offset,
		     size_t size)
{
	struct ha_request *recv = gpu_recv(pair->recv, to, offset, size);
	struct ha_request *send = send_from(pair, from, offset, size);
	int got = 0;

	assert_int_equal(pair_finish(pair, recv, &got), HA_OK);
	assert_int_equal(got, (int)size);
	assert_int_equal(pair_finish(pair, send, NULL), HA_OK);
}

static void flush(struct pair *pair, const struct gpu *to, size_t offset, size_t size)
{
	struct ha_request *req = gpu_flush(pair->recv, to, offset, size);

	if (req)
		assert_int_equal(pair_finish(pair, req, NULL), HA_OK);
}

/* ---- without failures ------------------------------------------------------------------------ */

#define SIZE ((size_t)300000)

static void messages_go_from_gpu_to_gpu_registered_either_way(void **state)
{
	static const size_t sizes[] = {1, 64, 4096, 100001, SIZE - 200};

	(void)state;
	for (int i = 0; i < 4; i++) {
		struct gpu from, to;
		struct pair pair;

		up(&pair, 1);
		gpu_open(&from, pair.send, SIZE, i & 1 ? GPU_BY_DMABUF : GPU_BY_POINTER);
		gpu_open(&to, pair.recv, SIZE, i & 2 ? GPU_BY_DMABUF : GPU_BY_POINTER);
		for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
			fill(from.bytes + 100, sizes[s], (uint32_t)s);
			memset(to.bytes, CANARY, SIZE);
			exchange(&pair, &from, &to, 100, sizes[s]);
			flush(&pair, &to, 100, sizes[s]);
			assert_true(filled(to.bytes + 100, sizes[s], (uint32_t)s));
			assert_true(gpu_all_are(to.bytes, 100, CANARY));
			assert_true(
			    gpu_all_are(to.bytes + 100 + sizes[s], SIZE - 100 - sizes[s], CANARY));
		}
		gpu_close(&from, pair.send);
		gpu_close(&to, pair.recv);
		pair_close(&pair);
		assert_int_equal(fakecuda_contexts(), 0);
		assert_int_equal(fakecuda_streams(), 0);
	}
}

/* What the flush is for: until it is done, what was received is not there. */
static void a_receive_is_in_the_gpu_when_it_was_flushed_and_not_before(void **state)
{
	struct gpu from, to;
	struct pair pair;
	int rule;

	(void)state;
	up(&pair, 1);
	gpu_open(&from, pair.send, SIZE, GPU_BY_POINTER);
	gpu_open(&to, pair.recv, SIZE, GPU_BY_POINTER);
	rule = add_rule(GPU_LATE);
	for (uint32_t i = 0; i < 10; i++) {
		fill(from.bytes, SIZE, i);
		memset(to.bytes, CANARY, SIZE);
		exchange(&pair, &from, &to, 0, SIZE);
		assert_true(gpu_missing(to.bytes, SIZE) > SIZE / 2);
		flush(&pair, &to, 0, SIZE);
		assert_true(filled(to.bytes, SIZE, i));
	}
	assert_true(fired(rule) > 100);
	assert_int_equal(pair.recv->count.flushes, 10);
	gpu_close(&from, pair.send);
	gpu_close(&to, pair.recv);
	pair_close(&pair);
}

static void gpu_memory_that_the_driver_refuses_is_an_error_that_says_where(void **state)
{
	struct ha_mr *mr = NULL;
	struct pair pair;
	void *at = fakecuda_alloc(SIZE);

	(void)state;
	up(&pair, 1);
	fakecuda_reset();
	fakecuda_fail("cuDevicePrimaryCtxRetain", 0, 1, CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_not_equal(ha_reg_mr(pair.recv, at, SIZE, HA_MEM_CUDA, 0, -1, &mr), HA_OK);
	assert_int_equal(fakecuda_failed("cuDevicePrimaryCtxRetain"), 1);
	assert_null(mr);
	assert_logged("sim0: cannot register 303104 bytes of GPU memory");
	assert_int_equal(ha_reg_mr(pair.recv, at, SIZE, HA_MEM_CUDA, 0, -1, &mr), HA_OK);
	ha_dereg_mr(pair.recv, mr);
	fakecuda_free(at);
	pair_close(&pair);
}

/* ---- with failures --------------------------------------------------------------------------- */

#define PART ((size_t)60000)

/* A rule of faults, if any, that is there before any memory of a GPU is: its id. */
static int run_up_with(struct gpu_run *r, const char *rule)
{
	int id = -1;

	memset(r, 0, sizeof(*r));
	up(&r->pair, 2);
	if (rule)
		id = add_rule(rule);
	gpu_run_begin(r, PART);
	return id;
}

static void run_up(struct gpu_run *r)
{
	(void)run_up_with(r, NULL);
}

static void link_of_the_receiver_down(void)
{
	sv_stepped_link(1, 0, false);
}

static void link_of_the_sender_down(void)
{
	sv_stepped_link(0, 0, false);
}

static void cut(void)
{
	sv_stepped_cut(0, true);
}

static void kill_sender(void)
{
	sv_stepped_kill(0, 0);
}

static void kill_receiver(void)
{
	sv_stepped_kill(1, 0);
}

static void take_away_from_the_sender(void)
{
	sv_stepped_disassociate(0, 0, 1000000);
}

static void take_away_from_the_receiver(void)
{
	sv_stepped_disassociate(1, 0, 1000000);
}

/* At places of a run some events apart. How many that were. */
static unsigned everywhere(void (*break_it)(void), bool late, unsigned apart)
{
	unsigned places = 0;
	bool broken = true;

	for (unsigned events = 5; broken; events += apart) {
		struct gpu_run r;

		run_up(&r);
		if (late)
			add_rule(GPU_LATE);
		broken = gpu_run_with(&r, events, break_it);
		assert_int_equal(r.result, HA_OK);
		gpu_run_nothing_comes_later(&r);
		places += broken;
		gpu_run_end(&r);
	}
	return places;
}

static void what_was_flushed_is_there_and_stays_wherever_a_link_goes_down(void **state)
{
	(void)state;
	assert_true(everywhere(link_of_the_receiver_down, true, 7) >= 20);
	assert_true(everywhere(link_of_the_sender_down, true, 17) >= 8);
}

static void what_was_flushed_is_there_and_stays_wherever_a_path_is_cut(void **state)
{
	(void)state;
	assert_true(everywhere(cut, true, 29) >= 5);
}

static void what_was_flushed_is_there_and_stays_when_the_senders_device_goes(void **state)
{
	(void)state;
	assert_true(everywhere(kill_sender, true, 23) >= 6);
	assert_true(everywhere(take_away_from_the_sender, true, 29) >= 5);
}

/* What a dead device had not written yet is lost: so its writes are prompt here. */
static void what_was_flushed_is_there_and_stays_when_the_receivers_device_goes(void **state)
{
	(void)state;
	assert_true(everywhere(kill_receiver, false, 11) >= 12);
	assert_true(everywhere(take_away_from_the_receiver, false, 23) >= 6);
}

/* Each packet in turn is the first that a dying device acknowledges and does not write. */
static void a_device_that_acknowledges_and_does_not_write_is_never_silent(void **state)
{
	unsigned errors = 0, survived = 0;

	(void)state;
	for (unsigned nth = 1; nth <= 100; nth += 9) {
		char text[80];
		struct gpu_run r;
		int rule;

		run_up(&r);
		snprintf(text, sizeof(text), "kill=unplaced op=write host=1 rail=0 nth=%u", nth);
		rule = add_rule(text);
		gpu_run_with(&r, ~0u, NULL);
		assert_int_equal(fired(rule), 1);
		if (gpu_run_is_through(&r)) {
			gpu_run_nothing_comes_later(&r);
			survived++;
		} else {
			assert_true(ha_comm_error(r.pair.recv) != HA_OK ||
				    ha_comm_error(r.pair.send) != HA_OK);
			errors++;
		}
		gpu_run_end(&r);
	}
	assert_true(errors + survived == 12);
}

/* One copy fails at either end: the path is left, and the message goes over the other one. */
static void a_copy_that_fails_costs_a_path_and_no_data(void **state)
{
	static const char *const entries[] = {"cuMemcpyDtoHAsync_v2", "cuMemcpyHtoDAsync_v2"};

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct gpu_run r;

		run_up(&r);
		fakecuda_reset();
		fakecuda_fail(entries[i], 20, 1, CUDA_ERROR_LAUNCH_FAILED);
		gpu_run_with(&r, ~0u, NULL);
		assert_int_equal(fakecuda_failed(entries[i]), 1);
		gpu_run_nothing_comes_later(&r);
		assert_true(r.pair.send->count.failovers > 0);
		fakecuda_reset();
		gpu_run_end(&r);
	}
}

/* Any verb by which the queue pair is made through which a NIC flushes itself. */
static void a_flush_whose_queue_pair_cannot_be_made_costs_a_path_and_no_data(void **state)
{
	static const char *const rules[] = {
	    "errno=ENOMEM verb=create_qp host=1 nth=1",
	    "errno=EINVAL verb=modify_qp host=1 nth=1",
	    "errno=EINVAL verb=modify_qp host=1 nth=2",
	    "errno=EINVAL verb=modify_qp host=1 nth=3",
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
		struct gpu_run r;
		int rule = run_up_with(&r, rules[i]);

		gpu_run_with(&r, ~0u, NULL);
		assert_int_equal(fired(rule), 1);
		gpu_run_nothing_comes_later(&r);
		assert_logged("(flush) failed on sim0:1");
		assert_int_equal(r.pair.recv->count.failovers, 1);
		gpu_run_end(&r);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(messages_go_from_gpu_to_gpu_registered_either_way),
	    cmocka_unit_test(a_receive_is_in_the_gpu_when_it_was_flushed_and_not_before),
	    cmocka_unit_test(gpu_memory_that_the_driver_refuses_is_an_error_that_says_where),
	    cmocka_unit_test(what_was_flushed_is_there_and_stays_wherever_a_link_goes_down),
	    cmocka_unit_test(what_was_flushed_is_there_and_stays_wherever_a_path_is_cut),
	    cmocka_unit_test(what_was_flushed_is_there_and_stays_when_the_senders_device_goes),
	    cmocka_unit_test(what_was_flushed_is_there_and_stays_when_the_receivers_device_goes),
	    cmocka_unit_test(a_device_that_acknowledges_and_does_not_write_is_never_silent),
	    cmocka_unit_test(a_copy_that_fails_costs_a_path_and_no_data),
	    cmocka_unit_test(a_flush_whose_queue_pair_cannot_be_made_costs_a_path_and_no_data),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
