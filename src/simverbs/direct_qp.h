/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queue pairs whose send queue the program drives (simverbs/mlx5.h), and completion queues that it
 * reads itself: what direct.h takes out of and writes into their memory, as work of a queue pair.
 * All locked but for sv_doorbells_free().
 */
#ifndef SV_DIRECT_QP_H
#define SV_DIRECT_QP_H

#include "core.h"

/* Each of these does nothing to one that is not the program's own. */
void sv_direct_qp_reset(struct sv_qp *qp);
/* Its memory is given back; its doorbell's page stays until the device is closed. */
void sv_direct_qp_free(struct sv_qp *qp);
void sv_direct_cq_free(struct sv_cq *cq);

/* It was made in this parent domain, whose allocator its entries will come from. */
void sv_direct_cq_of(struct sv_cq *cq, struct sv_pd *pd);
/* A completion, for a queue that is the program's own. */
void sv_direct_cq_push(struct sv_cq *cq, const struct ibv_wc *wc, struct sv_qp *qp);

/* Nothing is open on the context any more. */
void sv_doorbells_free(struct sv_context *ctx);

#endif
