/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading and checking the environment against the table of config_table.c.
 *
 * The environment is untrusted text: it may hold control characters, megabytes or numbers that
 * overflow. Nothing here fails; what cannot be used is replaced by the default, and said.
 */
#include "base/config.h"

#include "base/log.h"
#include "base/nccl_window.h"
#include "base/text.h"
#include "nccl_ha/mpib_agent.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define RAIL_QPS_MAX 16
/* Of a bundle by MPIB_HCA_SOUT and MPIB_HCA_SUP. */
#define MPIB_SOUT_QPS 2
#define MPIB_SUP_QPS  4
#define SHOWN_MAX     68 /* bytes of a bad value that a log line repeats, at most */

/* What people expect to survive, whatever NCCL does: a switch that is loaded anew, a new route. */
#define GIVE_UP_MIN_MS 60000

static void *field(struct ha_config *config, const struct ha_config_var *var)
{
	return (char *)config + var->offset;
}

static const void *const_field(const struct ha_config *config, const struct ha_config_var *var)
{
	return (const char *)config + var->offset;
}

/* ---- one parser per type: true when the text was usable ------------------------------------- */

static bool parse_int(const char *text, int min, int max, int *out)
{
	char *end;
	long value;

	errno = 0;
	value = strtol(text, &end, 0);
	if (end == text || errno != 0 || value < min || value > max)
		return false;
	while (*end == ' ' || *end == '\t')
		end++;
	if (*end)
		return false;
	*out = (int)value;
	return true;
}

static bool parse_choice(const char *text, const struct ha_config_choice *choices, int *out)
{
	for (; choices->name; choices++) {
		if (!strcasecmp(text, choices->name)) {
			*out = choices->value;
			return true;
		}
	}
	return false;
}

static bool parse_string(const char *text, char *out)
{
	size_t length = strnlen(text, HA_CONFIG_STRING_MAX);

	if (length == HA_CONFIG_STRING_MAX)
		return false;
	memcpy(out, text, length + 1);
	return true;
}

static bool parse(struct ha_config *config, const struct ha_config_var *var, const char *text)
{
	int value;

	switch (var->type) {
	case HA_TYPE_BOOL:
		if (!parse_int(text, 0, 1, &value))
			return false;
		*(bool *)field(config, var) = value != 0;
		return true;
	case HA_TYPE_INT:
		return parse_int(text, var->min, var->max, field(config, var));
	case HA_TYPE_CHOICE:
		return parse_choice(text, var->choices, field(config, var));
	case HA_TYPE_STRING:
		return parse_string(text, field(config, var));
	case HA_TYPE_CIDR:
		return ha_cidr_parse(text, field(config, var));
	}
	return false; /* not reached: every type returns above */
}

/* ---- loading -------------------------------------------------------------------------------- */

static void set_default(struct ha_config *config, const struct ha_config_var *var)
{
	switch (var->type) {
	case HA_TYPE_BOOL:
		*(bool *)field(config, var) = var->default_value != 0;
		return;
	case HA_TYPE_INT:
	case HA_TYPE_CHOICE:
		*(int *)field(config, var) = var->default_value;
		return;
	case HA_TYPE_STRING:
		*(char *)field(config, var) = '\0';
		return;
	case HA_TYPE_CIDR:
		memset(field(config, var), 0, sizeof(struct ha_cidr));
		return;
	}
}

const char *ha_config_expectation(const struct ha_config_var *var, char *buf, size_t size)
{
	size_t used = 0;

	buf[0] = '\0';
	switch (var->type) {
	case HA_TYPE_BOOL:
		snprintf(buf, size, "0 or 1");
		break;
	case HA_TYPE_INT:
		if (var->max == INT_MAX)
			snprintf(buf, size, "%d or more", var->min);
		else
			snprintf(buf, size, "%d to %d", var->min, var->max);
		break;
	case HA_TYPE_CHOICE:
		for (const struct ha_config_choice *c = var->choices; c->name && used < size; c++)
			used += (size_t)snprintf(buf + used, size - used, "%s%s",
						 c == var->choices ? "" : ", ", c->name);
		break;
	case HA_TYPE_STRING:
		snprintf(buf, size, "text of less than %d characters", HA_CONFIG_STRING_MAX);
		break;
	case HA_TYPE_CIDR:
		snprintf(buf, size, "ADDRESS/BITS, such as 10.0.0.0/8");
		break;
	}
	return buf;
}

const char *ha_config_default_text(const struct ha_config_var *var, char *buf, size_t size)
{
	if (var->default_text)
		return var->default_text;
	switch (var->type) {
	case HA_TYPE_BOOL:
	case HA_TYPE_INT:
		snprintf(buf, size, "%d", var->default_value);
		return buf;
	case HA_TYPE_CHOICE:
		for (const struct ha_config_choice *c = var->choices; c->name; c++)
			if (c->value == var->default_value)
				return c->name;
		return "none";
	case HA_TYPE_STRING:
	case HA_TYPE_CIDR:
		break;
	}
	return "none";
}

static enum ha_config_origin load_var(struct ha_config *config, const struct ha_config_var *var,
				      const char *text)
{
	/* Empty means not set, as scripts that export a variable unconditionally intend. */
	if (!text || !*text)
		return HA_ORIGIN_DEFAULT;
	return parse(config, var, text) ? HA_ORIGIN_ENVIRONMENT : HA_ORIGIN_INVALID;
}

static bool is_set(const struct ha_config *config, const char *name)
{
	return ha_config_origin(config, name) == HA_ORIGIN_ENVIRONMENT;
}

static int or_default(int value, int otherwise)
{
	return value >= 0 ? value : otherwise;
}

/* With no path left. */
static int give_up_ms(const struct ha_config *config)
{
	int64_t product_ms = (int64_t)config->max_retries * config->rto_ms;

	if (config->outage_ms > 0)
		return config->outage_ms;
	if (config->max_retries >= 0)
		return product_ms > INT_MAX ? INT_MAX : (int)product_ms;
	return config->nccl_window_ms > GIVE_UP_MIN_MS ? config->nccl_window_ms : GIVE_UP_MIN_MS;
}

static void derive(struct ha_config *config)
{
	config->rc_timeout = config->force_ib_timeout >= 0 ? config->force_ib_timeout
			     : config->ib_timeout >= 0	   ? config->ib_timeout
							   : config->qp_timeout;
	config->rc_retry_cnt =
	    config->ib_retry_cnt >= 0 ? config->ib_retry_cnt : config->qp_retry_cnt;
	config->nccl_window_ms =
	    ha_nccl_window_ms(or_default(config->ib_timeout, HA_NCCLS_IB_TIMEOUT),
			      or_default(config->ib_retry_cnt, HA_NCCLS_IB_RETRY_CNT));
	config->give_up_ms = give_up_ms(config);
	if (config->force_ib_timeout < 0 && config->ib_timeout < 0 &&
	    !is_set(config, "HA_NCCL_QP_TIMEOUT"))
		config->lone_timeout_min = HA_NCCLS_IB_TIMEOUT;
	if (!is_set(config, "HA_NCCL_RTO_MS"))
		config->lone_rto_min_ms = config->nccl_window_ms;
}

/* What the aliases of HA_NCCL_RAILS come to, as it would be set; false: nothing. */
static bool rails_of_aliases(const struct ha_config *config, char rails[HA_CONFIG_STRING_MAX])
{
	const char *sout = config->mpib_hca_sout, *sup = config->mpib_hca_sup;
	char safe[SHOWN_MAX];

	if (*sout && *sup) {
		if (snprintf(rails, HA_CONFIG_STRING_MAX, "%s+%s", sout, sup) <
		    HA_CONFIG_STRING_MAX)
			return true;
		HA_WARN("MPIB_HCA_SOUT and MPIB_HCA_SUP cannot be used: together they are longer "
			"than %d characters",
			HA_CONFIG_STRING_MAX - 1);
	} else if (*sout || *sup) {
		HA_WARN(
		    "%s=%s cannot be used without %s: %s", *sout ? "MPIB_HCA_SOUT" : "MPIB_HCA_SUP",
		    ha_printable(*sout ? sout : sup, SIZE_MAX, safe, sizeof safe),
		    *sout ? "MPIB_HCA_SUP" : "MPIB_HCA_SOUT",
		    *config->rails ? "HA_NCCL_RAILS is used" : "each port is a device by itself");
	}
	return false;
}

static void derive_rails(struct ha_config *config)
{
	char rails[HA_CONFIG_STRING_MAX], ours[SHOWN_MAX], safe[SHOWN_MAX];

	if (!rails_of_aliases(config, rails))
		return;
	if (!*config->rails) {
		ha_copy_text(config->rails, sizeof config->rails, rails);
		config->rails_by_alias = true;
	} else if (strcmp(config->rails, rails) != 0) {
		HA_WARN(
		    "HA_NCCL_RAILS=%s and MPIB_HCA_SOUT+MPIB_HCA_SUP=%s differ: HA_NCCL_RAILS is "
		    "used",
		    ha_printable(config->rails, SIZE_MAX, ours, sizeof ours),
		    ha_printable(rails, SIZE_MAX, safe, sizeof safe));
	}
}

/* A variable and its alias both say something, and not the same. */
static void warn_differ(const struct ha_config *config, const char *name, const char *alias)
{
	char text[HA_CONFIG_STRING_MAX], ours[SHOWN_MAX], theirs[SHOWN_MAX];

	ha_config_value_text(config, ha_config_find(name), text, sizeof(text));
	ha_printable(text, SIZE_MAX, ours, sizeof(ours));
	ha_config_value_text(config, ha_config_find(alias), text, sizeof(text));
	ha_printable(text, SIZE_MAX, theirs, sizeof(theirs));
	HA_WARN("%s=%s and %s=%s differ: %s is used", name, ours, alias, theirs, name);
}

/* What the aliases of the others come to, where there is no other name. */
static void derive_rail_mode(struct ha_config *config)
{
	char island[16], dir[HA_CONFIG_STRING_MAX + sizeof(MPIB_AGENT_DIR "/")];

	if (!is_set(config, "HA_NCCL_RAIL_MODE") &&
	    (config->mpib_mode >= 0 || config->rails_by_alias))
		config->rail_mode = or_default(config->mpib_mode, HA_RAIL_MODE_ISLAND);
	else if (config->mpib_mode >= 0 && config->mpib_mode != config->rail_mode)
		warn_differ(config, "HA_NCCL_RAIL_MODE", "MPIB_MODE");
	snprintf(island, sizeof(island), "%d", config->mpib_island_prefix_len);
	if (config->mpib_island_prefix_len >= 0 && !*config->island)
		ha_copy_text(config->island, sizeof(config->island), island);
	else if (config->mpib_island_prefix_len >= 0 && strcmp(config->island, island) != 0)
		warn_differ(config, "HA_NCCL_ISLAND", "MPIB_ISLAND_PREFIX_LEN");
	snprintf(dir, sizeof(dir), MPIB_AGENT_DIR "/%s", config->mpib_agent_tag);
	if (*config->mpib_agent_tag && !*config->agent_dir)
		ha_copy_text(config->agent_dir, sizeof(config->agent_dir), dir);
	else if (*config->mpib_agent_tag && strcmp(config->agent_dir, dir) != 0)
		warn_differ(config, "HA_NCCL_AGENT_DIR", "MPIB_AGENT_TAG");
}

/* "2,4", rail 0's first. */
static bool parse_rail_qps(const char *text, uint8_t nqps[HA_CONFIG_RAILS])
{
	for (int rail = 0; rail < HA_CONFIG_RAILS; rail++) {
		char *end;
		const long number = strtol(text, &end, 10);

		if (*text < '0' || *text > '9' || number < 1 || number > RAIL_QPS_MAX)
			return false;
		nqps[rail] = (uint8_t)number;
		if (*end == '\0')
			return true;
		if (*end != ',')
			return false;
		text = end + 1;
	}
	return false;
}

/*
 * What the aliases of HA_NCCL_RAIL_QPS come to, as it would be set; false: nothing. A bundle by the
 * other names has as many queue pairs as where these names come from, unless NCCL is told.
 */
static bool rail_qps_of_aliases(const struct ha_config *config, char out[SHOWN_MAX])
{
	const bool theirs = config->rails_by_alias && !is_set(config, "NCCL_IB_QPS_PER_CONNECTION");
	const int nccls = config->ib_qps_per_connection;

	if (!theirs && config->mpib_sout_qp < 0 && config->mpib_sup_qp < 0)
		return false;
	snprintf(out, SHOWN_MAX, "%d,%d",
		 or_default(config->mpib_sout_qp, theirs ? MPIB_SOUT_QPS : nccls),
		 or_default(config->mpib_sup_qp, theirs ? MPIB_SUP_QPS : nccls));
	return true;
}

static void derive_rail_qps(struct ha_config *config)
{
	uint8_t nqps[HA_CONFIG_RAILS] = {0};
	char by_alias[SHOWN_MAX], safe[SHOWN_MAX];

	if (rail_qps_of_aliases(config, by_alias)) {
		if (!*config->rail_qps)
			ha_copy_text(config->rail_qps, sizeof(config->rail_qps), by_alias);
		else if ((config->mpib_sout_qp >= 0 || config->mpib_sup_qp >= 0) &&
			 strcmp(config->rail_qps, by_alias) != 0)
			HA_WARN("HA_NCCL_RAIL_QPS=%s and MPIB_SOUT_QP,MPIB_SUP_QP=%s differ: "
				"HA_NCCL_RAIL_QPS is used",
				ha_printable(config->rail_qps, SIZE_MAX, safe, sizeof(safe)),
				by_alias);
	}
	if (!*config->rail_qps)
		return;
	ha_printable(config->rail_qps, SIZE_MAX, safe, sizeof(safe));
	if (!parse_rail_qps(config->rail_qps, nqps))
		HA_WARN("HA_NCCL_RAIL_QPS=%s cannot be used: it is not 1 to %d numbers from 1 to "
			"%d; NCCL_IB_QPS_PER_CONNECTION is used",
			safe, HA_CONFIG_RAILS, RAIL_QPS_MAX);
	else if (!*config->rails)
		HA_WARN("HA_NCCL_RAIL_QPS=%s has no effect without HA_NCCL_RAILS", safe);
	else
		memcpy(config->nqps_of_rail, nqps, sizeof(nqps));
}

/* What is used where a value cannot be, for people: what another variable for the same thing says,
 * or the default. */
static const char *text_in_place(const struct ha_config *config, const struct ha_config_var *var,
				 char *buf, size_t size)
{
	const struct ha_config_var *said = var->alias ? ha_config_find(var->alias) : var;
	char text[HA_CONFIG_STRING_MAX], safe[SHOWN_MAX], number[64];
	const char *usual = ha_config_default_text(said, number, sizeof(number));

	ha_config_value_text(config, said, text, sizeof(text));
	ha_printable(*text ? text : usual, SIZE_MAX, safe, sizeof(safe));
	if (var->alias)
		snprintf(buf, size, "%s=%s", said->name, safe);
	else if (said->group == HA_GROUP_RAILS && *text && strcmp(text, usual) != 0)
		snprintf(buf, size, "%s", safe);
	else
		snprintf(buf, size, "the default, %s", usual);
	return buf;
}

/* When it is known what the others come to. */
static void warn_invalid(const struct ha_config *config, ha_getenv_fn getenv_fn)
{
	char value[SHOWN_MAX], expected[160], used[160];

	for (size_t i = 0; i < ha_config_nvars; i++) {
		const struct ha_config_var *var = &ha_config_vars[i];

		if (config->origin[i] == HA_ORIGIN_INVALID)
			HA_WARN("%s=%s cannot be used: expected %s; using %s", var->name,
				ha_printable(getenv_fn(var->name), SIZE_MAX, value, sizeof value),
				ha_config_expectation(var, expected, sizeof expected),
				text_in_place(config, var, used, sizeof used));
	}
}

void ha_config_load(struct ha_config *config, ha_getenv_fn getenv_fn)
{
	if (!getenv_fn)
		getenv_fn = getenv;
	memset(config, 0, sizeof *config);
	for (size_t i = 0; i < ha_config_nvars; i++) {
		const struct ha_config_var *var = &ha_config_vars[i];

		set_default(config, var);
		config->origin[i] = (uint8_t)load_var(config, var, getenv_fn(var->name));
	}
	derive(config);
	derive_rails(config);
	derive_rail_mode(config);
	derive_rail_qps(config);
	warn_invalid(config, getenv_fn);
}

int ha_config_most_qps(const struct ha_config *config)
{
	int most = config->ib_qps_per_connection;

	for (int rail = 0; rail < HA_CONFIG_RAILS; rail++)
		if (config->nqps_of_rail[rail] > most)
			most = config->nqps_of_rail[rail];
	return most;
}

/* ---- looking at it -------------------------------------------------------------------------- */

const struct ha_config_var *ha_config_find(const char *name)
{
	for (size_t i = 0; i < ha_config_nvars; i++)
		if (!strcmp(ha_config_vars[i].name, name))
			return &ha_config_vars[i];
	return NULL;
}

enum ha_config_origin ha_config_origin(const struct ha_config *config, const char *name)
{
	const struct ha_config_var *var = ha_config_find(name);

	return var ? (enum ha_config_origin)config->origin[var - ha_config_vars]
		   : HA_ORIGIN_DEFAULT;
}

const char *ha_config_value_text(const struct ha_config *config, const struct ha_config_var *var,
				 char *buf, size_t size)
{
	const struct ha_cidr *range;
	char address[INET6_ADDRSTRLEN];
	int value;

	buf[0] = '\0';
	switch (var->type) {
	case HA_TYPE_BOOL:
		snprintf(buf, size, "%d", *(const bool *)const_field(config, var));
		break;
	case HA_TYPE_INT:
		snprintf(buf, size, "%d", *(const int *)const_field(config, var));
		break;
	case HA_TYPE_CHOICE:
		value = *(const int *)const_field(config, var);
		for (const struct ha_config_choice *c = var->choices; c->name; c++)
			if (c->value == value)
				snprintf(buf, size, "%s", c->name);
		break;
	case HA_TYPE_STRING:
		snprintf(buf, size, "%s", (const char *)const_field(config, var));
		break;
	case HA_TYPE_CIDR:
		range = const_field(config, var);
		if (range->family != AF_UNSPEC &&
		    inet_ntop(range->family, range->addr, address, sizeof address))
			snprintf(buf, size, "%s/%d", address, range->prefix_len);
		break;
	}
	return buf;
}

void ha_config_log(const struct ha_config *config)
{
	char value[HA_CONFIG_STRING_MAX], safe[SHOWN_MAX];

	for (size_t i = 0; i < ha_config_nvars; i++) {
		const struct ha_config_var *var = &ha_config_vars[i];

		if (config->origin[i] != HA_ORIGIN_ENVIRONMENT)
			continue;
		ha_config_value_text(config, var, value, sizeof value);
		if (var->no_effect_yet)
			HA_WARN("%s=%s has no effect in this version", var->name,
				ha_printable(value, SIZE_MAX, safe, sizeof safe));
		else
			HA_INFO(HA_SUBSYS_ENV, "%s set by environment to %s", var->name,
				ha_printable(value, SIZE_MAX, safe, sizeof safe));
	}
}

/* ---- misspelt names ------------------------------------------------------------------------- */

#define NAME_MAX_LEN 64

/* Levenshtein distance; names longer than the table's are far from all of them anyway. */
static size_t edit_distance(const char *a, size_t alen, const char *b)
{
	size_t row[NAME_MAX_LEN + 1], blen = strlen(b);

	if (alen > NAME_MAX_LEN || blen > NAME_MAX_LEN)
		return NAME_MAX_LEN;
	for (size_t j = 0; j <= blen; j++)
		row[j] = j;
	for (size_t i = 1; i <= alen; i++) {
		size_t diagonal = row[0];

		row[0] = i;
		for (size_t j = 1; j <= blen; j++) {
			size_t best = diagonal + (a[i - 1] != b[j - 1]);

			diagonal = row[j];
			if (row[j] + 1 < best)
				best = row[j] + 1;
			if (row[j - 1] + 1 < best)
				best = row[j - 1] + 1;
			row[j] = best;
		}
	}
	return row[blen];
}

static const char *nearest_name(const char *name, size_t length)
{
	size_t best = 6; /* farther than this it is not a slip of the keyboard */
	const char *found = NULL;

	for (size_t i = 0; i < ha_config_nvars; i++) {
		size_t distance = edit_distance(name, length, ha_config_vars[i].name);

		if (distance < best) {
			best = distance;
			found = ha_config_vars[i].name;
		}
	}
	return found;
}

static bool is_variable(const char *name, size_t length)
{
	for (size_t i = 0; i < ha_config_nvars; i++)
		if (strlen(ha_config_vars[i].name) == length &&
		    memcmp(ha_config_vars[i].name, name, length) == 0)
			return true;
	return false;
}

static bool begins_like_ours(const char *name)
{
	return strncmp(name, "HA_NCCL_", 8) == 0 || strncmp(name, "MPIB_", 5) == 0;
}

int ha_config_warn_unknown(char *const *environ_list)
{
	int unknown = 0;

	for (; environ_list && *environ_list; environ_list++) {
		const char *name = *environ_list, *near;
		size_t length = strcspn(name, "=");
		char safe[SHOWN_MAX];

		if (!begins_like_ours(name) || is_variable(name, length))
			continue;
		near = nearest_name(name, length);
		HA_WARN("%s is not a variable of this plugin and has no effect%s%s%s",
			ha_printable(name, length, safe, sizeof safe),
			near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
		unknown++;
	}
	return unknown;
}
