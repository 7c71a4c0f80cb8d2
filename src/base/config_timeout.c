/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the variables have a connection give up before NCCL's own transport would. */
#include "base/config_timeout.h"

#include "base/config.h"
#include "base/log.h"
#include "base/nccl_window.h"

#include <stdio.h>

/* What was asked for, in the words of the environment, and when a connection gives up for it. */
struct asked {
	char what[96];
	int limit_ms; /* 0: nothing was */
};

static bool is_set(const struct ha_config *config, const char *name)
{
	return ha_config_origin(config, name) == HA_ORIGIN_ENVIRONMENT;
}

static int or_default(int value, int otherwise)
{
	return value >= 0 ? value : otherwise;
}

/* With failover: how long an outage may last. */
static void ask_outage(const struct ha_config *config, struct asked *asked)
{
	if (config->outage_ms > 0)
		snprintf(asked->what, sizeof asked->what, "HA_NCCL_OUTAGE_MS=%d",
			 config->outage_ms);
	else if (config->max_retries >= 0)
		snprintf(asked->what, sizeof asked->what,
			 "HA_NCCL_MAX_RETRIES=%d times HA_NCCL_RTO_MS=%d", config->max_retries,
			 config->rto_ms);
	else
		return;
	asked->limit_ms = config->give_up_ms;
}

/* Without: the one path's own time-outs, of which the first one decides. */
static void ask_lone_path(const struct ha_config *config, struct asked *asked)
{
	int window_ms = ha_nccl_window_ms(config->rc_timeout, config->rc_retry_cnt);
	bool forced = config->force_ib_timeout >= 0;

	if (is_set(config, "HA_NCCL_RTO_MS") && config->rto_ms < window_ms) {
		snprintf(asked->what, sizeof asked->what, "HA_NCCL_RTO_MS=%d without failover",
			 config->rto_ms);
		asked->limit_ms = config->rto_ms;
	} else if (forced || (is_set(config, "HA_NCCL_QP_TIMEOUT") && config->ib_timeout < 0)) {
		snprintf(asked->what, sizeof asked->what, "%s=%d without failover",
			 forced ? "HA_NCCL_FORCE_IB_TIMEOUT" : "HA_NCCL_QP_TIMEOUT",
			 config->rc_timeout);
		asked->limit_ms = window_ms;
	}
}

bool ha_config_warn_short_timeouts(const struct ha_config *config)
{
	struct asked asked = {.limit_ms = 0};

	if (config->enable_backup)
		ask_outage(config, &asked);
	else
		ask_lone_path(config, &asked);
	if (asked.limit_ms == 0 || asked.limit_ms >= config->nccl_window_ms)
		return false;
	HA_WARN("%s: a connection without a path fails after %d ms, where NCCL's own transport "
		"may bear %d ms with NCCL_IB_TIMEOUT=%d and NCCL_IB_RETRY_CNT=%d: an outage in "
		"between ends this job",
		asked.what, asked.limit_ms, config->nccl_window_ms,
		or_default(config->ib_timeout, HA_NCCLS_IB_TIMEOUT),
		or_default(config->ib_retry_cnt, HA_NCCLS_IB_RETRY_CNT));
	return true;
}
