/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HA_NCCL_RAIL_MODE=agent with an agent that is absent, silent or wrong, or whose file is anything:
 * one WARN, messages by islands, and no connection waits for it. The fabric is stepped; the agent
 * is a stand-in.
 */
#include "../unit/eventually.h"
#include "../unit/hints/stand_in.h"
#include "by_agent.h"

#include "hints/agent_call.h"
#include "hints/hint_file.h"

#define HINT 256 /* what the file says: never what islands come to */

/* ---- who talks to the agent, and when -------------------------------------------------------- */

enum step { FIND, CALL, LOOK, STEPS };

static struct {
	pthread_t connections;	    /* the thread that everything else here is done by */
	atomic_uint by_connections; /* what it did itself */
	atomic_uint count[STEPS];
	_Atomic enum step shut; /* the client's thread stays before this one; STEPS: nowhere */
	atomic_bool waits, gave_up;
} watched;

#define SHUT_S	    20 /* long enough for everything that is not to wait for it */
#define PATIENCE_MS 20000

static void stay(enum step step)
{
	const uint64_t until_ns = ha_real_ns() + SHUT_S * HA_NS_PER_S;

	watched.waits = true;
	while (watched.shut == step && ha_real_ns() < until_ns)
		usleep(1000);
	watched.gave_up |= watched.shut == step;
	watched.waits = false;
}

static void goes_to_agent(enum step step)
{
	atomic_fetch_add(&watched.count[step], 1);
	if (pthread_equal(pthread_self(), watched.connections))
		atomic_fetch_add(&watched.by_connections, 1);
	else if (watched.shut == step)
		stay(step);
}

enum ha_agent_reply __real_ha_agent_find(const char *dir, pid_t *pid);
enum ha_agent_reply __wrap_ha_agent_find(const char *dir, pid_t *pid);
enum ha_agent_reply __wrap_ha_agent_find(const char *dir, pid_t *pid)
{
	goes_to_agent(FIND);
	return __real_ha_agent_find(dir, pid);
}

enum ha_agent_reply __real_ha_agent_call(const char *dir, const struct ha_agent_frame *request,
					 unsigned limit_ms, struct ha_agent_frame *response);
enum ha_agent_reply __wrap_ha_agent_call(const char *dir, const struct ha_agent_frame *request,
					 unsigned limit_ms, struct ha_agent_frame *response);
enum ha_agent_reply __wrap_ha_agent_call(const char *dir, const struct ha_agent_frame *request,
					 unsigned limit_ms, struct ha_agent_frame *response)
{
	/* Who answers at all may take long where a machine has much else to do. */
	const bool answers = agent.manner != MUTE && agent.manner != SLOWLY;

	goes_to_agent(CALL);
	return __real_ha_agent_call(dir, request, answers ? PATIENCE_MS : limit_ms, response);
}

enum ha_hint_file_state __real_ha_hint_file_look(struct ha_hint_file *file, const char *dir,
						 const char **why);
enum ha_hint_file_state __wrap_ha_hint_file_look(struct ha_hint_file *file, const char *dir,
						 const char **why);
enum ha_hint_file_state __wrap_ha_hint_file_look(struct ha_hint_file *file, const char *dir,
						 const char **why)
{
	goes_to_agent(LOOK);
	return __real_ha_hint_file_look(file, dir, why);
}

/* ---- a pair of hosts ------------------------------------------------------------------------- */

static void begin(void)
{
	by_agent_init(agent_dir);
	memset(watched.count, 0, sizeof(watched.count));
}

static int setup(void **state)
{
	(void)state;
	if (!make_agent())
		return -1;
	watched.connections = pthread_self();
	watched.shut = STEPS;
	watched.by_connections = 0;
	watched.gave_up = false;
	write_hint(5, HINT, SENDER, RECEIVER);
	begin();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	watched.shut = STEPS;
	ha_log_set_sink(capture_sink);
	return remove_agent();
}

/* Until it has looked so many times, and once more may have begun to. */
static void some_looks(void)
{
	const unsigned enough = watched.count[LOOK] + 2;

	EVENTUALLY(watched.count[LOOK] >= enough);
}

static void apart(void)
{
	strcpy(pair.config.island, SENDER "/32=a," RECEIVER "/32=b");
}

/* ---- nobody waits for it --------------------------------------------------------------------- */

/*
 * The thread that goes to the agent is held where it does; a connection ends, another one comes up
 * and sends, all of which would not come back if it needed that thread, or a lock that it holds.
 */
static void connections_come_and_go_while_the_agent_is_gone_to(void **state)
{
	(void)state;
	for (enum step step = FIND; step < STEPS; step++) {
		start_agent(MUTE);
		begin();
		watched.shut = step;
		pair_open(&pair);
		for (int i = 0; i < 3; i++) {
			pair_connect(&pair);
			wait_members(&pair, 2);
			assert_true(pair.send->send->flow.begun);
			assert_int_equal(over_second(), SIZE);
			EVENTUALLY(watched.waits);
			pair_disconnect(&pair);
			assert_true(watched.waits && !watched.gave_up);
		}
		watched.shut = STEPS;
		pair_close(&pair);
		stop_agent();
	}
	assert_int_equal(watched.by_connections, 0);
}

#ifdef AS_SHIPPED
/* A directory whose socket has no name that fits: there is no client. */
static void without_a_client(void)
{
	memset(pair.config.agent_dir, 'a', 200);
	pair.config.agent_dir[200] = '\0';
}

/* From listen and connect until the agent would be told of the connection, in real time. */
static uint64_t connecting_ns(void)
{
	const uint64_t since_ns = ha_real_ns();

	pair_connect(&pair);
	while (!pair.send->send->flow.begun)
		pair_step(&pair);
	return ha_real_ns() - since_ns;
}

/* The second connection of a job, while the agent is asked about the first one if it is there. */
static uint64_t second_connection_ns(bool client, bool asked)
{
	uint64_t ns;

	begin();
	if (!client)
		without_a_client();
	pair_open(&pair);
	(void)connecting_ns();
	EVENTUALLY(!asked || watched.count[CALL] >= 1);
	pair_disconnect(&pair);
	ns = connecting_ns();
	pair_close(&pair);
	return ns;
}

static uint64_t less_of(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/*
 * In turns, so that what else runs here meets both, and the least of each. An answer that is waited
 * for is a tenth of a second; more rounds are for a machine that has much else to do.
 */
static void no_connection_takes_a_millisecond_longer(const char *what, bool asked)
{
	enum { ROUNDS = 8, ROUNDS_MOST = 20 * ROUNDS };
	uint64_t without_ns = UINT64_MAX, with_ns = UINT64_MAX;

	for (int i = 0; i < ROUNDS || (i < ROUNDS_MOST && with_ns > without_ns + HA_NS_PER_MS);
	     i++) {
		without_ns = less_of(without_ns, second_connection_ns(false, false));
		with_ns = less_of(with_ns, second_connection_ns(true, asked));
	}
	print_message("%s: %.3f ms, without a client %.3f ms\n", what, (double)with_ns / 1e6,
		      (double)without_ns / 1e6);
	assert_in_range(with_ns, 1, without_ns + HA_NS_PER_MS);
}

static void no_connection_takes_a_millisecond_longer_for_a_bad_agent(void **state)
{
	static const struct {
		const char *what;
		enum manner manner;
	} agents[] = {{"silent", MUTE},
		      {"in single bytes", BY_BYTES},
		      {"in single bytes, slowly", SLOWLY},
		      {"wrong magic", WRONG_MAGIC},
		      {"no free slot", FULL}};

	(void)state;
	no_connection_takes_a_millisecond_longer("absent", false);
	for (size_t i = 0; i < sizeof(agents) / sizeof(*agents); i++) {
		start_agent(agents[i].manner);
		no_connection_takes_a_millisecond_longer(agents[i].what, true);
		stop_agent();
	}
}
#endif

/* ---- one WARN, and islands ------------------------------------------------------------------- */

/* What was wrong has been met more than once, and was said once. */
static void assert_said_once(const char *what, const char *said)
{
	if (warnings_so_far() != 1 || !has_logged(said))
		fail_msg("%s: %d warnings; the log ends:\n%s", what, warnings_so_far(),
			 captured_log + (captured_length > 600 ? captured_length - 600 : 0));
}

static void no_agent_is_one_warning_and_islands(void **state)
{
	(void)state;
	up();
	some_looks();
	assert_int_equal(over_second(), SIZE);
	assert_said_once("absent", "no agent at");
	pair_close(&pair);
}

static void a_bad_agent_is_one_warning_and_islands(void **state)
{
	static const struct {
		const char *what;
		enum manner manner;
		const char *said;
	} agents[] = {{"silent", MUTE, "does not answer"},
		      {"in single bytes, slowly", SLOWLY, "does not answer"},
		      {"wrong magic", WRONG_MAGIC, "no valid answer"},
		      {"too long", TOO_LONG, "no valid answer"},
		      {"hangs up", HANGS_UP, "no valid answer"},
		      {"no free slot", FULL, "no free slot"},
		      {"invalid", INVALID, "does not take"}};

	(void)state;
	for (size_t i = 0; i < sizeof(agents) / sizeof(*agents); i++) {
		start_agent(agents[i].manner);
		begin();
		if (i % 2 == 1)
			apart();
		up();
		EVENTUALLY(watched.count[CALL] >= 2); /* it is asked again */
		some_looks();
		assert_int_equal(over_second(), i % 2 == 1 ? 0 : SIZE);
		assert_said_once(agents[i].what, agents[i].said);
		pair_close(&pair);
		stop_agent();
	}
}

static void an_answer_in_single_bytes_is_followed(void **state)
{
	(void)state;
	start_agent(BY_BYTES);
	up();
	EVENTUALLY(over_second() == part(HINT));
	assert_int_equal(warnings_so_far(), 0);
	pair_close(&pair);
}

static void a_bad_file_is_one_warning_and_islands(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
		if (!can_make(i))
			continue;
		put_back();
		write_hint(5, HINT, SENDER, RECEIVER);
		files[i].make();
		start_agent(GOOD);
		begin();
		if (i % 2 == 1)
			apart();
		up();
		some_looks();
		assert_int_equal(over_second(), i % 2 == 1 ? 0 : SIZE);
		assert_said_once(files[i].what, files[i].said);
		assert_int_equal(agent.registered, 0);
		pair_close(&pair);
		stop_agent();
		put_back();
	}
}

/* In the middle of the job. */
static void a_file_that_is_cut_or_goes_bad_is_one_warning_and_islands(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
		if (!can_make(i))
			continue;
		put_back();
		write_hint(5, HINT, SENDER, RECEIVER);
		start_agent(GOOD);
		begin();
		up();
		EVENTUALLY(over_second() == part(HINT));
		files[i].make();
		EVENTUALLY(over_second() == SIZE);
		some_looks();
		assert_int_equal(over_second(), SIZE);
		assert_said_once(files[i].what, files[i].said);
		pair_close(&pair);
		stop_agent();
		put_back();
	}
}

static void an_entry_that_there_is_not_is_one_warning_and_islands(void **state)
{
	static const uint32_t slots[] = {256, UINT32_MAX};

	(void)state;
	for (size_t i = 0; i < sizeof(slots) / sizeof(*slots); i++) {
		agent.slot = slots[i];
		start_agent(GOOD);
		begin();
		up();
		EVENTUALLY(watched.count[CALL] >= 2);
		assert_int_equal(over_second(), SIZE);
		assert_said_once("no such entry", "entry of another flow, or none of its file");
		pair_close(&pair);
		stop_agent();
	}
}

static void another_flows_entry_is_one_warning_and_islands(void **state)
{
	(void)state;
	write_hint(5, HINT, SENDER, "10.0.0.77");
	start_agent(GOOD);
	up();
	EVENTUALLY(watched.count[CALL] >= 2);
	assert_int_equal(over_second(), SIZE);
	assert_said_once("another flow's", "entry of another flow");
	pair_close(&pair);
}

/* Which is no fault: the interface has it that more than all is all. */
static void the_largest_share_that_can_be_said_is_all(void **state)
{
	(void)state;
	write_hint(5, UINT32_MAX - 1, SENDER, RECEIVER);
	apart();
	start_agent(GOOD);
	up();
	EVENTUALLY(over_second() == SIZE);
	write_hint(5, UINT32_MAX, SENDER, RECEIVER);
	usleep(20);
	assert_int_equal(over_second(), SIZE);
	assert_int_equal(warnings_so_far(), 0);
	pair_close(&pair);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    T(connections_come_and_go_while_the_agent_is_gone_to),
#ifdef AS_SHIPPED
	    T(no_connection_takes_a_millisecond_longer_for_a_bad_agent),
#endif
	    T(no_agent_is_one_warning_and_islands),
	    T(a_bad_agent_is_one_warning_and_islands),
	    T(an_answer_in_single_bytes_is_followed),
	    T(a_bad_file_is_one_warning_and_islands),
	    T(a_file_that_is_cut_or_goes_bad_is_one_warning_and_islands),
	    T(an_entry_that_there_is_not_is_one_warning_and_islands),
	    T(another_flows_entry_is_one_warning_and_islands),
	    T(the_largest_share_that_can_be_said_is_all),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
