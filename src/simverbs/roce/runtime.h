/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This process on real networks: a device for each interface that SIMVERBS_ROCE names.
 */
#ifndef SV_ROCE_RUNTIME_H
#define SV_ROCE_RUNTIME_H

#include "simverbs/engine.h"

/*
 * The devices: a NULL-terminated array from malloc with one reference on each. NULL with errno when
 * there are none: ENOSYS when none was asked for.
 */
struct sv_device **sv_roce_devices(int *num);

#endif
