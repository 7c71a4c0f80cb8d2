/* SPDX-License-Identifier: Apache-2.0 */
#include "ibgda/probe.h"

#define LONGEST_NS 500000000u /* an answer that comes later is none */

void ha_ibgda_probe_begin(struct ha_ibgda_probe *probe, const struct ha_ibgda_nic *nic,
			  uint64_t now_ns)
{
	probe->since_ns = now_ns;
	probe->state =
	    ha_ibgda_pair_open(&probe->pair, nic, 1) ? HA_IBGDA_PROBE_ASKED : HA_IBGDA_PROBE_FAILED;
}

static bool send_nothing(struct ha_ibgda_probe *probe, const struct ha_ibgda_message *opened)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_SIGNALED,
				 .wr.rdma = {.remote_addr = opened->cells_addr,
					     .rkey = opened->cells_key}},
			   *bad;

	return ha_ibgda_pair_connect(&probe->pair, &opened->address) &&
	       ibv_post_send(probe->pair.qp, &wr, &bad) == 0;
}

void ha_ibgda_probe_hear(struct ha_ibgda_probe *probe, const struct ha_ibgda_message *message)
{
	if (probe->state != HA_IBGDA_PROBE_ASKED)
		return;
	probe->state = message->kind == HA_IBGDA_OPENED && send_nothing(probe, message)
			   ? HA_IBGDA_PROBE_SENT
			   : HA_IBGDA_PROBE_FAILED;
}

void ha_ibgda_probe_look(struct ha_ibgda_probe *probe, uint64_t now_ns)
{
	struct ibv_wc wc;
	int polled;

	if (probe->state != HA_IBGDA_PROBE_ASKED && probe->state != HA_IBGDA_PROBE_SENT)
		return;
	if (now_ns - probe->since_ns > LONGEST_NS) {
		probe->state = HA_IBGDA_PROBE_FAILED;
		return;
	}
	polled = ibv_poll_cq(probe->pair.cq, 1, &wc);
	if (polled != 0)
		probe->state = polled == 1 && wc.status == IBV_WC_SUCCESS ? HA_IBGDA_PROBE_CAME
									  : HA_IBGDA_PROBE_FAILED;
}

void ha_ibgda_probe_abandon(struct ha_ibgda_probe *probe)
{
	if (probe->state != HA_IBGDA_NO_PROBE)
		probe->state = HA_IBGDA_PROBE_FAILED;
}

bool ha_ibgda_probe_end(struct ha_ibgda_probe *probe)
{
	const bool is_closed = ha_ibgda_pair_close(&probe->pair);

	probe->state = is_closed ? HA_IBGDA_NO_PROBE : HA_IBGDA_PROBE_FAILED;
	return is_closed;
}
