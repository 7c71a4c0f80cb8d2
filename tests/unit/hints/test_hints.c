/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client of an agent, against a stand-in for one that says its bytes by hand, well or badly,
 * and against files of hints of every kind.
 */
#include "../eventually.h"
#include "stand_in.h"

#include "base/log.h"
#include "hints/hint_file.h"
#include "hints/hints.h"

#define STALE_MS 300
#define LOOK_MS	 20
/* How long an answer may take: the short time where none comes, the long one where a busy machine
 * may delay it. */
#define STEP_MS 60
#define LONG_MS 3000

/* ---- what an operator reads ------------------------------------------------------------------ */

static atomic_int warnings;
static char last_warning[512];
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;

static void sink(enum ha_log_level level, unsigned long subsys, const char *file, int line,
		 const char *text)
{
	(void)subsys, (void)file, (void)line;
	if (level != HA_LOG_WARN)
		return;
	pthread_mutex_lock(&log_lock);
	snprintf(last_warning, sizeof(last_warning), "%s", text);
	pthread_mutex_unlock(&log_lock);
	atomic_fetch_add(&warnings, 1);
}

static bool warned_of(const char *what)
{
	bool found;

	pthread_mutex_lock(&log_lock);
	found = strstr(last_warning, what) != NULL;
	pthread_mutex_unlock(&log_lock);
	return found;
}

/* ---- a client -------------------------------------------------------------------------------- */

static struct ha_hints *hints;
static struct ha_hint *hint;
static atomic_int found, lost;

static void agent_changed(void *arg, bool is_found)
{
	(void)arg;
	atomic_fetch_add(is_found ? &found : &lost, 1);
}

static struct ha_agent_flow flow_to(const char *dst)
{
	return (struct ha_agent_flow){inet_addr("10.0.1.1"), inet_addr(dst),
				      inet_addr("172.16.0.1"), inet_addr("172.16.0.2")};
}

static uint32_t share_now(void)
{
	return ha_hint_read(hint, ha_real_ns());
}

static unsigned step_ms;

static void begin(void)
{
	struct ha_hints_settings settings = HA_HINTS_DEFAULTS;
	struct ha_agent_flow flow = flow_to("10.0.1.2");

	settings.dir = agent_dir;
	settings.stale_ms = STALE_MS;
	settings.look_ms = LOOK_MS;
	settings.step_ms = step_ms;
	settings.pause_least_ms = LOOK_MS;
	settings.pause_most_ms = 4 * LOOK_MS;
	settings.agent_changed = agent_changed;
	warnings = found = lost = 0;
	hints = ha_hints_begin(&settings);
	assert_non_null(hints);
	hint = ha_hints_join(hints, &flow);
	assert_non_null(hint);
}

static void end(void)
{
	if (!hints)
		return;
	ha_hints_leave(hints, hint);
	ha_hints_end(hints);
	hints = NULL;
}

/* Long enough for several looks. */
static void some_looks(void)
{
	usleep(8 * LOOK_MS * 1000);
}

static int setup(void **state)
{
	(void)state;
	step_ms = LONG_MS;
	ha_log_set_sink(sink);
	return make_agent() ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	end();
	return remove_agent();
}

/* ---- what it is for -------------------------------------------------------------------------- */

static void a_read_20_us_later_has_what_the_agent_wrote(void **state)
{
	(void)state;
	write_hint(5, 256, "10.0.1.1", "10.0.1.2");
	start_agent(GOOD);
	begin();
	EVENTUALLY(share_now() == 256);
	for (uint32_t share = 0; share <= 1024; share++) {
		write_hint(5, share, "10.0.1.1", "10.0.1.2");
		usleep(20);
		assert_int_equal(share_now(), share);
	}
	assert_int_equal(agent.registered, 1);
	assert_true(agent.conn_id >> 16 == ((uint32_t)getpid() & 0xffff));
	assert_int_equal(warnings, 0);
	EVENTUALLY(found == 1);
	end();
	assert_int_equal(agent.deregistered, 1);
}

static void an_agent_that_fills_in_no_addresses_is_believed_until_it_does(void **state)
{
	(void)state;
	write_hint(5, 300, NULL, NULL);
	start_agent(GOOD);
	begin();
	EVENTUALLY(share_now() == 300);
	write_hint(5, 301, "10.0.1.1", "10.0.1.2");
	EVENTUALLY(share_now() == 301);
	write_hint(5, 302, "10.0.1.1", "10.0.1.9");
	some_looks();
	assert_int_not_equal(share_now(), 302);
	EVENTUALLY(warnings == 1);
}

static void an_agent_that_is_gone_is_followed_for_so_long_and_no_longer(void **state)
{
	uint32_t share;

	(void)state;
	write_hint(5, 256, "10.0.1.1", "10.0.1.2");
	start_agent(GOOD);
	begin();
	EVENTUALLY(share_now() == 256);
	stop_agent();
	put32(16 + 16 * 5 + 4, 99); /* it was killed in the middle of a write */
	put32(16 + 16 * 5, 777);
	share = share_now();
	assert_true(share == 256 || ha_real_ns() - agent.seen_after_ns >= STALE_MS * HA_NS_PER_MS);
	EVENTUALLY(share_now() == HA_HINT_NONE);
	assert_true(ha_real_ns() - agent.seen_after_ns >= STALE_MS * HA_NS_PER_MS);
	EVENTUALLY(lost == 1);
	assert_int_equal(warnings, 1);
	assert_true(warned_of("gone"));
	some_looks();
	assert_int_equal(warnings, 1);
	/* Back, and the flow has another slot. */
	agent.slot = 200;
	write_hint(200, 640, "10.0.1.1", "10.0.1.2");
	start_agent(GOOD);
	EVENTUALLY(share_now() == 640);
	EVENTUALLY(found == 2);
}

/* A restart between two looks. */
static void an_agent_that_starts_anew_is_asked_again(void **state)
{
	(void)state;
	write_hint(5, 256, "10.0.1.1", "10.0.1.2");
	start_agent(GOOD);
	begin();
	EVENTUALLY(share_now() == 256);
	agent.slot = 6;
	write_hint(6, 100, "10.0.1.1", "10.0.1.2");
	write_hint(5, 0, NULL, NULL); /* as it clears what was there */
	EVENTUALLY(share_now() == 100);
}

static void a_file_of_another_boot_is_not_read(void **state)
{
	(void)state;
	write_hint(5, 999, "10.0.1.1", "10.0.1.2");
	begin();
	some_looks();
	assert_true(share_now() == HA_HINT_NONE);
	EVENTUALLY(warnings == 1);
	assert_true(warned_of("no agent at"));
}

static void another_flows_slot_is_not_used_and_asked_for_again(void **state)
{
	(void)state;
	write_hint(5, 999, "10.0.1.1", "10.0.1.77");
	start_agent(GOOD);
	begin();
	EVENTUALLY(agent.registered >= 3);
	assert_true(share_now() == HA_HINT_NONE);
	EVENTUALLY(warnings == 1);
	assert_true(warned_of("another flow"));
	write_hint(5, 111, "10.0.1.1", "10.0.1.2");
	EVENTUALLY(share_now() == 111);
}

static void slots_that_there_are_not_are_refused(void **state)
{
	static const uint32_t slots[] = {256, 257, 0x10000005, UINT32_MAX};

	(void)state;
	for (size_t i = 0; i < sizeof(slots) / sizeof(slots[0]); i++) {
		agent.slot = slots[i];
		start_agent(GOOD);
		begin();
		EVENTUALLY(agent.registered >= 2);
		assert_true(share_now() == HA_HINT_NONE);
		EVENTUALLY(warnings == 1);
		end();
		stop_agent();
	}
}

/* ---- files that are not to be believed ------------------------------------------------------- */

static void put_back_with_a_hint(void)
{
	put_back();
	write_hint(5, 256, "10.0.1.1", "10.0.1.2");
}

static void a_file_that_is_not_to_be_believed_is_one_warning(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		if (!can_make(i))
			continue;
		put_back_with_a_hint();
		files[i].make();
		start_agent(GOOD);
		begin();
		EVENTUALLY(warnings > 0);
		some_looks();
		if (warnings != 1 || !warned_of(files[i].said) || share_now() != HA_HINT_NONE ||
		    agent.registered != 0)
			fail_msg("%s: %d warnings (%s), hint %u, %u registered", files[i].what,
				 (int)warnings, last_warning, share_now(),
				 (unsigned)agent.registered);
		/* And when it is well again. */
		put_back_with_a_hint();
		EVENTUALLY(share_now() == 256);
		end();
		stop_agent();
	}
}

/* The same while it is used. */
static void a_file_that_goes_bad_is_given_up(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		if (!can_make(i))
			continue;
		put_back_with_a_hint();
		start_agent(GOOD);
		begin();
		EVENTUALLY(share_now() == 256);
		files[i].make();
		EVENTUALLY(__atomic_load_n(&hint->at, __ATOMIC_ACQUIRE) == 0);
		some_looks();
		if (warnings != 1 || share_now() != HA_HINT_NONE)
			fail_msg("%s: %d warnings (%s), hint %u", files[i].what, (int)warnings,
				 last_warning, share_now());
		put_back_with_a_hint();
		EVENTUALLY(share_now() == 256);
		end();
		stop_agent();
	}
}

/* Of an agent that has room for more flows than there are in ours. */
static void a_file_with_more_entries_has_256(void **state)
{
	(void)state;
	put32(4, 300);
	assert_int_equal(truncate(hints_path, BYTES + 44 * 16), 0);
	agent.slot = 255;
	write_hint(255, 77, "10.0.1.1", "10.0.1.2");
	start_agent(GOOD);
	begin();
	EVENTUALLY(share_now() == 77);
	assert_int_equal(warnings, 0);
}

static uint32_t share_at_5(int fd)
{
	uint32_t share = 0;

	assert_true(pread(fd, &share, sizeof(share), 16 + 16 * 5) >= 0);
	return share;
}

/* Whoever has the number of the descriptor reads the file that is believed, or was last. */
static void a_file_that_is_replaced_has_the_same_descriptor(void **state)
{
	struct ha_hint_file file;
	const char *why;
	int fd;

	(void)state;
	write_hint(5, 256, "10.0.1.1", "10.0.1.2");
	ha_hint_file_begin(&file);
	assert_int_equal(ha_hint_file_look(&file, agent_dir, &why), HA_HINT_FILE_NEW);
	fd = file.fd;
	assert_int_equal(share_at_5(fd), 256);
	assert_int_equal(ha_hint_file_look(&file, agent_dir, &why), HA_HINT_FILE_SAME);
	empty();
	assert_int_equal(ha_hint_file_look(&file, agent_dir, &why), HA_HINT_FILE_NONE);
	assert_int_equal(file.entries, 0);
	assert_int_equal(share_at_5(fd), 0);
	put_back_with_a_hint();
	assert_int_equal(ha_hint_file_look(&file, agent_dir, &why), HA_HINT_FILE_NEW);
	assert_int_equal(share_at_5(fd), 256);
	make_file(); /* another file of the same name */
	write_hint(5, 257, NULL, NULL);
	assert_int_equal(ha_hint_file_look(&file, agent_dir, &why), HA_HINT_FILE_NEW);
	assert_int_equal(share_at_5(fd), 257);
	assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	assert_int_equal(unlink(hints_path), 0);
	assert_int_equal(ha_hint_file_look(&file, agent_dir, &why), HA_HINT_FILE_NONE);
	assert_null(why);
	assert_int_equal(file.fd, fd);
	ha_hint_file_end(&file);
	assert_int_equal(fcntl(fd, F_GETFD), -1);
	make_file();
}

/* ---- agents that answer badly, or not at all ------------------------------------------------- */

static void a_bad_agent_is_one_warning_and_delays_nobody(void **state)
{
	static const char *const said[MANNERS] = {
	    [MUTE] = "does not answer",	    [WRONG_MAGIC] = "no valid answer",
	    [FULL] = "no free slot",	    [INVALID] = "does not take",
	    [HANGS_UP] = "no valid answer", [TOO_LONG] = "no valid answer",
	};

	(void)state;
	write_hint(5, 256, "10.0.1.1", "10.0.1.2");
	for (enum manner manner = 0; manner < MANNERS; manner++) {
		struct ha_agent_flow other = flow_to("10.0.1.3");
		unsigned quick = 0;

		if (!said[manner])
			continue;
		start_agent(manner);
		step_ms = manner == MUTE ? STEP_MS : LONG_MS;
		begin();
		for (int i = 0; i < 50; i++) {
			uint64_t began_ns = ha_real_ns();

			ha_hints_leave(hints, ha_hints_join(hints, &other));
			quick += ha_real_ns() - began_ns < HA_NS_PER_MS;
			usleep(500);
		}
		assert_in_range(quick, 25, 50);	   /* but for what else runs here */
		EVENTUALLY(agent.registered >= 2); /* it is asked again */
		if (warnings != 1 || !warned_of(said[manner]))
			fail_msg("manner %d: %d warnings (%s)", manner, (int)warnings,
				 last_warning);
		assert_true(share_now() == HA_HINT_NONE);
		agent.manner = GOOD;
		EVENTUALLY(share_now() == 256);
		end();
		stop_agent();
	}
}

static void an_answer_in_single_bytes_is_one(void **state)
{
	(void)state;
	write_hint(5, 256, "10.0.1.1", "10.0.1.2");
	start_agent(BY_BYTES);
	begin();
	EVENTUALLY(share_now() == 256);
	assert_int_equal(warnings, 0);
}

static void without_an_address_there_is_no_registration(void **state)
{
	struct ha_agent_flow none = flow_to("0.0.0.0");

	(void)state;
	start_agent(GOOD);
	begin();
	EVENTUALLY(agent.registered == 1);
	assert_null(ha_hints_join(hints, &none));
	assert_null(ha_hints_join(hints, &none));
	ha_hints_leave(hints, NULL);
	some_looks();
	assert_int_equal(agent.registered, 1);
	EVENTUALLY(warnings == 1);
	assert_true(warned_of("IPv4"));
}

static void the_end_waits_for_no_agent(void **state)
{
	struct ha_agent_flow flow = flow_to("10.0.1.2");
	struct ha_hint *many[200];
	uint64_t began_ns;

	(void)state;
	write_hint(5, 256, "10.0.1.1", "10.0.1.2");
	start_agent(GOOD);
	step_ms = LONG_MS / 6;
	begin();
	for (int i = 0; i < 200; i++)
		many[i] = ha_hints_join(hints, &flow);
	EVENTUALLY(agent.registered == 201);
	agent.manner = MUTE;
	began_ns = ha_real_ns();
	for (int i = 0; i < 200; i++)
		ha_hints_leave(hints, many[i]);
	end();
	assert_true(ha_real_ns() - began_ns < 20 * step_ms * HA_NS_PER_MS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	    T(a_read_20_us_later_has_what_the_agent_wrote),
	    T(an_agent_that_fills_in_no_addresses_is_believed_until_it_does),
	    T(an_agent_that_is_gone_is_followed_for_so_long_and_no_longer),
	    T(an_agent_that_starts_anew_is_asked_again),
	    T(a_file_of_another_boot_is_not_read),
	    T(another_flows_slot_is_not_used_and_asked_for_again),
	    T(slots_that_there_are_not_are_refused),
	    T(a_file_that_is_not_to_be_believed_is_one_warning),
	    T(a_file_that_goes_bad_is_given_up),
	    T(a_file_with_more_entries_has_256),
	    T(a_file_that_is_replaced_has_the_same_descriptor),
	    T(a_bad_agent_is_one_warning_and_delays_nobody),
	    T(an_answer_in_single_bytes_is_one),
	    T(without_an_address_there_is_no_registration),
	    T(the_end_waits_for_no_agent),
#undef T
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
