/* SPDX-License-Identifier: Apache-2.0 */
#include "gin/verbs/sender_post.h"

uint32_t ha_gin_sender_find_lkey(struct ha_mr *from, struct ha_nic *nic)
{
	struct ibv_mr *mr;

	return ha_mr_on(from, nic, &mr) == HA_OK ? mr->lkey : 0;
}

bool ha_gin_sender_post_nothing(struct ha_gin_sender *sender, const struct ibv_send_wr *noticed)
{
	struct ibv_send_wr wr = *noticed;

	wr.num_sge = 0;
	wr.wr.rdma.remote_addr = sender->ring;
	wr.wr.rdma.rkey = sender->ring_rkey;
	return ha_gin_qp_send(&sender->qp, &wr);
}

void ha_gin_sender_post_all(struct ha_gin_sender *sender)
{
	const struct ha_gin_journal *journal = &sender->journal;

	while (journal->posted != journal->issued && ha_gin_sender_has_room(journal))
		if (!ha_gin_sender_post_next(
			sender, &sender->requests[journal->posted & (journal->slots - 1)],
			journal->posted))
			return;
}
