/* SPDX-License-Identifier: Apache-2.0 */
/* What NICs refuse to take back (device/give_back.h) is asked for again, by commands of theirs. */
#ifndef HA_INSTANCE_ASK_AGAIN_H
#define HA_INSTANCE_ASK_AGAIN_H

#include "base/result.h"

struct ha_instance;

/* HA_ERR_SYSTEM: no memory. When there are devices and the progress thread. */
ha_result_t ha_ask_again_open(struct ha_instance *inst) HA_MUST_CHECK;

/* A device has died, and all that it refused with it. Progress thread. */
void ha_ask_again_look(struct ha_instance *inst);

/* Nobody asks from here on; a command may still be under way. Before the progress thread ends. */
void ha_ask_again_close(struct ha_instance *inst);

/* When every command is through and the devices are closed. */
void ha_ask_again_free(struct ha_instance *inst);

#endif
