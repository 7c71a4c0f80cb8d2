/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a device has sent to a GPU and is not in its memory yet (fault rule gpu=reorder).
 *
 * PCIe writes are posted: nobody answers them. A device's write to a GPU and its completion for the
 * host go different ways, so the completion may be seen, and the acknowledgement be sent, before
 * the data is in the GPU's memory. What is behind them and waits for an answer is not: when a
 * device reads memory of GPUs, all it has written there before is in it.
 *
 * All of it locked.
 */
#ifndef SV_POSTED_H
#define SV_POSTED_H

#include "core.h"

/* A packet's bytes for GPU memory of the region, which are in memory later if a rule says so.
 * False: they are the caller's to write, and nothing that is on its way is for the same place. */
bool sv_posted_write(struct sv_qp *qp, const struct sv_packet *pkt, const struct sv_mr *mr,
		     uint8_t *addr, const uint8_t *bytes, uint32_t length);
/* The device reads memory of GPUs, or dies when all it has sent has left it. */
void sv_posted_push(struct sv_port *port);
/* The region is deregistered: what is on its way to it gets there. */
void sv_posted_push_to(struct sv_port *port, const struct sv_mr *mr);
/* When the first of them is in memory by itself; SV_NEVER: there is none. */
uint64_t sv_posted_due_ns(const struct sv_port *port);
/* Those whose time has come. */
void sv_posted_run(struct sv_port *port, uint64_t now_ns);
/* They are lost with the device. */
void sv_posted_drop(struct sv_port *port);

#endif
