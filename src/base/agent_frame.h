/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests to an agent and its answers (nccl_ha/mpib_agent.h), from bytes and to bytes. Whoever
 * reads takes them for a stranger's.
 */
#ifndef HA_BASE_AGENT_FRAME_H
#define HA_BASE_AGENT_FRAME_H

#include "nccl_ha/mpib_agent.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HA_AGENT_FRAME_MAX sizeof(struct mpib_agent_register)

/* An order to our own agent, which others call invalid: the share of a flow, whatever the policy
 * says. 20 bytes: header, u32 src_ip, u32 dst_ip, u32 share. Answered as DEREGISTER. */
#define HA_AGENT_SET	   64
#define HA_AGENT_SHARE_END UINT32_MAX /* what was set is so no more */

/* Addresses in network byte order. */
struct ha_agent_flow {
	uint32_t sout_src_ip, sout_dst_ip, sup_src_ip, sup_dst_ip;
};

/* What is not of its type is 0. */
struct ha_agent_frame {
	uint8_t type; /* enum mpib_agent_type, or HA_AGENT_SET */
	uint8_t status;
	bool has_slot; /* RESPONSE: to REGISTER */
	uint32_t conn_id;
	uint32_t hint_slot;
	uint32_t share;
	struct ha_agent_flow flow; /* of SET: SOUT's alone */
};

/* Returns how many bytes were written, at most HA_AGENT_FRAME_MAX. */
size_t ha_agent_encode(const struct ha_agent_frame *frame, uint8_t *out);

/*
 * The frame that `size` bytes begin with. Returns its length; 0 when bytes are missing; -1 when no
 * frame begins like that. Bytes that are to be zero may be anything.
 */
int ha_agent_decode(const uint8_t *data, size_t size, struct ha_agent_frame *frame);

#endif
