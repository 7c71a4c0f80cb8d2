/* SPDX-License-Identifier: Apache-2.0 */
/* Protection domains, one for each incarnation of a NIC. */
#ifndef HA_MEMORY_PD_H
#define HA_MEMORY_PD_H

#include "base/result.h"

struct ha_device_set;
struct ha_incarnation;
struct ha_nic;

/*
 * The present incarnation of a NIC, held, with its shared PD, which is created on first use with
 * its registration cache. Every path and every registration on the NIC holds it. Pair with _put.
 * Any thread.
 */
ha_result_t ha_nic_pd_get(struct ha_nic *nic, struct ha_incarnation **out) HA_MUST_CHECK;
void ha_nic_pd_put(struct ha_incarnation *incarnation);

/*
 * Ends every PD and every registration that was never given back (a job that aborts leaves some),
 * before ha_device_set_close. QPs and CQs must be gone; handles left over must not be used after.
 */
void ha_memory_close(struct ha_device_set *set);

/* Registrations the NIC's verbs hold right now, for statistics and leak tests. */
int ha_nic_mr_count(struct ha_nic *nic);

#endif
