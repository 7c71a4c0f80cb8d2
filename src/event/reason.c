/* SPDX-License-Identifier: Apache-2.0 */
#include "event/reason.h"

static const char *const texts[HA_REASON_COUNT] = {
#define HA_REASON_TEXT(name, number, text) [HA_REASON_##name] = (text),
    HA_REASONS(HA_REASON_TEXT)
#undef HA_REASON_TEXT
};

const char *ha_reason_text(unsigned reason)
{
	return reason < HA_REASON_COUNT ? texts[reason] : "unknown";
}

bool ha_reason_is_silence(enum ha_reason reason)
{
	return reason == HA_REASON_LIVENESS || reason == HA_REASON_COMPLETION ||
	       reason == HA_REASON_SOFT_TIMEOUT;
}
