/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of nccl-ha-agent: its file, who has which flow, what people said, what was measured.
 */
#include "../unit/cmocka_all.h"

#include "base/clock.h"
#include "base/stats.h"
#include "base/stats_file.h"
#include "base/stats_reader.h"
#include "tools/nccl-ha-agent/hint_table.h"
#include "tools/nccl-ha-agent/measured.h"
#include "tools/nccl-ha-agent/registry.h"
#include "tools/nccl-ha-agent/rules.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[64], hints[96], rules_file[96];

static int setup(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "%s", "/tmp/ha-agent-XXXXXX");
	if (!mkdtemp(dir) || chmod(dir, 0755) != 0)
		return -1;
	snprintf(hints, sizeof(hints), "%s/hints", dir);
	snprintf(rules_file, sizeof(rules_file), "%s/rules", dir);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	if (unlink(hints) != 0)
		rmdir(hints);
	unlink(rules_file);
	return rmdir(dir);
}

/* ---- the file -------------------------------------------------------------------------------- */

static uint32_t seq_in_file(unsigned slot)
{
	uint32_t seq = 0;
	int fd = open(hints, O_RDONLY | O_CLOEXEC);

	assert_int_equal(pread(fd, &seq, 4, 16 + 16 * slot + 4), 4);
	close(fd);
	return seq;
}

static void an_odd_number_is_repaired_and_nothing_is_left_of_before(void **state)
{
	struct na_hint_table table;
	uint32_t died[4] = {777, 5, 1, 2};
	char err[256], zero[16] = {0};
	int fd;

	(void)state;
	assert_true(na_hint_table_open(&table, dir, err, sizeof(err)));
	na_hint_table_write(&table, 3, 512, 1, 2);
	na_hint_table_close(&table);
	fd = open(hints, O_RDWR | O_CLOEXEC);
	assert_int_equal(pwrite(fd, died, 16, 16 + 16 * 4), 16);
	assert_true(na_hint_table_open(&table, dir, err, sizeof(err)));
	assert_int_equal(seq_in_file(4), 6);
	assert_int_equal(seq_in_file(3) & 1, 0);
	for (unsigned slot = 3; slot <= 4; slot++) {
		uint32_t entry[4];

		assert_int_equal(pread(fd, entry, 16, 16 + 16 * (off_t)slot), 16);
		entry[1] = 0;
		assert_memory_equal(entry, zero, 16);
	}
	na_hint_table_write(&table, 4, 100, 1, 2);
	assert_int_equal(seq_in_file(4), 8);
	na_hint_table_close(&table);
	close(fd);
}

static void there_is_one_agent_in_a_directory(void **state)
{
	struct na_hint_table first, second;
	char err[256];

	(void)state;
	assert_true(na_hint_table_open(&first, dir, err, sizeof(err)));
	assert_false(na_hint_table_open(&second, dir, err, sizeof(err)));
	assert_non_null(strstr(err, "another agent"));
	na_hint_table_close(&first);
	assert_true(na_hint_table_open(&second, dir, err, sizeof(err)));
	na_hint_table_close(&second);
}

static void a_file_never_gets_shorter(void **state)
{
	struct na_hint_table table;
	struct stat st;
	char err[256];
	int fd = open(hints, O_RDWR | O_CREAT | O_CLOEXEC, 0644);

	(void)state;
	assert_int_equal(ftruncate(fd, 9000), 0);
	close(fd);
	assert_true(na_hint_table_open(&table, dir, err, sizeof(err)));
	assert_int_equal(stat(hints, &st), 0);
	assert_int_equal(st.st_size, 9000);
	na_hint_table_close(&table);
}

static void refused(void)
{
	struct na_hint_table table;
	char err[256] = "";

	if (na_hint_table_open(&table, dir, err, sizeof(err)))
		fail_msg("it was taken");
	if (!strstr(err, dir))
		fail_msg("%s", err);
}

static void what_others_may_have_made_is_refused(void **state)
{
	char link_to[80];

	(void)state;
	assert_int_equal(chmod(dir, 0777), 0);
	refused();
	assert_int_equal(chmod(dir, 0755), 0);
	assert_int_equal(symlink("/dev/null", hints), 0);
	refused();
	unlink(hints);
	assert_int_equal(mkfifo(hints, 0644), 0);
	refused();
	unlink(hints);
	assert_int_equal(mkdir(hints, 0755), 0);
	refused();
	rmdir(hints);
	close(open(rules_file, O_RDWR | O_CREAT | O_CLOEXEC, 0644));
	assert_int_equal(link(rules_file, hints), 0); /* another name of a file elsewhere */
	refused();
	unlink(hints);
	close(open(hints, O_RDWR | O_CREAT | O_CLOEXEC, 0644));
	assert_int_equal(chmod(hints, 0666), 0);
	refused();
	if (geteuid() == 0) {
		assert_int_equal(chmod(hints, 0644), 0);
		assert_int_equal(chown(hints, 12345, 12345), 0);
		refused();
		assert_int_equal(chown(dir, 12345, 12345), 0);
		refused();
		assert_int_equal(chown(dir, 0, 0), 0);
	} else {
		print_message("not tried, for want of root's rights: another user's files\n");
	}
	snprintf(link_to, sizeof(link_to), "%.64s-link", dir);
	assert_int_equal(symlink(dir, link_to), 0);
	{
		struct na_hint_table table;
		char err[256];

		assert_false(na_hint_table_open(&table, link_to, err, sizeof(err)));
	}
	unlink(link_to);
}

/* ---- who has which flow ---------------------------------------------------------------------- */

static unsigned changes;

static void count_changes(void *arg, unsigned slot)
{
	(void)arg, (void)slot;
	changes++;
}

static struct ha_agent_flow flow_number(uint32_t n)
{
	return (struct ha_agent_flow){htonl(0x0a000001), htonl(0x0a010000 + n), 0, 0};
}

static unsigned flows_in_use(const struct na_registry *r)
{
	unsigned n = 0;

	for (unsigned slot = 0; slot < MPIB_HINT_MAX_ENTRIES; slot++)
		n += r->flows[slot].users > 0;
	return n;
}

static void connections_of_two_addresses_share_a_slot(void **state)
{
	static struct na_registry r;
	struct ha_agent_flow flow = flow_number(1), other = flow_number(2);
	struct na_client *client;
	unsigned a, b, c;

	(void)state;
	changes = 0;
	na_registry_begin(&r, count_changes, NULL);
	client = na_client_new(&r, getpid());
	assert_non_null(client);
	assert_ptr_equal(na_client_find(&r, getpid()), client);
	assert_int_equal(na_register(&r, client, 1, &flow, &a), MPIB_AGENT_OK);
	assert_int_equal(na_register(&r, client, 2, &flow, &b), MPIB_AGENT_OK);
	assert_int_equal(na_register(&r, client, 3, &other, &c), MPIB_AGENT_OK);
	assert_int_equal(a, b);
	assert_int_not_equal(a, c);
	assert_int_equal(r.flows[a].users, 2);
	assert_int_equal(changes, 2);
	/* The same again is the same, and counts once. */
	assert_int_equal(na_register(&r, client, 2, &flow, &b), MPIB_AGENT_OK);
	assert_int_equal(r.flows[a].users, 2);
	/* A connection that has other addresses now. */
	assert_int_equal(na_register(&r, client, 2, &other, &b), MPIB_AGENT_OK);
	assert_int_equal(b, c);
	assert_int_equal(r.flows[a].users, 1);
	assert_int_equal(na_deregister(&r, client, 1), MPIB_AGENT_OK);
	assert_int_equal(na_deregister(&r, client, 1), MPIB_AGENT_INVALID);
	assert_int_equal(flows_in_use(&r), 1);
	na_client_end(&r, client);
	assert_int_equal(flows_in_use(&r), 0);
	assert_null(na_client_find(&r, getpid()));
	na_registry_end(&r);
}

static void slots_run_out_and_are_used_again(void **state)
{
	static struct na_registry r;
	struct na_client *client;
	unsigned slot;

	(void)state;
	na_registry_begin(&r, count_changes, NULL);
	client = na_client_new(&r, getpid());
	for (uint32_t round = 0; round < 20; round++) {
		for (uint32_t n = 0; n < 256; n++) {
			struct ha_agent_flow flow = flow_number(1000 * round + n);

			assert_int_equal(na_register(&r, client, n, &flow, &slot), MPIB_AGENT_OK);
		}
		for (uint32_t n = 256; n < 300; n++) {
			struct ha_agent_flow flow = flow_number(1000 * round + n);

			assert_int_equal(na_register(&r, client, n, &flow, &slot),
					 MPIB_AGENT_NO_FREE_SLOTS);
		}
		assert_int_equal(client->n, 256);
		for (uint32_t n = 0; n < 256; n++)
			assert_int_equal(na_deregister(&r, client, n), MPIB_AGENT_OK);
		assert_int_equal(flows_in_use(&r), 0);
	}
	na_registry_end(&r);
}

/* A number means nothing: the one that had it is gone. */
static void a_process_that_has_died_is_not_found(void **state)
{
	static struct na_registry r;
	pid_t child = fork();
	int status;

	(void)state;
	if (child == 0) {
		pause();
		_exit(0);
	}
	na_registry_begin(&r, count_changes, NULL);
	assert_non_null(na_client_new(&r, child));
	assert_non_null(na_client_find(&r, child));
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
	assert_null(na_client_find(&r, child));
	assert_null(na_client_new(&r, child));
	assert_null(na_client_new(&r, 0)); /* of a namespace that is not ours */
	na_registry_end(&r);
}

/* ---- rules ----------------------------------------------------------------------------------- */

static bool read_rules(struct na_rules *rules, const char *text, char *err, size_t err_len)
{
	FILE *file = fopen(rules_file, "we");

	assert_non_null(file);
	fputs(text, file);
	fclose(file);
	rules->n = 0;
	return na_rules_read(rules, rules_file, err, err_len);
}

static uint32_t share_between(const struct na_rules *rules, const char *src, const char *dst)
{
	uint32_t share = 9999;

	(void)na_rules_find(rules, inet_addr(src), inet_addr(dst), &share);
	return share;
}

static void the_first_rule_that_fits_is_taken(void **state)
{
	static struct na_rules rules;
	char err[256];

	(void)state;
	assert_true(read_rules(&rules,
			       "# of two islands\n"
			       "10.1.0.0/16 10.1.0.0/16 1024   # within\n"
			       "\n"
			       "10.1.2.3 10.2.0.0/16\t100\n"
			       "10.0.0.0/8 0.0.0.0/0 0\n",
			       err, sizeof(err)));
	assert_int_equal(share_between(&rules, "10.1.2.3", "10.1.9.9"), 1024);
	assert_int_equal(share_between(&rules, "10.1.2.3", "10.2.9.9"), 100);
	assert_int_equal(share_between(&rules, "10.1.2.4", "10.2.9.9"), 0);
	assert_int_equal(share_between(&rules, "11.1.2.4", "10.2.9.9"), 9999);
}

static void a_file_of_rules_that_is_wrong_says_where(void **state)
{
	static const char *const wrong[] = {
	    "10.0.0.0/33 10.0.0.1 5",	"10.0.0.0/8 10.0.0.1",
	    "10.0.0.0/8 10.0.0.1 1025", "10.0.0.0/8 10.0.0.1 -1",
	    "10.0.0.0/8 10.0.0.1 5 6",	"a 10.0.0.1 5",
	    "10.0.0.0/ 10.0.0.1 5",	"::1 ::2 5",
	    "10.0.0.0/8 10.0.0.1 0x5",
	};
	static struct na_rules rules;
	char text[128], err[256];

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		snprintf(text, sizeof(text), "# one\n%s\n", wrong[i]);
		if (read_rules(&rules, text, err, sizeof(err)) || !strstr(err, "line 2:"))
			fail_msg("%s: %s", wrong[i], err);
	}
	assert_false(na_rules_read(&rules, "/nonexistent", err, sizeof(err)));
}

static void what_is_set_stands_until_it_is_taken_back(void **state)
{
	static struct na_rules rules;
	uint32_t src = inet_addr("10.0.0.1"), dst = inet_addr("10.0.0.2");

	(void)state;
	for (uint32_t share = 0; share < 3000; share++)
		assert_true(na_rules_set(&rules, src, dst, share % 1025));
	assert_int_equal(rules.n, 1);
	assert_int_equal(share_between(&rules, "10.0.0.1", "10.0.0.2"), 2999 % 1025);
	assert_int_equal(share_between(&rules, "10.0.0.2", "10.0.0.1"), 9999);
	na_rules_clear(&rules, src, dst);
	assert_int_equal(rules.n, 0);
	for (uint32_t n = 0; n < NA_RULES_MAX; n++)
		assert_true(na_rules_set(&rules, src, n, 1));
	assert_false(na_rules_set(&rules, dst, dst, 1));
}

/* ---- what was measured ----------------------------------------------------------------------- */

#define SOUT 1u
#define SUP  2u

static const struct ha_agent_flow between = {SOUT, 9, SUP, 10};

struct world {
	struct na_measured m;
	struct na_figures sout, sup;
	uint64_t now_ns;
	uint32_t share;
};

static struct world world_of(uint32_t sout_mbps, uint32_t sup_mbps)
{
	return (struct world){.sout = {.ip = SOUT, .speed_mbps = sout_mbps, .healthy = true},
			      .sup = {.ip = SUP, .speed_mbps = sup_mbps, .healthy = true},
			      .now_ns = HA_NS_PER_S};
}

/* So many looks, with a step of the share at each tick. */
static void go(struct world *w, int looks, uint64_t sout_bytes, uint64_t sup_bytes,
	       uint64_t sout_rtt_ns, uint64_t sup_rtt_ns)
{
	while (looks-- > 0) {
		w->sout.bytes += sout_bytes;
		w->sup.bytes += sup_bytes;
		w->sout.rtt_sum_ns += sout_rtt_ns;
		w->sup.rtt_sum_ns += sup_rtt_ns;
		w->sout.rtt_count++;
		w->sup.rtt_count++;
		na_measured_begin(&w->m);
		na_measured_add(&w->m, &w->sout);
		na_measured_add(&w->m, &w->sup);
		na_measured_end(&w->m, w->now_ns);
		for (int tick = 0; tick < NA_SAMPLE_MS / NA_TICK_MS; tick++) {
			uint32_t next = na_measured_share(&w->m, &between, w->share, w->now_ns);
			bool jump = next == 0 || next == 1024 || w->share == 0 || w->share == 1024;

			assert_true(next <= 1024);
			if (!jump)
				assert_in_range(next + 64, w->share, w->share + 128);
			w->share = next;
			w->now_ns += NA_TICK_MS * HA_NS_PER_MS;
		}
	}
}

static void idle_rails_have_shares_by_their_speed(void **state)
{
	static struct world w;

	(void)state;
	w = world_of(300000, 100000);
	go(&w, 10, 0, 0, 5000, 5000);
	assert_in_range(w.share, 256 - 32, 256 + 32);
}

static void a_rail_whose_round_trips_grow_gets_less(void **state)
{
	static struct world w;
	uint32_t before;

	(void)state;
	w = world_of(100000, 100000);
	go(&w, 10, 3000000000, 3000000000, 5000, 5000);
	before = w.share;
	assert_in_range(before, 400, 512 + 32);
	go(&w, 20, 3000000000, 3000000000, 5000, 80000);
	assert_true(w.share < before - 200);
	assert_true(w.share >= 16);
}

static void
a_rail_that_is_lost_has_nothing_at_once_and_is_held_down_for_longer_each_time(void **state)
{
	static struct world w;
	uint64_t hold_ns[4];

	(void)state;
	w = world_of(100000, 100000);
	go(&w, 20, 0, 0, 5000, 5000);
	for (int loss = 0; loss < 4; loss++) {
		assert_true(w.share > 300);
		w.sup.healthy = false;
		go(&w, 1, 0, 0, 5000, 5000);
		assert_int_equal(w.share, 0);
		w.sup.healthy = true;
		hold_ns[loss] = w.now_ns;
		while (w.share == 0)
			go(&w, 1, 0, 0, 5000, 5000);
		hold_ns[loss] = w.now_ns - hold_ns[loss];
		go(&w, 20, 0, 0, 5000, 5000);
	}
	for (int loss = 0; loss < 4; loss++) {
		uint64_t expected_ns = HA_NS_PER_S << loss;

		assert_in_range(hold_ns[loss], expected_ns - NA_SAMPLE_MS * HA_NS_PER_MS,
				expected_ns + 2 * NA_SAMPLE_MS * HA_NS_PER_MS);
	}
	/* And the first rail. */
	w.sout.healthy = false;
	go(&w, 1, 0, 0, 5000, 5000);
	assert_int_equal(w.share, 1024);
}

static void a_port_that_nobody_uses_gets_nothing(void **state)
{
	static struct na_measured m;

	(void)state;
	assert_int_equal(na_measured_share(&m, &between, 0, HA_NS_PER_S), 0);
	assert_int_equal(na_measured_share(&m, &between, 700, HA_NS_PER_S), 0);
}

static void a_process_that_ends_is_no_traffic(void **state)
{
	static struct world w;
	uint32_t before;

	(void)state;
	w = world_of(100000, 100000);
	go(&w, 10, 3000000000, 3000000000, 5000, 5000);
	before = w.share;
	w.sout.bytes = w.sup.bytes = 0; /* sums over fewer */
	w.sout.rtt_sum_ns = w.sup.rtt_sum_ns = 0;
	w.sout.rtt_count = w.sup.rtt_count = 0;
	go(&w, 1, 0, 0, 0, 0);
	assert_in_range(w.share + 64, before, before + 128);
	assert_true(w.m.port[0].rate >= 0 && w.m.port[0].rate < 1e11);
}

static const uint8_t gid_of_sup[16] = {[10] = 0xff, [11] = 0xff, [12] = 172, 16, 0, 1};
static const uint8_t gid_of_sout[16] = {[10] = 0xff, [11] = 0xff, [12] = 10, 0, 1, 1};

/* As a plugin publishes a port. */
static void publish(struct ha_stats *stats, const uint8_t *gid, uint32_t mbps, bool drained)
{
	struct nccl_ha_port_stats port = {
	    .in_use = 1, .state = 4, .speed_mbps = mbps, .drained = drained, .bytes = 1};

	memcpy(port.gid, gid, sizeof(port.gid));
	ha_stats_port_write(stats, ha_stats_port_add(stats), &port);
}

static void what_plugins_publish_is_what_is_measured(void **state)
{
	static const struct ha_config config = {.stats = true};
	const struct ha_agent_flow flow = {inet_addr("10.0.1.1"), inet_addr("10.0.1.2"),
					   inet_addr("172.16.0.1"), inet_addr("172.16.0.2")};
	static struct na_measured m;
	const char *before = ha_stats_dir;
	struct ha_stats *stats;

	(void)state;
	ha_stats_dir = dir;
	stats = ha_stats_open(&config);
	assert_non_null(stats);
	publish(stats, gid_of_sout, 300000, false);
	na_measured_sample(&m, HA_NS_PER_S);
	assert_int_equal(na_measured_share(&m, &flow, 500, HA_NS_PER_S), 0);
	publish(stats, gid_of_sup, 100000, false);
	na_measured_sample(&m, 2 * HA_NS_PER_S);
	assert_int_equal(na_measured_share(&m, &flow, 250, 2 * HA_NS_PER_S), 250);
	assert_int_equal(na_measured_share(&m, &flow, 500, 2 * HA_NS_PER_S), 500 - 64);
	publish(stats, gid_of_sup, 100000, true); /* another process' words, with an order */
	na_measured_sample(&m, 3 * HA_NS_PER_S);
	assert_int_equal(na_measured_share(&m, &flow, 500, 3 * HA_NS_PER_S), 0);
	ha_stats_close(stats);
	na_measured_sample(&m, 4 * HA_NS_PER_S);
	assert_int_equal(na_measured_share(&m, &flow, 500, 4 * HA_NS_PER_S), 0);
	ha_stats_dir = before;
}

/* Its owner cuts a file while it is read: before the first of its records. */
static const char *to_cut;

bool __real_ha_stats_read_port(struct ha_stats_reader *reader, unsigned int slot,
			       struct nccl_ha_port_stats *port);
bool __wrap_ha_stats_read_port(struct ha_stats_reader *reader, unsigned int slot,
			       struct nccl_ha_port_stats *port);

bool __wrap_ha_stats_read_port(struct ha_stats_reader *reader, unsigned int slot,
			       struct nccl_ha_port_stats *port)
{
	if (to_cut)
		assert_int_equal(truncate(to_cut, 0), 0);
	return __real_ha_stats_read_port(reader, slot, port);
}

static void a_statistics_file_that_is_cut_while_it_is_read_ends_no_agent(void **state)
{
	static const struct ha_config config = {.stats = true};
	static struct na_measured m;
	const char *before = ha_stats_dir;
	struct ha_stats *stats;

	(void)state;
	ha_stats_dir = dir;
	stats = ha_stats_open(&config);
	assert_non_null(stats);
	publish(stats, gid_of_sup, 100000, false);
	to_cut = ha_stats_path(stats);
	na_measured_sample(&m, HA_NS_PER_S);
	to_cut = NULL;
	assert_int_equal(m.n, 0);
	ha_stats_close(stats);
	ha_stats_dir = before;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	    T(an_odd_number_is_repaired_and_nothing_is_left_of_before),
	    T(there_is_one_agent_in_a_directory),
	    T(a_file_never_gets_shorter),
	    T(what_others_may_have_made_is_refused),
	    T(connections_of_two_addresses_share_a_slot),
	    T(slots_run_out_and_are_used_again),
	    T(a_process_that_has_died_is_not_found),
	    T(the_first_rule_that_fits_is_taken),
	    T(a_file_of_rules_that_is_wrong_says_where),
	    T(what_is_set_stands_until_it_is_taken_back),
	    T(idle_rails_have_shares_by_their_speed),
	    T(a_rail_whose_round_trips_grow_gets_less),
	    T(a_rail_that_is_lost_has_nothing_at_once_and_is_held_down_for_longer_each_time),
	    T(a_port_that_nobody_uses_gets_nothing),
	    T(a_process_that_ends_is_no_traffic),
	    T(what_plugins_publish_is_what_is_measured),
	    T(a_statistics_file_that_is_cut_while_it_is_read_ends_no_agent),
#undef T
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
