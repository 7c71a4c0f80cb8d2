/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any text in any variable: the configuration stays within its ranges, the log gets one line for
 * a bad value and no control characters, and what was accepted prints as something accepted.
 *
 * Input: lines NAME=VALUE (the last of a name counts); what is not of that form is a value for a
 * variable chosen by its first byte, so that mutations need not spell names right.
 */
#include "fuzz.h"

#include "base/config.h"
#include "base/log.h"

#include <netinet/in.h>
#include <string.h>

static char text[8192];
static const char *values[HA_CONFIG_MAX_VARS];
static int warnings;

const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_TEXT("HA_NCCL_RTO_MS=1000"),
    FUZZ_TEXT("HA_NCCL_COMPLETION=e2e\nHA_NCCL_OUTAGE_MS=60000\nHA_NCCL_MAX_RETRIES=1000000"),
    FUZZ_TEXT("NCCL_IB_ADDR_RANGE=10.0.0.0/8"),
    FUZZ_TEXT("NCCL_IB_ADDR_RANGE=fd00:1::ffff:10.0.0.1/100"),
    FUZZ_TEXT("NCCL_IB_HCA=^=mlx5_0:1,mlx5_10\nNCCL_SOCKET_IFNAME=^docker,lo"),
    FUZZ_TEXT("NCCL_IB_TIMEOUT=22\nHA_NCCL_FORCE_IB_TIMEOUT=0x10\nNCCL_IB_RETRY_CNT=007"),
    FUZZ_TEXT("NCCL_IB_GID_INDEX=-1\nNCCL_IB_TC=106\nNCCL_IB_SL=3\nNCCL_DEBUG=INFO"),
    FUZZ_TEXT("NCCL_SOCKET_FAMILY=AF_INET6\nNCCL_IB_ADDR_FAMILY=AF_INET"),
    FUZZ_TEXT("HA_NCCL_EVENT_LOG=/var/log/ha-%p.json\nHA_NCCL_STATS=0\nHA_NCCL_DEBUG=3"),
    FUZZ_TEXT("\x05"
	      "99999999999999999999999999999999"),
    {NULL, 0},
};

static char *fuzzed_getenv(const char *name)
{
	return (char *)(uintptr_t)values[ha_config_find(name) - ha_config_vars];
}

static void check_line(enum ha_log_level level, unsigned long subsys, const char *file, int line,
		       const char *logged)
{
	(void)subsys, (void)file, (void)line;
	warnings += level == HA_LOG_WARN;
	FUZZ_CHECK(strlen(logged) < 1024);
	for (const char *c = logged; *c; c++)
		FUZZ_CHECK((unsigned char)*c >= 0x20 && *c != 0x7f);
}

static void read_input(const uint8_t *data, size_t size)
{
	memset(values, 0, sizeof values);
	if (size > sizeof text - 1)
		size = sizeof text - 1;
	memcpy(text, data, size);
	text[size] = '\0';
	for (char *line = text, *next; line; line = next) {
		const struct ha_config_var *var;
		char *equals = strchr(line, '=');

		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		if (equals && (!next || equals < next)) {
			*equals = '\0';
			var = ha_config_find(line);
			*equals = '=';
			if (var) {
				values[var - ha_config_vars] = equals + 1;
				continue;
			}
		}
		if (*line)
			values[(unsigned char)*line % ha_config_nvars] = line + 1;
	}
}

static void check_ranges(const struct ha_config *config)
{
	for (size_t i = 0; i < ha_config_nvars; i++) {
		const struct ha_config_var *var = &ha_config_vars[i];
		const char *field = (const char *)config + var->offset;
		int value;

		if (var->type == HA_TYPE_STRING)
			FUZZ_CHECK(memchr(field, '\0', HA_CONFIG_STRING_MAX) != NULL);
		if (var->type != HA_TYPE_INT)
			continue;
		memcpy(&value, field, sizeof value);
		FUZZ_CHECK(value == var->default_value || (value >= var->min && value <= var->max));
	}
	FUZZ_CHECK(config->rc_timeout >= 0 && config->rc_timeout <= 31);
	FUZZ_CHECK(config->rc_retry_cnt >= 0 && config->rc_retry_cnt <= 7);
	FUZZ_CHECK(config->give_up_ms > 0);
	for (int rail = 0; rail < HA_CONFIG_RAILS; rail++)
		FUZZ_CHECK(config->nqps_of_rail[rail] <= 16);
	FUZZ_CHECK(ha_config_most_qps(config) >= 1 && ha_config_most_qps(config) <= 16);
	FUZZ_CHECK(config->ib_addr_range.prefix_len >= 0 &&
		   config->ib_addr_range.prefix_len <= 128);
}

static bool is_set(const struct ha_config *config, const char *name)
{
	return ha_config_origin(config, name) == HA_ORIGIN_ENVIRONMENT;
}

/* One for each alias of another variable that says something else than that does. */
static int other_alias_warnings(const struct ha_config *config)
{
	char island[16], dir[2 * HA_CONFIG_STRING_MAX];
	int n = 0;

	snprintf(island, sizeof island, "%d", config->mpib_island_prefix_len);
	snprintf(dir, sizeof dir, "/tmp/mpib/%s", config->mpib_agent_tag);
	n += is_set(config, "MPIB_MODE") && is_set(config, "HA_NCCL_RAIL_MODE") &&
	     config->mpib_mode != config->rail_mode;
	n += is_set(config, "MPIB_ISLAND_PREFIX_LEN") && is_set(config, "HA_NCCL_ISLAND") &&
	     strcmp(config->island, island) != 0;
	n += is_set(config, "MPIB_AGENT_TAG") && is_set(config, "HA_NCCL_AGENT_DIR") &&
	     strcmp(config->agent_dir, dir) != 0;
	return n;
}

/* One where it says something else than its aliases, and one where it is of no use. */
static int rail_qps_warnings(const struct ha_config *config)
{
	const bool theirs = config->rails_by_alias && !is_set(config, "NCCL_IB_QPS_PER_CONNECTION");
	const int nccls = config->ib_qps_per_connection;
	const int sout = config->mpib_sout_qp, sup = config->mpib_sup_qp;
	char aliases[32];
	int n = 0;

	snprintf(aliases, sizeof aliases, "%d,%d",
		 sout > 0 ? sout
		 : theirs ? 2
			  : nccls,
		 sup > 0  ? sup
		 : theirs ? 4
			  : nccls);
	n += is_set(config, "HA_NCCL_RAIL_QPS") && (sout > 0 || sup > 0) &&
	     strcmp(config->rail_qps, aliases) != 0;
	n += *config->rail_qps && config->nqps_of_rail[0] == 0;
	return n;
}

/* One for the aliases of HA_NCCL_RAILS where they cannot be used, or say something else. */
static int alias_warnings(const struct ha_config *config)
{
	const char *sout = config->mpib_hca_sout, *sup = config->mpib_hca_sup;
	char both[2 * HA_CONFIG_STRING_MAX];

	if (!*sout && !*sup)
		return 0;
	if (!*sout || !*sup)
		return 1;
	snprintf(both, sizeof both, "%s+%s", sout, sup);
	return strlen(both) >= HA_CONFIG_STRING_MAX || strcmp(config->rails, both) != 0;
}

static const struct ha_config *printed;

static char *getenv_of_printed(const char *name)
{
	static char buf[HA_CONFIG_MAX_VARS][HA_CONFIG_STRING_MAX];
	const struct ha_config_var *var = ha_config_find(name);
	size_t i = (size_t)(var - ha_config_vars);

	if (printed->origin[i] != HA_ORIGIN_ENVIRONMENT)
		return NULL;
	return (char *)(uintptr_t)ha_config_value_text(printed, var, buf[i], sizeof buf[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ha_config config, again;
	int invalid = 0;
	char *environ_list[2] = {text, NULL};

	ha_log_set_sink(check_line);
	read_input(data, size);
	warnings = 0;
	ha_config_load(&config, fuzzed_getenv);
	check_ranges(&config);
	for (size_t i = 0; i < ha_config_nvars; i++)
		invalid += config.origin[i] == HA_ORIGIN_INVALID;
	FUZZ_CHECK(warnings == invalid + alias_warnings(&config) + other_alias_warnings(&config) +
				   rail_qps_warnings(&config));

	/* What was accepted, printed, is accepted again and means the same. */
	printed = &config;
	warnings = 0;
	ha_config_load(&again, getenv_of_printed);
	FUZZ_CHECK(warnings == alias_warnings(&config) + other_alias_warnings(&config) +
				   rail_qps_warnings(&config));
	FUZZ_CHECK(memcmp(&config, &again, offsetof(struct ha_config, origin)) == 0);

	ha_config_log(&config);
	ha_config_warn_unknown(environ_list);
	return 0;
}
