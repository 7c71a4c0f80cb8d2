/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rules with wait=: every command to the kernel can be made to take its time, in virtual time, and
 * holds up nobody else meanwhile.
 */
#include "verb_calls.h"
#include "world.h"

#include <pthread.h>
#include <semaphore.h>

#define MS 1000000ull
#define S  (1000 * MS)

static int call(const struct end *e, const char *verb)
{
	const struct verb_target target = target_of(e);

	return verb_call_named(verb)->call(&target);
}

/* How far a call moves the clock. */
static uint64_t time_of(const struct end *e, const char *verb)
{
	uint64_t since_ns = sv_stepped_now();

	assert_int_equal(call(e, verb), 0);
	return sv_stepped_now() - since_ns;
}

/* A whole world for the teardown, of which this test has destroyed parts. */
static void start_anew(struct world *w)
{
	free(w->a.buf);
	free(w->b.buf);
	world_open(w, NULL);
}

/* ---------------------------------------------------------------- which verb, how long */

static void test_each_command_waits(void **state)
{
	struct world *w = *state;
	char rule[80];

	for (size_t i = 0; i < num_verb_calls; i++) {
		const char *verb = verb_calls[i].name;
		int id;

		snprintf(rule, sizeof(rule), "wait=7ms verb=%s host=0 rail=0 count=1", verb);
		id = add_rule(rule);
		assert_int_equal(time_of(&w->b, verb), 0);
		assert_int_equal(fired(id), 0);
		if (time_of(&w->a, verb) != 7 * MS || fired(id) != 1)
			fail_msg("%s: did not wait once", verb);
		assert_int_equal(sv_stepped_waited_ns(), 7 * MS);
		assert_int_equal(sv_stepped_waited_ns(), 0);
		assert_int_equal(time_of(&w->a, verb), 0);
		assert_int_equal(fired(id), 1);
		assert_int_equal(sv_stepped_fault_remove(-1), 0);
	}
}

/* modify_qp means all of them, a state's name those to that state; what both mean waits twice. */
static void test_states_of_modify_qp(void **state)
{
	struct ibv_qp_attr attr = {.min_rnr_timer = 9};
	struct world *w = *state;
	int all = add_rule("wait=1ms verb=modify_qp"), rtr;

	assert_int_equal(time_of(&w->a, "sqd"), 4 * MS); /* INIT, RTR, RTS, SQD */
	assert_int_equal(fired(all), 4);
	assert_int_equal(ibv_modify_qp(w->a.qp, &attr, IBV_QP_MIN_RNR_TIMER), 0);
	assert_int_equal(fired(all), 5);
	rtr = add_rule("wait=10ms verb=rtr");
	assert_int_equal(time_of(&w->a, "rts"), 13 * MS);
	assert_int_equal(fired(all), 8);
	assert_int_equal(fired(rtr), 1);
	assert_int_equal(to_state(w->a.qp, IBV_QPS_ERR), 0);
	assert_int_equal(fired(rtr), 1);
	assert_int_equal(to_state(w->a.qp, IBV_QPS_SQE), EINVAL); /* nobody can ask for that */
	assert_int_equal(fired(all), 10);
}

static void test_only_from_a_time_on(void **state)
{
	struct world *w = *state;
	int id = add_rule("wait=20s verb=modify_qp host=0 rail=0 at=1.5s");

	assert_int_equal(time_of(&w->a, "init"), 0);
	sv_stepped_run(1500 * MS);
	assert_int_equal(time_of(&w->b, "init"), 0);
	assert_int_equal(fired(id), 0);
	assert_int_equal(time_of(&w->a, "init"), 20 * S);
	assert_int_equal(fired(id), 1);
}

static void test_fails_in_the_end(void **state)
{
	struct world *w = *state;
	uint64_t since_ns = sv_stepped_now();

	add_rule("wait=3s verb=create_ah");
	add_rule("errno=ETIMEDOUT verb=create_ah");
	assert_int_equal(call(&w->a, "create_ah"), ETIMEDOUT);
	assert_int_equal(sv_stepped_now() - since_ns, 3 * S);
}

/* ---------------------------------------------------------------- meanwhile */

static void test_what_is_due_meanwhile_happens(void **state)
{
	struct world *w = *state;
	uint64_t index = sv_stepped_index();

	memset(w->a.buf, 0x3c, 100);
	add_rule("wait=2ms verb=reg_mr\n"
		 "event=LID_CHANGE host=1 rail=0 at=1ms\n"
		 "event=GID_CHANGE host=1 rail=0 at=3ms");
	assert_int_equal(post(&w->a, IBV_WR_RDMA_WRITE, 1, 0, 100, &w->b, 0), 0);
	assert_int_equal(time_of(&w->a, "reg_mr"), 2 * MS);
	assert_int_equal(sv_stepped_index() - index, 3); /* the write, its ack, one event */
	expect_wc(&w->a, 1, IBV_WC_SUCCESS);
	assert_int_equal(w->b.buf[99], 0x3c);
	expect_event(w->b.ctx, IBV_EVENT_LID_CHANGE);
	expect_no_event(w->b.ctx);
	settle();
	expect_event(w->b.ctx, IBV_EVENT_GID_CHANGE);
}

/* The queue pair works until the command that ends it does. */
static void test_the_effect_comes_after_the_wait(void **state)
{
	struct world *w = *state;

	add_rule("wait=1ms verb=err");
	assert_int_equal(post(&w->a, IBV_WR_RDMA_WRITE, 1, 0, 100, &w->b, 0), 0);
	assert_int_equal(to_state(w->a.qp, IBV_QPS_ERR), 0);
	expect_wc(&w->a, 1, IBV_WC_SUCCESS);
	assert_int_equal(post(&w->a, IBV_WR_RDMA_WRITE, 2, 0, 100, &w->b, 0), 0);
	expect_wc(&w->a, 2, IBV_WC_WR_FLUSH_ERR);
}

/* A device that dies answers all commands that it has; what gives something back succeeds. */
static void test_a_device_that_dies_ends_the_wait(void **state)
{
	struct world *w = *state;

	add_rule("wait=30s verb=modify_qp\nwait=30s verb=destroy_qp");
	add_rule("kill host=0 rail=0 at=3ms");
	assert_int_equal(to_state(w->a.qp, IBV_QPS_ERR), EIO);
	assert_int_equal(sv_stepped_now(), 3 * MS);
	assert_int_equal(sv_stepped_waited_ns(), 3 * MS);
	add_rule("kill host=1 rail=0 at=5ms");
	assert_int_equal(ibv_destroy_qp(w->b.qp), 0);
	assert_int_equal(sv_stepped_now(), 5 * MS);
	expect_event(w->b.ctx, IBV_EVENT_DEVICE_FATAL);
	/* Afterwards nothing of it waits. */
	assert_int_equal(ibv_destroy_qp(w->a.qp), 0);
	assert_int_equal(sv_stepped_now(), 5 * MS);
	start_anew(w);
}

static void test_nor_is_it_opened(void **state)
{
	struct world *w = *state;

	add_rule("wait=30s verb=open_device\nkill host=0 rail=0 at=2ms");
	assert_int_equal(call(&w->a, "open_device"), EIO);
	assert_int_equal(sv_stepped_now(), 2 * MS);
	start_anew(w);
}

/* Wedged hard it does not flush, and taking it away takes half a minute: then it is gone. */
static void test_a_wedged_queue_pair_is_destroyed_late(void **state)
{
	struct world *w = *state;
	uint64_t since_ns;
	int id;

	assert_true(sv_stepped_wedge(0, 0, w->a.qp->qp_num, true));
	assert_int_equal(post(&w->a, IBV_WR_RDMA_WRITE, 1, 0, 100, &w->b, 0), 0);
	assert_int_equal(to_state(w->a.qp, IBV_QPS_ERR), 0);
	expect_no_wc(&w->a);
	id = add_rule("wait=30s verb=destroy_qp host=0 rail=0");
	assert_int_equal(post(&w->b, IBV_WR_RDMA_WRITE, 2, 0, 100, &w->a, 0), 0);
	since_ns = sv_stepped_now();
	assert_int_equal(ibv_destroy_qp(w->a.qp), 0);
	assert_int_equal(sv_stepped_now() - since_ns, 30 * S);
	assert_int_equal(fired(id), 1);
	expect_no_wc(&w->a);
	expect_wc(&w->b, 2, IBV_WC_RETRY_EXC_ERR); /* its timers ran meanwhile */
	start_anew(w);
}

/* ---------------------------------------------------------------- accumulated */

static void *ask_how_long(void *arg)
{
	*(uint64_t *)arg = sv_stepped_waited_ns();
	return NULL;
}

static void test_accumulated(void **state)
{
	struct world *w = *state;
	uint64_t of_another = 1;
	pthread_t thread;

	sv_stepped_set_wait(SV_WAIT_ACCUMULATE);
	add_rule("wait=1ms verb=modify_qp\nwait=5ms verb=create_qp");
	assert_int_equal(post(&w->a, IBV_WR_RDMA_WRITE, 1, 0, 100, &w->b, 0), 0);
	assert_int_equal(time_of(&w->a, "rts"), 0);
	expect_no_wc(&w->a);
	assert_int_equal(pthread_create(&thread, NULL, ask_how_long, &of_another), 0);
	pthread_join(thread, NULL);
	assert_int_equal(of_another, 0);
	assert_int_equal(sv_stepped_waited_ns(), 8 * MS);
	assert_int_equal(sv_stepped_waited_ns(), 0);
	/* At once, though it counts as having waited. */
	assert_int_equal(to_state(w->a.qp, IBV_QPS_ERR), 0);
	expect_wc(&w->a, 1, IBV_WC_WR_FLUSH_ERR);
	sv_stepped_set_wait(SV_WAIT_ADVANCE);
	assert_int_equal(time_of(&w->a, "create_qp"), 5 * MS);
	assert_int_equal(sv_stepped_waited_ns(), 6 * MS);
	/* Of another fabric. */
	assert_int_equal(time_of(&w->a, "create_qp"), 5 * MS);
	world_close(w);
	world_open(w, NULL);
	assert_int_equal(sv_stepped_waited_ns(), 0);
}

/*
 * A command queue per device, in one thread: a command runs when its turn comes and is completed in
 * virtual time, beside everything else.
 */
struct command {
	const struct end *end;
	const char *verb;
	uint64_t done_at_ns;
};

static void run_command(struct command *c)
{
	assert_int_equal(call(c->end, c->verb), 0);
	c->done_at_ns = sv_stepped_now() + sv_stepped_waited_ns();
}

static void test_commands_as_events(void **state)
{
	struct world *w = *state;
	struct command slow = {&w->a, "rts", 0}, quick = {&w->b, "rts", 0};

	sv_stepped_set_wait(SV_WAIT_ACCUMULATE);
	add_rule("wait=20s verb=rtr host=0\nwait=1ms verb=rtr host=1");
	run_command(&slow);
	run_command(&quick);
	assert_int_equal(sv_stepped_now(), 0);
	assert_int_equal(quick.done_at_ns, 1 * MS);
	assert_int_equal(slow.done_at_ns, 20 * S);
	assert_int_equal(post(&w->a, IBV_WR_RDMA_WRITE, 1, 0, 100, &w->b, 0), 0);
	sv_stepped_run(quick.done_at_ns);
	expect_wc(&w->a, 1, IBV_WC_SUCCESS);
	sv_stepped_run(slow.done_at_ns);
	assert_int_equal(sv_stepped_now(), 20 * S);
}

/* ---------------------------------------------------------------- handed to the test */

struct hook {
	struct sv_wait_info last;
	char verb[20];
	struct ibv_qp *qp;
	enum ibv_qp_state qp_state;
	unsigned calls;
};

static void note_wait(const struct sv_wait_info *info, void *arg)
{
	struct hook *hook = arg;

	hook->last = *info;
	snprintf(hook->verb, sizeof(hook->verb), "%s", info->verb);
	hook->qp_state = state_of(hook->qp);
	hook->calls++;
}

static void test_handed_over(void **state)
{
	struct world *w = *state;
	struct hook hook = {.qp = w->b.qp};

	add_rule("wait=1s verb=err host=1");
	sv_stepped_on_wait(note_wait, &hook);
	assert_int_equal(to_state(w->a.qp, IBV_QPS_ERR), 0);
	assert_int_equal(hook.calls, 0);
	assert_int_equal(to_state(w->b.qp, IBV_QPS_ERR), 0);
	assert_int_equal(hook.calls, 1);
	assert_string_equal(hook.verb, "err");
	assert_int_equal(hook.last.host, 1);
	assert_int_equal(hook.last.rail, 0);
	assert_int_equal(hook.last.wait_ns, 1 * S);
	assert_int_equal(hook.qp_state, IBV_QPS_RTS); /* not yet */
	assert_int_equal(state_of(w->b.qp), IBV_QPS_ERR);
	assert_int_equal(sv_stepped_now(), 0);
	assert_int_equal(sv_stepped_waited_ns(), 1 * S);
	sv_stepped_on_wait(NULL, NULL);
	assert_int_equal(to_state(w->b.qp, IBV_QPS_ERR), 0);
	assert_int_equal(hook.calls, 1);
	assert_int_equal(sv_stepped_now(), 1 * S);
}

/* ---------------------------------------------------------------- no lock is held */

struct stuck {
	const struct verb_call *call;
	struct verb_target target;
	sem_t waits, go;
	int err;
};

static void wait_for_the_test(const struct sv_wait_info *info, void *arg)
{
	struct stuck *stuck = arg;

	(void)info;
	sem_post(&stuck->waits);
	sem_wait(&stuck->go);
}

static void *get_stuck(void *arg)
{
	struct stuck *stuck = arg;

	stuck->err = stuck->call->call(&stuck->target);
	return NULL;
}

/* The same verb elsewhere, and everything but that verb on the device: while it waits there. */
static void others_go_on(struct world *w, const struct end *elsewhere, struct stuck *stuck,
			 uint64_t id)
{
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, get_stuck, stuck), 0);
	sem_wait(&stuck->waits);
	assert_int_equal(call(elsewhere, stuck->call->name), 0);
	assert_int_equal(call(&w->b, stuck->call->name), 0);
	for (size_t i = 0; i < num_verb_calls; i++)
		assert_int_equal(call(&w->a, verb_calls[i].name), 0);
	assert_int_equal(post_recv(&w->a, id, 0, 100), 0);
	assert_int_equal(post(&w->b, IBV_WR_SEND, id, 0, 100, NULL, 0), 0);
	assert_int_equal(post(&w->a, IBV_WR_RDMA_WRITE, id + 1, 0, 100, &w->b, 0), 0);
	settle();
	expect_wc(&w->a, id, IBV_WC_SUCCESS);
	expect_wc(&w->a, id + 1, IBV_WC_SUCCESS);
	expect_wc(&w->b, id, IBV_WC_SUCCESS);
	sem_post(&stuck->go);
	pthread_join(thread, NULL);
	assert_int_equal(stuck->err, 0);
}

static void test_no_lock_is_held(void **state)
{
	struct world *w = *state;
	struct stuck stuck;
	struct end elsewhere;
	char rule[80];

	end_open(&elsewhere, 0, 1, NULL);
	sem_init(&stuck.waits, 0, 0);
	sem_init(&stuck.go, 0, 0);
	stuck.target = target_of(&w->a);
	sv_stepped_on_wait(wait_for_the_test, &stuck);
	for (size_t i = 0; i < num_verb_calls; i++) {
		int id;

		stuck.call = &verb_calls[i];
		/* Only the thread's is hit: it is the first on that device. */
		snprintf(rule, sizeof(rule), "wait=1s verb=%s host=0 rail=0 count=1",
			 verb_calls[i].name);
		id = add_rule(rule);
		others_go_on(w, &elsewhere, &stuck, 10 * i);
		assert_int_equal(fired(id), 1);
		assert_int_equal(sv_stepped_fault_remove(-1), 0);
	}
	sv_stepped_on_wait(NULL, NULL);
	end_close(&elsewhere);
	sem_destroy(&stuck.waits);
	sem_destroy(&stuck.go);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    WORLD_TEST(test_each_command_waits),
	    WORLD_TEST(test_states_of_modify_qp),
	    WORLD_TEST(test_only_from_a_time_on),
	    WORLD_TEST(test_fails_in_the_end),
	    WORLD_TEST(test_what_is_due_meanwhile_happens),
	    WORLD_TEST(test_the_effect_comes_after_the_wait),
	    WORLD_TEST(test_a_device_that_dies_ends_the_wait),
	    WORLD_TEST(test_nor_is_it_opened),
	    WORLD_TEST(test_a_wedged_queue_pair_is_destroyed_late),
	    WORLD_TEST(test_accumulated),
	    WORLD_TEST(test_commands_as_events),
	    WORLD_TEST(test_handed_over),
	    WORLD_TEST(test_no_lock_is_held, .fabric = {.rails = 2}),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
