/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of all kinds, under way together over a bundle, of which some event is the bad one. */
#ifndef HA_TESTS_RAILS_BURST_H
#define HA_TESTS_RAILS_BURST_H

#include "bundled.h"

/* Receives of one buffer and of eight, messages of nothing, in one piece, in turns and cut. */
enum { RECEIVES = 7, SENDS = 14, LARGE = 300000 };

static const struct {
	unsigned receive;
	size_t size;
} sends[SENDS] = {{0, 1000}, {0, 0},	 {0, 70000}, {0, 8},	 {0, 3000},  {0, 0}, {0, 5000},
		  {0, 1},    {1, LARGE}, {2, 0},     {3, 40000}, {4, LARGE}, {5, 8}, {6, LARGE}};

struct burst {
	struct ha_request *recv[RECEIVES], *send[SENDS];
	unsigned sent;
	bool received[RECEIVES], complete[SENDS];
};

static inline size_t place_of(unsigned send)
{
	size_t offset = 0;

	for (unsigned i = 0; i < send; i++)
		offset += sends[i].size + 4096;
	return offset;
}

static inline struct burst begin(struct pair *pair)
{
	struct burst burst = {.sent = 0};

	for (unsigned r = 0, i = 0; r < RECEIVES; r++) {
		size_t offset[SENDS], size[SENDS];
		int tag[SENDS], n = 0;

		for (; i < SENDS && sends[i].receive == r; i++, n++) {
			offset[n] = place_of(i);
			size[n] = sends[i].size;
			tag[n] = (int)i;
			fill(pair->from.bytes + offset[n], size[n], 3 * i);
		}
		burst.recv[r] = post_recv(pair, n, offset, size, tag);
	}
	return burst;
}

/* What is done, or an error. */
static inline ha_result_t burst_test(struct ha_request *req, bool *done)
{
	return *done ? HA_OK : ha_test(req, done, NULL);
}

/* Each end does what it can now. False: all is done, or *result is an error. */
static inline bool burst_goes_on(struct pair *pair, struct burst *burst, ha_result_t *result)
{
	unsigned open = 0;

	for (*result = ha_comm_error(pair->send); *result == HA_OK && burst->sent < SENDS;) {
		const unsigned i = burst->sent;

		burst->send[i] = try_send(pair, place_of(i), sends[i].size, (int)i);
		if (!burst->send[i])
			break;
		burst->sent++;
	}
	for (unsigned r = 0; *result == HA_OK && r < RECEIVES; r++) {
		*result = burst_test(burst->recv[r], &burst->received[r]);
		open += !burst->received[r];
	}
	for (unsigned i = 0; *result == HA_OK && i < burst->sent; i++) {
		*result = burst_test(burst->send[i], &burst->complete[i]);
		open += !burst->complete[i];
	}
	return *result == HA_OK && (open != 0 || burst->sent < SENDS);
}

/* The same, where nothing may go wrong. */
static inline bool go_on(struct pair *pair, struct burst *burst)
{
	ha_result_t result;
	bool goes_on = burst_goes_on(pair, burst, &result);

	assert_int_equal(result, HA_OK);
	return goes_on;
}

static inline void assert_all_there(const struct pair *pair)
{
	for (unsigned i = 0; i < SENDS; i++)
		assert_true(filled(pair->to.bytes + place_of(i), sends[i].size, 3 * i));
}

/* Until all is there; ends a second later at the latest. Returns how long that took. */
static inline uint64_t finish(struct pair *pair, struct burst *burst)
{
	const uint64_t begun_ns = sv_stepped_now();

	while (go_on(pair, burst)) {
		assert_in_range(sv_stepped_now() - begun_ns, 0, HA_NS_PER_S);
		pair_advance(pair);
	}
	assert_all_there(pair);
	return sv_stepped_now() - begun_ns;
}

static inline void step(struct pair *pair, struct burst *burst, unsigned steps)
{
	for (unsigned i = 0; i < steps; i++) {
		(void)go_on(pair, burst);
		sv_stepped_step();
	}
}

#endif
