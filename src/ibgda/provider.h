/* SPDX-License-Identifier: Apache-2.0 */
/* libmlx5.so.1, found at run time: nothing is linked against it. */
#ifndef HA_IBGDA_PROVIDER_H
#define HA_IBGDA_PROVIDER_H

#include "nccl_ha/ibgda_dv.h"

/* mlx5dv_init_obj(); NULL: there is no such library here. Any thread. */
ha_dv_init_obj_fn *ha_ibgda_init_obj(void);

#endif
