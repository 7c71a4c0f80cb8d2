/* SPDX-License-Identifier: Apache-2.0 */
#include "inc/verdict.h"

#include "inc/unit.h"

#include <stdio.h>

static const char *const texts[] = {
    [0] = "the leader speaks of another group's units",
    [HA_INC_ABORT_DAMAGED] = "a result that was half there has overwritten its only contribution",
    [HA_INC_ABORT_LOST] = "a member lacks what another one calls retired",
    [HA_INC_ABORT_DEAD] = "a member's process has ended",
    [HA_INC_ABORT_OUTAGE] = "nothing has got through for the time limit, one way or the other",
    [HA_INC_ABORT_NO_TREE] = ("no tree is left, and members do not add for each other, as member 0 "
			      "has HA_NCCL_INC_FALLBACK=none"),
    [HA_INC_ABORT_DISPUTE] = "members do not ask for the same operations in the same order",
};

_Static_assert(sizeof(texts) / sizeof(texts[0]) == HA_INC_ABORT_REASONS, "a text for each reason");

void ha_verdict_text(enum ha_inc_abort why, unsigned int members, char *text, size_t size)
{
	if (why == HA_INC_ABORT_NO_TREE && members > HA_UNIT_CHILDREN)
		snprintf(text, size,
			 "no tree is left, and %u members are too many to add for each other, "
			 "which %d can: give the topology more switches, and spare_trees in its "
			 "defaults",
			 members, HA_UNIT_CHILDREN);
	else
		snprintf(text, size, "%s", texts[why < HA_INC_ABORT_REASONS ? why : 0]);
}
