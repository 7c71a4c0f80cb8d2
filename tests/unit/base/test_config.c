/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The configuration: defaults as documented, every type parsed, bad values replaced and reported
 * once each, precedence of the timeouts, and documentation that matches the table.
 */
#include "../captured_log.h"
#include "../cmocka_all.h"
#include "base/config_doc.h"
#include "base/config_foreign.h"
#include "base/config_timeout.h"

#include "base/config.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* A fake environment: NAME, VALUE pairs. */
static const char *fake_env[32];

static char *fake_getenv(const char *name)
{
	for (int i = 0; fake_env[i]; i += 2)
		if (!strcmp(fake_env[i], name))
			return (char *)(uintptr_t)fake_env[i + 1];
	return NULL;
}

#define LOAD(config, ...)                                                                          \
	do {                                                                                       \
		const char *const pairs[] = {__VA_ARGS__};                                         \
		memset(fake_env, 0, sizeof fake_env);                                              \
		memcpy(fake_env, pairs, sizeof pairs);                                             \
		capture_log();                                                                     \
		ha_config_load(&(config), fake_getenv);                                            \
	} while (0)

static void defaults_are_the_documented_ones(void **state)
{
	struct ha_config c;

	(void)state;
	LOAD(c, NULL);
	assert_int_equal(captured_warnings, 0);
	assert_true(c.enable_backup);
	assert_int_equal(c.heartbeat_ms, 200);
	assert_int_equal(c.stall_ms, 10);
	assert_int_equal(c.rto_ms, 1000);
	assert_int_equal(c.max_retries, -1);
	assert_false(c.enable_failback);
	assert_int_equal(c.debug, 0);
	assert_int_equal(c.use_progress_thread, HA_POLLS_IDLE);
	assert_int_equal(c.progress_cpu, -1);
	assert_int_equal(c.poll_batch, 32);
	assert_int_equal(c.idle_spin_threshold, 1000);
	assert_int_equal(c.poll_standby_interval, 100);
	assert_int_equal(c.test_max_poll, 32);
	assert_int_equal(c.qp_timeout, 14);
	assert_int_equal(c.qp_retry_cnt, 7);
	assert_int_equal(c.expected_channels, 16);
	assert_int_equal(c.wr_per_conn, 64);
	assert_int_equal(c.max_recvs, 8);
	assert_int_equal(c.completion, HA_COMPLETION_RC);
	assert_false(c.disable);
	assert_true(c.stats);
	assert_string_equal(c.event_log, "");
	assert_string_equal(c.ib_hca, "");
	assert_int_equal(c.ib_gid_index, -1);
	assert_int_equal(c.ib_roce_version_num, 2);
	assert_int_equal(c.ib_addr_family, AF_INET);
	assert_int_equal(c.ib_addr_range.family, AF_UNSPEC);
	assert_int_equal(c.ib_ar_threshold, 8192);
	assert_int_equal(c.ib_qps_per_connection, 1);
	assert_int_equal(c.ib_pci_relaxed_ordering, 2);
	assert_int_equal(c.socket_family, AF_UNSPEC);
	assert_int_equal(c.rc_timeout, 14);
	assert_int_equal(c.rc_retry_cnt, 7);
	assert_int_equal(c.nccl_window_ms, 68720);
	assert_int_equal(c.give_up_ms, 68720);
}

static void every_type_is_parsed(void **state)
{
	static const uint8_t ten[4] = {10, 1, 0, 0};
	struct ha_config c;

	(void)state;
	LOAD(c, "HA_NCCL_ENABLE_BACKUP", "0", "HA_NCCL_RTO_MS", "0x20", "HA_NCCL_COMPLETION", "E2E",
	     "NCCL_IB_HCA", "=mlx5_0:1,mlx5_2", "NCCL_IB_ADDR_RANGE", "10.1.0.0/16",
	     "NCCL_SOCKET_FAMILY", "AF_INET6", "NCCL_DEBUG", "info");
	assert_int_equal(captured_warnings, 0);
	assert_false(c.enable_backup);
	assert_int_equal(c.rto_ms, 32);
	assert_int_equal(c.completion, HA_COMPLETION_E2E);
	assert_string_equal(c.ib_hca, "=mlx5_0:1,mlx5_2");
	assert_int_equal(c.ib_addr_range.family, AF_INET);
	assert_memory_equal(c.ib_addr_range.addr, ten, 4);
	assert_int_equal(c.ib_addr_range.prefix_len, 16);
	assert_int_equal(c.socket_family, AF_INET6);
	assert_int_equal(c.nccl_debug, HA_NCCL_DEBUG_INFO);
	assert_int_equal(ha_config_origin(&c, "HA_NCCL_RTO_MS"), HA_ORIGIN_ENVIRONMENT);
	assert_int_equal(ha_config_origin(&c, "HA_NCCL_HEARTBEAT_MS"), HA_ORIGIN_DEFAULT);

	LOAD(c, "NCCL_IB_ADDR_RANGE", "fd00::/8");
	assert_int_equal(c.ib_addr_range.family, AF_INET6);
	assert_int_equal(c.ib_addr_range.addr[0], 0xfd);
	assert_int_equal(c.ib_addr_range.prefix_len, 8);
	LOAD(c, "NCCL_IB_ADDR_RANGE", "10.1.2.3"); /* one address */
	assert_int_equal(c.ib_addr_range.prefix_len, 32);
}

static void empty_means_not_set(void **state)
{
	struct ha_config c;

	(void)state;
	LOAD(c, "HA_NCCL_RTO_MS", "", "NCCL_IB_HCA", "", "HA_NCCL_COMPLETION", "");
	assert_int_equal(captured_warnings, 0);
	assert_int_equal(c.rto_ms, 1000);
	assert_int_equal(ha_config_origin(&c, "HA_NCCL_RTO_MS"), HA_ORIGIN_DEFAULT);
}

static void a_bad_value_is_one_warning_and_the_default(void **state)
{
	static const struct {
		const char *name, *value;
	} bad[] = {
	    {"HA_NCCL_RTO_MS", "fast"},
	    {"HA_NCCL_RTO_MS", "0"},
	    {"HA_NCCL_RTO_MS", "-5"},
	    {"HA_NCCL_RTO_MS", "600001"},
	    {"HA_NCCL_RTO_MS", "99999999999999999999999999"},
	    {"HA_NCCL_RTO_MS", "4294968296"}, /* 1000 modulo 2^32 */
	    {"HA_NCCL_RTO_MS", "10s"},
	    {"HA_NCCL_RTO_MS", " "},
	    {"HA_NCCL_RTO_MS", "\xff\xfe"},
	    {"HA_NCCL_ENABLE_BACKUP", "yes"},
	    {"HA_NCCL_ENABLE_BACKUP", "2"},
	    {"HA_NCCL_COMPLETION", "rce2e"},
	    {"NCCL_IB_TIMEOUT", "32"},
	    {"NCCL_IB_ADDR_RANGE", "10.0.0.0/33"},
	    {"NCCL_IB_ADDR_RANGE", "10.0.0/8"},
	    {"NCCL_IB_ADDR_RANGE", "/"},
	    {"NCCL_IB_ADDR_RANGE", "fd00::/129"},
	    {"NCCL_IB_ADDR_RANGE", "fd00::/"},
	    {"NCCL_IB_ADDR_RANGE", "1:2:3:4:5:6:7:8:9:a:b:c:d:e:f:0:1:2:3:4:5:6/8"},
	};
	struct ha_config defaults, c;

	(void)state;
	LOAD(defaults, NULL);
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		LOAD(c, bad[i].name, bad[i].value);
		assert_int_equal(captured_warnings, 1);
		assert_true(logged(bad[i].name));
		assert_true(logged("using the default, "));
		assert_int_equal(ha_config_origin(&c, bad[i].name), HA_ORIGIN_INVALID);
		assert_memory_equal(&c, &defaults, offsetof(struct ha_config, origin));
	}
	LOAD(c, "HA_NCCL_RTO_MS", "fast");
	assert_true(logged("HA_NCCL_RTO_MS=fast"));
	assert_true(logged("expected 1 to 600000"));
	assert_true(logged("default, 1000"));
}

static void a_hostile_value_cannot_spoil_the_log(void **state)
{
	static char huge[1 << 20];
	struct ha_config c;

	(void)state;
	memset(huge, 'A', sizeof huge - 1);
	LOAD(c, "NCCL_IB_HCA", huge, "HA_NCCL_RTO_MS", huge, "HA_NCCL_COMPLETION",
	     "rc\nNET/HA : all is well\x1b[2J%n%s");
	assert_int_equal(captured_warnings, 3);
	assert_string_equal(c.ib_hca, "");
	assert_true(captured_length < 1500);
	assert_null(strstr(captured_log, "\nNET/HA : all is well"));
	assert_null(strchr(captured_log, '\x1b'));
}

static void the_longest_string_that_fits_is_taken_whole(void **state)
{
	char text[HA_CONFIG_STRING_MAX + 1];
	struct ha_config c;

	(void)state;
	memset(text, 'x', sizeof text);
	text[HA_CONFIG_STRING_MAX] = '\0';
	LOAD(c, "NCCL_IB_HCA", text);
	assert_int_equal(captured_warnings, 1);
	text[HA_CONFIG_STRING_MAX - 1] = '\0';
	LOAD(c, "NCCL_IB_HCA", text);
	assert_int_equal(captured_warnings, 0);
	assert_string_equal(c.ib_hca, text);
}

static void force_wins_over_nccls_timeout_which_wins_over_ours(void **state)
{
	struct ha_config c;

	(void)state;
	LOAD(c, "HA_NCCL_QP_TIMEOUT", "15");
	assert_int_equal(c.rc_timeout, 15);
	LOAD(c, "HA_NCCL_QP_TIMEOUT", "15", "NCCL_IB_TIMEOUT", "20");
	assert_int_equal(c.rc_timeout, 20);
	LOAD(c, "NCCL_IB_TIMEOUT", "0"); /* 0 is a value of its own: no timeout */
	assert_int_equal(c.rc_timeout, 0);
	LOAD(c, "HA_NCCL_QP_TIMEOUT", "15", "NCCL_IB_TIMEOUT", "20", "HA_NCCL_FORCE_IB_TIMEOUT",
	     "16");
	assert_int_equal(c.rc_timeout, 16);
	LOAD(c, "NCCL_IB_TIMEOUT", "20", "HA_NCCL_FORCE_IB_TIMEOUT", "77");
	assert_int_equal(c.rc_timeout, 20);
	LOAD(c, "HA_NCCL_QP_RETRY_CNT", "3");
	assert_int_equal(c.rc_retry_cnt, 3);
	LOAD(c, "HA_NCCL_QP_RETRY_CNT", "3", "NCCL_IB_RETRY_CNT", "0");
	assert_int_equal(c.rc_retry_cnt, 0);
}

/* A minute, and what NCCL's own transport would bear with the same NCCL_IB_* where that is longer.
 */
static void by_default_an_outage_may_last_a_minute_and_never_less_than_nccls_own(void **state)
{
	struct ha_config c;

	(void)state;
	LOAD(c, "NCCL_IB_TIMEOUT", "14");
	assert_int_equal(c.give_up_ms, 60000);
	LOAD(c, "NCCL_IB_TIMEOUT", "18", "NCCL_IB_RETRY_CNT", "0");
	assert_int_equal(c.give_up_ms, 60000);
	LOAD(c, "NCCL_IB_TIMEOUT", "22");
	assert_true(c.give_up_ms >= 4 * 58800);
	LOAD(c, "NCCL_IB_TIMEOUT", "22", "NCCL_IB_RETRY_CNT", "3");
	assert_true(c.give_up_ms >= 2 * 58800);
	LOAD(c, "NCCL_IB_TIMEOUT", "0"); /* NCCL's would wait for ever */
	assert_int_equal(c.give_up_ms, INT32_MAX);
	LOAD(c, "NCCL_IB_TIMEOUT", "31");
	assert_true(c.give_up_ms >= 70000000);
	/* Timers of ours have no part in it. */
	LOAD(c, "HA_NCCL_RTO_MS", "100", "HA_NCCL_QP_TIMEOUT", "8", "HA_NCCL_FORCE_IB_TIMEOUT",
	     "8");
	assert_int_equal(c.give_up_ms, 68720);
}

static void who_asks_for_less_than_nccls_own_gets_it_and_one_warning(void **state)
{
	struct ha_config c;

	(void)state;
	LOAD(c, "HA_NCCL_OUTAGE_MS", "10000");
	assert_int_equal(c.give_up_ms, 10000);
	assert_true(ha_config_warn_short_timeouts(&c));
	assert_int_equal(captured_warnings, 1);
	assert_true(logged("HA_NCCL_OUTAGE_MS=10000: "));
	assert_true(logged("fails after 10000 ms"));
	assert_true(logged("68720 ms with NCCL_IB_TIMEOUT=20 and NCCL_IB_RETRY_CNT=7"));

	LOAD(c, "HA_NCCL_MAX_RETRIES", "3", "HA_NCCL_RTO_MS", "500", "NCCL_IB_TIMEOUT", "22");
	assert_int_equal(c.give_up_ms, 1500);
	assert_true(ha_config_warn_short_timeouts(&c));
	assert_int_equal(captured_warnings, 1);
	assert_true(logged("HA_NCCL_MAX_RETRIES=3 times HA_NCCL_RTO_MS=500: "));
	assert_true(logged("274878 ms with NCCL_IB_TIMEOUT=22"));

	LOAD(c, "HA_NCCL_OUTAGE_MS", "10000", "NCCL_IB_TIMEOUT", "16");
	assert_false(ha_config_warn_short_timeouts(&c)); /* 4.3 s there */
	LOAD(c, "HA_NCCL_OUTAGE_MS", "68720");
	assert_false(ha_config_warn_short_timeouts(&c));
	LOAD(c, "HA_NCCL_RTO_MS", "100", "HA_NCCL_QP_TIMEOUT", "8");
	assert_false(ha_config_warn_short_timeouts(&c));
	LOAD(c, "NCCL_IB_TIMEOUT", "10");
	assert_false(ha_config_warn_short_timeouts(&c));
	assert_int_equal(captured_warnings, 0);
}

/* A path that fails ends the connection there, as with NCCL's own: it must not fail earlier. */
static void without_failover_a_path_is_as_patient_as_nccls_own(void **state)
{
	struct ha_config c;

	(void)state;
	LOAD(c, NULL);
	assert_int_equal(c.lone_timeout_min, 20);
	assert_int_equal(c.lone_rto_min_ms, 68720);
	LOAD(c, "NCCL_IB_TIMEOUT", "16"); /* as for NCCL's own */
	assert_int_equal(c.lone_timeout_min, 0);
	assert_int_equal(c.lone_rto_min_ms, 4295);
	LOAD(c, "HA_NCCL_ENABLE_BACKUP", "0", "HA_NCCL_QP_TIMEOUT", "15");
	assert_int_equal(c.lone_timeout_min, 0);
	assert_true(ha_config_warn_short_timeouts(&c));
	assert_true(logged("HA_NCCL_QP_TIMEOUT=15 without failover: "));
	LOAD(c, "HA_NCCL_ENABLE_BACKUP", "0", "HA_NCCL_RTO_MS", "2000");
	assert_int_equal(c.lone_rto_min_ms, 0);
	assert_true(ha_config_warn_short_timeouts(&c));
	assert_true(logged("HA_NCCL_RTO_MS=2000 without failover: "));
	LOAD(c, "HA_NCCL_ENABLE_BACKUP", "0", "HA_NCCL_FORCE_IB_TIMEOUT", "14", "NCCL_IB_TIMEOUT",
	     "20");
	assert_true(ha_config_warn_short_timeouts(&c));
	assert_true(logged("HA_NCCL_FORCE_IB_TIMEOUT=14 without failover: "));
	LOAD(c, "HA_NCCL_ENABLE_BACKUP", "0", "NCCL_IB_TIMEOUT", "14");
	assert_false(ha_config_warn_short_timeouts(&c));
}

static void outage_deadline_is_the_product_where_that_is_set(void **state)
{
	struct ha_config c;

	(void)state;
	LOAD(c, "HA_NCCL_MAX_RETRIES", "3", "HA_NCCL_RTO_MS", "500");
	assert_int_equal(c.give_up_ms, 1500);
	LOAD(c, "HA_NCCL_MAX_RETRIES", "3", "HA_NCCL_OUTAGE_MS", "60000");
	assert_int_equal(c.give_up_ms, 60000);
	LOAD(c, "HA_NCCL_MAX_RETRIES", "1000000", "HA_NCCL_RTO_MS", "600000");
	assert_int_equal(c.give_up_ms, INT32_MAX);
}

static void a_misspelt_variable_is_named_with_the_right_one(void **state)
{
	char *env[] = {(char[]){"HA_NCCL_HEARTBEET_MS=1"},
		       (char[]){"HA_NCCL_RTO_MS=1"},
		       (char[]){"PATH=/bin"},
		       (char[]){"HA_NCCL_=1"},
		       (char[]){"HA_NCCL_ZZZZZZZZZZ"},
		       NULL};

	(void)state;
	capture_log();
	assert_int_equal(ha_config_warn_unknown(env), 3);
	assert_int_equal(captured_warnings, 3);
	assert_true(logged("HA_NCCL_HEARTBEET_MS"));
	assert_true(logged("did you mean HA_NCCL_HEARTBEAT_MS?"));
	assert_false(logged("PATH"));
	assert_false(logged("HA_NCCL_RTO_MS="));
}

/* What NCCL's own transport would heed and nothing here does. */
static void nccls_variables_without_effect_are_told_once_where_they_ask_for_something(void **state)
{
	char *env[] = {(char[]){"NCCL_IB_MERGE_NICS=1"},
		       (char[]){"NCCL_IB_OOO_RQ=0"}, /* as it is here */
		       (char[]){"NCCL_IB_RESILIENCY_PORT_FAILOVER=1"},
		       (char[]){"NCCL_IB_RESILIENCY_=1"},
		       (char[]){"NCCL_IB_FIFO_TC="},
		       (char[]){"NCCL_IB_FIFO_TC"},
		       (char[]){"NCCL_IB_TIMEOUT=22"},
		       (char[]){"NCCL_IB_MERGE_NICS_X=1"},
		       (char[]){"NCCL_IBVERBS_LIB=/opt/x.so"},
		       NULL};
	(void)state;
	capture_log();
	assert_int_equal(ha_config_note_foreign(env), 3);
	assert_int_equal(captured_warnings, 0);
	assert_true(logged("NCCL_IB_MERGE_NICS is set and changes nothing here: each port is"));
	assert_true(logged("NCCL_IB_RESILIENCY_PORT_FAILOVER is set and changes nothing here: "));
	assert_true(logged("NCCL_IBVERBS_LIB is set"));
	assert_false(logged("/opt"));
	assert_false(logged("OOO_RQ"));
	assert_int_equal(ha_config_note_foreign(NULL), 0);
	/* Nothing is both. */
	for (size_t i = 0; i < ha_config_nforeign; i++)
		assert_null(ha_config_find(ha_config_foreign[i].name));
}

static void what_was_set_is_logged_and_what_is_idle_is_said(void **state)
{
	struct ha_config c;

	(void)state;
	LOAD(c, "HA_NCCL_POLL_BATCH", "16", "HA_NCCL_RTO_MS", "junk", "HA_NCCL_DEBUG", "2");
	capture_log();
	ha_config_log(&c);
	assert_true(logged("HA_NCCL_POLL_BATCH set by environment to 16"));
	assert_true(logged("HA_NCCL_DEBUG set by environment to 2"));
	assert_false(logged("HA_NCCL_RTO_MS"));
}

static void values_print_the_way_they_are_set(void **state)
{
	struct ha_config c, again;
	char text[HA_CONFIG_STRING_MAX];

	(void)state;
	LOAD(c, "HA_NCCL_COMPLETION", "e2e", "NCCL_IB_ADDR_RANGE", "fd00::/8", "NCCL_SOCKET_IFNAME",
	     "^lo", "HA_NCCL_STATS", "0", "NCCL_IB_AR_THRESHOLD", "1");
	for (size_t i = 0; i < ha_config_nvars; i++) {
		const struct ha_config_var *var = &ha_config_vars[i];

		if (ha_config_origin(&c, var->name) != HA_ORIGIN_ENVIRONMENT)
			continue;
		ha_config_value_text(&c, var, text, sizeof text);
		assert_string_equal(text, fake_getenv(var->name));
	}
	again = c;
	assert_memory_equal(&again, &c, sizeof c);
}

/* Two rows on one field, or a row whose default its own parser refuses, are slips of the table. */
static void the_table_is_consistent(void **state)
{
	(void)state;
	for (size_t i = 0; i < ha_config_nvars; i++) {
		const struct ha_config_var *var = &ha_config_vars[i];

		assert_non_null(var->name);
		assert_non_null(var->help);
		assert_null(strchr(var->help, '\n'));
		assert_null(strchr(var->help, '|'));
		assert_ptr_equal(ha_config_find(var->name), var);
		for (size_t j = 0; j < i; j++)
			assert_int_not_equal(ha_config_vars[j].offset, var->offset);
		if (var->type == HA_TYPE_CHOICE)
			assert_non_null(var->choices);
		if (var->type == HA_TYPE_INT && !var->default_text) {
			assert_true(var->default_value >= var->min);
			assert_true(var->default_value <= var->max);
		}
	}
}

static void is_up_to_date(const char *path, void (*write_it)(FILE *out))
{
	char *generated = NULL, *written;
	size_t size = 0, got;
	FILE *out = open_memstream(&generated, &size);
	FILE *in = fopen(path, "r");

	assert_non_null(out);
	assert_non_null(in);
	write_it(out);
	fclose(out);
	written = calloc(1, size + 2);
	got = fread(written, 1, size + 1, in);
	fclose(in);
	if (got != size || memcmp(written, generated, size) != 0)
		fail_msg("%s is out of date: run 'ninja update-docs'", path);
	free(written);
	free(generated);
}

static void documentation_is_up_to_date(void **state)
{
	(void)state;
	is_up_to_date(HA_SOURCE_DIR "/docs/configuration.md", ha_config_write_markdown);
	is_up_to_date(HA_SOURCE_DIR "/docs/man/nccl-ha-config.7", ha_config_write_man);
}

#define MPIB "MPIB_HCA_SOUT", "mlx5_0", "MPIB_HCA_SUP", "mlx5_1"

/* Who sets the other names means what these say. */
static void rails_by_the_other_names_go_by_islands_unless_their_mode_is_1(void **state)
{
	struct ha_config c;

	(void)state;
	LOAD(c, "HA_NCCL_RAILS", "mlx5_0+mlx5_1");
	assert_int_equal(c.rail_mode, HA_RAIL_MODE_ADAPTIVE);
	LOAD(c, MPIB);
	assert_int_equal(c.rail_mode, HA_RAIL_MODE_ISLAND);
	LOAD(c, MPIB, "MPIB_MODE", "1", "MPIB_ISLAND_PREFIX_LEN", "20", "MPIB_AGENT_TAG", "job7");
	assert_int_equal(c.rail_mode, HA_RAIL_MODE_AGENT);
	assert_string_equal(c.island, "20");
	assert_string_equal(c.agent_dir, "/tmp/mpib/job7");
	LOAD(c, "HA_NCCL_RAILS", "mlx5_0+mlx5_1", "MPIB_MODE", "0");
	assert_int_equal(c.rail_mode, HA_RAIL_MODE_ISLAND);
	LOAD(c, MPIB, "HA_NCCL_RAIL_MODE", "adaptive");
	assert_int_equal(c.rail_mode, HA_RAIL_MODE_ADAPTIVE);
	assert_int_equal(captured_warnings, 0);
}

static void of_a_rail_variable_and_its_alias_the_former_wins_with_one_warning(void **state)
{
	struct ha_config c;

	(void)state;
	LOAD(c, MPIB, "HA_NCCL_RAIL_MODE", "agent", "MPIB_MODE", "0");
	assert_int_equal(c.rail_mode, HA_RAIL_MODE_AGENT);
	assert_int_equal(captured_warnings, 1);
	assert_true(
	    logged("HA_NCCL_RAIL_MODE=agent and MPIB_MODE=0 differ: HA_NCCL_RAIL_MODE is used"));
	LOAD(c, MPIB, "HA_NCCL_ISLAND", "16", "MPIB_ISLAND_PREFIX_LEN", "20");
	assert_string_equal(c.island, "16");
	assert_int_equal(captured_warnings, 1);
	assert_true(logged("HA_NCCL_ISLAND=16 and MPIB_ISLAND_PREFIX_LEN=20 differ"));
	LOAD(c, MPIB, "HA_NCCL_AGENT_DIR", "/run/agent", "MPIB_AGENT_TAG", "job7");
	assert_string_equal(c.agent_dir, "/run/agent");
	assert_int_equal(captured_warnings, 1);
	assert_true(logged("HA_NCCL_AGENT_DIR=/run/agent and MPIB_AGENT_TAG=job7 differ"));
	LOAD(c, MPIB, "MPIB_MODE", "2", "MPIB_ISLAND_PREFIX_LEN", "33");
	assert_int_equal(c.rail_mode, HA_RAIL_MODE_ISLAND);
	assert_string_equal(c.island, "");
	assert_int_equal(captured_warnings, 2);
}

/* What is used is said, which is what another variable says. */
static void a_bad_mode_of_rails_is_one_warning_with_what_is_used(void **state)
{
	struct ha_config c;

	(void)state;
	LOAD(c, "HA_NCCL_RAILS", "a+b", "HA_NCCL_RAIL_MODE", "fast");
	assert_int_equal(c.rail_mode, HA_RAIL_MODE_ADAPTIVE);
	assert_int_equal(captured_warnings, 1);
	assert_true(
	    logged("HA_NCCL_RAIL_MODE=fast cannot be used: expected adaptive, static, agent, "
		   "island; using the default, adaptive"));
	LOAD(c, MPIB, "HA_NCCL_RAIL_MODE", "fast");
	assert_int_equal(c.rail_mode, HA_RAIL_MODE_ISLAND);
	assert_int_equal(captured_warnings, 1);
	assert_true(
	    logged("HA_NCCL_RAIL_MODE=fast cannot be used: expected adaptive, static, agent, "
		   "island; using island"));
	LOAD(c, MPIB, "HA_NCCL_RAIL_MODE", "fast", "MPIB_MODE", "1");
	assert_int_equal(c.rail_mode, HA_RAIL_MODE_AGENT);
	assert_int_equal(captured_warnings, 1);
	assert_true(logged("island; using agent"));
	LOAD(c, MPIB, "MPIB_MODE", "2");
	assert_int_equal(captured_warnings, 1);
	assert_true(
	    logged("MPIB_MODE=2 cannot be used: expected 0, 1; using HA_NCCL_RAIL_MODE=island"));
	LOAD(c, "HA_NCCL_RAILS", "a+b", "MPIB_MODE", "2");
	assert_int_equal(c.rail_mode, HA_RAIL_MODE_ADAPTIVE);
	assert_int_equal(captured_warnings, 1);
	assert_true(logged("using HA_NCCL_RAIL_MODE=adaptive"));
	LOAD(c, MPIB, "MPIB_ISLAND_PREFIX_LEN", "33");
	assert_int_equal(captured_warnings, 1);
	assert_true(logged("MPIB_ISLAND_PREFIX_LEN=33 cannot be used: expected 1 to 32; using "
			   "HA_NCCL_ISLAND=24"));
	LOAD(c, MPIB, "MPIB_SUP_QP", "17");
	assert_int_equal(captured_warnings, 1);
	assert_true(logged("MPIB_SUP_QP=17 cannot be used: expected 1 to 16; using "
			   "HA_NCCL_RAIL_QPS=2,4"));
}

static void expect_rail_qps(const struct ha_config *c, int rail0, int rail1, int rail2)
{
	assert_int_equal(c->nqps_of_rail[0], rail0);
	assert_int_equal(c->nqps_of_rail[1], rail1);
	assert_int_equal(c->nqps_of_rail[2], rail2);
}

static void queue_pairs_by_rail_are_given_by_either_name(void **state)
{
	struct ha_config c;

	(void)state;
	LOAD(c, "HA_NCCL_RAILS", "a+b");
	expect_rail_qps(&c, 0, 0, 0);
	assert_int_equal(ha_config_most_qps(&c), 1);
	LOAD(c, "HA_NCCL_RAILS", "a+b", "HA_NCCL_RAIL_QPS", "2,16");
	expect_rail_qps(&c, 2, 16, 0);
	assert_int_equal(ha_config_most_qps(&c), 16);
	LOAD(c, MPIB);
	expect_rail_qps(&c, 2, 4, 0); /* as where the names come from */
	LOAD(c, MPIB, "MPIB_SOUT_QP", "1", "MPIB_SUP_QP", "3");
	expect_rail_qps(&c, 1, 3, 0);
	LOAD(c, MPIB, "HA_NCCL_RAIL_QPS", "5,6");
	expect_rail_qps(&c, 5, 6, 0);
	LOAD(c, "HA_NCCL_RAILS", "a+b", "MPIB_SUP_QP", "3");
	expect_rail_qps(&c, 1, 3, 0);
	LOAD(c, MPIB, "NCCL_IB_QPS_PER_CONNECTION", "8");
	expect_rail_qps(&c, 0, 0, 0);
	LOAD(c, MPIB, "MPIB_SUP_QP", "4", "NCCL_IB_QPS_PER_CONNECTION", "8");
	expect_rail_qps(&c, 8, 4, 0);
	assert_int_equal(ha_config_most_qps(&c), 8);
	assert_int_equal(captured_warnings, 0);
}

static void queue_pairs_by_rail_that_cannot_be_are_one_warning_and_none(void **state)
{
	static const char *const bad[] = {"0",	 "17",	"2,",  ",2",	    "2,x",
					  "2;4", "-1,", "2 4", "1,1,1,1,1", "99999999999999999999"};
	struct ha_config c;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		LOAD(c, "HA_NCCL_RAILS", "a+b", "HA_NCCL_RAIL_QPS", bad[i]);
		expect_rail_qps(&c, 0, 0, 0);
		assert_int_equal(captured_warnings, 1);
		assert_true(logged("1 to 4 numbers from 1 to 16"));
	}
	LOAD(c, "HA_NCCL_RAIL_QPS", "2,4");
	expect_rail_qps(&c, 0, 0, 0);
	assert_true(logged("has no effect without HA_NCCL_RAILS"));
	LOAD(c, MPIB, "HA_NCCL_RAIL_QPS", "2,4", "MPIB_SUP_QP", "3");
	expect_rail_qps(&c, 2, 4, 0);
	assert_int_equal(captured_warnings, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(defaults_are_the_documented_ones),
	    cmocka_unit_test(every_type_is_parsed),
	    cmocka_unit_test(empty_means_not_set),
	    cmocka_unit_test(a_bad_value_is_one_warning_and_the_default),
	    cmocka_unit_test(a_hostile_value_cannot_spoil_the_log),
	    cmocka_unit_test(the_longest_string_that_fits_is_taken_whole),
	    cmocka_unit_test(force_wins_over_nccls_timeout_which_wins_over_ours),
	    cmocka_unit_test(by_default_an_outage_may_last_a_minute_and_never_less_than_nccls_own),
	    cmocka_unit_test(who_asks_for_less_than_nccls_own_gets_it_and_one_warning),
	    cmocka_unit_test(without_failover_a_path_is_as_patient_as_nccls_own),
	    cmocka_unit_test(outage_deadline_is_the_product_where_that_is_set),
	    cmocka_unit_test(rails_by_the_other_names_go_by_islands_unless_their_mode_is_1),
	    cmocka_unit_test(of_a_rail_variable_and_its_alias_the_former_wins_with_one_warning),
	    cmocka_unit_test(a_bad_mode_of_rails_is_one_warning_with_what_is_used),
	    cmocka_unit_test(queue_pairs_by_rail_are_given_by_either_name),
	    cmocka_unit_test(queue_pairs_by_rail_that_cannot_be_are_one_warning_and_none),
	    cmocka_unit_test(a_misspelt_variable_is_named_with_the_right_one),
	    cmocka_unit_test(
		nccls_variables_without_effect_are_told_once_where_they_ask_for_something),
	    cmocka_unit_test(what_was_set_is_logged_and_what_is_idle_is_said),
	    cmocka_unit_test(values_print_the_way_they_are_set),
	    cmocka_unit_test(the_table_is_consistent),
	    cmocka_unit_test(documentation_is_up_to_date),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
