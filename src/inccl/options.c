/* SPDX-License-Identifier: Apache-2.0 */
#include "inccl/options.h"

#include "base/launcher_env.h"
#include "base/log.h"

#include <stddef.h>
#include <string.h>

#define FIRST_OPTIONS sizeof(struct inccl_options) /* of the first release */
#define RANKS_MOST    4096

/* Which variable an option stands in for: it has its limits, and its field. */
struct row {
	size_t at;
	const char *variable;
};

static const struct row texts[] = {
    {offsetof(struct inccl_options, controller), "HA_NCCL_INC_CONTROLLER"},
    {offsetof(struct inccl_options, key_file), "HA_NCCL_INC_KEY_FILE"},
    {offsetof(struct inccl_options, host), "HA_NCCL_INC_HOST"},
    {offsetof(struct inccl_options, nic), "NCCL_IB_HCA"},
    {offsetof(struct inccl_options, label), "HA_NCCL_INC_LABEL"},
};

static const struct row numbers[] = {
    {offsetof(struct inccl_options, connect_ms), "HA_NCCL_INC_CONNECT_MS"},
    {offsetof(struct inccl_options, join_ms), "HA_NCCL_INC_JOIN_MS"},
    {offsetof(struct inccl_options, late_ms), "HA_NCCL_INC_RTO_MS"},
    {offsetof(struct inccl_options, outage_ms), "HA_NCCL_OUTAGE_MS"},
    {offsetof(struct inccl_options, unit_bytes), "HA_NCCL_INC_UNIT"},
    {offsetof(struct inccl_options, window), "HA_NCCL_INC_WINDOW"},
    {offsetof(struct inccl_options, copies), "HA_NCCL_INC_COPIES"},
};

static bool take_text(const struct inccl_options *options, const struct row *row,
		      struct ha_config *config)
{
	const char *text = *(const char *const *)((const char *)options + row->at);
	char *field = (char *)config + ha_config_find(row->variable)->offset;

	if (!text)
		return true;
	if (strlen(text) >= HA_CONFIG_STRING_MAX) {
		HA_WARN("INCCL: the option in place of %s is too long", row->variable);
		return false;
	}
	strcpy(field, text);
	return true;
}

static bool take_number(const struct inccl_options *options, const struct row *row,
			struct ha_config *config)
{
	const uint32_t number = *(const uint32_t *)((const char *)options + row->at);
	const struct ha_config_var *variable = ha_config_find(row->variable);
	char limits[64];

	if (number == 0)
		return true;
	if (number < (uint32_t)variable->min || number > (uint32_t)variable->max) {
		HA_WARN("INCCL: the option in place of %s is %u, and has to be %s", row->variable,
			number, ha_config_expectation(variable, limits, sizeof(limits)));
		return false;
	}
	*(int *)((char *)config + variable->offset) = (int)number;
	return true;
}

static bool take_group(const char *name, char group[HA_INCCL_GROUP_NAME])
{
	if (!name)
		name = ha_launcher_job_id();
	if (!*name)
		name = "inccl";
	if (strlen(name) >= HA_INCCL_GROUP_NAME) {
		HA_WARN("INCCL: a group's name of more than %d letters", HA_INCCL_GROUP_NAME - 1);
		return false;
	}
	strcpy(group, name);
	return true;
}

static bool has(const struct inccl_options *options, const struct ha_config *config)
{
	if (options->ranks < 1 || options->ranks > RANKS_MOST || options->rank >= options->ranks) {
		HA_WARN("INCCL: rank %u of %u ranks, of which there are 1 to %d", options->rank,
			options->ranks, RANKS_MOST);
		return false;
	}
	if (!*config->inc_controller || !*config->inc_key_file) {
		HA_WARN("INCCL: neither options nor variables say where nccl-ha-ctrld listens and "
			"which file has the site's key");
		return false;
	}
	return true;
}

bool ha_inccl_options_take(const struct inccl_options *options, struct ha_config *config,
			   char group[HA_INCCL_GROUP_NAME])
{
	if (!options || options->size < FIRST_OPTIONS) {
		HA_WARN("INCCL: options without their size");
		return false;
	}
	ha_config_load(config, NULL);
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		if (!take_text(options, &texts[i], config))
			return false;
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		if (!take_number(options, &numbers[i], config))
			return false;
	config->inc_reproducible |= options->reproducible != 0;
	if (options->outage_ms > 0)
		config->give_up_ms = config->outage_ms;
	return take_group(options->group, group) && has(options, config);
}
