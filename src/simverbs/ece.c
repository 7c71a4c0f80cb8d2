/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Enhanced connection establishment: options that a vendor's devices agree on when a queue pair is
 * connected. A queue pair says those of its device; those of the peer are set before RTR, and from
 * then on it says what both have. They mean nothing here.
 */
#include "core.h"

#include <errno.h>

void sv_ece_reset(struct sv_qp *qp)
{
	qp->ece = qp->port->cfg.ece_options;
	qp->ece_wanted = 0;
}

void sv_ece_agree(struct sv_qp *qp)
{
	qp->ece = qp->ece_wanted & qp->port->cfg.ece_options;
}

int sv_query_ece(struct ibv_qp *ibv, struct ibv_ece *ece)
{
	struct sv_qp *qp = sv_qp(ibv);
	int err = sv_verb_gate(ibv->context, SV_VERB_QUERY_ECE);

	if (err)
		return err;
	if (!qp->port->cfg.ece_options)
		return EOPNOTSUPP;
	sv_port_lock(qp->port);
	*ece = (struct ibv_ece){.vendor_id = qp->port->cfg.ece_vendor, .options = qp->ece};
	sv_port_unlock(qp->port);
	return 0;
}

int sv_set_ece(struct ibv_qp *ibv, struct ibv_ece *ece)
{
	struct sv_qp *qp = sv_qp(ibv);
	int err = sv_verb_gate(ibv->context, SV_VERB_SET_ECE);

	if (err)
		return err;
	if (!qp->port->cfg.ece_options)
		return EOPNOTSUPP;
	if (ece->comp_mask || ece->vendor_id != qp->port->cfg.ece_vendor)
		return EINVAL;
	sv_port_lock(qp->port);
	if (qp->state != IBV_QPS_RESET && qp->state != IBV_QPS_INIT) {
		err = EINVAL;
	} else {
		qp->ece_wanted = ece->options;
		qp->ece = 0; /* not agreed yet */
	}
	sv_port_unlock(qp->port);
	return err;
}
