/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Link, switch and device state of a fabric: changed by the control tool and by fault rules.
 */
#ifndef SV_LIVE_STATE_H
#define SV_LIVE_STATE_H

#include "simverbs/live/fabric.h"

/*
 * Applies kinds (1 << enum sv_fault_kind, fabric actions only) to every device that the wildcards
 * (SV_ANY) of host and rail name, and tells all engines. phys: which of its ports a link is of,
 * from 0, or all of them (SV_ANY).
 */
void sv_state_set(struct sv_fabric *fab, uint32_t host, uint32_t rail, uint32_t phys,
		  uint32_t kinds);
/* What the switch swallows at a device's ports: SV_CUT_*. */
void sv_state_cut(struct sv_fabric *fab, uint32_t host, uint32_t rail, uint32_t cut);
/* A leg of a bond: kind is SV_FAULT_LEG_DOWN, _REMAP or _UP. */
void sv_state_leg(struct sv_fabric *fab, uint32_t host, uint32_t rail, uint32_t leg, uint32_t kind);
/* Carries out the fabric actions of a verdict at once (the engines follow when woken). */
void sv_state_act(struct sv_fabric *fab, const struct sv_fault_verdict *verdict);
/* Timed rules, and undoing of actions with for=. Returns when to look again. */
uint64_t sv_state_run(struct sv_fabric *fab, uint64_t now_ns);

#endif
