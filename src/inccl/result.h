/* SPDX-License-Identifier: Apache-2.0 */
/* Our results, as programs have them. */
#ifndef HA_INCCL_RESULT_H
#define HA_INCCL_RESULT_H

#include "base/result.h"

/* Of a communicator that is opened. */
int ha_inccl_opened(ha_result_t result);
/* Of an operation, and so of its communicator. */
int ha_inccl_ended(ha_result_t result);

#endif
