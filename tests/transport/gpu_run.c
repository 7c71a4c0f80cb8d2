/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu_run.h"

#include "fakecuda.h"

#include <string.h>

/* Receives ahead. */
#define AHEAD	4
#define LATE_MS 1000
#define USED	0x5a /* what the application does with a buffer it has back */

bool gpu_all_are(const uint8_t *bytes, size_t size, uint8_t value)
{
	for (size_t i = 0; i < size; i++)
		if (bytes[i] != value)
			return false;
	return true;
}

size_t gpu_missing(const uint8_t *bytes, size_t size)
{
	size_t n = 0;

	for (size_t i = 0; i < size; i++)
		n += bytes[i] == CANARY;
	return n;
}

static uint32_t seed_of(int m)
{
	return (uint32_t)m + 77;
}

void gpu_run_begin(struct gpu_run *r, size_t part)
{
	r->part = part;
	gpu_open(&r->from, r->pair.send, GPU_RUN_MESSAGES * part, GPU_BY_POINTER);
	gpu_open(&r->to, r->pair.recv, GPU_RUN_MESSAGES * part, GPU_BY_DMABUF);
	pair_idle(&r->pair, 100); /* registered on other NICs, too, and proved */
	for (int m = 0; m < GPU_RUN_MESSAGES; m++)
		fill(r->from.bytes + (size_t)m * part, part, seed_of(m));
}

void gpu_run_end(struct gpu_run *r)
{
	gpu_close(&r->from, r->pair.send);
	gpu_close(&r->to, r->pair.recv);
	pair_close(&r->pair);
	assert_int_equal(fakecuda_streams(), 0);
}

/* Whether a request is done, or has failed as a run may. */
static bool is_over(struct gpu_run *r, struct ha_request *req)
{
	bool done = false;
	ha_result_t result = ha_test(req, &done, NULL);

	if (result != HA_OK)
		r->result = result;
	return done;
}

static void use(struct gpu_run *r, int m)
{
	uint8_t *bytes = r->to.bytes + (size_t)m * r->part;

	if (!filled(bytes, r->part, seed_of(m)))
		fail_msg("message %d was flushed and is not there: %zu bytes are missing; log:\n%s",
			 m, gpu_missing(bytes, r->part), captured_log);
	memset(bytes, USED, r->part);
	r->used[m] = true;
	r->taken++;
}

/* A round of the receiver's application. */
static void receive_more(struct gpu_run *r)
{
	while (r->asked < GPU_RUN_MESSAGES && r->asked < r->taken + AHEAD) {
		r->recv[r->asked] =
		    gpu_recv(r->pair.recv, &r->to, (size_t)r->asked * r->part, r->part);
		r->asked++;
	}
	for (int m = 0; m < r->asked && r->result == HA_OK; m++) {
		if (!r->received[m] && is_over(r, r->recv[m])) {
			r->received[m] = true;
			if (ha_comm_error(r->pair.recv) != HA_OK)
				return;
			r->flush[m] = gpu_flush(r->pair.recv, &r->to, (size_t)m * r->part, r->part);
			if (!r->flush[m])
				use(r, m);
		}
		if (r->flush[m] && !r->used[m] && is_over(r, r->flush[m]))
			use(r, m);
	}
}

/* And of the sender's. */
static void send_more(struct gpu_run *r)
{
	if (r->sent < GPU_RUN_MESSAGES) {
		r->send[r->sent] =
		    gpu_try_send(r->pair.send, &r->from, (size_t)r->sent * r->part, r->part);
		r->sent += r->send[r->sent] != NULL;
	}
	for (int m = 0; m < r->sent && r->result == HA_OK; m++)
		if (!r->released[m] && is_over(r, r->send[m])) {
			r->released[m] = true;
			memset(r->from.bytes + (size_t)m * r->part, USED, r->part);
		}
}

bool gpu_run_is_through(const struct gpu_run *r)
{
	for (int m = 0; m < GPU_RUN_MESSAGES; m++)
		if (!r->used[m] || !r->released[m])
			return false;
	return true;
}

static bool goes_on(const struct gpu_run *r)
{
	return r->result == HA_OK && ha_comm_error(r->pair.recv) == HA_OK &&
	       ha_comm_error(r->pair.send) == HA_OK && !gpu_run_is_through(r);
}

bool gpu_run_with(struct gpu_run *r, unsigned events, void (*break_it)(void))
{
	const uint64_t until_ns = sv_stepped_now() + 10 * HA_NS_PER_S;
	unsigned at = 0;
	bool broken = false;

	/* Heartbeats go on also where nothing else does. */
	for (int quiet = 0; quiet < 5000 && sv_stepped_now() < until_ns && goes_on(r);) {
		if (at++ == events) {
			break_it();
			broken = true;
		}
		receive_more(r);
		if (goes_on(r))
			send_more(r);
		quiet = pair_step(&r->pair) ? 0 : quiet + 1;
	}
	return broken;
}

void gpu_run_nothing_comes_later(struct gpu_run *r)
{
	if (!gpu_run_is_through(r))
		fail_msg("%d of %d messages came; log:\n%s", r->taken, GPU_RUN_MESSAGES,
			 captured_log);
	pair_pass(&r->pair, LATE_MS + 10);
	for (int m = 0; m < GPU_RUN_MESSAGES; m++)
		if (!gpu_all_are(r->to.bytes + (size_t)m * r->part, r->part, USED))
			fail_msg("message %d was written again after its flush; log:\n%s", m,
				 captured_log);
}
