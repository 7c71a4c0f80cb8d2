/* SPDX-License-Identifier: Apache-2.0 */
/* Queue depths on devices that allow for less than we want: everything posted has room in the
 * completion queue, and what is too little is named. */
#include "../cmocka_all.h"

#include "device/queue_depth.h"

#include <string.h>

static const struct ibv_device_attr plenty = {.max_qp_wr = 32768, .max_cqe = 4194303};

static void assert_fits(const struct ibv_device_attr *attr, unsigned nqps,
			const struct ha_queue_depth *d)
{
	/* Each queue has one more, the sentinel; a receiver of GPU memory has flushes. */
	assert_in_range(nqps * (d->send + 1 + d->recv + 1) + HA_FLUSH_DEPTH + 1, 1, d->cqes);
	assert_in_range(d->cqes, 1, attr->max_cqe);
	assert_in_range(d->send + 1, 1, attr->max_qp_wr);
	assert_in_range(d->recv + 1, 1, attr->max_qp_wr);
}

static void a_large_device_gives_what_is_wanted(void **state)
{
	(void)state;
	for (unsigned nqps = 1; nqps <= 16; nqps++) {
		struct ha_queue_depth d = ha_queue_depth(&plenty, nqps, HA_SEND_SQ_DEPTH);

		assert_int_equal(d.send, HA_SEND_SQ_DEPTH);
		assert_int_equal(d.recv, HA_RQ_DEPTH);
		assert_fits(&plenty, nqps, &d);
		assert_null(ha_queue_depth_lacks(&plenty, &d));
	}
}

static void a_device_that_says_nothing_has_no_limit(void **state)
{
	struct ibv_device_attr attr = {0};
	struct ha_queue_depth d = ha_queue_depth(&attr, 2, HA_SEND_SQ_DEPTH);

	(void)state;
	assert_int_equal(d.send, HA_SEND_SQ_DEPTH);
	assert_null(ha_queue_depth_lacks(&attr, &d));
}

static void short_queues_are_used_whole(void **state)
{
	struct ibv_device_attr attr = plenty;
	struct ha_queue_depth d;

	(void)state;
	attr.max_qp_wr = 48;
	d = ha_queue_depth(&attr, 1, HA_SEND_SQ_DEPTH);
	assert_int_equal(d.send, 47);
	assert_int_equal(d.recv, 47);
	assert_fits(&attr, 1, &d);
	assert_null(ha_queue_depth_lacks(&attr, &d));
	attr.max_qp_wr = HA_LEAST_DEPTH;
	d = ha_queue_depth(&attr, 1, HA_SEND_SQ_DEPTH);
	assert_non_null(strstr(ha_queue_depth_lacks(&attr, &d), "max_qp_wr"));
}

static void a_small_completion_queue_makes_send_queues_short(void **state)
{
	struct ibv_device_attr attr = plenty;
	unsigned named = 0, fitting = 0;

	(void)state;
	for (attr.max_cqe = 1; attr.max_cqe < 2000; attr.max_cqe++)
		for (unsigned nqps = 1; nqps <= 16; nqps += 5) {
			struct ha_queue_depth d = ha_queue_depth(&attr, nqps, HA_SEND_SQ_DEPTH);
			const char *lacks = ha_queue_depth_lacks(&attr, &d);

			if (lacks) {
				assert_non_null(strstr(lacks, "max_cqe"));
				named++;
			} else {
				assert_fits(&attr, nqps, &d);
				fitting++;
			}
		}
	assert_true(named > 1000 && fitting > 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_large_device_gives_what_is_wanted),
	    cmocka_unit_test(a_device_that_says_nothing_has_no_limit),
	    cmocka_unit_test(short_queues_are_used_whole),
	    cmocka_unit_test(a_small_completion_queue_makes_send_queues_short),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
