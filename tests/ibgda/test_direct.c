/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a device takes out of a program's own queues (simverbs/direct.h): what the encoders of
 * src/ibgda write arrives as it was meant, and a program that leaves something out is found out.
 */
#include "../unit/cmocka_all.h"

#include "nccl_ha/ibgda_cqe.h"
#include "nccl_ha/ibgda_wqe.h"
#include "simverbs/direct.h"

#include <string.h>

#define QPN   0x00beefu
#define COUNT 8u
#define LOG   2u

static struct {
	struct ha_wqe blocks[COUNT];
	uint32_t record;
	uint64_t doorbell;
	uint8_t entries[(1u << LOG) * SV_DIRECT_BLOCK];
	uint32_t taken;
	struct sv_direct_mistakes mistakes;
	struct sv_direct_sq sq;
	struct sv_direct_cq cq;
	uint32_t next; /* the program's */
} w;

static const struct ha_wqe_data data = {
    .addr = 0x1000, .remote_addr = 0x2000, .lkey = 3, .rkey = 4, .size = 4096};

static int setup(void **state)
{
	(void)state;
	memset(&w, 0, sizeof(w));
	w.sq = (struct sv_direct_sq){.blocks = (const volatile uint8_t *)w.blocks,
				     .count = COUNT,
				     .qpn = QPN,
				     .record = &w.record,
				     .doorbell = &w.doorbell,
				     .mistakes = &w.mistakes};
	w.cq = (struct sv_direct_cq){
	    .entries = w.entries, .log = LOG, .record = &w.taken, .mistakes = &w.mistakes};
	sv_direct_cq_clear(&w.cq);
	return 0;
}

static void rings(void)
{
	w.doorbell = w.blocks[(w.next - 1) % COUNT].words[0];
}

static struct ha_wqe *block(void)
{
	return &w.blocks[w.next % COUNT];
}

static struct sv_direct_work takes(void)
{
	struct sv_direct_work work;

	sv_direct_look(&w.sq, 1);
	assert_int_equal(sv_direct_take(&w.sq, &work), SV_DIRECT_WORK);
	return work;
}

static void finds_none(uint64_t now_ns)
{
	struct sv_direct_work work;

	sv_direct_look(&w.sq, now_ns);
	assert_int_equal(sv_direct_take(&w.sq, &work), SV_DIRECT_NONE);
}

static void publishes(void)
{
	w.next++;
	w.record = ha_wqe_record(w.next);
	rings();
}

static void no_mistakes(void)
{
	static const struct sv_direct_mistakes none;

	assert_memory_equal(&w.mistakes, &none, sizeof(none));
}

static void what_is_written_arrives_as_it_was_meant(void **state)
{
	struct sv_direct_work work;
	const uint64_t value = 0x0102030405060708ull;

	(void)state;
	finds_none(1);
	ha_wqe_transfer(block(), w.next, HA_WQE_WRITE_IMM, QPN, &data, 0x11223344);
	publishes();
	work = takes();
	assert_int_equal(work.opcode, SV_DIRECT_WRITE_IMM);
	assert_int_equal(work.addr, data.addr);
	assert_int_equal(work.remote_addr, data.remote_addr);
	assert_int_equal(work.size, data.size);
	assert_int_equal(work.lkey, data.lkey);
	assert_int_equal(work.rkey, data.rkey);
	assert_int_equal(work.imm, 0x11223344);
	assert_false(work.is_inline);
	ha_wqe_write_value(block(), w.next, HA_WQE_WRITE, QPN, 0x3000, 9, value, 0);
	publishes();
	work = takes();
	assert_true(work.is_inline);
	assert_int_equal(work.size, 8);
	assert_memory_equal(work.bytes, &value, sizeof(value));
	ha_wqe_fetch_add(block(), w.next, QPN, &data, 77);
	publishes();
	work = takes();
	assert_int_equal(work.opcode, SV_DIRECT_FETCH_ADD);
	assert_int_equal(work.addend, 77);
	assert_int_equal(work.size, 8);
	finds_none(1);
	no_mistakes();
}

/* Over the end of the ring, and of the 16 bits of an index. */
static void indices_wrap(void **state)
{
	(void)state;
	w.next = 0xfffa;
	w.sq.next = w.sq.upto = 0xfffa;
	w.record = ha_wqe_record(w.next);
	for (unsigned int i = 0; i < 3 * COUNT; i++) {
		ha_wqe_nop(block(), w.next, QPN);
		publishes();
		assert_int_equal(takes().index, (uint16_t)(w.next - 1));
	}
	no_mistakes();
}

static void nothing_is_taken_beyond_the_record(void **state)
{
	(void)state;
	for (unsigned int i = 0; i < 3; i++, w.next++)
		ha_wqe_nop(block(), w.next, QPN);
	w.record = ha_wqe_record(2);
	rings();
	assert_int_equal(takes().index, 0);
	assert_int_equal(takes().index, 1);
	finds_none(1);
	no_mistakes();
}

/* The request's bytes come after the doorbell that is for them. */
static void a_missing_barrier_is_found_out(void **state)
{
	struct sv_direct_work work;

	(void)state;
	for (unsigned int i = 0; i < COUNT; i++) {
		ha_wqe_nop(block(), w.next, QPN);
		publishes();
		takes();
	}
	w.next++; /* of this lap nothing is there */
	w.record = ha_wqe_record(w.next);
	w.doorbell = ha_wqe_head(w.next - 1, HA_WQE_NOP, QPN, 1);
	sv_direct_look(&w.sq, 1);
	assert_int_equal(sv_direct_take(&w.sq, &work), SV_DIRECT_BAD);
	assert_int_equal(work.index, COUNT);
	assert_int_equal(w.mistakes.stale, 1);
}

static void a_missing_record_is_found_out(void **state)
{
	(void)state;
	ha_wqe_nop(block(), w.next, QPN);
	w.next++;
	rings();
	finds_none(1);
	assert_int_equal(w.mistakes.without_record, 1);
}

/* The next request's record is there when this one's doorbell is seen; its own doorbell says
 * nothing new. */
static void a_record_may_run_ahead_of_its_doorbell(void **state)
{
	(void)state;
	ha_wqe_nop(block(), w.next, QPN);
	publishes();
	ha_wqe_nop(block(), w.next, QPN);
	w.record = ha_wqe_record(++w.next);
	assert_int_equal(takes().index, 0);
	rings();
	assert_int_equal(takes().index, 1);
	finds_none(1);
	no_mistakes();
}

static void a_missing_doorbell_is_found_out(void **state)
{
	(void)state;
	ha_wqe_nop(block(), w.next, QPN);
	w.record = ha_wqe_record(++w.next);
	finds_none(1);
	finds_none(SV_DIRECT_LATE_NS);
	assert_int_equal(w.mistakes.without_doorbell, 0);
	finds_none(SV_DIRECT_LATE_NS + 1);
	assert_int_equal(w.mistakes.without_doorbell, 1);
	rings();
	assert_int_equal(takes().index, 0);
}

/* A program that does not look whose an entry is takes one of the lap before for its own. */
static void a_missing_owner_check_is_found_out(void **state)
{
	(void)state;
	for (uint16_t n = 0; n < 1u << LOG; n++)
		sv_direct_complete(&w.cq, QPN, n, 0);
	for (uint64_t n = 0; n < 1u << LOG; n++) {
		assert_int_equal(ha_cqe_read(w.entries, LOG, n).index, n);
		assert_int_equal(ha_cqe_read(w.entries, LOG, n + (1u << LOG)).kind, HA_CQE_NOT_YET);
	}
	no_mistakes();
	/* It has said of none that it took it. */
	sv_direct_complete(&w.cq, QPN, 4, 0);
	assert_int_equal(w.mistakes.overrun, 1);
	w.taken = ha_wqe_be32(4);
	sv_direct_complete(&w.cq, QPN, 5, 0);
	assert_int_equal(w.mistakes.overrun, 1);
}

static void what_is_none_is_an_error_of_its_own(void **state)
{
	struct sv_direct_work work;

	(void)state;
	ha_wqe_nop(block(), w.next, QPN + 1); /* of another queue pair */
	w.record = ha_wqe_record(++w.next);
	w.doorbell = ha_wqe_head(0, HA_WQE_NOP, QPN, 1);
	sv_direct_look(&w.sq, 1);
	assert_int_equal(sv_direct_take(&w.sq, &work), SV_DIRECT_BAD);
	ha_wqe_control(block(), w.next, HA_WQE_READ, QPN, 4, 0); /* too long for what it is */
	publishes();
	sv_direct_look(&w.sq, 1);
	assert_int_equal(sv_direct_take(&w.sq, &work), SV_DIRECT_BAD);
	assert_int_equal(work.index, 1);
	assert_int_equal(w.mistakes.malformed, 2);
	w.doorbell = ha_wqe_head(1, HA_WQE_NOP, QPN + 1, 1); /* rung for another one */
	finds_none(1);
	assert_int_equal(w.mistakes.malformed, 3);
}

/* Its register is another one's now. It is no mistake, and it may have been written over a doorbell
 * of that one. */
static void a_doorbell_of_a_queue_pair_that_had_the_register_before_is_late(void **state)
{
	const uint32_t before[SV_DIRECT_BEFORE] = {QPN + 1};
	struct sv_direct_work work;

	(void)state;
	w.sq.before = before;
	w.doorbell = ha_wqe_head(7, HA_WQE_NOP, QPN + 1, 1);
	finds_none(1);
	ha_wqe_nop(block(), w.next, QPN);
	w.record = ha_wqe_record(++w.next);
	w.doorbell = ha_wqe_head(8, HA_WQE_NOP, QPN + 1, 1);
	sv_direct_look(&w.sq, 1);
	assert_int_equal(sv_direct_take(&w.sq, &work), SV_DIRECT_WORK);
	assert_int_equal(w.mistakes.malformed + w.mistakes.without_record, 0);
	w.doorbell = ha_wqe_head(1, HA_WQE_NOP, QPN + 2, 1); /* which never had it */
	finds_none(1);
	assert_int_equal(w.mistakes.malformed, 1);
}

static void a_failure_and_what_is_flushed_behind_it_are_told(void **state)
{
	struct ha_cqe cqe;

	(void)state;
	sv_direct_complete(&w.cq, QPN, 0xffff, HA_CQE_RETRIES);
	sv_direct_complete(&w.cq, QPN, 0, HA_CQE_FLUSHED);
	cqe = ha_cqe_read(w.entries, LOG, 0);
	assert_int_equal(cqe.kind, HA_CQE_FAILED);
	assert_int_equal(cqe.syndrome, HA_CQE_RETRIES);
	assert_int_equal(cqe.index, 0xffff);
	assert_int_equal(ha_cqe_read(w.entries, LOG, 1).syndrome, HA_CQE_FLUSHED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup(what_is_written_arrives_as_it_was_meant, setup),
	    cmocka_unit_test_setup(indices_wrap, setup),
	    cmocka_unit_test_setup(nothing_is_taken_beyond_the_record, setup),
	    cmocka_unit_test_setup(a_missing_barrier_is_found_out, setup),
	    cmocka_unit_test_setup(a_missing_record_is_found_out, setup),
	    cmocka_unit_test_setup(a_record_may_run_ahead_of_its_doorbell, setup),
	    cmocka_unit_test_setup(a_missing_doorbell_is_found_out, setup),
	    cmocka_unit_test_setup(a_missing_owner_check_is_found_out, setup),
	    cmocka_unit_test_setup(what_is_none_is_an_error_of_its_own, setup),
	    cmocka_unit_test_setup(a_doorbell_of_a_queue_pair_that_had_the_register_before_is_late,
				   setup),
	    cmocka_unit_test_setup(a_failure_and_what_is_flushed_behind_it_are_told, setup),
	};

	return cmocka_run_group_tests_name("ibgda_direct", tests, NULL, NULL);
}
