/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In builds for tests (HA_INVARIANTS) a state that must never be ends the process at the next
 * visit, with a line that names it. Each case spoils one thing of a connection that is well, in a
 * process of its own.
 */
#include "world.h"

#include "../unit/cmocka_all.h"

#include "failover/engine.h"
#include "liveness/session.h"
#include "transport/recv.h"
#include "transport/send.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define STEPS	1000
#define LIMIT_S 10

static struct world world;

static struct ha_comm *sender(void)
{
	return world.connections[0].send.comm;
}

static struct ha_comm *receiver(void)
{
	return world.connections[0].recv.comm;
}

static struct ha_path *in_reserve(struct ha_comm *comm)
{
	return comm->paths[!comm->active];
}

/* ---- what is spoilt -------------------------------------------------------------------------- */

static void window_not_at_rest(void)
{
	sender()->send->completed.bits |= 1;
}

static void request_counted_twice(void)
{
	receiver()->outstanding++;
}

static void delivered_before_it_was_sent(void)
{
	sender()->send->delivered = sender()->send->match_seq + 1;
}

static void expected_before_it_began(void)
{
	struct ha_recv_side *r = receiver()->recv;

	r->slots[(r->next_seq + 1) & receiver()->slot_mask].expect = 1;
}

static void label_of_another_generation(void)
{
	in_reserve(sender())->label ^= 1;
}

static void more_posted_than_the_queue_holds(void)
{
	struct ha_qp *qp = &in_reserve(sender())->qps[0];

	qp->sq_posted = qp->sq_done + qp->sq_depth + 1;
}

static void clear_path_that_is_not_active(void)
{
	receiver()->clear = in_reserve(receiver());
}

static void state_of_the_other_end(void)
{
	sender()->failover->state = HA_FO_FENCING;
}

static void traffic_ahead_of_the_protocol(void)
{
	atomic_fetch_add(&receiver()->epoch, 1);
}

static void fenced_before_it_was_to_be(void)
{
	sender()->failover->slots[0].fenced_gen = sender()->failover->slots[0].want_gen + 1;
}

static void watermark_that_goes_back(void)
{
	receiver()->failover->slots[0].newest_gen--;
}

static void path_that_is_used_and_retired(void)
{
	receiver()->failover->retired = in_reserve(receiver());
}

static void slot_that_forgets_its_path(void)
{
	receiver()->failover->slots[!receiver()->active].state = HA_SLOT_EMPTY;
}

static void words_of_the_other_end(void)
{
	sender()->failover->repeat |= HA_SAY_REBUILD;
}

static void more_answers_than_pings(void)
{
	struct ha_session *session = receiver()->failover->links[0].live.session;

	session->pongs = session->pings + STEPS;
}

static void poller_that_found_nothing_there_is(void)
{
	sender()->poller.found = HA_POLL_RESULTS;
}

/* ---- and what is said of it ------------------------------------------------------------------ */

static const struct spoilt {
	const char *name;
	void (*spoil)(void);
	const char *said;
} all[] = {
    {"window", window_not_at_rest, "!(w->bits & 1)"},
    {"outstanding", request_counted_twice, "comm->outstanding == waiting + r->flushes"},
    {"delivered", delivered_before_it_was_sent, "s->delivered <= s->match_seq"},
    {"expected", expected_before_it_began, "slot->expect == HA_IMM_NEVER"},
    {"label", label_of_another_generation, "path->label =="},
    {"queue", more_posted_than_the_queue_holds, "<= qp->sq_depth"},
    {"clear path", clear_path_that_is_not_active, "comm->clear == ha_comm_path(comm)"},
    {"state", state_of_the_other_end, "fo->state != HA_FO_FENCING"},
    {"epoch", traffic_ahead_of_the_protocol, "ha_comm_traffic_epoch(comm)"},
    {"fenced", fenced_before_it_was_to_be, "slot->fenced_gen <= slot->want_gen"},
    {"watermark", watermark_that_goes_back, "seen->newest_gen"},
    {"retired", path_that_is_used_and_retired, "path"},
    {"slot", slot_that_forgets_its_path, "!path || ha_path_stopped(path)"},
    {"words", words_of_the_other_end, "fo->repeat &"},
    {"session", more_answers_than_pings, "s->pongs <= s->pings"},
    {"poller", poller_that_found_nothing_there_is, "poller->found < HA_POLL_RESULTS"},
};

static void open_world(void)
{
	const struct world_options options = {.scenario = scenario_find("window")};

	world_open(&world, &options);
	for (unsigned i = 0; !world_protected(&world); i++) {
		assert_true(i < 100 * STEPS);
		world_step(&world);
	}
}

/* A process that goes on with what `spoil` leaves; NULL: with nothing spoilt. What it says. */
static int play(void (*spoil)(void), char *said, size_t size)
{
	int fds[2], status;
	ssize_t n, length = 0;
	pid_t child;

	assert_int_equal(pipe(fds), 0);
	fflush(NULL);
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		signal(SIGABRT, SIG_DFL); /* cmocka's would go on with the next test */
		alarm(LIMIT_S);		  /* what is spoilt may go on for ever */
		dup2(fds[1], STDERR_FILENO);
		close(fds[1]);
		close(fds[0]);
		if (spoil)
			spoil();
		for (unsigned i = 0; i < STEPS; i++)
			world_step(&world);
		_exit(0);
	}
	close(fds[1]);
	while ((n = read(fds[0], said + length, size - 1 - (size_t)length)) > 0)
		length += n;
	said[length] = '\0';
	close(fds[0]);
	assert_int_equal(waitpid(child, &status, 0), child);
	return status;
}

static void what_must_never_be_ends_the_process_and_is_named(void **state)
{
	char said[4096];

	(void)state;
	open_world();
	for (unsigned i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		int status = play(all[i].spoil, said, sizeof(said));

		if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT)
			fail_msg("%s: goes on: %s", all[i].name, said);
		if (!strstr(said, "this must be, and is not") || !strstr(said, all[i].said))
			fail_msg("%s: says %s", all[i].name, said);
	}
}

static void what_is_well_goes_on(void **state)
{
	char said[4096];
	int status;

	(void)state;
	open_world();
	status = play(NULL, said, sizeof(said));
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	assert_null(strstr(said, "this must be"));
}

static int close_world(void **state)
{
	char violation[256] = "";

	(void)state;
	world_close(&world, violation, sizeof(violation));
	world_free(&world);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_teardown(what_must_never_be_ends_the_process_and_is_named,
				      close_world),
	    cmocka_unit_test_teardown(what_is_well_goes_on, close_world),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
