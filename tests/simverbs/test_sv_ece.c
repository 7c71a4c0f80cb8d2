/* SPDX-License-Identifier: Apache-2.0 */
/* Enhanced connection establishment: what two queue pairs agree on, and devices that do not know
 * it. */
#include "world.h"

static struct ibv_ece ece_of(struct end *e)
{
	struct ibv_ece ece = {.comp_mask = ~0u};

	assert_int_equal(ibv_query_ece(e->qp, &ece), 0);
	assert_int_equal(ece.comp_mask, 0);
	return ece;
}

/* Opens two ends in INIT whose devices have these options. */
static void open_with(struct world *w, uint32_t a, uint32_t b)
{
	struct world_opts opts = {.unconnected = true};

	sv_stepped_destroy();
	assert_int_equal(sv_stepped_open(NULL), 0);
	sv_stepped_set_ece(0, 0, 0x5356, a);
	sv_stepped_set_ece(1, 0, 0x5356, b);
	end_open(&w->a, 0, 0, &opts);
	end_open(&w->b, 1, 0, &opts);
	assert_int_equal(to_init(&w->a, NULL), 0);
	assert_int_equal(to_init(&w->b, NULL), 0);
}

static void two_queue_pairs_agree_on_what_both_have(void **state)
{
	struct ibv_ece ece;
	struct world w;

	(void)state;
	open_with(&w, 0x7, 0xd);
	ece = ece_of(&w.a);
	assert_int_equal(ece.vendor_id, 0x5356);
	assert_int_equal(ece.options, 0x7);
	/* b is told of a's, and a of what b made of it. */
	assert_int_equal(ibv_set_ece(w.b.qp, &ece), 0);
	assert_int_equal(ece_of(&w.b).options, 0); /* not agreed yet */
	assert_int_equal(to_rtr(&w.b, &w.a, NULL), 0);
	assert_int_equal(to_rts(&w.b, NULL), 0);
	ece = ece_of(&w.b);
	assert_int_equal(ece.options, 0x5);
	assert_int_equal(ibv_set_ece(w.a.qp, &ece), 0);
	assert_int_equal(to_rtr(&w.a, &w.b, NULL), 0);
	assert_int_equal(to_rts(&w.a, NULL), 0);
	assert_int_equal(ece_of(&w.a).options, 0x5);
	assert_int_equal(ibv_set_ece(w.a.qp, &ece), EINVAL); /* too late */
	/* A queue pair that is reset offers again. */
	assert_int_equal(to_state(w.a.qp, IBV_QPS_RESET), 0);
	assert_int_equal(ece_of(&w.a).options, 0x7);
	world_close(&w);
}

static void who_sets_nothing_has_none(void **state)
{
	struct world w;

	(void)state;
	open_with(&w, 0x7, 0x7);
	assert_int_equal(to_rtr(&w.a, &w.b, NULL), 0);
	assert_int_equal(ece_of(&w.a).options, 0);
	assert_int_equal(ece_of(&w.b).options, 0x7);
	world_close(&w);
}

static void what_cannot_be_is_refused(void **state)
{
	struct ibv_ece ece;
	struct world w;
	char err[200];

	(void)state;
	open_with(&w, 0x7, 0);
	ece = ece_of(&w.a);
	ece.comp_mask = 1;
	assert_int_equal(ibv_set_ece(w.a.qp, &ece), EINVAL);
	ece.comp_mask = 0;
	ece.vendor_id = 0x15b3;
	assert_int_equal(ibv_set_ece(w.a.qp, &ece), EINVAL);
	/* A device that knows no options, and a rule. */
	ece.vendor_id = 0x5356;
	assert_int_equal(ibv_query_ece(w.b.qp, &ece), EOPNOTSUPP);
	assert_int_equal(ibv_set_ece(w.b.qp, &ece), EOPNOTSUPP);
	assert_true(sv_stepped_fault_add("errno=ENOSYS verb=query_ece host=0", err, sizeof(err)) >=
		    0);
	assert_true(sv_stepped_fault_add("errno=EINVAL verb=set_ece host=0", err, sizeof(err)) >=
		    0);
	assert_int_equal(ibv_query_ece(w.a.qp, &ece), ENOSYS);
	assert_int_equal(ibv_set_ece(w.a.qp, &ece), EINVAL);
	world_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(two_queue_pairs_agree_on_what_both_have),
	    cmocka_unit_test(who_sets_nothing_has_none),
	    cmocka_unit_test(what_cannot_be_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
