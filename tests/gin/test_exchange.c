/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How both ends of a stream come to its next epoch, rule by rule as tests/model/oneside.pml has
 * them: a rank of a group whose other rank is the test's, which says what it likes.
 */
#include "hostile_rank.h"

#include "base/clock.h"
#include "memory/mr.h"
#include "transport/labels.h"

#include <string.h>

#define PAGE	 4096
#define PUT_SIZE 64
#define LIMIT_MS 400 /* less than the outage that a group lives through */

static const struct ha_gin_depth depth = {
    .sends = 64, .recvs = 2 * HA_GIN_WINDOW, .max_inline = sizeof(struct ha_gin_record)};

/* Rank 1's memory. */
static _Alignas(PAGE) struct {
	uint8_t data[SIZE];
	struct ha_gin_record ring[HA_GIN_WINDOW];
	uint64_t told;
} mine;

static struct {
	struct ha_mr *mr;
	struct ha_gin_qp to, from; /* its ends of the streams to rank 0, and from it */
	/* By what is said: the last one, and how many there were. */
	struct ha_gin_message last[HA_GIN_SUSPECT + 1];
	unsigned int times[HA_GIN_SUSPECT + 1];
} run;

static void heard(const struct ha_gin_message *message)
{
	if (message->say > HA_GIN_SUSPECT)
		return;
	run.last[message->say] = *message;
	run.times[message->say]++;
}

static void pass(unsigned int ms)
{
	const uint64_t until_ns = sv_stepped_now() + ms * HA_NS_PER_MS;

	while (sv_stepped_now() < until_ns)
		hostile_turn();
}

/* Whether that is heard, of that epoch, in time. */
static bool hears(enum ha_gin_say what, uint32_t epoch)
{
	const uint64_t until_ns = sv_stepped_now() + LIMIT_MS * HA_NS_PER_MS;

	while (sv_stepped_now() < until_ns) {
		if (run.times[what] && run.last[what].epoch == epoch)
			return true;
		hostile_turn();
	}
	return false;
}

static void say(enum ha_gin_say what, uint32_t epoch)
{
	const struct ha_gin_message message = {.say = what, .epoch = epoch};

	hostile_say(&message, 1);
}

static void begin(void)
{
	const struct ha_gin_message hello = {.say = HA_GIN_HELLO, .hello = {1, RANKS}};

	memset(&run, 0, sizeof(run));
	memset(&mine, 0, sizeof(mine));
	hostile_begin(heard, false);
	sv_stepped_set_host(1);
	assert_int_equal(ha_mr_register(hostile.pair.inst[1]->devices,
					ha_instance_port(hostile.pair.inst[1], 0)->nic, &mine,
					sizeof(mine), HA_MEM_HOST, 0, -1, &run.mr),
			 HA_OK);
	hostile_say(&hello, 1);
	assert_true(hears(HA_GIN_OFFER, 0));
}

static void end(void)
{
	sv_stepped_set_host(1);
	(void)ha_gin_qp_close(&run.to);
	(void)ha_gin_qp_close(&run.from);
	ha_mr_deregister(run.mr);
	hostile_end();
}

/* ---- as a receiver -------------------------------------------------------------------------- */

static uint32_t rkey_on(const struct ha_port *port)
{
	struct ibv_mr *mr;

	assert_int_equal(ha_mr_on(run.mr, port->nic, &mr), HA_OK);
	return mr->rkey;
}

static void make_end(struct ha_gin_qp *qp, struct ha_comm *comm, struct ha_gin_path_name *name)
{
	struct ha_port *port;

	sv_stepped_set_host(1);
	(void)ha_gin_qp_close(qp);
	assert_true(ha_gin_path_now(comm, &port, name));
	assert_int_equal(ha_gin_qp_open(qp, port, &depth), HA_OK);
}

static void say_regions(uint32_t epoch, uint32_t wrong)
{
	struct ha_gin_message region = {.say = HA_GIN_REGION, .epoch = epoch};

	region.region.base = (uintptr_t)mine.data;
	region.region.size = SIZE;
	region.region.rkey = rkey_on(run.from.port) + wrong;
	for (region.number = 0; region.number < 2; region.number++)
		hostile_say(&region, 0);
}

/* Of a path whose name is that of the connection's, or of another generation. */
static void offer(uint32_t epoch, uint64_t counted, uint32_t generation)
{
	struct ha_gin_message offer = {.say = HA_GIN_OFFER, .epoch = epoch};

	make_end(&run.from, hostile.in.comm, &offer.offer.path);
	for (unsigned int i = 0; i < HA_GIN_WINDOW; i++)
		assert_true(ha_gin_qp_recv(&run.from));
	ha_gin_qp_address(&run.from, &offer.offer.address);
	offer.offer.path.generation += generation;
	offer.offer.verdict = (struct ha_gin_verdict){counted, counted};
	offer.offer.ring = (uintptr_t)mine.ring;
	offer.offer.ring_rkey = rkey_on(run.from.port);
	say_regions(epoch, 0);
	hostile_say(&offer, 0);
}

static void connect_end(void)
{
	sv_stepped_set_host(1);
	assert_int_equal(ha_gin_qp_connect(&run.from, &run.last[HA_GIN_ANSWER].answer.address),
			 HA_OK);
}

static void run_epoch(uint32_t epoch, uint64_t counted)
{
	offer(epoch, counted, 0);
	assert_true(hears(HA_GIN_ANSWER, epoch));
	connect_end();
	say(HA_GIN_READY, epoch);
}

static struct ha_gin_request *put(void)
{
	const struct ha_gin_put put = {
	    .from = hostile.memory, .to = hostile.memory, .size = PUT_SIZE};
	struct ha_gin_request *request;

	sv_stepped_set_host(0);
	assert_int_equal(ha_gin_put(hostile.group, 1, &put, &request), HA_OK);
	return request;
}

static unsigned int arrived(void)
{
	unsigned int count = 0;
	struct ibv_wc wc;

	sv_stepped_set_host(1);
	while (ha_gin_qp_poll(&run.from, &wc))
		count += ha_gin_wr_what(wc.wr_id) == HA_GIN_WR_RECV;
	return count;
}

/* ---- as a sender ---------------------------------------------------------------------------- */

static void answer(uint32_t epoch)
{
	struct ha_gin_message answer = {.say = HA_GIN_ANSWER, .epoch = epoch};
	struct ha_gin_path_name name;

	make_end(&run.to, hostile.out.comm, &name);
	assert_int_equal(ha_gin_qp_connect(&run.to, &run.last[HA_GIN_OFFER].offer.address), HA_OK);
	ha_gin_qp_address(&run.to, &answer.answer.address);
	answer.answer.told = (uintptr_t)&mine.told;
	answer.answer.told_rkey = rkey_on(run.to.port);
	hostile_say(&answer, 1);
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void nothing_is_posted_before_the_receiver_is_ready(void **state)
{
	(void)state;
	begin();
	offer(0, 0, 0);
	assert_true(hears(HA_GIN_ANSWER, 0));
	connect_end();
	put();
	pass(20);
	assert_int_equal(arrived(), 0);
	say(HA_GIN_READY, 0);
	pass(20);
	assert_int_equal(arrived(), 1);
	end();
}

static void an_offer_ends_the_epoch_that_the_sender_is_in(void **state)
{
	(void)state;
	begin();
	run_epoch(0, 0);
	put();
	pass(20);
	assert_int_equal(arrived(), 1);
	run_epoch(1, 1);
	put();
	pass(20);
	assert_int_equal(arrived(), 1);
	end();
}

/* What was not counted is written again. */
static void of_two_offers_the_later_one_counts(void **state)
{
	(void)state;
	begin();
	run_epoch(0, 0);
	offer(1, 0, 0);
	offer(2, 0, 0);
	put();
	assert_true(hears(HA_GIN_ANSWER, 2));
	connect_end();
	say(HA_GIN_READY, 2);
	pass(20);
	assert_int_equal(arrived(), 1);
	end();
}

static void a_path_that_is_not_there_is_refused(void **state)
{
	(void)state;
	begin();
	offer(0, 0, 7);
	assert_true(hears(HA_GIN_SUSPECT, 0));
	assert_int_equal(run.times[HA_GIN_ANSWER], 0);
	run_epoch(1, 0);
	put();
	pass(20);
	assert_int_equal(arrived(), 1);
	end();
}

static void a_sender_that_has_failed_says_so(void **state)
{
	(void)state;
	begin();
	run_epoch(0, 0);
	say_regions(0, 7); /* a key of nothing: its NIC is refused */
	pass(20);
	put();
	assert_true(hears(HA_GIN_SUSPECT, 0));
	end();
}

static void an_answer_to_an_older_offer_is_late(void **state)
{
	(void)state;
	begin();
	say(HA_GIN_SUSPECT, 0);
	assert_true(hears(HA_GIN_OFFER, 1));
	answer(0);
	pass(20);
	assert_int_equal(run.times[HA_GIN_READY], 0);
	answer(1);
	assert_true(hears(HA_GIN_READY, 1));
	end();
}

static void a_suspicion_of_an_older_epoch_is_late(void **state)
{
	(void)state;
	begin();
	say(HA_GIN_SUSPECT, 0);
	assert_true(hears(HA_GIN_OFFER, 1));
	answer(1);
	assert_true(hears(HA_GIN_READY, 1));
	say(HA_GIN_SUSPECT, 0);
	pass(50);
	assert_int_equal(run.times[HA_GIN_OFFER], 2);
	assert_int_equal(hostile.error, HA_OK);
	end();
}

/* Where another rank's records may lie: on the pages beside. */
static void a_rank_has_no_key_of_what_others_say(void **state)
{
	static const int beside[] = {-(int)sizeof(struct ha_gin_record), -PAGE, PAGE};
	const struct ha_gin_record forged = {.addend = 1};

	(void)state;
	for (unsigned int i = 0; i < sizeof(beside) / sizeof(beside[0]); i++) {
		struct ibv_sge sge = {(uintptr_t)&forged, sizeof(forged), 0};
		struct ibv_send_wr wr = {.sg_list = &sge,
					 .num_sge = 1,
					 .opcode = IBV_WR_RDMA_WRITE,
					 .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE};
		struct ibv_wc wc;

		begin();
		answer(0);
		wr.wr.rdma.remote_addr =
		    run.last[HA_GIN_OFFER].offer.ring + (uint64_t)(int64_t)beside[i];
		wr.wr.rdma.rkey = run.last[HA_GIN_OFFER].offer.ring_rkey;
		assert_true(hears(HA_GIN_READY, 0));
		sv_stepped_set_host(1);
		assert_true(ha_gin_qp_send(&run.to, &wr));
		pass(20);
		sv_stepped_set_host(1);
		assert_false(ha_gin_qp_poll(&run.to, &wc));
		assert_string_equal(run.to.fault, ibv_wc_status_str(IBV_WC_REM_ACCESS_ERR));
		end();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(nothing_is_posted_before_the_receiver_is_ready),
	    cmocka_unit_test(an_offer_ends_the_epoch_that_the_sender_is_in),
	    cmocka_unit_test(of_two_offers_the_later_one_counts),
	    cmocka_unit_test(a_path_that_is_not_there_is_refused),
	    cmocka_unit_test(a_sender_that_has_failed_says_so),
	    cmocka_unit_test(an_answer_to_an_older_offer_is_late),
	    cmocka_unit_test(a_suspicion_of_an_older_epoch_is_late),
	    cmocka_unit_test(a_rank_has_no_key_of_what_others_say),
	};

	return cmocka_run_group_tests_name("gin_exchange", tests, NULL, NULL);
}
