/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HA_NCCL_RAIL_MODE=agent: what a sender makes of an agent, which is nccl-ha-agent as it is. The
 * fabric is stepped, the agent lives in real time.
 */
#include "../tool/agent_process.h"
#include "by_agent.h"

#include <fcntl.h>
#include <time.h>

#define LIMIT 20 /* s */

static int setup(void **state)
{
	(void)state;
	if (!make_agent_dir())
		return -1;
	by_agent_init(agent_dir);
	pair.config.agent_stale_ms = 500;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	kill_agent();
	ha_log_set_sink(capture_sink);
	return remove_agent_dir();
}

static void set(uint32_t share)
{
	set_share(SENDER, RECEIVER, share);
}

/* Until the agent is followed, which says something of its own. */
static void follow_agent(uint32_t share)
{
	const uint64_t until_ns = ha_real_ns() + LIMIT * HA_NS_PER_S;

	start_agent();
	set(share);
	while (over_second() != part(share)) {
		assert_true(ha_real_ns() < until_ns);
		usleep(1000);
	}
}

static void without_an_agent_a_message_in_an_island_goes_over_the_second_rail(void **state)
{
	(void)state;
	up();
	assert_int_equal(over_second(), SIZE);
	EVENTUALLY(has_logged("no agent at"));
	pair_close(&pair);
}

static void without_an_agent_a_message_to_another_island_goes_over_the_first_rail(void **state)
{
	(void)state;
	strcpy(pair.config.island, "10.0.0.1/32=a,10.0.0.2/32=b");
	up();
	assert_int_equal(over_second(), 0);
	pair_close(&pair);
}

/* Whose the first entry of the agent's file is. */
static uint32_t entry_is_of(void)
{
	struct mpib_hint_entry entry = {0};
	char path[96];
	int fd;

	snprintf(path, sizeof(path), "%s/hints", agent_dir);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	assert_int_equal(pread(fd, &entry, sizeof(entry), 16), sizeof(entry));
	close(fd);
	return entry.src_ip;
}

static void the_agent_knows_a_connection_before_both_rails_carry(void **state)
{
	const uint64_t until_ns = ha_real_ns() + LIMIT * HA_NS_PER_S;

	(void)state;
	start_agent();
	set(256);
	pair_up(&pair);
	while (entry_is_of() == 0) {
		assert_true(ha_real_ns() < until_ns);
		transfer(&pair, 8, 1);
		pair_idle(&pair, 5);
		usleep(1000);
	}
	assert_int_equal(entry_is_of(), inet_addr(SENDER));
	wait_members(&pair, 2);
	while (over_second() != part(256))
		assert_true(ha_real_ns() < until_ns);
	assert_false(has_logged("islands"));
	pair_close(&pair);
}

static void the_very_next_message_has_the_share_that_was_said(void **state)
{
	static const uint32_t shares[] = {0, 1, 256, 512, 768, 1023, 1024, 300};

	(void)state;
	up();
	follow_agent(640);
	for (size_t i = 0; i < sizeof(shares) / sizeof(*shares); i++) {
		set(shares[i]);
		assert_int_equal(over_second(), part(shares[i]));
	}
	pair_close(&pair);
}

static void small_messages_have_the_share_that_was_said(void **state)
{
	static const struct {
		size_t size;
		uint32_t share, second;
	} cases[] = {
	    {8, 1024, 8},      {8, 1023, 0},	    {1000, 768, 640},
	    {4096, 512, 2048}, {65536, 256, 16384}, {100000, 1024, 100000},
	};

	(void)state;
	up();
	follow_agent(640);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		set(cases[i].share);
		assert_int_equal(of_size_over_second(cases[i].size), cases[i].second);
	}
	pair_close(&pair);
}

static void between_islands_small_messages_go_over_the_first_rail_whatever_is_said(void **state)
{
	(void)state;
	strcpy(pair.config.island, "10.0.0.1/32=a,10.0.0.2/32=b");
	up();
	follow_agent(1024);
	assert_int_equal(of_size_over_second(8), 0);
	assert_int_equal(of_size_over_second(65536), 0);
	assert_int_equal(of_size_over_second(65537), 65537);
	pair_close(&pair);
}

/* The agent knows nothing of health: what it says holds for rails that there are. */
static void a_rail_that_is_lost_carries_nothing_whatever_the_agent_says(void **state)
{
	(void)state;
	up();
	follow_agent(1024);
	sv_stepped_link(0, 1, false);
	pair_idle(&pair, 200);
	for (int i = 0; i < 3; i++)
		transfer(&pair, SIZE, 5);
	sv_stepped_link(0, 1, true);
	wait_members(&pair, 2);
	assert_int_equal(over_second(), SIZE);
	assert_int_equal(pair.send->count.failovers, 0);
	pair_close(&pair);
}

/* What a writer that dies between its two steps leaves; or what it has when it is through. */
static void leave_written(bool half)
{
	char path[96];
	uint32_t seq;
	int fd;

	snprintf(path, sizeof(path), "%s/hints", agent_dir);
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &seq, sizeof(seq), 16 + 4), sizeof(seq));
	assert_int_equal(seq & 1, !half);
	seq++;
	assert_int_equal(pwrite(fd, &seq, sizeof(seq), 16 + 4), sizeof(seq));
	close(fd);
}

static uint64_t ms_since(uint64_t since_ns)
{
	return (ha_real_ns() - since_ns) / HA_NS_PER_MS;
}

/* When it is known to be gone, half a second after its last look; and a second for the threads. */
#define GONE_MS (500 + 500 + 1000)

static void
an_agent_that_dies_in_a_write_is_followed_for_a_while_and_again_when_it_is_back(void **state)
{
	const uint64_t second = part(256);
	uint64_t since_ns, bytes;

	(void)state;
	up();
	follow_agent(256);
	kill_agent();
	leave_written(true);
	since_ns = ha_real_ns();
	while ((bytes = over_second()) != SIZE) { /* as islands have it */
		assert_int_equal(bytes, second);
		assert_in_range(ms_since(since_ns), 0, GONE_MS);
		usleep(1000);
	}
	assert_true(has_logged("has been gone for 500 ms"));
	since_ns = ha_real_ns();
	follow_agent(700);
	assert_in_range(ms_since(since_ns), 0, 2000);
	assert_int_equal(pair.send->count.failovers, 0);
	pair_close(&pair);
}

/* Its header, an entry, and all of it; each job goes on, by islands when the cut is known. */
static void a_file_that_is_cut_while_it_is_used_costs_no_message(void **state)
{
	static const off_t lengths[] = {0, 16, 16 + 7, 4111};
	char path[96];

	(void)state;
	snprintf(path, sizeof(path), "%s/hints", agent_dir);
	up();
	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
		uint64_t since_ns, bytes;

		follow_agent(256);
		since_ns = ha_real_ns();
		assert_int_equal(truncate(path, lengths[i]), 0);
		while ((bytes = over_second()) != SIZE) {
			assert_int_equal(bytes, part(256));
			assert_in_range(ms_since(since_ns), 0, GONE_MS);
			usleep(1000);
		}
		kill_agent();
	}
	assert_true(has_logged("are not used: it is too short"));
	follow_agent(700);
	assert_int_equal(pair.send->count.failovers, 0);
	pair_close(&pair);
}

#ifdef AS_SHIPPED
static uint64_t cpu_ns(void)
{
	struct timespec now;

	assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now), 0);
	return (uint64_t)now.tv_sec * HA_NS_PER_S + (uint64_t)now.tv_nsec;
}

/* Bytes of the stripe that a message which was just posted has on the second rail. */
static uint64_t cut_for_second(uint64_t seq)
{
	const struct ha_comm *comm = pair.send;
	const struct ha_send_group *group = &comm->send->groups[seq & comm->slot_mask];

	assert_int_equal(group->cut_seq, seq);
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (group->cut_into >> p & 1 && ha_rail_of(comm, comm->paths[p]) == 1)
			return group->cut.length[p];
	return 0;
}

/* What the isend of a message takes whose clear-to-send is there. It is cut in that call. */
static uint64_t isend_ns(uint64_t second)
{
	const uint64_t seq = pair.send->send->post_seq;
	const size_t offset = 0, size = SIZE;
	struct ha_request *recv, *send;
	const int tag = 1;
	uint64_t since_ns, ns;

	recv = post_recv(&pair, 1, &offset, &size, &tag);
	sv_stepped_run(sv_stepped_now() + HA_NS_PER_MS);
	since_ns = cpu_ns();
	send = try_send(&pair, 0, SIZE, tag);
	ns = cpu_ns() - since_ns;
	assert_non_null(send);
	assert_int_equal(cut_for_second(seq), second);
	assert_int_equal(pair_finish(&pair, recv, NULL), HA_OK);
	assert_int_equal(pair_finish(&pair, send, NULL), HA_OK);
	return ns;
}

static uint64_t less_of(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/*
 * An agent that died half way through a write, and as it was before: in turns, so that what else
 * runs here meets both, and the least of each, which is what the call itself takes. Of many where
 * the machine has much else to do.
 */
static void an_isend_takes_no_microsecond_longer_for_an_agent_that_died_in_a_write(void **state)
{
	enum { TIMES = 301, TIMES_MOST = 10 * TIMES };
	uint64_t whole_ns = UINT64_MAX, half_ns = UINT64_MAX;

	(void)state;
	pair.config.agent_stale_ms = 600000;
	up();
	follow_agent(256);
	kill_agent();
	for (int i = 0; i < TIMES || (i < TIMES_MOST && half_ns > whole_ns + 1000); i++) {
		whole_ns = less_of(whole_ns, isend_ns(part(256)));
		leave_written(true);
		half_ns = less_of(half_ns, isend_ns(part(256)));
		leave_written(false);
	}
	print_message("isend: %llu ns, with half a write %llu ns\n", (unsigned long long)whole_ns,
		      (unsigned long long)half_ns);
	assert_in_range(half_ns, 1, whole_ns + 1000);
	assert_int_equal(pair.send->count.failovers, 0);
	pair_close(&pair);
}
#endif

static void found_and_lost_are_events(void **state)
{
	char path[96], text[4096];
	ssize_t n;
	int fd;

	(void)state;
	snprintf(path, sizeof(path), "%s/events", agent_dir);
	strcpy(pair.config.event_log, path);
	up();
	follow_agent(256);
	kill_agent();
	EVENTUALLY(has_logged("has been gone for 500 ms"));
	pair_close(&pair);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	n = read(fd, text, sizeof(text) - 1);
	assert_true(n > 0);
	text[n] = '\0';
	close(fd);
	unlink(path);
	assert_non_null(strstr(text, "\"kind\":\"agent-found\""));
	assert_non_null(strstr(text, "\"kind\":\"agent-lost\""));
	assert_non_null(strstr(text, agent_dir));
}

/* Its entry is free for others. */
static void the_agent_is_told_when_a_connection_ends(void **state)
{
	(void)state;
	up();
	follow_agent(256);
	assert_int_equal(entry_is_of(), inet_addr(SENDER));
	pair_close(&pair);
	assert_int_equal(entry_is_of(), 0);
}

static void a_directory_that_others_may_write_is_not_believed(void **state)
{
	(void)state;
	start_agent();
	set(256);
	assert_int_equal(chmod(agent_dir, 0777), 0);
	up();
	assert_int_equal(over_second(), SIZE);
	EVENTUALLY(has_logged("the hints of the agent at"));
	assert_int_equal(over_second(), SIZE);
	assert_int_equal(chmod(agent_dir, 0755), 0);
	pair_close(&pair);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    T(without_an_agent_a_message_in_an_island_goes_over_the_second_rail),
	    T(without_an_agent_a_message_to_another_island_goes_over_the_first_rail),
	    T(the_agent_knows_a_connection_before_both_rails_carry),
	    T(the_very_next_message_has_the_share_that_was_said),
	    T(small_messages_have_the_share_that_was_said),
	    T(between_islands_small_messages_go_over_the_first_rail_whatever_is_said),
	    T(a_rail_that_is_lost_carries_nothing_whatever_the_agent_says),
	    T(an_agent_that_dies_in_a_write_is_followed_for_a_while_and_again_when_it_is_back),
	    T(a_file_that_is_cut_while_it_is_used_costs_no_message),
#ifdef AS_SHIPPED
	    T(an_isend_takes_no_microsecond_longer_for_an_agent_that_died_in_a_write),
#endif
	    T(found_and_lost_are_events),
	    T(the_agent_is_told_when_a_connection_ends),
	    T(a_directory_that_others_may_write_is_not_believed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
