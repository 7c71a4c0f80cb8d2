/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This process on a live fabric: which fabric and host it is (SIMVERBS_FABRIC, SIMVERBS_HOST), its
 * devices, and one port per device that is open.
 */
#ifndef SV_LIVE_RUNTIME_H
#define SV_LIVE_RUNTIME_H

#include "simverbs/engine.h"

/*
 * The devices of this process's host: a NULL-terminated array from malloc with one reference on
 * each. NULL with errno when there is no fabric: ENOSYS when none was asked for.
 */
struct sv_device **sv_live_devices(int *num);

#endif
