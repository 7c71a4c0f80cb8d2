/* SPDX-License-Identifier: Apache-2.0 */
/* Names of what faults are about. */
#ifndef HA_SIMVERBS_FAULT_NAMES_H
#define HA_SIMVERBS_FAULT_NAMES_H

#include "fault.h"

#include <stdbool.h>

/* Values of names in rules; -1: unknown. */
int sv_wc_by_name(const char *name);
int sv_event_by_name(const char *name);
int sv_verb_by_name(const char *name);
/* A command to the kernel, and not the data path, which never leaves the process. */
bool sv_verb_is_command(enum sv_verb verb);
/* modify_qp to this state; SV_VERB_NONE for one that nobody can ask for. */
enum sv_verb sv_verb_to_state(enum ibv_qp_state state);
const char *sv_verb_name(enum sv_verb verb);

#endif
