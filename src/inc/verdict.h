/* SPDX-License-Identifier: Apache-2.0 */
/* Why a group has ended, as its members' users are told. */
#ifndef HA_INC_VERDICT_H
#define HA_INC_VERDICT_H

#include "inc/frame.h"

/* Of a group of so many members. HA_INC_ABORT_REASONS: what the leader says makes no sense here. */
void ha_verdict_text(enum ha_inc_abort why, unsigned int members, char *text, size_t size);

#endif
