/* SPDX-License-Identifier: Apache-2.0 */
/* What the agent's own program says to one that runs, and shows of it. */
#ifndef NA_SET_H
#define NA_SET_H

#include <stdint.h>

/* Says a flow's share, or with HA_AGENT_SHARE_END that the policy has it again. Returns an exit
 * status, having said on stderr what is wrong. */
int na_set(const char *dir, uint32_t src_ip, uint32_t dst_ip, uint32_t share);
/* A line on stdout for each flow. Likewise. */
int na_show(const char *dir);

#endif
