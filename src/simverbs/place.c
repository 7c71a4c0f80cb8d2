/* SPDX-License-Identifier: Apache-2.0 */
/*
 * WRITEs that arrived and are not in memory yet (fault rule unordered): what a device with
 * out-of-order data placement does with packets that took several routes. Each lies here for a time
 * of its own, so they get into memory in any order; that it was taken is not said before.
 */
#include "core.h"

#include <stdlib.h>

struct sv_late {
	struct sv_late *next; /* by due_ns */
	uint64_t due_ns;
	uint64_t addr;
	uint32_t rkey;
	uint32_t psn; /* of its first packet */
	uint32_t length;
	uint8_t bytes[];
};

static bool fires(const struct sv_qp *qp, const struct sv_packet *pkt, uint64_t *late_ns)
{
	struct sv_port *port = qp->port;
	struct sv_fault_where where;

	if (!sv_fault_armed(port->faults, SV_POINT_PLACE) || port->dying)
		return false;
	where = sv_qp_where(qp);
	return sv_fault_late(port->faults, SV_POINT_PLACE, &where, pkt, sv_now(port), late_ns);
}

static void insert(struct sv_qp *qp, struct sv_late *late)
{
	struct sv_late **pos = &qp->late;

	while (*pos && (*pos)->due_ns <= late->due_ns)
		pos = &(*pos)->next;
	late->next = *pos;
	*pos = late;
	sv_qp_set_place_timer(qp, qp->late->due_ns);
}

bool sv_place_late(struct sv_qp *qp, const struct sv_packet *pkt, uint32_t from, uint32_t length)
{
	struct sv_late *late;
	uint64_t late_ns;

	if (!fires(qp, pkt, &late_ns))
		return false;
	late = malloc(sizeof(*late) + length);
	if (!late)
		return false;
	if (!sv_copy_payload(qp->port, pkt, from, late->bytes, length)) {
		free(late);
		return false;
	}
	late->due_ns = sv_now(qp->port) + late_ns;
	late->addr = qp->write_addr;
	late->rkey = qp->rkey;
	late->psn = pkt->psn;
	late->length = length;
	insert(qp, late);
	return true;
}

/* Looked up now: it may have been deregistered since. */
static bool put(struct sv_qp *qp, const struct sv_late *late)
{
	const struct sv_packet pkt = {
	    .op = SV_OP_WRITE, .payload = late->bytes, .payload_len = late->length};
	const struct sv_mr *mr = sv_mr_find(qp->port, qp->pd, late->rkey, late->addr, late->length,
					    IBV_ACCESS_REMOTE_WRITE);

	return mr && sv_put(qp, mr, late->addr, &pkt, 0, late->length) == SV_COPY_OK;
}

bool sv_place(struct sv_qp *qp, uint64_t until_ns)
{
	bool ok = true;

	while (ok && qp->late && qp->late->due_ns <= until_ns) {
		struct sv_late *late = qp->late;

		ok = put(qp, late);
		if (!ok)
			break; /* still here: sv_place_oldest names it */
		qp->late = late->next;
		free(late);
	}
	sv_qp_set_place_timer(qp, ok && qp->late ? qp->late->due_ns : SV_NEVER);
	return ok;
}

uint32_t sv_place_oldest(const struct sv_qp *qp)
{
	uint32_t psn = qp->epsn;

	for (const struct sv_late *late = qp->late; late; late = late->next)
		if (sv_psn_diff(late->psn, psn) < 0)
			psn = late->psn;
	return psn;
}

void sv_place_drop(struct sv_qp *qp)
{
	while (qp->late) {
		struct sv_late *late = qp->late;

		qp->late = late->next;
		free(late);
	}
	qp->place_ns = SV_NEVER;
}
