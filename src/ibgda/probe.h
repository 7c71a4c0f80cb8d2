/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether what is sent over a NIC comes through and is answered: a write of nothing, over a queue
 * pair of its own, before a stream goes there. A path may be cut in silence, of which no event
 * tells, and threads would wait for what finds it out.
 *
 * The sender's; its other end is a queue pair as any other to who receives.
 */
#ifndef HA_IBGDA_PROBE_H
#define HA_IBGDA_PROBE_H

#include "ibgda/message.h"
#include "ibgda/nic.h"
#include "ibgda/pair.h"

#include <stdbool.h>
#include <stdint.h>

enum ha_ibgda_probe_state {
	HA_IBGDA_NO_PROBE,
	HA_IBGDA_PROBE_ASKED, /* the other end makes its own queue pair */
	HA_IBGDA_PROBE_SENT,
	HA_IBGDA_PROBE_CAME,   /* it was answered */
	HA_IBGDA_PROBE_FAILED, /* it was not, or could not be sent */
};

struct ha_ibgda_probe {
	enum ha_ibgda_probe_state state;
	struct ha_ibgda_pair pair;
	uint32_t number, nic; /* of its queue pair */
	uint64_t since_ns;
};

/* Whatever comes of it, it proves nothing any more. -> FAILED, of one that there is. */
void ha_ibgda_probe_abandon(struct ha_ibgda_probe *probe);
/* NO_PROBE -> ASKED, or FAILED. */
void ha_ibgda_probe_begin(struct ha_ibgda_probe *probe, const struct ha_ibgda_nic *nic,
			  uint64_t now_ns);
/* ASKED -> SENT, or FAILED: its queue pair is there, or is refused. */
void ha_ibgda_probe_hear(struct ha_ibgda_probe *probe, const struct ha_ibgda_message *message);
/* ASKED, SENT -> CAME or FAILED, if it is time. */
void ha_ibgda_probe_look(struct ha_ibgda_probe *probe, uint64_t now_ns);
/* Any -> NO_PROBE. False: the device refuses to destroy its queue pair: FAILED, to be called again.
 */
bool ha_ibgda_probe_end(struct ha_ibgda_probe *probe);

#endif
